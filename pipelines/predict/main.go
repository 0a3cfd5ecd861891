// Command predict labels every line of documents: it reads what --input names,
// writes annotated copies below --output, and skips what an earlier run did.
//
//	predict --input=journals --output=annotated
//	predict --input=journals --output=annotated --runner=prism --watch
//
// Exit statuses: 0 done; 1 failed, or all documents were rejected; 2 wrong use;
// --rejected_exit_status (3) done, but some documents were rejected.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

func main() { cli.Main(run) }

// options are the flags of predict.
type options struct {
	input, formats                        cli.Strings
	output, modelURI, labelSet, device    string
	precision                             string
	windowSize, stride, batchSize, sample int
	probabilities, force, plan, hybrid    bool
	retryRejected, watch, cancelOnExit    bool
	watchInterval, gpuTimeout             time.Duration
	maxRejected                           float64
	rejectedStatus, verbosity             int
	workersPerGPU                         int
	gpuMemoryLimit                        cli.Bytes
	maxDocumentBytes, memoryLimit         cli.Bytes
	byDefault                             bool // --input was not given: the sample
}

func define(f *cli.Flags) *options {
	o := &options{maxDocumentBytes: transforms.DefaultMaxDocumentBytes}
	f.Var(&o.input, "input", "`files`, folders and patterns to label, separated by commas (\\, is a comma) or repeated;\na folder stands for every *.txt and *.txt.ann below it (default the sample in testdata)")
	f.StringVar(&o.output, "output", "annotated", "`folder` or gs://bucket/prefix to write to; what lies there is never an input")
	f.StringVar(&o.modelURI, "model_uri", "", "`folder` or gs://bucket/prefix of the model (default the bundled one)")
	f.StringVar(&o.labelSet, "label_set", "", "`collapsed` (Nomenclature, Description, Misc-exposition) or full (default the model's first)")
	f.StringVar(&o.device, "device", "cpu", "`cpu`, auto or cuda")
	f.BoolVar(&o.hybrid, "hybrid", false, "with --device=auto let the CPU, too, label lines, where the GPUs have more than they can do;\nwhich ones is a matter of time")
	f.Var(&o.gpuMemoryLimit, "gpu_memory_limit", "`bytes` that the program may take on each GPU, 0 for what it needs")
	f.DurationVar(&o.gpuTimeout, "gpu_timeout", 5*time.Minute, "`time` that a GPU may take over a batch, or to start, before it counts as lost")
	f.IntVar(&o.workersPerGPU, "workers_per_gpu", 0, "how many `processes` may share a GPU, each taking one; 0 for one process, which takes\nevery GPU on this machine, and one GPU a worker elsewhere")
	f.StringVar(&o.precision, "precision", "", "of products on a GPU: `float16` (the default; sums in float32) or float32; the CPU's depends on LINNET_ISA")
	f.IntVar(&o.windowSize, "window_size", -1, "`lines` of a context window; 0 for whole documents, -1 for the model's choice")
	f.IntVar(&o.stride, "prediction_stride", 0, "`lines` from one context window to the next; 0 for --window_size, so that none overlap")
	f.IntVar(&o.batchSize, "prediction_batch_size", 0, "context `windows` in a batch; 0 for the model's choice")
	f.Var(&o.formats, "format", "`formats` to write, separated by commas: "+strings.Join(transforms.Formats(), ", ")+" (default yedda)")
	f.BoolVar(&o.probabilities, "probabilities", false, "add every class's probability of each line to jsonl and csv")
	f.BoolVar(&o.force, "force", false, "label documents again that are done, and write over what somebody edited in the output folder")
	f.BoolVar(&o.plan, "plan", false, "only say what would be done and how long reading and labelling would take")
	f.IntVar(&o.sample, "sample", 0, "label `N` documents only, always the same ones; 0 for all")
	f.BoolVar(&o.retryRejected, "retry_rejected", false, "take only documents that an earlier run rejected")
	f.BoolVar(&o.watch, "watch", false, "go on until interrupted: label documents as they come and as they change (needs a runner that streams, such as prism)")
	f.DurationVar(&o.watchInterval, "watch_interval", 5*time.Second, "`time` between two looks at the input; a document is taken when it stood still for so long")
	f.Float64Var(&o.maxRejected, "max_rejected", 0.1, "`share` of rejected documents above which the run fails, from 100 documents on; where all are, it fails in any case, but with --watch")
	f.IntVar(&o.rejectedStatus, "rejected_exit_status", 3, "exit `status` when some documents were rejected")
	f.CancelOnExit(&o.cancelOnExit)
	f.Var(&o.maxDocumentBytes, "max_document_bytes", "largest document that is read, in `bytes`")
	f.Var(&o.memoryLimit, "memory_limit", "`bytes` of memory that the program aims to stay below (its own 70 MB come on top), 0 for no limit; documents in flight take a quarter of it at most")
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors, 1 progress and summary, 2 devices and Beam's log, 3 batches")
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("predict", "Labels every line of digitised taxonomic literature.", runners.Flags...)
	runners.Define(f.FlagSet)
	o := define(f)
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	if done, err := runners.Boot(ctx); done {
		return err
	}
	if !f.Worker() {
		if err := o.check(f); err != nil {
			return err
		}
		if err := runners.Check(); err != nil {
			return cli.Usagef("%w", err)
		}
		if o.verbosity > 0 && !o.plan && !runners.DryRun() {
			more := ""
			if o.watch {
				more = ", as it comes, until interrupted"
			}
			fmt.Fprintf(os.Stderr, "labelling %s into %s%s …\n", o.what(), o.output, more)
		}
	}
	runners.Init(o.verbosity) // a worker stays in here
	return o.label(ctx)
}

