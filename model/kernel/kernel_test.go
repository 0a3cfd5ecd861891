package kernel

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// eps is the rounding error of one float32 operation, relative.
const eps = 1.0 / (1 << 24)

// gateTolerance is what c and h may differ from the specification, which
// computes in float64: σ and tanh are within 1.4e-7 (measured over ±12), a c is
// a sum of two products of them and an h a product with tanh of that. It is
// absolute: tanh near 0 keeps no more digits.
const gateTolerance = 5e-7

// eachISA runs f as a subtest for every instruction set, saying which it
// skipped.
func eachISA(t *testing.T, f func(t *testing.T)) {
	for _, name := range isaNames {
		t.Run(name, func(t *testing.T) {
			restore, ok := SwitchISA(name)
			if !ok {
				t.Skipf("this machine or build has no %s", name)
			}
			defer restore()
			f(t)
		})
	}
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()*2 - 1
	}
	return x
}

const sentinel = float32(-12345.678)

// guarded is a slice with sentinels on both sides, off elements after a
// boundary of 64 bytes or so.
type guarded struct {
	all []float32
	x   []float32
}

func guard(x []float32, off int) guarded {
	g := guarded{all: make([]float32, len(x)+off+64)}
	for i := range g.all {
		g.all[i] = sentinel
	}
	g.x = g.all[32+off:][:len(x):len(x)]
	copy(g.x, x)
	return g
}

func (g guarded) check(t *testing.T, what string) {
	t.Helper()
	off := len(g.all) - 64 - len(g.x)
	for i, v := range g.all {
		if (i < 32+off || i >= 32+off+len(g.x)) && v != sentinel {
			t.Fatalf("%s: wrote %v at %d, outside its %d elements", what, v, i-32-off, len(g.x))
		}
	}
}

// near fails unless got is want: within tol(i), or NaN or the same infinity
// where want is.
func near(t *testing.T, what string, got, want []float32, tol func(i int) float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d elements, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		switch {
		case (active.parts() > 1 || active.integer()) && math.IsInf(float64(w), 0) && g != g: // ∞ times parts of either sign, or in multiples of a unit
		case w != w || g != g:
			if (w != w) != (g != g) {
				t.Fatalf("%s: element %d: got %v, want %v", what, i, g, w)
			}
		case math.IsInf(float64(w), 0) || math.IsInf(float64(g), 0):
			if w != g {
				t.Fatalf("%s: element %d: got %v, want %v", what, i, g, w)
			}
		case math.Abs(float64(g)-float64(w)) > tol(i):
			t.Fatalf("%s: element %d: got %v, want %v, within %.1e", what, i, g, w, tol(i))
		}
	}
}

// within is a tolerance absolute below 1 and relative above.
func within(want []float32, tol float64) func(i int) float64 {
	return func(i int) float64 { return tol * max(1, math.Abs(float64(want[i]))) }
}

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// product is what Gemm should give, in float64, and its tolerance: k+1
// roundings of the sum of magnitudes (Higham, Accuracy and Stability, 3.1),
// twice, as a portable sum rounds products too.
func product(m, n, k int, a, b func(i, j int) float32) (c []float32, tol []float64) {
	c, tol = make([]float32, m*n), make([]float64, m*n)
	for i := range m {
		for j := range n {
			var s, mag float64
			for l := range k {
				p := float64(a(i, l)) * float64(b(l, j))
				s += p
				mag += math.Abs(p)
			}
			c[i*n+j] = float32(s)
			tol[i*n+j] = 2 * float64(k+2) * eps * (mag + 4)
		}
	}
	return c, tol
}

// intTolerance is what rounding a row and a column to integers of their units
// can change of their product: half a unit of each number, and a part of K has no
// larger units than all of it.
func intTolerance(k int, a, b func(l int) float32) float64 {
	var largest [2]float64
	var sum [2]float64
	for l := range k {
		for i, v := range []float32{a(l), b(l)} {
			v := math.Abs(float64(v))
			largest[i], sum[i] = max(largest[i], v), sum[i]+v
		}
	}
	i := min(active, isaVNNI) // 8 bits are for Joined alone
	row := largest[0] / float64(i.qmax())
	column := max(sum[1]/float64(math.MaxInt32/i.qmax()-int32(i.depth()/2)), largest[1]/math.MaxInt16)
	return 1.01 / 2 * (row*sum[1] + column*sum[0] + float64(k)*row*column/2)
}

