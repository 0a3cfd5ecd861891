package transforms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Featurize is PCollection<Document> to PCollection<Example>: the features of
// every row, for a model with Options.InputSize rows in its table; with
// Options.Deferred, Predict makes them. A long document is only surveyed. With Device
// auto it loads the model to see whether there is a GPU; without one it defers, too.
// It rejects a document whose Rows are not all lines of its text that are not blank, in
// order.
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
	deferred  bool // see Model.deferred
	stage     stage[Document, Example]
}

func (f *featurizeFn) Setup(ctx context.Context) error {
	progress := ProgressOf(f.Options.Run)
	f.inputSize = f.Options.InputSize
	if f.inputSize == 0 {
		w, err := bundled.Weights()
		if err != nil {
			return progress.fail("featurize", err)
		}
		f.inputSize = w.Config.InputSize
	}
	f.deferred = f.Options.Deferred
	if !f.deferred && f.Options.Device == backend.Auto {
		m, err := LoadModel(ctx, f.Options)
		if err != nil {
			return progress.fail("predict", err) // as Predict would
		}
		f.deferred = m.deferred(&f.Options)
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
	return f.stage.push(ctx, t, d, featureBytes(&d, f.deferred), f.emitter(emit), reject)
}

func (f *featurizeFn) FinishBundle(ctx context.Context, emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) error {
	return f.stage.drain(ctx, f.emitter(emit), reject)
}

func (f *featurizeFn) emitter(emit func(beam.EventTime, Example)) func(beam.EventTime, *Example) {
	return func(t beam.EventTime, e *Example) { emit(t, *e) }
}

func (f *featurizeFn) featurize(_ context.Context, d Document) (*Example, *Rejection, error) {
	e := &Example{Document: d, InputSize: f.inputSize}
	e.featurize(f.deferred, workers(len(d.Rows)))
	return e, nil, nil
}

// tableSize reports whether a table may have n rows, 0 for those of the bundled model.
func tableSize(n int) bool { return n >= 0 && int64(n) <= math.MaxUint32 }

// surveyRows is the number of rows from which on a document is surveyed, as its
// features would take 30 MB; deferredLines is the most rows whose features are left to
// Predict, which then makes 15 MB of them at once. Journals' volumes have up to 30,000
// rows. They are variables for tests.
var surveyRows, deferredLines = 1 << 16, 2 * batchLines

// featurize makes the features of the document, or its Survey, or leaves them to
// Predict.
func (e *Example) featurize(deferred bool, workers int) {
	switch rows := len(e.Rows); {
	case deferred && rows <= deferredLines:
	case deferred || rows >= surveyRows:
		e.Survey = feature.NewSurvey(e.Text, e.Rows, e.InputSize, workers)
		e.surveyed = e.Survey
	default:
		e.Features = feature.Extract(e.Text, e.Rows, e.InputSize, workers)
		e.made = e.Features
	}
}

// checkFeatures returns an error where the features are not one line for each row, or,
// of another's making, none that a model takes: they would fail a batch of many documents.
// Where an Example has none, or a Survey that may be another document's or for another
// table, it makes missing rows, checks that features can be made of them, and surveys a
// long document.
func (e *Example) checkFeatures() error {
	lines := len(e.Rows)
	if e.Survey != e.surveyed {
		e.Survey = nil
	}
	switch {
	case e.Features != nil:
		lines = e.Features.NumLines()
	case e.Survey != nil:
		lines = e.Survey.NumLines()
	default:
		if lines == 0 {
			e.Rows = yedda.Rows(e.Text)
		}
		if err := e.checkBounds(); err != nil {
			return err
		}
		e.featurize(true, workers(len(e.Rows)))
		return nil
	}
	if lines != len(e.Rows) {
		return errors.New("it has not one line of features a row; Featurize makes them")
	}
	if e.Features != nil && e.Features != e.made {
		features := *e.Features
		features.Windows = nil // Predict makes its own
		return features.CheckAll(feature.LayoutSize, e.InputSize)
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

// featureBytes is about what a document takes while it waits: with its features some
// 60 ids a line, of four bytes each, and the layout features; with a Survey, or where
// features are deferred, its rows and results.
func featureBytes(d *Document, deferred bool) int64 {
	row := 4*60 + 8*model.Groups + 4*feature.LayoutSize
	if deferred || len(d.Rows) >= surveyRows {
		row = 100
	}
	return int64(len(d.Text) + len(d.Rows)*row)
}

func init() { beam.RegisterDoFn(&featurizeFn{}) }
