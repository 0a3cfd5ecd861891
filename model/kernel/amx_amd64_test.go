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

func TestRoundRows(t *testing.T) {
	if !supported(isaAMX) {
		t.Skip("this machine has no amx")
	}
	r := rand.New(rand.NewPCG(17, 18))
	for k := 1; k <= 130; k++ {
		const rows = 3
		lds, ldd := k+k%7, roundUp(k, 32)
		x := gateArguments(r, rows*lds)
		spoilSome(r, x, nan, inf, -inf, 1e-40, math.MaxFloat32, 1+1.0/256)
		x = guard(x, k%8).x
		want, got := make([]uint16, rows*ldd), aligned64(rows*ldd+32)
		for i := range got {
			got[i] = 0xbad
		}
		for i := range rows {
			for l := range k {
				want[i*ldd+l] = bfloat16(x[i*lds+l])
			}
		}
		roundRowsAMX(rows, &got[0], uintptr(2*ldd), &x[0], uintptr(4*lds), uintptr(k))
		if !slices.Equal(got[:rows*ldd], want) {
			t.Fatalf("k %d: got %x, want %x", k, got[:rows*ldd], want)
		}
		if got[rows*ldd] != 0xbad {
			t.Fatalf("k %d: wrote behind the rows", k)
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
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		Gemm(m, a, k, b, got, n, false)
		if !slices.Equal(got, want) {
			t.Fatal("other results under preemption")
		}
	}
}