// gemmCase multiplies by every way of packing and checks against product.
func gemmCase(t *testing.T, r *rand.Rand, m, n, k, off int, spoil func(a, b []float32)) {
	t.Helper()
	lda, ldb, ldc := k+off, n+off%3, n+off%5
	a, b := random(r, m*lda), random(r, k*ldb)
	if spoil != nil {
		spoil(a, b)
	}
	bt, at := make([]float32, n*(k+1)), make([]float32, k*(m+1))
	for l := range k {
		for j := range n {
			bt[j*(k+1)+l] = b[l*ldb+j]
		}
		for i := range m {
			at[l*(m+1)+i] = a[i*lda+l]
		}
	}
	want, tol := product(m, n, k, func(i, l int) float32 { return a[i*lda+l] }, func(l, j int) float32 { return b[l*ldb+j] })
	integer, parts := active.integer() && n >= leastIntColumns, active.parts()
	if n <= maxNarrow {
		parts = 0
	}
	switch {
	case integer:
		for i := range tol {
			tol[i] += intTolerance(k, func(l int) float32 { return a[i/n*lda+l] }, func(l int) float32 { return b[l*ldb+i%n] })
		}
	case parts == 1: // exact products of rounded operands
		want, tol = product(m, n, k, func(i, l int) float32 { return rounded(a[i*lda+l]) }, func(l, j int) float32 { return rounded(b[l*ldb+j]) })
	case parts == 2: // what two parts leave of both operands, 2⁻¹⁷ each, and the product of the second ones
		for i := range tol {
			tol[i] *= 1 + 0x1p-15/(2*float64(k+2)*eps)
		}
	}
	cut := func(x []float32, rows, cols, ld int) []float32 { // as short as allowed
		if rows == 0 || cols == 0 {
			return nil
		}
		return x[:(rows-1)*ld+cols]
	}
	a, b = guard(cut(a, m, k, lda), off).x, guard(cut(b, k, n, ldb), off).x
	at, bt = guard(cut(at, k, m, m+1), off).x, guard(cut(bt, n, k, k+1), off).x
	before := make([]float32, max(0, (m-1)*ldc+n))
	for i := range before {
		before[i] = sentinel
		if i%ldc < n {
			before[i] = float32(i%7) - 3
		}
	}
	size := fmt.Sprintf("%dx%dx%d offset %d", m, n, k, off)
	// check compares f's c with the product plus add, which is of c's elements.
	check := func(what string, add func(i int) float32, f func(c []float32)) {
		t.Helper()
		c := guard(cut(before, m, n, ldc), off)
		f(c.x)
		c.check(t, what)
		all, allTol := slices.Clone(before[:len(c.x)]), make([]float64, len(c.x))
		for i := range all {
			if row, col := i/ldc, i%ldc; col < n { // between rows nothing changes
				all[i] = add(i) + want[row*n+col]
				allTol[i] = tol[row*n+col]
			}
		}
		near(t, fmt.Sprintf("%s %s rows %d apart", what, size, ldc), c.x, all, func(i int) float64 { return allTol[i] })
	}
	p := Pack(b, k, n, ldb)
	changes, trans := NewPacked(k, n), NewPacked(k, n)
	changes.Repack(b, ldb)
	trans.RepackTrans(bt, k+1)
	if !slices.Equal(bits(changes.data), bits(trans.data)) {
		t.Fatalf("%s: Repack and RepackTrans differ", size)
	}
	bias, k1 := random(r, n), r.IntN(k+1)
	nothing := func(int) float32 { return 0 }
	biased := func(i int) float32 { return bias[i%ldc] }
	check("GemmBias", biased, func(c []float32) { GemmBias(m, a, lda, p, bias, c, ldc) })
	if k > 0 && n > 0 && m > 0 {
		b1, b2 := PackTwo(b, k1, b[min(k1*ldb, len(b)):], k-k1, n, ldb)
		x, y := term{a, lda, b1}, term{a[min(k1, k-1):], lda, b2}
		check("gemmSum", biased, func(c []float32) { gemmSum(m, x, y, bias, 0, c, ldc) })
		one, two := make([]float32, m*n), make([]float32, m*n)
		Gemm(m, a, lda, p, one, n, false)
		gemmSum(m, x, y, nil, 0, two, n)
		if !slices.Equal(bits(one), bits(two)) && k1 < k && !hasNaN(one) && active == active.float() && !p.narrow {
			t.Fatalf("%s: a sum of two products differs from Gemm of the whole", size)
		}
	}
	check("Gemm", nothing, func(c []float32) { Gemm(m, a, lda, p, c, ldc, false) })
	check("Gemm accumulating", func(i int) float32 { return before[i] }, func(c []float32) { Gemm(m, a, lda, p, c, ldc, true) })
	if active.parts() == 0 { // with parts it is that of AVX-512, or of generic.go
		check("GemmTN", nothing, func(c []float32) { GemmTN(m, n, k, at, m+1, b, ldb, c, ldc) })
	}
}

// rounded is x as a bfloat16.
func rounded(x float32) float32 { return math.Float32frombits(uint32(bfloat16(x)) << 16) }

func roundAll(x []float32) {
	for i, v := range x {
		x[i] = rounded(v)
	}
}

func hasNaN(x []float32) bool {
	return slices.ContainsFunc(x, func(v float32) bool { return v != v })
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

func TestGemm(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for n := 0; n <= 130; n++ {
			gemmCase(t, r, 1+n%17, n, (n*7)%23, n%8, nil)
			gemmCase(t, r, n, 1+n%37, 1+n%5, (n+3)%8, nil)
			gemmCase(t, r, 1+n%5, 1+n%40, n, (n+5)%8, nil)
		}
		for off := range 8 {
			gemmCase(t, r, 9, 45, 7, off, nil)
			gemmCase(t, r, 9, 0, 7, off, nil)
		}
		gemmCase(t, r, 250, 70, 9, 1, nil)
		gemmCase(t, r, 64, 384, 96, 0, nil)
		gemmCase(t, r, 9, 45, 23, 0, func(a, b []float32) { // two parts leave the most of this
			for _, x := range [][]float32{a, b} {
				for i := range x {
					x[i] = 1 + 0x1p-8 - 0x1p-16 - 0x1p-17
				}
			}
		})
		for n := range 131 {
			gemmCase(t, r, 1+n%37, n, 1+n%101, n%8, func(_, b []float32) { roundAll(b) })
		}
	})
}

