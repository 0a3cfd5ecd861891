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
	"slices"
	"sync"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// Scorer implements model.StreamScorer. It shares memory with the
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

	heads []head
	row   int // numbers in a row of logits

	scratch sync.Pool // of *scratch
}

type layer struct{ forward, backward direction }

// head is the output layer of one head. Each has products of its own, so that its
// probabilities have the same bits with and without the other. Its logits stand where its
// probabilities do among the K, and what its matrices were padded with behind them, where
// the next head's are written after them.
type head struct {
	first, classes int
	line           *kernel.Packed // [D, classes]
	bias           []float32
	output         [2]*kernel.Packed // [H, classes] of the states forward and backward
	joined         bool              // output takes states as joined matrices have them
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
	}
	in, join := d, sumsAreFinite(w)
	pack := func(dir *model.Direction) direction {
		if join {
			if joined := kernel.Join(dir.InputWeights, in, dir.RecurrentWeights, h); joined != nil {
				return direction{joined: joined, bias: dir.Bias}
			}
		}
		input, recurrent := kernel.PackTwo(dir.InputWeights, in, dir.RecurrentWeights, h, 4*h, 4*h)
		return direction{input: input, recurrent: recurrent, bias: dir.Bias}
	}
	for i := range w.Layers {
		s.layers = append(s.layers, layer{pack(&w.Layers[i].Forward), pack(&w.Layers[i].Backward)})
		in = 2 * h
	}
	first := 0
	for _, n := range []int{len(c.Classes), len(c.FullClasses)} {
		if n > 0 {
			s.heads = append(s.heads, s.newHead(w, first, n))
			first += n
		}
	}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// maxJoined is the largest weight in joined matrices: the sums of up to 3·4,096 of them, of
// rows of integers up to 8,191, stay finite, and so do those of a line's layout and ids.
const maxJoined = 1e30

// sumsAreFinite reports whether no weight is so large that a sum may overflow to a NaN,
// which joined matrices would round to a number.
func sumsAreFinite(w *model.Weights) bool {
	all := [][]float32{w.TableScale, w.LayoutMean, w.LayoutWeights, w.LayoutBias}
	for i := range w.Layers {
		for _, dir := range []*model.Direction{&w.Layers[i].Forward, &w.Layers[i].Backward} {
			all = append(all, dir.InputWeights, dir.RecurrentWeights, dir.Bias)
		}
	}
	for _, x := range all {
		if exceeds(x) {
			return false
		}
	}
	return true
}

// exceeds reports whether a number of x is too large for joined matrices, or for products
// with their states.
func exceeds(x []float32) bool {
	return slices.ContainsFunc(x, func(v float32) bool { return v > maxJoined || v < -maxJoined })
}

func (s *Scorer) newHead(w *model.Weights, first, n int) head {
	rows := func(from int) []float32 { return w.OutputWeights[from*s.k+first:] }
	o := head{first: first, classes: n, line: kernel.PackOutput(rows(2*s.h), s.d, n, s.k)}
	o.bias = make([]float32, o.line.N)
	copy(o.bias, w.OutputBias[first:][:n])
	last, packOutput := s.layers[len(s.layers)-1].forward.joined, kernel.PackOutput
	for row := range 2 * s.h {
		if last != nil && exceeds(rows(row)[:n]) {
			// Not padded: the other head may have its logits from integers already, which
			// padding would be written over.
			last, packOutput = nil, kernel.Pack
		}
	}
	for i := range o.output {
		if last != nil {
			o.output[i] = last.PackOutput(rows(i*s.h), n, s.k)
		}
		o.joined = o.output[i] != nil
		if !o.joined {
			o.output[i] = packOutput(rows(i*s.h), s.h, n, s.k)
		}
		s.row = max(s.row, first+o.output[i].N)
	}
	s.row = max(s.row, first+o.line.N)
	return o
}

// Close frees nothing: the memory is the garbage collector's.
func (s *Scorer) Close() error { return nil }

// Score implements model.Scorer. It looks at ctx every few hundred lines and
// returns its error, in which case probs is half written. Its memory is
// 4·(D+K) bytes for each line that a window holds, 2·D+4·K or D+4·K where products are
// of 16- or 8-bit integers, 128 more where outputs are padded, 24 bytes for each window, at
// most 32 MiB, or what one window takes, for the logits of a group and between
// layers, and some hundred kB. An id outside the table panics.
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
