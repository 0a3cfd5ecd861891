// Command evaluate compares labels with annotation, line by line: those that a
// model gives, or those of annotated files that --predictions names.
//
//	evaluate --input=corpus/Vol119 --model_uri=trained --report=report
//
// It prints a table. With --report it writes report.json for programs and
// report.html for people, too: figures by line, span and character, calibration,
// intervals, the worst documents and the lines most confidently wrong. These
// show text of the documents. With --baseline it says how much better it is than in an
// earlier report.
//
// A line counts if it is not blank and most of it lies in spans of the annotation. Exit
// statuses: 0 done; 1 failed; 2 wrong use; 3 done, but some documents could not
// be judged.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
)

func main() { cli.Main(run) }

// options are the flags of evaluate.
type options struct {
	input                                                     cli.Strings
	modelURI, predictions, report, baseline, labelSet, device string
	windowSize, stride, batchSize, verbosity, status          int
	maxDocumentBytes                                          cli.Bytes
	cancelOnExit                                              bool

	earlier *earlierReport // in the folder that --baseline names
}

func define(f *cli.Flags) *options {
	o := &options{maxDocumentBytes: transforms.DefaultMaxDocumentBytes}
	f.Var(&o.input, "input", "annotated `files`, folders and patterns, separated by commas (\\, is a comma) or repeated")
	f.StringVar(&o.modelURI, "model_uri", "", "`folder` or gs://bucket/prefix of the model to judge (default the bundled one)")
	f.StringVar(&o.predictions, "predictions", "", "`folder` or gs://bucket/prefix of annotated files to judge instead, called as those of --input")
	f.StringVar(&o.report, "report", "", "`folder` or gs://bucket/prefix to write report.json and report.html to, which show lines of the documents")
	f.StringVar(&o.baseline, "baseline", "", "`folder` or gs://bucket/prefix of an earlier --report on the same documents: how much better this model, or these predictions, are, with the interval of 95 %")
	f.StringVar(&o.labelSet, "label_set", "", "`collapsed` (Nomenclature, Description, Misc-exposition) or full (default the model's first)")
	f.StringVar(&o.device, "device", "cpu", "`cpu`, auto or cuda")
	f.IntVar(&o.windowSize, "window_size", -1, "`lines` of a context window; 0 for whole documents, -1 for the model's choice")
	f.IntVar(&o.stride, "prediction_stride", 0, "`lines` from one context window to the next; 0 for --window_size")
	f.IntVar(&o.batchSize, "prediction_batch_size", 0, "context `windows` in a batch; 0 for the model's choice")
	f.Var(&o.maxDocumentBytes, "max_document_bytes", "largest document that is read, in `bytes`")
	f.IntVar(&o.status, "rejected_exit_status", 3, "exit `status` when some documents could not be judged")
	f.CancelOnExit(&o.cancelOnExit)
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors and the table, 1 progress, 2 devices and Beam's log, 3 batches and where markup is broken")
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("evaluate", "Compares labels with annotation, line by line.", runners.Flags...)
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
		if o.verbosity > 0 && !runners.DryRun() {
			fmt.Fprintf(os.Stderr, "evaluating on %s …\n", cli.Printable(strings.Join(o.input, ", ")))
		}
	}
	runners.Init(o.verbosity) // a worker stays in here
	return o.evaluate(ctx)
}

// check finds wrong use.
func (o *options) check(f *cli.Flags) error {
	o.input = input.Split(o.input...)
	switch {
	case len(o.input) == 0:
		return cli.Usagef("no --input: name annotated files, folders or patterns")
	case o.modelURI != "" && o.predictions != "":
		return cli.Usagef("--model_uri and --predictions: what is to be judged? leave one out")
	case o.labelSet != "" && o.labelSet != model.Collapsed && o.labelSet != model.Full:
		return cli.Usagef("--label_set=%s is none; it must be collapsed or full", o.labelSet)
	case o.maxDocumentBytes == 0:
		return cli.Usagef("--max_document_bytes: it must be above 0")
	case o.batchSize < 0:
		return cli.Usagef("--prediction_batch_size=%d: it must be 0 or more", o.batchSize)
	case o.baseline != "" && o.report == "":
		return cli.Usagef("--baseline compares the figures of each document; add --report")
	case o.report != "" && *jobopts.Async:
		return cli.Usagef("--report is written when the job is done; leave out --async")
	}
	if o.predictions != "" {
		for _, name := range []string{"device", "window_size", "prediction_stride", "prediction_batch_size"} {
			if f.Given(name) {
				return cli.Usagef("--%s with --predictions: no model labels; leave one out", name)
			}
		}
		if info, err := os.Stat(o.predictions); err == nil && !info.IsDir() {
			return cli.Usagef("--predictions=%s is a file; name the folder it lies in", o.predictions)
		}
	}
	if info, err := os.Stat(o.baseline); err == nil && !info.IsDir() {
		return cli.Usagef("--baseline=%s is a file; name the folder it lies in", o.baseline)
	}
	for _, f := range [][2]string{{"model_uri", o.modelURI}, {"predictions", o.predictions}, {"report", o.report}, {"baseline", o.baseline}} {
		if err := cli.CheckURI(f[0], f[1]); err != nil {
			return err
		}
	}
	if runners.WorkerGPUs() > 0 && o.predictions == "" && !f.Given("device") {
		o.device = "auto"
	}
	return cmp.Or(cli.CheckVerbosity(o.verbosity), cli.CheckStatus(o.status), cli.CheckDevice(o.device, runners.OtherBuild(), o.windowSize, o.stride))
}