func TestGemmNaN(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, bad := range []float32{nan, inf, -inf} {
			for m := 1; m <= 15; m++ {
				for _, n := range []int{41, 137} { // tiles of one panel, and of several
					gemmCase(t, r, m, n, 6, 0, func(a, b []float32) { a[r.IntN(len(a))] = bad })
					gemmCase(t, r, m, n, 6, 0, func(a, b []float32) { b[r.IntN(len(b))] = bad })
				}
			}
		}
	})
}

func TestGemmRowsAreIndependent(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		for _, s := range [][2]int{{1, 1}, {28, 7}, {4, 1}, {100, 13}, {384, 96}} {
			n, k := s[0], s[1]
			const most = 120
			a, b := random(r, most*k), Pack(random(r, k*n), k, n, n)
			want := make([]float32, most*n)
			for i := range most {
				Gemm(1, a[i*k:], k, b, want[i*n:], n, false)
			}
			for _, m := range []int{2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 15, 16, 27, 64, 113, most} {
				first := r.IntN(most - m + 1)
				got := make([]float32, m*n)
				Gemm(m, a[first*k:], k, b, got, n, false)
				if !slices.Equal(bits(got), bits(want[first*n:(first+m)*n])) {
					t.Fatalf("n %d, k %d: %d rows together give other bits than one by one", n, k, m)
				}
				for i := range got {
					got[i] = 1.5
				}
				one := slices.Clone(got)
				Gemm(m, a[first*k:], k, b, got, n, true)
				for i := range m {
					Gemm(1, a[(first+i)*k:], k, b, one[i*n:], n, true)
				}
				if !slices.Equal(bits(got), bits(one)) {
					t.Fatalf("n %d, k %d: %d rows together accumulate other bits than one by one", n, k, m)
				}
			}
		}
	})
}

func TestRepackReplacesAll(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		const k, n = 5, 70
		p, b := Pack(random(r, k*n), k, n, n), random(r, k*n)
		if active.integer() && p.ints == nil {
			t.Error("not in integers")
		}
		if allocs := testing.AllocsPerRun(10, func() { p.Repack(b, n) }); allocs != 0 {
			t.Errorf("Repack allocates %v times", allocs)
		}
		if q := Pack(b, k, n, n); !slices.Equal(p.data, q.data) || !slices.Equal(p.bf16, q.bf16) || !slices.Equal(p.ints, q.ints) || !slices.Equal(p.unit, q.unit) {
			t.Error("Repack differs from Pack")
		}
		p = NewPacked(k, n)
		p.Repack(b, n)
		if p.isa != active.float() {
			t.Error("a matrix that changes is packed in another precision")
		}
		a, got := random(r, 3*k), make([]float32, 3*n)
		want, tol := product(3, n, k, func(i, l int) float32 { return a[i*k+l] }, func(l, j int) float32 { return b[l*n+j] })
		Gemm(3, a, k, p, got, n, false)
		near(t, "NewPacked", got, want, func(i int) float64 { return tol[i] })
	})
}

// gateArguments are pre-activations over all of the range that matters.
func gateArguments(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] = float32(r.NormFloat64() * 40)
		case 1:
			x[i] = float32(r.NormFloat64() * 1e-3)
		default:
			x[i] = float32(r.NormFloat64() * 2)
		}
	}
	return x
}

// spoilSome puts NaN and infinities in places.
func spoilSome(r *rand.Rand, x []float32, bad ...float32) {
	for i := range x {
		if r.IntN(9) == 0 {
			x[i] = bad[r.IntN(len(bad))]
		}
	}
}

// sweep calls f for hidden sizes 0 to 130 at offsets 0 to 7, clean and with
// NaN and infinities.
func sweep(t *testing.T, f func(t *testing.T, r *rand.Rand, hidden, off int, spoil bool)) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 10))
		for hidden := 0; hidden <= 130; hidden++ {
			f(t, r, hidden, hidden%8, true)
			for off := range 8 {
				if hidden < 20 || off == hidden%8 {
					f(t, r, hidden, off, false)
				}
			}
		}
	})
}

func TestGates(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, hidden, off int, spoil bool) {
		rows := 1 + hidden%4
		ldz, ldc, ldh := 4*hidden+off, hidden+off%3, 2*hidden
		z, c := gateArguments(r, rows*ldz), random(r, rows*(ldc+1))
		if spoil {
			spoilSome(r, z, nan, inf, -inf)
			spoilSome(r, c, nan, inf, -inf)
		}
		if hidden > 0 {
			c = c[:(rows-1)*ldc+hidden]
		}
		wantC, wantH := slices.Clone(c), make([]float32, max(0, (rows-1)*ldh+hidden))
		gatesGeneric(rows, z, ldz, wantC, ldc, wantH, ldh, hidden)
		what := fmt.Sprintf("hidden %d offset %d", hidden, off)
		gz, gc, gh := guard(z, off), guard(c, off), guard(make([]float32, len(wantH)), off)
		GatesRows(rows, gz.x, ldz, gc.x, ldc, gh.x, ldh, hidden)
		gc.check(t, "c "+what)
		gh.check(t, "h "+what)
		near(t, "c "+what, gc.x, wantC, within(wantC, gateTolerance))
		near(t, "h "+what, gh.x, wantH, within(wantH, gateTolerance))
		if !slices.Equal(bits(gz.x), bits(z)) {
			t.Fatalf("%s: gates changed z", what)
		}
	})
}

