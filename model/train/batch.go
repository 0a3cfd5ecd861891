package train

import (
	"math/rand/v2"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// window is a run of rows of one document of the corpus.
type window struct{ doc, first, len int }

// windows cuts every document into runs of size rows, the first of them
// shorter by a random part, and shuffles them. Runs without a labelled row are
// left out. The result depends on seed and epoch alone.
func (c *corpus) windows(size int, seed int64, epoch int) []window {
	rnd := rand.New(rand.NewPCG(uint64(seed), streamWindows+uint64(epoch)))
	var ws []window
	for d := range c.docs {
		rows := len(c.main[d])
		first := 0
		end := rnd.IntN(size) // of the first run; 0 is none
		for first < rows {
			end = min(end, rows)
			if c.labelled[d][end] > c.labelled[d][first] {
				ws = append(ws, window{d, first, end - first})
			}
			first = end
			end += size
		}
	}
	rnd.Shuffle(len(ws), func(i, j int) { ws[i], ws[j] = ws[j], ws[i] })
	return ws
}

// Streams of random numbers, so that none is drawn from twice.
const (
	streamWeights = iota << 56
	streamWindows
	streamDropout
	streamCrops
)

// Dropout beside that of x and the states, as shares of Config.Dropout: 0.3 of
// the ids, 0.05 of the lines and the layout numbers of 0.3 of the windows, at
// its usual 0.4. Ids that stay are scaled up for those that do not; lines are not.
// A window without layout has but its words, so that a volume set otherwise than
// all others is still read; dropping single numbers does not teach that.
const (
	idDropout     = 0.75
	lineDropout   = 0.125
	layoutDropout = 0.75
)

// secondHead is the weight of the second head's loss.
const secondHead = 0.4

// clipLayout bounds standardised layout numbers (model.Weights).
const clipLayout = 6

// shard is a part of a batch: its inputs, and which rows of the table it uses.
type shard struct {
	*inputs[float32]
	graph  *graph[float32]         // of the inputs; nil where a GPU computes
	graphs map[int]*graph[float32] // by steps
	kept   []uint32                // scratch
	// Without a graph these stand for masks and sum: bits of what dropout leaves,
	// and how many rows of the table each row uses.
	bitsX []uint32
	bitsH [][]uint32
	uses  []uint32
	// used are the rows of the table that were summed, in parts by id, each
	// in the order of rows and groups.
	used   [tableParts][]use
	lesson lesson
	loss   float32
	err    error
}

// use says that row id of the table, times scale, was added to a row of sum. Where
// GPUs compute, number puts the slot of the row in its place.
type use struct {
	id, row uint32
	scale   float32
}

// bits hands out random numbers of 16 bits.
type bits struct {
	source rand.PCG
	word   uint64
	left   int
}

func (b *bits) next() uint32 {
	if b.left == 0 {
		b.word, b.left = b.source.Uint64(), 4
	}
	v := uint32(b.word & 0xffff)
	b.word >>= 16
	b.left--
	return v
}

// threshold is the 16-bit number below which something of probability p
// happens.
func threshold(p float64) uint32 { return uint32(p*(1<<16) + .5) }

// dropout fills mask with 0 (probability p) and 1/(1−p).
func (b *bits) dropout(mask []float32, p float64) {
	drop, keep := threshold(p), float32(1/(1-p))
	for i := range mask {
		mask[i] = keep
		if b.next() < drop {
			mask[i] = 0
		}
	}
}

// kept sets the first n bits of words where dropout fills a mask of n with something,
// from the same numbers.
func (b *bits) kept(words []uint32, n int, p float64) {
	drop := threshold(p)
	stays := func(v uint32) uint32 { return 1 - (v-drop)>>31 }
	for i := range words {
		var w uint32
		if left := n - 32*i; left < 32 || b.left > 0 {
			for j := range min(32, left) {
				w |= stays(b.next()) << j
			}
		} else {
			for j := 0; j < 32; j += 4 {
				v := b.source.Uint64()
				w |= (stays(uint32(v&0xffff)) | stays(uint32(v>>16&0xffff))<<1 | stays(uint32(v>>32&0xffff))<<2 | stays(uint32(v>>48))<<3) << j
			}
		}
		words[i] = w
	}
}

// fit gives s a graph with room for windows ws: of those for defaultWindow lines, for
// four times as many and so on, the smallest that has it. A graph computes its padding,
// too, and most windows are short. Random numbers are drawn for padding as well, so that
// the size follows from ws alone. Graphs are kept, which takes less time than another.
func (s *shard) fit(t *trainer, ws []window) (err error) {
	steps, longest := defaultWindow, 0
	for _, w := range ws {
		longest = max(longest, w.len)
	}
	for steps < longest {
		steps *= 4
	}
	steps = min(steps, t.longest)
	g := s.graphs[steps]
	if g == nil {
		if g, err = newGraph(t.net, steps, s.windows); err != nil {
			return err
		}
		s.graphs[steps] = g
	}
	s.graph, s.inputs = g, g.inputs
	return nil
}

// fill writes windows ws (at most as many as the graph has) to the inputs of
// the graph, or to what pack packs for GPUs, and to the lesson of the teachers.
// rowWeight is what a labelled row weighs in each head's loss.
func (s *shard) fill(t *trainer, ws []window, step, number int, rowWeight [2]float64) {
	cfg := &t.config
	b := &bits{source: *rand.NewPCG(uint64(cfg.Seed), streamDropout+uint64(step)<<16+uint64(number))}
	d, l, heads := cfg.EmbeddingSize, cfg.LayoutSize, len(t.net.heads)
	if s.graph != nil {
		clear(s.sum)
	}
	clear(s.layout)
	clear(s.live)
	clear(s.weights)
	s.lesson.batch.Reset()
	clear(s.uses)
	for p := range s.used {
		s.used[p] = s.used[p][:0]
	}
	if s.graph != nil {
		b.dropout(s.maskX, cfg.Dropout)
		for _, m := range s.maskH {
			b.dropout(m, cfg.Dropout)
		}
	} else {
		b.kept(s.bitsX, len(s.live)*d, cfg.Dropout)
		for _, m := range s.bitsH {
			b.kept(m, len(s.live)*2*cfg.HiddenSize, cfg.Dropout)
		}
	}
	dropLayout := threshold(layoutDropout * cfg.Dropout)
	dropLine, dropID := threshold(lineDropout*cfg.Dropout), threshold(idDropout*cfg.Dropout)
	for i, w := range ws {
		doc := &t.corpus.docs[w.doc]
		plain := b.next() < dropLayout
		if t.teachers != nil {
			s.lesson.window(w.len)
		}
		for step := range w.len {
			r, line := step*s.windows+i, w.first+step
			s.live[r] = 1
			for j, y := range [2]int{t.corpus.main[w.doc][line], t.corpus.full[w.doc][line]} {
				if y >= 0 && j < heads {
					column := y
					if j == 1 {
						column += t.net.heads[0]
					}
					s.targets[r*heads+j] = float32(y)
					s.weights[r*heads+j] = float32(rowWeight[j] * t.columnWeights[column])
				}
			}
			if t.taught != nil {
				k := t.net.outputs()
				copy(s.taught[r*k:(r+1)*k], t.taught[w.doc][line*k:])
			}
			dropped := b.next() < dropLine
			if t.teachers != nil {
				s.lesson.line(t, doc.Features, line, plain)
				ids := *b // the same ones are dropped below
				s.keep(doc.Features, line, &ids, dropID, s.lesson.group)
			}
			if dropped {
				if s.graph != nil {
					clear(s.maskX[r*d : (r+1)*d])
				} else {
					clearBits(s.bitsX, r*d, d)
				}
				continue
			}
			if !plain {
				kernel.StandardiseRows(1, s.layout[r*l:], doc.Features.Layout[line*l:], t.layoutMean, t.layoutInvStd, clipLayout)
			}
			s.keep(doc.Features, line, b, dropID, func(ids []uint32, scale float32) {
				for _, id := range ids {
					s.used[id%tableParts] = append(s.used[id%tableParts], use{id, uint32(r), scale})
				}
				if s.graph != nil {
					kernel.SumRowsF32(s.sum[r*d:(r+1)*d], t.table, ids, scale)
				} else {
					s.uses[r] += uint32(len(ids))
				}
			})
		}
	}
}

// keep calls group for each group of a line, with the ids that are not dropped
// (probability drop/2¹⁶), in memory that the next call takes, and their scale.
func (s *shard) keep(f *model.Batch, line int, b *bits, drop uint32, group func(ids []uint32, scale float32)) {
	inverse := 1 / (1 - float32(drop)/(1<<16))
	at := f.FirstID(line)
	for g := line * model.Groups; g < (line+1)*model.Groups; g++ {
		s.kept = s.kept[:0]
		for _, id := range f.IDs[at:f.GroupEnd[g]] {
			if drop == 0 || b.next() >= drop {
				s.kept = append(s.kept, id)
			}
		}
		group(s.kept, inverse*f.GroupScale[g])
		at = f.GroupEnd[g]
	}
}
