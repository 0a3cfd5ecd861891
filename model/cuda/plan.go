//go:build cuda && cgo

package cuda

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/linnet-ml/linnet/model"
)

// plan is a Score call as the device gets it: one piece of memory to copy there,
// and where everything stands; and what comes back. It belongs to a card, is laid by
// the caller's goroutine and used again.
type plan struct {
	card    *card
	memory  []uint32 // of upload and probs
	locked  []uint32 // page-locked memory of the card's
	upload  []uint32 // ids, ends, scales, layout and windows, one after the other
	ids     int      // of each
	lines   int
	windows []window // from the longest
	steps   int
	active  []int // windows that have step t
	probs   []float32

	runs []lineRun
}

// window is a window as the kernels see it (kernels.cu).
type window struct{ first, out, len int32 }

// lineRun is some lines of a batch, which stand in x from row at on.
type lineRun struct {
	batch          *model.Batch
	first, len, at int
}

// maxSteps bounds a batch so that its rows can be counted in 32 bits; maxWindow
// and maxWindows are what the grids of kernels output and step have room for.
const (
	maxSteps   = math.MaxInt32 / 64
	maxWindow  = maxGrid * outputLines
	maxWindows = maxGrid * stepRows
)

// lay fills p. Windows that overlap and follow each other share their lines.
func (p *plan) lay(s *sizes, rows int, batches []*model.Batch, probs []float32) error {
	defer func() { clear(p.runs) }() // let the batches go
	p.ids, p.lines, p.steps = 0, 0, 0
	p.windows, p.runs, p.active = p.windows[:0], p.runs[:0], p.active[:0]
	for _, b := range batches {
		if err := b.Check(s.layouts); err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		first, end := 0, -1 // of the batch's last run
		for _, w := range b.Windows {
			if w.Len == 0 {
				continue
			}
			if most := min(maxSteps, (math.MaxInt32-linesThreads)/(s.e/4)); w.Len > maxWindow || p.steps+w.Len > most {
				return fmt.Errorf("cuda: batch: more than %d lines in a window or %d in all; set window_size", maxWindow, most)
			}
			if len(p.windows) == maxWindows {
				return fmt.Errorf("cuda: batch: more than %d windows; lower prediction_batch_size", maxWindows)
			}
			if w.First < first || w.First > end {
				first, end = w.First, w.First
				p.runs = append(p.runs, lineRun{b, first, 0, p.lines})
			}
			run := &p.runs[len(p.runs)-1]
			if more := w.First + w.Len - end; more > 0 {
				end += more
				run.len += more
				p.lines += more
			}
			p.windows = append(p.windows, window{int32(run.at + w.First - first), int32(p.steps), int32(w.Len)})
			p.steps += w.Len
		}
	}
	if len(probs) != p.steps*s.k {
		return fmt.Errorf("cuda: batch: room for %d probabilities; %d steps need %d", len(probs), p.steps, p.steps*s.k)
	}
	if p.steps == 0 {
		return nil
	}
	slices.SortFunc(p.windows, func(a, b window) int { return cmp.Or(cmp.Compare(b.len, a.len), cmp.Compare(a.out, b.out)) })
	n := len(p.windows)
	for t := range p.windows[0].len {
		for p.windows[n-1].len <= t {
			n--
		}
		p.active = append(p.active, n)
	}
	return p.fill(s, rows, len(probs))
}

// fill copies what the device needs of the runs' lines. An id must be one of
// the table's rows, as the device would read anywhere. There is room for so many
// probabilities then.
func (p *plan) fill(s *sizes, rows, probs int) error {
	for _, r := range p.runs {
		from, to := r.batch.FirstID(r.first), r.batch.FirstID(r.first+r.len)
		if to < from || int64(to) > int64(len(r.batch.IDs)) {
			return fmt.Errorf("cuda: batch: lines %d to %d: their ids are %d to %d of %d", r.first, r.first+r.len, from, to, len(r.batch.IDs))
		}
		p.ids += int(to - from)
	}
	size := p.ids + (2*model.Groups+s.layouts)*p.lines + 3*len(p.windows)
	if cap(p.memory) < size+probs {
		p.memory = make([]uint32, size+probs)
	}
	p.memory = p.memory[:size+probs]
	u := p.memory[:0]
	for _, r := range p.runs {
		u = append(u, r.batch.IDs[r.batch.FirstID(r.first):r.batch.FirstID(r.first+r.len)]...)
	}
	for _, id := range u {
		if int64(id) >= int64(rows) {
			return fmt.Errorf("cuda: batch: id %d; the table has %d rows", id, rows)
		}
	}
	before := uint32(0)
	for _, r := range p.runs {
		shift := before - r.batch.FirstID(r.first) // wraps around, as does the sum below
		for i, end := range r.batch.GroupEnd[r.first*model.Groups : (r.first+r.len)*model.Groups] {
			if end+shift < before || int64(end+shift) > int64(p.ids) {
				return fmt.Errorf("cuda: batch: line %d: a group of ids ends at %d, before it begins", r.first+i/model.Groups, end)
			}
			before = end + shift
			u = append(u, before)
		}
	}
	for _, r := range p.runs {
		u = append(u, words(r.batch.GroupScale[r.first*model.Groups:(r.first+r.len)*model.Groups])...)
	}
	for _, r := range p.runs {
		u = append(u, words(r.batch.Layout[r.first*s.layouts:(r.first+r.len)*s.layouts])...)
	}
	u = append(u, words(p.windows)...)
	p.upload, p.probs = u, floats(p.memory[size:])
	return nil
}

// words is v's own memory; T is made of numbers of 32 bits.
func words[T float32 | window](v []T) []uint32 {
	b := bytesOf(v)
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// floats is v's own memory.
func floats(v []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// memory is where the parts of a batch stand in a slot's memory, in bytes.
type memory struct {
	ends, scale, layout, windows int // behind the ids, all in plan.upload
	x, z, c, probs               int
	states                       [2]int // of a layer and of the one below
	total                        int
}

func (p *plan) parts(s *sizes) (m memory) {
	m.ends = 4 * p.ids
	m.scale = m.ends + 4*model.Groups*p.lines
	m.layout = m.scale + 4*model.Groups*p.lines
	m.windows = m.layout + 4*s.layouts*p.lines
	at := align(m.windows + 12*len(p.windows))
	part := func(bytes int) int {
		from := at
		at = align(at + bytes)
		return from
	}
	m.x = part(p.lines * s.e * s.element)
	rows := p.lines
	if s.layers > 1 {
		rows = max(rows, p.steps)
	}
	m.z = part(rows * s.tiles * tileCols * s.element)
	m.states[0] = part(p.steps * 2 * s.u * s.element)
	if m.states[1] = m.states[0]; s.layers > 1 {
		m.states[1] = part(p.steps * 2 * s.u * s.element)
	}
	if s.residentTiles == 0 {
		m.c = part(2 * len(p.windows) * s.u * 4)
	}
	m.probs = part(p.steps * s.k * 4)
	m.total = at
	return m
}
