package transforms

import (
	"context"
	"runtime"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
)

// Featurize is PCollection<Document> to PCollection<Example>: the features of
// every row, for a model with Options.InputSize rows in its table. It rejects
// nothing at present.
func Featurize(s beam.Scope, opts Options, docs beam.PCollection) (examples, rejected beam.PCollection) {
	s = s.Scope("linnet.Featurize")
	global("Featurize", docs)
	return beam.ParDo2(s, &featurizeFn{Options: opts}, docs)
}

type featurizeFn struct {
	Options   Options
	inputSize int
	stage     stage[Document, Example]
}

func (f *featurizeFn) Setup() error {
	f.inputSize = f.Options.InputSize
	if f.inputSize == 0 {
		w, err := bundled.Weights()
		if err != nil {
			return fatal("featurize", err)
		}
		f.inputSize = w.Config.InputSize
	}
	f.stage = newStage("featurize", ProgressOf(f.Options.Run), f.Options.inFlight()/2, f.featurize, pipe.New)
	return nil
}

func (f *featurizeFn) StartBundle(emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) {
	f.stage.begin()
}

func (f *featurizeFn) ProcessElement(ctx context.Context, t beam.EventTime, d Document, emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) error {
	return f.stage.push(ctx, t, d, featureBytes(&d), f.emitter(emit), reject)
}

func (f *featurizeFn) FinishBundle(ctx context.Context, emit func(beam.EventTime, Example), reject func(beam.EventTime, Rejection)) error {
	return f.stage.drain(ctx, f.emitter(emit), reject)
}

func (f *featurizeFn) emitter(emit func(beam.EventTime, Example)) func(beam.EventTime, *Example) {
	return func(t beam.EventTime, e *Example) { emit(t, *e) }
}

func (f *featurizeFn) featurize(_ context.Context, d Document) (*Example, *Rejection, error) {
	e := &Example{Document: d, InputSize: f.inputSize}
	e.Features = feature.Extract(d.Text, d.Rows, f.inputSize, workers(len(d.Rows)))
	return e, nil, nil
}

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
// each, some 60 of them a line, and the layout numbers.
func featureBytes(d *Document) int64 {
	const row = 4*60 + 8*model.Groups + 4*feature.LayoutSize
	return int64(len(d.Text) + len(d.Rows)*row)
}

func init() { beam.RegisterDoFn(&featurizeFn{}) }
