package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// What keys are made with, as the package has it.
const (
	key0      = 0x9e79a397ba00b9cd
	key1      = 0xe7037ed1a0b428db
	digitsKey = 0x8ebc6af09c88c6e3
)

// look takes 16 tokens at a time, in two vectors of 8 lanes.
func look() {
	TEXT("lookAVX512", NOSPLIT, "func(low *byte, t *int, n uintptr, abbreviations *uint64) (long uint64)")
	Doc("lookAVX512 writes what line.look does of t's n ≥ 1 tokens, and lo and hi. The",
		"keys are those of the tokens' first 16 bytes; long is not 0 where a token has",
		"more. It reads 16 bytes from the begin of a token on.")
	Pragma("noescape")
	low, t, n := param("low"), param("t"), param("n")
	table := [2]VecVirtual{ZMM(), ZMM()}
	{
		p := param("abbreviations")
		VMOVDQU64(Mem{Base: p}, table[0])
		VMOVDQU64(Mem{Base: p, Disp: 64}, table[1])
	}
	factor0, factor1, ones := every64(key0), every64(key1), ZMM()
	VPTERNLOGD(Imm(0xff), ones, ones, ones)
	one, digits := every64(1), every64(digitsKey)
	four, sixteen := every(4), every(16)
	bits64, bits128 := every(64), every(128)
	evens := newEvens()
	signs := words("signs", ',', '.', ';', '(', '=', '&', 0xa189e2, '_')
	signBegin := [...]int{0, 1, 2, 3, 4, 7, 8} // of each class of signs
	k, octet, long := zero64(), zero64(), zero64()

	Label("look")
	at, end, size, runes := ZMM(), ZMM(), ZMM(), ZMM()
	{
		left, valid := GP64(), GP64()
		MOVQ(n, left)
		SUBQ(k, left)
		lowBits(left, 16, valid)
		KMOVW(valid.As32(), K1)
	}
	VMOVDQU32_Z(Mem{Base: t, Index: k, Scale: 4, Disp: offAt}, K1, at)
	VMOVDQU32_Z(Mem{Base: t, Index: k, Scale: 4, Disp: offHashed}, K1, end)
	VPSUBD(at, end, size)
	more := func(x, y VecVirtual) Register { // lanes where x > y
		m := GP64()
		VPCMPD(Imm(greater), y, x, K1)
		KMOVW(K1, m.As32())
		return m
	}
	ORQ(more(size, sixteen), long)
	VMOVDQU32(Mem{Base: t, Index: k, Scale: 4, Disp: offRunes}, runes)
	VPCMPEQD(four, runes, K1)
	KMOVW(K1, Mem{Base: t, Index: octet, Scale: 1, Disp: offFour})
	{
		y := ZMM()
		VPSRLD(Imm(2), four, y)
		VPCMPD(Imm(greater), y, runes, K1)
		KMOVW(K1, Mem{Base: t, Index: octet, Scale: 1, Disp: offSeveral})
	}

	// How many bits of lo and of hi are too many. A shift by 64 or more gives 0.
	loBits, hiBits := ZMM(), ZMM()
	VPMINSD(sixteen, size, size)
	VPSLLD(Imm(3), size, size)
	VPSUBUSW(size, bits64, loBits)
	VPSUBD(size, bits128, hiBits)
	KXNORB(K2, K2, K2)
	los := newLanes()
	for half := range 2 {
		// wide is the half's lanes of x.
		wide := func(x VecVirtual) VecVirtual {
			y, z := YMM(), ZMM()
			if half == 0 {
				VPMOVZXDQ(x.AsY(), z)
				return z
			}
			VEXTRACTI64X4(Imm(1), x, y)
			VPMOVZXDQ(y, z)
			return z
		}
		var words lanes
		for i, tooMany := range []VecVirtual{loBits, hiBits} {
			index, q, mask := YMM(), ZMM(), ZMM()
			if half == 0 {
				VMOVDQA64(at.AsY(), index)
			} else {
				VEXTRACTI64X4(Imm(1), at, index)
			}
			KMOVB(K2, K1)
			VPXORQ(q, q, q)
			VPGATHERDQ(Mem{Base: low, Index: index, Scale: 1, Disp: 8 * i}, K1, q)
			VPSRLVQ(wide(tooMany), ones, mask)
			VPANDQ(mask, q, q)
			VMOVDQU64(q, Mem{Base: t, Index: k, Scale: 8, Disp: []int{offLo, offHi}[i] + 64*half})
			words[i] = q
		}
		VMOVDQA64(words[0], los[half])
		a, b, high := ZMM(), ZMM(), ZMM()
		VPMULLQ(factor0, words[0], a)
		VPMULLQ(factor1, words[1], b)
		// Whether it is in the table.
		VPSRLQ(Imm(60), a, high)
		VPERMI2Q(table[1], table[0], high)
		VPCMPEQQ(words[0], high, K1)
		KMOVB(K1, Mem{Base: t, Index: octet, Scale: 1, Disp: offKnown + half})
		// Its key.
		VPSRLQ(Imm(32), a, high)
		VPRORQ(Imm(32), b, b)
		VPTERNLOGQ(Imm(0x96), high, b, a) // a ^ b ^ high
		VPORQ(one, a, a)
		KMOVB(Mem{Base: t, Index: octet, Scale: 1, Disp: offDigit + half}, K1)
		VMOVDQA64(digits, K1, a)
		VMOVDQU64(a, Mem{Base: t, Index: k, Scale: 8, Disp: offKeys + 64*half})
	}
	{
		x := pick(los, evens)
		equal := func(c int) { VPCMPEQD_BCST(signs.Offset(4*c), x, K1) }
		for i, first := range signBegin[:len(signBegin)-1] {
			equal(first)
			for c := first + 1; c < signBegin[i+1]; c++ {
				KMOVW(K1, K3)
				equal(c)
				KORW(K1, K3, K1)
			}
			KMOVW(K1, Mem{Base: t, Index: octet, Scale: 1, Disp: offSigns + bitsetSize*(i+1)})
		}
	}
	ADDQ(Imm(2), octet)
	ADDQ(Imm(16), k)
	CMPQ(k, n)
	JLT(LabelRef("look"))

	// Shapes.
	{
		runes := ZMM()
		VMOVDQU32(Mem{Base: t, Disp: offRunes}, runes)
		x := ZMM()
		first := lanes{ZMM(), ZMM()}
		VMOVDQU64(Mem{Base: t, Disp: offLo}, first[0])
		VMOVDQU64(Mem{Base: t, Disp: offLo + 64}, first[1])
		VPSRLD(Imm(24), ones, x)
		VPANDD(pick(first, evens), x, x)
		chars := words("shapes", 'd', 'D', 'x', 'C', 'X', 'M')
		for i, off := range []int{offDigit, offDigit, offLetter, offTitle, offCapitals, offMixed} {
			KMOVW(Mem{Base: t, Disp: off}, K1)
			if i == 1 {
				VPCMPD_BCST(Imm(greater), words("three", 3), runes, K1, K1)
			}
			VPBROADCASTD(chars.Offset(4*i), K1, x)
		}
		VMOVDQU32(x, Mem{Base: t, Disp: offShapes})
	}
	Store(long, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// sum takes 8 keys at a time.
func sum() {
	TEXT("sumAVX512", NOSPLIT, "func(keys, factors *uint64, which, parted uint64, dst *uint64, words uint64) (sum uint64)")
	Doc("sumAVX512 adds up those of 64 keys that which has, each with its bit of parted",
		"and times the next factor, and writes those that words has to dst. It reads 8",
		"factors, and writes 8 keys, at a time.")
	Pragma("noescape")
	keys, factors, which, parted := param("keys"), param("factors"), param("which"), param("parted")
	dst, words := param("dst"), param("words")
	total, one := ZMM(), every64(1)
	VPXORQ(total, total, total)
	Label("sum")
	x, y, n := ZMM(), ZMM(), GP64()
	VMOVDQU64(Mem{Base: keys}, x)
	KMOVB(words.(GPVirtual).As32(), K1)
	VPCOMPRESSQ_Z(x, K1, y)
	VMOVDQU64(y, Mem{Base: dst})
	MOVBLZX(words.(GPVirtual).As8(), n.As32())
	POPCNTL(n.As32(), n.As32())
	LEAQ(Mem{Base: dst, Index: n, Scale: 8}, dst)
	KMOVB(parted.(GPVirtual).As32(), K1)
	VPADDQ(one, x, K1, x)
	KMOVB(which.(GPVirtual).As32(), K1)
	VPCOMPRESSQ_Z(x, K1, x)
	VPMULLQ(Mem{Base: factors}, x, x)
	VPADDQ(x, total, total)
	MOVBLZX(which.(GPVirtual).As8(), n.As32())
	POPCNTL(n.As32(), n.As32())
	LEAQ(Mem{Base: factors, Index: n, Scale: 8}, factors)
	ADDQ(U32(64), keys)
	SHRQ(Imm(8), words)
	SHRQ(Imm(8), parted)
	SHRQ(Imm(8), which)
	JNE(LabelRef("sum"))

	VEXTRACTI64X4(Imm(1), total, x.AsY())
	VPADDQ(x.AsY(), total.AsY(), total.AsY())
	VEXTRACTI64X2(Imm(1), total.AsY(), x.AsX())
	VPADDQ(x.AsX(), total.AsX(), total.AsX())
	VPSHUFD(Imm(0x4e), total.AsX(), x.AsX())
	VPADDQ(x.AsX(), total.AsX(), total.AsX())
	VMOVQ(total.AsX(), n)
	Store(n, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
