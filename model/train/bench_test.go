package train

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// BenchmarkStep is a training step of the default recipe: 12 windows of 80
// lines with 58 ids each, drawn so that some are common and most are rare.
func BenchmarkStep(b *testing.B) {
	cfg, doc := benchmarkDocument(12)
	for workers := 1; workers <= min(4, runtime.GOMAXPROCS(0)); workers *= 2 {
		b.Run(fmt.Sprintf("%s/workers=%d", kernel.ISA(), workers), func(b *testing.B) {
			t := trainerOf(b, Options{Config: cfg, Train: []Document{doc}, Machine: Machine{Cores: workers}})
			benchmarkStep(b, t)
		})
	}
}

// benchmarkDocument has so many windows of 80 lines, and they are a batch.
func benchmarkDocument(windows int) (model.Config, Document) {
	cfg := model.DefaultConfig()
	cfg.BatchSize = windows
	rnd := rand.New(rand.NewPCG(1, 1))
	f := &model.Batch{}
	labels := make([]string, windows*80)
	for r := range labels {
		for _, n := range [model.Groups]int{16, 12, 20, 10} {
			for range n {
				x := rnd.Float64()
				f.IDs = append(f.IDs, uint32(x*x*x*float64(cfg.InputSize)))
			}
			f.GroupEnd = append(f.GroupEnd, uint32(len(f.IDs)))
			f.GroupScale = append(f.GroupScale, .3)
		}
		for range cfg.LayoutSize {
			f.Layout = append(f.Layout, rnd.Float32())
		}
		labels[r] = []string{"Nomenclature", "Description", "Misc-exposition", "Figure"}[rnd.IntN(4)]
	}
	return cfg, Document{Features: f, Labels: labels}
}

func benchmarkStep(b *testing.B, t *trainer) {
	t.steps = 1 << 30
	var batch []window
	for i := range t.config.BatchSize {
		batch = append(batch, window{0, i * 80, 80})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.train(batch, batch); err != nil {
			b.Fatal(err)
		}
	}
	lines := float64(b.N * 80 * len(batch))
	b.ReportMetric(lines/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(b.Elapsed().Seconds()/lines*1e6, "µs/line")
}
