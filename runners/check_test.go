package runners

import (
	"flag"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
)

func TestCheck(t *testing.T) {
	type flags = map[string]string
	cases := map[string]struct {
		flags flags
		want  string // of the error; "" for none
	}{
		"default":                    {flags{}, ""},
		"direct":                     {flags{"runner": "DirectRunner"}, ""},
		"prism":                      {flags{"runner": "prism"}, ""},
		"direct, async":              {flags{"async": "true"}, "--async"},
		"prism, async":               {flags{"runner": "prism", "async": "true"}, "--async"},
		"prism elsewhere, async":     {flags{"runner": "prism", "async": "true", "endpoint": "x:1"}, ""},
		"direct, parallelism":        {flags{"parallelism": "2"}, "--parallelism is for a job elsewhere"},
		"prism, parallelism":         {flags{"runner": "prism", "parallelism": "2"}, "--parallelism"},
		"direct, endpoint":           {flags{"endpoint": "x:1"}, "--endpoint"},
		"direct, environment":        {flags{"environment_type": "LOOPBACK"}, "--environment_type"},
		"direct, configured":         {flags{"environment_config": "x:2"}, "--environment_config"},
		"prism, loopback":            {flags{"runner": "prism", "environment_type": "LOOPBACK"}, ""},
		"prism, process":             {flags{"runner": "prism", "environment_type": "PROCESS"}, "--environment_type is for a job elsewhere"},
		"prism, configured":          {flags{"runner": "prism", "environment_type": "LOOPBACK", "environment_config": "x:2"}, "--environment_config"},
		"unknown":                    {flags{"runner": "apex"}, "--runner=apex is none; it must be direct, prism, flink, spark, dataflow or universal"},
		"spark alone":                {flags{"runner": "spark"}, "--runner=spark needs --endpoint=host:port of the job server (localhost:8098 by scripts/spark)"},
		"spark, no environment":      {flags{"runner": "spark", "endpoint": "x:1"}, "--runner=spark needs --environment_type"},
		"spark":                      {flags{"runner": "SparkRunner", "endpoint": "x:1", "environment_type": "LOOPBACK"}, ""},
		"flink alone":                {flags{"runner": "flink"}, "--endpoint"},
		"flink, no port":             {flags{"runner": "flink", "endpoint": "x", "environment_type": "LOOPBACK"}, "--endpoint=host:port"},
		"flink, no number":           {flags{"runner": "flink", "endpoint": "x:", "environment_type": "LOOPBACK"}, "--endpoint=host:port"},
		"prism elsewhere, no port":   {flags{"runner": "prism", "endpoint": "x"}, "--endpoint=host:port"},
		"flink, no environment":      {flags{"runner": "FlinkRunner", "endpoint": "x:1"}, "--environment_type"},
		"flink, mistyped":            {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "lopback"}, "--environment_type=lopback"},
		"flink, loopback":            {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK"}, ""},
		"universal, process":         {flags{"runner": "PortableRunner", "endpoint": "x:1", "environment_type": "process"}, "--environment_config"},
		"universal, external":        {flags{"runner": "universal", "endpoint": "x:1", "environment_type": "external"}, "worker pool"},
		"external, no port":          {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "x"}, "worker pool"},
		"external, no host":          {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": ":2"}, "worker pool"},
		"external, no number":        {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:abc"}, "worker pool"},
		"external, no such port":     {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:99999"}, "worker pool"},
		"external, port alone":       {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "50000"}, "worker pool"},
		"external, http":             {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "http://x:2"}, "worker pool"},
		"flink, process, no command": {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "process", "environment_config": "/bin/predict"}, `{"command":`},
		"flink, process":             {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "PROCESS", "environment_config": `{"command":"/bin/predict"}`}, ""},
		"flink, loopback, async":     {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "loopback", "async": "true"}, "--async"},
		"universal, configured":      {flags{"runner": "universal", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:2"}, ""},
		"flink, 0 at a time":         {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "parallelism": "0"}, "--parallelism=0: it must be 1"},
		"flink, below 0":             {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "parallelism": "-2"}, "--parallelism=-2"},
		"flink, named":               {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "job_name": "a b/c_1"}, ""},
		"flink, umlaut":              {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "job_name": "nächtlich"}, "--job_name="},
		"prism, umlaut":              {flags{"runner": "prism", "job_name": "nächtlich"}, "--job_name="},
		"prism, two lines":           {flags{"runner": "prism", "job_name": "a\nb"}, "--job_name="},
		"dataflow alone":             {flags{"runner": "dataflow"}, "--project"},
		"dataflow, no region":        {flags{"runner": "dataflow", "project": "p"}, "--region"},
		"dataflow, no staging":       {flags{"runner": "dataflow", "project": "p", "region": "r"}, "--staging_location"},
		"dataflow, template":         {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/s", "template_location": "gs://b/t"}, "--template_location"},
		"dataflow, local folder":     {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "/tmp"}, "--staging_location"},
		"dataflow":                   {flags{"runner": "DataflowRunner", "project": "p", "region": "r", "staging_location": "gs://b/x"}, ""},
		"dry run, dataflow":          {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x", "dry_run": "true"}, ""},
		"dry run, direct":            {flags{"dry_run": "true"}, "--dry_run"},
		"labels, direct":             {flags{"labels": `{"a":"b"}`}, ""},
		"labels of lines":            {flags{"labels": "Nomenclature"}, "--label_set's"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			set(t, c.flags)
			err := Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if f := flag.Lookup("runner"); f.DefValue != Direct || f.Value.String() != Direct {
		t.Errorf("--runner is %s by default, and %s", f.DefValue, f.Value)
	}
}

// TestHints has Check refuse what Beam panics at when the job is made.
func TestHints(t *testing.T) {
	t.Cleanup(func() { jobopts.ResourceHints, jobopts.SdkHarnessContainerImageOverrides = nil, nil })
	for override, want := range map[string]string{".*beam_go.*,mine:1": "", "mine:1": "--sdk_harness_container_image_override=mine:1: it must be"} {
		jobopts.SdkHarnessContainerImageOverrides = []string{override}
		if err := Check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", override, err, want)
		}
	}
	jobopts.SdkHarnessContainerImageOverrides = nil
	for hint, want := range map[string]string{
		"min_ram=4GB": "", "beam:resources:x:v1=y": "",
		"x": `runners: --resource_hints: unparsable resource hint: "x"; name hints`, "ram=4GB": "unknown resource hint: ram=4GB", "min_ram=much": "unable to parse \"much\"",
	} {
		jobopts.ResourceHints = []string{hint}
		if err := Check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", hint, err, want)
		}
	}
}
