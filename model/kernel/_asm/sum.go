package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// ahead is how many ids before its use a row of int8 is fetched into the cache,
// aheadF32 one of float32, which is four times as long.
const ahead, aheadF32 = 64, 16

// sumLines writes SumLines for a table of int8 with scales, or of float32.
// Columns are summed in registers, as many at a time as fit, down to single
// ones.
func sumLines(v vector, quantised bool) {
	name, table := "sumLines"+v.isa, "table *int8, tableScale *float32"
	if !quantised {
		name, table = "sumLinesF32"+v.isa, "table *float32"
	}
	TEXT(name, NOSPLIT, "func(dst *float32, ldd, d uintptr, "+table+", rows uintptr, ids *uint32, first, count uintptr, groupEnd *uint32, groupScale *float32, groups, lines uintptr) (ok bool)")
	size, ahead := 1, ahead
	if !quantised {
		size, ahead = 4, aheadF32
	}
	Doc(name+" is SumLines of lines ≥ 1 over count ≥ 1 ids, with ldd in bytes.",
		fmt.Sprintf("It prefetches %d ids ahead and returns false at an id from rows on.", ahead))
	Pragma("noescape")
	tab, dst, d, ids := param("table"), param("dst"), param("d"), param("ids")
	var scales Register
	if quantised {
		scales = param("tableScale")
	}
	pos, column := GP64(), GP64()
	// The rest stays on the stack: there are too few registers.
	first, count, rows := slot("first"), slot("count"), slot("rows")
	ends, weights, groups := slot("groupEnd"), slot("groupScale"), slot("groups")

	// walk adds the line's rows to acc, columns of the table from tab+column.
	walk := func(label string, load func(), fetch func(row Mem), each func(row Mem, w VecVirtual), store func()) {
		e, s, g := GP64(), GP64(), GP64()
		MOVQ(first, pos)
		MOVQ(ends, e)
		MOVQ(weights, s)
		MOVQ(groups, g)
		load()
		Label(label + "group")
		end, weight := GP64(), v.reg()
		MOVL(Mem{Base: e}, end.As32())
		VBROADCASTSS(Mem{Base: s}, weight)
		CMPQ(pos, end)
		JGE(LabelRef(label + "next"))
		Label(label + "id")
		next, id := GP64(), GP64()
		LEAQ(Mem{Base: pos, Disp: ahead}, next)
		CMPQ(next, count)
		CMOVQGE(pos, next)
		MOVL(Mem{Base: ids, Index: next, Scale: 4}, next.As32())
		MOVL(Mem{Base: ids, Index: pos, Scale: 4}, id.As32())
		CMPQ(id, rows)
		JAE(LabelRef("bad"))
		w := weight
		if quantised {
			w = v.reg()
			PREFETCHT0(Mem{Base: scales, Index: next, Scale: 4})
			VBROADCASTSS(Mem{Base: scales, Index: id, Scale: 4}, w)
			VMULPS(weight, w, w)
		}
		IMULQ(d, next)
		IMULQ(d, id)
		ADDQ(column, next)
		ADDQ(column, id)
		fetch(Mem{Base: tab, Index: next, Scale: uint8(size)})
		each(Mem{Base: tab, Index: id, Scale: uint8(size)}, w)
		INCQ(pos)
		CMPQ(pos, end)
		JLT(LabelRef(label + "id"))
		Label(label + "next")
		ADDQ(Imm(4), e)
		ADDQ(Imm(4), s)
		DECQ(g)
		JNZ(LabelRef(label + "group"))
		store()
	}

	Label("line")
	XORQ(column, column)
	out := Mem{Base: dst, Index: column, Scale: 4}
	for _, n := range []int{64 / v.lanes, 32 / v.lanes, 16 / v.lanes, 8 / v.lanes} {
		if n == 0 {
			continue
		}
		label := fmt.Sprintf("columns%d", n*v.lanes)
		left := GP64()
		Label(label)
		LEAQ(Mem{Base: column, Disp: n * v.lanes}, left)
		CMPQ(left, d)
		JGT(LabelRef(label + "end"))
		var acc []VecVirtual
		walk(label, func() {
			for i := range n {
				acc = append(acc, v.reg())
				VMOVUPS(out.Offset(i*v.bytes()), acc[i])
			}
		}, func(row Mem) {
			for i := 0; i < n*v.lanes*size; i += 64 {
				PREFETCHT0(row.Offset(i))
			}
		}, func(row Mem, w VecVirtual) {
			for i, a := range acc {
				if !quantised {
					VFMADD231PS(row.Offset(i*v.bytes()), w, a)
					continue
				}
				x := v.reg()
				VPMOVSXBD(row.Offset(i*v.lanes), x)
				VCVTDQ2PS(x, x)
				VFMADD231PS(x, w, a)
			}
		}, func() {
			for i, a := range acc {
				VMOVUPS(a, out.Offset(i*v.bytes()))
			}
		})
		ADDQ(Imm(uint64(n*v.lanes)), column)
		JMP(LabelRef(label))
		Label(label + "end")
	}
	Label("column")
	CMPQ(column, d)
	JGE(LabelRef("done"))
	a := XMM()
	walk("column", func() { VMOVSS(out, a) }, func(Mem) {}, func(row Mem, w VecVirtual) {
		if !quantised {
			VFMADD231SS(row, w.AsX(), a)
			return
		}
		b, x := GP32(), XMM()
		MOVBLSX(row, b)
		VXORPS(x, x, x)
		VCVTSI2SSL(b, x, x)
		VFMADD231SS(x, w.AsX(), a)
	}, func() { VMOVSS(a, out) })
	INCQ(column)
	JMP(LabelRef("column"))
	Label("done")
	MOVQ(pos, first)
	ADDQ(slot("ldd"), dst)
	step := GP64()
	nextLine(step)
}

// nextLine ends SumLines' loop over lines, and the function; step is a register
// to use.
func nextLine(step Register) {
	MOVQ(slot("groups"), step)
	SHLQ(Imm(2), step)
	ADDQ(step, slot("groupEnd"))
	ADDQ(step, slot("groupScale"))
	DECQ(slot("lines"))
	JNZ(LabelRef("line"))
	ok := GP8()
	MOVB(U8(1), ok)
	Store(ok, Return("ok"))
	VZEROUPPER()
	RET()
	Label("bad")
	no := GP8()
	XORB(no, no)
	Store(no, Return("ok"))
	VZEROUPPER()
	RET()
}
