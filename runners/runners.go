// Package runners starts a pipeline on the runner that --runner names, waits for it
// and judges its end.
//
// It promises that options are checked before anything starts, with the
// missing flag named; that anything but DONE is an error, also where Beam's
// client calls it a success; that an error is one line, the DoFn's own where it
// was one; and that Beam's dumps and logs stay hidden below verbosity 2.
package runners

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

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
var Flags = []string{"runner", "flink_rest", "worker_pool"}

// Define sets what --runner is without one, in fs, which is flag.CommandLine
// with Beam's flags on it.
func Define(fs *flag.FlagSet) {
	f := fs.Lookup("runner")
	f.Usage = "`name` of the runner: direct or prism in this process, flink, dataflow or universal elsewhere"
	f.DefValue = Direct
	*beamrunners.Runner = Direct
	defineGPU(fs)
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
			return fmt.Errorf("runners: --runner=%s needs --endpoint=host:port of the job server (8099 with Beam's own)", name)
		}
	}
	switch name {
	case Flink, Universal:
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
// is logged before. When ctx ends a job of a job service is cancelled; what
// runs in this process is the caller's to stop. One Run goes on at a time, for
// Beam's flags are those of the process.
func Run(ctx context.Context, p *beam.Pipeline, namespace string, verbosity int) (*Result, error) {
	name, err := Name()
	if err != nil {
		return nil, err
	}
	local := Local() // before prism fills in its own address
	watch := &watcher{quiet: verbosity < 2, announce: !local && verbosity >= 1, submitted: make(chan struct{})}
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
	interrupted := ctx
	ctx = context.WithoutCancel(ctx)
	over := make(chan struct{})
	var cancelled sync.WaitGroup
	var notCancelled error
	if service && !*jobopts.Async {
		cancelled.Go(func() { notCancelled = cancelAtEnd(interrupted, watch, over) })
	}
	if name == Flink && watch.announce && !*jobopts.Async {
		cancelled.Go(func() { warnOfWaiting(ctx, watch, over) })
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
	cancelled.Wait()
	log.SetLogger(watch) // an in-process worker put its own there
	out := &Result{JobID: watch.jobID()}
	if notCancelled != nil {
		return nil, fmt.Errorf("%w: %w", context.Cause(interrupted), notCancelled)
	}
	if service && out.JobID != "" && interrupted.Err() != nil {
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
	if name != Direct && name != Dataflow {
		if err := judge(ctx, name, out.JobID); err != nil {
			return nil, err
		}
	}
	out.count(res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Namespace() == namespace }))
	return out, nil
}

// explain is the error of a run in one line, as whoever knows most says it: Flink,
// a job service that is gone, or Beam.
func explain(ctx context.Context, name, job string, service bool, err error) error {
	said := causeOf(err.Error())
	if _, broke := status.FromError(err); broke && service && job != "" { // of a job that ended Beam tells otherwise
		_, gone := checkEndpoint(ctx, *jobopts.Endpoint)
		if gone == nil {
			gone = fmt.Errorf("runners: the connection to --endpoint=%s broke, or that was started anew: %s", *jobopts.Endpoint, said)
		}
		return fmt.Errorf("%w; job %s may still run; let it end, or cancel it, before you run again", gone, job)
	}
	if name == Flink && said == "Connection refused" { // the last of Java's causes alone; a worker's has an address
		said = fmt.Sprintf("the job server at --endpoint=%s does not reach Flink's JobManager: %s; start that, or the job server with its address (--flink-master)", *jobopts.Endpoint, said)
	}
	if service && strings.HasSuffix(said, "desc =") { // Java had an exception without a message
		said = fmt.Sprintf("the job server at --endpoint=%s does not take the job and does not say why (%s); its log does", *jobopts.Endpoint, strings.TrimSuffix(said, " desc ="))
	}
	if name == Flink && job != "" {
		switch cause, unasked := flinkCause(ctx, job); {
		case cause != "":
			return errors.New(cause)
		case unasked != nil && !strings.Contains(err.Error(), errorMark): // the last of Java's causes alone
			said += notAsked + unasked.Error()
		}
	}
	return errors.New(said)
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

// checkEndpoint finds out in seconds what Beam's client takes two minutes for and reports
// without a name: that nothing listens at endpoint, or nothing that is a job server. It
// returns whether that is Flink's.
func checkEndpoint(ctx context.Context, endpoint string) (flink bool, err error) {
	asked, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(asked, "tcp", endpoint)
	if err == nil {
		conn.Close()
		flink, err = checkJobService(asked, endpoint)
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, fmt.Errorf("runners: no job server at --endpoint=%s: %w", endpoint, err)
	}
	return flink, nil
}

// checkJobService asks for something that any job server is asked, and finds options of
// Flink's among those of a job. An error from the server will do as an answer: only
// silence, or no connection, is an error here.
func checkJobService(ctx context.Context, endpoint string) (flink bool, err error) {
	cc, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer cc.Close()
	options, err := jobpb.NewJobServiceClient(cc).DescribePipelineOptions(ctx, &jobpb.DescribePipelineOptionsRequest{})
	switch said, _ := status.FromError(err); said.Code() {
	case codes.Unavailable:
		return false, errors.New(said.Message())
	case codes.DeadlineExceeded:
		return false, errors.New("what listens there does not answer")
	}
	return slices.ContainsFunc(options.GetOptions(), func(o *jobpb.PipelineOptionDescriptor) bool { return o.GetName() == "flink_master" }), nil
}

// cancelAtEnd cancels the job whose number watch logged when ctx ends before the run
// is over.
func cancelAtEnd(ctx context.Context, watch *watcher, over chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-over:
		return nil
	case <-watch.submitted:
	}
	return cancelJob(context.WithoutCancel(ctx), watch.jobID())
}

// workerBinary sets --worker_binary where the command line does not. Workers that run
// the program in its place need none: they get an empty file in dir. Containers, and
// Dataflow's machines, get this very program where it suits them: statically linked, for
// linux on amd64. For others it is built once more in dir; Beam would compile the
// package whose goroutine starts the job, which is no program's.
func workerBinary(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "worker")
	switch env := strings.ToLower(*jobopts.EnvironmentType); {
	case *jobopts.WorkerBinary != "" || env == "loopback" || DryRun():
		return nil
	case env == "process" || env == "external":
		*jobopts.WorkerBinary = file
		return os.WriteFile(file, nil, 0o666)
	}
	if self, err := os.Executable(); err == nil && runtime.GOOS == "linux" && suitsWorkers(self) {
		*jobopts.WorkerBinary = self
		return nil
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("runners: which package this program is built from is not known; name a build of it with --worker_binary")
	}
	*jobopts.WorkerBinary = file
	return buildWorker(ctx, file, info.Path)
}

