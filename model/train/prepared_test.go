package train

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

// What the GPUs are given is what the CPU's shards hold for the same step, window by
// window, however the batch is cut.
func TestPrepared(t *testing.T) {
	cfg := smallConfig()
	cfg.WindowSize, cfg.BatchSize, cfg.NumLayers = 30, 11, 2
	odd := cfg // rows of the masks end within words
	odd.EmbeddingSize, odd.HiddenSize = 5, 7
	words := cfg
	words.EmbeddingSize, words.HiddenSize = 32, 16
	for _, cfg := range []model.Config{cfg, odd, words} {
		t.Run(fmt.Sprintf("%d numbers, %d units", cfg.EmbeddingSize, cfg.HiddenSize), func(t *testing.T) {
			tr := trainerOf(t, Options{Config: cfg, Train: annotated(12, cfg.InputSize, 1)})
			p := newPrepared(tr, tr.longest, len(tr.shards), tr.shards[0].windows)
			for step, batch := range tr.epoch(0) {
				rowWeight, n := tr.rowWeights(batch), len(tr.shards)
				for i, s := range tr.shards {
					s.fill(tr, cut(batch, i, n), step, i, rowWeight)
				}
				p.fill(tr, batch, step)
				for _, cuts := range [][2]int{{1, 1 << 20}, {1, 2}, {2, 1 << 20}, {3, 1}} {
					p.pack(tr, cuts[0], cuts[1])
					places := p.places
					for _, parts := range p.parts {
						for _, part := range parts {
							if k := len(part.windows.Lens); k > cuts[1] || k > len(places) {
								t.Fatalf("a part of %d windows, at most %d, %d are left", k, cuts[1], len(places))
							}
							part.compare(t, tr, p, places[:len(part.windows.Lens)])
							places = places[len(part.windows.Lens):]
						}
					}
					if len(places) > 0 {
						t.Fatalf("%d windows are in no part", len(places))
					}
				}
			}
		})
	}
}

// compare holds a part to the windows of tr's shards at places.
func (p *part) compare(t *testing.T, tr *trainer, b *prepared, places []place) {
	t.Helper()
	w, cfg := &p.windows, &tr.config
	d, l, h2, heads := cfg.EmbeddingSize, cfg.LayoutSize, 2*cfg.HiddenSize, len(tr.net.heads)
	bits := func(words []uint32, at int, mask []float32) bool {
		for i, m := range mask {
			if words[(at+i)/32]>>((at+i)%32)&1 == 1 != (m != 0) {
				return false
			}
		}
		return true
	}
	type bySlot struct {
		slot, row uint32
		scale     float32
	}
	var slots []bySlot // in the order of windows, then of slots
	for j, pl := range places {
		s := tr.shards[pl.shard]
		if int(w.Lens[j]) != pl.len {
			t.Fatalf("window %d has %d lines, want %d", j, w.Lens[j], pl.len)
		}
		for step := range w.Steps {
			from, to := step*s.windows+pl.index, step*len(places)+j
			begin := uint32(0)
			if to > 0 {
				begin = w.Ends[to-1]
			}
			ids, scales := w.IDs[begin:w.Ends[to]], w.Scales[begin:w.Ends[to]]
			if step >= pl.len {
				if len(ids) > 0 || slices.Max(w.Weights[to*heads:][:heads]) > 0 {
					t.Fatalf("window %d, line %d is padding, and has something", j, step)
				}
				continue
			}
			same := slices.Equal(w.Layout[to*l:][:l], s.layout[from*l:][:l]) && slices.Equal(w.Weights[to*heads:][:heads], s.weights[from*heads:][:heads]) &&
				bits(w.MaskX, to*d, s.maskX[from*d:][:d])
			for i, m := range s.maskH {
				same = same && bits(w.MaskH[i], to*h2, m[from*h2:][:h2])
			}
			for i, y := range w.Targets[to*heads:][:heads] {
				same = same && (w.Weights[to*heads+i] == 0 || float32(y) == s.targets[from*heads+i])
			}
			for _, used := range s.used {
				for _, u := range used {
					if int(u.row) != from {
						continue
					}
					if same = same && len(ids) > 0 && ids[0] == u.id && scales[0] == u.scale; same {
						slots = append(slots, bySlot{uint32(slices.Index(b.slots, u.id)), uint32(to), u.scale})
						ids, scales = ids[1:], scales[1:]
					}
				}
			}
			if !same || len(ids) > 0 {
				t.Fatalf("window %d, line %d is not that of shard %d", j, step, pl.shard)
			}
		}
	}
	slices.SortStableFunc(slots, func(a, b bySlot) int { return cmp.Compare(a.slot, b.slot) })
	at := 0
	for i, slot := range w.Slots {
		for ; at < int(w.SlotEnds[i]); at++ {
			if got := (bySlot{slot, w.Rows[at], w.SlotScales[at]}); at >= len(slots) || got != slots[at] {
				t.Fatalf("use %d by slot: got %v of %v", at, got, slots[min(at, len(slots)-1)])
			}
		}
	}
	if at != len(slots) || len(w.Rows) != at {
		t.Fatalf("%d uses by slot, want %d", at, len(slots))
	}
}