// evaluate runs the pipeline and tells what came of it.
func (o *options) evaluate(ctx context.Context) error {
	begin := time.Now()
	set, err := input.New(o.input, "", true)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if err := runners.CheckPaths(append(slices.Clone(o.input), o.modelURI, o.predictions, o.report)...); err != nil {
		return cli.Usagef("%w", err)
	}
	opts := o.transformOptions(transforms.Path(set.Base), begin)
	score := scoreFn{Run: opts.Run, Config: model.DefaultConfig(), LabelSet: o.labelSet}
	if o.report != "" {
		// Workers may stand elsewhere in the same machine.
		if o.report, err = input.Absolute(o.report); err != nil {
			return err
		}
		score.Parts = transforms.Path(partsFolder(o.report, opts.Run))
	}
	result := report{Input: o.input, Model: o.modelURI, Predictions: o.predictions}
	if o.predictions == "" {
		m, err := o.loadModel(ctx, &opts)
		if err != nil {
			return err
		}
		score.Config, result.ModelHash = *m.Config, m.Hash
	} else {
		folder, err := input.Absolute(o.predictions)
		if err != nil {
			return err
		}
		score.Predictions = transforms.Path(folder)
	}
	score.LabelSet = cmp.Or(score.LabelSet, score.Config.LabelSet)
	result.LabelSet = score.LabelSet
	if score.LabelSet == score.Config.LabelSet { // a label of the other set is judged as itself
		score.Known = bundled.Known(&score.Config)
	}
	if err := o.list(ctx, set); err != nil {
		return err
	}
	if o.report != "" && !runners.DryRun() {
		if err := cli.CheckReport(ctx, "evaluate", o.report, reportFiles); err != nil {
			return err
		}
		if o.baseline != "" {
			if o.earlier, err = loadBaseline(ctx, o.baseline, result.LabelSet); err != nil {
				return err
			}
		}
		if err := beginParts(ctx, string(score.Parts)); err != nil {
			return err
		}
		defer endParts(context.WithoutCancel(ctx), o.report, string(score.Parts))
	}
	progress := transforms.ProgressOf(opts.Run)
	defer context.AfterFunc(ctx, progress.Stop)()
	p, s := beam.NewPipelineWithRoot()
	pipeline(s, opts, set, score)
	leave := runners.Survives() && !o.cancelOnExit && o.report == "" // which the launcher makes
	run, err := cli.RunJob(ctx, leave, runners.Submitted, func(ctx context.Context) (*runners.Result, error) {
		return runners.Run(ctx, p, transforms.Namespace, o.verbosity)
	})
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // it tells what became of the job
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && progress.Err() != nil:
		return progress.Err() // as it was, not as it came through a runner
	case err != nil:
		return err
	case runners.DryRun():
		return nil
	case run.Running:
		fmt.Printf("job %s is submitted; its counters hold the result\n", run.JobID)
		return nil
	}
	result.Report = gather(run.Counters, &score)
	result.Documents, result.Rejected = run.Counters["judged"], run.Counters["rejected"]
	result.Seconds = time.Since(begin).Seconds()
	return o.tell(ctx, &result, &score, run.Counters)
}

