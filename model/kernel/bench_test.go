package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

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

// measure runs f and returns seconds a call, on average and in the fastest of
// many short runs, which a busy machine spoils less.
func measure(b *testing.B, f func()) (mean, best float64) {
	start := time.Now()
	f()
	n := max(1, int(50*time.Microsecond/max(1, time.Since(start))))
	least, calls := time.Duration(math.MaxInt64), 0
	b.ResetTimer()
	for b.Loop() {
		start := time.Now()
		for range n {
			f()
		}
		least = min(least, time.Since(start))
		calls += n
	}
	return b.Elapsed().Seconds() / float64(calls), least.Seconds() / float64(n)
}

// gflops reports the rate of an f of so many floating-point operations.
func gflops(b *testing.B, flop float64, f func()) {
	mean, best := measure(b, f)
	b.ReportMetric(flop/mean/1e9, "GFLOP/s")
	b.ReportMetric(flop/best/1e9, "best-GFLOP/s")
}

// nanoseconds reports the time of one of the n pieces of f's work.
func nanoseconds(b *testing.B, n int, unit string, f func()) {
	mean, best := measure(b, f)
	b.ReportMetric(mean*1e9/float64(n), unit)
	b.ReportMetric(best*1e9/float64(n), "best-"+unit)
}

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
				gflops(b, 2*float64(m*n*k), func() { GemmTN(m, n, k, x, m, y, n, c, n) })
			})
		})
	}
}

func BenchmarkGates(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, hidden := range []int{96, 256, 7} {
		const rows = 64
		z, c, h := random(r, rows*4*hidden), random(r, rows*hidden), make([]float32, rows*hidden)
		tc, dz := make([]float32, hidden), make([]float32, 4*hidden)
		per := func(name string, n int, f func()) {
			b.Run(fmt.Sprintf("%s/%d", name, hidden), func(b *testing.B) {
				benchISA(b, func(b *testing.B) { nanoseconds(b, n*hidden, "ns/unit", f) })
			})
		}
		per("GatesRows", rows, func() { GatesRows(rows, z, 4*hidden, c, hidden, h, hidden, hidden) })
		per("GatesTrain", 1, func() { copy(dz, z); GatesTrain(dz, c, tc, tc, h, hidden) })
		per("GatesBackward", 1, func() { GatesBackward(dz, z, c, h, c, tc, hidden) })
	}
}

// BenchmarkStep is an LSTM's step of m rows, with weights in float32 and with weights that are bfloat16 numbers.
func BenchmarkStep(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const k, hidden, n = 64, 96, 4 * 96
	for _, m := range []int{1, 13, 16, 32, 64} {
		x, z, bias := random(r, m*k), make([]float32, m*n), random(r, n)
		c, h := make([]float32, m*hidden), make([]float32, m*hidden)
		for _, weights := range []string{"float32", "bfloat16"} {
			w1, w2 := random(r, k*n), random(r, hidden*n)
			if weights == "bfloat16" {
				roundAll(w1)
				roundAll(w2)
			}
			b.Run(fmt.Sprintf("%d/%s", m, weights), func(b *testing.B) {
				benchISA(b, func(b *testing.B) {
					if j := Join(w1, k, w2, hidden); j != nil {
						rows := make([]uint32, 2*m*j.Stride())
						j.Round(m, x, k, rows, j.Stride())
						nanoseconds(b, m, "ns/row", func() { j.Step(m, rows, true, bias, z, c, h, rows[m*j.Stride():]) })
						return
					}
					input, recurrent := PackTwo(w1, k, w2, hidden, n, n)
					nanoseconds(b, m, "ns/row", func() { Step(m, x, k, input, h, recurrent, bias, z, c, h, hidden) })
				})
			})
		}
	}
}

