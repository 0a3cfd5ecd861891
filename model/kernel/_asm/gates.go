package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The exponential of the gates. With N = 8 (AVX2) or 32 (AVX-512) and
// x·log2(e)·N = n + r, n whole and |r| ≤ 1/2,
//
//	exp(x) = 2^(n div N) · 2^((n mod N)/N) · 2^(r/N)
//
// of which the first goes into the exponent's bits, the second comes from a
// table in a register and the third is a short polynomial (Tang 1989). Adding
// 1.5·2^23 leaves n in the low bits of a float32.

const (
	magic = 1.5 * (1 << 23)
	// limit bounds the gates' arguments: σ(−21) is 8e-10, and the products of three
	// denominators, (1+exp(21))²·(1+exp(2·21)), stay below 2^126, so that there is 1/d;
	// two of them times a c up to 1e11 stay finite, and a step adds 1 to c at most.
	limit = 21
)

// constants of one function, in registers or memory.
type constants struct {
	v          vector
	lo, hi     VecVirtual
	magic      VecVirtual
	table      []VecVirtual // 2^(i/N) less i in the bits where n is added
	shift      uint64       // of n to those bits
	poly       []Op         // of r, from the highest power to the first
	one        VecVirtual
	reciprocal bool // of divide

	neg, once, twice VecVirtual // N·log2(e) times −1, 1 and 2, where there is need
}

var globals = map[string]Mem{}

