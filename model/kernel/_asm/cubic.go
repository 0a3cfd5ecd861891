package main

import (
	"fmt"
	"math"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The gates beside products on tiles, which keep 16 bits of a number at most:
// there tanh and σ are piecewise cubics over 32 parts of an interval, whose
// coefficients stand in registers. One that is off by 5e-6 takes 11 instructions,
// two thirds of what the exponential takes, and only four of them need the
// multipliers that tiles share.

// pieces is how many lanes VPERMI2PS chooses from.
const pieces = 32

// cubics are those of one odd function f over width·[0, 31.25].
type cubics struct {
	hi, magic VecVirtual       // the last argument; what leaves arguments' pieces in the low bits
	coef      [4][2]VecVirtual // from the highest power to the constant
}

func newCubics(name string, width float64, f func(float64) float64) *cubics {
	v := avx512
	k := &cubics{
		hi:    v.broadcast("hi"+name, width*(pieces-0.75)),
		magic: v.broadcast("magic"+name, magic*width),
	}
	var words [4][pieces]uint32
	for n := range pieces {
		for i, c := range interpolate(f, width*float64(n), width/2) {
			words[3-i][n] = math.Float32bits(float32(c))
		}
	}
	for i := range k.coef {
		table := global(fmt.Sprintf("cubic%d%s", 3-i, name), words[i][:]...)
		for half := range k.coef[i] {
			k.coef[i][half] = v.reg()
			VMOVUPS(table.Offset(64*half), k.coef[i][half])
		}
	}
	return k
}

// interpolate returns the coefficients, from the constant on, of the cubic that
// meets f at four points around x, those of Chebyshev's that spread its error
// evenly over x ± r. Around 0 it meets f there, so that the other side, which has
// its sign turned, goes on from it.
func interpolate(f func(float64) float64, x, r float64) (c [4]float64) {
	var at, d [4]float64 // points and divided differences
	for i := range at {
		at[i] = x + r*math.Cos(math.Pi*(float64(i)+0.5)/4)
		if x == 0 {
			at[i] = r * float64(i) / 3
		}
		d[i] = f(at[i])
	}
	for i := 1; i < 4; i++ {
		for j := 3; j >= i; j-- {
			d[j] = (d[j] - d[j-1]) / (at[j] - at[j-i])
		}
	}
	for i := 3; i >= 0; i-- { // c = c·(x − at[i]) + d[i]
		for j := 3; j > 0; j-- {
			c[j] = c[j-1] - at[i]*c[j]
		}
		c[0] = d[i] - at[i]*c[0]
	}
	return c
}

// code is instructions, each written by a function, so that those of others can
// stand among them.
type code []func()

// write writes c.
func (c code) write() {
	for _, f := range c {
		f()
	}
}

// of computes f(x) into p; abs has all bits but the sign. A NaN stays one: MIN
// returns its last operand then.
func (k *cubics) of(x Op, abs, p VecVirtual) code {
	v := avx512
	y, n := v.reg(), v.reg()
	c := code{
		func() { VANDPS(x, abs, y) },
		func() { VMINPS(y, k.hi, y) },
		func() { VADDPS(k.magic, y, n) },
	}
	for i, coef := range k.coef {
		at := v.reg()
		switch i {
		case 0:
			at = p
		case 3:
			at = n
		}
		if i < 3 {
			c = append(c, func() { VMOVAPS(n, at) })
		}
		c = append(c, func() { VPERMI2PS(coef[1], coef[0], at) })
		if i > 0 {
			c = append(c, func() { VFMADD213PS(at, y, p) })
		}
	}
	// The sign of x: p or (x and not abs).
	return append(c, func() { VPTERNLOGD(Imm(0xf2), x, abs, p) })
}

// tileGates are the constants of the gates beside tiles.
type tileGates struct {
	tanh, sigmoid *cubics // the latter less 1/2
	abs, half     VecVirtual
}

func newTileGates() *tileGates {
	abs := avx512.reg()
	VPBROADCASTD(global("abs", 1<<31-1), abs)
	return &tileGates{
		tanh:    newCubics("Tanh", 0.25, math.Tanh),
		sigmoid: newCubics("Sigmoid", 0.5, func(x float64) float64 { return math.Tanh(x/2) / 2 }),
		abs:     abs,
		half:    avx512.broadcast("half", 0.5),
	}
}

// gates computes 16 units of a row; z(i) is where gate i stands.
func (k *tileGates) gates(z func(i int) Op, c, h Mem) code {
	v := avx512
	cell, i, f, g, o, t := v.reg(), v.reg(), v.reg(), v.reg(), v.reg(), v.reg()
	return slices.Concat(
		k.tanh.of(z(2), k.abs, g), k.sigmoid.of(z(0), k.abs, i),
		code{
			func() { VMOVUPS(c, cell) },
			func() { VMULPS(g, i, i) },
			func() { VADDPS(cell, g, g) },
		},
		k.sigmoid.of(z(1), k.abs, f),
		code{
			func() { VFMADD231PS(f, cell, i) },
			func() { VFMADD231PS(k.half, g, i) },
			func() { VMOVUPS(i, c) },
		},
		k.tanh.of(i, k.abs, t), k.sigmoid.of(z(3), k.abs, o),
		code{
			func() { VMULPS(t, o, o) },
			func() { VFMADD231PS(k.half, t, o) },
			func() { VMOVUPS(o, h) },
		})
}

// gatesCubic writes the gates by themselves: for the last block of a step on tiles, and
// for steps of integers with VNNI.
func gatesCubic() {
	TEXT("gatesCubic", NOSPLIT, "func(rows, vectors uintptr, z *float32, ldz, gate uintptr, c, h *float32, ld uintptr)")
	gatesDoc("gatesCubic", "16·vectors",
		"within 2e-5 times max(1, |c|) for finite c, with rows of c and h ld bytes apart, those of z ldz and the four of one gate bytes.")
	Pragma("noescape")
	k := newTileGates()
	rows, z, ldz, gate, c, h, ld := param("rows"), param("z"), param("ldz"), param("gate"), param("c"), param("h"), param("ld")
	gate3, n := GP64(), GP64()
	LEAQ(Mem{Base: gate, Index: gate, Scale: 2}, gate3)
	// From the end of a row to the next.
	MOVQ(slot("vectors"), n)
	SHLQ(Imm(6), n)
	SUBQ(n, ldz)
	SUBQ(n, ld)
	Label("row")
	MOVQ(slot("vectors"), n)
	Label("vector")
	k.gates(func(i int) Op {
		return []Mem{{Base: z}, {Base: z, Index: gate, Scale: 1}, {Base: z, Index: gate, Scale: 2}, {Base: z, Index: gate3, Scale: 1}}[i]
	}, Mem{Base: c}, Mem{Base: h}).write()
	ADDQ(Imm(64), z)
	ADDQ(Imm(64), c)
	ADDQ(Imm(64), h)
	DECQ(n)
	JNZ(LabelRef("vector"))
	ADDQ(ldz, z)
	ADDQ(ld, c)
	ADDQ(ld, h)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}
