// Package runners starts a pipeline on the runner that --runner names, waits for it
// and judges its end.
//
// It promises that options are checked before anything starts, with the
// missing flag named; that anything but DONE (of Dataflow also a drained job) is an
// error, also where Beam's client calls it a success; that an error is one line, the
// DoFn's own where it was one; and that Beam's dumps and logs stay hidden below
// verbosity 2.
package runners

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/util/hooks"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	beamrunners "github.com/apache/beam/sdks/v2/go/pkg/beam/runners"

	// Each registers its runner and its flags.
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/dataflow"
	//lint:ignore SA1019 it streams a fused pipeline without gRPC, and people ask for it by name
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/direct"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/flink"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/spark"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal"
)

// Names of runners; Beam's own names (DirectRunner, …) are taken as well.
const (
	Direct    = "direct"
	Prism     = "prism"
	Flink     = "flink"
	Spark     = "spark"
	Dataflow  = "dataflow"
	Universal = "universal"
)

var names = map[string]string{
	"direct": Direct, "directrunner": Direct,
	"prism": Prism, "prismrunner": Prism,
	"flink": Flink, "flinkrunner": Flink,
	"spark": Spark, "sparkrunner": Spark,
	"dataflow": Dataflow, "dataflowrunner": Dataflow,
	"universal": Universal, "portable": Universal, "portablerunner": Universal,
}

// Flags are those of package flag that belong to --help of every pipeline.
var Flags = []string{"runner", "flink_rest", "worker_pool"}

// Define sets what --runner is without one, in fs, which is flag.CommandLine
// with Beam's flags on it.
func Define(fs *flag.FlagSet) {
	f := fs.Lookup("runner")
	f.Usage = "`name` of the runner: direct or prism in this process, flink, spark, dataflow or universal elsewhere"
	f.DefValue = Direct
	*beamrunners.Runner = Direct
	defineGPU(fs)
}

// Name is the runner that the flags chose, by its short name, or an error that
// lists them.
func Name() (string, error) {
	name, ok := names[strings.ToLower(*beamrunners.Runner)]
	if !ok {
		return "", fmt.Errorf("runners: --runner=%s is none; it must be direct, prism, flink, spark, dataflow or universal", *beamrunners.Runner)
	}
	return name, nil
}

// Local reports whether the runner that the flags chose works in this process.
func Local() bool {
	name, err := Name()
	return err == nil && (name == Direct || name == Prism && *jobopts.Endpoint == "")
}

// Survives reports whether a job of the runner that the flags chose goes on when
// this process ends: where neither the runner nor its workers are in it.
func Survives() bool { return !Local() && !strings.EqualFold(*jobopts.EnvironmentType, "loopback") }

// OtherBuild reports whether the workers of the runner that the flags chose may be
// of another build than this program, such as one with CUDA.
func OtherBuild() bool {
	name, _ := Name()
	if name != Dataflow {
		switch {
		case !Survives():
			return false
		case strings.EqualFold(*jobopts.EnvironmentType, "external"):
			return true
		case strings.EqualFold(*jobopts.EnvironmentType, "process"):
			self, err := os.Executable()
			return err != nil || !sameFile(self, command(*jobopts.EnvironmentConfig))
		}
	}
	return *jobopts.WorkerBinary != "" || workerGPU.count > 0
}

func sameFile(a, b string) bool {
	here, err := os.Stat(a)
	there, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(here, there)
}

var submitted atomic.Bool // the job of the last Run

// Submitted reports whether the last Run has submitted its job.
func Submitted() bool { return submitted.Load() }

// ErrNotCancelled says that a job may still run after an interrupt.
var ErrNotCancelled = errors.New("cannot be cancelled")

// Init initialises Beam, once, after flags are parsed. In a worker it does not
// return: a worker's flags come from its runner. Below verbosity 2 nothing that
// is written to the standard library's log and slog shows any more, since Beam
// writes there: tell errors with fmt, and not with log.Fatal.
func Init(verbosity int) {
	quiet := verbosity < 2
	if quiet {
		log.LogLevel = "error"
	}
	beam.Init()
	if quiet {
		// Prism logs through slog, the SDK and its in-process worker through
		// Beam's log; what matters comes back as an error.
		slog.SetDefault(slog.New(slog.DiscardHandler))
		if Local() { // a worker elsewhere logs to its runner
			hooks.DisableHook("default_remote_logging")
		}
	}
	log.SetLogger(&watcher{quiet: quiet})
}