// global is read-only data of some 32-bit words.
func global(name string, words ...uint32) Mem {
	if m, ok := globals[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i, w := range words {
		DATA(4*i, U32(w))
	}
	globals[name] = m
	return m
}

// broadcast loads one number into all lanes of a new register.
func (v vector) broadcast(name string, x float64) VecVirtual {
	r := v.reg()
	VBROADCASTSS(global(name, math.Float32bits(float32(x))), r)
	return r
}

func (v vector) constants(lo, hi float64) *constants {
	n := 8
	if v.lanes == 16 {
		n = 32
	}
	k := &constants{v: v, shift: uint64(23 - int(math.Log2(float64(n))))}
	var words []uint32
	for i := range n {
		words = append(words, math.Float32bits(float32(math.Exp2(float64(i)/float64(n))))-uint32(i)<<k.shift)
	}
	table := global("table"+v.isa, words...)
	for i := range n / v.lanes {
		r := v.reg()
		VMOVUPS(table.Offset(i*v.bytes()), r)
		k.table = append(k.table, r)
	}
	// Powers of ln(2)/N, two of them shifted so that the largest error over
	// |r| ≤ 1/2 is the least: 3e-8 (N = 8), 5e-8 (N = 32).
	a := math.Ln2 / float64(n)
	if n == 8 {
		p2 := a*a/2 + a*a*a*a/24*2*(math.Sqrt2-1)/4
		for i, c := range []float64{a * a * a / 6, p2, a} {
			x := math.Float32bits(float32(c))
			k.poly = append(k.poly, global(fmt.Sprintf("poly%d%s", 3-i, v.isa), x, x, x, x, x, x, x, x))
		}
	} else {
		k.poly = []Op{v.broadcast("poly2"+v.isa, a*a/2), v.broadcast("poly1"+v.isa, a+a*a*a/6*3/16)}
	}
	k.lo, k.hi = v.broadcast(fmt.Sprintf("lo%v", -lo), lo), v.broadcast(fmt.Sprintf("hi%v", hi), hi)
	k.magic, k.one = v.broadcast("magic", magic), v.broadcast("one", 1)
	return k
}

// scale is N·log2(e)·by.
func (k *constants) scale(name string, by float64) VecVirtual {
	n := float64(int(1) << (23 - k.shift))
	return k.v.broadcast(name+k.v.isa, by*n*math.Log2E)
}

// factors returns two numbers in new registers, whose product is exp(by·x): what is added
// to it takes no instruction of its own. scale is that of by, x a register or memory. A
// NaN stays one: MIN and MAX return their last operand then.
func (k *constants) factors(x Op, scale VecVirtual) (s, p VecVirtual) {
	y := k.v.reg()
	VMINPS(x, k.hi, y)
	VMAXPS(y, k.lo, y)
	t, n := k.v.reg(), k.v.reg()
	s = k.v.reg()
	VMOVAPS(k.magic, t)
	VFMADD231PS(scale, y, t)
	VSUBPS(k.magic, t, n)
	VFMSUB213PS(n, scale, y) // r
	if len(k.table) == 1 {
		VPERMPS(k.table[0], t, s)
	} else {
		VMOVAPS(t, s)
		VPERMI2PS(k.table[1], k.table[0], s)
	}
	VPSLLD(Imm(k.shift), t, t)
	VPADDD(t, s, s)
	p = n
	VMOVAPS(k.poly[0], p)
	for _, c := range k.poly[1:] {
		VFMADD213PS(c, y, p)
	}
	VFMADD213PS(k.one, y, p)
	return s, p
}

// exp is exp(x).
func (k *constants) exp(x Op) VecVirtual {
	s, p := k.factors(x, k.once)
	VMULPS(p, s, s)
	return s
}

// sigmoidDenominator is 1+exp(−x): σ(x) is 1 divided by it.
func (k *constants) sigmoidDenominator(x Op) VecVirtual {
	s, p := k.factors(x, k.neg)
	VFMADD213PS(k.one, p, s)
	return s
}

// fraction is exp(2x)−1 and exp(2x)+1, of which tanh(x) is the quotient.
func (k *constants) fraction(x Op) (n, d VecVirtual) {
	s, p := k.factors(x, k.twice)
	n = k.v.reg()
	VMOVAPS(s, n)
	VFMSUB213PS(k.one, p, n)
	VFMADD213PS(k.one, p, s)
	return n, s
}

// sigmoid is σ(x).
func (k *constants) sigmoid(x Op) VecVirtual { return k.divide(k.one, k.sigmoidDenominator(x)) }

// tanh is tanh(x).
func (k *constants) tanh(x Op) VecVirtual { return k.divide(k.fraction(x)) }

// divide is n/d in d's register, or, where an instruction for 14 bits of 1/d is
// welcome, n·(1/d) with one step of Newton's, within two units in the last
// place: a division of 16 lanes takes 16 cycles.
func (k *constants) divide(n, d VecVirtual) VecVirtual {
	if !k.reciprocal {
		VDIVPS(d, n, d)
		return d
	}
	r := k.v.reg()
	VRCP14PS(d, r)
	VFNMADD213PS(k.one, r, d) // 1 − d·r
	VFMADD213PS(r, r, d)
	if n != k.one {
		VMULPS(n, d, d)
	}
	return d
}

// gateConstants are those of the gates.
func (v vector) gateConstants() *constants {
	k := v.constants(-limit, limit)
	k.neg, k.twice = k.scale("neg", -1), k.scale("twice", 2)
	return k
}

// gates are those of a vector of units, whose pre-activations z gives.
func (k *constants) gates(l lanes, z func(i int) Op, c, h Mem) {
	cell := k.cells(l, z, c)
	k.outputs(l, z(3), cell, h)
}

// cells writes the cells of gates, and returns them.
func (k *constants) cells(l lanes, z func(i int) Op, c Mem) VecVirtual {
	// c/f + g/(gd·i) with one division: (c·gd·i + f·g) / (f·gd·i).
	i, f := k.sigmoidDenominator(z(0)), k.sigmoidDenominator(z(1))
	g, gd := k.fraction(z(2))
	VMULPS(gd, i, i)
	VMULPS(f, g, g)
	VFMADD231PS(l.operand(c), i, g)
	VMULPS(i, f, f)
	cell := k.divide(g, f)
	l.store(cell, c)
	return cell
}

// outputs writes those of gates, of cells c.
func (k *constants) outputs(l lanes, z, c Op, h Mem) {
	o := k.sigmoidDenominator(z)
	n, d := k.fraction(c)
	VMULPS(d, o, o)
	l.store(k.divide(n, o), h)
}

// lanes reads and writes vectors, all lanes or the first few.
type lanes struct {
	v    vector
	mask Op // nil for all
}

// tail returns lanes of the first n; n is lost.
func (v vector) tail(n Register) lanes {
	if v.lanes == 16 {
		one, k := GP32(), K()
		MOVL(U32(1), one)
		SHLXL(n.(GPVirtual).As32(), one, one)
		DECL(one)
		KMOVW(one, k)
		return lanes{v, k}
	}
	p, m := GP64(), YMM()
	LEAQ(v.tailMask().Offset(32), p)
	SHLQ(Imm(2), n)
	SUBQ(n, p)
	VMOVUPS(Mem{Base: p}, m)
	return lanes{v, m}
}

// tailMask is eight lanes of ones and eight of zeros.
func (v vector) tailMask() Mem {
	words := make([]uint32, 16)
	for i := range 8 {
		words[i] = math.MaxUint32
	}
	return global("tailmask", words...)
}

func (l lanes) load(m Mem) VecVirtual {
	r := l.v.reg()
	switch {
	case l.mask == nil:
		VMOVUPS(m, r)
	case l.v.lanes == 16:
		VMOVUPS_Z(m, l.mask, r)
	default:
		VMASKMOVPS(m, l.mask, r)
	}
	return r
}

// loadOr is load with the lanes left out from another register.
func (l lanes) loadOr(m Mem, other VecVirtual) VecVirtual {
	r := l.v.reg()
	switch {
	case l.mask == nil:
		return l.load(m)
	case l.v.lanes == 16:
		VMOVAPS(other, r)
		VMOVUPS(m, l.mask, r)
	default:
		VMASKMOVPS(m, l.mask, r)
		VBLENDVPS(l.mask, r, other, r)
	}
	return r
}

// operand is m itself where all lanes are read, else a register.
func (l lanes) operand(m Mem) Op {
	if l.mask == nil {
		return m
	}
	return l.load(m)
}

func (l lanes) store(r VecVirtual, m Mem) {
	if l.mask == nil {
		VMOVUPS(r, m)
		return
	}
	if l.v.lanes == 16 {
		VMOVUPS(r, l.mask, m)
	} else {
		VMASKMOVPS(r, l.mask, m)
	}
}

// sweep runs body over n lanes, the last ones masked, and moves the pointers;
// it leaves them where the full vectors end. name tells its labels from those of
// another sweep.
func (v vector) sweep(name string, n Register, pointers []Register, body func(l lanes)) {
	full, rest := GP64(), GP64()
	MOVQ(n, full)
	SHRQ(Imm(v.log2()), full)
	JZ(LabelRef("rest" + name))
	Label("full" + name)
	body(lanes{v, nil})
	for _, p := range pointers {
		ADDQ(U32(v.bytes()), p)
	}
	DECQ(full)
	JNZ(LabelRef("full" + name))
	Label("rest" + name)
	MOVQ(n, rest)
	ANDQ(Imm(uint64(v.lanes-1)), rest)
	JZ(LabelRef("end" + name))
	body(v.tail(rest))
	Label("end" + name)
}

// gateRow addresses the four gates in a row of 4·hidden numbers, with two pointers and
// the distance between gates.
type gateRow struct{ p, p3, step Register }

func newGateRow(p, hidden4 Register) gateRow {
	f := gateRow{p, GP64(), hidden4}
	LEAQ(Mem{Base: hidden4, Index: hidden4, Scale: 2}, f.p3)
	ADDQ(p, f.p3)
	return f
}

func (f gateRow) at(i int) Mem {
	if i == 3 {
		return Mem{Base: f.p3}
	}
	m := Mem{Base: f.p}
	if i > 0 {
		m.Index, m.Scale = f.step, uint8(i)
	}
	return m
}

// gatesDoc is the comment of gates of so many units.
func gatesDoc(name, units string, more ...string) {
	Doc(append([]string{name + " is", "",
		"\tfor r < rows, j < " + units + ":",
		"\t\tc[r,j] = σ(z[r,f,j])·c[r,j] + σ(z[r,i,j])·tanh(z[r,g,j])",
		"\t\th[r,j] = σ(z[r,o,j])·tanh(c[r,j])", ""}, more...)...)
}

// gates writes GatesRows.
func gates(v vector) {
	TEXT("gates"+v.isa, NOSPLIT, "func(rows uintptr, z *float32, ldz uintptr, c *float32, ldc uintptr, h *float32, ldh, hidden uintptr)")
	gatesDoc("gates"+v.isa, "hidden", "with the distances of rows in bytes.")
	Pragma("noescape")
	k := v.gateConstants()
	k.reciprocal = v.lanes == 16
	hidden4 := param("hidden")
	SHLQ(Imm(2), hidden4)
	z := newGateRow(param("z"), hidden4)
	c, h, rows := param("c"), param("h"), param("rows")
	back, step := GP64(), GP64() // back is how far a sweep moves its pointers
	MOVQ(param("hidden"), back)
	ANDQ(I32(-v.lanes), back)
	SHLQ(Imm(2), back)
	of := func(l lanes, i int) Op { return l.operand(z.at(i)) }
	Label("row")
	if v.lanes == 16 {
		v.sweep("", param("hidden"), []Register{z.p, z.p3, c, h}, func(l lanes) {
			k.gates(l, func(i int) Op { return of(l, i) }, Mem{Base: c}, Mem{Base: h})
		})
	} else { // all cells of a row before what needs them, which would wait
		v.sweep("cells", param("hidden"), []Register{z.p, c}, func(l lanes) {
			k.cells(l, func(i int) Op { return of(l, i) }, Mem{Base: c})
		})
		SUBQ(back, c)
		v.sweep("outputs", param("hidden"), []Register{z.p3, c, h}, func(l lanes) {
			k.outputs(l, of(l, 3), l.operand(Mem{Base: c}), Mem{Base: h})
		})
	}
	// On to the next row from where the full vectors end.
	DECQ(rows)
	JZ(LabelRef("done"))
	next := func(ld string, ps ...Register) {
		Load(Param(ld), step)
		SUBQ(back, step)
		for _, p := range ps {
			ADDQ(step, p)
		}
	}
	next("ldz", z.p, z.p3)
	next("ldc", c)
	next("ldh", h)
	JMP(LabelRef("row"))
	Label("done")
	VZEROUPPER()
	RET()
}

func gatesTrain(v vector) {
	TEXT("gatesTrain"+v.isa, NOSPLIT, "func(z, cPrev, c, tanhC, h *float32, hidden uintptr)")
	Doc("gatesTrain" + v.isa + " is GatesTrain.")
	Pragma("noescape")
	k := v.gateConstants()
	n, hidden4 := param("hidden"), GP64()
	MOVQ(n, hidden4)
	SHLQ(Imm(2), hidden4)
	z := newGateRow(param("z"), hidden4)
	cPrev, c, tanhC, h := param("cPrev"), param("c"), param("tanhC"), param("h")
	v.sweep("", n, []Register{z.p, z.p3, cPrev, c, tanhC, h}, func(l lanes) {
		i := k.sigmoid(l.operand(z.at(0)))
		l.store(i, z.at(0))
		cell := k.tanh(l.operand(z.at(2)))
		l.store(cell, z.at(2))
		VMULPS(i, cell, cell)
		f := k.sigmoid(l.operand(z.at(1)))
		l.store(f, z.at(1))
		VFMADD231PS(l.operand(Mem{Base: cPrev}), f, cell)
		l.store(cell, Mem{Base: c})
		tc := k.tanh(cell)
		l.store(tc, Mem{Base: tanhC})
		o := k.sigmoid(l.operand(z.at(3)))
		l.store(o, z.at(3))
		VMULPS(o, tc, tc)
		l.store(tc, Mem{Base: h})
	})
	VZEROUPPER()
	RET()
}

func gatesBackward(v vector) {
	TEXT("gatesBackward"+v.isa, NOSPLIT, "func(dz, z, cPrev, tanhC, dh, dc *float32, hidden uintptr)")
	Doc("gatesBackward" + v.isa + " is GatesBackward.")
	Pragma("noescape")
	one := v.broadcast("one", 1)
	n, hidden4 := param("hidden"), GP64()
	MOVQ(n, hidden4)
	SHLQ(Imm(2), hidden4)
	dz, z := newGateRow(param("dz"), hidden4), newGateRow(param("z"), hidden4)
	cPrev, tanhC, dhp, dcp := param("cPrev"), param("tanhC"), param("dh"), param("dc")
	v.sweep("", n, []Register{dz.p, dz.p3, z.p, z.p3, cPrev, tanhC, dhp, dcp}, func(l lanes) {
		slope := func(x VecVirtual) VecVirtual { // 1 − x²
			r := v.reg()
			VMOVAPS(one, r)
			VFNMADD231PS(x, x, r)
			return r
		}
		curve := func(x VecVirtual) VecVirtual { // x − x²
			r := v.reg()
			VMOVAPS(x, r)
			VFNMADD231PS(x, x, r)
			return r
		}
		o, tc, dh := l.load(z.at(3)), l.load(Mem{Base: tanhC}), l.load(Mem{Base: dhp})
		d := slope(tc)
		VMULPS(o, d, d)
		VMULPS(dh, d, d)
		VADDPS(l.operand(Mem{Base: dcp}), d, d)
		do := curve(o)
		VMULPS(tc, do, do)
		VMULPS(dh, do, do)
		i, f, g := l.load(z.at(0)), l.load(z.at(1)), l.load(z.at(2))
		l.store(do, dz.at(3)) // dz may be z: all of it has been read
		di := curve(i)
		VMULPS(g, di, di)
		VMULPS(d, di, di)
		l.store(di, dz.at(0))
		df := curve(f)
		VMULPS(l.operand(Mem{Base: cPrev}), df, df)
		VMULPS(d, df, df)
		l.store(df, dz.at(1))
		dg := slope(g)
		VMULPS(i, dg, dg)
		VMULPS(d, dg, dg)
		l.store(dg, dz.at(2))
		VMULPS(f, d, d)
		l.store(d, Mem{Base: dcp})
	})
	VZEROUPPER()
	RET()
}

func tanh(v vector) {
	TEXT("tanh"+v.isa, NOSPLIT, "func(x *float32, n uintptr)")
	Doc("tanh" + v.isa + " is Tanh.")
	Pragma("noescape")
	k := v.gateConstants()
	x := param("x")
	v.sweep("", param("n"), []Register{x}, func(l lanes) {
		l.store(k.tanh(l.operand(Mem{Base: x})), Mem{Base: x})
	})
	VZEROUPPER()
	RET()
}

// softmax writes SoftmaxRows in three sweeps a row, or, with AVX-512, in registers where
// two hold a row. As many rows of three numbers as a vector has lanes, those of the label
// set that is the default, are turned to three vectors.
func softmax(v vector) {
	TEXT("softmax"+v.isa, NOSPLIT, "func(rows uintptr, x *float32, ld, n uintptr)")
	Doc("softmax" + v.isa + " is SoftmaxRows, with ld in bytes.")
	Pragma("noescape")
	k := v.constants(-87, 0)
	k.once = k.scale("once", 1)
	lowest := v.broadcast("lowest", math.Inf(-1))
	rows, x, n, ld, p := param("rows"), param("x"), param("n"), param("ld"), GP64()
	top, sum := v.reg(), v.reg()
	CMPQ(n, Imm(3))
	JNE(LabelRef("left"))
	CMPQ(ld, Imm(4*3))
	JNE(LabelRef("left"))
	Label("rows")
	CMPQ(rows, Imm(uint64(v.lanes)))
	JL(LabelRef("left"))
	k.threes(x)
	ADDQ(Imm(uint64(3*v.bytes())), x)
	SUBQ(Imm(uint64(v.lanes)), rows)
	JMP(LabelRef("rows"))
	Label("left")
	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	if v.lanes == 16 {
		k.fewClasses(rows, x, ld, n, p, lowest)
	}
	Label("row")
	VMOVAPS(lowest, top)
	MOVQ(x, p)
	v.sweep("Max", n, []Register{p}, func(l lanes) {
		e := l.loadOr(Mem{Base: p}, lowest)
		VMAXPS(e, top, top)
	})
	v.all(top, VMAXPS)
	VXORPS(sum.AsX(), sum.AsX(), sum.AsX())
	MOVQ(x, p)
	v.sweep("Exp", n, []Register{p}, func(l lanes) {
		e := l.load(Mem{Base: p})
		VSUBPS(top, e, e)
		e = k.exp(e)
		l.store(e, Mem{Base: p})
		switch {
		case l.mask == nil:
			VADDPS(e, sum, sum)
		case v.lanes == 16:
			VADDPS(e, sum, l.mask, sum)
		default:
			VANDPS(l.mask, e, e)
			VADDPS(e, sum, sum)
		}
	})
	v.all(sum, VADDPS)
	k.invert(sum)
	MOVQ(x, p)
	v.sweep("Divide", n, []Register{p}, func(l lanes) {
		e := l.load(Mem{Base: p})
		VMULPS(sum, e, e)
		l.store(e, Mem{Base: p})
	})
	ADDQ(ld, x)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("done")
	VZEROUPPER()
	RET()
}

// fewClasses is the softmax of rows that two vectors hold. A row is read before the one
// ahead of it is written: a load that touches what a mask leaves out of a store would
// wait for that.
func (k *constants) fewClasses(rows, x, ld, n, p Register, lowest VecVirtual) {
	v := k.v
	CMPQ(n, Imm(uint64(2*v.lanes)))
	JGT(LabelRef("row"))
	bits, all := GP64(), [2]lanes{{v, K()}, {v, K()}}
	MOVQ(U32(1), bits)
	SHLXQ(n, bits, bits)
	DECQ(bits)
	for _, l := range all {
		KMOVW(bits.As32(), l.mask)
		SHRQ(Imm(uint64(v.lanes)), bits)
	}
	next := [2]VecVirtual{v.reg(), v.reg()}
	read := func() {
		for i, l := range all {
			VMOVAPS(lowest, next[i])
			VMOVUPS(Mem{Base: x, Disp: i * v.bytes()}, l.mask, next[i])
		}
	}
	read()
	Label("few")
	top, sum, e := v.reg(), v.reg(), [2]VecVirtual{v.reg(), v.reg()}
	VMAXPS(next[1], next[0], top)
	v.all(top, VMAXPS)
	for i := range e {
		VSUBPS(top, next[i], e[i])
	}
	MOVQ(x, p)
	ADDQ(ld, x)
	DECQ(rows)
	JZ(LabelRef("last"))
	read()
	Label("last")
	for i, l := range all {
		e[i] = k.exp(e[i])
		VMOVAPS_Z(e[i], l.mask, e[i]) // what exp makes of −∞ would be divided to a denormal, which takes long
	}
	VADDPS(e[1], e[0], sum)
	v.all(sum, VADDPS)
	k.invert(sum)
	for i, l := range all {
		VMULPS(sum, e[i], e[i])
		l.store(e[i], Mem{Base: p, Disp: i * v.bytes()})
	}
	TESTQ(rows, rows)
	JNZ(LabelRef("few"))
	JMP(LabelRef("done"))
}

// invert puts 1/sum, the same number in all lanes, in its place. Fewer lanes take less
// time to divide.
func (k *constants) invert(sum VecVirtual) {
	VDIVPS(sum.AsX(), k.one.AsX(), sum.AsX())
	VBROADCASTSS(sum.AsX(), sum)
}

// threes is the softmax of a row of three numbers at x a lane; sums go in the order
// of all.
func (k *constants) threes(x Register) {
	var in [3]VecVirtual
	for i := range in {
		in[i] = k.v.reg()
		VMOVUPS(Mem{Base: x, Disp: i * k.v.bytes()}, in[i])
	}
	split, join := k.v.split16, k.v.join16
	if k.v.lanes == 8 {
		split, join = k.v.split8, k.v.join8
	}
	out := split(in)
	top := k.v.reg()
	VMAXPS(out[1], out[0], top)
	VMAXPS(out[2], top, top)
	for i := range out {
		VSUBPS(top, out[i], out[i])
		out[i] = k.exp(out[i])
	}
	sum := k.v.reg()
	VADDPS(out[2], out[0], sum)
	VADDPS(out[1], sum, sum)
	VDIVPS(sum, k.one, sum)
	for i := range out {
		VMULPS(sum, out[i], out[i])
	}
	for i, r := range join(out) {
		VMOVUPS(r, Mem{Base: x, Disp: i * k.v.bytes()})
	}
}

// indices are integers in lanes, read-only data.
func (v vector) indices(name string, of func(lane int) int) Mem {
	words := make([]uint32, v.lanes)
	for lane := range words {
		words[lane] = uint32(of(lane))
	}
	return global(name, words...)
}

// split16 turns 16 rows of three numbers to three vectors. Number i of row r stands at
// 3·r+i; with two vectors at hand, the places of both count on, and a third takes part
// in the second step.
func (v vector) split16(in [3]VecVirtual) (out [3]VecVirtual) {
	for i := range out {
		first := v.reg()
		VMOVUPS(v.indices(fmt.Sprintf("split%d", i), func(r int) int { return (3*r + i) % 32 }), first)
		VPERMI2PS(in[1], in[0], first)
		out[i] = v.reg()
		VMOVUPS(v.indices(fmt.Sprintf("splitRest%d", i), func(r int) int {
			if at := 3*r + i; at >= 32 {
				return at - 16
			}
			return r
		}), out[i])
		VPERMI2PS(in[2], first, out[i])
	}
	return out
}

// join16 undoes split16.
func (v vector) join16(out [3]VecVirtual) (in [3]VecVirtual) {
	for i := range in {
		pair := v.reg()
		VMOVUPS(v.indices(fmt.Sprintf("join%d", i), func(lane int) int { return (16*i+lane)/3 + (16*i+lane)%3%2*16 }), pair)
		VPERMI2PS(out[1], out[0], pair)
		in[i] = v.reg()
		VMOVUPS(v.indices(fmt.Sprintf("joinRest%d", i), func(lane int) int {
			if at := 16*i + lane; at%3 == 2 {
				return 16 + at/3
			}
			return lane
		}), in[i])
		VPERMI2PS(out[2], pair, in[i])
	}
	return in
}

// split8 is split16 of 8 rows. Lane l of vector k has number (8·k+l) mod 3, another
// one in each vector, so a blend takes all of one number and a permutation orders them.
func (v vector) split8(in [3]VecVirtual) (out [3]VecVirtual) {
	for i := range out {
		out[i] = v.blend(in, func(l int) int { return 2 * (i - l + 9) % 3 })
		order := v.reg()
		VMOVUPS(v.indices(fmt.Sprintf("order%d", i), func(r int) int { return (3*r + i) % 8 }), order)
		VPERMPS(out[i], order, out[i])
	}
	return out
}

// join8 undoes split8.
func (v vector) join8(out [3]VecVirtual) (in [3]VecVirtual) {
	for i := range out {
		order := v.reg()
		// Lane l has number i of row r where 3·r+i is l modulo 8, and 3·3 is 1.
		VMOVUPS(v.indices(fmt.Sprintf("place%d", i), func(l int) int { return 3 * (l - i + 8) % 8 }), order)
		VPERMPS(out[i], order, out[i])
	}
	for i := range in {
		in[i] = v.blend(out, func(l int) int { return (8*i + l) % 3 })
	}
	return in
}

// blend takes each of eight lanes from one of three vectors.
func (v vector) blend(from [3]VecVirtual, of func(lane int) int) VecVirtual {
	var masks [3]uint64
	for l := range 8 {
		masks[of(l)] |= 1 << l
	}
	r := v.reg()
	VBLENDPS(Imm(masks[1]), from[1], from[0], r)
	VBLENDPS(Imm(masks[2]), from[2], r, r)
	return r
}

// all puts the sum (or what op does) of all lanes of r into each of them.
func (v vector) all(r VecVirtual, op func(...Op)) {
	t := v.reg()
	if v.lanes == 16 {
		VSHUFF32X4(Imm(0x4e), r, r, t)
		op(t, r, r)
		VSHUFF32X4(Imm(0xb1), r, r, t)
		op(t, r, r)
	} else {
		VPERM2F128(Imm(1), r, r, t)
		op(t, r, r)
	}
	VPERMILPS(Imm(0x4e), r, t)
	op(t, r, r)
	VPERMILPS(Imm(0xb1), r, t)
	op(t, r, r)
}

func addScaled(v vector) {
	TEXT("addScaled"+v.isa, NOSPLIT, "func(dst, x *float32, n uintptr, scale float32)")
	Doc("addScaled" + v.isa + " is AddScaled.")
	Pragma("noescape")
	dst, x := param("dst"), param("x")
	s := v.reg()
	VBROADCASTSS(slot("scale"), s)
	v.sweep("", param("n"), []Register{dst, x}, func(l lanes) {
		r := l.load(Mem{Base: dst})
		VFMADD231PS(l.operand(Mem{Base: x}), s, r)
		l.store(r, Mem{Base: dst})
	})
	VZEROUPPER()
	RET()
}

// sum writes Sum of a vector or more. The last one may begin among those before.
func sum(v vector) {
	TEXT("sum"+v.isa, NOSPLIT, "func(dst, x, y, z *float32, n uintptr)")
	Doc("sum"+v.isa+" is Sum", "", fmt.Sprintf("for n ≥ %d.", v.lanes))
	Pragma("noescape")
	dst, x, y, z, last, at := param("dst"), param("x"), param("y"), param("z"), param("n"), GP64()
	SUBQ(Imm(uint64(v.lanes)), last)
	XORQ(at, at)
	Label("vector")
	of := func(p Register) Mem { return Mem{Base: p, Index: at, Scale: 4} }
	r := v.reg()
	VMOVUPS(of(x), r)
	VADDPS(of(y), r, r)
	VADDPS(of(z), r, r)
	VMOVUPS(r, of(dst))
	CMPQ(at, last)
	JEQ(LabelRef("done"))
	ADDQ(Imm(uint64(v.lanes)), at)
	CMPQ(at, last)
	CMOVQGT(last, at)
	JMP(LabelRef("vector"))
	Label("done")
	VZEROUPPER()
	RET()
}

// standardise bounds by MINPS and MAXPS, which give their second operand where
// one is a NaN: that must be the number.
func standardise(v vector) {
	TEXT("standardise"+v.isa, NOSPLIT, "func(rows uintptr, dst, x, mean, invStd *float32, n uintptr, limit float32)")
	Doc("standardise" + v.isa + " is StandardiseRows.")
	Pragma("noescape")
	rows, dst, x, n := param("rows"), param("dst"), param("x"), param("n")
	low, high := v.zero(), v.reg()
	VBROADCASTSS(slot("limit"), high)
	VSUBPS(high, low, low)
	Label("row")
	mean, invStd := param("mean"), param("invStd")
	v.sweep("", n, []Register{dst, x, mean, invStd}, func(l lanes) {
		r := l.load(Mem{Base: x})
		VSUBPS(l.operand(Mem{Base: mean}), r, r)
		VMULPS(l.operand(Mem{Base: invStd}), r, r)
		VMINPS(r, high, r)
		VMAXPS(r, low, r)
		l.store(r, Mem{Base: dst})
	})
	// On to the next row from where the full vectors end.
	left := GP64()
	MOVQ(n, left)
	ANDQ(Imm(uint64(v.lanes-1)), left)
	LEAQ(Mem{Base: dst, Index: left, Scale: 4}, dst)
	LEAQ(Mem{Base: x, Index: left, Scale: 4}, x)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}
