package transforms

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

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

// maxIDs is how many ids the documents of a batch may have for their memory to be used
// again: more than any ordinary one of deferredLines has.
const maxIDs = 128 << 15

// scoring is the memory of one batch.
type scoring struct {
	windows  []model.ContextWindow
	features []*model.Batch // of one document after the other, or of all
	batches  []*model.Batch
}

// made is memory i for features.
func (s *scoring) made(i int) *model.Batch {
	if i == len(s.features) {
		s.features = append(s.features, new(model.Batch))
	}
	return s.features[i]
}

// trim lets go of what unusual documents took.
func (s *scoring) trim() {
	ids := 0
	for _, b := range s.features {
		if ids += cap(b.IDs); ids > maxIDs {
			*b = model.Batch{}
		}
		b.Windows = nil
	}
}

// featureTime is the time, in ns, that this process spent on features while it scored
// batches, and scoringTime that of the batches without it.
var featureTime, scoringTime atomic.Int64

var scorings = sync.Pool{New: func() any { return new(scoring) }}

func (h scorerHandler) Run(ctx context.Context, items []windowItem) ([]scored, error) {
	s := scorings.Get().(*scoring)
	defer scorings.Put(s)
	k, steps := len(h.model.classes), 0
	for _, it := range items {
		steps += it.window.Len
	}
	probs := make([]float32, steps*k) // documents keep their parts
	begin, features := time.Now(), time.Duration(0)
	onGPU, err := s.score(ctx, h.model, items, probs, &features)
	s.trim()
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	featureTime.Add(int64(features))
	scoringTime.Add(int64(took - features))
	logf(ctx, h.verbosity, 3, "batch of %s, %s in %v", english.Plural(len(items), "window", ""), english.Plural(steps, "line", ""), took.Round(time.Microsecond))
	outs := make([]scored, len(items))
	for i, it := range items {
		n := it.window.Len * k
		outs[i] = scored{probs[:n:n], onGPU}
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
		own := func() *model.Batch { return s.made(0) }
		return m.gpu, stream.ScoreSeq(ctx, s.each(items, own, features), probs)
	}
	n := 0
	next := func() *model.Batch { n++; return s.made(n - 1) }
	s.batches = slices.AppendSeq(s.batches[:0], s.each(items, next, features))
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
