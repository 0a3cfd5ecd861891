// Package cpu scores lines on the processor: the forward pass of model.Weights
// over package kernel.
//
// A Scorer computes on the goroutine that calls Score, so that whoever calls
// decides how many cores are busy, and any number of calls may run at once.
// The probabilities of a window have the same bits whatever else is in its
// batch, on one instruction set (kernel.ISA). In the steady state a call
// allocates nothing: its memory comes from a pool.
package cpu

import (
	"context"
	"iter"
	"sync"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// Scorer implements model.StreamScorer. It shares the table and the biases of the
// Weights it was made from, which must not change while it is used, and holds
// the matrices packed.
type Scorer struct {
	d, h, k, layout int // sizes D, H, K and of the layout

	table         *kernel.Table
	layoutMean    []float32
	layoutInvStd  []float32
	layoutWeights *kernel.Packed // [layout, D]
	layoutBias    []float32

	layers []layer

	heads      []head
	outputBias []float32

	scratch sync.Pool // of *scratch
}

type layer struct{ forward, backward direction }

// head is the output layer of one head. Each has products of its own, so that its
// probabilities have the same bits with and without the other.
type head struct {
	first, classes    int            // columns of K
	forward, backward *kernel.Packed // [H, classes]
	line              *kernel.Packed // [D, classes]
}

// direction has either joined or the two separate matrices.
type direction struct {
	joined    *kernel.Joined
	input     *kernel.Packed // [in, 4H]
	recurrent *kernel.Packed // [H, 4H]
	bias      []float32
}

var _ model.StreamScorer = (*Scorer)(nil)

// New packs w's weights. It refuses weights that are not valid.
func New(w *model.Weights) (*Scorer, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	c := &w.Config
	d, h, k := c.EmbeddingSize, c.HiddenSize, c.NumOutputs()
	s := &Scorer{
		d: d, h: h, k: k, layout: c.LayoutSize,
		table:      kernel.NewTable(w.Table, w.TableScale, d),
		layoutMean: w.LayoutMean, layoutInvStd: w.LayoutInvStd,
		layoutWeights: kernel.Pack(w.LayoutWeights, c.LayoutSize, d, d),
		layoutBias:    w.LayoutBias,
		outputBias:    w.OutputBias,
	}
	first := 0
	for _, n := range []int{len(c.Classes), len(c.FullClasses)} {
		if n == 0 {
			continue
		}
		pack := func(row, rows int) *kernel.Packed { return kernel.Pack(w.OutputWeights[row*k+first:], rows, n, k) }
		s.heads = append(s.heads, head{first, n, pack(0, h), pack(h, h), pack(2*h, d)})
		first += n
	}
	in := d
	pack := func(dir *model.Direction) direction {
		if joined := kernel.Join(dir.InputWeights, in, dir.RecurrentWeights, h); joined != nil {
			return direction{joined: joined, bias: dir.Bias}
		}
		input, recurrent := kernel.PackTwo(dir.InputWeights, in, dir.RecurrentWeights, h, 4*h, 4*h)
		return direction{input: input, recurrent: recurrent, bias: dir.Bias}
	}
	for i := range w.Layers {
		s.layers = append(s.layers, layer{pack(&w.Layers[i].Forward), pack(&w.Layers[i].Backward)})
		in = 2 * h
	}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// Close frees nothing: the memory is the garbage collector's.
func (s *Scorer) Close() error { return nil }

// Score implements model.Scorer. It looks at ctx every few hundred lines and
// returns its error, in which case probs is half written. Its memory is
// 4·(D+K) bytes for each line that a window holds, 2·D+4·K or D+4·K where products are
// of 16- or 8-bit integers, 24 bytes for each window, at
// most maxStateBytes between layers (none for one layer) and some hundred kB. An
// id outside the table panics.
func (s *Scorer) Score(ctx context.Context, b *model.Batch, probs []float32) error {
	return s.ScoreAll(ctx, []*model.Batch{b}, probs)
}

// ScoreAll implements model.MultiScorer, as Score does model.Scorer.
func (s *Scorer) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	mem := s.begin()
	defer s.end(mem)
	for _, b := range batches {
		if err := s.embedBatch(ctx, mem, b); err != nil {
			return err
		}
	}
	return s.finish(ctx, mem, probs)
}

// ScoreSeq implements model.StreamScorer, as ScoreAll does model.MultiScorer. A
// sequence costs three allocations a call, which ScoreAll's own loop does without.
func (s *Scorer) ScoreSeq(ctx context.Context, batches iter.Seq[*model.Batch], probs []float32) error {
	mem := s.begin()
	defer s.end(mem)
	for b := range batches {
		if err := s.embedBatch(ctx, mem, b); err != nil {
			return err
		}
	}
	return s.finish(ctx, mem, probs)
}

// begin is the memory of a call, for embedBatch of each Batch, then finish and end.
func (s *Scorer) begin() *scratch {
	mem := s.scratch.Get().(*scratch)
	mem.allocate(s)
	return mem
}

func (s *Scorer) end(mem *scratch) {
	mem.reset()
	s.scratch.Put(mem)
}

// embedBatch turns the lines that the windows of b hold into line vectors; b is not
// used after it.
func (s *Scorer) embedBatch(ctx context.Context, mem *scratch, b *model.Batch) error {
	if err := mem.addBatch(s, b); err != nil {
		return err
	}
	for _, r := range mem.runs {
		if err := s.embed(ctx, mem, r); err != nil {
			return err
		}
	}
	return nil
}

// finish computes the probabilities of the windows of all embedded batches.
func (s *Scorer) finish(ctx context.Context, mem *scratch, probs []float32) error {
	if err := mem.sort(s, probs); err != nil {
		return err
	}
	for first := 0; first < len(mem.order); {
		n := s.groupSize(mem.order[first:])
		if err := s.label(ctx, mem, mem.order[first:first+n], probs); err != nil {
			return err
		}
		first += n
	}
	return nil
}
