package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// constant is read-only data of 32 bytes, w over and over: what AVX2 takes from
// memory for a vector's lanes.
func constant(name string, w ...uint32) Mem {
	var all [8]uint32
	for i := range all {
		all[i] = w[i%len(w)]
	}
	return words(name, all[:]...)
}

// lanesOf is x in all lanes of 32 bits.
func lanesOf(x uint32) Mem { return constant(fmt.Sprintf("all%x", x), x) }

// bytesOf is b in all bytes.
func bytesOf(b byte) Mem { return lanesOf(uint32(b) * 0x01010101) }

// countsFrom are the eight numbers from n on.
func countsFrom(n uint32) Mem {
	return constant(fmt.Sprintf("countsFrom%d", n), n, n+1, n+2, n+3, n+4, n+5, n+6, n+7)
}

func load(m Mem) VecVirtual {
	y := YMM()
	VMOVDQU(m, y)
	return y
}

func zeroY() VecVirtual {
	y := YMM()
	VPXOR(y, y, y)
	return y
}

// spread makes lanes of ones of the 8 bits at m, which has 4 bytes at least.
func spread(m Mem) VecVirtual {
	y, bits := YMM(), constant("bits", 1, 2, 4, 8, 16, 32, 64, 128)
	VPBROADCASTD(m, y)
	VPAND(bits, y, y)
	VPCMPEQD(bits, y, y)
	return y
}

func signature() {
	TEXT("signature", NOSPLIT, "func() (eax uint32)")
	Doc("signature is what CPUID says of the processor's family and model.")
	MOVL(U32(1), EAX)
	XORL(ECX, ECX)
	CPUID()
	Store(EAX, ReturnIndex(0))
	RET()
}
