package transforms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/inference"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Predict is PCollection<Example> to PCollection<Labelled>: a label on every
// row, the most probable one of Options.LabelSet.
//
// One model a process, device and label set is loaded, by whoever comes first,
// however many instances of the DoFn there are, and batches fill across documents. What a
// document gets depends on it alone, not on what shares its batches. A model
// that cannot be loaded fails the run.
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
	err := f.setup(ctx)
	return f.progress.fail("predict", err)
}

func (f *predictFn) setup(ctx context.Context) error {
	m, err := LoadModel(ctx, f.Options)
	if err != nil {
		return err
	}
	if f.Options.ModelHash != "" && m.Hash != f.Options.ModelHash {
		return fmt.Errorf("the model at %s is not the one that the run began with; start the run again", f.Options.modelName())
	}
	if f.Options.WindowSize > 0 && f.Options.PredictionStride > f.Options.WindowSize {
		return errors.New("prediction_stride is larger than window_size, so lines would stay without a label")
	}
	if slices.Contains(m.classes, m.Config.OtherClass) {
		f.other = m.Config.OtherClass
	}
	engine, err := m.engine(ctx, &f.Options)
	if err != nil {
		return err
	}
	f.model, f.queue = m, inference.NewQueue[job[Document]](engine)
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
		probs := make([][]float32, len(outs))
		for i := range outs {
			probs[i] = outs[i].probs
		}
		l, err := f.decode(&j.in, probs)
		if err != nil {
			return fmt.Errorf("%s: %w", j.in.URI, err)
		}
		emit(j.time, l)
		return nil
	}
}

// decode labels the rows of d from the probabilities of its windows.
func (f *predictFn) decode(d *Document, outs [][]float32) (Labelled, error) {
	k := len(f.model.classes)
	l := Labelled{Document: *d, Classes: f.model.classes, Other: f.other}
	l.Probs = model.Average(len(l.Rows), f.windows(len(l.Rows)), outs, k)
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

// Model is a model as this process has loaded it, on its device.
type Model struct {
	Config *model.Config // with all heads; the scorer has that of the label set alone
	Hash   string
	Device string // where it runs and how, in words
	Reason string // why --device=auto took no GPU, in one line; otherwise empty

	key     string
	classes []string // of the head that it has on the device
	gpu     bool
	gpus    *gpuWatch // nil without GPUs
	scorer  model.MultiScorer
	bytes   int64
	loading time.Duration
}

// deferred says whether features are made where they are used: as o asks, or as auto
// fell back on the processor.
func (m *Model) deferred(o *Options) bool { return o.Deferred || m.Reason != "" }

// Counters of Predict, in Namespace: lines by the device that scored them, and
// processes of --device=auto that went to the CPU, with one more counter for each
// reason.
const (
	LinesCPUCounter   = "lines_cpu"
	LinesCUDACounter  = "lines_cuda"
	FallenBackCounter = "workers_fallen_back"
	ReasonCounter     = "workers_fallen_back: " // and the reason
)

// fallenBack has the keys of this process's models that FallenBackCounter counted.
var fallenBack sync.Map

// count counts the lines of a document, by the devices that scored its windows, as
// Beam metrics of ctx. Where windows overlap, each has its share of the lines.
func (m *Model) count(ctx context.Context, lines int, windows []scored) {
	all, onGPU := 0, 0
	for i := range windows {
		n := len(windows[i].probs)
		all += n
		if windows[i].onGPU {
			onGPU += n
		}
	}
	if all > 0 {
		onGPU = int(int64(lines) * int64(onGPU) / int64(all))
	}
	if onGPU > 0 {
		beam.NewCounter(Namespace, LinesCUDACounter).Inc(ctx, int64(onGPU))
	}
	if onGPU < lines {
		beam.NewCounter(Namespace, LinesCPUCounter).Inc(ctx, int64(lines-onGPU))
	}
	reason := m.Reason
	if m.gpu && onGPU < lines {
		if now := fmt.Sprint(m.scorer); strings.HasPrefix(now, backend.CPU) {
			reason = now
		}
	}
	if reason == "" {
		return
	}
	if _, counted := fallenBack.LoadOrStore(m.key, true); !counted {
		beam.NewCounter(Namespace, FallenBackCounter).Inc(ctx, 1)
		beam.NewCounter(Namespace, ReasonCounter+reason).Inc(ctx, 1)
	}
}

// models and engines are those of the process: Setup runs once a DoFn
// instance, and Teardown seldom.
var (
	models  inference.Shared[*Model]
	engines inference.Shared[*inference.Engine[windowItem, scored]]
)

// loads counts the models that this process loaded.
var loads atomic.Int64

// LoadModel is the model of ModelURI on Device, with the head of LabelSet alone,
// loaded once a process. A load that failed is tried again by the next call. Where
// the model has no such head, the error is model.ErrLabelSet.
func LoadModel(ctx context.Context, opts Options) (*Model, error) {
	device := cmp.Or(opts.Device, backend.CPU)
	key := fmt.Sprintf("%s %t %s %s %s", device, opts.Hybrid, opts.Precision, opts.LabelSet, opts.ModelURI)
	return models.Get(ctx, key, func(ctx context.Context) (*Model, error) {
		begin := time.Now()
		loads.Add(1)
		w, err := opts.loadWeights(ctx)
		if err != nil {
			return nil, err
		}
		head, err := w.Head(opts.LabelSet)
		if err != nil {
			return nil, err
		}
		m := &Model{Config: &w.Config, Hash: w.Hash(), key: key, classes: head.Config.Classes, bytes: int64(len(w.Table))}
		if m.scorer, m.Reason, err = backend.New(ctx, opts.backend(ctx), head); err != nil {
			return nil, err
		}
		if m.Reason != "" {
			logf(ctx, opts.Verbosity, 1, "%s", m.Reason)
		}
		m.Device = "cpu, " + kernel.Precision() + ", " + kernel.ISA()
		if on, ok := m.scorer.(interface {
			fmt.Stringer
			Devices() []gpuinit.Device
		}); ok {
			m.gpu, m.Device, m.gpus = true, on.String(), newGPUWatch(on.Devices())
		}
		m.loading = time.Since(begin)
		logf(ctx, opts.Verbosity, 2, "model %.12s of %s on %s, loaded in %v", m.Hash, opts.modelName(), m.Device, m.loading.Round(time.Millisecond))
		return m, nil
	})
}

// backend are the options of the device.
func (o *Options) backend(ctx context.Context) backend.Options {
	return backend.Options{
		Device:    cmp.Or(o.Device, backend.CPU),
		Memory:    o.GPUMemory,
		Precision: o.Precision,
		Hybrid:    o.Hybrid,
		Timeout:   o.GPUTimeout,
		GPU: gpuinit.Options{WorkersPerGPU: o.WorkersPerGPU, Devices: o.GPUs, Log: func(level int, format string, args ...any) {
			switch {
			case level > o.Verbosity:
			case level == 1:
				log.Warnf(ctx, "linnet: "+format, args...)
			default:
				log.Infof(ctx, "linnet: "+format, args...)
			}
		}},
	}
}

func (o *Options) modelName() string {
	if o.ModelURI == "" {
		return "the program"
	}
	return string(o.ModelURI)
}

func (o *Options) loadWeights(ctx context.Context) (*model.Weights, error) {
	if o.ModelURI == "" {
		return bundled.Weights()
	}
	fsys, err := store.Sub(ctx, string(o.ModelURI))
	if err != nil {
		return nil, fmt.Errorf("--model_uri: no model there: %w; name a folder as train writes it", err)
	}
	w, err := model.Load(fsys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ModelURI, err)
	}
	return w, nil
}

