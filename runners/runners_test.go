package runners

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) {
	Define(flag.CommandLine)
	flag.Parse()
	Init(1)
	os.Exit(m.Run())
}

// set gives flags values until the test ends.
func set(t *testing.T, flags map[string]string) {
	t.Helper()
	for name, value := range flags {
		f := flag.Lookup(name)
		if f == nil {
			t.Fatalf("no flag --%s", name)
		}
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Value.Set(before) })
	}
}

func TestCheck(t *testing.T) {
	type flags = map[string]string
	cases := map[string]struct {
		flags flags
		want  string // of the error; "" for none
	}{
		"default":                {flags{}, ""},
		"direct":                 {flags{"runner": "DirectRunner"}, ""},
		"prism":                  {flags{"runner": "prism"}, ""},
		"unknown":                {flags{"runner": "spark"}, "--runner=spark"},
		"flink alone":            {flags{"runner": "flink"}, "--endpoint"},
		"flink, no environment":  {flags{"runner": "FlinkRunner", "endpoint": "x:1"}, "--environment_type"},
		"flink, mistyped":        {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "lopback"}, "--environment_type=lopback"},
		"flink, loopback":        {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK"}, ""},
		"universal, process":     {flags{"runner": "PortableRunner", "endpoint": "x:1", "environment_type": "process"}, "--environment_config"},
		"universal, external":    {flags{"runner": "universal", "endpoint": "x:1", "environment_type": "external"}, "worker pool"},
		"universal, configured":  {flags{"runner": "universal", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:2"}, ""},
		"dataflow alone":         {flags{"runner": "dataflow"}, "--project"},
		"dataflow, no region":    {flags{"runner": "dataflow", "project": "p"}, "--region"},
		"dataflow, no staging":   {flags{"runner": "dataflow", "project": "p", "region": "r"}, "--staging_location"},
		"dataflow, local folder": {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "/tmp"}, "--staging_location"},
		"dataflow":               {flags{"runner": "DataflowRunner", "project": "p", "region": "r", "staging_location": "gs://b/x"}, ""},
		"dry run, dataflow":      {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x", "dry_run": "true"}, ""},
		"dry run, direct":        {flags{"dry_run": "true"}, "--dry_run"},
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

func TestCause(t *testing.T) {
	cases := map[string]struct{ in, want string }{
		"of a DoFn":    {"while executing\n\tcaused by:\nDoFn[UID:3, PID:x] failed:\nlinnet: write: no space left\ngoroutine 7 [running]:\nmain.f()\n\t/x/y.go:1", "write: no space left"},
		"the last one": {"linnet: a\nlinnet: b\nc", "b"},
		"escaped":      {`rpc error: "linnet: read: x\nFull error:\ny"`, "read: x"},
		"of Beam":      {"job job-001 failed:\nno such endpoint", "no such endpoint"},
		"nothing":      {"", "the run failed without a reason"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Cause(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

var countedCounter = beam.NewCounter("runners_test", "counted")

func countFn(ctx context.Context, x int) error {
	countedCounter.Inc(ctx, int64(x))
	if x < 0 {
		return errors.New("linnet: test: negative\nsecond line")
	}
	return nil
}

func init() { beam.RegisterFunction(countFn) }

// capture is what f writes to standard error.
func capture(t *testing.T, f func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = before; file.Close() }()
	f()
	data, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRun(t *testing.T) {
	for _, runner := range []string{"direct", "prism"} {
		t.Run(runner, func(t *testing.T) {
			set(t, map[string]string{"runner": runner, "endpoint": "", "environment_type": ""})
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			if !Local() {
				t.Error("it is not local")
			}
			said := capture(t, func() {
				p, s := beam.NewPipelineWithRoot()
				beam.ParDo0(s, countFn, beam.Create(s, 1, 2, 3))
				res, err := Run(context.Background(), p, "runners_test", 1)
				if err != nil {
					t.Fatal(err)
				}
				if res.Running || res.Counters["counted"] != 6 {
					t.Errorf("got %+v, want counted: 6", res)
				}

				p, s = beam.NewPipelineWithRoot()
				beam.ParDo0(s, countFn, beam.Create(s, -1))
				_, err = Run(context.Background(), p, "runners_test", 1)
				if err == nil || err.Error() != "test: negative" {
					t.Errorf("got %v, want test: negative", err)
				}
			})
			if said != "" {
				t.Errorf("standard error has %q", said)
			}
			left, err := os.ReadDir(tmp)
			if err != nil || len(left) > 0 {
				t.Errorf("temporary files are left: %v, %v", left, err)
			}
		})
	}
}

// jobs is a job service whose jobs ended so.
type jobs struct {
	jobpb.UnimplementedJobServiceServer
	state jobpb.JobState_Enum
}

func (j *jobs) GetState(context.Context, *jobpb.GetJobStateRequest) (*jobpb.JobStateEvent, error) {
	return &jobpb.JobStateEvent{State: j.state}, nil
}

// TestJudge checks that only DONE is no error.
func TestJudge(t *testing.T) {
	for state, ok := range map[jobpb.JobState_Enum]bool{
		jobpb.JobState_DONE: true, jobpb.JobState_CANCELLED: false, jobpb.JobState_FAILED: false, jobpb.JobState_RUNNING: false,
	} {
		t.Run(state.String(), func(t *testing.T) {
			lis, err := net.Listen("tcp", "localhost:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := grpc.NewServer()
			jobpb.RegisterJobServiceServer(srv, &jobs{state: state})
			go srv.Serve(lis)
			defer srv.Stop()
			set(t, map[string]string{"endpoint": lis.Addr().String()})
			err = judge(context.Background(), Universal, "job-1")
			if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "job job-1 ended "+state.String()) {
				t.Errorf("got %v, want an error: %t", err, !ok)
			}
		})
	}
}

func TestWatcher(t *testing.T) {
	w := &watcher{quiet: true, announce: true}
	said := capture(t, func() {
		w.Log(context.Background(), 0, 0, "Pipeline: a dump")
		w.Log(context.Background(), 0, 0, "Submitted job: job-7")
	})
	if said != "Submitted job: job-7\n" || w.jobID() != "job-7" {
		t.Errorf("it says %q of job %q", said, w.jobID())
	}
}
