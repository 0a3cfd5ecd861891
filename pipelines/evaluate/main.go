// Command evaluate compares labels with annotation, line by line: those that a
// model gives, or those of annotated files that --predictions names.
//
//	evaluate --input=corpus/Vol119 --model_uri=model --report=report
//
// It prints a table. With --report it writes report.json for programs and
// report.html for people, too: figures by line, span and character, calibration,
// intervals, the worst documents and the lines most confidently wrong. These
// show text of the documents.
//
// A line counts if it is not blank and lies in a span of the annotation. Exit
// statuses: 0 done; 1 failed; 2 wrong use; 3 done, but some documents could not
// be judged.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

func main() { cli.Main(run) }

// options are the flags of evaluate.
type options struct {
	input                                            cli.Strings
	modelURI, predictions, report, labelSet, device  string
	windowSize, stride, batchSize, verbosity, status int
	maxDocumentBytes                                 cli.Bytes
	cancelOnExit                                     bool
}

func define(f *cli.Flags) *options {
	o := &options{maxDocumentBytes: transforms.DefaultMaxDocumentBytes}
	f.Var(&o.input, "input", "annotated `files`, folders and patterns, separated by commas (\\, is a comma) or repeated")
	f.StringVar(&o.modelURI, "model_uri", "", "`folder` or gs://bucket/prefix of the model to judge (default the bundled one)")
	f.StringVar(&o.predictions, "predictions", "", "`folder` or gs://bucket/prefix of annotated files to judge instead, called as those of --input")
	f.StringVar(&o.report, "report", "", "`folder` or gs://bucket/prefix to write report.json and report.html to, which show lines of the documents")
	f.StringVar(&o.labelSet, "label_set", "", "`collapsed` (Nomenclature, Description, Misc-exposition) or full (default the model's first)")
	f.StringVar(&o.device, "device", "cpu", "`cpu`, auto or cuda")
	f.IntVar(&o.windowSize, "window_size", -1, "`lines` of a context window; 0 for whole documents, -1 for the model's choice")
	f.IntVar(&o.stride, "prediction_stride", 0, "`lines` from one context window to the next; 0 for --window_size")
	f.IntVar(&o.batchSize, "prediction_batch_size", 0, "context `windows` in a batch; 0 for the model's choice")
	f.Var(&o.maxDocumentBytes, "max_document_bytes", "largest document that is read, in `bytes`")
	f.IntVar(&o.status, "rejected_exit_status", 3, "exit `status` when some documents could not be judged")
	f.CancelOnExit(&o.cancelOnExit)
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors and the table, 1 progress, 2 devices and Beam's log")
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("evaluate", "Compares labels with annotation, line by line.", runners.Flags...)
	runners.Define(f.FlagSet)
	o := define(f)
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	cli.Verbosity = o.verbosity
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
			fmt.Fprintf(os.Stderr, "evaluating on %s …\n", strings.Join(o.input, ", "))
		}
	}
	runners.Init(o.verbosity) // a worker stays in here
	return o.evaluate(ctx)
}

// check finds wrong use.
func (o *options) check() error {
	if _, err := runners.Name(); err != nil {
		return cli.Usagef("%w", err)
	}
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
	}
	if o.report != "" {
		if *jobopts.Async {
			return cli.Usagef("--report is written when the job is done; leave out --async")
		}
		if _, err := store.For(context.Background(), o.report); err != nil {
			return cli.Usagef("--report: %w", err)
		}
	}
	return cmp.Or(cli.CheckVerbosity(o.verbosity), cli.CheckStatus(o.status), cli.CheckDevice(o.device, o.windowSize, o.stride))
}

