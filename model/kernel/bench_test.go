package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// eachISA runs f once for every instruction set and says which it skipped.
func eachISA(t testing.TB, run func(name string, f func()), f func()) {
	for _, name := range isaNames {
		restore, ok := SwitchISA(name)
		if !ok {
			t.Logf("skipped %s: this machine or build does not have it", name)
			continue
		}
		run(name, f)
		restore()
	}
}

func benchISA(b *testing.B, f func(b *testing.B)) {
	for _, name := range isaNames {
		restore, ok := SwitchISA(name)
		if !ok {
			continue
		}
		b.Run(name, f)
		restore()
	}
}

// measure runs f and reports the rate of its work (in units) on average, and
// that of the fastest of many short runs, which a busy machine spoils less.
func measure(b *testing.B, work float64, unit string, f func()) {
	start := time.Now()
	f()
	n := max(1, int(50*time.Microsecond/max(1, time.Since(start))))
	best := time.Duration(math.MaxInt64)
	calls := 0
	b.ResetTimer()
	for b.Loop() {
		start := time.Now()
		for range n {
			f()
		}
		best = min(best, time.Since(start))
		calls += n
	}
	b.ReportMetric(work*float64(calls)/b.Elapsed().Seconds(), unit)
	b.ReportMetric(work*float64(n)/best.Seconds(), "best-"+unit)
}

// gflops is measure in floating-point operations.
func gflops(b *testing.B, flop float64, f func()) { measure(b, flop/1e9, "GFLOP/s", f) }

func BenchmarkGemm(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{64, 384, 96}, {3200, 384, 64}, {64, 1024, 256}, {3200, 1024, 64}, {128, 384, 96}, {1, 384, 96}, {2, 384, 96}, {3, 384, 96}, {4, 384, 96}, {6, 384, 96}, {8, 384, 96}, {16, 384, 96}, {1, 1024, 256}, {4, 1024, 256}, {3200, 3, 256}} {
		m, n, k := s[0], s[1], s[2]
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			benchISA(b, func(b *testing.B) {
				x, w, c := random(r, m*k), Pack(random(r, k*n), k, n, n), make([]float32, m*n)
				gflops(b, 2*float64(m*n*k), func() { Gemm(m, x, k, w, c, n, false) })
			})
		})
	}
}

func BenchmarkGemmTN(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{64, 384, 240}, {96, 384, 240}, {96, 384, 960}, {256, 3, 960}} {
		m, n, k := s[0], s[1], s[2]
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			benchISA(b, func(b *testing.B) {
				x, y, c := random(r, m*k), random(r, k*n), make([]float32, m*n)
				gflops(b, 2*float64(m*n*k), func() { GemmTN(m, n, k, x, m, y, n, c, n, false) })
			})
		})
	}
}