// TestStep compares every bit with a product and its gates.
func TestStep(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		halves := []int{0, 1, 2}
		if active.parts() == 0 {
			halves = halves[:1]
		}
		for _, hidden := range []int{1, 7, 32, 48, 96, 256} {
			const k, ldx = 37, 40
			weights := [2][]float32{random(r, k*4*hidden), random(r, hidden*4*hidden)}
			for _, half := range halves { // matrices in bfloat16
				for _, w := range weights[:half] {
					roundAll(w)
				}
				input, recurrent := PackTwo(weights[0], k, weights[1], hidden, 4*hidden, 4*hidden)
				for _, m := range []int{0, 1, 15, 16, 17, 32, 33, 64, 70, 100, 130} {
					x, before, bias := random(r, m*ldx), random(r, m*hidden), random(r, 4*hidden)
					z, cell := make([]float32, m*4*hidden), random(r, m*hidden)
					for _, state := range [][]float32{nil, before} {
						if state == nil {
							GemmBias(m, x, ldx, input, bias, z, 4*hidden)
						} else {
							gemmSum(m, term{x, ldx, input}, term{state, hidden, recurrent}, bias, 0, z, 4*hidden)
						}
						wantC, wantH := slices.Clone(cell), make([]float32, m*hidden)
						stepGates(m, z, wantC, wantH, hidden)
						c, h := guard(cell, 3), guard(wantH, 5)
						clear(h.x)
						if state != nil { // in the same memory
							copy(h.x, state)
							state = h.x
						}
						room := guard(slices.Repeat([]float32{nan}, m*4*hidden), 1)
						Step(m, x, ldx, input, state, recurrent, bias, room.x, c.x, h.x, hidden)
						room.check(t, "Step z")
						c.check(t, "Step c")
						h.check(t, "Step h")
						if !slices.Equal(bits(c.x), bits(wantC)) || !slices.Equal(bits(h.x), bits(wantH)) {
							t.Fatalf("%d rows of %d units, before %v: other bits", m, hidden, state != nil)
						}
					}
				}
			}
		}
	})
}

// A hidden unit gives the same bits wherever it stands: in a row of any
// length, so in a vector's body or tail, and in any row.
func TestGatesUnitsAreIndependent(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		const most = 67
		row := func(z, c, h []float32) { GatesRows(1, z, len(z), c, len(c), h, len(h), len(h)) }
		z, c0 := gateArguments(r, 4*most), random(r, most)
		c, h := slices.Clone(c0), make([]float32, most)
		row(z, c, h)
		for j := range most {
			c1, h1 := []float32{c0[j]}, []float32{0}
			row([]float32{z[j], z[most+j], z[2*most+j], z[3*most+j]}, c1, h1)
			if c1[0] != c[j] || h1[0] != h[j] {
				t.Fatalf("unit %d alone gives %v, %v; among others %v, %v", j, c1[0], h1[0], c[j], h[j])
			}
		}
		const rows = 5
		z, c = gateArguments(r, rows*4*most), random(r, rows*most)
		cr, hr := slices.Clone(c), make([]float32, rows*most)
		GatesRows(rows, z, 4*most, cr, most, hr, most, most)
		h = make([]float32, rows*most)
		for i := range rows {
			row(z[i*4*most:][:4*most], c[i*most:][:most], h[i*most:][:most])
		}
		if !slices.Equal(bits(c), bits(cr)) || !slices.Equal(bits(h), bits(hr)) {
			t.Error("rows together differ from rows one by one")
		}
	})
}

func TestGatesTrain(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, hidden, off int, spoil bool) {
		z, cPrev := gateArguments(r, 4*hidden), random(r, hidden)
		if spoil {
			spoilSome(r, z[:hidden], nan, inf)
			spoilSome(r, z[hidden:2*hidden], nan, inf)
			spoilSome(r, z[2*hidden:], nan, inf, -inf)
			spoilSome(r, cPrev, nan)
		}
		wz, wc, wt, wh := slices.Clone(z), make([]float32, hidden), make([]float32, hidden), make([]float32, hidden)
		gatesTrainGeneric(wz, cPrev, wc, wt, wh, hidden)
		gz, gp := guard(z, off), guard(cPrev, (off+1)%8)
		gc, gt, gh := guard(wc, off), guard(wt, (off+5)%8), guard(wh, off)
		clear(gc.x)
		clear(gt.x)
		clear(gh.x)
		GatesTrain(gz.x, gp.x, gc.x, gt.x, gh.x, hidden)
		for _, p := range []struct {
			name string
			got  guarded
			want []float32
		}{{"z", gz, wz}, {"cPrev", gp, cPrev}, {"c", gc, wc}, {"tanhC", gt, wt}, {"h", gh, wh}} {
			what := fmt.Sprintf("%s, hidden %d offset %d", p.name, hidden, off)
			p.got.check(t, what)
			near(t, what, p.got.x, p.want, within(p.want, gateTolerance))
		}
		gz, gc = guard(z, off), guard(cPrev, off)
		GatesTrain(gz.x, gc.x, gc.x, gt.x, gh.x, hidden)
		near(t, "c in place", gc.x, wc, within(wc, gateTolerance))
	})
}