func BenchmarkSum(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, groups, idsPerLine, lines = 1 << 16, 4, 56, 200
	ids := make([]uint32, lines*idsPerLine)
	ends, scales := make([]uint32, lines*groups), random(r, lines*groups)
	for _, spread := range []int{1 << 16, 1 << 12} { // how many rows are in use
		for i := range ids {
			ids[i] = uint32(r.IntN(spread))
		}
		for i := range ends {
			ends[i] = uint32((i + 1) * idsPerLine / groups)
		}
		for _, d := range []int{64, 32} {
			data, dst := make([]int8, rows*d), make([]float32, lines*d)
			for i := range data {
				data[i] = int8(i)
			}
			whole := make([]float32, rows)
			for i := range whole {
				whole[i] = float32(r.IntN(256)) / 256
			}
			for i, scale := range [][]float32{random(r, rows), whole} {
				table := NewTable(data, scale, d)
				b.Run(fmt.Sprintf("SumLines%s/%dof%d", []string{"", "Int"}[i], d, spread), func(b *testing.B) {
					benchISA(b, func(b *testing.B) {
						nanoseconds(b, len(ids), "ns/id", func() { SumLines(dst, d, table, ids, 0, ends, scales, groups) })
					})
				})
			}
		}
	}
}

func BenchmarkSoftmax(b *testing.B) {
	for _, n := range []int{3, 26} {
		const rows = 64
		x := make([]float32, rows*n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchISA(b, func(b *testing.B) { nanoseconds(b, rows, "ns/row", func() { SoftmaxRows(rows, x, n, n) }) })
		})
	}
}

func BenchmarkTanh(b *testing.B) {
	x := make([]float32, 6400)
	benchISA(b, func(b *testing.B) { nanoseconds(b, len(x), "ns/element", func() { Tanh(x) }) })
}

func BenchmarkAdamW(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	a, n := AdamW{Clip: 1, Step: 1e-3, Correction: 1, Epsilon: 1e-8}, 6400
	w, g, m, v := random(r, n), random(r, n), make([]float32, n), make([]float32, n)
	benchISA(b, func(b *testing.B) { nanoseconds(b, n, "ns/weight", func() { a.Update(w, g, m, v) }) })
}

// BenchmarkLSTM is one direction of a layer over 64 windows of 50 lines, in
// some ways: the input's share of a few steps in one product, or both products
// and perhaps the gates in one call a step.
func BenchmarkLSTM(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const T, M, D, steps = 50, 64, 64, 5
	for _, H := range []int{96, 256} {
		x, z, bias := random(r, T*M*D), make([]float32, steps*M*4*H), random(r, 4*H)
		h, c := make([]float32, (T+1)*M*H), make([]float32, M*H)
		flop := 2 * float64(T*M*4*H*(D+H))
		run := func(way string, lstm func(wx, wh *Packed)) {
			b.Run(fmt.Sprintf("%s/%d", way, H), func(b *testing.B) {
				benchISA(b, func(b *testing.B) {
					wx, wh := Pack(random(r, D*4*H), D, 4*H, 4*H), Pack(random(r, H*4*H), H, 4*H, 4*H)
					gflops(b, flop, func() { lstm(wx, wh) })
				})
			})
		}
		run("chunks", func(wx, wh *Packed) {
			for t := range T {
				if t%steps == 0 {
					GemmBias(steps*M, x[t*M*D:], D, wx, bias, z, 4*H)
				}
				now := z[t%steps*M*4*H:]
				Gemm(M, h[t*M*H:], H, wh, now, 4*H, true)
				GatesRows(M, now, 4*H, c, H, h[(t+1)*M*H:], H, H)
			}
		})
		run("fused", func(wx, wh *Packed) {
			for t := range T {
				gemmSum(M, term{x[t*M*D:], D, wx}, term{h[t*M*H:], H, wh}, bias, 0, z, 4*H)
				GatesRows(M, z, 4*H, c, H, h[(t+1)*M*H:], H, H)
			}
		})
		run("step", func(wx, wh *Packed) {
			for t := range T {
				Step(M, x[t*M*D:], D, wx, h[t%4*M*H:], wh, bias, z, c, h[(t+1)%4*M*H:], H)
			}
		})
	}
}
