package cpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/linnet-ml/linnet/model"
)

// window is a model.ContextWindow: its first row in scratch.x or scratch.words, its
// length, and its first row in probs.
type window struct{ first, len, out int }

// lineRun is lines [first, first+len) of a batch, whose vectors begin at row at of
// scratch.x or scratch.words.
type lineRun struct {
	batch          *model.Batch
	first, len, at int
}

// scratch is the memory of one Score call.
type scratch struct {
	order         []window  // from the longest
	runs          []lineRun // what the windows of a Batch hold
	lines         int       // of all runs together
	steps         int       // of all windows together
	x, lineLogits []float32 // [lines, D] and [lines, row], see embed
	words         []uint32  // instead of x: as joined matrices take it
	layout        []float32 // [embedLines, layout] standardised
	xBlock        []float32 // [embedLines, D] x of the lines in hand

	inAt   [maxGroup]int
	active [chunkRows]int // windows of each step of a chunk
	gather []float32      // [chunkRows, in] inputs
	rows   []uint32       // instead of gather: rows of joined matrices, and those behind a chunk
	z      []float32      // [chunkRows, 4H] pre-activations
	cell   []float32      // [maxGroup, H]
	states []float32      // [chunkRows, H]

	stepAt []int        // of a group's steps, the first row of all windows' together
	logits [2][]float32 // [such rows, row] from the states forward and backward

	between struct {
		states [2][]float32 // [steps, 2H] between layers
		words  []uint32     // the same as joined matrices take it
	}
}

// allocate makes, once, what depends on the Scorer alone.
func (m *scratch) allocate(s *Scorer) {
	if m.layout != nil {
		return
	}
	m.layout = make([]float32, embedLines*s.layout)
	m.xBlock = make([]float32, embedLines*s.d)
	in := s.d
	if len(s.layers) > 1 {
		in = max(in, 2*s.h)
	}
	if joined := s.layers[0].forward.joined; joined != nil {
		stride := max(joined.Stride(), s.layers[len(s.layers)-1].forward.joined.Stride())
		m.rows = make([]uint32, (chunkRows+maxGroup)*stride)
	} else {
		m.gather = make([]float32, chunkRows*in)
	}
	m.z = make([]float32, chunkRows*4*s.h)
	m.cell = make([]float32, maxGroup*s.h)
	m.states = make([]float32, chunkRows*s.h)
}

// layOut makes room for the logits of windows, from the longest, in rows of so many
// numbers, step after step.
func (m *scratch) layOut(windows []window, row int) {
	m.stepAt = m.stepAt[:0]
	rows, active := 0, len(windows)
	for t := range windows[0].len {
		for windows[active-1].len <= t {
			active--
		}
		m.stepAt = append(m.stepAt, rows)
		rows += active
	}
	for d := range m.logits {
		m.logits[d] = grow(m.logits[d], rows*row)
	}
}

// layerStates is buffer i (0 or 1, used in turn) for the states of windows between two
// layers.
func (m *scratch) layerStates(i int, windows []window, h int) []float32 {
	steps := 0
	for _, w := range windows {
		steps += w.len
	}
	states := &m.between.states[i]
	*states = grow(*states, steps*2*h)
	return *states
}

// addBatch finds the runs of lines that the windows of b hold, and makes room for them.
// Empty windows are left out; windows that overlap, and come one after the other in b,
// share their lines.
func (m *scratch) addBatch(s *Scorer, b *model.Batch) error {
	if err := b.Check(s.layout); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	clear(m.runs) // or the pool would keep the Batch before
	m.runs = m.runs[:0]
	first, end := 0, -1 // of the last run
	for _, w := range b.Windows {
		if w.Len == 0 {
			continue
		}
		if w.First < first || w.First > end {
			first, end = w.First, w.First
			m.runs = append(m.runs, lineRun{b, first, 0, m.lines})
		}
		run := &m.runs[len(m.runs)-1]
		if more := w.First + w.Len - end; more > 0 {
			end += more
			run.len += more
			m.lines += more
		}
		m.order = append(m.order, window{run.at + w.First - first, w.Len, m.steps})
		m.steps += w.Len
	}
	for _, r := range m.runs {
		if err := checkIDs(r); err != nil {
			return err
		}
	}
	m.lineLogits = extend(m.lineLogits, m.lines*s.row)
	if joined := s.layers[0].forward.joined; joined != nil {
		m.words = extend(m.words, m.lines*joined.Words())
	} else {
		m.x = extend(m.x, m.lines*s.d)
	}
	return nil
}

// sort checks that probs has room for all windows, and sorts these from the longest;
// those of one length stay in order.
func (m *scratch) sort(s *Scorer, probs []float32) error {
	if len(probs) != m.steps*s.k {
		return fmt.Errorf("cpu: batch: room for %d probabilities; %d steps need %d", len(probs), m.steps, m.steps*s.k)
	}
	slices.SortFunc(m.order, func(a, b window) int {
		return cmp.Or(b.len-a.len, a.out-b.out)
	})
	return nil
}

// reset drops the last batch and all windows, so that the pool keeps neither.
func (m *scratch) reset() {
	clear(m.runs)
	m.order, m.lines, m.steps = m.order[:0], 0, 0
}

// extend is s with n elements, of which the first len(s) stay. Where s has no room it
// moves to at least twice the memory.
func extend[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	return append(make([]T, 0, max(n, 2*cap(s))), s...)[:n]
}

// grow is s with n elements of any value, in new memory where s has no room.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/8)[:n]
	}
	return s[:n]
}

// checkIDs reports groups of r's lines that do not follow each other.
func checkIDs(r lineRun) error {
	ids, before := len(r.batch.IDs), r.batch.FirstID(r.first)
	for i, end := range r.batch.GroupEnd[r.first*model.Groups : (r.first+r.len)*model.Groups] {
		if end < before || int64(end) > int64(ids) {
			return fmt.Errorf("cpu: batch: line %d: a group of ids ends at %d; it must be from %d to %d", r.first+i/model.Groups, end, before, ids)
		}
		before = end
	}
	return nil
}
