package train

import (
	"slices"

	"github.com/linnet-ml/linnet/model/cuda"
)

// prepared is what a step on GPUs needs of the host: a batch, filled into shards and
// packed. It follows from the batch and the number of the step, not from the
// parameters, so that it is made while the GPUs compute the step before.
type prepared struct {
	batch  []window
	step   int // −1: of none
	shards []*shard
	places []place
	slots  []uint32 // the rows of the table that the batch uses
	fresh  [tableParts]fresh
	most   int       // windows of a part; 0 before pack
	parts  [][]*part // of each GPU
}

// place is where a window of a batch stands: in which shard, at which index.
type place struct{ shard, index, len int }

func newPrepared(t *trainer, steps, shards, windows int) *prepared {
	p := &prepared{step: -1}
	cfg, n := &t.config, steps*windows
	words := func(bits int) []uint32 { return make([]uint32, (bits+31)/32) }
	for range shards {
		heads := len(t.net.heads)
		s := &shard{inputs: &inputs[float32]{steps: steps, windows: windows, layout: make([]float32, n*cfg.LayoutSize), live: make([]float32, n),
			targets: make([]float32, n*heads), weights: make([]float32, n*heads)}}
		s.bitsX, s.uses = words(n*cfg.EmbeddingSize), make([]uint32, n)
		for range t.net.sizes.layers {
			s.bitsH = append(s.bitsH, words(n*2*cfg.HiddenSize))
		}
		p.shards = append(p.shards, s)
	}
	return p
}

// get is what a step needs, prepared ahead or made now.
func (g *gpus) get(t *trainer, batch []window, step int) *prepared {
	g.join()
	g.now, g.ahead = g.ahead, g.now
	if g.now.step != step || !slices.Equal(g.now.batch, batch) {
		g.now.fill(t, batch, step)
	}
	return g.now
}

// prepare begins to make what a step needs.
func (g *gpus) prepare(t *trainer, batch []window, step int) {
	ahead, most, ready := g.ahead, g.most, make(chan struct{})
	g.ready = ready
	go func() {
		defer close(ready)
		ahead.fill(t, batch, step)
		ahead.pack(t, len(g.trainers), most)
	}()
}

// join waits for what prepare began.
func (g *gpus) join() {
	if g.ready != nil {
		<-g.ready
		g.ready = nil
	}
}

// fill fills the shards with a batch.
func (p *prepared) fill(t *trainer, batch []window, step int) {
	p.batch, p.step, p.most = batch, step, 0
	rowWeight, n := t.rowWeights(batch), len(p.shards)
	t.parallel(n, func(i int) { p.shards[i].fill(t, cut(batch, i, n), step, t.worker*n+i, rowWeight) })
	p.places = p.places[:0]
	for i := range n {
		for j, w := range cut(batch, i, n) {
			p.places = append(p.places, place{i, j, w.len})
		}
	}
	p.number(t)
}

// fresh are the rows of one part of the table that a batch uses.
type fresh struct {
	ids    []uint32
	ends   []int    // by shard: where the ids end that it and those before it use
	places []uint32 // slots of the ids
}

// number gives the rows of the table that the batch uses a slot each, by shards and
// parts, lists them, and has the uses name the slot instead. slot [input_size] is −1
// everywhere before and afterwards.
func (p *prepared) number(t *trainer) {
	t.parallel(tableParts, func(k int) {
		f := &p.fresh[k]
		f.ids, f.ends = f.ids[:0], f.ends[:0]
		for _, s := range p.shards {
			for i := range s.used[k] {
				u := &s.used[k][i]
				if t.slot[u.id] < 0 {
					t.slot[u.id] = int32(len(f.ids))
					f.ids = append(f.ids, u.id)
				}
				u.id = uint32(t.slot[u.id])
			}
			f.ends = append(f.ends, len(f.ids))
		}
		for _, id := range f.ids {
			t.slot[id] = -1
		}
		f.places = f.places[:0]
	})
	p.slots = p.slots[:0]
	for i := range p.shards {
		for k := range p.fresh {
			f := &p.fresh[k]
			for _, id := range f.ids[len(f.places):f.ends[i]] {
				f.places = append(f.places, uint32(len(p.slots)))
				p.slots = append(p.slots, id)
			}
		}
	}
	t.parallel(tableParts, func(k int) {
		for _, s := range p.shards {
			for i := range s.used[k] {
				u := &s.used[k][i]
				u.id = p.fresh[k].places[u.id]
			}
		}
	})
}

