package train

import (
	"math"
	"slices"

	"gorgonia.org/tensor"
)

// The fused ops of the network. N is T·B rows, time-major: row t·B+b is step t
// of window b.

// lineOp is x = tanh(sum + layout·W + b).
//
//	inputs: sum [N, D], W [L, D], b [D]; layout [N, L]
//	output: x [N, D]
func lineOp[T number](a arithmetic[T], n, l, d int, w *matrix[T]) *fused[T] {
	o := newFused[T]("line", tensor.Shape{n, d}, 3,
		tensor.Shape{n, d}, tensor.Shape{l, d}, tensor.Shape{d}, tensor.Shape{n, l})
	o.forward = func(out []T, in [][]T) {
		sum, b, layout := in[0], in[2], in[3]
		w.is(in[1])
		for r := range n {
			row, s := out[r*d:(r+1)*d], sum[r*d:(r+1)*d]
			for j := range row {
				row[j] = s[j] + b[j]
			}
		}
		if l > 0 {
			w.mul.mul(n, layout, l, out, d, true)
		}
		a.tanh(out)
	}
	o.backward = func(grads [][]T, out, dout []T, in [][]T) {
		dz := grads[0]
		for i, y := range out {
			dz[i] = dout[i] * (1 - y*y)
		}
		a.mulTN(l, d, n, in[3], l, dz, d, grads[1], d)
		sumColumns(grads[2], dz)
	}
	return o
}

// sumColumns is dst[j] = Σ_r m[r, j].
func sumColumns[T number](dst, m []T) {
	clear(dst)
	for n := len(dst); len(m) >= n; m = m[n:] {
		for j, v := range m[:n] {
			dst[j] += v
		}
	}
}

// maskOp is x∘mask: dropout, with the masks made outside the graph so that
// they come from the run's seed.
//
//	inputs: x [N, D]; mask [N, D]
//	output: [N, D]
func maskOp[T number](n, d int) *fused[T] {
	s := tensor.Shape{n, d}
	o := newFused[T]("mask", s, 1, s, s)
	product := func(dst, x, mask []T) {
		for i, m := range mask {
			dst[i] = x[i] * m
		}
	}
	o.forward = func(out []T, in [][]T) { product(out, in[0], in[1]) }
	o.backward = func(grads [][]T, _, dout []T, in [][]T) { product(grads[0], dout, in[1]) }
	return o
}

// layerOp is one bidirectional LSTM layer over whole windows (model.Layer).
// Padding rows (live[row] = 0) have state zero, so that each direction
// begins at an end of its window, and get no gradient.
//
//	inputs: x [N, In], then of each direction InputWeights [In, 4H],
//	        RecurrentWeights [H, 4H], Bias [4H]; live [N]
//	output: states [N, 2H], forward and backward
func layerOp[T number](a arithmetic[T], steps, windows, size, hidden int, w *layer[T]) *fused[T] {
	n, h, h4 := steps*windows, hidden, 4*hidden
	wx, wh, b := tensor.Shape{size, h4}, tensor.Shape{h, h4}, tensor.Shape{h4}
	o := newFused[T]("lstm", tensor.Shape{n, 2 * h}, 7,
		tensor.Shape{n, size}, wx, wh, b, wx, wh, b, tensor.Shape{n})

	var z, c, tanhC [2][]T // activations, cells and their tanh, of each direction
	for k := range 2 {
		z[k], c[k], tanhC[k] = make([]T, n*h4), make([]T, n*h), make([]T, n*h)
	}
	zero := make([]T, h)
	dh, dc := make([]T, windows*h), make([]T, windows*h)

	// step is where step s of direction k stands, and the one before it
	// (-1: none).
	step := func(k, s int) (at, before int) {
		if k == 0 {
			return s, s - 1
		}
		if s == 0 {
			return steps - 1, -1
		}
		return steps - 1 - s, steps - s
	}

	o.forward = func(out []T, in [][]T) {
		x, live := in[0], in[7]
		for k := range 2 {
			d := &w.directions[k]
			d.input.is(in[1+3*k])
			d.recurrent.is(in[2+3*k])
			bias := in[3+3*k]
			for r := range n {
				copy(z[k][r*h4:], bias)
			}
			d.input.mul.mul(n, x, size, z[k], h4, true)
			for s := range steps {
				t, p := step(k, s)
				if p >= 0 {
					d.recurrent.mul.mul(windows, out[p*windows*2*h+k*h:], 2*h, z[k][t*windows*h4:], h4, true)
				}
				for i := range windows {
					r := t*windows + i
					hr, cr := out[r*2*h+k*h:][:h], c[k][r*h:][:h]
					if live[r] == 0 {
						clear(hr)
						clear(cr)
						continue
					}
					cp := zero
					if p >= 0 {
						cp = c[k][(p*windows+i)*h:][:h]
					}
					a.gates(z[k][r*h4:][:h4], cp, cr, tanhC[k][r*h:][:h], hr)
				}
			}
		}
	}
	o.backward = func(grads [][]T, out, dout []T, in [][]T) {
		x, live := in[0], in[7]
		for k := range 2 {
			d := &w.directions[k]
			dz := z[k] // the activations are read for the last time
			clear(dh)
			clear(dc)
			for s := steps - 1; s >= 0; s-- {
				t, p := step(k, s)
				for i := range windows {
					r := t*windows + i
					row := dz[r*h4:][:h4]
					if live[r] == 0 {
						clear(row) // padding stands at the end: dc is 0 or read no more
						continue
					}
					dhr := dh[i*h:][:h]
					for j, g := range dout[r*2*h+k*h:][:h] {
						dhr[j] += g
					}
					cp := zero
					if p >= 0 {
						cp = c[k][(p*windows+i)*h:][:h]
					}
					a.gatesBackward(row, cp, tanhC[k][r*h:][:h], dhr, dc[i*h:][:h], row)
				}
				if p >= 0 {
					d.recurrent.mulT.mul(windows, dz[t*windows*h4:], h4, dh, h, false)
				}
			}
			a.mulTN(size, h4, n, x, size, dz, h4, grads[1+3*k], h4)
			// Row r of the states stands with row r±windows of dz.
			states, after := out[k*h:], dz[windows*h4:]
			if k == 1 {
				states, after = out[min(windows, n-1)*2*h+k*h:], dz
			}
			a.mulTN(h, h4, n-windows, states, 2*h, after, h4, grads[2+3*k], h4)
			sumColumns(grads[3+3*k], dz)
			d.input.mulT.mul(n, dz, h4, grads[0], size, k == 1)
		}
	}
	return o
}

