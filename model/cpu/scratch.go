package cpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/linnet-ml/linnet/model"
)

// window is a model.ContextWindow and the first of its rows in probs.
type window struct{ first, len, out int }

// scratch is the memory of one Score call.
type scratch struct {
	order []window // from the longest
	x     []float32

	layout []float32 // [embedLines, layout] standardised

	inAt   [maxGroup]int
	active [chunkRows]int // windows of each step of a chunk
	gather []float32      // [chunkRows, in] inputs
	z      []float32      // [chunkRows, 4H] pre-activations
	cell   []float32      // [maxGroup, H]
	logits []float32      // [chunkRows, K]
	states []float32      // [chunkRows, H]

	between [2][]float32 // [steps, 2H] states between layers
}

// fit makes room for b. What depends on the Scorer alone is made once.
func (m *scratch) fit(s *Scorer, b *model.Batch) {
	m.x = grow(m.x, b.NumLines()*s.d)
	if m.layout != nil {
		return
	}
	m.layout = make([]float32, embedLines*s.layout)
	in := s.d
	if len(s.layers) > 1 {
		in = max(in, 2*s.h)
	}
	m.gather = make([]float32, chunkRows*in)
	m.z = make([]float32, chunkRows*4*s.h)
	m.cell = make([]float32, maxGroup*s.h)
	m.states = make([]float32, chunkRows*s.h)
	m.logits = make([]float32, chunkRows*s.k)
}

// fitStates is memory number i for the states of windows.
func (m *scratch) fitStates(i int, windows []window, h int) []float32 {
	steps := 0
	for _, w := range windows {
		steps += w.len
	}
	m.between[i] = grow(m.between[i], steps*2*h)
	return m.between[i]
}

// sortWindows makes m.order of windows, from the longest; those of one length
// stay in order, empty ones stay out.
func (m *scratch) sortWindows(windows []model.ContextWindow) {
	m.order = m.order[:0]
	out := 0
	for _, w := range windows {
		if w.Len > 0 {
			m.order = append(m.order, window{w.First, w.Len, out})
			out += w.Len
		}
	}
	slices.SortFunc(m.order, func(a, b window) int {
		return cmp.Or(b.len-a.len, a.out-b.out)
	})
}

// grow is s with n elements of any value, in new memory where s has no room.
func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n+n/8)[:n]
	}
	return s[:n]
}

// check reports a batch that is not of this model's sizes.
func (s *Scorer) check(b *model.Batch, probs []float32) error {
	lines := b.NumLines()
	if len(b.GroupEnd)%model.Groups != 0 || len(b.GroupScale) != len(b.GroupEnd) {
		return fmt.Errorf("cpu: batch: %d ends and %d scales of groups; there must be %d of each a line",
			len(b.GroupEnd), len(b.GroupScale), model.Groups)
	}
	if len(b.Layout) != lines*s.layout {
		return fmt.Errorf("cpu: batch: %d layout numbers for %d lines; the model has %d a line: make the features of its version",
			len(b.Layout), lines, s.layout)
	}
	var before uint32
	for i, end := range b.GroupEnd {
		if end < before || int64(end) > int64(len(b.IDs)) {
			return fmt.Errorf("cpu: batch: line %d: a group of ids ends at %d; it must be from %d to %d", i/model.Groups, end, before, len(b.IDs))
		}
		before = end
	}
	steps := 0
	for i, w := range b.Windows {
		if w.First < 0 || w.Len < 0 || w.First > lines || w.Len > lines-w.First {
			return fmt.Errorf("cpu: batch: window %d: lines %d to %d of %d; it must lie among them", i, w.First, w.First+w.Len, lines)
		}
		steps += w.Len
	}
	if len(probs) != steps*s.k {
		return fmt.Errorf("cpu: batch: room for %d probabilities; %d steps need %d", len(probs), steps, steps*s.k)
	}
	return nil
}
