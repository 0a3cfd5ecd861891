// Command asm writes the x86 assembly of package feature and its Go stubs. Run
// it by go generate in the package's folder.
package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in tokens and masks, which the package checks.
const (
	tokenRoom  = 512 + 64
	bitsetSize = 8 * (512/64 + 1)

	offAt       = 8
	offEnd      = offAt + 4*tokenRoom
	offHashed   = offEnd + 4*tokenRoom
	offRunes    = offHashed + 4*tokenRoom
	offLetter   = offRunes + 4*tokenRoom
	offDigit    = offLetter + bitsetSize
	offUpper    = offDigit + bitsetSize
	offSpaced   = offUpper + bitsetSize
	offTitle    = offSpaced + bitsetSize
	offCapitals = offTitle + bitsetSize
	offMixed    = offCapitals + bitsetSize
	endTokens   = offMixed + bitsetSize

	offLo      = endTokens + 8
	offHi      = offLo + 8*tokenRoom
	offKeys    = offHi + 8*tokenRoom
	offSeveral = offKeys + 8*tokenRoom
	offKnown   = offSeveral + bitsetSize
	offFour    = offKnown + bitsetSize
	offSigns   = offFour + bitsetSize
	offShapes  = offSigns + 7*bitsetSize
	offFirsts  = offShapes + 4*16

	offMaskLetter = 0
	offMaskDigit  = 8
	offMaskSpace  = 16
	offMaskUpper  = 24
	offMaskCont   = 32
	masksSize     = 40
)

// Comparisons of VPCMP.
const (
	less    = 1
	greater = 6
)

func main() {
	ConstraintExpr("amd64")
	ConstraintExpr("!noasm")
	classify()
	split(true)
	look(false)
	look(true)
	sum()
	hashTokens(false)
	hashTokens(true)
	fmix32()
	classifyAVX2()
	split(false)
	count()
	lookAVX2()
	sumAVX2()
	hashTokensAVX2()
	edgesAVX2()
	fmix32AVX2()
	signature()
	pass.Compile = pass.Concat(pass.Compile, pass.FunctionPass(inReach))
	Generate()
}

// inReach refuses a function that is not of AVX-512 by its name and has an
// instruction of it, or a register: the allocator takes one when the others are in
// use.
func inReach(f *ir.Function) error {
	if strings.Contains(f.Name, "AVX512") {
		return nil
	}
	if isa := strings.Join(f.ISA, " "); strings.Contains(isa, "AVX512") {
		return fmt.Errorf("%s: takes %s", f.Name, isa)
	}
	for _, i := range f.Instructions() {
		for _, r := range i.Registers() {
			if p, ok := r.(VecPhysical); ok && p.PhysicalIndex() > 15 {
				return fmt.Errorf("%s: %s in %s, of AVX-512", f.Name, i.Opcode, p.Asm())
			}
		}
	}
	return nil
}

// param reads a parameter into a new register.
func param(name string) Register { return Load(Param(name), GP64()) }

// data is what words has made.
var data = map[string]Mem{}

// words is read-only data of 32-bit words, which functions share by its name.
func words(name string, w ...uint32) Mem {
	m, ok := data[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i, x := range w {
			DATA(4*i, U32(x))
		}
		data[name] = m
	}
	return m
}

// sequence is 16 numbers from first on, step apart.
func sequence(name string, first, step uint32) Mem {
	var w [16]uint32
	for i := range w {
		w[i] = first + step*uint32(i)
	}
	return words(name, w[:]...)
}

// everyByte and every load one number into all lanes of a new register.
func everyByte(b byte) VecVirtual {
	r, z := GP32(), ZMM()
	MOVL(U32(uint32(b)), r)
	VPBROADCASTB(r, z)
	return z
}

func every(x uint32) VecVirtual {
	r, z := GP32(), ZMM()
	MOVL(U32(x), r)
	VPBROADCASTD(r, z)
	return z
}

func every64(x uint64) VecVirtual {
	r, z := GP64(), ZMM()
	MOVQ(U64(x), r)
	VPBROADCASTQ(r, z)
	return z
}

// lowBits sets dst to the lowest n bits, n ≥ 0, at most limit.
func lowBits(n Register, limit uint64, dst Register) {
	l := GP64()
	MOVQ(U32(uint32(limit)), l)
	CMPQ(n, l)
	CMOVQLT(n, l)
	MOVQ(I32(-1), dst)
	BZHIQ(l, dst, dst)
}

// slot is a parameter where it lies on the stack.
func slot(name string) Op {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func zero64() Register {
	r := GP64()
	XORQ(r, r)
	return r
}
