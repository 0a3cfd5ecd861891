package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// sumLinesVNNI writes SumLines of a Table with multiples. Rows go four at a
// time: their bytes are interleaved, so that a lane of 32 bits has the four of
// one column, which one instruction multiplies and adds. The last one to four
// of a group go apart; those that are missing are the last one again, times 0.
func sumLinesVNNI() {
	intSum("sumLinesVNNI")
	tab, multiples, ids, d, rows := param("table"), param("multiples"), param("ids"), param("d"), param("rows")
	// The rest stays on the stack: there are too few registers.
	dst, first, lastAhead, columns := slot("dst"), slot("first"), slot("count"), AllocLocal(8)
	unit := XMM()
	VMOVSS(slot("unit"), unit)
	var sums, acc, x [4]VecVirtual
	for i := range 4 {
		sums[i], acc[i] = ZMM(), ZMM()
	}
	p := newGroupPlace()
	pos, stop := p.pos, p.stop
	weight := ZMM()

	// four adds four rows, whose ids id gives; with bits, as many as that is
	// bytes.
	blocks := 0
	four := func(id func(i int, r Register), bits Register) {
		blocks++
		m := GP32()
		label := fmt.Sprintf("fetched%d", blocks)
		CMPQ(pos, lastAhead)
		JGT(LabelRef(label))
		for i := range 4 {
			r := GP64()
			MOVL(Mem{Base: ids, Index: pos, Scale: 4, Disp: 4 * (ahead + i)}, r.As32())
			IMULQ(d, r)
			PREFETCHT0(Mem{Base: tab, Index: r, Scale: 1})
		}
		Label(label)
		for i := 3; i >= 0; i-- {
			r := GP64()
			id(i, r)
			CMPQ(r, rows)
			JAE(LabelRef("bad"))
			if i == 3 {
				MOVBLZX(Mem{Base: multiples, Index: r, Scale: 1}, m)
			} else {
				SHLL(Imm(8), m)
				MOVB(Mem{Base: multiples, Index: r, Scale: 1}, m.As8L())
			}
			IMULQ(d, r)
			x[i] = ZMM()
			VMOVDQU64(Mem{Base: tab, Index: r, Scale: 1}, x[i])
		}
		if bits != nil {
			BZHIL(bits, m, m)
		}
		factors := ZMM()
		VPBROADCASTD(m, factors)
		var pairs [4]VecVirtual
		for i := range 4 {
			pairs[i] = ZMM()
		}
		VPUNPCKLBW(x[1], x[0], pairs[0])
		VPUNPCKHBW(x[1], x[0], pairs[1])
		VPUNPCKLBW(x[3], x[2], pairs[2])
		VPUNPCKHBW(x[3], x[2], pairs[3])
		for i := range 2 {
			low, high := ZMM(), ZMM()
			VPUNPCKLWD(pairs[2+i], pairs[i], low)
			VPUNPCKHWD(pairs[2+i], pairs[i], high)
			VPDPBUSD(low, factors, acc[2*i])
			VPDPBUSD(high, factors, acc[2*i+1])
		}
	}

	SUBQ(Imm(ahead+4), lastAhead)
	Label("line")
	MOVQ(d, columns)
	Label("columns")
	for _, r := range sums {
		VPXORD(r, r, r)
	}
	intGroups(4, first, p, func() {
		for _, r := range acc {
			VPXORD(r, r, r)
		}
	}, func() {
		four(func(i int, r Register) {
			MOVL(Mem{Base: ids, Index: pos, Scale: 4, Disp: 4 * i}, r.(GP).As32())
		}, nil)
	}, func() {
		left, bits := GP64(), GP64()
		MOVQ(stop, left)
		SUBQ(pos, left)
		SHLQ(Imm(3), left)
		LEAQ(Mem{Base: left, Disp: 8}, bits)
		four(func(i int, r Register) {
			if i == 0 {
				MOVL(Mem{Base: ids, Index: pos, Scale: 4}, r.(GP).As32())
				return
			}
			LEAQ(Mem{Base: pos, Disp: i}, r)
			CMPQ(r, stop)
			CMOVQGT(stop, r)
			MOVL(Mem{Base: ids, Index: r, Scale: 4}, r.(GP).As32())
		}, bits.As32())
	}, func(scale Mem) {
		VMULSS(scale, unit, weight.AsX())
		VBROADCASTSS(weight.AsX(), weight)
		for i, a := range acc {
			VCVTDQ2PS(a, a)
			VMULPS(a, weight, a)
			VADDPS(a, sums[i], sums[i])
		}
	})
	// Lane of 128 bits L of sums[i] has columns 16·L+4·i to 16·L+4·i+3.
	transpose(sums[:])
	out := GP64()
	MOVQ(dst, out)
	for i, r := range sums {
		VADDPS(Mem{Base: out, Disp: 64 * i}, r, r)
		VMOVUPS(r, Mem{Base: out, Disp: 64 * i})
	}
	nextColumns(dst, tab, d, columns, first, pos)
}

// transpose turns a matrix of 4 by 4 lanes of 128 bits.
func transpose(r []VecVirtual) {
	var half [4]VecVirtual
	for i := range half {
		half[i] = ZMM()
		// Lanes 0 and 2 of two, or 1 and 3.
		VSHUFF32X4(Imm([]uint64{0x88, 0xdd}[i%2]), r[i&2+1], r[i&2], half[i])
	}
	VSHUFF32X4(Imm(0x88), half[2], half[0], r[0])
	VSHUFF32X4(Imm(0x88), half[3], half[1], r[1])
	VSHUFF32X4(Imm(0xdd), half[2], half[0], r[2])
	VSHUFF32X4(Imm(0xdd), half[3], half[1], r[3])
}
