//go:build !noasm

package kernel

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestSplitRows(t *testing.T) {
	if !supported(isaAMX) {
		t.Skip("this machine has no amx")
	}
	r := rand.New(rand.NewPCG(17, 18))
	split := []func(rows uintptr, dst *uint16, ldd uintptr, src *float32, lds, k uintptr){1: splitRowsAMX1, 2: splitRowsAMX2, 3: splitRowsAMX3}
	for parts := 1; parts <= 3; parts++ {
		for k := 1; k <= 130; k++ {
			const rows = 3
			lds, ldd := k+k%7, roundUp(k, 32)*parts
			x := gateArguments(r, rows*lds)
			spoilSome(r, x, nan, inf, -inf, 1e-40, math.MaxFloat32, 1+1.0/256)
			x = guard(x, k%8).x
			want, got := make([]uint16, rows*ldd), aligned64(rows*ldd+32)
			for i := range got {
				got[i] = 0xbad
			}
			for i := range rows {
				for l := range k {
					rest, sum, at := x[i*lds+l], float32(0), i*ldd+l/32*32*parts+l%32
					for p := range parts {
						want[at+32*p] = bfloat16(rest)
						rest -= rounded(rest)
						sum += math.Float32frombits(uint32(want[at+32*p]) << 16)
					}
					if v := float64(x[i*lds+l]); parts == 3 && float64(sum) != v && math.Abs(v) > 1e-30 && math.Abs(v) < 1e38 {
						t.Fatalf("the parts of %v sum to %v", v, sum)
					}
				}
			}
			split[parts](rows, &got[0], uintptr(2*ldd), &x[0], uintptr(4*lds), uintptr(k))
			for i, w := range want {
				if g := got[i]; g != w && !(w&0x7fff > 0x7f80 && g&0x7fff > 0x7f80) { // any NaN for a NaN
					t.Fatalf("%d parts, k %d: number %d: got %x, want %x", parts, k, i, g, w)
				}
			}
			if got[rows*ldd] != 0xbad {
				t.Fatalf("%d parts, k %d: wrote behind the rows", parts, k)
			}
		}
	}
}

// Tiles are right while the collector runs and goroutines are preempted.
func TestAMXUnderPreemption(t *testing.T) {
	restore, ok := SwitchISA("amx")
	if !ok {
		t.Skip("this machine has no amx")
	}
	defer restore()
	stop := make(chan bool)
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	r := rand.New(rand.NewPCG(19, 20))
	const m, n, k = 70, 384, 96
	a, b := random(r, m*k), Pack(random(r, k*n), k, n, n)
	want, got := make([]float32, m*n), make([]float32, m*n)
	Gemm(m, a, k, b, want, n, false)
	const hidden = n / 4 // as much as k
	bias, z, h := random(r, n), make([]float32, m*n), make([]float32, m*hidden)
	step := func() []float32 {
		Step(m, a, k, b, a, b, bias, z, make([]float32, m*hidden), h, hidden)
		return h
	}
	wantH := slices.Clone(step())
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		Gemm(m, a, k, b, got, n, false)
		if !slices.Equal(got, want) || !slices.Equal(step(), wantH) {
			t.Fatal("other results under preemption")
		}
	}
}
