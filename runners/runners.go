// Package runners starts a pipeline on the runner that --runner names (direct,
// prism, flink, dataflow or universal), waits for it and judges its end.
//
// It promises that options are checked before anything starts, with the
// missing flag named; that anything but DONE is an error, also where Beam's
// client calls it a success; that an error is one line, the DoFn's own where it
// was one; and that Beam's dumps and logs stay hidden below verbosity 2.
package runners

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/util/hooks"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/gcpopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	beamrunners "github.com/apache/beam/sdks/v2/go/pkg/beam/runners"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"

	// Each registers its runner and its flags.
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/dataflow"
	//lint:ignore SA1019 it streams a fused pipeline without gRPC, and people ask for it by name
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/direct"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/flink"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal"
)

// Names of runners; Beam's own names (DirectRunner, …) are taken as well.
const (
	Direct    = "direct"
	Prism     = "prism"
	Flink     = "flink"
	Dataflow  = "dataflow"
	Universal = "universal"
)

var names = map[string]string{
	"direct": Direct, "directrunner": Direct,
	"prism": Prism, "prismrunner": Prism,
	"flink": Flink, "flinkrunner": Flink,
	"dataflow": Dataflow, "dataflowrunner": Dataflow,
	"universal": Universal, "portable": Universal, "portablerunner": Universal,
}

// Flags are those of package flag that belong to --help of every pipeline.
var Flags = []string{"runner"}

// Later are flags of all remote pipelines that are not built yet.
var Later = []string{"worker_gpu", "worker_gpu_type", "worker_pool", "flink_rest"}

// Define sets what --runner is without one, in fs, which is flag.CommandLine
// with Beam's flags on it.
func Define(fs *flag.FlagSet) {
	f := fs.Lookup("runner")
	f.Usage = "`name` of the runner: direct or prism in this process, flink, dataflow or universal elsewhere"
	f.DefValue = Direct
	*beamrunners.Runner = Direct
}

// Name is the runner that the flags chose, by its short name, or an error that
// lists them.
func Name() (string, error) {
	name, ok := names[strings.ToLower(*beamrunners.Runner)]
	if !ok {
		return "", fmt.Errorf("runners: --runner=%s is none; it must be direct, prism, flink, dataflow or universal", *beamrunners.Runner)
	}
	return name, nil
}

// Local says whether the runner that the flags chose works in this process.
func Local() bool {
	name, err := Name()
	return err == nil && (name == Direct || name == Prism && *jobopts.Endpoint == "")
}

// Init initialises Beam, once, after flags are parsed. In a worker it does not
// return: a worker's flags come from its runner.
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

// Check says which flag the chosen runner still needs, before anything starts.
func Check() error {
	name, err := Name()
	if err != nil {
		return err
	}
	if name != Dataflow && flag.Lookup("dry_run").Value.String() == "true" {
		return fmt.Errorf("runners: --dry_run is for --runner=dataflow; --runner=%s would run all the same", name)
	}
	switch name {
	case Flink, Universal:
		if *jobopts.Endpoint == "" {
			return fmt.Errorf("runners: --runner=%s needs --endpoint=host:port of the job server (8099 with Beam's own)", name)
		}
		return checkEnvironment(name)
	case Dataflow:
		project, region, staging := *gcpopts.Project, *gcpopts.Region, flag.Lookup("staging_location").Value.String()
		switch {
		case project == "":
			return fmt.Errorf("runners: --runner=dataflow needs --project")
		case region == "":
			return fmt.Errorf("runners: --runner=dataflow needs --region")
		case !strings.HasPrefix(staging, "gs://"):
			return fmt.Errorf("runners: --runner=dataflow needs --staging_location=gs://bucket/folder")
		}
	}
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
	case env == "process" && config == "":
		return fmt.Errorf(`runners: --environment_type=process needs --environment_config={"command":"/path/of/the/worker"}`)
	case env == "external" && config == "":
		return fmt.Errorf("runners: --environment_type=external needs --environment_config=host:port of the worker pool")
	}
	return nil
}

// Result is what a finished run tells.
type Result struct {
	JobID string
	// Running says that the job was only submitted, by --async or --dry_run;
	// it has no numbers yet.
	Running bool
	// Counters of one namespace by name, all transforms together.
	Counters map[string]int64
}