// check finds wrong use, and fills in what has to be looked for.
func (o *options) check(f *cli.Flags) error {
	name, err := runners.Name()
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if o.watch && !f.Given("max_rejected") {
		o.maxRejected = 1 // a stream does not end for it
	}
	switch {
	case o.labelSet != "" && o.labelSet != model.Collapsed && o.labelSet != model.Full:
		return cli.Usagef("--label_set=%s is none; it must be collapsed or full", o.labelSet)
	case o.hybrid && f.Given("device") && o.device != "auto":
		return cli.Usagef("--hybrid with --device=%s: it is for --device=auto", o.device)
	case o.gpuTimeout <= 0:
		return cli.Usagef("--gpu_timeout=%v: it must be above 0", o.gpuTimeout)
	case o.workersPerGPU < 0 || o.workersPerGPU > 1024: // each is a lock file of every GPU
		return cli.Usagef("--workers_per_gpu=%d: it must be from 0 to 1,024", o.workersPerGPU)
	case o.batchSize < 0:
		return cli.Usagef("--prediction_batch_size=%d: it must be 0 or more", o.batchSize)
	case o.sample < 0:
		return cli.Usagef("--sample=%d: it must be 0 or more", o.sample)
	case !(o.maxRejected >= 0 && o.maxRejected <= 1):
		return cli.Usagef("--max_rejected=%g: it must be from 0 to 1", o.maxRejected)
	case o.maxDocumentBytes == 0:
		return cli.Usagef("--max_document_bytes: it must be above 0")
	case o.memoryLimit > 0 && o.memoryLimit < 128<<20:
		return cli.Usagef("--memory_limit: it must be 128MiB or more")
	case o.output == "":
		return cli.Usagef("--output: name a folder to write to")
	case o.watchInterval <= 0:
		return cli.Usagef("--watch_interval=%v: it must be above 0", o.watchInterval)
	case o.watch && name == runners.Direct:
		return cli.Usagef("--watch: --runner=direct ends with its input; use --runner=prism in this process, or flink or dataflow")
	case o.watch && (o.force || o.plan || o.retryRejected || o.sample > 0):
		return cli.Usagef("--watch goes with none of --force, --plan, --sample and --retry_rejected; leave it out")
	case o.force && o.retryRejected:
		return cli.Usagef("--force and --retry_rejected: what was rejected is not done anyway; leave one out")
	}
	if (o.hybrid || runners.WorkerGPUs() > 0) && !f.Given("device") {
		o.device = "auto"
	}
	if err := cmp.Or(cli.CheckVerbosity(o.verbosity), cli.CheckStatus(o.rejectedStatus), cli.CheckDevice(o.device, o.windowSize, o.stride), cli.CheckPrecision(o.precision, o.device)); err != nil {
		return err
	}
	o.formats = input.Split(o.formats...)
	if f.Given("format") && len(o.formats) == 0 {
		return cli.Usagef("--format is empty; name some of %s, or leave it out", strings.Join(transforms.Formats(), ", "))
	}
	for _, name := range o.formats {
		if !slices.Contains(transforms.Formats(), name) {
			return cli.Usagef("--format=%s is not in this version; there are %s", name, strings.Join(transforms.Formats(), ", "))
		}
	}
	o.input = input.Split(o.input...)
	if len(o.input) == 0 {
		if f.Given("input") {
			return cli.Usagef("--input is empty; name a file, a folder or a pattern")
		}
		sample, err := findSample()
		if err != nil {
			return err
		}
		o.input, o.byDefault = cli.Strings{sample}, true
	}
	return nil
}