// suitsWorkers reports whether a file is a program without libraries for amd64. For which
// system is not to be seen in it.
func suitsWorkers(file string) bool {
	program, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	return err == nil && len(libraries) == 0 && program.Machine == elf.EM_X86_64
}

// buildWorker builds a package of the module in the current folder for workers.
func buildWorker(ctx context.Context, file, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil && !suitsWorkers(file) {
		err = errors.New("it is no program")
	}
	if err != nil {
		why, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("runners: workers need this program without libraries, for linux on amd64, and it cannot be built here (%s): build it where its sources are with CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -o worker %s, and add --worker_binary=worker", cmp.Or(why, err.Error()), pkg)
	}
	return nil
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

// errorMark begins the errors of this project's DoFns, wherever they stand in what
// Beam and a runner wrap around them.
const errorMark = "linnet: "

// javaClass is what Java puts before what an exception says. Errors keep theirs.
var javaClass = regexp.MustCompile(`^(Caused by: )?([\w.$]+Exception: |The user defined 'open\(\)' method caused an exception: )*`)

// goFrame is a function of a Go stack: its path has no blank before the arguments.
var goFrame = regexp.MustCompile(`^\S+/\S*\(.*\)$`)

// panicked is the last of DoFns' panics as Beam tells it: what was raised, once more before
// its stack and, there, below the runtime's own frames, where.
var panicked = regexp.MustCompile(`(?s)^.*\nFull error:\n.*?\bpanic: (.*?) goroutine \d+ \[running.*\npanic\([^\n]*\n[^\n]*\n(?:runtime\.[^\n]*\n[^\n]*\n)*[^\n]*\n\s[^\n]*/([^/\n]+:\d+)`)

// causeOf is the one line of a runner's error that says what happened: from the
// last errorMark to the end of that line, or a panic and its place, or the last line
// that is not of a stack. What a runner has quoted is unquoted first.
func causeOf(text string) string {
	if i := strings.LastIndex(text, errorMark); i >= 0 {
		said := text[i+len(errorMark):]
		quote := strings.LastIndex(text[:i], "\n") + 1
		for {
			found := strings.IndexByte(text[quote:i], '"')
			if found < 0 {
				break
			}
			whole, err := strconv.QuotedPrefix(text[quote+found:])
			if err != nil { // cut short
				said, _, _ = strings.Cut(said, `\n`)
				break
			}
			if quote += found + len(whole); quote > i {
				inner, _ := strconv.Unquote(whole)
				return causeOf(inner)
			}
		}
		said, _, _ = strings.Cut(said, "\n")
		return strings.TrimSpace(said)
	}
	if p := panicked.FindStringSubmatch(text); p != nil {
		return fmt.Sprintf("panic: %s (%s)", strings.Join(strings.Fields(p[1]), " "), p[2])
	}
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "Full error:") || strings.HasPrefix(trimmed, "goroutine ") {
			break
		}
		said := trimmed[len(javaClass.FindString(trimmed)):]
		switch {
		case said == "" || strings.HasPrefix(line, "\t"):
		case goFrame.MatchString(said) && !strings.Contains(said, ": "):
		case !strings.Contains(last, said): // or an outer error says the same and more
			last = said
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
	submitted       chan struct{} // closed when job is known; may be nil
	mu              sync.Mutex
	job             string
}

const submittedJob = "Submitted job: "

func (w *watcher) Log(ctx context.Context, sev log.Severity, depth int, msg string) {
	if id, ok := strings.CutPrefix(msg, submittedJob); ok {
		w.mu.Lock()
		if w.job == "" && w.submitted != nil {
			close(w.submitted)
		}
		w.job = id
		w.mu.Unlock()
		if w.announce {
			fmt.Fprintln(os.Stderr, msg)
			return
		}
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

func (w *watcher) jobID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.job
}
