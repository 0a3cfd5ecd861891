package main

import (
	"fmt"

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

// look takes 16 tokens at a time, in two vectors of 8 lanes. For zen it loads bytes
// token by token, as a gather takes longer there.
func look(zen bool) {
	name := "lookAVX512"
	if zen {
		name += "Zen"
	}
	TEXT(name, NOSPLIT, "func(low *byte, t *int, n uintptr, abbreviations *uint64) (long uint64)")
	if zen {
		Doc(name+" is lookAVX512, but for lo and hi: of 16 tokens lo has the first 4 bytes",
			"of each and then the next 4 of each, and hi those behind them. It reads those of",
			"tokens behind the last one, too.")
	} else {
		Doc(name+" writes what line.look does of t's n ≥ 1 tokens, and lo and hi. The",
			"keys are those of the tokens' first 16 bytes; long is not 0 where a token has",
			"more. It reads 16 bytes from the begin of a token on.")
	}
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
	if !zen {
		KXNORB(K2, K2, K2)
	}
	los, his := newLanes(), newLanes()
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
		var both [2]VecVirtual // two tokens of four
		if zen {
			for i := range both {
				both[i] = ZMM()
				for j := range 4 {
					begin := GP64()
					MOVL(Mem{Base: t, Index: k, Scale: 4, Disp: offAt + 4*(8*half+2*j+i)}, begin.As32())
					if token := (Mem{Base: low, Index: begin, Scale: 1}); j == 0 {
						VMOVDQU64(token, both[i].AsX())
					} else {
						VINSERTI64X2(Imm(uint64(j)), token, both[i], both[i])
					}
				}
			}
		}
		words := lanes{los[half], his[half]}
		for i, tooMany := range []VecVirtual{loBits, hiBits} {
			q, mask := words[i], ZMM()
			switch {
			case zen && i == 0:
				VPUNPCKLQDQ(both[1], both[0], q)
			case zen:
				VPUNPCKHQDQ(both[1], both[0], q)
			default:
				index := YMM()
				if half == 0 {
					VMOVDQA64(at.AsY(), index)
				} else {
					VEXTRACTI64X4(Imm(1), at, index)
				}
				KMOVB(K2, K1)
				VPXORQ(q, q, q)
				VPGATHERDQ(Mem{Base: low, Index: index, Scale: 1, Disp: 8 * i}, K1, q)
			}
			VPSRLVQ(wide(tooMany), ones, mask)
			VPANDQ(mask, q, q)
			if !zen {
				VMOVDQU64(q, Mem{Base: t, Index: k, Scale: 8, Disp: []int{offLo, offHi}[i] + 64*half})
			}
		}
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
		if zen {
			odds := newOdds()
			for i, y := range []VecVirtual{x, pick(los, odds), pick(his, evens), pick(his, odds)} {
				VMOVDQU64(y, Mem{Base: t, Index: k, Scale: 8, Disp: []int{offLo, offHi}[i/2] + 64*(i%2)})
			}
		}
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
		VPSRLD(Imm(24), ones, x)
		if zen {
			VPANDD(Mem{Base: t, Disp: offLo}, x, x)
		} else {
			first := newLanes()
			VMOVDQU64(Mem{Base: t, Disp: offLo}, first[0])
			VMOVDQU64(Mem{Base: t, Disp: offLo + 64}, first[1])
			VPANDD(pick(first, evens), x, x)
		}
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

// lookAVX2 takes 8 tokens at a time.
func lookAVX2() {
	TEXT("lookAVX2", NOSPLIT, "func(low *byte, t *int, n uintptr, abbreviations *uint64) (long uint64)")
	Doc("lookAVX2 is lookAVX512, but for lo and hi: of 8 tokens lo has the first 4 bytes",
		"of each and then the next 4 of each, and hi those behind them.")
	Pragma("noescape")
	low, t := param("low"), param("t")
	n := slot("n")
	var table [2]VecVirtual // low halves of the abbreviations, which have no more
	{
		p := param("abbreviations")
		for i := range table {
			y := load(Mem{Base: p, Disp: 64 * i})
			VSHUFPS(Imm(0x88), Mem{Base: p, Disp: 64*i + 32}, y, y)
			VPERMQ(Imm(0xd8), y, y)
			table[i] = y
		}
	}
	local := AllocLocal(32)
	k, octet, count := zero64(), zero64(), GP64()
	MOVQ(n, count)
	longest := zeroY()

	Label("look")
	left := GP64()
	MOVQ(count, left)
	SUBQ(k, left)
	size, runes, loBits, hiBits := YMM(), YMM(), YMM(), YMM()
	{
		valid, at := YMM(), YMM()
		VMOVD(left.As32(), valid.AsX())
		VPBROADCASTD(valid.AsX(), valid)
		VPCMPGTD(countsFrom(0), valid, valid)
		VPAND(Mem{Base: t, Index: k, Scale: 4, Disp: offAt}, valid, at)
		VPAND(Mem{Base: t, Index: k, Scale: 4, Disp: offHashed}, valid, size)
		VPSUBD(at, size, size)
		VMOVDQU(at, local)
	}
	VPMAXSD(size, longest, longest)
	// put writes the highest bits of y's lanes.
	put := func(y VecVirtual, off int) {
		r := GP32()
		VMOVMSKPS(y, r)
		MOVB(r.As8(), Mem{Base: t, Index: octet, Scale: 1, Disp: off})
	}
	{
		y := YMM()
		VMOVDQU(Mem{Base: t, Index: k, Scale: 4, Disp: offRunes}, runes)
		VPCMPEQD(lanesOf(4), runes, y)
		put(y, offFour)
		VPCMPGTD(lanesOf(1), runes, y)
		put(y, offSeveral)
	}
	// How many bits of lo and of hi are too many. A shift by 64 or more gives 0.
	VPMINSD(lanesOf(16), size, size)
	VPSLLD(Imm(3), size, size)
	VPSUBD(size, load(lanesOf(128)), hiBits)
	VPSUBUSW(size, load(lanesOf(64)), loBits)

	// Words of 16 bytes, token i beside token i+4.
	var word [4]VecVirtual
	for i := range word {
		a, b := GP64(), GP64()
		MOVL(local.Offset(4*i), a.As32())
		MOVL(local.Offset(4*i+16), b.As32())
		word[i] = YMM()
		VMOVDQU(Mem{Base: low, Index: a, Scale: 1}, word[i].AsX())
		VINSERTI128(Imm(1), Mem{Base: low, Index: b, Scale: 1}, word[i], word[i])
	}
	// Their halves, of tokens 0, 1, 4, 5 and of 2, 3, 6, 7.
	var lo, hi [2]VecVirtual
	ones := YMM()
	VPCMPEQD(ones, ones, ones)
	for i := range lo {
		for j, half := range []*VecVirtual{&lo[i], &hi[i]} {
			y, shift := YMM(), YMM()
			tooMany := []VecVirtual{loBits, hiBits}[j]
			if i == 0 {
				VPUNPCKLDQ(zeroY(), tooMany, shift)
			} else {
				VPUNPCKHDQ(zeroY(), tooMany, shift)
			}
			VPSRLVQ(shift, ones, shift)
			if j == 0 {
				VPUNPCKLQDQ(word[2*i+1], word[2*i], y)
			} else {
				VPUNPCKHQDQ(word[2*i+1], word[2*i], y)
			}
			VPAND(shift, y, y)
			*half = y
		}
	}
	var w [2]VecVirtual
	for i := range w {
		w[i] = YMM()
		x := YMM()
		VSHUFPS(Imm(uint64(0x88+0x55*i)), lo[1], lo[0], w[i])
		VMOVUPS(w[i], Mem{Base: t, Index: k, Scale: 8, Disp: offLo + 32*i})
		VSHUFPS(Imm(uint64(0x88+0x55*i)), hi[1], hi[0], x)
		VMOVUPS(x, Mem{Base: t, Index: k, Scale: 8, Disp: offHi + 32*i})
	}
	// times multiplies x by key.
	times := func(x VecVirtual, name string, key uint64) VecVirtual {
		a, b, c := YMM(), YMM(), YMM()
		VPMULUDQ(constant(name, uint32(key), 0), x, a)
		VPMULLD(constant(name+"Crossed", uint32(key>>32), uint32(key)), x, b)
		VPSLLQ(Imm(32), b, c)
		VPADDD(c, b, b)
		VPBLENDD(Imm(0xaa), b, zeroY(), b)
		VPADDD(b, a, a)
		return a
	}
	var product [2]VecVirtual
	for i := range lo {
		a, b, x := times(lo[i], "key0", key0), times(hi[i], "key1", key1), YMM()
		product[i] = a
		VPSRLQ(Imm(32), a, x)
		VPXOR(a, x, x)
		VPSHUFD(Imm(0xb1), b, b)
		VPXOR(b, x, x)
		VPOR(constant("one64", 1, 0), x, x)
		digit, bits := YMM(), constant(fmt.Sprintf("bits64of%d", i), 1<<(2*i), 0, 2<<(2*i), 0, 16<<(2*i), 0, 32<<(2*i), 0)
		VPBROADCASTQ(Mem{Base: t, Index: octet, Scale: 1, Disp: offDigit}, digit)
		VPAND(bits, digit, digit)
		VPCMPEQQ(bits, digit, digit)
		y := load(constant("digitsKey", digitsKey&0xffffffff, digitsKey>>32))
		VBLENDVPD(digit, y, x, x)
		VMOVDQU(x.AsX(), Mem{Base: t, Index: k, Scale: 8, Disp: offKeys + 16*i})
		VEXTRACTI128(Imm(1), x, Mem{Base: t, Index: k, Scale: 8, Disp: offKeys + 16*i + 32})
	}
	// Whether it is in the table.
	{
		high, index, x, y := YMM(), YMM(), YMM(), YMM()
		VSHUFPS(Imm(0xdd), product[1], product[0], high)
		VPSRLD(Imm(28), high, index)
		VPERMD(table[0], index, x)
		VPERMD(table[1], index, y)
		VBLENDVPS(high, y, x, x)
		VPCMPEQD(w[0], x, x)
		VPCMPEQD(zeroY(), w[1], y)
		VPAND(y, x, x)
		put(x, offKnown)
	}
	for i, class := range [][]uint32{{','}, {'.'}, {';'}, {'('}, {'=', '&', 0xa189e2}, {'_'}} {
		x := YMM()
		for j, sign := range class {
			if j == 0 {
				VPCMPEQD(lanesOf(sign), w[0], x)
				continue
			}
			y := YMM()
			VPCMPEQD(lanesOf(sign), w[0], y)
			VPOR(y, x, x)
		}
		put(x, offSigns+bitsetSize*(i+1))
	}
	ADDQ(Imm(1), octet)
	ADDQ(Imm(8), k)
	CMPQ(k, count)
	JLT(LabelRef("look"))

	// Shapes.
	{
		x := YMM()
		VPAND(lanesOf(0xff), load(Mem{Base: t, Disp: offLo}), x)
		for i, off := range []int{offDigit, offDigit, offLetter, offTitle, offCapitals, offMixed} {
			is := spread(Mem{Base: t, Disp: off})
			if i == 1 {
				y := YMM()
				VMOVDQU(Mem{Base: t, Disp: offRunes}, y)
				VPCMPGTD(lanesOf(3), y, y)
				VPAND(y, is, is)
			}
			y := load(lanesOf(uint32("dDxCXM"[i])))
			VBLENDVPS(is, y, x, x)
		}
		VMOVDQU(x, Mem{Base: t, Disp: offShapes})
	}
	long := GP64()
	VPCMPGTD(lanesOf(16), longest, longest)
	VMOVMSKPS(longest, long.As32())
	Store(long, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// sumAVX2 takes one key at a time.
func sumAVX2() {
	TEXT("sumAVX2", NOSPLIT, "func(keys, factors *uint64, which, parted uint64, dst *uint64, words uint64) (sum uint64)")
	Doc("sumAVX2 is sumAVX512. It writes 8 keys at a time and may read one behind the 64.")
	Pragma("noescape")
	keys, factors, which, parted := param("keys"), param("factors"), param("which"), param("parted")
	dst, words := param("dst"), param("words")
	total := zero64()
	p, x, n := GP64(), GP64(), GP64()
	TESTQ(which, which)
	JEQ(LabelRef("words"))
	Label("sum")
	TZCNTQ(which, p)
	SHRXQ(p, parted, x)
	ANDL(Imm(1), x.As32())
	ADDQ(Mem{Base: keys, Index: p, Scale: 8}, x)
	IMULQ(Mem{Base: factors}, x)
	ADDQ(x, total)
	ADDQ(Imm(8), factors)
	BLSRQ(which, which)
	JNE(LabelRef("sum"))
	Label("words")
	POPCNTQ(words, n)
	Label("more")
	for i := range 8 {
		TZCNTQ(words, p)
		MOVQ(Mem{Base: keys, Index: p, Scale: 8}, x)
		MOVQ(x, Mem{Base: dst, Disp: 8 * i})
		BLSRQ(words, words)
	}
	ADDQ(U32(64), dst)
	SUBQ(Imm(8), n)
	JG(LabelRef("more"))
	Store(total, ReturnIndex(0))
	RET()
}
