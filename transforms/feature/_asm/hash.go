package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The hashes' seeds, as the package has them.
const (
	fnvBasis    = 2166136261
	fnvPrime    = 16777619
	wordSeed    = fnvBasis ^ 1
	pairSeed    = fnvBasis ^ 2
	suffix2Seed = fnvBasis ^ 0x102
	suffix3Seed = fnvBasis ^ 0x103
	suffix4Seed = fnvBasis ^ 0x104
	prefixSeed  = fnvBasis ^ 0x200
)

// fnv is what hashes of FNV-1a need, one a lane.
type fnv struct {
	prime  VecVirtual
	counts Mem           // 0 to 15
	byteOf [4]VecVirtual // byte i of each lane, as a number
}

func newFNV() *fnv {
	var count [16]uint32
	for i := range count {
		count[i] = uint32(i)
	}
	f := &fnv{prime: every(fnvPrime), counts: words("counts", count[:]...)}
	for i := range f.byteOf {
		var w [4]uint32
		for k := range w {
			w[k] = 0x80808000 | uint32(4*k+i)
		}
		f.byteOf[i] = ZMM()
		VBROADCASTI32X4(words(fmt.Sprintf("byte%d", i), w[:]...), f.byteOf[i])
	}
	return f
}

func (f *fnv) number(i int) Mem { return f.counts.Offset(4 * i) }

// step is hash = (hash ^ c)·prime in the lanes of k, or in all.
func (f *fnv) step(hash, c VecVirtual, k Register) {
	x := ZMM()
	VPXORD(c, hash, x)
	if k == nil {
		VPMULLD(f.prime, x, hash)
	} else {
		VPMULLD(f.prime, x, k, hash)
	}
}

// walk goes on with hashes over size bytes of low from offset at on. The first
// bytes, four in a lane, it leaves in quads or, where they are there, takes
// from them. It needs K1 and K2.
func (f *fnv) walk(name string, low Register, at, size VecVirtual, quads []VecVirtual, hashes ...VecVirtual) {
	c := ZMM()
	four := func(q, size VecVirtual) {
		for i := range f.byteOf {
			if i > 0 {
				VPCMPD_BCST(Imm(greater), f.number(i), size, K1)
			}
			VPSHUFB(f.byteOf[i], q, c)
			for _, h := range hashes {
				f.step(h, c, K1)
			}
		}
	}
	gather := func(place VecVirtual, disp int) VecVirtual {
		q := ZMM()
		VPXORD(q, q, q)
		KMOVW(K1, K2)
		VPGATHERDD(Mem{Base: low, Index: place, Scale: 1, Disp: disp}, K2, q)
		return q
	}
	left, place := ZMM(), ZMM()
	VMOVDQA32(size, left)
	for i := range quads {
		VPCMPD_BCST(Imm(greater), f.number(0), left, K1)
		if i > 1 {
			KORTESTW(K1, K1)
			JEQ(LabelRef(name + "done"))
		}
		if quads[i] == nil {
			quads[i] = gather(at, 4*i)
		}
		four(quads[i], left)
		VPSUBD_BCST(f.number(4), left, left)
	}
	VMOVDQA32(at, place)
	Label(name + "more")
	VPCMPD_BCST(Imm(greater), f.number(0), left, K1)
	KORTESTW(K1, K1)
	JEQ(LabelRef(name + "done"))
	four(gather(place, 4*len(quads)), left)
	VPADDD_BCST(f.number(4), place, place)
	VPSUBD_BCST(f.number(4), left, left)
	JMP(LabelRef(name + "more"))
	Label(name + "done")
}

