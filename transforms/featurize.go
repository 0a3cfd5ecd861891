package transforms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Featurize is PCollection<Document> to PCollection<Example>: the features of
// every row, for a model with Options.InputSize rows in its table; with
// Options.Deferred, Predict makes them. It rejects
// a document whose Rows are no lines of its text, one behind the other, that can
// be read.
func Featurize(s beam.Scope, opts Options, docs beam.PCollection) (examples, rejected beam.PCollection) {
	s = s.Scope("linnet.Featurize")
	global("Featurize", docs)
	if !tableSize(opts.InputSize) {
		panic(fmt.Sprintf("transforms: Featurize: Options.InputSize is %d; give the model's, or 0 for the bundled model's", opts.InputSize))
	}
	return beam.ParDo2(s, &featurizeFn{Options: opts}, docs)
}

type featurizeFn struct {
	Options   Options
	inputSize int
	stage     stage[Document, Example]
}

func (f *featurizeFn) Setup() error {
	progress := ProgressOf(f.Options.Run)
	f.inputSize = f.Options.InputSize
	if f.inputSize == 0 {
		w, err := bundled.Weights()
		if err != nil {
			return progress.fail("featurize", err)
		}
		f.inputSize = w.Config.InputSize
	}
	f.stage = newStage("featurize", progress, f.Options.inFlight()/2, f.featurize, pipe.New)
	return nil
}

func (f *featurizeFn) StartBundle(emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) {
	f.stage.begin()
}

func (f *featurizeFn) ProcessElement(ctx context.Context, t beam.EventTime, d Document, emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) error {
	if err := d.check(); err != nil {
		reject(t, *d.reject("featurize", err))
		return nil
	}
	return f.stage.push(ctx, t, d, featureBytes(&d, f.deferred(&d)), f.emitter(emit), reject)
}

func (f *featurizeFn) FinishBundle(ctx context.Context, emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) error {
	return f.stage.drain(ctx, f.emitter(emit), reject)
}

func (f *featurizeFn) emitter(emit func(beam.EventTime, Example)) func(beam.EventTime, *Example) {
	return func(t beam.EventTime, e *Example) { emit(t, *e) }
}

func (f *featurizeFn) featurize(_ context.Context, d Document) (*Example, *Rejection, error) {
	e := &Example{Document: d, InputSize: f.inputSize}
	switch {
	case f.deferred(&d):
	case f.Options.Deferred:
		e.survey(workers(len(d.Rows)))
	default:
		e.featurize(workers(len(d.Rows)))
	}
	return e, nil, nil
}

// deferredLines bounds a document that goes to one batch whole, with its features:
// 15 MB of them. Journals' volumes have up to 30,000 lines.
const deferredLines = 2 * batchLines

func (f *featurizeFn) deferred(d *Document) bool {
	return f.Options.Deferred && len(d.Rows) <= deferredLines
}

// tableSize says whether a table may have n rows, 0 for those of the bundled model.
func tableSize(n int) bool { return n >= 0 && int64(n) <= math.MaxUint32 }

// surveyed is the number of rows from which on a document is surveyed: its
// features would take 30 MB. It is a variable for tests.
var surveyed = 1 << 16

// featurize makes the features of the document, or its Survey.
func (e *Example) featurize(workers int) {
	if len(e.Rows) < surveyed {
		e.Features = feature.Extract(e.Text, e.Rows, e.InputSize, workers)
	} else {
		e.survey(workers)
	}
}

func (e *Example) survey(workers int) {
	e.Survey = feature.NewSurvey(e.Text, e.Rows, e.InputSize, workers)
}

// checkFeatures tells of features that are not those of the rows, one line each. Of
// an Example without any it looks whether they can be made, and makes missing rows.
func (e *Example) checkFeatures() error {
	lines := len(e.Rows)
	switch {
	case e.Features != nil:
		lines = e.Features.NumLines()
	case e.Survey != nil:
		lines = e.Survey.NumLines()
	default:
		if len(e.Rows) == 0 {
			e.Rows = yedda.Rows(e.Text)
		}
		return e.checkBounds()
	}
	if lines != len(e.Rows) {
		return errors.New("it has not one line of features a row; Featurize makes them")
	}
	return nil
}

// size is about what e and its results take while it waits, in bytes.
func (e *Example) size() int64 { return featureBytes(&e.Document, e.Features == nil) }

// workers are the goroutines that share a document of so many rows: all cores
// where it is long, as those behind it will wait for it, and otherwise those
// that have nothing else to do.
func workers(rows int) int {
	const long = 20000
	cores := runtime.GOMAXPROCS(0)
	if rows >= long {
		return cores
	}
	return max(1, cores+1-pipe.Busy()) // the caller's is one of those busy
}

// featureBytes is about what a document and its features take: ids four bytes
// each, some 60 of them a line, and the layout numbers; or its Survey; or, where they
// are deferred, its rows and results.
func featureBytes(d *Document, deferred bool) int64 {
	row := 4*60 + 8*model.Groups + 4*feature.LayoutSize
	if deferred || len(d.Rows) >= surveyed {
		row = 100
	}
	return int64(len(d.Text) + len(d.Rows)*row)
}

func init() { beam.RegisterDoFn(&featurizeFn{}) }