func (o *options) what() string {
	if o.byDefault {
		return "the sample in " + o.input[0]
	}
	if len(o.input) > 3 {
		return fmt.Sprintf("%s and %d more", o.input[0], len(o.input)-1)
	}
	return strings.Join(o.input, ", ")
}

// findSample looks for the repository's sample, here and in the folders above.
func findSample() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	const sample = "testdata/sample"
	for here := dir; ; {
		path := filepath.Join(here, filepath.FromSlash(sample))
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if rel, err := filepath.Rel(dir, path); err == nil {
				path = rel
			}
			return path, nil
		}
		up := filepath.Dir(here)
		if up == here {
			return "", cli.Usagef("no --input: name a file, a folder or a pattern (the sample is found only inside the repository)")
		}
		here = up
	}
}

// label runs the pipeline, or plans it.
func (o *options) label(ctx context.Context) (err error) {
	begin := time.Now()
	set, err := input.New(o.input, o.output, false)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	opts, err := o.transformOptions(ctx)
	if err != nil {
		return err
	}
	set.Sample, set.Outputs, set.Records = o.sample, opts.Outputs(), transforms.Records
	opts.Run = fmt.Sprintf("predict-%d-%d", os.Getpid(), begin.UnixNano())
	opts.Base = transforms.Path(set.Base)
	opts.InFlight = o.limitMemory()
	m, err := o.loadModel(ctx, &opts)
	if err != nil {
		return err
	}
	files, size, err := o.list(ctx, set)
	if err != nil {
		return err
	}
	switch {
	case o.plan:
		return o.tellPlan(ctx, opts, set, files, size)
	case runners.DryRun():
		_, err := runners.Run(ctx, o.pipeline(opts, set), transforms.Namespace, o.verbosity)
		return err
	}

	output := string(opts.Output)
	st, err := store.For(ctx, output)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if err := opts.Check(ctx, set); err != nil { // before a lock's file is made
		return misused(err)
	}
	unlock, err := st.Lock(ctx, store.Join(output, transforms.LockFile))
	if err != nil {
		return err
	}
	defer func() {
		_, status := errors.AsType[*cli.Status](err)
		switch kept := unlock(); {
		case kept == nil || err != nil && !status:
		case errors.Is(kept, store.ErrLost):
			err = kept
		case o.verbosity > 0:
			fmt.Fprintf(os.Stderr, "linnet: %v; the lock stays, and is free in 5 minutes\n", kept)
		}
	}()
	if err := opts.Begin(ctx, set); err != nil {
		return misused(err)
	}
	if opts.Again, err = transforms.HasRecords(ctx, output, transforms.DoneFolder); err != nil {
		return err
	}
	if opts.Rejections, err = transforms.HasRecords(ctx, output, transforms.RejectedFolder); err != nil {
		return err
	}
	if !runners.Local() {
		opts.Began = begin.UnixNano()
	}
	if o.watch { // they may come and go
		opts.Again, opts.Rejections = true, true
	}
	progress := transforms.ProgressOf(opts.Run)
	defer context.AfterFunc(ctx, progress.Stop)()
	result, err := o.run(ctx, opts, set, files, begin)
	took := time.Since(begin)
	if result, err = o.finish(ctx, opts, set, result, err); result == nil || err != nil {
		return err
	}
	if o.verbosity > 0 {
		o.summary(os.Stdout, m.Config, result, progress, took)
	}
	example := progress.Noted()
	if example == "" && result.Counters["rejected"] > 0 { // workers elsewhere noted it
		example = firstRejected(ctx, output)
	}
	return o.judge(result.Counters, files, example)
}

// misused has an output folder of somebody else's as wrong use.
func misused(err error) error {
	if errors.Is(err, transforms.ErrForeign) {
		return cli.Usagef("%w", err)
	}
	return err
}

