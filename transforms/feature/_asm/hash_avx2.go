package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// pair are 16 numbers, or hashes, in lanes of 32 bits.
type pair [2]VecVirtual

func newPair() pair { return pair{YMM(), YMM()} }

func pairOf(x uint32) pair { return pair{load(lanesOf(x)), load(lanesOf(x))} }

// byteOf takes byte i of each lane of 32 bits.
func byteOf(i int) Mem {
	var w [4]uint32
	for k := range w {
		w[k] = 0x80808000 | uint32(4*k+i)
	}
	return constant(fmt.Sprintf("byteOf%d", i), w[:]...)
}

// walker is what hashTokensAVX2 walks over tokens with.
type walker struct {
	low, t, n Register
	prime     VecVirtual
	local     Mem // two vectors for each of two hashes
}

// walk goes on with hashes over the 16 tokens from k on, as fnv.walk does, in
// lanes of 32 bits. Of bytes behind the sixteenth, one after the other.
func (f *walker) walk(name string, k Register, hashes ...pair) {
	size := newPair()
	{
		left, valid, x := GP64(), YMM(), YMM()
		MOVQ(f.n, left)
		SUBQ(k, left)
		VMOVD(left.As32(), valid.AsX())
		VPBROADCASTD(valid.AsX(), valid)
		for half := range size {
			VPCMPGTD(countsFrom(uint32(8*half)), valid, x)
			VMOVDQU(Mem{Base: f.t, Index: k, Scale: 4, Disp: offHashed + 32*half}, size[half])
			VPSUBD(Mem{Base: f.t, Index: k, Scale: 4, Disp: offAt + 32*half}, size[half], size[half])
			VPAND(x, size[half], size[half])
		}
	}
	longest := YMM()
	VPMAXSD(size[0], size[1], longest)
	steps := func(off int) {
		var word pair
		for half := range word {
			word[half] = load(Mem{Base: f.t, Index: k, Scale: 8, Disp: off + 64*half})
		}
		for i := range 4 {
			for half, w := range word {
				c := YMM()
				VPSHUFB(byteOf(i), w, c)
				for _, h := range hashes {
					VPXOR(c, h[half], h[half])
					VPMULLD(f.prime, h[half], h[half])
				}
			}
		}
	}
	longer := func(n uint32, label string) {
		x, m := YMM(), GP32()
		VPCMPGTD(lanesOf(n), longest, x)
		VMOVMSKPS(x, m)
		TESTL(m, m)
		JEQ(LabelRef(name + label))
	}
	taken := load(lanesOf(12)) // two thirds of all have more than 8
	steps(offLo)
	steps(offLo + 32)
	steps(offHi)
	longer(12, "last")
	VMOVDQU(lanesOf(16), taken)
	steps(offHi + 32)
	Label(name + "last")
	// Powers of the prime's inverse.
	power := inverses(16)
	first, second := load(constant("inverse0", power[:8]...)), load(constant("inverse8", power[8:]...))
	for half := range size {
		over, x, y := YMM(), YMM(), YMM()
		VPSUBD(size[half], taken, over)
		VPMAXSD(zeroY(), over, over)
		VPERMD(first, over, x)
		VPERMD(second, over, y)
		VPSLLD(Imm(28), over, over)
		VBLENDVPS(over, y, x, x)
		for _, h := range hashes {
			VPMULLD(x, h[half], h[half])
		}
	}

	longer(16, "done")
	mask := GP64()
	{
		m := GP64()
		x := YMM()
		VPCMPGTD(lanesOf(16), size[0], x)
		VMOVMSKPS(x, mask.As32())
		VPCMPGTD(lanesOf(16), size[1], x)
		VMOVMSKPS(x, m.As32())
		SHLL(Imm(8), m.As32())
		ORL(m.As32(), mask.As32())
	}
	for i, h := range hashes {
		for half := range h {
			VMOVDQU(h[half], f.local.Offset(64*i+32*half))
		}
	}
	base := GP64()
	LEAQ(f.local, base)
	Label(name + "lane")
	lane, at, end, c := GP64(), GP64(), GP64(), GP64()
	TZCNTQ(mask, lane)
	MOVQ(k, c)
	ADDQ(lane, c)
	MOVLQSX(Mem{Base: f.t, Index: c, Scale: 4, Disp: offAt}, at)
	MOVLQSX(Mem{Base: f.t, Index: c, Scale: 4, Disp: offHashed}, end)
	ADDQ(Imm(16), at)
	var h [2]Register
	for i := range hashes {
		h[i] = GP32()
		MOVL(Mem{Base: base, Index: lane, Scale: 4, Disp: 64 * i}, h[i])
	}
	Label(name + "byte")
	MOVBLZX(Mem{Base: f.low, Index: at, Scale: 1}, c.As32())
	for i := range hashes {
		XORL(c.As32(), h[i])
		IMUL3L(U32(fnvPrime), h[i], h[i])
	}
	ADDQ(Imm(1), at)
	CMPQ(at, end)
	JLT(LabelRef(name + "byte"))
	for i := range hashes {
		MOVL(h[i], Mem{Base: base, Index: lane, Scale: 4, Disp: 64 * i})
	}
	BLSRQ(mask, mask)
	JNE(LabelRef(name + "lane"))
	for i, h := range hashes {
		for half := range h {
			VMOVDQU(f.local.Offset(64*i+32*half), h[half])
		}
	}
	Label(name + "done")
}