func TestGatesBackward(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, hidden, off int, spoil bool) {
		z, cPrev, tanhC, dh, dc := random(r, 4*hidden), random(r, hidden), random(r, hidden), random(r, hidden), random(r, hidden)
		if spoil {
			for _, x := range [][]float32{z, cPrev, tanhC, dh, dc} {
				spoilSome(r, x, nan)
			}
			spoilSome(r, dc, inf, -inf)
		}
		wz, wc := make([]float32, 4*hidden), slices.Clone(dc)
		gatesBackwardGeneric(wz, z, cPrev, tanhC, dh, wc, hidden)
		what := fmt.Sprintf("hidden %d offset %d", hidden, off)
		// Six factors of at most 2 in another order.
		tol := func(want []float32) func(int) float64 { return within(want, 16*eps) }
		gz, gd := guard(make([]float32, 4*hidden), off), guard(dc, (off+1)%8)
		GatesBackward(gz.x, guard(z, (off+2)%8).x, guard(cPrev, (off+3)%8).x, guard(tanhC, off).x, guard(dh, off).x, gd.x, hidden)
		gz.check(t, "dz "+what)
		gd.check(t, "dc "+what)
		near(t, "dz "+what, gz.x, wz, tol(wz))
		near(t, "dc "+what, gd.x, wc, tol(wc))
		gz, gd = guard(z, off), guard(dc, off)
		GatesBackward(gz.x, gz.x, cPrev, tanhC, dh, gd.x, hidden)
		near(t, "dz over z "+what, gz.x, wz, tol(wz))
	})
}

// The derivative agrees with differences of GatesTrain itself.
func TestGatesBackwardIsTheDerivative(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(13, 14))
		const hidden = 9
		z, cPrev, dh, dc := random(r, 4*hidden), random(r, hidden), random(r, hidden), random(r, hidden)
		loss := func(z, cPrev []float32) float64 {
			z = slices.Clone(z)
			c, tc, h := make([]float32, hidden), make([]float32, hidden), make([]float32, hidden)
			GatesTrain(z, cPrev, c, tc, h, hidden)
			var s float64
			for j := range hidden {
				s += float64(h[j])*float64(dh[j]) + float64(c[j])*float64(dc[j])
			}
			return s
		}
		act := slices.Clone(z)
		c, tc, h := make([]float32, hidden), make([]float32, hidden), make([]float32, hidden)
		GatesTrain(act, cPrev, c, tc, h, hidden)
		dz, dcp := make([]float32, 4*hidden), slices.Clone(dc)
		GatesBackward(dz, act, cPrev, tc, dh, dcp, hidden)
		const step = 1.0 / 64 // float32 differences: 1e-4 of curvature, 1e-5 of rounding
		difference := func(x []float32, j int) float64 {
			old := x[j]
			x[j] = old + step
			up := loss(z, cPrev)
			x[j] = old - step
			down := loss(z, cPrev)
			x[j] = old
			return (up - down) / (2 * step)
		}
		for j := range dz {
			if d := difference(z, j); math.Abs(d-float64(dz[j])) > 3e-4 {
				t.Errorf("dz[%d]: got %v, want %v", j, dz[j], d)
			}
		}
		for j := range dcp {
			if d := difference(cPrev, j); math.Abs(d-float64(dcp[j])) > 3e-4 {
				t.Errorf("dc[%d]: got %v, want %v", j, dcp[j], d)
			}
		}
	})
}

func TestTanh(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, n, off int, spoil bool) {
		x := gateArguments(r, n)
		if spoil {
			spoilSome(r, x, nan, inf, -inf)
		}
		want := slices.Clone(x)
		tanhGeneric(want)
		g := guard(x, off)
		Tanh(g.x)
		g.check(t, "Tanh")
		near(t, fmt.Sprintf("Tanh of %d", n), g.x, want, within(want, gateTolerance))
	})
}

func TestSoftmax(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, n, off int, spoil bool) {
		x := gateArguments(r, n)
		if spoil && n%2 == 0 {
			spoilSome(r, x, nan, inf, -inf)
		} else if spoil {
			for i := range x { // far from 0, where a sum would overflow or vanish
				x[i] = x[i]/8 - 300
			}
			spoilSome(r, x[:n/2], -inf)
		}
		want := slices.Clone(x)
		if n > 0 {
			softmaxGeneric(1, want, n, n)
		}
		g := guard(x, off)
		SoftmaxRows(1, g.x, n, n)
		g.check(t, "Softmax")
		// The exponentials are within 3e-7, and so is their sum.
		near(t, fmt.Sprintf("Softmax of %d", n), g.x, want, within(want, 1e-6))

		rows, ld := 3, n+off
		if n == 3 { // 16 rows of three go together
			rows, ld = 16*(off%3)+off, n+off/4
		}
		many := guard(gateArguments(r, max(0, (rows-1)*ld+n)), off)
		if spoil {
			spoilSome(r, many.x, nan, inf, -inf)
		}
		one := slices.Clone(many.x)
		SoftmaxRows(rows, many.x, ld, n)
		many.check(t, "SoftmaxRows")
		for i := range rows {
			SoftmaxRows(1, one[i*ld:], n, n)
		}
		for i, v := range one { // any NaN for a NaN
			if v != v && many.x[i] != many.x[i] {
				one[i], many.x[i] = 0, 0
			}
		}
		if !slices.Equal(bits(many.x), bits(one)) {
			t.Fatalf("rows of %d together differ from rows one by one", n)
		}
	})
}

