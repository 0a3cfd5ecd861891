package cpu

import (
	"context"

	"github.com/linnet-ml/linnet/model/kernel"
)

const (
	// maxGroup is how many windows go through the layers together: enough
	// rows for a product to reach its speed, few enough for their states
	// (4·H bytes each) to stay in the first-level cache.
	maxGroup = 64
	// chunkRows is how many rows (windows × steps) are gathered at once, and
	// multiplied by the input weights where Step does not do that itself: then their
	// pre-activations, 16·H bytes each, are read back from the second-level cache. It
	// is at least maxGroup.
	chunkRows = 256
	// maxLoopLogits is the most logits that a plain loop adds up faster than
	// kernel.Sum.
	maxLoopLogits = 8
	// maxStateBytes bounds the logits of a group of several windows, and the states that
	// go from one layer to the next.
	maxStateBytes = 32 << 20
)

// groupSize is how many of windows, sorted by length from the longest, make the
// next group: those left are divided evenly, and by the memory of their logits and states.
func (s *Scorer) groupSize(windows []window) int {
	groups := (len(windows) + maxGroup - 1) / maxGroup
	n := (len(windows) + groups - 1) / groups
	step := 2 * 4 * s.row // bytes
	if len(s.layers) > 1 {
		step += 2 * 8 * s.h
		if joined := s.layers[1].forward.joined; joined != nil {
			step += 4 * joined.Words()
		}
	}
	room := maxStateBytes / step
	for i, w := range windows[:n] {
		if room -= w.len; room < 0 {
			return max(1, i)
		}
	}
	return n
}

// label computes the probabilities of the lines of windows, sorted by length
// from the longest, at most maxGroup of them.
func (s *Scorer) label(ctx context.Context, mem *scratch, windows []window, probs []float32) error {
	mem.layOut(windows, s.row)
	in := rows{data: mem.x, width: s.d, words: mem.words}
	for i := range windows {
		mem.inAt[i] = windows[i].first
	}
	for l := range s.layers {
		out := rows{width: 2 * s.h}
		last := l == len(s.layers)-1
		if !last {
			out.data = mem.layerStates(l%2, windows, s.h)
		}
		for _, backward := range []bool{false, true} {
			if err := s.run(ctx, mem, windows, l, backward, in, out); err != nil {
				return err
			}
		}
		if !last {
			at := 0
			for i, w := range windows {
				mem.inAt[i] = at
				at += w.len
			}
			in = out
			if next := s.layers[l+1].forward.joined; next != nil {
				mem.between.words = grow(mem.between.words, at*next.Words())
				in.words = mem.between.words
				next.Round(at, in.data, in.width, in.words, next.Words())
			}
		}
	}
	for i, w := range windows {
		s.sumLogits(mem, i, w, probs[w.out*s.k:])
		for _, o := range s.heads {
			kernel.SoftmaxRows(w.len, probs[w.out*s.k+o.first:], s.k, o.classes)
		}
	}
	return nil
}

// sumLogits adds up the logits of w, the i-th window of its group, to sums, [w.len, K].
func (s *Scorer) sumLogits(mem *scratch, i int, w window, sums []float32) {
	k, row := s.k, s.row
	for t, at := range mem.stepAt[:w.len] {
		sum, line := sums[t*k:][:k], mem.lineLogits[(w.first+t)*row:][:k]
		forward := mem.logits[0][(at+i)*row:][:k]
		backward := mem.logits[1][(mem.stepAt[w.len-1-t]+i)*row:][:k]
		if k > maxLoopLogits {
			kernel.Sum(sum, line, forward, backward)
			continue
		}
		for j, v := range line {
			sum[j] = v + forward[j] + backward[j]
		}
	}
}

// rows are what a layer reads or writes, one row of width numbers for each line; joined
// matrices read words instead.
type rows struct {
	data  []float32
	width int
	words []uint32
}

