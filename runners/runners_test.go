package runners

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
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

var (
	countedCounter = beam.NewCounter("runners_test", "counted")
	sizes          = beam.NewDistribution("runners_test", "sizes")
)

var tempDir atomic.Value // while countFn ran

func countFn(ctx context.Context, x int) error {
	tempDir.Store(os.TempDir())
	countedCounter.Inc(ctx, int64(x))
	sizes.Update(ctx, int64(x))
	if x < 0 {
		return errors.New("linnet: test: negative\nsecond line")
	}
	return nil
}

func countAgainFn(ctx context.Context, x int) error { return countFn(ctx, x) }

func init() {
	beam.RegisterFunction(countFn)
	beam.RegisterFunction(countAgainFn)
	beam.RegisterFunction(strangerFn)
	beam.RegisterFunction(endpointFn)
}

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
				beam.ParDo0(s, countFn, beam.Create(s, 2, 3))
				beam.ParDo0(s, countAgainFn, beam.Create(s, 1, 3, 4)) // direct forgets the numbers of a function's second place
				res, err := Run(context.Background(), p, "runners_test", 1)
				if err != nil {
					t.Fatal(err)
				}
				want := metrics.DistributionValue{Count: 5, Sum: 13, Min: 1, Max: 4}
				if res.Running || res.Counters["counted"] != 13 || res.Distributions["sizes"] != want {
					t.Errorf("got %+v, want counted: 13, sizes: %+v", res, want)
				}

				if own := tempDir.Load() != tmp; own != (runner != "direct") { // which a kill would leave
					t.Errorf("temporary files in %s of %s", tempDir.Load(), tmp)
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

func TestSurvives(t *testing.T) {
	for env, want := range map[string]bool{"PROCESS": true, "LOOPBACK": false} {
		set(t, map[string]string{"runner": "flink", "endpoint": "localhost:1", "environment_type": env})
		if Survives() != want {
			t.Errorf("%s: got %t", env, !want)
		}
	}
}

// TestOtherBuild sends jobs to workers that are this program, and to others.
func TestOtherBuild(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := func(command string) string { return fmt.Sprintf(`{"command":%q}`, command) }
	for _, c := range []struct {
		runner, env, config, binary, gpus string
		want                              bool
	}{
		{runner: "direct"}, {runner: "prism"},
		{runner: "flink", env: "LOOPBACK"},
		{runner: "flink", env: "EXTERNAL", config: "localhost:50000", want: true},
		{runner: "universal", env: "external", config: "localhost:50000", want: true},
		{runner: "flink", env: "PROCESS", config: process(self)},
		{runner: "flink", env: "PROCESS", config: process("/opt/predict-cuda"), want: true},
		{runner: "flink", env: "DOCKER", config: "image"},
		{runner: "flink", env: "DOCKER", config: "image", binary: "predict-cuda", want: true},
		{runner: "dataflow"},
		{runner: "dataflow", gpus: "1", want: true},
		{runner: "dataflow", binary: "predict-cuda", want: true},
	} {
		set(t, map[string]string{
			"runner": c.runner, "endpoint": "", "environment_type": c.env, "environment_config": c.config, "worker_binary": c.binary, "worker_gpu": cmp.Or(c.gpus, "0"),
		})
		if got := OtherBuild(); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}

func TestWatcher(t *testing.T) {
	w := &watcher{quiet: true, announce: true, submitted: make(chan struct{})}
	select {
	case <-w.submitted:
		t.Error("submitted before it is")
	default:
	}
	said := capture(t, func() {
		w.Log(context.Background(), 0, 0, "Pipeline: a dump")
		w.Log(context.Background(), 0, 0, "Submitted job: job-7")
	})
	if said != "Submitted job: job-7\n" || w.jobID() != "job-7" {
		t.Errorf("it says %q of job %q", said, w.jobID())
	}
	select {
	case <-w.submitted: // who cancels waits for it
	default:
		t.Error("nobody hears that the job is submitted")
	}
}