// Run runs p to its end, or only submits it with --async, and counts the
// metrics of namespace. Its error is one line; with verbosity 2 all of Beam's
// is logged before.
func Run(ctx context.Context, p *beam.Pipeline, namespace string, verbosity int) (*Result, error) {
	name, err := Name()
	if err != nil {
		return nil, err
	}
	watch := &watcher{quiet: verbosity < 2, announce: !Local() && verbosity >= 1}
	log.SetLogger(watch)
	defer ownTempDir()()
	if Local() {
		// Prism fills in the address of the server that it starts here.
		endpoint, environment := *jobopts.Endpoint, *jobopts.EnvironmentType
		defer func() { *jobopts.Endpoint, *jobopts.EnvironmentType = endpoint, environment }()
	}
	res, err := beam.Run(ctx, name, p)
	log.SetLogger(watch) // an in-process worker put its own there
	if err != nil {
		if verbosity >= 2 {
			log.Error(ctx, err.Error())
		}
		return nil, fmt.Errorf("%s", Cause(err.Error()))
	}
	out := &Result{JobID: watch.jobID(), Counters: map[string]int64{}}
	if res != nil && out.JobID == "" {
		out.JobID = res.JobID()
	}
	if *jobopts.Async || res == nil {
		out.Running = true
		return out, nil
	}
	if name != Direct && name != Dataflow {
		if err := judge(ctx, out.JobID); err != nil {
			return nil, err
		}
	}
	query := res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Namespace() == namespace })
	for _, c := range query.Counters() {
		out.Counters[c.Name()] += c.Result()
	}
	return out, nil
}

// ownTempDir lets Beam leave its temporary files, such as an empty worker
// binary for every job, in a folder that the function it returns removes.
func ownTempDir() func() {
	before, was := os.LookupEnv("TMPDIR")
	dir, err := os.MkdirTemp("", "linnet-")
	if err != nil {
		return func() {}
	}
	os.Setenv("TMPDIR", dir)
	return func() {
		if was {
			os.Setenv("TMPDIR", before)
		} else {
			os.Unsetenv("TMPDIR")
		}
		os.RemoveAll(dir)
	}
}

// judge asks the job service how the job ended, because Beam's client reports
// a cancelled one as a success.
func judge(ctx context.Context, job string) error {
	cc, err := grpcx.Dial(ctx, *jobopts.Endpoint, time.Minute)
	if err != nil {
		return fmt.Errorf("runners: job %s: how it ended is not known: %w", job, err)
	}
	defer cc.Close()
	state, err := jobpb.NewJobServiceClient(cc).GetState(ctx, &jobpb.GetJobStateRequest{JobId: job})
	if err != nil {
		return fmt.Errorf("runners: job %s: how it ended is not known: %w", job, err)
	}
	if s := state.GetState(); s != jobpb.JobState_DONE {
		return fmt.Errorf("runners: job %s ended %s; the runner's log has the reason", job, s)
	}
	return nil
}

// mark begins the errors of this project's DoFns, wherever they stand in what
// Beam and a runner wrap around them.
const mark = "linnet: "

// Cause is the one line of a runner's error that says what happened: from the
// last mark to the end of that line, or the last line that is not of a stack.
func Cause(text string) string {
	if i := strings.LastIndex(text, mark); i >= 0 {
		text = text[i+len(mark):]
		for _, end := range []string{"\n", `\n`} {
			text, _, _ = strings.Cut(text, end)
		}
		return strings.TrimSpace(text)
	}
	last := ""
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "goroutine "):
		case strings.HasSuffix(trimmed, ")") && strings.Contains(trimmed, "/") && !strings.Contains(trimmed, ": "):
		default:
			last = trimmed
		}
		if strings.HasPrefix(trimmed, "Full error:") || strings.HasPrefix(trimmed, "goroutine ") {
			break
		}
	}
	if last == "" {
		return "the run failed without a reason"
	}
	return last
}

// watcher is Beam's logger in the launcher: silent where quiet, and always
// with an eye on the job's number, which Beam's client tells nowhere else
// under --async (nor does Airflow find it elsewhere).
type watcher struct {
	quiet, announce bool
	mu              sync.Mutex
	job             string
}

const submitted = "Submitted job: "

func (w *watcher) Log(ctx context.Context, sev log.Severity, depth int, msg string) {
	if id, ok := strings.CutPrefix(msg, submitted); ok {
		w.mu.Lock()
		w.job = id
		w.mu.Unlock()
		if w.announce {
			fmt.Fprintln(os.Stderr, msg)
			return
		}
	}
	if !w.quiet {
		(&log.Structural{}).Log(ctx, sev, depth+1, msg)
	}
}

func (w *watcher) jobID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.job
}