// engine batches windows for the model.
func (m *Model) engine(ctx context.Context, o *Options) (*inference.Engine[windowItem, scored], error) {
	size, lines, whole, spread, lanes := o.PredictionBatchSize, int64(batchLines), int64(deferredLines), int64(model.LongWindow), 0
	if size <= 0 {
		size = m.Config.WindowsPerBatch()
		if m.gpu {
			size *= 8
		}
	}
	if m.gpu {
		lines, whole, spread = 4*batchLines, 0, 0
		// The cores' number, too, for the CPU when the GPUs are lost.
		lanes = max((backend.Lanes+1)*len(m.gpus.devices), runtime.GOMAXPROCS(0))
		if o.Hybrid {
			lanes = (backend.Lanes+1)*len(m.gpus.devices) + runtime.GOMAXPROCS(0)
		}
	}
	inFlight := o.inPredict(m.deferred(o))
	key := fmt.Sprintf("%d %d %s", size, inFlight, m.key)
	return engines.Get(ctx, key, func(context.Context) (*inference.Engine[windowItem, scored], error) {
		return inference.NewEngine(scorerHandler{m, o.Verbosity}, inference.Options{
			MaxBatchSize:   size,
			MaxBatchWeight: lines,
			WholeWeight:    whole,
			BucketWeights:  []int64{32, 64, 128, 256, 512, 1024},
			SpreadWeight:   spread,
			Concurrency:    lanes,
			Waits:          m.gpu,
			MaxInFlight:    inFlight,
			ModelBytes:     m.bytes,
			LoadTime:       m.loading,
		}), nil
	})
}

// batchLines bounds a batch of more than one document. Matrix tiles want many windows
// at once; still larger batches are no faster on a processor, and leave cores without
// work where few documents are in flight. A GPU takes four times that.
const batchLines = 16 << 10

// windowItem is one window of a document.
type windowItem struct {
	source *source
	window model.ContextWindow
}

// source is where the features of a document's windows come from: they are there,
// or there is a Survey, or neither, and they are made when they are needed.
type source struct {
	features *model.Batch
	survey   *feature.Survey

	text      []byte
	rows      []yedda.Line
	inputSize int
	windows   int // of the document
	once      sync.Once
}

