package train

import (
	"math"

	"github.com/linnet-ml/linnet/model/kernel"
)

// AdamW (Loshchilov and Hutter 2019) in float32: decay is decoupled from the gradient.
// Rows of the table are updated lazily: their moments and weights move in the steps that
// use them only. cuda/train.cu has update, with both β, once more, testdata/steps.py all.
const (
	beta1, beta2 = 0.9, 0.999
	epsilon      = 1e-8
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

// rate is what the update of a step needs beside the moments.
type rate struct {
	clip       float32 // factor of the gradient
	step       float32 // learning rate / (1 − β1^t)
	correction float32 // 1 / (1 − β2^t)
	decay      float32 // learning rate · weight decay
}

func newRate(learningRate, weightDecay, norm float64, step int) rate {
	t := float64(step + 1)
	r := rate{clip: 1,
		step:       float32(learningRate / (1 - math.Pow(beta1, t))),
		correction: float32(1 / (1 - math.Pow(beta2, t))),
		decay:      float32(learningRate * weightDecay),
	}
	if norm > clipNorm {
		r.clip = float32(clipNorm / norm)
	}
	return r
}

// update moves weights w by gradient g; m and v are the moments.
func (r *rate) update(w, g, m, v []float32, decay, epsilon float32) {
	m, v, g = m[:len(w)], v[:len(w)], g[:len(w)]
	for i := range w {
		x := g[i] * r.clip
		m[i] = beta1*m[i] + (1-beta1)*x
		v[i] = beta2*v[i] + (1-beta2)*x*x
		root := float32(math.Sqrt(float64(v[i] * r.correction)))
		w[i] -= r.step*m[i]/(root+epsilon) + decay*w[i]
	}
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

func (t *tablePart) update(r *rate, d int, table, m, v []float32) {
	for i, id := range t.ids {
		at := int(id) * d
		r.update(table[at:at+d], t.grad[i*d:(i+1)*d], m[at:], v[at:], 0, tableEpsilon)
	}
}
