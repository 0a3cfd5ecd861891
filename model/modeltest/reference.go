package modeltest

import (
	"context"
	"math"
	"slices"

	"github.com/linnet-ml/linnet/model"
)

// reference is a model.Scorer written as the formulas are, window by window, in
// float64: slow, and plain enough to be checked by reading.
type reference struct{ w *model.Weights }

// NewReference makes the reference Scorer of valid weights.
func NewReference(w *model.Weights) (model.Scorer, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	return &reference{w}, nil
}

// Close does nothing.
func (r *reference) Close() error { return nil }

// Score implements model.Scorer.
func (r *reference) Score(ctx context.Context, b *model.Batch, probs []float32) error {
	for _, window := range b.Windows {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, p := range r.window(b, window) {
			for _, v := range p {
				probs[0] = float32(v)
				probs = probs[1:]
			}
		}
	}
	return nil
}

// window is [Len, K] probabilities.
func (r *reference) window(b *model.Batch, window model.ContextWindow) [][]float64 {
	w, c := r.w, &r.w.Config
	var x [][]float64
	for l := window.First; l < window.First+window.Len; l++ {
		x = append(x, r.line(b, l))
	}
	states := x
	for i := range w.Layers {
		forward := r.lstm(&w.Layers[i].Forward, states)
		backward := reversed(r.lstm(&w.Layers[i].Backward, reversed(states)))
		states = nil
		for t := range x {
			states = append(states, slices.Concat(forward[t], backward[t]))
		}
	}
	var probs [][]float64
	for t := range x {
		logits := product(slices.Concat(states[t], x[t]), w.OutputWeights, w.OutputBias)
		n := len(c.Classes)
		probs = append(probs, append(softmax(logits[:n]), softmax(logits[n:])...))
	}
	return probs
}

// line is x of line l.
func (r *reference) line(b *model.Batch, l int) []float64 {
	w, c := r.w, &r.w.Config
	layout := make([]float64, c.LayoutSize)
	for i := range layout {
		v := (float64(b.Layout[l*c.LayoutSize+i]) - float64(w.LayoutMean[i])) * float64(w.LayoutInvStd[i])
		layout[i] = math.Max(-6, math.Min(6, v))
	}
	x := product(layout, w.LayoutWeights, w.LayoutBias)
	for g := l * model.Groups; g < (l+1)*model.Groups; g++ {
		var first uint32
		if g > 0 {
			first = b.GroupEnd[g-1]
		}
		for _, id := range b.IDs[first:b.GroupEnd[g]] {
			for j := range x {
				x[j] += float64(b.GroupScale[g]) * float64(w.TableScale[id]) * float64(w.Table[int(id)*len(x)+j])
			}
		}
	}
	for j := range x {
		x[j] = math.Tanh(x[j])
	}
	return x
}

// lstm runs one direction over its input, in the order given.
func (r *reference) lstm(dir *model.Direction, input [][]float64) [][]float64 {
	n := len(dir.Bias) / 4
	h, c := make([]float64, n), make([]float64, n)
	var states [][]float64
	for _, in := range input {
		z := product(in, dir.InputWeights, dir.Bias)
		for j, v := range product(h, dir.RecurrentWeights, make([]float32, 4*n)) {
			z[j] += v
		}
		h = make([]float64, n)
		for j := range h {
			i, f, g, o := sigmoid(z[j]), sigmoid(z[n+j]), math.Tanh(z[2*n+j]), sigmoid(z[3*n+j])
			c[j] = f*c[j] + i*g
			h[j] = o * math.Tanh(c[j])
		}
		states = append(states, h)
	}
	return states
}

// product is x·weights + bias; weights is [len(x), len(bias)].
func product(x []float64, weights, bias []float32) []float64 {
	y := make([]float64, len(bias))
	for j := range y {
		y[j] = float64(bias[j])
	}
	for i, v := range x {
		for j, w := range weights[i*len(y):][:len(y)] {
			y[j] += v * float64(w)
		}
	}
	return y
}

func softmax(logits []float64) []float64 {
	p := make([]float64, len(logits))
	sum := 0.0
	for i, v := range logits {
		p[i] = math.Exp(v)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func reversed[T any](x []T) []T {
	y := slices.Clone(x)
	slices.Reverse(y)
	return y
}