// What an output's matrix is padded with is zeros, and no other column depends on it.
func TestPackOutput(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(37, 38))
		for _, n := range []int{1, 3, 4, 5, 16, 24, 32, 40, 70} {
			const m, k, ldb = 20, 37, 73
			a, b := random(r, m*k), random(r, k*ldb)
			p, plain := PackOutput(b, k, n, ldb), Pack(b, k, n, ldb)
			if p.N < n || p.N >= n+32 {
				t.Fatalf("%d columns became %d", n, p.N)
			}
			got, want := make([]float32, m*p.N), make([]float32, m*n)
			Gemm(m, a, k, p, got, p.N, false)
			Gemm(m, a, k, plain, want, n, false)
			for i := range m {
				near(t, fmt.Sprintf("row %d of %d columns", i, n), got[i*p.N:][:n], want[i*n:][:n], within(want, 0))
				for _, v := range got[i*p.N+n:][:p.N-n] {
					if v != 0 {
						t.Fatalf("%d columns: %v behind them", n, v)
					}
				}
			}
		}
	})
}

func TestSum(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, n, off int, spoil bool) {
		var terms [3][]float32
		for i := range terms {
			terms[i] = guard(gateArguments(r, n), (off+i)%8).x
			if spoil {
				spoilSome(r, terms[i], nan, inf, -inf)
			}
		}
		want := make([]float32, n)
		for i := range want {
			want[i] = (terms[0][i] + terms[1][i]) + terms[2][i]
		}
		g := guard(make([]float32, n), off)
		Sum(g.x, terms[0], terms[1], terms[2])
		g.check(t, "Sum")
		near(t, fmt.Sprintf("Sum of %d", n), g.x, want, within(want, 0))
	})
}

func TestAddScaled(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, n, off int, spoil bool) {
		dst, x := random(r, n), random(r, n)
		if spoil {
			spoilSome(r, x, nan, inf, -inf)
		}
		want := slices.Clone(dst)
		addScaledGeneric(want, x, .7)
		g := guard(dst, off)
		AddScaled(g.x, guard(x, (off+3)%8).x, .7)
		g.check(t, "AddScaled")
		near(t, fmt.Sprintf("AddScaled of %d", n), g.x, want, within(want, 2*eps))
	})
}

func TestAdamW(t *testing.T) {
	a := AdamW{Clip: .3, Step: .02, Correction: 1.7, Decay: .01, Epsilon: 1e-4}
	sweep(t, func(t *testing.T, r *rand.Rand, n, off int, spoil bool) {
		w, g, m, v := random(r, n), random(r, n), random(r, n), random(r, n)
		for i := range v {
			v[i] *= v[i]
		}
		if spoil {
			spoilSome(r, g, nan, inf, -inf)
		}
		want := [][]float32{slices.Clone(w), slices.Clone(m), slices.Clone(v)}
		a.updateGeneric(want[0], g, want[1], want[2])
		var got []guarded
		for i, x := range [][]float32{w, m, v} {
			got = append(got, guard(x, (off+i)%8))
		}
		a.Update(got[0].x, guard(g, (off+3)%8).x, got[1].x, got[2].x)
		for i, what := range []string{"w", "m", "v"} {
			got[i].check(t, "Update "+what)
			near(t, fmt.Sprintf("Update %s of %d", what, n), got[i].x, want[i], func(int) float64 { return 0 })
		}
	})
}

func TestStandardiseRows(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, n, off int, spoil bool) {
		rows := 1 + r.IntN(4)
		x, mean, invStd := random(r, rows*n), random(r, n), random(r, n)
		for i := range x {
			x[i] *= 10
		}
		for i := range mean {
			mean[i], invStd[i] = 10*mean[i], invStd[i]+2
		}
		if spoil {
			spoilSome(r, x, nan, inf, -inf)
		}
		want := make([]float32, rows*n)
		standardiseGeneric(rows, want, x, mean, invStd, 6)
		g := guard(make([]float32, rows*n), off)
		StandardiseRows(rows, g.x, guard(x, (off+3)%8).x, guard(mean, (off+5)%8).x, guard(invStd, off).x, 6)
		g.check(t, "StandardiseRows")
		// The same two operations a number, so the same bits.
		near(t, fmt.Sprintf("StandardiseRows of %d by %d", rows, n), g.x, want, func(int) float64 { return 0 })
	})
}

// lines is a random case for SumLines.
type lines struct {
	groups, n    int
	table, whole *Table // with scales of any size, and with multiples
	ids          []uint32
	first        uint32
	ends         []uint32
	scales       []float32
}

func randomLines(r *rand.Rand, d, groups, n int) lines {
	const rows = 50
	l := lines{groups: groups, n: n, first: uint32(r.IntN(3))}
	data, multiples := make([]int8, rows*d), make([]float32, rows)
	for i := range data {
		data[i] = int8(r.IntN(256) - 128)
	}
	for i := range multiples {
		multiples[i] = float32(r.IntN(256)) / 256
	}
	l.table, l.whole = NewTable(data, random(r, rows), d), NewTable(data, multiples, d)
	l.ids = make([]uint32, l.first)
	for range n * groups {
		for range r.IntN(9) {
			l.ids = append(l.ids, uint32(r.IntN(rows)))
		}
		l.ends = append(l.ends, uint32(len(l.ids)))
	}
	for i := range l.ids {
		if i < int(l.first) {
			l.ids[i] = 1 << 31 // not of these lines: never looked at
		}
	}
	l.ids = append(l.ids, 1<<31, 1<<31)[:len(l.ids)+r.IntN(3)]
	l.scales = random(r, n*groups)
	return l
}

