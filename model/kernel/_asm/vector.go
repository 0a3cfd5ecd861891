package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// vector is the register file of an instruction set.
type vector struct {
	isa   string
	lanes int // float32 in a register
	regs  int // registers
	rows  int // rows of the largest GEMM tile
}

var (
	avx2   = vector{"AVX2", 8, 16, 6}
	avx512 = vector{"AVX512", 16, 32, 14}
)

func (v vector) bytes() int { return 4 * v.lanes }

// log2 is that of lanes.
func (v vector) log2() uint64 { return uint64(bits.TrailingZeros(uint(v.lanes))) }

func (v vector) reg() VecVirtual {
	if v.lanes == 16 {
		return ZMM()
	}
	return YMM()
}

func (v vector) zero() VecVirtual {
	r := v.reg()
	if v.lanes == 16 {
		VPXORD(r, r, r)
	} else {
		VXORPS(r, r, r)
	}
	return r
}

// param reads a parameter into a new register.
func param(name string) Register { return Load(Param(name), GP64()) }

// slot is a parameter where it lies on the stack.
func slot(name string) Op {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}
