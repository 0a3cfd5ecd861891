package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// benchBatch is lines of 58 ids, words as often as in text: id of rank r with
// probability about 1/r.
func benchBatch(c model.Config, lines int) *model.Batch {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.05, 8, uint64(c.InputSize-1))
	place := r.Perm(c.InputSize) // frequent rows lie anywhere
	b := new(model.Batch)
	for range lines {
		for _, n := range [model.Groups]int{12, 11, 26, 9} {
			for range n {
				b.IDs = append(b.IDs, uint32(place[zipf.Uint64()]))
			}
			b.GroupEnd = append(b.GroupEnd, uint32(len(b.IDs)))
			b.GroupScale = append(b.GroupScale, 0.3)
		}
	}
	b.Layout = make([]float32, lines*c.LayoutSize)
	for i := range b.Layout {
		b.Layout[i] = r.Float32()
	}
	return b
}

// BenchmarkScore is one call on one core, with the table in front.
func BenchmarkScore(b *testing.B) {
	cases := []struct {
		name           string
		hidden, layers int
		lengths        []int // of windows
	}{
		{"H96/B64T50", 96, 1, slices.Repeat([]int{50}, 64)},
		{"H96/B128T50", 96, 1, slices.Repeat([]int{50}, 128)},
		{"H96/B16T300", 96, 1, slices.Repeat([]int{300}, 16)},
		{"H96/B1T300", 96, 1, slices.Repeat([]int{300}, 1)},
		{"H96/documents", 96, 1, documents()},
		{"H96L2/B64T50", 96, 2, slices.Repeat([]int{50}, 64)},
		{"H256/B64T50", 256, 1, slices.Repeat([]int{50}, 64)},
	}
	for _, tc := range cases {
		b.Run(tc.name+"/"+kernel.ISA(), func(b *testing.B) {
			c := modeltest.Config(1<<16, 64, model.FeatureLayout, tc.hidden, tc.layers, 3, 23)
			s := scorerOf(b, modeltest.Weights(c, 1))
			lines := 0
			var windows []model.ContextWindow
			for _, n := range tc.lengths {
				windows = append(windows, model.ContextWindow{First: lines, Len: n})
				lines += n
			}
			batch := benchBatch(c, lines)
			batch.Windows = windows
			probs := make([]float32, lines*c.NumOutputs())
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				if err := s.Score(context.Background(), batch, probs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// documents are 64 of the lengths that a journal's articles have.
func documents() []int {
	r := rand.New(rand.NewPCG(3, 4))
	lengths := make([]int, 64)
	for i := range lengths {
		lengths[i] = 80 + int(400*r.ExpFloat64())
		if lengths[i] > 2000 {
			lengths[i] = 1000
		}
	}
	return lengths
}

// BenchmarkParts times what stands round the LSTM, a line.
func BenchmarkParts(b *testing.B) {
	const lines = 3200
	c := modeltest.Config(1<<16, 64, model.FeatureLayout, 96, 1, 3, 23)
	s := scorerOf(b, modeltest.Weights(c, 1))
	batch := benchBatch(c, lines)
	batch.Windows = []model.ContextWindow{{Len: lines}}
	mem := s.begin()
	if err := mem.addBatch(s, batch); err != nil {
		b.Fatal(err)
	}
	run := func(name string, f func()) {
		b.Run(fmt.Sprintf("%s/%s", name, kernel.ISA()), func(b *testing.B) {
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
		})
	}
	run("embed", func() {
		if err := s.embed(context.Background(), mem, mem.runs[0]); err != nil {
			b.Fatal(err)
		}
	})
	run("standardise", func() {
		for l := 0; l < lines; l += embedLines {
			kernel.StandardiseRows(embedLines, mem.layout, batch.Layout[l*s.layout:], s.layoutMean, s.layoutInvStd, clip)
		}
	})
	run("check", func() {
		mem.reset()
		if err := mem.addBatch(s, batch); err != nil {
			b.Fatal(err)
		}
	})
}