func (o *options) evaluate(ctx context.Context) error {
	begin := time.Now()
	set, err := input.New(o.input, "", true)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if err := runners.CheckPaths(append(slices.Clone(o.input), o.modelURI, o.predictions, o.report)...); err != nil {
		return cli.Usagef("%w", err)
	}
	opts := transforms.Options{
		Run: fmt.Sprintf("evaluate-%d-%d", os.Getpid(), begin.UnixNano()), Verbosity: o.verbosity,
		Base: transforms.Path(set.Base), Annotated: true, MaxDocumentBytes: int64(o.maxDocumentBytes),
		Device: o.device, LabelSet: o.labelSet,
		WindowSize: o.windowSize, PredictionStride: o.stride, PredictionBatchSize: o.batchSize,
	}
	score := scoreFn{Run: opts.Run, Config: model.DefaultConfig(), LabelSet: o.labelSet}
	if o.report != "" {
		// Workers may stand elsewhere in the same machine.
		if o.report, err = input.Absolute(o.report); err != nil {
			return err
		}
		score.Parts = transforms.Path(partsFolder(o.report, opts.Run))
	}
	result := report{Input: o.input}
	if o.predictions == "" {
		if o.modelURI != "" {
			uri, err := input.Absolute(o.modelURI)
			if err != nil {
				return err
			}
			opts.ModelURI = transforms.Path(uri)
		}
		here := opts
		if !runners.Local() {
			here.Device = "cpu" // the workers' devices are no matter of this machine's
		}
		m, err := transforms.LoadModel(ctx, here)
		if errors.Is(err, model.ErrLabelSet) {
			return cli.Usagef("%w", err)
		}
		if err != nil {
			return err
		}
		if m.Reason != "" && o.verbosity > 0 {
			fmt.Fprintf(os.Stderr, "linnet: %s\n", m.Reason)
		}
		opts.ModelHash, opts.InputSize = m.Hash, m.Config.InputSize
		score.Config = *m.Config
		result.Model, result.ModelHash = o.modelURI, m.Hash
	} else {
		folder, err := input.Absolute(o.predictions)
		if err != nil {
			return err
		}
		score.Predictions = transforms.Path(folder)
		result.Predictions = o.predictions
	}
	score.LabelSet = cmp.Or(score.LabelSet, score.Config.LabelSet)
	result.LabelSet = score.LabelSet

	var files int64
	if !runners.DryRun() {
		count := func(input.File) error { files++; return nil }
		err = set.Walk(ctx, count)
		if earlier := set.LeaveOut(); earlier != "" {
			fmt.Fprintf(os.Stderr, "linnet: %s\n", earlier)
			files = 0
			err = set.Walk(ctx, count)
		}
		if passed := set.Passed(); err == nil && passed != "" && o.verbosity > 0 {
			fmt.Fprintf(os.Stderr, "linnet: %s\n", passed)
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, input.ErrNone), errors.Is(err, input.ErrTwins):
		return cli.Usagef("%w", err)
	case err != nil:
		return err
	}

	if o.report != "" && !runners.DryRun() {
		if err := beginParts(ctx, string(score.Parts)); err != nil {
			return err
		}
		defer endParts(context.WithoutCancel(ctx), o.report, string(score.Parts))
	}
	progress := transforms.ProgressOf(opts.Run)
	defer context.AfterFunc(ctx, progress.Stop)()
	p, s := beam.NewPipelineWithRoot()
	pipeline(s, opts, set, score)
	run, err := o.run(ctx, p)
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
	result.Documents, result.Rejected = run.Counters["judged"], run.Counters["rejected"]
	result.Report = gather(run.Counters, &score)
	result.Seconds = time.Since(begin).Seconds()
	if result.Report.Lines == 0 && result.Rejected == 0 {
		return fmt.Errorf("%s: no line has a label; name files with YEDDA annotation (*.txt.ann)", strings.Join(o.input, ", "))
	}
	if result.Documents > 0 {
		table(os.Stdout, &result)
	}
	if o.report != "" {
		if err := o.writeReport(ctx, string(score.Parts), &result); err != nil {
			return err
		}
	}
	if result.Rejected > 0 {
		err := fmt.Errorf("%s could not be judged, such as %s", cli.Plural(result.Rejected, "document"), firstReason(opts.Run, run.Counters))
		if result.Documents == 0 {
			return err
		}
		return &cli.Status{Code: o.status, Err: err}
	}
	return nil
}

// run runs p; what SIGTERM means to a job elsewhere --cancel_on_exit says.
func (o *options) run(ctx context.Context, p *beam.Pipeline) (*runners.Result, error) {
	run := func(ctx context.Context) (*runners.Result, error) {
		return runners.Run(ctx, p, transforms.Namespace, o.verbosity)
	}
	if runners.Local() || o.cancelOnExit {
		return run(ctx)
	}
	return cli.Leave(ctx, run)
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
		rejected = append(rejected, beam.ParDo(s, &compareFn{score}, docs))
	}
	beam.ParDo0(s, &rejectedFn{Run: score.Run}, beam.Flatten(s, rejected...))
}

// scoreFn counts the lines of labelled documents, PCollection<Labelled>, by gold
// and predicted label. The counters' names are those of pairCounter.
type scoreFn struct {
	Run         string
	Config      model.Config
	LabelSet    string
	Predictions transforms.Path
	Parts       transforms.Path // folder of the parts; "" for none
}

