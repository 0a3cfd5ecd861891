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

func classifyAVX2() {
	TEXT("classifyAVX2", NOSPLIT, "func(raw *byte, n uintptr, low *byte, m *uint64) (wide uintptr)")
	Doc("classifyAVX2 is classifyAVX512 for n ≥ 1 bytes. It reads 64 bytes of raw at a",
		"time.")
	Pragma("noescape")
	raw, left, low, m := param("raw"), param("n"), param("low"), param("m")
	wide := zero64()
	Label("next")
	valid := GP64()
	lowBits(left, 64, valid)
	var masks [5]Register // letters, digits, white space, not capitals, not ASCII
	for half := range 2 {
		x := load(Mem{Base: raw, Disp: 32 * half})
		t, letters, digits, spaces := YMM(), YMM(), YMM(), YMM()
		// in sets dst where t is in [lo, hi], lo > 0: moved up to the highest
		// numbers with a sign.
		in := func(t VecVirtual, lo, hi byte, dst VecVirtual) {
			VPADDB(bytesOf(127-hi), t, dst)
			VPCMPGTB(bytesOf(126-(hi-lo)), dst, dst)
		}
		VPOR(bytesOf(0x20), x, t)
		in(t, 'a', 'z', letters)
		in(x, '0', '9', digits)
		in(x, '\t', '\r', spaces)
		in(x, 0x1c, ' ', t)
		VPOR(t, spaces, spaces)
		VPSLLW(Imm(2), x, t) // the bit that small letters have, to the highest
		for i, y := range []VecVirtual{letters, digits, spaces, t, x} {
			r := GP64()
			VPMOVMSKB(y, r.As32())
			if half == 0 {
				masks[i] = r
			} else {
				SHLQ(Imm(32), r)
				ORQ(r, masks[i])
			}
		}
		VPAND(bytesOf(0x20), letters, letters)
		VPOR(letters, x, x)
		VPAND(bytesOf(0xf), digits, digits)
		VPANDN(x, digits, x)
		VMOVDQU(x, Mem{Base: low, Disp: 32 * half})
	}
	for i, r := range masks {
		if i != 3 {
			ANDQ(valid, r)
		}
	}
	ANDNQ(masks[0], masks[3], masks[3])
	for i, off := range []int{offMaskLetter, offMaskDigit, offMaskSpace, offMaskUpper, offMaskCont} {
		MOVQ(masks[i], Mem{Base: m, Disp: off})
	}
	ORQ(masks[4], wide)
	ADDQ(U32(64), raw)
	ADDQ(U32(64), low)
	ADDQ(U32(masksSize), m)
	SUBQ(U32(64), left)
	JG(LabelRef("next"))
	Store(wide, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// batch is how many offsets splitAVX2 writes before it asks for more.
const batch = 8

func split(wide bool) {
	name := "splitAVX2"
	if wide {
		name = "splitAVX512"
	}
	TEXT(name, NOSPLIT, "func(m *uint64, from, end uintptr, t *int) (n uintptr)")
	Doc(name+" writes the tokens between from and end, at most 512 bytes from",
		"the line's begin, and returns their number. It takes the bytes of a token for",
		"its characters.",
		"",
		"A sum of the letters' bits and some bits among them carries out of every run of",
		"letters that has one of those, to the bit behind the run.")
	Pragma("noescape")
	m, from, t := param("m"), param("from"), param("t")
	end := slot("end")

	var places VecVirtual
	if wide {
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
		places = ZMM()
		VMOVDQU64(words("places", iota[:]...), places)
	} else {
		none := zeroY()
		for off := offLetter; off < endTokens; off += 32 {
			VMOVDQU(none, Mem{Base: t, Disp: min(off, endTokens-32)})
		}
	}

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
	sort := func(add func(off int, x, which, count Register)) {
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
	}
	if wide {
		sort(add)
	} else { // most often all tokens so far have their bits in one word
		n := GP64()
		POPCNTQ(begin, n)
		ADDQ(starts, n)
		CMPQ(n, Imm(64))
		JG(LabelRef("apart"))
		sort(func(off int, x, which, count Register) {
			r := GP64()
			PEXTQ(which, x, r)
			SHLXQ(count, r, r)
			ORQ(r, Mem{Base: t, Disp: off})
		})
		JMP(LabelRef("sorted"))
		Label("apart")
		sort(add)
		Label("sorted")
	}

	var put func(label string, off int, which, count Register)
	if wide {
		offset := ZMM()
		VPBROADCASTD(base.(GPVirtual).As32(), offset)
		put = func(label string, off int, which, count Register) {
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
	} else {
		put = func(label string, off int, which, count Register) {
			n, p, x := GP64(), GP64(), GP64()
			POPCNTQ(which, n)
			LEAQ(Mem{Base: t, Index: count, Scale: 4, Disp: off}, p)
			ADDQ(n, count)
			Label(label)
			for i := range batch {
				TZCNTQ(which, x)
				ADDL(base.(GPVirtual).As32(), x.As32())
				MOVL(x.As32(), Mem{Base: p, Disp: 4 * i})
				BLSRQ(which, which)
			}
			ADDQ(U32(4*batch), p)
			SUBQ(U32(batch), n)
			JG(LabelRef(label))
		}
	}
	put("begun", offAt, begin, starts)
	put("ended", offEnd, final, ends)

	ADDQ(U32(masksSize), m)
	ADDQ(U32(64), base)
	CMPQ(base, end)
	JLE(LabelRef("word"))

	// How long each token is, and what of it is hashed.
	i := zero64()
	if wide {
		four := every(4)
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
	} else {
		octet := zero64()
		Label("runes")
		CMPQ(i, starts)
		JGE(LabelRef("done"))
		z, size, short := YMM(), YMM(), YMM()
		VMOVDQU(Mem{Base: t, Index: i, Scale: 4, Disp: offAt}, z)
		VMOVDQU(Mem{Base: t, Index: i, Scale: 4, Disp: offEnd}, size)
		VPSUBD(z, size, size)
		VMOVDQU(size, Mem{Base: t, Index: i, Scale: 4, Disp: offRunes})
		VPMINSD(lanesOf(4), size, short)
		VBLENDVPS(spread(Mem{Base: t, Index: octet, Scale: 1, Disp: offDigit}), short, size, size)
		VPADDD(z, size, size)
		VMOVDQU(size, Mem{Base: t, Index: i, Scale: 4, Disp: offHashed})
		ADDQ(Imm(1), octet)
		ADDQ(Imm(8), i)
		JMP(LabelRef("runes"))
	}
	Label("done")
	Store(starts, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// count needs no vectors, but the compiler asks for POPCNT each time.
func count() {
	TEXT("countBMI2", NOSPLIT, "func(m *uint64, from, end uintptr, t *int, n uintptr, counts *int)")
	Doc("countBMI2 writes the counts of the bytes between from and end and of t's n",
		"tokens, at least one, as line.countHead does.")
	Pragma("noescape")
	m, from, end, t, n, counts := param("m"), param("from"), param("end"), param("t"), param("n"), param("counts")
	first := GP64()
	MOVQ(I32(-1), first)
	SHLXQ(from, first, first) // by its low 6 bits
	ANDQ(I32(-64), from)
	SUBQ(from, end) // how many bytes are left
	{
		at := GP64()
		IMUL3Q(U32(masksSize/8), from, at) // base/64·40
		SHRQ(Imm(3), at)
		ADDQ(at, m)
	}
	sums := []Register{zero64(), zero64(), zero64(), zero64(), zero64()} // letters, capitals, digits, white space, continuations
	Label("bytes")
	in, x, cont := GP64(), GP64(), GP64()
	lowBits(end, 64, in)
	ANDQ(first, in)
	MOVQ(I32(-1), first)
	MOVQ(Mem{Base: m, Disp: offMaskCont}, cont)
	for i, off := range []int{offMaskLetter, offMaskUpper, offMaskDigit, offMaskSpace, offMaskCont} {
		MOVQ(in, x)
		ANDQ(Mem{Base: m, Disp: off}, x)
		if i == 0 {
			ANDNQ(x, cont, x)
		}
		POPCNTQ(x, x)
		ADDQ(x, sums[i])
	}
	ADDQ(U32(masksSize), m)
	SUBQ(U32(64), end)
	JG(LabelRef("bytes"))
	for i, r := range sums {
		MOVQ(r, Mem{Base: counts, Disp: 8 * i})
	}

	sums = nil
	for range 8 { // words, those with a capital, and signs
		sums = append(sums, zero64())
	}
	Label("tokens")
	MOVQ(Mem{Base: t, Disp: offSpaced}, x)
	POPCNTQ(x, in)
	ADDQ(in, sums[0])
	ANDQ(Mem{Base: t, Disp: offUpper}, x)
	POPCNTQ(x, x)
	ADDQ(x, sums[1])
	lowBits(n, 64, in) // behind the last token look has left what was there
	for i := range 6 {
		MOVQ(in, x)
		ANDQ(Mem{Base: t, Disp: offSigns + bitsetSize*(i+1)}, x)
		POPCNTQ(x, x)
		ADDQ(x, sums[2+i])
	}
	ADDQ(Imm(8), t)
	SUBQ(U32(64), n)
	JG(LabelRef("tokens"))
	for i, r := range sums {
		at := 5 + i
		if i > 1 {
			at++ // signs begin at 1
		}
		MOVQ(r, Mem{Base: counts, Disp: 8 * at})
	}
	RET()
}
