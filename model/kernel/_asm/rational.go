package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The gates beside products of integers with AVX2, whose registers have no room
// for the cubics' coefficients: tanh is a rational function, which takes 9 instructions
// where the exponential takes 14, and shares its division with another.

// tanh(x) is x·p(x²)/q(x²) for |x| ≤ furthest and what it is there beyond, within
// 8.5e-6, an eighth of what the rounding of a state may change: the coefficients, from
// the constant on, are those of the minimax approximation up to 6.2 (by Lawson's
// iteration of weighted least squares over 8,000 points).
const furthest = 5.948

var (
	numerator   = []float64{0.9999645044472809, 0.11406762166214375, 0.0014703950410511859}
	denominator = []float64{1, 0.4472901934659416, 0.017336751421759358, 5.3619631885445474e-05}
)

// quotient is n/d, the value of a gate before the division.
type quotient struct{ n, d VecVirtual }

// rationalTanh has the constants of times·tanh(by·x).
type rationalTanh struct {
	lo, hi VecVirtual
	p      [3]Mem
	q      [4]Mem
}

func newRationalTanh(name string, times, by float64) *rationalTanh {
	all := func(i int, of string, x float64) Mem {
		w := math.Float32bits(float32(x * math.Pow(by, float64(i))))
		return global(fmt.Sprintf("%s%d%s", of, i, name), w, w, w, w, w, w, w, w)
	}
	k := &rationalTanh{lo: avx2.broadcast("lo"+name, -furthest/by), hi: avx2.broadcast("hi"+name, furthest/by)}
	for i := range k.p {
		k.p[i] = all(2*i+1, "p", times*numerator[i])
	}
	for i := range k.q {
		k.q[i] = all(2*i, "q", denominator[i])
	}
	return k
}

// of computes numerator and denominator at x. A NaN stays one: MIN and MAX return their last
// operand then.
func (k *rationalTanh) of(x Op) quotient {
	y, u, n, d := YMM(), YMM(), YMM(), YMM()
	VMINPS(x, k.hi, y)
	VMAXPS(y, k.lo, y)
	VMULPS(y, y, u)
	VMOVUPS(k.p[2], n)
	VMOVUPS(k.q[3], d)
	for i := 2; i >= 0; i-- {
		VFMADD213PS(k.q[i], u, d)
		if i < 2 {
			VFMADD213PS(k.p[i], u, n)
		}
	}
	VMULPS(y, n, n)
	return quotient{n, d}
}

// gatesRational writes the gates beside products of integers with AVX2.
func gatesRational() {
	TEXT("gatesRational", NOSPLIT, "func(rows, vectors uintptr, z *float32, ldz, gate uintptr, c, h *float32, ld uintptr, ints *uint32, ldw uintptr, most float32)")
	gatesDoc("gatesRational", "8·vectors",
		"within 2e-5 times max(1, |c|) for finite c, with rows of c and h ld bytes apart, those of z ldz and the four of one gate bytes.",
		"ints, of rows ldw bytes apart, gets h as roundMADD makes it.")
	Pragma("noescape")
	tanh, half := newRationalTanh("TanhFraction", 1, 1), avx2.broadcast("half", 0.5)
	odd := newRationalTanh("SigmoidFraction", 0.5, 0.5) // σ less 1/2
	sigmoid := func(x Op) quotient {
		f := odd.of(x)
		VFMADD231PS(half, f.d, f.n)
		return f
	}
	product := func(a, b quotient) VecVirtual {
		VMULPS(a.n, b.n, b.n)
		VMULPS(a.d, b.d, b.d)
		VDIVPS(b.d, b.n, b.n)
		return b.n
	}
	rows, z, ldz, gate, c, h, ld := param("rows"), param("z"), param("ldz"), param("gate"), param("c"), param("h"), param("ld")
	ints, most := param("ints"), YMM()
	VBROADCASTSS(slot("most"), most)
	gate3, size, at := GP64(), GP64(), GP64() // at in bytes of integers
	LEAQ(Mem{Base: gate, Index: gate, Scale: 2}, gate3)
	ADDQ(z, gate3)
	MOVQ(slot("vectors"), size)
	SHLQ(Imm(4), size)
	of := func(r Register) Mem { return Mem{Base: r, Index: at, Scale: 2} }
	// All cells of a row before what needs them, which would wait.
	each := func(label string, f func()) {
		XORQ(at, at)
		Label(label)
		f()
		ADDQ(Imm(16), at)
		CMPQ(at, size)
		JCS(LabelRef(label))
	}
	Label("row")
	f, g := GP64(), GP64()
	LEAQ(Mem{Base: z, Index: gate, Scale: 1}, f)
	LEAQ(Mem{Base: z, Index: gate, Scale: 2}, g)
	each("cells", func() {
		cell, forget := product(sigmoid(of(z)), tanh.of(of(g))), sigmoid(of(f))
		VDIVPS(forget.d, forget.n, forget.n)
		VFMADD231PS(of(c), forget.n, cell)
		VMOVUPS(cell, of(c))
	})
	each("outputs", func() {
		x, other := product(sigmoid(of(gate3)), tanh.of(of(c))), XMM()
		VMOVUPS(x, of(h))
		VMULPS(most, x, x)
		VCVTPS2DQ(x, x)
		packWords(x, other, Mem{Base: ints, Index: at, Scale: 1})
	})
	ADDQ(ldz, z)
	ADDQ(ldz, gate3)
	ADDQ(ld, c)
	ADDQ(ld, h)
	ADDQ(slot("ldw"), ints)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}
