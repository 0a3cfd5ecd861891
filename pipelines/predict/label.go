package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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

// label runs the pipeline, or plans it.
func (o *options) label(ctx context.Context) (err error) {
	begin := time.Now()
	set, err := input.New(o.input, o.output, false)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	opts, err := o.transformOptions()
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
		return err
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
		case o.verbosity > 0 && store.Remote(output): // a local lock ends with the process
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
		if opts.Began, err = began(ctx, st, output); err != nil {
			return err
		}
	}
	if o.watch { // they may come and go
		opts.Again, opts.Rejections = true, true
	}
	progress := transforms.ProgressOf(opts.Run)
	defer context.AfterFunc(ctx, progress.Stop)()
	result, err := o.run(ctx, opts, m, set, files, begin)
	took := time.Since(begin)
	if result, err = o.finish(ctx, opts, set, result, err); result == nil || err != nil {
		return err
	}
	if o.verbosity > 0 {
		o.summary(os.Stdout, m.Config, result, progress, took)
	}
	example := progress.Noted()
	if (example == "" || o.watch) && result.Counters["rejected"] > 0 { // workers elsewhere noted it, or it is over by now
		example = firstRejected(context.WithoutCancel(ctx), output, opts.Run)
	}
	return o.judge(result.Counters, files, example)
}

// began is when the run took or last renewed its lock, in nanoseconds since 1970, by the
// clock that gives outputs their times, which may be minutes off this machine's.
func began(ctx context.Context, st store.Store, output string) (int64, error) {
	lock, err := st.Stat(ctx, store.Join(output, transforms.LockFile))
	return max(1, lock.Modified.UnixNano()), err // 0 is none
}

// misused has an output folder of somebody else's as wrong use.
func misused(err error) error {
	if errors.Is(err, transforms.ErrForeign) {
		return cli.Usagef("%w", err)
	}
	return err
}

// transformOptions are transforms.Options as far as the flags alone settle them.
func (o *options) transformOptions() (opts transforms.Options, err error) {
	output, err := input.Absolute(o.output)
	if err != nil {
		return opts, err
	}
	modelURI := o.modelURI
	if modelURI != "" {
		if modelURI, err = input.Absolute(modelURI); err != nil {
			return opts, err
		}
		if err := cli.CheckURI("model_uri", modelURI); err != nil {
			return opts, err
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
	if o.maxRejected == 0 {
		opts.MaxRejected = -1 // where 0 is no limit
	}
	if opts.GPUs = runners.ProcessGPUs(); o.workersPerGPU > 0 {
		opts.GPUs = max(1, opts.GPUs) // beside other processes
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
	if commit := cli.Commit(); commit != "" {
		opts.Versions += ", linnet " + commit
	}
	opts.Deferred = o.device == "cpu"
	opts.Settings = o.settings(m.Config)
	return m, nil
}

// list finds out before anything starts how much there is, and whether two
// inputs have one output.
func (o *options) list(ctx context.Context, set *input.Set) (files, size int64, err error) {
	if runners.DryRun() {
		return 0, 0, nil
	}
	err = cli.Walk(ctx, set, o.verbosity == 0, func() error {
		files, size = 0, 0
		count := func(f input.File) error { files++; size += f.Size; return nil }
		if !o.watch {
			return set.Walk(ctx, count)
		}
		var twins error
		err := set.WalkOn(ctx, count, func(err error) { twins = err })
		return cmp.Or(err, twins)
	})
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
// in this process writes what it has begun to; what SIGTERM means to a job
// elsewhere --cancel_on_exit says.
func (o *options) run(ctx context.Context, opts transforms.Options, m *transforms.Model, set *input.Set, files int64, begin time.Time) (*runners.Result, error) {
	if o.watch {
		files = 0 // there is no end to them
	}
	p := o.pipeline(opts, set)
	bar := cli.NewBar(files, o.verbosity)
	defer bar.Close()
	if o.verbosity > 0 && runners.Local() {
		defer o.show(bar, transforms.ProgressOf(opts.Run), m, begin)()
	} else if o.verbosity > 0 {
		defer o.follow(bar, string(opts.Output), begin)()
	}
	if o.watch {
		defer o.gather(opts)()
	}
	return cli.RunJob(ctx, runners.Survives() && !o.cancelOnExit, runners.Submitted, func(ctx context.Context) (*runners.Result, error) {
		return runners.Run(ctx, p, transforms.Namespace, o.verbosity)
	})
}

// finish merges the records of a run that ended with result and err, and says
// how it ended where it has no numbers to tell: then it returns no result.
func (o *options) finish(ctx context.Context, opts transforms.Options, set *input.Set, result *runners.Result, err error) (*runners.Result, error) {
	output := string(opts.Output)
	merge := func() error { return transforms.Merge(context.WithoutCancel(ctx), output) }
	switch cause := context.Cause(ctx); {
	case o.watch && errors.Is(err, cli.ErrLeft):
		return nil, fmt.Errorf("%w; it watches until its runner is told to cancel it, and the next run gathers its records", err)
	case o.watch && cause != nil && errors.Is(err, cause) && !errors.Is(err, runners.ErrNotCancelled): // a job elsewhere is cancelled
		if err := cmp.Or(o.settle(ctx, opts, set), merge()); err != nil {
			return nil, err
		}
		if o.verbosity > 0 {
			fmt.Printf("%s: no longer watching; %s lists what is done\n", cli.Printable(o.output), cli.Printable(store.Join(o.output, transforms.ManifestFile)))
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
		fmt.Printf("job %s is submitted; it writes to %s\n", result.JobID, cli.Printable(o.output))
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
	formats := cmp.Or(strings.Join(slices.Compact(slices.Sorted(slices.Values(o.formats))), ","), "yedda")
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