func TestSumLines(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, d, off int, spoil bool) {
		l := randomLines(r, d, 1+r.IntN(4), r.IntN(5))
		ldd := d + off
		dst := random(r, max(0, (l.n-1)*ldd+d))
		if spoil {
			spoilSome(r, l.table.scale, nan, inf)
		}
		what := fmt.Sprintf("d %d, %d lines of %d groups", d, l.n, l.groups)
		// At most 36 sums, each rounded once or twice, of at most 36·128.
		tol := func(int) float64 { return 36 * 2 * eps * 36 * 128 }
		for _, table := range []*Table{l.table, l.whole} {
			want := slices.Clone(dst)
			if d > 0 {
				sumLinesGeneric(want, ldd, table, l.ids, l.first, l.ends, l.scales, l.groups, l.n)
			}
			g := guard(dst, off)
			SumLines(g.x, ldd, table, l.ids, l.first, l.ends, l.scales, l.groups)
			g.check(t, what)
			near(t, "SumLines "+what, g.x, want, tol)
		}
	})
}

func TestSumRowsF32(t *testing.T) {
	sweep(t, func(t *testing.T, r *rand.Rand, d, off int, spoil bool) {
		const rows, most = 50, 36
		dst, table, ids := random(r, d), random(r, rows*d), make([]uint32, r.IntN(most))
		for i := range ids {
			ids[i] = uint32(r.IntN(rows))
		}
		if spoil {
			spoilSome(r, table, nan, inf)
		}
		want := slices.Clone(dst)
		sumRowsF32Generic(want, table, rows, ids, .7)
		g := guard(dst, off)
		SumRowsF32(g.x, table, ids, .7)
		g.check(t, "SumRowsF32")
		near(t, fmt.Sprintf("SumRowsF32 of %d ids, d %d", len(ids), d), g.x, want, func(int) float64 { return most * 2 * eps * most })
		if !spoil {
			for i := range ids {
				SumRowsF32(dst, table, ids[i:i+1], .7)
			}
			if !slices.Equal(bits(dst), bits(g.x)) {
				t.Fatalf("d %d: %d ids together give other bits than one by one", d, len(ids))
			}
		}
	})
}

// A line's sum has the same bits by itself as among others.
func TestSumsOfOneLine(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 16))
		for _, d := range []int{1, 7, 16, 64, 77, 128, 130} {
			l := randomLines(r, d, 3, 4)
			var want [2][]float32
			for i, table := range []*Table{l.table, l.whole} {
				want[i] = make([]float32, l.n*d)
				SumLines(want[i], d, table, l.ids, l.first, l.ends, l.scales, l.groups)
			}
			at := l.first
			for i := range l.n {
				from, to := i*l.groups, (i+1)*l.groups
				for k, table := range []*Table{l.table, l.whole} {
					got := make([]float32, d)
					SumLines(got, d, table, l.ids, at, l.ends[from:to], l.scales[from:to], l.groups)
					if !slices.Equal(bits(got), bits(want[k][i*d:(i+1)*d])) {
						t.Fatalf("d %d, table %d: line %d differs by itself", d, k, i)
					}
				}
				at = l.ends[to-1]
			}
		}
	})
}

func TestPanics(t *testing.T) {
	x := make([]float32, 64)
	p, table := Pack(x, 4, 4, 4), NewTable(make([]int8, 64), x[:16], 4)
	eachISA(t, func(t *testing.T) {
		mustPanic(t, map[string]func(){
			"Pack":            func() { Pack(x, 9, 9, 9) },
			"Gemm a":          func() { Gemm(3, x[:11], 4, p, x, 4, false) },
			"Gemm c":          func() { Gemm(3, x, 4, p, x[:11], 4, false) },
			"Gemm lda":        func() { Gemm(3, x, 3, p, x, 4, false) },
			"Gemm m":          func() { Gemm(-1, x, 4, p, x, 4, false) },
			"GemmTN a":        func() { GemmTN(4, 4, 4, x[:15], 4, x, 4, x, 4) },
			"GemmTN b":        func() { GemmTN(4, 4, 4, x, 4, x[:15], 4, x, 4) },
			"GemmTN c":        func() { GemmTN(4, 4, 4, x, 4, x, 4, x[:15], 4) },
			"GemmBias":        func() { GemmBias(3, x, 4, p, x[:3], x, 4) },
			"GatesRows z":     func() { GatesRows(1, x[:15], 16, x, 4, x, 4, 4) },
			"GatesRows c":     func() { GatesRows(1, x, 16, x[:3], 4, x, 4, 4) },
			"GatesRows h":     func() { GatesRows(1, x, 16, x, 4, x[:3], 4, 4) },
			"GatesTrain":      func() { GatesTrain(x, x, x, x[:3], x, 4) },
			"GatesBackward":   func() { GatesBackward(x, x, x, x, x[:3], x, 4) },
			"AddScaled":       func() { AddScaled(x, x[:3], 1) },
			"Update":          func() { new(AdamW).Update(x, x, x[:3], x) },
			"Sum":             func() { Sum(x, x, x, x[:3]) },
			"StandardiseRows": func() { StandardiseRows(16, x, x[:63], x[:4], x, 1) },
			"invStd":          func() { StandardiseRows(1, x, x, x[:4], x[:3], 1) },
			"NewTable":        func() { NewTable(make([]int8, 16), x[:3], 4) },
			"SumLines id":     func() { SumLines(x, 4, table, []uint32{3, 16}, 0, []uint32{2}, x, 1) },
			"SumLines empty":  func() { SumLines(x, 4, NewTable(nil, nil, 4), []uint32{0}, 0, []uint32{1}, x, 1) },
			"SumRowsF32":      func() { SumRowsF32(x[:4], x, []uint32{16}, 1) },
			"SumRowsF32 none": func() { SumRowsF32(x[:4], nil, []uint32{0}, 1) },
			"SumLines ends":   func() { SumLines(x, 4, table, make([]uint32, 4), 0, []uint32{2, 1}, x, 1) },
			"SumLines ids":    func() { SumLines(x, 4, table, make([]uint32, 4), 0, []uint32{5}, x, 1) },
			"SumLines groups": func() { SumLines(x, 4, table, make([]uint32, 4), 0, []uint32{4}, x, 0) },
		})
	})
}