// headsOp is logits = states·W1 + x·W2 + b.
//
//	inputs: states [N, S], x [N, D], W1 [S, K], W2 [D, K], b [K]
//	output: logits [N, K]
func headsOp[T number](a arithmetic[T], n, s, d, k int, w1, w2 *matrix[T]) *fused[T] {
	o := newFused[T]("heads", tensor.Shape{n, k}, 5,
		tensor.Shape{n, s}, tensor.Shape{n, d}, tensor.Shape{s, k}, tensor.Shape{d, k}, tensor.Shape{k})
	o.forward = func(out []T, in [][]T) {
		w1.is(in[2])
		w2.is(in[3])
		for r := range n {
			copy(out[r*k:], in[4])
		}
		w1.mul.mul(n, in[0], s, out, k, true)
		w2.mul.mul(n, in[1], d, out, k, true)
	}
	o.backward = func(grads [][]T, _, dout []T, in [][]T) {
		w1.mulT.mul(n, dout, k, grads[0], s, false)
		w2.mulT.mul(n, dout, k, grads[1], d, false)
		a.mulTN(s, k, n, in[0], s, dout, k, grads[2], k)
		a.mulTN(d, k, n, in[1], d, dout, k, grads[3], k)
		sumColumns(grads[4], dout)
	}
	return o
}

// lossOp is Σ_{row, head} weight·loss(softmax of the head's logits, target).
// loss is the cross-entropy −log p of the target's probability p, or, of the
// columns in focal, the focal loss −(1−p)²·log p (Lin et al. 2017).
//
//	inputs: logits [N, K]; target [N, heads], a column of its head; weight
//	        [N, heads], 0 where the row has no target
//	output: one number
//
// right is set to the rows whose most probable class of the first head is the
// target. With taught there is one more input, taught [N, K], and the loss is
// the cross-entropy −Σ q·log p of its probabilities q instead.
func lossOp[T number](n int, heads []int, focal []bool, taught bool, right *int) *fused[T] {
	k := len(focal)
	inputs := []tensor.Shape{{n, k}, {n, len(heads)}, {n, len(heads)}}
	if taught {
		inputs = append(inputs, tensor.Shape{n, k})
	}
	o := newFused[T]("loss", nil, 1, inputs...)
	dlogits := make([]T, n*k)
	p := make([]float64, k)
	o.forward = func(out []T, in [][]T) {
		logits, target, weight := in[0], in[1], in[2]
		clear(dlogits)
		*right = 0
		var sum float64
		for r := range n {
			first := 0
			for j, classes := range heads {
				w := float64(weight[r*len(heads)+j])
				if w != 0 {
					at := r*k + first
					y := int(target[r*len(heads)+j])
					loss, slope := crossEntropy(p[:classes], logits[at:at+classes], y, focal[first+y])
					if j == 0 && p[y] == slices.Max(p[:classes]) {
						*right++
					}
					if taught {
						loss, slope = 0, 1
						for c, q := range in[3][at : at+classes] {
							loss -= float64(q) * math.Log(max(p[c], tiny))
							p[c] -= float64(q)
						}
					} else {
						p[y]--
					}
					sum += w * loss
					for c, difference := range p[:classes] {
						dlogits[at+c] = T(w * slope * difference)
					}
				}
				first += classes
			}
		}
		out[0] = T(sum)
	}
	o.backward = func(grads [][]T, _, dout []T, _ [][]T) {
		for i, g := range dlogits {
			grads[0][i] = g * dout[0]
		}
	}
	return o
}

// tiny is the least probability whose logarithm is taken.
const tiny = 1e-30

// crossEntropy writes softmax(logits) to p and returns the loss of target y;
// its gradient with respect to the logits is slope·(p − [y]).
func crossEntropy[T number](p []float64, logits []T, y int, focal bool) (loss, slope float64) {
	m := math.Inf(-1)
	for _, v := range logits {
		m = max(m, float64(v))
	}
	var sum float64
	for c, v := range logits {
		p[c] = math.Exp(float64(v) - m)
		sum += p[c]
	}
	for c := range p {
		p[c] /= sum
	}
	logp := float64(logits[y]) - m - math.Log(sum)
	if !focal {
		return -logp, 1
	}
	q := 1 - p[y]
	return -q * q * logp, q*q - 2*p[y]*q*logp
}