func (f *scoreFn) ProcessElement(ctx context.Context, l transforms.Labelled) error {
	j := judged{doc: &l.Document}
	j.lines, j.predicted = l.Inked()
	if f.Parts != "" {
		j.probs = make([]float64, len(j.lines))
		j.ink = make([][]stretch, len(j.lines))
		row := 0
		for i, line := range j.lines {
			j.ink[i] = inkOfLine(l.Text[line.Start:line.End], j.predicted[i])
			if row < len(l.Rows) && l.Rows[row] == line {
				j.probs[i] = float64(l.Probs[row*len(l.Classes)+int(l.Labels[row])])
				row++
			}
		}
	}
	return f.judge(ctx, &j)
}

// judge counts the labels of j.lines against the spans of j.doc, and writes the
// document's part where a report wants it.
func (f *scoreFn) judge(ctx context.Context, j *judged) error {
	j.gold = (&yedda.Document{Text: j.doc.Text, Spans: j.doc.Spans}).LineLabels(j.lines)
	counts := map[[2]string]int64{}
	for i, g := range j.gold {
		j.gold[i], j.predicted[i] = f.class(g), f.given(j.predicted[i])
		if j.gold[i] != "" {
			counts[[2]string{j.gold[i], j.predicted[i]}]++
		}
	}
	for pair, n := range counts {
		beam.NewCounter(transforms.Namespace, pairCounter(pair)).Inc(ctx, n)
	}
	beam.NewCounter(transforms.Namespace, "judged").Inc(ctx, 1)
	if f.Parts == "" {
		return nil
	}
	return j.part(f.class, f.given).write(ctx, string(f.Parts))
}

// pairPrefix begins the name of a counter of lines by gold and predicted label,
// and of no other.
const pairPrefix = "lines: "

// pairCounter is "lines: gold/predicted", with the labels escaped as in a URL.
func pairCounter(pair [2]string) string {
	return pairPrefix + url.PathEscape(pair[0]) + "/" + url.PathEscape(pair[1])
}

// pairOf is the pair of a counter, if it is one of pairCounter's.
func pairOf(counter string) (pair [2]string, ok bool) {
	name, ok := strings.CutPrefix(counter, pairPrefix)
	gold, predicted, slash := strings.Cut(name, "/")
	g, errGold := url.PathUnescape(gold)
	p, errPredicted := url.PathUnescape(predicted)
	return [2]string{g, p}, ok && slash && errGold == nil && errPredicted == nil
}

// class is the class that a label is judged as: that which it was trained as, or,
// by a second head and in files of the full set, itself.
func (f *scoreFn) class(label string) string {
	if label == "" || f.LabelSet != f.Config.LabelSet {
		return label
	}
	c := f.Config.Class(label)
	if c < 0 {
		return ""
	}
	return f.Config.Classes[c]
}

// given is the class of a predicted label. A model gives classes already, which
// its LabelMap may name as labels of the annotation, too.
func (f *scoreFn) given(label string) string {
	if f.Predictions == "" {
		return label
	}
	return f.class(label)
}

// compareFn is scoreFn for predictions in files: PCollection<Document> to
// Rejections.
type compareFn struct{ Score scoreFn }

func (f *compareFn) ProcessElement(ctx context.Context, d transforms.Document, reject func(transforms.Rejection)) error {
	uri := store.Join(string(f.Score.Predictions), string(d.Name)+".ann")
	fail := func(reason string) {
		reject(transforms.Rejection{URI: d.URI, Name: d.Name, Stage: "compare", Reason: reason})
	}
	st, err := store.For(ctx, uri)
	if err != nil {
		return err
	}
	data, err := st.Read(ctx, uri, 0)
	if err != nil {
		fail("its prediction: " + err.Error())
		return nil
	}
	predicted := yedda.Parse(data)
	lines := yedda.Inked(d.Text, d.Rows)
	predictedLines := yedda.Inked(predicted.Text, yedda.Rows(predicted.Text))
	same := func(a, b yedda.Line) bool {
		return bytes.Equal(fields(d.Text[a.Start:a.End]), fields(predicted.Text[b.Start:b.End]))
	}
	if !slices.EqualFunc(lines, predictedLines, same) {
		fail("its prediction " + uri + " has other text; predict it again from this document")
		return nil
	}
	j := judged{doc: &d, lines: lines, predicted: predicted.LineLabels(predictedLines)}
	if f.Score.Parts != "" {
		j.ink = inkOf(predicted, predictedLines)
	}
	return f.Score.judge(ctx, &j)
}

// fields is line with its white space made one blank each.
func fields(line []byte) []byte { return bytes.Join(bytes.Fields(line), []byte(" ")) }

// rejectedFn counts the documents that could not be judged, and keeps the
// first reason for a launcher in the same process.
type rejectedFn struct{ Run string }