// transformOptions are transforms.Options as far as the flags alone settle them.
func (o *options) transformOptions(ctx context.Context) (opts transforms.Options, err error) {
	output, err := input.Absolute(o.output)
	if err != nil {
		return opts, err
	}
	modelURI := o.modelURI
	if modelURI != "" {
		if modelURI, err = input.Absolute(modelURI); err != nil {
			return opts, err
		}
		if _, err := store.For(ctx, modelURI); err != nil {
			return opts, cli.Usagef("%w", err)
		}
	}
	if err := runners.CheckPaths(append(slices.Clone(o.input), o.output, o.modelURI)...); err != nil {
		return opts, cli.Usagef("%w", err)
	}
	opts = transforms.Options{
		Verbosity: o.verbosity, MemoryLimit: int64(o.memoryLimit), Output: transforms.Path(output),
		MaxDocumentBytes: int64(o.maxDocumentBytes), Force: o.force, RetryRejected: o.retryRejected,
		ModelURI: transforms.Path(modelURI), Device: o.device, LabelSet: o.labelSet,
		WorkersPerGPU: o.workersPerGPU, GPUMemory: int64(o.gpuMemoryLimit), Precision: o.precision, Hybrid: o.hybrid, GPUTimeout: o.gpuTimeout,
		WindowSize: o.windowSize, PredictionStride: o.stride, PredictionBatchSize: o.batchSize,
		Formats: o.formats, Probabilities: o.probabilities, MaxRejected: o.maxRejected,
	}
	if o.workersPerGPU > 0 || !runners.Local() {
		opts.GPUs = 1 // beside other processes
	}
	return opts, nil
}

// loadModel loads the model and notes in opts what follows from it.
func (o *options) loadModel(ctx context.Context, opts *transforms.Options) (*transforms.Model, error) {
	here := *opts
	if !runners.Local() {
		here.Device = "cpu" // the workers' devices are no matter of this machine's
	}
	m, err := transforms.LoadModel(ctx, here)
	if errors.Is(err, model.ErrLabelSet) {
		return nil, cli.Usagef("%w", err)
	}
	if err != nil {
		return nil, err
	}
	if _, classes, err := m.Config.Head(o.labelSet); err == nil && slices.Contains(o.formats, "treatments") && !slices.Contains(classes, model.Nomenclature) {
		return nil, cli.Usagef("--format=treatments: this model has no label Nomenclature but %s; leave treatments out", strings.Join(classes, ", "))
	}
	if m.Reason != "" && o.verbosity > 0 {
		fmt.Fprintf(os.Stderr, "linnet: %s\n", m.Reason)
	}
	opts.ModelHash, opts.InputSize, opts.Versions = m.Hash, m.Config.InputSize, m.Device
	opts.Deferred = o.device == "cpu"
	opts.Settings = o.settings(m.Config)
	return m, nil
}

