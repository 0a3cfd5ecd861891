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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

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

// check finds wrong use.
func (o *options) check() error {
	name, err := runners.Name()
	switch {
	case err != nil:
		return cli.Usagef("%w", err)
	case o.workers < 1:
		return cli.Usagef("--workers=%d: it must be 1 or more", o.workers)
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

// ask runs the pipeline, shows what the workers answered and judges it.
func (o *options) ask(ctx context.Context) error {
	folder := o.output
	if folder == "" {
		dir, err := os.MkdirTemp("", "linnet-gpucheck-")
		if err != nil {
			return fmt.Errorf("gpucheck: no folder for answers: %w; name one by --output, or set TMPDIR to a folder that can be written to", err)
		}
		defer os.RemoveAll(dir)
		folder = dir
	}
	folder, err := input.Absolute(folder)
	if err != nil {
		return err
	}
	folder = store.Join(folder, fmt.Sprintf("_gpucheck-%d-%d", os.Getpid(), time.Now().UnixNano()))
	p, s := beam.NewPipelineWithRoot()
	pipeline(s, &checkFn{Folder: transforms.Path(folder), Workers: o.workers, Timeout: o.timeout, Device: o.device})
	result, err := runners.Run(ctx, p, namespace, o.verbosity)
	if runners.DryRun() {
		return err
	}
	defer remove(context.WithoutCancel(ctx), folder) // of a job that failed or was cancelled, too
	if err != nil {
		return err
	}
	answers, err := read(ctx, folder)
	if err != nil {
		return err
	}
	answers = current(answers, result.Counters)
	failure := o.judge(answers)
	if o.json {
		err = writeJSON(os.Stdout, o.workers, answers, failure)
	} else {
		err = writeTable(os.Stdout, answers)
	}
	return errors.Join(err, failure)
}

// namespace is that of the counters that answered begins, an ID behind it: how
// many elements a process was through with.
const (
	namespace = "linnet.gpucheck"
	answered  = "answered: "
)

// current are the answers of the processes that came to the end. Where a job was
// tried again there are others, of processes that are gone. A runner that counts
// nothing leaves all.
func current(answers []answer, counters map[string]int64) []answer {
	counted := false
	for name := range counters {
		counted = counted || strings.HasPrefix(name, answered)
	}
	if !counted {
		return answers
	}
	return slices.DeleteFunc(answers, func(a answer) bool { return counters[answered+a.ID] == 0 })
}

// pipeline deals elements out over all workers: so many more than there are
// workers that a runner which does so by chance misses none.
func pipeline(s beam.Scope, fn *checkFn) {
	numbers := make([]int, max(64, 32*fn.Workers))
	for i := range numbers {
		numbers[i] = i
	}
	beam.ParDo0(s, fn, beam.Reshuffle(s, beam.CreateList(s, numbers)))
}

// checkFn has its process checked once and holds every element until enough
// processes have answered.
type checkFn struct {
	Folder  transforms.Path // of the run's answers
	Workers int
	Timeout time.Duration // of waiting for the others
	Device  string
}

// asked are the checks of this process, by folder: func() (string, error).
var asked sync.Map

func (f *checkFn) ProcessElement(ctx context.Context, _ int) error {
	once, _ := asked.LoadOrStore(f.Folder, sync.OnceValues(func() (string, error) { return f.answer(ctx) }))
	id, err := once.(func() (string, error))()
	if err != nil {
		return fmt.Errorf("linnet: gpucheck: %w", err)
	}
	beam.NewCounter(namespace, answered+id).Inc(ctx, 1)
	return nil
}

// answer checks this process, writes what it found and waits for the others,
// until Timeout. It returns the answer's ID.
func (f *checkFn) answer(ctx context.Context) (string, error) {
	a := lookAround(ctx, f.Device, max(8, f.Workers))
	data, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	st, err := store.For(ctx, string(f.Folder))
	if err != nil {
		return "", err
	}
	if err := store.FolderError(st.Write(ctx, store.Join(string(f.Folder), a.ID+".json"), data)); err != nil {
		return "", err
	}
	if f.Workers <= 1 {
		return a.ID, nil
	}
	for until := time.Now().Add(f.Timeout); ; {
		there := 0
		err := st.List(ctx, string(f.Folder), func(o store.Object) error {
			if o.Err == nil { // a folder that could not be listed is looked at again
				there++
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		if there >= f.Workers || !time.Now().Before(until) {
			return a.ID, nil
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// read reads the answers in folder, sorted by host and process.
func read(ctx context.Context, folder string) ([]answer, error) {
	st, err := store.For(ctx, folder)
	if err != nil {
		return nil, err
	}
	var answers []answer
	err = st.List(ctx, folder, func(o store.Object) error {
		if o.Err != nil {
			return o.Err
		}
		data, err := st.Read(ctx, o.Path, 1<<20)
		if err != nil {
			return err
		}
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("gpucheck: %s: %w", o.Path, err)
		}
		answers = append(answers, a)
		return nil
	})
	if len(answers) == 0 && errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("gpucheck: no answer lies in %s: --output must name what the workers and this program share", folder)
	}
	slices.SortFunc(answers, func(a, b answer) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.PID-b.PID)
	})
	return answers, err
}

// remove deletes the answers, as far as it can.
func remove(ctx context.Context, folder string) {
	st, err := store.For(ctx, folder)
	if err != nil {
		return
	}
	_ = st.List(ctx, folder, func(o store.Object) error { return st.Delete(ctx, o.Path) })
	_ = st.Delete(ctx, folder)
}

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

// title names a device in a line.
func (d *device) title() string {
	if d.Kind == "cpu" {
		return "CPU"
	}
	return fmt.Sprintf("GPU %d %s", d.Index, d.Name)
}

func writeJSON(w io.Writer, workers int, answers []answer, failure error) error {
	out := struct {
		Workers   int      `json:"workers"`
		Answered  int      `json:"answered"`
		Error     string   `json:"error,omitempty"`
		Processes []answer `json:"processes"`
	}{workers, len(answers), "", answers}
	if failure != nil {
		out.Error = failure.Error()
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func writeTable(w io.Writer, answers []answer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "host\tprocess\tdevice\tcompute\tdriver\tmemory\tfree\tfirst launch\ttenth\tresult")
	for _, a := range answers {
		for _, d := range a.Devices {
			capability, driver, memory, free, first, tenth := "–", "–", "–", "–", "–", "–"
			if d.Kind == "cuda" {
				capability, driver = d.Capability, fmt.Sprintf("%s (CUDA %s)", a.Driver, a.CUDA)
				if d.Memory > 0 {
					memory = humanize.IBytes(d.Memory)
				}
				if d.Free > 0 {
					free = humanize.IBytes(d.Free)
				}
			}
			if d.First > 0 {
				first, tenth = fmt.Sprintf("%.1f µs", d.First), fmt.Sprintf("%.1f µs", d.Tenth)
			}
			result := "right"
			if d.Error != "" {
				result = d.Error
			}
			name := d.title()
			if d.Kind == "cpu" {
				name += ", " + d.Name
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Host, a.PID, name, capability, driver, memory, free, first, tenth, cli.Printable(result))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if a.NoGPU != "" {
			fmt.Fprintf(w, "process %d on %s: no GPU: %s\n", a.PID, a.Host, cli.Printable(a.NoGPU))
		}
	}
	_, err := fmt.Fprintf(w, "%d %s answered\n", len(answers), english.PluralWord(len(answers), "process", ""))
	return err
}

func init() { beam.RegisterDoFn(&checkFn{}) }