// transformOptions are transforms.Options as far as the flags alone settle them.
func (o *options) transformOptions(base transforms.Path, begin time.Time) transforms.Options {
	return transforms.Options{
		Run: fmt.Sprintf("evaluate-%d-%d", os.Getpid(), begin.UnixNano()), Verbosity: o.verbosity,
		Base: base, Annotated: true, MaxDocumentBytes: int64(o.maxDocumentBytes),
		Device: o.device, GPUs: runners.ProcessGPUs(), LabelSet: o.labelSet,
		WindowSize: o.windowSize, PredictionStride: o.stride, PredictionBatchSize: o.batchSize,
	}
}

// loadModel loads the model to judge and notes in opts what follows from it.
func (o *options) loadModel(ctx context.Context, opts *transforms.Options) (*transforms.Model, error) {
	if o.modelURI != "" {
		uri, err := input.Absolute(o.modelURI)
		if err != nil {
			return nil, err
		}
		opts.ModelURI = transforms.Path(uri)
	}
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
	if m.Reason != "" && o.verbosity > 0 {
		fmt.Fprintf(os.Stderr, "linnet: %s\n", m.Reason)
	}
	opts.ModelHash, opts.InputSize = m.Hash, m.Config.InputSize
	opts.Deferred = o.device == "cpu"
	return m, nil
}

// list finds out before anything starts whether there are documents, and whether
// two of them have one name.
func (o *options) list(ctx context.Context, set *input.Set) error {
	if runners.DryRun() {
		return nil
	}
	err := cli.Walk(ctx, set, o.verbosity == 0, func() error {
		return set.Walk(ctx, func(input.File) error { return nil })
	})
	if predicted := set.Predicted(); err == nil && predicted != "" && o.verbosity > 0 {
		cli.Warnf("--input: %s", predicted)
	}
	return err
}

// tell prints the table, writes the report and judges the end of the run.
func (o *options) tell(ctx context.Context, r *report, score *scoreFn, counters map[string]int64) error {
	var rejected error
	if r.Rejected > 0 {
		rejected = fmt.Errorf("%s could not be judged, such as %s", cli.Plural(r.Rejected, "document"), firstReason(score.Run, counters))
	}
	if r.Report.Lines == 0 && (r.Documents > 0 || rejected == nil) {
		err := fmt.Errorf("%s: no line has a label; name files with YEDDA annotation (*.txt.ann)", strings.Join(o.input, ", "))
		odd := oddOf(counters, oddPrefix)
		if places := odd[broken]; places.n > 0 {
			err = fmt.Errorf("%w, %s; %s of broken markup, such as in %s", err, cli.Markup, cli.Plural(places.n, "place"), places.first)
		}
		if odd[""].n < r.Documents {
			err = fmt.Errorf("%s: no line has a label of the model's: %s; name files that are annotated with them", strings.Join(o.input, ", "), strings.Join(score.Config.Classes, ", "))
		}
		if rejected != nil {
			err = fmt.Errorf("%w; %w", err, rejected)
		}
		return err
	}
	var unwritten error
	if o.report != "" { // before the first word: a pipe that is closed, as by head, ends the program there
		unwritten = o.writeReport(ctx, string(score.Parts), r)
		endParts(context.WithoutCancel(ctx), o.report, string(score.Parts))
	}
	if o.verbosity > 0 {
		warnOdd(counters, score)
	}
	var untold error // that the table could not be printed, such as into a file on a full disk
	if r.Documents > 0 {
		untold = table(os.Stdout, r)
	}
	if err := cmp.Or(unwritten, untold); err != nil {
		return err
	}
	if r.details != nil && r.Documents > 0 {
		r.details.print()
	}
	if r.unlike != nil && rejected != nil {
		return fmt.Errorf("%w; %w", r.unlike, rejected)
	}
	if r.unlike != nil || rejected == nil || r.Documents == 0 {
		return cmp.Or(r.unlike, rejected)
	}
	return &cli.Status{Code: o.status, Err: rejected}
}

// pipeline judges every document of set.
func pipeline(s beam.Scope, opts transforms.Options, set *input.Set, score scoreFn) {
	docs, r1 := transforms.Read(s, opts, transforms.List(s, opts, set))
	rejected := []beam.PCollection{r1}
	if score.Predictions == "" {
		examples, r2 := transforms.Featurize(s, opts, docs)
		labelled, r3 := transforms.Predict(s, opts, examples)
		rejected = append(rejected, r2, r3)
		beam.ParDo0(s, &score, labelled)
	} else {
		rejected = append(rejected, beam.ParDo(s, &compareFn{score, opts.Verbosity}, docs))
	}
	beam.ParDo0(s, &rejectedFn{Run: score.Run}, beam.Flatten(s, rejected...))
}