// pack packs the batch for so many GPUs, in parts of at most so many windows.
func (p *prepared) pack(t *trainer, gpus, most int) {
	if p.most == most {
		return
	}
	p.most = most
	p.parts = slices.Grow(p.parts[:0], gpus)[:gpus]
	for i, parts := range p.parts {
		parts = parts[:0]
		for places := cut(p.places, i, gpus); len(places) > 0; {
			n := min(most, len(places))
			k := len(parts)
			if parts = slices.Grow(parts, 1)[:k+1]; parts[k] == nil {
				parts[k] = &part{}
			}
			parts[k].pack(t, p, places[:n])
			places = places[n:]
		}
		p.parts[i] = parts
	}
}

// accumulate has GPU i compute the gradient of its windows.
func (p *prepared) accumulate(i int, one *cuda.Trainer, scale float32) error {
	if err := one.Begin(p.slots); err != nil {
		return err
	}
	for _, part := range p.parts[i] {
		if err := one.Add(&part.windows, scale); err != nil {
			return err
		}
	}
	return nil
}

// part is some windows of a batch as a GPU takes them, and scratch.
type part struct {
	windows cuda.Windows
	rows    [][]int32  // of each shard, by its row: the row of the part, −1 for none
	next    [][]uint32 // and where its next use goes
	starts  []uint32   // the same of each slot
}

// pack packs the windows of b at places.
func (p *part) pack(t *trainer, b *prepared, places []place) {
	p.makeRoom(t, places)
	total := p.placeRows(b, places)
	p.countUses(t, b, places)
	p.placeUses(t, b, places, total)
}

// makeRoom makes room for what stands in the rows of the windows at places.
func (p *part) makeRoom(t *trainer, places []place) {
	w, cfg := &p.windows, &t.config
	n, steps := len(places), 0
	w.Lens = w.Lens[:0]
	for _, pl := range places {
		steps = max(steps, pl.len)
		w.Lens = append(w.Lens, int32(pl.len))
	}
	rows, d, l, h2, heads := steps*n, cfg.EmbeddingSize, cfg.LayoutSize, 2*cfg.HiddenSize, len(t.net.heads)
	w.Steps, w.Keep = steps, float32(1/(1-cfg.Dropout))
	w.Layout, w.Targets, w.Weights = cleared(w.Layout, rows*l), cleared(w.Targets, rows*heads), cleared(w.Weights, rows*heads)
	w.MaskX = cleared(w.MaskX, (rows*d+31)/32)
	if w.MaskH == nil {
		w.MaskH = make([][]uint32, t.net.sizes.layers)
	}
	for i := range w.MaskH {
		w.MaskH[i] = cleared(w.MaskH[i], (rows*h2+31)/32)
	}
}

// placeRows says where the rows of the windows at places stand and where the uses of
// each begin, and returns the number of all uses.
func (p *part) placeRows(b *prepared, places []place) (total uint32) {
	w, n := &p.windows, len(places)
	if p.rows == nil {
		p.rows, p.next = make([][]int32, len(b.shards)), make([][]uint32, len(b.shards))
	}
	first, last := ends(places)
	for i := first; i <= last; i++ {
		p.rows[i], p.next[i] = sized(p.rows[i], len(b.shards[i].live)), sized(p.next[i], len(b.shards[i].live))
		for j := range p.rows[i] {
			p.rows[i][j] = -1
		}
	}
	w.Ends = sized(w.Ends, w.Steps*n)
	for step := range w.Steps {
		for j, pl := range places {
			if step < pl.len {
				s := b.shards[pl.shard]
				from := step*s.windows + pl.index
				p.rows[pl.shard][from], p.next[pl.shard][from] = int32(step*n+j), total
				total += s.uses[from]
			}
			w.Ends[step*n+j] = total
		}
	}
	return total
}