// DryRun reports whether --dry_run asks only for the job that Dataflow would be
// sent: Run prints it as JSON, on standard output, and starts nothing.
func DryRun() bool { return value("dry_run") == "true" }

// Result is what a finished run tells.
type Result struct {
	JobID string
	// Running says that the job was only submitted, by --async or --dry_run;
	// it has no numbers yet.
	Running bool
	// Metrics of one namespace by name, all transforms together; of a gauge the
	// last value.
	Counters      map[string]int64
	Distributions map[string]metrics.DistributionValue
	Gauges        map[string]metrics.GaugeValue
}

// Run runs p to its end, or only submits it with --async, and counts the
// metrics of namespace. Its error is one line; with verbosity 2 all of Beam's
// is logged before. When ctx ends a job elsewhere is cancelled; what
// runs in this process is the caller's to stop. One Run goes on at a time, for
// Beam's flags are those of the process.
func Run(ctx context.Context, p *beam.Pipeline, namespace string, verbosity int) (*Result, error) {
	name, err := Name()
	if err != nil {
		return nil, err
	}
	local := Local() // before prism fills in its own address
	watch := &watcher{quiet: verbosity < 2, announce: !local && verbosity >= 1, submitted: make(chan struct{})}
	submitted.Store(false)
	log.SetLogger(watch)
	dir := ""
	done := func() {}
	if name != Direct { // which needs none, and after a kill would leave one
		if dir, done, err = ownTempDir(); err != nil {
			return nil, err
		}
	}
	defer done()
	flags := [...]*string{jobopts.Endpoint, jobopts.EnvironmentType, jobopts.WorkerBinary, beamrunners.Runner}
	for _, f := range flags {
		defer func(before string) { *f = before }(*f)
	}
	if local && name == Prism {
		if err := checkLocalhost(); err != nil {
			return nil, err
		}
		defer closeToOthers()()
		defer usePrism()()
	}
	service := !local && name != Dataflow // a job service other than prism's in this process
	if service {
		flink, err := checkEndpoint(ctx, *jobopts.Endpoint)
		if err != nil {
			return nil, err
		}
		if flink { // under any name, or Cancel would leave the job to run
			name, *beamrunners.Runner = Flink, Flink
		}
		if name == Flink {
			defer giveOptions()()
		}
	}
	if !local {
		if err := workerBinary(ctx, dir); err != nil {
			return nil, err
		}
	}
	elsewhere := service || name == Dataflow
	interrupted := ctx
	ctx = context.WithoutCancel(ctx)
	over := make(chan struct{})
	var cancelled sync.WaitGroup
	var notCancelled error
	if elsewhere && !*jobopts.Async {
		cancelled.Go(func() { notCancelled = cancelAtEnd(interrupted, watch, over) })
	}
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	if name == Flink && watch.announce && !*jobopts.Async {
		cancelled.Go(func() { warnOfWaiting(asking, watch, over) })
	}
	if service {
		cancelled.Go(func() {
			select {
			case <-over:
			case <-watch.submitted: // the job has the files, and a launcher that leaves it does not come back here
				done()
			}
		})
	}
	res, err := beam.Run(ctx, name, p)
	close(over)
	stopAsking() // of Flink's web page, which may not answer
	cancelled.Wait()
	log.SetLogger(watch) // an in-process worker put its own there
	out := &Result{JobID: watch.jobID()}
	if *jobopts.Async && out.JobID != "" && interrupted.Err() != nil { // before it was submitted
		notCancelled = cancelJob(ctx, out.JobID)
	}
	if notCancelled != nil {
		return nil, fmt.Errorf("%w: %w", context.Cause(interrupted), notCancelled)
	}
	if elsewhere && out.JobID != "" && interrupted.Err() != nil {
		return nil, fmt.Errorf("%w: job %s is cancelled; run again to go on", context.Cause(interrupted), out.JobID)
	}
	if err != nil {
		if verbosity >= 2 {
			log.Error(ctx, err.Error())
		}
		return nil, explain(ctx, name, out.JobID, service, err)
	}
	if res != nil && out.JobID == "" {
		out.JobID = res.JobID()
	}
	if *jobopts.Async || res == nil {
		out.Running = true
		return out, nil
	}
	switch end := watch.end(); {
	case name == Dataflow && end != "" && end != "succeeded!" && end != "drained": // as a watch ends that took no more
		return nil, fmt.Errorf("runners: job %s was %s, and not by this program", out.JobID, end)
	case name != Direct && name != Dataflow:
		if err := judge(ctx, name, out.JobID); err != nil {
			return nil, err
		}
	}
	out.count(res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Namespace() == namespace }))
	return out, nil
}

