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

// stepGates is what Step does with z, whose vectors of units go through the gates
// one by one.
func stepGates(m int, z, c, h []float32, hidden int) {
	if active.parts() == 0 || active == isaAMX24 || hidden%amxWidth != 0 {
		GatesRows(m, z, 4*hidden, c, hidden, h, hidden, hidden)
		return
	}
	gatesOneByOne(m, z, c, h, hidden, 16, gatesCubic)
}

type gatesCall = func(rows, vectors uintptr, z *float32, ldz, gate uintptr, c, h *float32, ld uintptr)

func gatesOneByOne(m int, z, c, h []float32, hidden, size int, gates gatesCall) {
	vector := make([]float32, 4*size)
	for i := range m {
		for u := i * hidden; u < (i+1)*hidden; u += size {
			for g := range 4 {
				copy(vector[g*size:][:size], z[(3*i+g)*hidden+u:])
			}
			gates(1, 1, &vector[0], 0, uintptr(4*size), &c[u], &h[u], 0)
		}
	}
}

// The cubics of tanh and σ are near them between all their pieces, beyond the
// last and around 0, and NaN for NaN.
func TestGatesCubic(t *testing.T) {
	if !supported(isaAVX512) {
		t.Skip("this machine has no avx512")
	}
	testGates(t, gatesCubic, 16, 6e-6)
}

// The fractions are, too.
func TestGatesFractions(t *testing.T) {
	if !supported(isaMADD) {
		t.Skip("this machine has no avx2")
	}
	testGates(t, fractions(t), 8, 1.3e-5)
}

// testGates tests gates of so many lanes, whose σ and tanh have that tolerance.
func testGates(t *testing.T, gates gatesCall, lanes uintptr, tolerance float64) {
	const width = amxWidth
	r := rand.New(rand.NewPCG(23, 24))
	run := func(z, c []float32) (gotC, gotH []float32) {
		rows := len(c) / width
		gc, gh := guard(c, 1), guard(make([]float32, len(c)), 2)
		gates(uintptr(rows), width/lanes, &guard(z, 3).x[0], 16*width, 4*width, &gc.x[0], &gh.x[0], 4*width)
		gc.check(t, "c")
		gh.check(t, "h")
		return gc.x, gh.x
	}
	// One gate at a time: the others are as good as 0 or 1.
	const n, high = 50 * width, 1e4
	x, at := make([]float32, n), [4]float32{high, -high, high, high}
	for i := range x {
		x[i] = float32(r.NormFloat64()) * []float32{1e-6, 0.1, 4, 10}[i%4]
	}
	for gate, f := range []func(x float64) (c, h float64){
		func(x float64) (c, h float64) { c = 1 / (1 + math.Exp(-x)); return c, math.Tanh(c) },
		nil,
		func(x float64) (c, h float64) { c = math.Tanh(x); return c, math.Tanh(c) },
		func(x float64) (c, h float64) { return 1, math.Tanh(1) / (1 + math.Exp(-x)) },
	} {
		if f == nil {
			continue // on its own σ(z_f)·c does not say more than z_i does
		}
		z := make([]float32, 4*n)
		for i, v := range x {
			for g := range 4 {
				z[i/width*4*width+g*width+i%width] = at[g]
			}
			z[i/width*4*width+gate*width+i%width] = v
		}
		c, h := run(z, make([]float32, n))
		for i, v := range x {
			wantC, wantH := f(float64(v))
			if math.Abs(float64(c[i])-wantC) > tolerance || math.Abs(float64(h[i])-wantH) > 2*tolerance {
				t.Fatalf("gate %d at %v: got c %v and h %v, want %v and %v", gate, v, c[i], h[i], wantC, wantH)
			}
			if tiny := math.Abs(float64(v)) < 1e-3; tiny && gate == 2 && math.Abs(float64(c[i])-wantC) > 1e-4*math.Abs(wantC) {
				t.Fatalf("tanh(%v): got %v", v, c[i])
			}
		}
	}
	// All of them, against the specification.
	for range 20 {
		const rows = 9
		z, c := gateArguments(r, rows*4*width), random(r, rows*width)
		spoilSome(r, z, nan, inf, -inf)
		spoilSome(r, c, nan)
		wantC, wantH := slices.Clone(c), make([]float32, len(c))
		gatesGeneric(rows, z, 4*width, wantC, width, wantH, width, width)
		gotC, gotH := run(z, c)
		near(t, "c", gotC, wantC, within(wantC, 2e-5))
		near(t, "h", gotH, wantH, within(wantH, 2e-5))
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