// run computes one direction of layer l over windows. Line i of window w is
// row mem.inAt[w]+i of in. Its states go to out, where the lines of the windows
// follow each other (forward to the first half of a row, backward to the
// second); the last layer's are multiplied by the output's weights to mem.logits
// instead.
//
// Step t is the t-th line of each window for the forward direction, and the
// t-th from its end for the backward one. As the windows are sorted, those that
// have a step t are the first of them: no row is computed that is not needed.
func (s *Scorer) run(ctx context.Context, mem *scratch, windows []window, l int, backward bool, in, out rows) error {
	dir, d := &s.layers[l].forward, 0
	if backward {
		dir, d = &s.layers[l].backward, 1
	}
	h, h4 := s.h, 4*s.h
	width := in.width
	last := l == len(s.layers)-1
	joined, words, stride := dir.joined, 0, 0
	if joined != nil {
		words, stride = joined.Words(), joined.Stride()
	}
	fused := joined == nil && dir.input.InSteps()
	cell := mem.cell[:len(windows)*h]
	clear(cell)

	active := len(windows) // windows that have a step t
	var hPrev []float32    // states of the previous step, [windows, H]; nil in the first
	behind := 0            // row of mem.rows where the previous chunk's last step left its states
	for t := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Gather the inputs of the chunk's steps and project them.
		n, steps := 0, 0
		for ; ; steps++ {
			for active > 0 && windows[active-1].len <= t+steps {
				active--
			}
			if active == 0 || n+active > chunkRows {
				break
			}
			mem.active[steps] = active
			n += active
		}
		if steps == 0 {
			return nil
		}
		if joined != nil {
			for i := range mem.active[0] {
				copy(mem.rows[i*stride:][words:stride], mem.rows[(behind+i)*stride+words:])
			}
			behind = n
			gather(mem, mem.rows, stride, in.words, words, windows, steps, t, backward)
		} else {
			gather(mem, mem.gather, width, in.data, width, windows, steps, t, backward)
			if !fused {
				kernel.GemmBias(n, mem.gather, width, dir.input, dir.bias, mem.z, h4)
			}
		}

		// The recurrence. The chunk's first states may overwrite the previous
		// chunk's, whose product has been computed by then.
		at := 0
		for step := range steps {
			active := mem.active[step]
			z, hNow := mem.z[at*h4:], mem.states[at*h:]
			switch {
			case joined != nil:
				joined.Step(active, mem.rows[at*stride:], t+step > 0, dir.bias, mem.z, cell, hNow, mem.rows[(at+active)*stride:])
			case fused:
				kernel.Step(active, mem.gather[at*width:], width, dir.input, hPrev, dir.recurrent, dir.bias, mem.z, cell, hNow, h)
			default:
				if hPrev != nil {
					kernel.Gemm(active, hPrev, h, dir.recurrent, z, h4, true)
				}
				kernel.GatesRows(active, z, h4, cell, h, hNow, h, h)
			}
			hPrev = hNow
			if last {
				for _, o := range s.heads {
					if o.joined {
						joined.Output(active, mem.rows[(at+active)*stride:], o.output[d], mem.logits[d][mem.stepAt[t+step]*s.row+o.first:], s.row)
					}
				}
			}
			at += active
		}
		if last {
			for _, o := range s.heads {
				if !o.joined {
					kernel.Gemm(n, mem.states, h, o.output[d], mem.logits[d][mem.stepAt[t]*s.row+o.first:], s.row, false)
				}
			}
		} else {
			scatter(mem, out.data[d*h:], out.width, h, windows, steps, t, backward)
		}
		t += steps
	}
}

// gather copies the inputs of so many steps from t on to dst, step after step, in rows
// ldd apart.
func gather[T float32 | uint32](mem *scratch, dst []T, ldd int, src []T, width int, windows []window, steps, t int, backward bool) {
	// Window by window, whose lines follow each other in memory.
	for i := range mem.active[0] {
		line, next := lineOf(windows[i], t, backward)
		to := i
		for _, active := range mem.active[:steps] {
			if i >= active {
				break
			}
			copy(dst[to*ldd:][:width], src[(mem.inAt[i]+line)*width:])
			to += active
			line += next
		}
	}
}

// scatter copies the states of so many steps from t on, [rows, h], from where gather has
// their inputs to dst, where the lines of the windows follow each other, in rows ldd apart.
func scatter(mem *scratch, dst []float32, ldd, h int, windows []window, steps, t int, backward bool) {
	start := 0
	for i := range mem.active[0] {
		line, next := lineOf(windows[i], t, backward)
		from := i
		for _, active := range mem.active[:steps] {
			if i >= active {
				break
			}
			copy(dst[(start+line)*ldd:][:h], mem.states[from*h:])
			from += active
			line += next
		}
		start += windows[i].len
	}
}

// lineOf is the line of w that step t is at, and how far from there the next one's is.
func lineOf(w window, t int, backward bool) (line, next int) {
	if backward {
		return w.len - 1 - t, -1
	}
	return t, 1
}
