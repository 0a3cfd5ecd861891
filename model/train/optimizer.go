package train

import (
	"math"

	"github.com/linnet-ml/linnet/model/kernel"
)

// AdamW (Loshchilov and Hutter 2019) in float32: decay is decoupled from the gradient.
// Rows of the table are updated lazily: their moments and weights move in the steps that
// use them only. cuda/train.cu has update, with both β, once more, testdata/steps.py all.
const (
	epsilon = 1e-8
	// tableEpsilon is that of the rows of the table. Adam steps each weight by
	// about the learning rate, however small its gradient, so that a word of
	// one document is learned by heart as fast as one of all. A number near
	// the gradients of common words keeps their steps and shortens those of
	// rare ones: fewer names are memorised, other volumes are read better.
	tableEpsilon = 1e-4
	clipNorm     = 1 // of the gradient of all parameters
	warmUp       = 100
	lastRate     = 0.02 // of the learning rate
)

// schedule is the share of the learning rate at a step: linear warm-up over
// 100 steps, or a quarter of a shorter training, then a cosine to 2 %.
func schedule(step, steps int) float64 {
	warm := min(warmUp, steps/4)
	if step < warm {
		return float64(step+1) / float64(warm+1)
	}
	x := float64(step-warm) / float64(max(1, steps-warm-1))
	return lastRate + (1-lastRate)*(1+math.Cos(math.Pi*x))/2
}

// newStep is AdamW's step after so many others, of a gradient of that norm.
func newStep(learningRate, weightDecay, norm float64, step int) kernel.AdamW {
	t := float64(step + 1)
	a := kernel.AdamW{
		Clip:       1,
		Step:       float32(learningRate / (1 - math.Pow(kernel.Beta1, t))),
		Correction: float32(1 / (1 - math.Pow(kernel.Beta2, t))),
		Decay:      float32(learningRate * weightDecay),
		Epsilon:    epsilon,
	}
	if norm > clipNorm {
		a.Clip = float32(clipNorm / norm)
	}
	return a
}

// squares is Σ x².
func squares(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
}

// tableParts is into how many parts by id the rows of the table fall; a part
// is worked on by one goroutine. It does not depend on their number, so that
// sums do not either.
const tableParts = 8

// tablePart is the gradient of one part of the table in one step.
type tablePart struct {
	ids  []uint32  // rows with a gradient
	grad []float32 // [len(ids), D]
}

// collect sums the gradient of the rows of part p over the shards in order.
// slot [input_size] is −1 everywhere before and afterwards.
func (t *tablePart) collect(p, d int, shards []*shard, slot []int32) {
	t.ids, t.grad = t.ids[:0], t.grad[:0]
	for _, s := range shards {
		dsum := s.graph.sumGradient()
		for _, u := range s.used[p] {
			at := slot[u.id]
			if at < 0 {
				at = int32(len(t.ids))
				slot[u.id] = at
				t.ids = append(t.ids, u.id)
				t.grad = append(t.grad, dsum[:d]...)
				clear(t.grad[len(t.grad)-d:])
			}
			kernel.AddScaled(t.grad[int(at)*d:][:d], dsum[int(u.row)*d:], u.scale)
		}
	}
	for _, id := range t.ids {
		slot[id] = -1
	}
}

func (t *tablePart) update(a kernel.AdamW, d int, table, m, v []float32) {
	a.Decay, a.Epsilon = 0, tableEpsilon
	for i, id := range t.ids {
		at := int(id) * d
		a.Update(table[at:at+d], t.grad[i*d:(i+1)*d], m[at:], v[at:])
	}
}
