package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// sumLinesMADD writes SumLines of a Table with multiples for AVX2. Rows go two at a
// time: made 16 bits and interleaved, so that a lane of 32 bits has the two of one
// column, which one instruction multiplies and adds. The last one of an odd number goes
// with itself, times 0.
func sumLinesMADD() {
	intSum("sumLinesMADD")
	tab, multiples, ids, d, rows := param("table"), param("multiples"), param("ids"), param("d"), param("rows")
	// The rest stays on the stack: there are too few registers.
	dst, first, lastAhead := slot("dst"), slot("first"), slot("count")
	local := AllocLocal(8 + 256)
	columns, sum := local, func(i int) Mem { return local.Offset(8 + 32*i) }
	p := newGroupPlace()
	pos, stop := p.pos, p.stop
	var acc [8]VecVirtual
	for i := range acc {
		acc[i] = YMM()
	}

	// two adds the rows of the ids at pos and at second, of the latter as many as bits says.
	blocks := 0
	two := func(second Register, bits Register) {
		label := fmt.Sprintf("fetched%d", blocks)
		blocks++
		CMPQ(pos, lastAhead)
		JGT(LabelRef(label))
		for i := range 2 {
			r := GP64()
			MOVL(Mem{Base: ids, Index: pos, Scale: 4, Disp: 4 * (ahead + i)}, r.As32())
			IMULQ(d, r)
			PREFETCHT0(Mem{Base: tab, Index: r, Scale: 1})
		}
		Label(label)
		var row [2]Register
		var m [2]Register
		for i := range row {
			r, factor := GP64(), GP32()
			at := Mem{Base: ids, Index: pos, Scale: 4, Disp: 4 * i}
			if i == 1 && second != nil {
				at = Mem{Base: ids, Index: second, Scale: 4}
			}
			MOVL(at, r.As32())
			CMPQ(r, rows)
			JAE(LabelRef("bad"))
			MOVBLZX(Mem{Base: multiples, Index: r, Scale: 1}, factor)
			IMULQ(d, r)
			row[i], m[i] = r, factor
		}
		SHLL(Imm(16), m[1])
		ORL(m[1], m[0])
		if bits != nil {
			BZHIL(bits, m[0], m[0])
		}
		factors := YMM()
		VMOVD(m[0], factors.AsX())
		VPBROADCASTD(factors.AsX(), factors)
		for i := range 4 {
			a, b, pairs := YMM(), YMM(), YMM()
			VPMOVSXBW(Mem{Base: tab, Index: row[0], Scale: 1, Disp: 16 * i}, a)
			VPMOVSXBW(Mem{Base: tab, Index: row[1], Scale: 1, Disp: 16 * i}, b)
			VPUNPCKLWD(b, a, pairs)
			VPUNPCKHWD(b, a, a)
			VPMADDWD(pairs, factors, pairs)
			VPMADDWD(a, factors, a)
			VPADDD(pairs, acc[2*i], acc[2*i])
			VPADDD(a, acc[2*i+1], acc[2*i+1])
		}
	}

	SUBQ(Imm(ahead+2), lastAhead)
	Label("line")
	MOVQ(d, columns)
	Label("columns")
	{
		zero := YMM()
		VPXOR(zero, zero, zero)
		for i := range acc {
			VMOVDQU(zero, sum(i))
		}
	}
	intGroups(2, first, p, func() {
		for _, r := range acc {
			VPXOR(r, r, r)
		}
	}, func() {
		two(nil, nil)
	}, func() {
		bits := GP64()
		MOVQ(stop, bits)
		SUBQ(pos, bits)
		SHLQ(Imm(4), bits)
		ADDQ(Imm(16), bits)
		two(stop, bits.As32())
	}, func(scale Mem) {
		weight, unit := YMM(), YMM()
		VBROADCASTSS(slot("unit"), unit)
		VBROADCASTSS(scale, weight)
		VMULPS(unit, weight, weight)
		for i, a := range acc {
			VCVTDQ2PS(a, a)
			VMULPS(a, weight, a)
			VADDPS(sum(i), a, a)
			VMOVUPS(a, sum(i))
		}
	})
	// Of 16 columns one vector has the first and the third four, one the others.
	out := GP64()
	MOVQ(dst, out)
	for i := range 4 {
		odd, even, x := YMM(), YMM(), YMM()
		VMOVUPS(sum(2*i), even)
		VMOVUPS(sum(2*i+1), odd)
		for half, order := range []uint64{0x20, 0x31} {
			VPERM2F128(Imm(order), odd, even, x)
			to := Mem{Base: out, Disp: 64*i + 32*half}
			VADDPS(to, x, x)
			VMOVUPS(x, to)
		}
	}
	nextColumns(dst, tab, d, columns, first, pos)
}
