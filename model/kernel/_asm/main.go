// Command asm writes the x86 assembly of package kernel and its Go stubs. Run
// it by go generate in the package's folder.
package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	ConstraintExpr("!noasm")
	for _, v := range []vector{avx2, avx512} {
		gemm(v)
		gemmTN(v)
		gates(v)
		gatesTrain(v)
		gatesBackward(v)
		tanh(v)
		addScaled(v)
		adamW(v)
		sum(v)
		standardise(v)
		sumLines(v, true)
		sumLines(v, false)
		softmax(v)
		peak(v)
	}
	for _, w := range []integer{madd, vnni, vnni8} {
		gemmInt(w)
		round(w)
	}
	quantise(madd)
	quantise(vnni)
	gemmInt(avxvnni)
	sumLinesVNNI()
	sumLinesMADD()
	for parts := 1; parts <= 3; parts++ {
		amx(parts, parts)
		splitRows(parts)
	}
	amx(2, 1)
	amx(3, 1)
	gatesCubic()
	gatesRational()
	for n := range 4 {
		gemmNarrow(avx512, n+1)
	}
	for n := range 3 {
		gemmNarrow(avx2, n+1)
	}
	peakTiles()
	pass.Compile = pass.Concat(pass.Compile, pass.FunctionPass(inReach), pass.FunctionPass(noLegacy), pass.FunctionPass(encodeVEX))
	Generate()
}

// noLegacy refuses the encodings of SSE, as Load writes them for a number: where the
// upper half of a register is in use they take some 100 cycles.
func noLegacy(f *ir.Function) error {
	for _, i := range f.Instructions() {
		if i.Opcode == "MOVSS" || i.Opcode == "MOVSD" {
			return fmt.Errorf("%s: %s, where AVX has V%[2]s", f.Name, i.Opcode)
		}
	}
	return nil
}

// inReach refuses a function without AVX-512 in a register that only AVX-512
// has: the allocator takes one when the others are in use, and the assembler then
// writes an instruction that other machines do not know.
func inReach(f *ir.Function) error {
	if strings.Contains(strings.Join(f.ISA, " "), "AVX512") {
		return nil
	}
	for _, i := range f.Instructions() {
		for _, r := range i.Registers() {
			if p, ok := r.(reg.VecPhysical); ok && p.PhysicalIndex() > 15 {
				return fmt.Errorf("%s: %s in %s, of AVX-512", f.Name, i.Opcode, p.Asm())
			}
		}
	}
	return nil
}