// newSource is that of e, which has so many windows. It does not hold e.
func newSource(e *Example, windows int) *source {
	return &source{features: e.Features, survey: e.Survey, text: e.Text, rows: e.Rows, inputSize: e.InputSize, windows: windows}
}

// batch is the features of windows, one of them where there is a Survey; what is
// made for this batch alone is in memory.
func (s *source) batch(windows []model.ContextWindow, memory *model.Batch) *model.Batch {
	switch {
	case s.survey != nil:
		s.survey.ExtractTo(memory, windows[0].First, windows[0].Len)
		windows = []model.ContextWindow{{Len: windows[0].Len}}
	case len(windows) == s.windows && s.features == nil: // nobody else makes them
		feature.ExtractTo(memory, s.text, s.rows, s.inputSize, 1)
	default: // several batches may have a part of it
		s.once.Do(func() {
			if s.features == nil {
				s.features = feature.Extract(s.text, s.rows, s.inputSize, workers(len(s.rows)))
			}
		})
		shared := *s.features
		memory = &shared
	}
	memory.Windows = windows
	return memory
}

// scored are a window's probabilities, [window.Len, K], and where they come
// from.
type scored struct {
	probs []float32
	onGPU bool
}

// scorerHandler scores batches of windows. It implements inference.Handler.
type scorerHandler struct {
	model     *Model
	verbosity int
}

// maxIDs is how many ids a document may have for its memory to be used again: more
// than any ordinary one of deferredLines has.
const maxIDs = 128 << 15

// scoring is the memory of one batch.
type scoring struct {
	windows  []model.ContextWindow
	features model.Batch    // of one document after the other
	batches  []*model.Batch // or of all
	probs    []float32
}

// featuring is the time that this process made features while it scored, in ns,
// and scoringTime that of its batches without.
var featuring, scoringTime atomic.Int64

var scorings = sync.Pool{New: func() any { return new(scoring) }}

func (h scorerHandler) Run(ctx context.Context, items []windowItem) ([]scored, error) {
	s := scorings.Get().(*scoring)
	defer scorings.Put(s)
	k, steps := len(h.model.classes), 0
	for _, it := range items {
		steps += it.window.Len
	}
	if cap(s.probs) < steps*k {
		s.probs = make([]float32, steps*k)
	}
	probs := s.probs[:steps*k]
	begin, features := time.Now(), time.Duration(0)
	onGPU, err := s.score(ctx, h.model, items, probs, &features)
	if cap(s.features.IDs) > maxIDs {
		s.features = model.Batch{}
	}
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	featuring.Add(int64(features))
	scoringTime.Add(int64(took - features))
	logf(ctx, h.verbosity, 3, "batch of %s, %s in %v", english.Plural(len(items), "window", ""), english.Plural(steps, "line", ""), took.Round(time.Microsecond))
	outs := make([]scored, len(items))
	for i, it := range items {
		n := it.window.Len * k
		outs[i] = scored{slices.Clone(probs[:n]), onGPU}
		probs = probs[n:]
	}
	return outs, nil
}

// score scores the items, and says whether a GPU did, and how long it took to make
// features.
func (s *scoring) score(ctx context.Context, m *Model, items []windowItem, probs []float32, features *time.Duration) (onGPU bool, err error) {
	s.windows = s.windows[:0]
	for _, it := range items {
		s.windows = append(s.windows, it.window)
	}
	if stream, ok := m.scorer.(model.StreamScorer); ok {
		own := func() *model.Batch { return &s.features }
		return m.gpu, stream.ScoreSeq(ctx, s.each(items, own, features), probs)
	}
	s.batches = slices.AppendSeq(s.batches[:0], s.each(items, func() *model.Batch { return new(model.Batch) }, features))
	defer clear(s.batches) // or the pool would keep the documents
	if either, ok := m.scorer.(interface {
		ScoreOn(context.Context, []*model.Batch, []float32) (bool, error)
	}); ok {
		return either.ScoreOn(ctx, s.batches, probs)
	}
	return m.gpu, m.scorer.ScoreAll(ctx, s.batches, probs)
}

// each makes the features of the items, those of one document together, in memory,
// and adds the time to took.
func (s *scoring) each(items []windowItem, memory func() *model.Batch, took *time.Duration) iter.Seq[*model.Batch] {
	return func(yield func(*model.Batch) bool) {
		for first, end := 0, 0; first < len(items); first = end {
			src := items[first].source
			for end = first + 1; src.survey == nil && end < len(items) && items[end].source == src; {
				end++
			}
			begin := time.Now()
			b := src.batch(s.windows[first:end], memory())
			*took += time.Since(begin)
			if !yield(b) {
				return
			}
		}
	}
}

func (h scorerHandler) Weight(it windowItem) int64 { return int64(it.window.Len) }

func (h scorerHandler) Close() error { return h.model.scorer.Close() }

func init() { beam.RegisterDoFn(&predictFn{}) }
