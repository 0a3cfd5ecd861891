// Command gpucheck says what every worker of a runner has and whether it can
// compute: real arithmetic on its CPU and on each of its GPUs, driver, compute
// capability, memory, and the time of a first and of a tenth launch.
//
//	gpucheck --device=auto
//	gpucheck --runner=flink --endpoint=localhost:8099 --environment_type=PROCESS … --workers=2 --output=/shared/check
//
// Exit statuses: 0 all is well; 1 a worker that should have a GPU has none, a
// device computes wrongly, or fewer than --workers processes came; 2 wrong use.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"

	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

func main() { cli.Main(run) }

// options are the flags of gpucheck.
type options struct {
	output, device     string
	workers, verbosity int
	timeout            time.Duration
	json               bool
}

func define(f *cli.Flags) *options {
	o := new(options)
	f.IntVar(&o.workers, "workers", 1, "`processes` that must answer; each is held until so many have")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "`time` that a process waits for the others")
	f.StringVar(&o.device, "device", "auto", "`auto` checks GPUs where there are any, cuda wants one in every worker, cpu looks for none")
	f.StringVar(&o.output, "output", "", "`folder` or gs://bucket/prefix that all workers and this program reach, for their answers, which are deleted when they are read; not needed by a runner in this process")
	f.BoolVar(&o.json, "json", false, "print JSON for programs")
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors and the table, 1 progress, 2 Beam's log")
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("gpucheck", "Says what every worker has and whether it computes rightly.", runners.Flags...)
	runners.Define(f.FlagSet)
	o := define(f)
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	if done, err := runners.Boot(ctx); done {
		return err
	}
	if !f.Worker() {
		if err := o.check(); err != nil {
			return err
		}
		if err := runners.Check(); err != nil {
			return cli.Usagef("%w", err)
		}
		if o.verbosity > 0 && !runners.DryRun() {
			fmt.Fprintf(os.Stderr, "asking %s …\n", cli.Plural(int64(o.workers), "worker"))
		}
	}
	runners.Init(o.verbosity) // a worker stays in here
	return o.ask(ctx)
}

// mostWorkers is more than clusters have; the elements for ten times as many take
// 0.8 GB of the launcher's memory.
const mostWorkers = 10_000

// check finds wrong use.
func (o *options) check() error {
	name, err := runners.Name()
	switch {
	case err != nil:
		return cli.Usagef("%w", err)
	case o.workers < 1 || o.workers > mostWorkers:
		return cli.Usagef("--workers=%d: it must be from 1 to %s", o.workers, cli.Count(mostWorkers))
	case o.timeout <= 0:
		return cli.Usagef("--timeout=%v: it must be above 0", o.timeout)
	case o.workers > 1 && runners.Local():
		return cli.Usagef("--workers=%d: --runner=%s works in this process alone; leave out --workers", o.workers, name)
	case o.workers > 1 && strings.EqualFold(*jobopts.EnvironmentType, "loopback"):
		return cli.Usagef("--workers=%d: --environment_type=%s works in this process alone; leave out --workers", o.workers, *jobopts.EnvironmentType)
	case *jobopts.Async:
		return cli.Usagef("--async: the answers come when the job is done; leave it out")
	case o.output == "" && !runners.Local():
		return cli.Usagef("no --output: name a folder, or gs://bucket/prefix, that the workers and this program reach")
	}
	if !runners.DryRun() {
		if err := cli.CheckURI("output", o.output); err != nil {
			return err
		}
	}
	if err := runners.CheckPaths(o.output); err != nil {
		return cli.Usagef("%w", err)
	}
	return cmp.Or(cli.CheckVerbosity(o.verbosity), cli.CheckDevice(o.device, runners.OtherBuild(), -1, 0))
}

// ask runs the pipeline, shows what the workers answered and judges it. The answers are
// gone by then: a pipe that is closed, as by head, ends the program there.
func (o *options) ask(ctx context.Context) error {
	answers, err := o.answers(ctx)
	if err != nil || runners.DryRun() {
		return err
	}
	failure := o.judge(answers)
	if o.json {
		err = writeJSON(os.Stdout, o.workers, answers, failure)
	} else {
		err = writeTable(os.Stdout, answers)
	}
	return errors.Join(err, failure)
}

// answers runs the pipeline and takes what the workers answered out of their folder.
func (o *options) answers(ctx context.Context) ([]answer, error) {
	folder := o.output
	if folder == "" {
		dir, err := os.MkdirTemp("", "linnet-gpucheck-")
		if err != nil {
			return nil, fmt.Errorf("gpucheck: no folder for answers: %w; name one by --output, or set TMPDIR to a folder that can be written to", err)
		}
		defer os.RemoveAll(dir)
		folder = dir
	}
	folder, err := input.Absolute(folder)
	if err != nil {
		return nil, err
	}
	folder = store.Join(folder, fmt.Sprintf("_gpucheck-%d-%d", os.Getpid(), time.Now().UnixNano()))
	p, s := beam.NewPipelineWithRoot()
	pipeline(s, &checkFn{Folder: transforms.Path(folder), Workers: o.workers, Timeout: o.timeout, Device: o.device})
	result, err := runners.Run(ctx, p, namespace, o.verbosity)
	if runners.DryRun() {
		return nil, err
	}
	defer remove(context.WithoutCancel(ctx), folder) // of a job that failed or was cancelled, too
	if err != nil {
		return nil, err
	}
	answers, err := read(ctx, folder)
	if err != nil {
		return nil, err
	}
	return current(answers, result.Counters), nil
}

// namespace is that of the counters that answered begins, an ID behind it: how
// many elements a process was through with.
const (
	namespace = "linnet.gpucheck"
	answered  = "answered: "
)

// judge is why not all is well, in one line.
func (o *options) judge(answers []answer) error {
	for _, a := range answers {
		where := fmt.Sprintf("process %d on %s", a.PID, a.Host)
		for _, d := range a.Devices {
			if d.Failed {
				return fmt.Errorf("gpucheck: %s: %s: %s", where, d.title(), d.Error)
			}
		}
		want := runners.WorkerGPUs()
		if o.device == "cuda" {
			want = max(want, 1)
		}
		if n := a.gpus(); n < want {
			why := a.NoGPU
			for _, d := range a.Devices {
				if why == "" && d.Error != "" {
					why = d.Error
				}
			}
			switch {
			case n == 0:
				return fmt.Errorf("gpucheck: %s has no GPU that works: %s", where, why)
			case why == "":
				why = "the driver shows no other"
			}
			return fmt.Errorf("gpucheck: %s has %d of %d GPUs (--worker_gpu): %s", where, n, want, why)
		}
	}
	if n := len(answers); n < o.workers {
		return fmt.Errorf("gpucheck: %d of %d worker processes answered within %v; has the cluster free slots for the others, and is --parallelism high enough?", n, o.workers, o.timeout)
	}
	return nil
}