// countUses counts the uses of each slot, by parts of the table, and says where they
// begin. What stands in rows is copied meanwhile.
func (p *part) countUses(t *trainer, b *prepared, places []place) {
	w := &p.windows
	first, last := ends(places)
	p.starts = cleared(p.starts, len(b.slots))
	t.parallel(1+tableParts, func(k int) {
		if k == 0 { // the longest first
			p.copyRows(t, b, places)
			return
		}
		for i := first; i <= last; i++ {
			for _, u := range b.shards[i].used[k-1] {
				if p.rows[i][u.row] >= 0 {
					p.starts[u.id]++
				}
			}
		}
	})
	w.Slots, w.SlotEnds = w.Slots[:0], w.SlotEnds[:0]
	sum := uint32(0)
	for slot, c := range p.starts {
		p.starts[slot] = sum
		if sum += c; c > 0 {
			w.Slots, w.SlotEnds = append(w.Slots, uint32(slot)), append(w.SlotEnds, sum)
		}
	}
}

// placeUses writes all uses twice: in the order of slots, by parts of the table, and in
// that of rows, by shards.
func (p *part) placeUses(t *trainer, b *prepared, places []place, total uint32) {
	w := &p.windows
	first, last := ends(places)
	w.IDs, w.Scales = sized(w.IDs, int(total)), sized(w.Scales, int(total))
	w.Rows, w.SlotScales = sized(w.Rows, int(total)), sized(w.SlotScales, int(total))
	t.parallel(tableParts+last-first+1, func(k int) {
		if k < tableParts {
			for i := first; i <= last; i++ {
				for _, u := range b.shards[i].used[k] {
					if row := p.rows[i][u.row]; row >= 0 {
						at := &p.starts[u.id]
						w.Rows[*at], w.SlotScales[*at] = uint32(row), u.scale
						*at++
					}
				}
			}
			return
		}
		i := first + k - tableParts
		for _, used := range b.shards[i].used {
			for _, u := range used {
				if p.rows[i][u.row] >= 0 {
					at := &p.next[i][u.row]
					w.IDs[*at], w.Scales[*at] = b.slots[u.id], u.scale
					*at++
				}
			}
		}
	})
}

// ends are the first and the last shard of windows.
func ends(places []place) (first, last int) { return places[0].shard, places[len(places)-1].shard }

// copyRows copies what stands in the rows of the windows at places.
func (p *part) copyRows(t *trainer, b *prepared, places []place) {
	w, cfg := &p.windows, &t.config
	n, d, l, h2, heads := len(places), cfg.EmbeddingSize, cfg.LayoutSize, 2*cfg.HiddenSize, len(t.net.heads)
	for j, pl := range places {
		s := b.shards[pl.shard]
		for step := range pl.len {
			from, to := step*s.windows+pl.index, step*n+j
			copy(w.Layout[to*l:][:l], s.layout[from*l:])
			for k := range heads {
				w.Targets[to*heads+k] = int32(s.targets[from*heads+k])
				w.Weights[to*heads+k] = s.weights[from*heads+k]
			}
			copyBits(w.MaskX, to*d, s.bitsX, from*d, d)
			for i, m := range s.bitsH {
				copyBits(w.MaskH[i], to*h2, m, from*h2, h2)
			}
		}
	}
}

// cut is part i of n of all.
func cut[T any](all []T, i, n int) []T { return all[len(all)*i/n : len(all)*(i+1)/n] }

// sized is s with n elements, whatever they are.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/8) // the next may take a few more
	}
	return s[:n]
}

// cleared is s with n zeros.
func cleared[T any](s []T, n int) []T {
	s = sized(s, n)
	clear(s)
	return s
}

// clearBits clears n bits of words.
func clearBits(words []uint32, at, n int) {
	for end := at + n; at < end; {
		k := min(32-at%32, end-at) // within a word
		words[at/32] &^= (1<<k - 1) << (at % 32)
		at += k
	}
}

// copyBits copies n bits to where none is set.
func copyBits(to []uint32, at int, from []uint32, first, n int) {
	if at%32 == 0 && first%32 == 0 && n%32 == 0 {
		copy(to[at/32:][:n/32], from[first/32:])
		return
	}
	for end := at + n; at < end; {
		k := min(32-at%32, 32-first%32, end-at) // within a word of both
		to[at/32] |= (from[first/32] >> (first % 32)) & (1<<k - 1) << (at % 32)
		at += k
		first += k
	}
}