func (f *rejectedFn) ProcessElement(ctx context.Context, r transforms.Rejection) {
	beam.NewCounter(transforms.Namespace, "rejected").Inc(ctx, 1)
	if p := transforms.ProgressOf(f.Run); p.Noted() == "" {
		p.Note(fmt.Sprintf("%s: %s", r.URI, r.Reason))
		beam.NewCounter(transforms.Namespace, reasonCounter+strings.ToValidUTF8(p.Noted(), "\uFFFD")).Inc(ctx, 1)
	}
}

// reasonCounter begins the name of a counter that tells the launcher the first
// reason that a worker met.
const reasonCounter = "reason: "

func firstReason(run string, counters map[string]int64) string {
	if note := transforms.ProgressOf(run).Noted(); note != "" {
		return note
	}
	for name := range counters {
		if reason, ok := strings.CutPrefix(name, reasonCounter); ok {
			return reason
		}
	}
	return "what the workers' log says"
}

func init() {
	beam.RegisterDoFn(&scoreFn{})
	beam.RegisterDoFn(&compareFn{})
	beam.RegisterDoFn(&rejectedFn{})
}

// report is report.json.
type report struct {
	Input       []string     `json:"input"`
	Model       string       `json:"model,omitempty"`
	ModelHash   string       `json:"model_hash,omitempty"`
	Predictions string       `json:"predictions,omitempty"`
	LabelSet    string       `json:"label_set"`
	Documents   int64        `json:"documents"`
	Rejected    int64        `json:"rejected"`
	Seconds     float64      `json:"seconds"`
	Report      *eval.Report `json:"report"` // of lines
	*details
}

// gather makes the report of the counters. Its classes are the model's, and
// what else occurred, by name.
func gather(counters map[string]int64, f *scoreFn) *eval.Report {
	var classes []string
	if _, head, err := f.Config.Head(f.LabelSet); err == nil {
		classes = slices.Clone(head)
	}
	lines := sums{}
	for name, n := range counters {
		if pair, ok := pairOf(name); ok {
			lines[pair] += n
		}
	}
	return lines.counts(classes).Report()
}

// writeReport merges the parts into r and writes it, for programs and for
// people.
func (o *options) writeReport(ctx context.Context, parts string, r *report) error {
	var classes []string
	for _, c := range r.Report.Classes {
		classes = append(classes, c.Class)
	}
	m, found := newMerger(classes), int64(0)
	err := readParts(ctx, parts, func(p *part) { found++; m.add(p) })
	if err != nil {
		return err
	}
	if found < r.Documents {
		return fmt.Errorf("--report: %s: it has the figures of %d of %s; name a folder that workers share with this program, such as gs://bucket/report",
			o.report, found, cli.Plural(r.Documents, "document"))
	}
	r.details = m.details()
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	page, err := htmlReport(r)
	if err != nil {
		return err
	}
	st, err := store.For(ctx, o.report)
	if err != nil {
		return err
	}
	if err := st.Write(ctx, store.Join(o.report, "report.json"), append(data, '\n')); err != nil {
		return err
	}
	if err := st.Write(ctx, store.Join(o.report, "report.html"), page); err != nil {
		return err
	}
	if i := r.Intervals; i != nil {
		fmt.Printf("95 %% of resamples of the documents: accuracy %.4f to %.4f, macro-F1 %.4f to %.4f\n",
			i.Accuracy.Low, i.Accuracy.High, i.MacroF1.Low, i.MacroF1.High)
	}
	fmt.Printf("F1 of spans %.4f exact, %.4f overlap; macro-F1 of characters %.4f\n",
		r.Spans.Exact.MicroF1, r.Spans.Overlap.MicroF1, r.Characters.MacroF1)
	return nil
}

// table writes the figures for people.
func table(w io.Writer, r *report) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "label\tprecision\trecall\tF1\tlines\tpredicted\t\n")
	for _, c := range r.Report.Classes {
		if c.Gold == 0 && c.Predicted == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%.4f\t%.4f\t%.4f\t%s\t%s\t\n", c.Class, c.Precision, c.Recall, c.F1, cli.Count(c.Gold), cli.Count(c.Predicted))
	}
	fmt.Fprintf(t, "macro\t%.4f\t%.4f\t%.4f\t%s\t\t\n", r.Report.MacroPrecision, r.Report.MacroRecall, r.Report.MacroF1, cli.Count(r.Report.Lines))
	fmt.Fprintf(t, "micro\t%.4f\t%.4f\t%.4f\t\t\t\n", r.Report.MicroPrecision, r.Report.MicroRecall, r.Report.MicroF1)
	t.Flush()
	fmt.Fprintf(w, "accuracy %.4f, macro-F1 %.4f; %s, %s with a label, %.1f s\n",
		r.Report.Accuracy, r.Report.MacroF1, cli.Plural(r.Documents, "document"), cli.Plural(r.Report.Lines, "line"), r.Seconds)
}