// hashTokens takes 16 tokens at a time, one a lane.
func hashTokens() {
	TEXT("hashTokensAVX512", NOSPLIT, "func(low *byte, t *int, n uintptr, words, pairs, affixes *uint32) (numAffixes uintptr)")
	Doc("hashTokensAVX512 writes the hashes of t's n ≥ 1 tokens, and the affixes of",
		"words of letters as if each character were a byte. It may read four bytes",
		"before low and behind a token.")
	Pragma("noescape")
	low, t, n := param("low"), param("t"), slot("n")
	word, pair, affix := param("words"), param("pairs"), param("affixes")

	f := newFNV()
	number, byteOf, step := f.number, f.byteOf, f.step
	var lowIndex, highIndex, turned [16]uint32
	for i := range uint32(8) {
		lowIndex[2*i], lowIndex[2*i+1] = i, 16+i
		highIndex[2*i], highIndex[2*i+1] = 8+i, 24+i
	}
	for i := range uint32(16) {
		turned[i] = i%4*4 + i/4
	}
	lowHalf, highHalf, turn := words("lowHalf", lowIndex[:]...), words("highHalf", highIndex[:]...), words("turn", turned[:]...)

	// store writes the lanes of mask's low 16 bits side by side, and moves dst on.
	store := func(x VecVirtual, mask Register, dst Register) {
		y, c, m := ZMM(), GP64(), GP64()
		MOVWLZX(mask.(GPVirtual).As16(), c.As32())
		KMOVW(c.As32(), K1)
		VPCOMPRESSD_Z(x, K1, y)
		POPCNTL(c.As32(), c.As32())
		MOVQ(I32(-1), m)
		BZHIQ(c, m, m)
		KMOVW(m.As32(), K1)
		VMOVDQU32(y, K1, Mem{Base: dst})
		LEAQ(Mem{Base: dst, Index: c, Scale: 4}, dst)
	}

	k := zero64()
	before, notFirst := ZMM(), GP64()
	VPXORD(before, before, before)
	MOVQ(U32(0xfffe), notFirst)

	Label("chunk")
	valid, octet := GP64(), GP64()
	{
		left := GP64()
		MOVQ(n, left)
		SUBQ(k, left)
		lowBits(left, 16, valid)
	}
	MOVQ(k, octet)
	SHRQ(Imm(3), octet)
	bits := func(off int) GPVirtual {
		r := GP64()
		MOVWQZX(Mem{Base: t, Index: octet, Scale: 1, Disp: off}, r)
		return r
	}
	KMOVW(valid.As32(), K1)
	at, end, size := ZMM(), ZMM(), ZMM()
	VMOVDQU32_Z(Mem{Base: t, Index: k, Scale: 4, Disp: offAt}, K1, at)
	VMOVDQU32_Z(Mem{Base: t, Index: k, Scale: 4, Disp: offHashed}, K1, end)
	VPSUBD(at, end, size)

	own, first, second := every(wordSeed), every(pairSeed), ZMM()
	// The second walk goes on where the token before ended.
	var quad [4]VecVirtual
	f.walk("own", low, at, size, quad[:], own, first)

	// Pairs.
	{
		one, last := ZMM(), ZMM()
		VPXORD_BCST(number(1), first, one)
		VPMULLD(f.prime, one, first)
		VMOVDQA32(before, last)
		VMOVDQA32(first, before)
		VALIGND(Imm(15), last, first, second)
	}
	f.walk("pair", low, at, size, quad[:], second)
	{
		m := GP64()
		MOVQ(valid, m)
		ANDQ(notFirst, m)
		MOVQ(U32(0xffff), notFirst)
		KMOVW(m.As32(), K1)
		VMOVDQU32(second, K1, Mem{Base: pair, Index: k, Scale: 4, Disp: -4})
	}

	// Words: that with its shape, where there is a capital, and the word.
	{
		capitals, mixed := bits(offCapitals), bits(offMixed)
		shaped := bits(offTitle)
		shape := every('C')
		x, m := every('X'), every('M')
		KMOVW(capitals.As32(), K1)
		VMOVDQA32(x, K1, shape)
		KMOVW(mixed.As32(), K1)
		VMOVDQA32(m, K1, shape)
		ORQ(capitals, shaped)
		ORQ(mixed, shaped)
		with := ZMM()
		VMOVDQA32(own, with)
		step(with, shape, nil)
		odd, even, mask := GP64(), GP64(), GP64()
		MOVQ(U32(0x55555555), even)
		LEAQ(Mem{Base: even, Index: even, Scale: 1}, odd)
		PDEPQ(even, shaped, mask)
		PDEPQ(odd, valid, odd)
		ORQ(odd, mask)
		for _, half := range []Mem{lowHalf, highHalf} {
			index := ZMM()
			VMOVDQU32(half, index)
			VPERMI2D(own, with, index)
			store(index, mask, word)
			SHRQ(Imm(16), mask)
		}
	}

	// Affixes. Lanes are turned so that of four tokens' all stand together.
	{
		runes := ZMM()
		KMOVW(bits(offLetter).As32(), K1)
		VMOVDQU32(Mem{Base: t, Index: k, Scale: 4, Disp: offRunes}, runes)
		mask := zero64()
		for i, nibble := range []uint64{0x1111111111111111, 0x2222222222222222, 0x4444444444444444} {
			spread, m := GP64(), GP64()
			MOVQ(U64(nibble), spread)
			VPCMPD_BCST(Imm(greater), number(2+i), runes, K1, K2)
			if i == 0 {
				KMOVW(K2, K3)
			}
			KMOVW(K2, m.As32())
			PDEPQ(spread, m, m)
			if i == 2 {
				LEAQ(Mem{Base: m, Index: m, Scale: 2}, m) // suffix and prefix
			}
			ORQ(m, mask)
		}
		final, initial, index := ZMM(), ZMM(), ZMM()
		VPXORD(final, final, final)
		VPGATHERDD(Mem{Base: low, Index: end, Scale: 1, Disp: -4}, K3, final)
		VMOVDQU32(turn, index)
		VPERMD(final, index, final)
		VPERMD(quad[0], index, initial)
		s2, s3, s4, p := every(suffix2Seed), every(suffix3Seed), every(suffix4Seed), every(prefixSeed)
		c := ZMM()
		for i := range byteOf {
			VPSHUFB(byteOf[i], initial, c)
			step(p, c, nil)
			VPSHUFB(byteOf[i], final, c)
			step(s4, c, nil)
			if i > 0 {
				step(s3, c, nil)
			}
			if i > 1 {
				step(s2, c, nil)
			}
		}
		ab, cd, four := ZMM(), ZMM(), ZMM()
		for _, words := range []func(...Op){VPUNPCKLDQ, VPUNPCKHDQ} {
			words(s3, s2, ab)
			words(p, s4, cd)
			for _, pairs := range []func(...Op){VPUNPCKLQDQ, VPUNPCKHQDQ} {
				pairs(cd, ab, four)
				store(four, mask, affix)
				SHRQ(Imm(16), mask)
			}
		}
	}

	ADDQ(Imm(16), k)
	CMPQ(k, n)
	JLT(LabelRef("chunk"))

	SUBQ(slot("affixes"), affix)
	SHRQ(Imm(2), affix)
	Store(affix, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func finish() {
	TEXT("finishAVX512", NOSPLIT, "func(hashes *uint32, n uintptr, mask uint32)")
	Doc("finishAVX512 is finish(h) & mask for n hashes.")
	Pragma("noescape")
	p, n := param("hashes"), param("n")
	mask := ZMM()
	VPBROADCASTD(Load(Param("mask"), GP32()), mask)
	a, b := every(0x85ebca6b), every(0xc2b2ae35)
	Label("next")
	CMPQ(n, Imm(0))
	JLE(LabelRef("done"))
	m := GP64()
	lowBits(n, 16, m)
	KMOVW(m.As32(), K1)
	h, x := ZMM(), ZMM()
	VMOVDQU32_Z(Mem{Base: p}, K1, h)
	for i, shift := range []uint64{16, 13, 16} {
		VPSRLD(Imm(shift), h, x)
		VPXORD(x, h, h)
		if i < 2 {
			VPMULLD([]VecVirtual{a, b}[i], h, h)
		}
	}
	VPANDD(mask, h, h)
	VMOVDQU32(h, K1, Mem{Base: p})
	ADDQ(U32(64), p)
	SUBQ(Imm(16), n)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}