// count sums up what the transforms measured.
func (r *Result) count(all metrics.QueryResults) {
	r.Counters, r.Distributions, r.Gauges = map[string]int64{}, map[string]metrics.DistributionValue{}, map[string]metrics.GaugeValue{}
	for _, c := range all.Counters() {
		r.Counters[c.Name()] += c.Result()
	}
	for _, d := range all.Distributions() {
		sum, more := r.Distributions[d.Name()], d.Result()
		if sum.Count == 0 {
			sum = more
		} else if more.Count > 0 {
			sum.Count, sum.Sum = sum.Count+more.Count, sum.Sum+more.Sum
			sum.Min, sum.Max = min(sum.Min, more.Min), max(sum.Max, more.Max)
		}
		r.Distributions[d.Name()] = sum
	}
	for _, g := range all.Gauges() {
		if v := g.Result(); !v.Timestamp.Before(r.Gauges[g.Name()].Timestamp) {
			r.Gauges[g.Name()] = v
		}
	}
}

// ownTempDir lets Beam leave its temporary files, such as an empty worker
// binary for every job, in a folder that the function it returns removes.
func ownTempDir() (string, func(), error) {
	before, was := os.LookupEnv("TMPDIR")
	dir, err := os.MkdirTemp("", "linnet-")
	if err == nil { // Beam makes a file there, and panics where it cannot
		probe := filepath.Join(dir, "worker")
		err = cmp.Or(os.WriteFile(probe, nil, 0o666), os.Remove(probe))
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", func() {}, fmt.Errorf("runners: no folder for temporary files: %w; set TMPDIR to a folder that can be written to", err)
	}
	os.Setenv("TMPDIR", dir)
	return dir, func() {
		if was {
			os.Setenv("TMPDIR", before)
		} else {
			os.Unsetenv("TMPDIR")
		}
		os.RemoveAll(dir)
	}, nil
}

// watcher is Beam's logger in the launcher: silent where quiet, and always
// with an eye on the job's number, which Beam's client tells nowhere else
// under --async (nor does Airflow find it elsewhere).
type watcher struct {
	quiet, announce bool
	submitted       chan struct{} // closed when job is known; may be nil
	mu              sync.Mutex
	job             string
	last            string // what Beam's client for Dataflow said last of job
}

const submittedJob = "Submitted job: "

func (w *watcher) Log(ctx context.Context, sev log.Severity, depth int, msg string) {
	if id, ok := strings.CutPrefix(msg, submittedJob); ok && w.submit(id) {
		submitted.Store(true)
		if w.announce {
			fmt.Fprintln(os.Stderr, msg)
			return
		}
	}
	if said, ok := strings.CutPrefix(msg, "Job "+w.jobID()+" "); ok {
		w.mu.Lock()
		w.last = said
		w.mu.Unlock()
	}
	if DryRun() && strings.HasPrefix(msg, "{") { // the job that Dataflow would be sent
		fmt.Println(msg)
		return
	}
	switch {
	case !w.quiet:
		(&log.Structural{}).Log(ctx, sev, depth+1, msg)
	case sev == log.SevWarn && strings.HasPrefix(msg, "linnet: "): // why nothing moves
		fmt.Fprintln(os.Stderr, msg)
	}
}

// submit takes the job's number where there is none yet: what a job server says later,
// which comes here too, may begin with the same words.
func (w *watcher) submit(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.job != "" || id == "" {
		return false
	}
	w.job = id
	if w.submitted != nil {
		close(w.submitted)
	}
	return true
}

func (w *watcher) jobID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.job
}

// end is how a job of Dataflow's ended: "succeeded!", or "cancelled", "drained" or
// "updated", which Beam's client has no error for.
func (w *watcher) end() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