// mustPanic fails where a call does not panic with a string that says kernel.
func mustPanic(t *testing.T, calls map[string]func()) {
	t.Helper()
	for name, f := range calls {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "kernel: ") {
					t.Errorf("%s: got %v, want a panic that begins with kernel:", name, s)
				}
			}()
			f()
		}()
	}
}

func TestNothingAllocates(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		const m, n, k = 20, 70, 30
		a, c := make([]float32, m*k), make([]float32, m*n)
		p := Pack(make([]float32, k*n), k, n, n)
		in, rec := Pack(make([]float32, k*12), k, 12, 12), Pack(make([]float32, 3*12), 3, 12, 12)
		in32, rec32 := Pack(make([]float32, k*128), k, 128, 128), Pack(make([]float32, 32*128), 32, 128, 128)
		z, c128, h := make([]float32, m*128), make([]float32, m*128), make([]float32, m*32)
		dst, table, ids := make([]float32, 64), NewTable(make([]int8, 64*10), make([]float32, 10), 64), []uint32{1, 2, 3}
		joined, words := Join(make([]float32, k*128), k, make([]float32, 32*128), 32), make([]uint32, 2*m*32)
		run := func() {
			Gemm(m, a, k, p, c, n, true)
			GemmTN(k, k, m, a, k, a, k, c, k)
			GatesRows(1, c, 200, a, 50, a, 50, 50)
			Step(m, a, k, in, nil, rec, c, c, a, dst, 3)
			Step(m, a, k, in32, nil, rec32, c128, z, c128, h, 32)
			SoftmaxRows(m, c, n, n)
			Tanh(c)
			StandardiseRows(2, c, c, c[:51], c, 6)
			if joined != nil {
				joined.Round(m, a, k, words, joined.Stride())
				joined.Step(m, words, false, c128, z, c128, h, words[m*joined.Stride():])
			}
			SumLines(dst, 64, table, ids, 0, ids[2:], c, 1)
		}
		allocs := testing.AllocsPerRun(10, run)
		if underRace { // its pools forget by chance: one run of many must do without
			for range 50 {
				allocs = min(allocs, testing.AllocsPerRun(1, run))
			}
		}
		if allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	})
}

func TestChoose(t *testing.T) {
	best := isaGeneric
	for i := range isa(len(isaNames)) {
		if supported(i) && !i.onlyByName() {
			best = i
		}
	}
	wants := map[string]isa{"": best, "no such": best}
	below := isaGeneric // the best up to the name, without those that are by theirs only
	for i, name := range isaNames {
		if wants[name] = below; supported(isa(i)) {
			if wants[name] = isa(i); !isa(i).onlyByName() {
				below = isa(i)
			}
		}
	}
	for name, want := range wants {
		if got := choose(name); got != want {
			t.Errorf("LINNET_ISA=%q: got %s, want %s", name, isaNames[got], isaNames[want])
		}
	}
	for _, name := range ISAs() {
		restore, ok := SwitchISA(name)
		if !ok || ISA() != name || choose(name) != active {
			t.Errorf("SwitchISA(%q): %v, now %s", name, ok, ISA())
		}
		want := map[string]string{"madd": "int16", "avxvnni": "int16", "vnni": "int16", "vnni8": "int8", "bfmmla": "float32 in 16 bits", "amx": "float32 in 16 bits", "amx8": "bfloat16"}[name]
		if got := Precision(); got != cmp.Or(want, "float32") {
			t.Errorf("%s: got products of %s, want %s", name, got, cmp.Or(want, "float32"))
		}
		restore()
	}
	if _, ok := SwitchISA("no such"); ok {
		t.Error("SwitchISA turned to what does not exist")
	}
}

func TestBfloat16(t *testing.T) {
	for _, c := range []struct {
		x    float32
		want uint16
	}{
		{0, 0}, {1, 0x3f80}, {-1, 0xbf80}, {1 + 1.0/256, 0x3f80}, {1 + 3.0/256, 0x3f82}, {1 + 1.001/256, 0x3f81},
		{inf, 0x7f80}, {-inf, 0xff80}, {math.MaxFloat32, 0x7f80}, {1e-40, 0}, {-1e-40, 0x8000}, {nan, 0x7fc0},
	} {
		if got := bfloat16(c.x); got != c.want {
			t.Errorf("%v: got %#x, want %#x", c.x, got, c.want)
		}
	}
}