// list finds out before anything starts how much there is, and whether two
// inputs have one output.
func (o *options) list(ctx context.Context, set *input.Set) (files, size int64, err error) {
	walk := func() error {
		files, size = 0, 0
		count := func(f input.File) error { files++; size += f.Size; return nil }
		if !o.watch {
			return set.Walk(ctx, count)
		}
		var twins error
		err := set.WalkOn(ctx, count, func(err error) { twins = err })
		return cmp.Or(err, twins)
	}
	if !runners.DryRun() {
		err = walk()
		if earlier := set.LeaveOut(); earlier != "" {
			if o.verbosity > 0 {
				fmt.Fprintf(os.Stderr, "linnet: %s\n", earlier)
			}
			err = walk()
		}
		for _, passed := range set.Passed() {
			if err == nil && o.verbosity > 0 {
				fmt.Fprintf(os.Stderr, "linnet: %s\n", passed)
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, input.ErrNone), errors.Is(err, input.ErrTwins):
		err = cli.Usagef("%w", err)
	}
	return files, size, err
}

// pipeline is what predict does with the documents of set.
func (o *options) pipeline(opts transforms.Options, set *input.Set) *beam.Pipeline {
	p, s := beam.NewPipelineWithRoot()
	var paths beam.PCollection
	if o.watch {
		paths = transforms.Watch(s, opts, set, o.watchInterval)
	} else {
		paths = transforms.List(s, opts, set)
	}
	docs, r1 := transforms.Read(s, opts, paths)
	examples, r2 := transforms.Featurize(s, opts, docs)
	labelled, r3 := transforms.Predict(s, opts, examples)
	_, r4 := transforms.Write(s, opts, labelled)
	transforms.WriteRejected(s, opts, r1, r2, r3, r4)
	return p
}

// run runs the pipeline over files documents, with a bar. At an interrupt a run
// in this process finishes what it has read; what SIGTERM means to a job
// elsewhere --cancel_on_exit says.
func (o *options) run(ctx context.Context, opts transforms.Options, set *input.Set, files int64, begin time.Time) (*runners.Result, error) {
	if o.watch {
		files = 0 // there is no end to them
	}
	p := o.pipeline(opts, set)
	bar := cli.NewBar(files, o.verbosity == 0)
	defer bar.Close()
	if o.verbosity > 0 && runners.Local() {
		defer o.show(bar, transforms.ProgressOf(opts.Run), begin)()
	} else if o.verbosity > 0 {
		defer o.follow(bar, string(opts.Output), begin)()
	}
	if o.watch {
		defer o.gather(opts)()
	}
	return cli.RunJob(ctx, runners.Survives() && !o.cancelOnExit, func(ctx context.Context) (*runners.Result, error) {
		return runners.Run(ctx, p, transforms.Namespace, o.verbosity)
	})
}

// finish merges the records of a run that ended with result and err, and says
// how it ended where it has no numbers to tell: then it returns no result.
func (o *options) finish(ctx context.Context, opts transforms.Options, set *input.Set, result *runners.Result, err error) (*runners.Result, error) {
	output := string(opts.Output)
	merge := func() error { return transforms.Merge(context.WithoutCancel(ctx), output) }
	switch cause := context.Cause(ctx); {
	case o.watch && cause != nil && errors.Is(err, cause) && !errors.Is(err, runners.ErrNotCancelled): // a job elsewhere is cancelled
		if err := cmp.Or(o.settle(ctx, opts, set), merge()); err != nil {
			return nil, err
		}
		if o.verbosity > 0 {
			fmt.Printf("%s: no longer watching; %s lists what is done\n", o.output, store.Join(o.output, transforms.ManifestFile))
		}
		return nil, nil
	case errors.Is(err, cli.ErrLeft):
		return nil, fmt.Errorf("%w; the same command gathers its records when it is over", err)
	case err != nil:
		if e := transforms.ProgressOf(opts.Run).Err(); e != nil && ctx.Err() == nil {
			err = e // as it was, not as it came through a runner
		}
		_ = merge() // the run's error says more than a second one
		return nil, err
	case result.Running:
		fmt.Printf("job %s is submitted; it writes to %s\n", result.JobID, o.output)
		return nil, nil
	}
	reached := o.reached(ctx, output, result.Counters)
	settled := o.settle(ctx, opts, set)
	if err := cmp.Or(merge(), settled, reached); err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil && !o.watch { // which an interrupt ends in order
		return nil, fmt.Errorf("%w: %s labelled and kept; run again to go on", cause, cli.Plural(result.Counters["documents"], "document"))
	}
	if o.watch { // rejections may be over by now
		left, err := transforms.CountRejected(context.WithoutCancel(ctx), opts)
		if err != nil {
			return nil, err
		}
		result.Counters["rejected"] = left
	}
	return result, nil
}

// late is how long a network disk may take to show what another machine wrote;
// a test has another.
var late = time.Minute

// reached waits for the records of documents that workers elsewhere labelled. It
// is an error where they do not come: the folder of that name is another one to
// the workers, on their own disks.
func (o *options) reached(ctx context.Context, output string, counters map[string]int64) error {
	if !runners.Survives() || o.watch { // which counts a document as often as it changes
		return nil
	}
	done := counters["documents"] + counters["skipped"]
	for begin := time.Now(); ; time.Sleep(time.Second) {
		switch n, _, err := transforms.CountDone(context.WithoutCancel(ctx), output, time.Time{}); {
		case err != nil || n >= done:
			return err
		case ctx.Err() != nil || time.Since(begin) >= late:
			return fmt.Errorf("%s: workers labelled %s, and %s of their records lie there; --output must name what the workers and this program share", output, cli.Plural(done, "document"), cli.Count(n))
		}
	}
}

// settle drops earlier records of rejections that this run showed to be over. A
// watch, and a run of the rejected documents alone, did not try all of set.
func (o *options) settle(ctx context.Context, opts transforms.Options, set *input.Set) error {
	switch {
	case !opts.Rejections, ctx.Err() != nil && !o.watch:
		return nil
	case o.watch, o.retryRejected:
		set = nil
	}
	return transforms.Settle(context.WithoutCancel(ctx), opts, set)
}

// settings are all that changes an output beside model and input.
func (o *options) settings(c *model.Config) string {
	window, stride := o.windowSize, o.stride
	if window < 0 {
		window, stride = c.WindowSize, c.PredictionStride
	}
	formats := "yedda"
	if len(o.formats) > 0 {
		sorted := slices.Sorted(slices.Values(o.formats))
		formats = strings.Join(slices.Compact(sorted), ",")
	}
	return fmt.Sprintf("label_set=%s window_size=%d prediction_stride=%d format=%s probabilities=%t", cmp.Or(o.labelSet, c.LabelSet), window, stride, formats, o.probabilities)
}

// limitMemory sets Go's memory limit and returns transforms.Options.InFlight
// that suits it.
func (o *options) limitMemory() int64 {
	if o.memoryLimit == 0 {
		return 0
	}
	debug.SetMemoryLimit(int64(o.memoryLimit))
	return max(8<<20, int64(o.memoryLimit)/16)
}
