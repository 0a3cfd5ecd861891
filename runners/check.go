package runners

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/gcpopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
)

// Check says which flag the chosen runner still needs, before anything starts.
func Check() error {
	name, err := Name()
	if err != nil {
		return err
	}
	if name != Dataflow && DryRun() {
		return fmt.Errorf("runners: --dry_run is for --runner=dataflow; --runner=%s would run all the same", name)
	}
	// Airflow gives every job some, so they are no sign of Dataflow.
	if labels := value("labels"); labels != "" && json.Unmarshal([]byte(labels), new(map[string]string)) != nil {
		return fmt.Errorf("runners: --labels=%q: it must be a JSON object of the job's labels, for Dataflow; which labels lines get is --label_set's", labels)
	}
	if name != Dataflow && (workerGPU.count != 0 || workerGPU.kind != defaultGPU) {
		return errors.New("runners: --worker_gpu is for --runner=dataflow; elsewhere the cluster's own settings give a worker its GPU")
	}
	if *jobopts.Async && Local() {
		return fmt.Errorf("runners: --async is for a job elsewhere; --runner=%s works in this program, which would end before it; leave it out", name)
	}
	var elsewhere []string // what would be passed over without a word, or leave prism waiting for workers
	switch {
	case name == Direct:
		elsewhere = []string{"endpoint", "environment_type", "environment_config", "parallelism"}
	case Local():
		elsewhere = []string{"environment_config", "parallelism"}
		if !strings.EqualFold(*jobopts.EnvironmentType, "loopback") { // which it is anyway
			elsewhere = append(elsewhere, "environment_type")
		}
	}
	for _, of := range elsewhere {
		if f := flag.Lookup(of); f.Value.String() != f.DefValue {
			return fmt.Errorf("runners: --%s is for a job elsewhere; --runner=%s works in this program, on all cores; leave it out, or name the runner it is for", of, name)
		}
	}
	// A job's name travels in headers of HTTP: with other signs Beam's workers never come.
	if notASCII := func(r rune) bool { return r < ' ' || r > '~' }; name != Direct && strings.ContainsFunc(*jobopts.JobName, notASCII) {
		return fmt.Errorf("runners: --job_name=%q: use ASCII letters, digits and signs, such as linnet-2026_11", *jobopts.JobName)
	}
	if err := checkHints(); err != nil {
		return err
	}
	for _, o := range jobopts.SdkHarnessContainerImageOverrides { // at others Beam panics
		if !strings.Contains(o, ",") {
			return fmt.Errorf("runners: --sdk_harness_container_image_override=%s: it must be pattern,image", o)
		}
	}
	if n := flag.Lookup("parallelism"); n.Value.String() != n.DefValue && *jobopts.Parallelism < 1 {
		return fmt.Errorf("runners: --parallelism=%s: it must be 1 or more", n.Value)
	}
	if !Local() && name != Dataflow {
		if _, port, err := net.SplitHostPort(*jobopts.Endpoint); err != nil || port == "" {
			usual := "8099 with Beam's own"
			if name == Spark {
				usual = "localhost:8098 by scripts/spark"
			}
			return fmt.Errorf("runners: --runner=%s needs --endpoint=host:port of the job server (%s)", name, usual)
		}
	}
	switch name {
	case Flink, Spark, Universal:
		return checkEnvironment(name)
	case Dataflow:
		project, region, staging := *gcpopts.Project, *gcpopts.Region, value("staging_location")
		switch {
		case project == "":
			return errors.New("runners: --runner=dataflow needs --project")
		case region == "":
			return errors.New("runners: --runner=dataflow needs --region")
		case !strings.HasPrefix(staging, "gs://"):
			return errors.New("runners: --runner=dataflow needs --staging_location=gs://bucket/folder")
		case value("template_location") != "": // of which Beam returns a result that panics
			return errors.New("runners: --template_location: a job of a template has no launcher to gather what it did; leave it out, or look at the job with --dry_run")
		}
		return fillGPU()
	}
	return nil
}

// checkHints refuses --resource_hints at which Beam would panic in Run.
func checkHints() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("runners: --resource_hints: %v; name hints such as min_ram=4GB", p)
		}
	}()
	jobopts.GetPipelineResourceHints()
	return nil
}

// checkEnvironment refuses what Beam would take for docker without a word.
func checkEnvironment(name string) error {
	env, config := strings.ToLower(*jobopts.EnvironmentType), *jobopts.EnvironmentConfig
	switch {
	case env == "":
		return fmt.Errorf("runners: --runner=%s needs --environment_type: loopback, process, external or docker", name)
	case !slices.Contains([]string{"loopback", "process", "external", "docker"}, env):
		return fmt.Errorf("runners: --environment_type=%s is none; it must be loopback, process, external or docker", *jobopts.EnvironmentType)
	case env == "process" && command(config) == "":
		return fmt.Errorf(`runners: --environment_type=process needs --environment_config='{"command":"/path/of/this/program"}', where the workers find it`)
	case env == "external" && !isPool(config):
		return errors.New("runners: --environment_type=external needs --environment_config=host:port of a worker pool, which this program is with --worker_pool")
	case env == "loopback" && *jobopts.Async:
		return errors.New("runners: --async and --environment_type=loopback: the workers would end with this program; leave one out")
	}
	return nil
}

// isPool reports whether an --environment_config is host:port; of others Java says nothing
// of use, or tries a port above 65535 for ever.
func isPool(config string) bool {
	host, port, err := net.SplitHostPort(config)
	_, number := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && number == nil
}

// command is that of an --environment_config for processes, or "".
func command(config string) string {
	var c struct{ Command string }
	if json.Unmarshal([]byte(config), &c) != nil {
		return ""
	}
	return c.Command
}