// hashTokensAVX2 goes over the tokens three times, since it writes whole vectors:
// what they have too much, the next group overwrites.
func hashTokensAVX2() {
	TEXT("hashTokensAVX2", NOSPLIT, "func(low *byte, t *int, n uintptr, words, pairs, affixes *uint32) (numAffixes uintptr)")
	Doc("hashTokensAVX2 is hashTokensAVX512, but that the groups must follow each other",
		"and that it may write 19 hashes behind the last one. It reads the four bytes before",
		"the ends of up to 8 tokens behind the last one, too.")
	Pragma("noescape")
	f := &walker{low: param("low"), t: param("t"), n: param("n")}
	low, t, n := f.low, f.t, f.n
	f.prime = load(lanesOf(fnvPrime))
	f.local = AllocLocal(128)
	k, octet := GP64(), GP64()

	// Words: that with its shape, where there is a capital, and the word. Which of
	// four tokens have a capital makes one of 16 orders.
	var order [16 * 8]uint32
	for m := range 16 {
		to := order[8*m:][:0]
		for i := range 4 {
			if m>>i&1 != 0 {
				to = append(to, uint32(2*i))
			}
			to = append(to, uint32(2*i+1))
		}
	}
	{
		word, orders := param("words"), GP64()
		LEAQ(words("order", order[:]...), orders)
		XORQ(k, k)
		XORQ(octet, octet)
		Label("words")
		own, first := pairOf(wordSeed), pairOf(pairSeed)
		f.walk("own", k, own, first)
		shaped := GP64()
		MOVWLZX(Mem{Base: t, Index: octet, Scale: 1, Disp: offTitle}, shaped.As32())
		ORW(Mem{Base: t, Index: octet, Scale: 1, Disp: offCapitals}, shaped.As16())
		ORW(Mem{Base: t, Index: octet, Scale: 1, Disp: offMixed}, shaped.As16())
		SHLQ(Imm(5), shaped)
		for half := range own {
			x, y := YMM(), YMM()
			VPXOR(lanesOf(1), first[half], x)
			VPMULLD(f.prime, x, x)
			VMOVDQU(x, Mem{Base: t, Index: k, Scale: 4, Disp: offFirsts + 32*half})
			VPXOR(lanesOf('C'), own[half], x)
			for i, off := range []int{offCapitals, offMixed} {
				y := spread(Mem{Base: t, Index: octet, Scale: 1, Disp: off + half})
				VPAND(lanesOf([]uint32{'C' ^ 'X', 'C' ^ 'M'}[i]), y, y)
				VPXOR(y, x, x)
			}
			VPMULLD(f.prime, x, x)
			VPUNPCKHDQ(own[half], x, y) // tokens 2, 3, 6, 7
			VPUNPCKLDQ(own[half], x, x) // tokens 0, 1, 4, 5
			for i := range 2 {
				four, index, c := YMM(), YMM(), GP64()
				VPERM2I128(Imm(uint64(0x20+0x11*i)), y, x, four)
				MOVL(shaped.As32(), c.As32())
				ANDL(U32(15<<5), c.As32())
				VMOVDQU(Mem{Base: orders, Index: c, Scale: 1}, index)
				VPERMD(four, index, four)
				VMOVDQU(four, Mem{Base: word})
				POPCNTL(c.As32(), c.As32())
				LEAQ(Mem{Base: word, Index: c, Scale: 4, Disp: 16}, word)
				SHRL(Imm(4), shaped.As32())
			}
		}
		ADDQ(Imm(2), octet)
		ADDQ(Imm(16), k)
		CMPQ(k, n)
		JLT(LabelRef("words"))
	}

	// Pairs go on where the token before ended. The first token has none, and the
	// number before the first pair stays.
	{
		pairs, kept, before := param("pairs"), GP32(), zeroY()
		MOVL(Mem{Base: pairs, Disp: -4}, kept)
		XORQ(k, k)
		Label("pairs")
		second := newPair()
		for half := range second {
			x, y := YMM(), load(Mem{Base: t, Index: k, Scale: 4, Disp: offFirsts + 32*half})
			VPERM2I128(Imm(0x21), y, before, x) // the high half of before, the low one of y
			VPALIGNR(Imm(12), x, y, second[half])
			VMOVDQA(y, before)
		}
		f.walk("pair", k, second)
		for half, h := range second {
			VMOVDQU(h, Mem{Base: pairs, Index: k, Scale: 4, Disp: -4 + 32*half})
		}
		ADDQ(Imm(16), k)
		CMPQ(k, n)
		JLT(LabelRef("pairs"))
		MOVL(kept, Mem{Base: pairs, Disp: -4})
	}

	// Affixes of 8 tokens. Lanes are turned so that of one token all stand
	// together.
	affix := param("affixes")
	XORQ(k, k)
	XORQ(octet, octet)
	Label("affixes")
	{
		final := YMM()
		ends := make([]Register, 8)
		var halves [2]VecVirtual
		for half := range halves {
			x := XMM()
			for i := range 4 {
				e := GP64()
				ends[i] = e
				MOVLQSX(Mem{Base: t, Index: k, Scale: 4, Disp: offEnd + 16*half + 4*i}, e)
				last := Mem{Base: low, Index: e, Scale: 1, Disp: -4}
				if i == 0 {
					VMOVD(last, x)
				} else {
					VPINSRD(Imm(uint64(i)), last, x, x)
				}
			}
			halves[half] = x
		}
		VINSERTI128(Imm(1), halves[1], halves[0].AsY(), final)
		number := YMM() // bytes of each token's affixes
		{
			runes, x, y := YMM(), YMM(), YMM()
			VMOVDQU(Mem{Base: t, Index: k, Scale: 4, Disp: offRunes}, runes)
			VPCMPGTD(lanesOf(4), runes, x)
			VPADDD(x, x, x)
			for _, n := range []uint32{2, 3} {
				VPCMPGTD(lanesOf(n), runes, y)
				VPADDD(y, x, x)
			}
			VPAND(spread(Mem{Base: t, Index: octet, Scale: 1, Disp: offLetter}), x, x)
			VPSLLD(Imm(2), x, x)
			VPSUBD(x, zeroY(), number)
			VMOVDQU(number, f.local)
		}
		initial := load(Mem{Base: t, Index: k, Scale: 8, Disp: offLo})
		s2, s3, s4, p := load(lanesOf(suffix2Seed)), load(lanesOf(suffix3Seed)), load(lanesOf(suffix4Seed)), load(lanesOf(prefixSeed))
		step := func(c, h VecVirtual) {
			VPXOR(c, h, h)
			VPMULLD(f.prime, h, h)
		}
		for i := range 4 {
			c := YMM()
			VPSHUFB(byteOf(i), initial, c)
			step(c, p)
			c = YMM()
			VPSHUFB(byteOf(i), final, c)
			step(c, s4)
			if i > 0 {
				step(c, s3)
			}
			if i > 1 {
				step(c, s2)
			}
		}
		var fours []VecVirtual // token i and token i+4
		for _, words := range []func(...Op){VPUNPCKLDQ, VPUNPCKHDQ} {
			ab, cd := YMM(), YMM()
			words(s3, s2, ab)
			words(p, s4, cd)
			for _, pairs := range []func(...Op){VPUNPCKLQDQ, VPUNPCKHQDQ} {
				four := YMM()
				pairs(cd, ab, four)
				fours = append(fours, four)
			}
		}
		for i := range 8 {
			c := GP64()
			if i < 4 {
				VMOVDQU(fours[i].AsX(), Mem{Base: affix})
			} else {
				VEXTRACTI128(Imm(1), fours[i-4], Mem{Base: affix})
			}
			MOVL(f.local.Offset(4*i), c.As32())
			ADDQ(c, affix)
		}
	}
	ADDQ(Imm(1), octet)
	ADDQ(Imm(8), k)
	CMPQ(k, n)
	JLT(LabelRef("affixes"))

	SUBQ(slot("affixes"), affix)
	SHRQ(Imm(2), affix)
	Store(affix, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func fmix32AVX2() {
	TEXT("fmix32AVX2", NOSPLIT, "func(hashes *uint32, n uintptr, mask uint32)")
	Doc("fmix32AVX2 is fmix32AVX512 for n ≥ 8.")
	Pragma("noescape")
	p, n := param("hashes"), param("n")
	mask := YMM()
	VMOVD(Load(Param("mask"), GP32()), mask.AsX())
	VPBROADCASTD(mask.AsX(), mask)
	a, b := load(lanesOf(0x85ebca6b)), load(lanesOf(0xc2b2ae35))
	fmix := func(h VecVirtual) {
		x := YMM()
		for i, shift := range []uint64{16, 13, 16} {
			VPSRLD(Imm(shift), h, x)
			VPXOR(x, h, h)
			if i < 2 {
				VPMULLD([]VecVirtual{a, b}[i], h, h)
			}
		}
		VPAND(mask, h, h)
	}
	// The last eight are done before any of them is.
	last, behind := YMM(), GP64()
	LEAQ(Mem{Base: p, Index: n, Scale: 4, Disp: -32}, behind)
	VMOVDQU(Mem{Base: behind}, last)
	fmix(last)
	Label("next")
	h := load(Mem{Base: p})
	fmix(h)
	VMOVDQU(h, Mem{Base: p})
	ADDQ(Imm(32), p)
	CMPQ(p, behind)
	JLT(LabelRef("next"))
	VMOVDQU(last, Mem{Base: behind})
	VZEROUPPER()
	RET()
}

// edgesAVX2 has a hash a lane. All take equally many steps, four bytes at a time.
func edgesAVX2() {
	TEXT("edgesAVX2", NOSPLIT, "func(low *byte, t *int, n uintptr, out *uint32)")
	Doc("edgesAVX2 writes the hashes of the first token, the last, the first two, the last",
		"two and the first three of n ≥ 3 tokens that follow each other there, as line.head",
		"and line.tail do, of at most 64 bytes. It reads up to 64 bytes from the begin of each on.")
	Pragma("noescape")
	low, t, n, out := param("low"), param("t"), param("n"), param("out")
	entry := func(off, i int, fromEnd bool) Mem {
		if fromEnd {
			return Mem{Base: t, Index: n, Scale: 4, Disp: off - 4*i}
		}
		return Mem{Base: t, Disp: off + 4*i}
	}
	head, last, lastTwo := GP64(), GP64(), GP64()
	MOVLQSX(entry(offAt, 0, false), head)
	MOVLQSX(entry(offAt, 1, true), last)
	MOVLQSX(entry(offAt, 2, true), lastTwo)
	var sizes [5]Register // of the first, two and three; of the last and two
	for i := range sizes {
		sizes[i] = GP64()
		if i < 3 {
			MOVLQSX(entry(offHashed, i, false), sizes[i])
			SUBQ(head, sizes[i])
		} else {
			MOVLQSX(entry(offHashed, 1, true), sizes[i])
			SUBQ([]Register{last, lastTwo}[i-3], sizes[i])
		}
	}
	// Hashes, and how many bytes they have left, in the low halves of 64 bits.
	half := func(r Register) Register { return r.(GPVirtual).As32() }
	left, lastLeft := YMM(), XMM()
	VMOVD(half(sizes[1]), left.AsX())
	VINSERTI128(Imm(1), left.AsX(), left, left)
	VMOVD(half(sizes[0]), lastLeft)
	steps, x := GP64(), XMM()
	VMOVD(half(sizes[2]), x)
	VPUNPCKLQDQ(x, lastLeft, x)
	VINSERTI128(Imm(0), x, left, left) // one, three, two, -
	VMOVD(half(sizes[3]), lastLeft)
	VMOVD(half(sizes[4]), x)
	VPUNPCKLQDQ(x, lastLeft, lastLeft)
	MOVQ(sizes[2], steps)
	CMPQ(sizes[4], steps)
	CMOVQGT(sizes[4], steps)
	h := load(constant("headSeeds", firstSeed, 0, firstThreeSeed, 0, firstTwoSeed, 0, 0, 0))
	g := XMM()
	VMOVDQU(constant("lastSeeds", lastSeed, 0, lastTwoSeed, 0), g)
	prime := load(lanesOf(fnvPrime))
	for _, r := range []Register{head, last, lastTwo} {
		ADDQ(low, r)
	}
	i := zero64()
	Label("four")
	text, lastText := YMM(), XMM()
	VPBROADCASTD(Mem{Base: head, Index: i, Scale: 1}, text)
	VMOVD(Mem{Base: last, Index: i, Scale: 1}, lastText)
	VPINSRD(Imm(2), Mem{Base: lastTwo, Index: i, Scale: 1}, lastText, lastText)
	for b := range uint32(4) {
		bytes := constant(fmt.Sprintf("edgeByte%d", b), 0x80808000|b, 0x80808080, 0x80808008|b, 0x80808080)
		for k, h := range []VecVirtual{h, g} {
			c, is := YMM(), YMM()
			if k == 0 {
				VPSHUFB(bytes, text, c)
				VPCMPGTD(lanesOf(b), left, is)
				VPAND(is, c, c)
				VPXOR(c, h, h)
				VPMULUDQ(prime, h, h)
			} else {
				c, is := c.AsX(), is.AsX()
				VPSHUFB(bytes, lastText, c)
				VPCMPGTD(lanesOf(b), lastLeft, is)
				VPAND(is, c, c)
				VPXOR(c, h, h)
				VPMULUDQ(prime.AsX(), h, h)
			}
		}
	}
	VPSUBD(lanesOf(4), left, left)
	VPSUBD(lanesOf(4), lastLeft, lastLeft)
	ADDQ(Imm(4), i)
	CMPQ(i, steps)
	JLT(LabelRef("four"))

	local, powers := AllocLocal(48), GP64()
	VMOVDQU(h, local)
	VMOVDQU(g, local.Offset(32))
	LEAQ(words("inverses", inverses(64+1)...), powers)
	for k, at := range []int{0, 2, 4, 1, 3} {
		lane := []int{0, 4, 2, 8, 10}[k]
		over, h := GP64(), GP32()
		MOVQ(i, over)
		SUBQ(sizes[k], over)
		MOVL(local.Offset(4*lane), h)
		IMULL(Mem{Base: powers, Index: over, Scale: 4}, h)
		MOVL(h, Mem{Base: out, Disp: 4 * at})
	}
	VZEROUPPER()
	RET()
}

// inverses are the powers of the prime's inverse from 0 on.
func inverses(n int) (powers []uint32) {
	inverse := uint32(1)
	for range 32 { // Newton's steps, more than enough
		inverse *= 2 - fnvPrime*inverse
	}
	for power := uint32(1); len(powers) < n; power *= inverse {
		powers = append(powers, power)
	}
	return powers
}
