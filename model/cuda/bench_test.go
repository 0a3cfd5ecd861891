//go:build cuda && cgo

package cuda

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// benchSteps are the lines of a window, benchIDs the ids of a line.
// scripts/bench.d/gpu/torch_lstm.py measures PyTorch on the same sizes.
const (
	benchSteps = 50
	benchIDs   = 32
)

func benchBatch(c *model.Config, windows int) *model.Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := &model.Batch{}
	for w := range windows {
		b.Windows = append(b.Windows, model.ContextWindow{First: w * benchSteps, Len: benchSteps})
	}
	for range windows * benchSteps {
		for range model.Groups {
			for range benchIDs / model.Groups {
				b.IDs = append(b.IDs, uint32(r.IntN(c.InputSize)))
			}
			b.GroupEnd = append(b.GroupEnd, uint32(len(b.IDs)))
			b.GroupScale = append(b.GroupScale, 0.35)
		}
		for range c.LayoutSize {
			b.Layout = append(b.Layout, r.Float32())
		}
	}
	return b
}

// BenchmarkScore reports lines/s: of Score as callers see it, many calls at a
// time, copies and their packing included; and of the kernels alone, on a batch
// that is there already. Both end after a synchronise.
func BenchmarkScore(b *testing.B) {
	devices := devices(b)
	for _, size := range []struct{ hidden, layers int }{{96, 1}, {128, 2}, {256, 2}, {512, 3}} {
		w := modeltest.Weights(modeltest.Config(1<<16, 64, model.FeatureLayout, size.hidden, size.layers, 3, 20), 1)
		for _, precision := range []string{Float16, Float32} {
			for _, windows := range []int{32, 64, 128, 256, 512, 1024, 2048, 4096} {
				if windows > 512 && (precision == Float32 || size.hidden > 256) {
					continue
				}
				batch := benchBatch(&w.Config, windows)
				lines := float64(batch.NumLines())
				name := fmt.Sprintf("hidden%d/layers%d/%s/batch%d", size.hidden, size.layers, precision, windows)
				b.Run(name+"/with_copies", func(b *testing.B) {
					s, err := New(w, Options{Devices: devices[:1], Precision: precision})
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					for range plans { // so that all have their memory
						if err := s.Score(b.Context(), batch, make([]float32, batch.NumSteps()*w.Config.NumOutputs())); err != nil {
							b.Fatal(err)
						}
					}
					b.SetParallelism(ceil(2*plans, runtime.GOMAXPROCS(0)))
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) {
						probs := make([]float32, batch.NumSteps()*w.Config.NumOutputs())
						for pb.Next() {
							if err := s.Score(b.Context(), batch, probs); err != nil {
								b.Error(err)
								return
							}
						}
					})
					b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
				})
				b.Run(name+"/kernels", func(b *testing.B) {
					c := &card{watchdog: newWatchdog(), device: devices[0]}
					if err := c.open(w, precision == Float16); err != nil {
						b.Fatal(err)
					}
					defer c.close()
					j := &job{plan: new(plan)}
					if err := j.plan.lay(&c.sizes, w.Config.InputSize, []*model.Batch{batch}, make([]float32, batch.NumSteps()*w.Config.NumOutputs())); err != nil {
						b.Fatal(err)
					}
					s := &c.slots[0]
					s.job = j
					if err := c.begin(s, j); err != nil {
						b.Fatal(err)
					}
					if err := c.finish(s); err != nil {
						b.Fatal(err)
					}
					for b.Loop() {
						if err := c.launch(s, j.plan); err != nil {
							b.Fatal(err)
						}
						if err := s.stream.Synchronize(); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
				})
			}
		}
	}
}
