package transforms

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/inference"
)

// Predict is PCollection<Example> to PCollection<Labelled>: a label on every
// row, the most probable one of Options.LabelSet.
//
// One model a process, device and label set is loaded, by whoever comes first,
// however many instances of the DoFn there are, and batches fill across documents. What a
// document gets depends on it alone, not on what shares its batches. A model
// that cannot be loaded fails the run, and so does an Example for another InputSize than
// the model's. An Example with Features of your own is rejected where the model cannot
// take them.
func Predict(s beam.Scope, opts Options, examples beam.PCollection) (labelled, rejected beam.PCollection) {
	s = s.Scope("linnet.Predict")
	global("Predict", examples)
	return beam.ParDo2(s, &predictFn{Options: opts}, examples)
}

type predictFn struct {
	Options  Options
	model    *Model
	progress *Progress
	other    string // class of lines that nobody can read
	queue    *inference.Queue[job[Document], windowItem, scored]
}

func (f *predictFn) Setup(ctx context.Context) error {
	f.progress = ProgressOf(f.Options.Run)
	return f.progress.fail("predict", f.setup(ctx))
}

func (f *predictFn) setup(ctx context.Context) error {
	m, err := LoadModel(ctx, f.Options)
	if err != nil {
		return err
	}
	if f.Options.ModelHash != "" && m.Hash != f.Options.ModelHash {
		if f.Options.ModelURI == "" { // which starting again does not change
			return errors.New("the worker's program has another model than the one that the run began with; let workers run the launcher's version of it")
		}
		return fmt.Errorf("the model at %s is not the one that the run began with; start the run again", f.Options.modelName())
	}
	if f.Options.WindowSize > 0 && f.Options.PredictionStride > f.Options.WindowSize {
		return errors.New("prediction_stride is larger than window_size, so lines would stay without a label")
	}
	engine, err := m.engine(ctx, &f.Options)
	if err != nil {
		return err
	}
	f.model, f.other, f.queue = m, m.other(), inference.NewQueue[job[Document]](engine)
	return nil
}

func (f *predictFn) StartBundle(emit func(beam.EventTime, Labelled), reject func(beam.EventTime, Rejection)) {
	f.queue.Reset()
	f.model.gpus.begin()
}

func (f *predictFn) ProcessElement(ctx context.Context, t beam.EventTime, e Example, emit func(beam.EventTime, Labelled), reject func(beam.EventTime, Rejection)) error {
	if e.InputSize != f.model.Config.InputSize {
		return f.progress.fail("predict", fmt.Errorf("features are for a table of %d rows, the model's has %d; give Featurize the model's InputSize", e.InputSize, f.model.Config.InputSize))
	}
	if err := e.checkFeatures(); err != nil {
		reject(t, *e.reject("predict", err))
		return nil
	}
	if r := f.fits(&e.Document); r != nil {
		reject(t, *r)
		return nil
	}
	return f.progress.fail("predict", f.queue.Push(ctx, job[Document]{t, e.Document}, f.items(&e), e.size(), f.emitter(ctx, emit)))
}

func (f *predictFn) FinishBundle(ctx context.Context, emit func(beam.EventTime, Labelled), reject func(beam.EventTime, Rejection)) error {
	err := f.queue.Drain(ctx, f.emitter(ctx, emit))
	f.model.gpus.end(ctx)
	return f.progress.fail("predict", err)
}

func (f *predictFn) emitter(ctx context.Context, emit func(beam.EventTime, Labelled)) func(job[Document], []scored, error) error {
	return func(j job[Document], outs []scored, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", j.in.URI, err)
		}
		f.model.count(ctx, len(j.in.Rows), outs)
		f.model.gpus.report(ctx)
		l, err := f.decode(&j.in, outs)
		if err != nil {
			return fmt.Errorf("%s: %w", j.in.URI, err)
		}
		emit(j.time, l)
		return nil
	}
}

// decode labels the rows of d from the probabilities of its windows.
func (f *predictFn) decode(d *Document, outs []scored) (Labelled, error) {
	k := len(f.model.classes)
	l := Labelled{Document: *d, Classes: f.model.classes, Other: f.other}
	windows := make([][]float32, len(outs))
	for i := range outs {
		windows[i] = outs[i].probs
	}
	l.Probs = model.Average(len(l.Rows), f.windows(len(l.Rows)), windows, k)
	l.Labels = make([]uint16, len(l.Rows))
	for i := range l.Labels {
		probs := l.Probs[i*k : (i+1)*k]
		best := argmax(probs)
		if !(probs[best] >= 0) { // numbers of a model that are finite, and too large to reckon with
			return l, fmt.Errorf("the model at %s gives %v where a probability should be; it is damaged or its training diverged: train it again", f.Options.modelName(), probs[best])
		}
		l.Labels[i] = uint16(best)
	}
	return l, nil
}

// fits rejects a document whose windows take more than model.MaxCovered.
func (f *predictFn) fits(d *Document) *Rejection {
	size, stride := f.windowing()
	n := model.Covered(len(d.Rows), size, stride)
	if n <= model.MaxCovered/len(f.model.classes) {
		return nil
	}
	return d.reject("predict", fmt.Errorf("%d lines in windows of %d, with %d probabilities each, take too much memory; choose a larger --prediction_stride, or split the document", n, size, len(f.model.classes)))
}

// windowing is the size of windows and the rows from one to the next, by
// the options or, where they leave it open, by the model.
func (f *predictFn) windowing() (size, stride int) {
	size, stride = f.Options.WindowSize, f.Options.PredictionStride
	if size < 0 {
		size, stride = f.model.Config.WindowSize, f.model.Config.PredictionStride
	}
	return size, stride
}

// windows are the context windows of a document of n rows.
func (f *predictFn) windows(n int) []model.ContextWindow {
	size, stride := f.windowing()
	return model.Windows(n, size, stride)
}

// items are the windows of an example, for the engine.
func (f *predictFn) items(e *Example) (items []windowItem) {
	windows := f.windows(len(e.Rows))
	src := newSource(e, len(windows))
	for _, w := range windows {
		items = append(items, windowItem{src, w})
	}
	return items
}

func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

func init() { beam.RegisterDoFn(&predictFn{}) }
