package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func classify() {
	TEXT("classifyAVX512", NOSPLIT, "func(raw *byte, n uintptr, low *byte, m *uint64) (wide uintptr)")
	Doc("classifyAVX512 writes low and the masks of raw, which has n bytes, all that is",
		"beyond ASCII as a continuation, and returns 0 where there is nothing of it.",
		"It writes 64 bytes of low at a time.")
	Pragma("noescape")
	raw, n, low, m := param("raw"), param("n"), param("low"), param("m")
	a, lowerA, digit0 := everyByte('A'), everyByte('a'), everyByte('0')
	tab, separator := everyByte('\t'), everyByte(0x1c)
	n26, n10, n5, bit := everyByte(26), everyByte(10), everyByte(5), everyByte(0x20)
	i, wide := zero64(), zero64()
	Label("next")
	left, valid, high := GP64(), GP64(), GP64()
	MOVQ(n, left)
	SUBQ(i, left)
	JLE(LabelRef("done"))
	lowBits(left, 64, valid)
	KMOVQ(valid, K1)
	x, t := ZMM(), ZMM()
	VMOVDQU8_Z(Mem{Base: raw, Index: i, Scale: 1}, K1, x)
	VPMOVB2M(x, K2)
	KMOVQ(K2, high)
	ORQ(high, wide)
	in := func(from, size VecVirtual, k Register) {
		VPSUBB(from, x, t)
		VPCMPUB(Imm(less), size, t, k)
	}
	in(a, n26, K2)
	in(lowerA, n26, K3)
	in(digit0, n10, K4)
	in(tab, n5, K5)
	in(separator, n5, K6)
	KORQ(K2, K3, K3)
	KORQ(K5, K6, K5)
	VPADDB(bit, x, K2, x)
	VMOVDQU8(digit0, K4, x)
	VMOVDQU8(x, Mem{Base: low, Index: i, Scale: 1})
	KMOVQ(K3, Mem{Base: m, Disp: offMaskLetter})
	KMOVQ(K4, Mem{Base: m, Disp: offMaskDigit})
	KMOVQ(K5, Mem{Base: m, Disp: offMaskSpace})
	KMOVQ(K2, Mem{Base: m, Disp: offMaskUpper})
	MOVQ(high, Mem{Base: m, Disp: offMaskCont})
	ADDQ(U32(masksSize), m)
	ADDQ(U32(64), i)
	JMP(LabelRef("next"))
	Label("done")
	Store(wide, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func split() {
	TEXT("splitAVX512", NOSPLIT, "func(m *uint64, from, end uintptr, t *int) (n uintptr)")
	Doc("splitAVX512 writes the tokens between from and end, at most 512 bytes from",
		"the line's begin, and returns their number. It takes the bytes of a token for",
		"its characters.",
		"",
		"A sum of the letters' bits and some bits among them carries out of every run of",
		"letters that has one of those, to the bit behind the run.")
	Pragma("noescape")
	m, from, t := param("m"), param("from"), param("t")
	end := slot("end")

	none := ZMM()
	VPXORD(none, none, none)
	for off := offLetter; off < endTokens; off += 64 {
		VMOVDQU64(none, Mem{Base: t, Disp: min(off, endTokens-64)})
	}
	var iota [16]uint32
	for i := range iota {
		for b := range uint32(4) {
			iota[i] |= (4*uint32(i) + b) << (8 * b)
		}
	}
	places := ZMM()
	VMOVDQU64(words("places", iota[:]...), places)

	// What one word leaves to the next stands on the stack: there are too few
	// registers.
	local := AllocLocal(8 * 8)
	first := local // the bits that count
	afterLetter, afterDigit, afterToken, afterSpace := local.Offset(8), local.Offset(16), local.Offset(24), local.Offset(32)
	carry := [3]Mem{local.Offset(40), local.Offset(48), local.Offset(56)}
	for i := range 8 {
		MOVQ(U32(0), local.Offset(8*i))
	}
	MOVQ(U32(1), afterSpace)
	base := GP64()
	{
		x := GP64()
		MOVQ(from, base)
		ANDQ(I32(-64), base)
		MOVQ(I32(-1), x)
		SHLXQ(from, x, x) // by its low 6 bits
		MOVQ(x, first)
	}
	{
		at := GP64()
		IMUL3Q(U32(masksSize/8), base, at) // base/64·40
		SHRQ(Imm(3), at)
		ADDQ(at, m)
	}
	starts, ends := zero64(), zero64() // how many so far

	Label("word")
	mask := func(off int) Register {
		r := GP64()
		MOVQ(Mem{Base: m, Disp: off}, r)
		return r
	}
	// shifted is x<<1 with the bit that the word before left.
	shifted := func(x Register, after Mem) Register {
		r, top := GP64(), GP64()
		MOVQ(after, r)
		LEAQ(Mem{Base: r, Index: x, Scale: 2}, r)
		MOVQ(x, top)
		SHRQ(Imm(63), top)
		MOVQ(top, after)
		return r
	}
	// add appends the bits of x at those of which to a bitset.
	add := func(off int, x, which, count Register) {
		r, word, shift := GP64(), GP64(), GP64()
		PEXTQ(which, x, r)
		MOVQ(count, word)
		SHRQ(Imm(6), word)
		SHLXQ(count, r, shift)
		ORQ(shift, Mem{Base: t, Index: word, Scale: 8, Disp: off})
		NOTQ(count)
		SHRQ(Imm(1), r)
		SHRXQ(count, r, r) // by 63 − count, of the low 6 bits
		NOTQ(count)
		ORQ(r, Mem{Base: t, Index: word, Scale: 8, Disp: off + 8})
	}
	begin, final := GP64(), GP64()
	letter, space := mask(offMaskLetter), mask(offMaskSpace)
	behind := shifted(letter, afterLetter)
	{
		stops, x := GP64(), mask(offMaskDigit)
		MOVQ(letter, stops)
		ORQ(x, stops)
		ORQ(space, stops)
		ORQ(Mem{Base: m, Disp: offMaskCont}, stops)
		NOTQ(stops)
		d := shifted(x, afterDigit)
		ANDNQ(x, d, x) // x &^ d
		ORQ(x, stops)
		ANDNQ(letter, behind, x)
		ORQ(x, stops)

		left, valid := GP64(), GP64()
		MOVQ(end, left)
		SUBQ(base, left)
		lowBits(left, 64, valid)
		ANDQ(first, valid)
		MOVQ(I32(-1), first)
		MOVQ(stops, begin)
		ANDQ(valid, begin)
		ORQ(space, stops)
		ANDNQ(valid, space, x)
		MOVQ(shifted(x, afterToken), final)
		ANDQ(stops, final)
	}
	add(offSpaced, shifted(space, afterSpace), begin, starts)
	add(offLetter, letter, begin, starts)
	add(offDigit, mask(offMaskDigit), begin, starts)
	upper := mask(offMaskUpper)
	add(offUpper, upper, begin, starts)

	// any is 1 behind each run of letters in which x has a bit.
	any := func(x Register, carry Mem) Register {
		r := GP64()
		MOVQ(letter, r)
		BTQ(Imm(0), carry)
		ADCQ(x, r)
		SETCS(carry)
		return r
	}
	capital := any(upper, carry[0])
	later := GP64()
	MOVQ(upper, later)
	ANDQ(capital, later) // all capitals of a run but its first
	two := any(later, carry[1])
	ORQ(Mem{Base: m, Disp: offMaskCont}, upper)
	ANDNQ(letter, upper, upper)
	small := any(upper, carry[2])
	ANDNQ(behind, letter, behind) // the bits behind runs
	ANDQ(behind, capital)
	ANDQ(behind, two)
	ANDNQ(capital, two, capital)
	add(offTitle, capital, final, ends)
	ANDNQ(two, small, capital)
	add(offCapitals, capital, final, ends)
	ANDQ(two, small)
	add(offMixed, small, final, ends)

	offset := ZMM()
	VPBROADCASTD(base.(GPVirtual).As32(), offset)
	put := func(label string, off int, which, count Register) {
		n, p, z := GP64(), ZMM(), ZMM()
		KMOVQ(which, K1)
		POPCNTQ(which, n)
		VPCOMPRESSB_Z(places, K1, p)
		VPMOVZXBD(p.AsX(), z)
		VPADDD(offset, z, z)
		VMOVDQU32(z, Mem{Base: t, Index: count, Scale: 4, Disp: off})
		CMPQ(n, Imm(16))
		JLE(LabelRef(label))
		for i := 1; i < 4; i++ {
			x := XMM()
			VEXTRACTI32X4(Imm(uint64(i)), p, x)
			VPMOVZXBD(x, z)
			VPADDD(offset, z, z)
			VMOVDQU32(z, Mem{Base: t, Index: count, Scale: 4, Disp: off + 64*i})
		}
		Label(label)
		ADDQ(n, count)
	}
	put("begun", offAt, begin, starts)
	put("ended", offEnd, final, ends)

	ADDQ(U32(masksSize), m)
	ADDQ(U32(64), base)
	CMPQ(base, end)
	JLE(LabelRef("word"))

	// How long each token is, and what of it is hashed.
	i, four := zero64(), every(4)
	Label("runes")
	CMPQ(i, starts)
	JGE(LabelRef("done"))
	octet := GP64()
	MOVQ(i, octet)
	SHRQ(Imm(3), octet)
	KMOVW(Mem{Base: t, Index: octet, Scale: 1, Disp: offDigit}, K1)
	z, size := ZMM(), ZMM()
	VMOVDQU32(Mem{Base: t, Index: i, Scale: 4, Disp: offAt}, z)
	VMOVDQU32(Mem{Base: t, Index: i, Scale: 4, Disp: offEnd}, size)
	VPSUBD(z, size, size)
	VMOVDQU32(size, Mem{Base: t, Index: i, Scale: 4, Disp: offRunes})
	VPMINSD(four, size, K1, size)
	VPADDD(z, size, size)
	VMOVDQU32(size, Mem{Base: t, Index: i, Scale: 4, Disp: offHashed})
	ADDQ(Imm(16), i)
	JMP(LabelRef("runes"))
	Label("done")
	Store(starts, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
