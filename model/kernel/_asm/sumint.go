package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// What the sums of a Table with multiples share, whichever instructions add them.

const maxSummedIDs = 1 << 16 // ids whose sum an int32 holds

// intSum begins a sum of integers.
func intSum(name string) {
	TEXT(name, NOSPLIT, "func(dst *float32, ldd, d uintptr, table *int8, multiples *uint8, unit float32, rows uintptr, ids *uint32, first, count uintptr, groupEnd *uint32, groupScale *float32, groups, lines uintptr) (ok bool)")
	Doc(name+" is sumLinesInt of lines ≥ 1 over count ≥ 1 ids, with ldd in bytes and",
		fmt.Sprintf("d in whole 64s. It prefetches %d ids ahead and returns false at an id from rows on.", ahead))
	Pragma("noescape")
}

// groupPlace is where a sum of integers is among the ids of a line.
type groupPlace struct {
	pos        GPVirtual // of the next id
	ends, s, g GPVirtual // where the group's end and scale are, and how many groups are left
	end        GPVirtual // of the group's ids
	stop       GPVirtual // of the sum's ids: their end less n in the loop over ns, then the last of them
}

func newGroupPlace() groupPlace {
	return groupPlace{pos: GP64(), ends: GP64(), s: GP64(), g: GP64(), end: GP64(), stop: GP64()}
}

// intGroups writes the loop over the groups of a line, whose rows go n at a time and
// whose ids begin at first. begin clears a sum, some adds the n rows from p.pos on, last
// the one to n up to p.stop, and finish adds a sum times the group's scale to the line.
func intGroups(n int, first Op, p groupPlace, begin, some, last func(), finish func(scale Mem)) {
	MOVQ(first, p.pos)
	MOVQ(slot("groupEnd"), p.ends)
	MOVQ(slot("groupScale"), p.s)
	MOVQ(slot("groups"), p.g)
	Label("group")
	MOVL(Mem{Base: p.ends}, p.end.As32())
	CMPQ(p.pos, p.end)
	JGE(LabelRef("next"))
	Label("some")
	begin()
	LEAQ(Mem{Base: p.pos, Disp: maxSummedIDs}, p.stop)
	CMPQ(p.stop, p.end)
	CMOVQGT(p.end, p.stop)
	SUBQ(Imm(uint64(n)), p.stop)
	CMPQ(p.pos, p.stop)
	JGE(LabelRef("last"))
	Label("rows")
	some()
	ADDQ(Imm(uint64(n)), p.pos)
	CMPQ(p.pos, p.stop)
	JLT(LabelRef("rows"))
	Label("last")
	ADDQ(Imm(uint64(n-1)), p.stop)
	last()
	LEAQ(Mem{Base: p.stop, Disp: 1}, p.pos)
	finish(Mem{Base: p.s})
	CMPQ(p.pos, p.end)
	JLT(LabelRef("some"))
	Label("next")
	ADDQ(Imm(4), p.ends)
	ADDQ(Imm(4), p.s)
	DECQ(p.g)
	JNZ(LabelRef("group"))
}

// nextColumns ends the loop over 64 columns at a time, and that over lines.
func nextColumns(dst Op, tab, d Register, columns, first Op, pos Register) {
	ADDQ(U32(256), dst)
	ADDQ(Imm(64), tab)
	SUBQ(Imm(64), columns)
	JNZ(LabelRef("columns"))
	SUBQ(d, tab)
	MOVQ(pos, first)
	step := GP64()
	MOVQ(slot("ldd"), step)
	ADDQ(step, dst)
	MOVQ(d, step)
	SHLQ(Imm(2), step)
	SUBQ(step, dst)
	nextLine(step)
}
