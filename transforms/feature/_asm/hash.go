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

	firstSeed      = fnvBasis ^ 0x401
	lastSeed       = fnvBasis ^ 0x402
	firstTwoSeed   = fnvBasis ^ 0x403
	lastTwoSeed    = fnvBasis ^ 0x404
	firstThreeSeed = fnvBasis ^ 0x405
)

// fnv is what hashes of FNV-1a need: two vectors of 8 hashes each, in the low
// halves of 64 bits. What is above never reaches them. For zen, where a product of
// 32 bits takes no longer than one of 64, one vector of 16 hashes.
type fnv struct {
	zen     bool
	prime   VecVirtual    // in all lanes of 32 bits
	inverse Mem           // powers of the prime's inverse, from 0 to 15
	byteOf  [8]VecVirtual // byte i of each lane, as a number
	counts  Mem           // 0 to 15
}

func newFNV(zen bool) *fnv {
	f := &fnv{zen: zen, prime: every(fnvPrime), inverse: words("inverse", inverses(16)...), counts: sequence("counts", 0, 1)}
	for i := range f.byteOf {
		n, lane := uint32(i), byteOf(i%4)
		if !zen {
			lane = words(fmt.Sprintf("byte%dOf8", i), 0x80808000|n, 0x80808080, 0x80808008|n, 0x80808080)
		} else if i > 3 { // in the next vector
			break
		}
		f.byteOf[i] = ZMM()
		VBROADCASTI32X4(lane, f.byteOf[i])
	}
	return f
}

func (f *fnv) number(i int) Mem { return f.counts.Offset(4 * i) }

// times multiplies h by the lanes of x.
func (f *fnv) times(x, h, product VecVirtual) {
	if f.zen {
		VPMULLD(x, h, product)
	} else {
		VPMULUDQ(x, h, product)
	}
}

// lanes are 16 numbers, or hashes, as fnv has them.
type lanes []VecVirtual

func newLanes() lanes { return lanes{ZMM(), ZMM()} }

// every is x in all lanes of a hash.
func (f *fnv) every(x uint32) lanes {
	if f.zen {
		return lanes{every(x)}
	}
	return lanes{every(x), every(x)}
}

// newEvens and newOdds are the indices of the low and of the high halves of lanes.
func newEvens() Mem { return sequence("evens", 0, 2) }
func newOdds() Mem  { return sequence("odds", 1, 2) }

// pick takes the lanes of 32 bits of x that index has.
func pick(x lanes, index Mem) VecVirtual {
	y := ZMM()
	VMOVDQU32(index, y)
	VPERMI2D(x[1], x[0], y)
	return y
}

// steps goes on with hashes over bytes from to to, of 8, that q has of each.
func (f *fnv) steps(from, to int, q lanes, hashes []lanes) {
	c, x := ZMM(), ZMM()
	for i := from; i < to; i++ {
		for half := range hashes[0] {
			if f.zen {
				VPSHUFB(f.byteOf[i%4], q[i/4], c)
			} else {
				VPSHUFB(f.byteOf[i], q[half], c)
			}
			for _, h := range hashes {
				VPXORQ(c, h[half], x)
				f.times(f.prime, x, h[half])
			}
		}
	}
}

// walk goes on with hashes over the tokens at offset at of low, of size bytes,
// of which lo and hi have the first 16. All lanes take the same number of
// steps: behind a token's end they are over zeros, multiply alone and are
// undone by a power of the prime's inverse. It needs K1 and K2.
func (f *fnv) walk(name string, low Register, at, size VecVirtual, lo, hi lanes, hashes ...lanes) {
	over := ZMM() // steps that were too many
	undo := func() {
		power, x := ZMM(), YMM()
		VPERMD(f.inverse, over, power)
		for half := range hashes[0] {
			p := ZMM()
			switch {
			case f.zen:
				p = power
			case half == 0:
				VPMOVZXDQ(power.AsY(), p)
			default:
				VEXTRACTI64X4(Imm(1), power, x)
				VPMOVZXDQ(x, p)
			}
			for _, h := range hashes {
				f.times(p, h[half], h[half])
			}
		}
	}
	longer := func(n int, label string) { // goes on where a token has more than n bytes
		VPCMPD_BCST(Imm(greater), f.number(n), size, K1)
		KORTESTW(K1, K1)
		JEQ(LabelRef(name + label))
	}
	VPBROADCASTD(f.number(8), over)
	VPSUBD(size, over, over)
	f.steps(0, 8, lo, hashes)
	longer(8, "last")
	VPADDD_BCST(f.number(4), over, over)
	f.steps(0, 4, hi, hashes)
	longer(12, "last")
	VPADDD_BCST(f.number(4), over, over)
	f.steps(4, 8, hi, hashes)
	Label(name + "last")
	VPMAXSD_BCST(f.number(0), over, over)
	undo()

	left, place := ZMM(), ZMM()
	VPSUBD_BCST(f.number(15), size, left)
	VPSUBD_BCST(f.number(1), left, left)
	VPADDD_BCST(f.number(15), at, place)
	VPADDD_BCST(f.number(1), place, place)
	Label(name + "more")
	VPCMPD_BCST(Imm(greater), f.number(0), left, K1)
	KORTESTW(K1, K1)
	JEQ(LabelRef(name + "done"))
	VPBROADCASTD(f.number(8), over)
	VPSUBD(left, over, over)
	VPMAXSD_BCST(f.number(0), over, over)
	VPMINSD_BCST(f.number(8), over, over)
	rest := newLanes()
	for half, q := range rest {
		index, shift, x := YMM(), ZMM(), ZMM()
		VPSLLD(Imm(3), over, x)
		if half == 0 {
			VMOVDQA64(place.AsY(), index)
		} else {
			VEXTRACTI64X4(Imm(1), place, index)
			VEXTRACTI64X4(Imm(1), x, x.AsY())
			KSHIFTRW(Imm(8), K1, K1)
		}
		VPMOVZXDQ(x.AsY(), shift)
		KMOVB(K1, K2)
		VPXORQ(q, q, q)
		VPGATHERDQ(Mem{Base: low, Index: index, Scale: 1}, K2, q)
		VPSLLVQ(shift, q, q)
		VPSRLVQ(shift, q, q)
	}
	if f.zen {
		rest = lanes{pick(rest, newEvens()), pick(rest, newOdds())}
	}
	f.steps(0, 8, rest, hashes)
	undo()
	VPADDD_BCST(f.number(8), place, place)
	VPSUBD_BCST(f.number(8), left, left)
	JMP(LabelRef(name + "more"))
	Label(name + "done")
}

// hashTokens takes 16 tokens at a time, one a lane.
func hashTokens(zen bool) {
	name := "hashTokensAVX512"
	if zen {
		name += "Zen"
	}
	TEXT(name, NOSPLIT, "func(low *byte, t *int, n uintptr, words, pairs, affixes *uint32) (numAffixes uintptr)")
	if zen {
		Doc(name + " is hashTokensAVX512 where lookAVX512Zen has looked.")
	} else {
		Doc(name+" writes the hashes of t's n ≥ 1 tokens, at which look has",
			"looked, and the affixes of words of letters as if each character were a byte.",
			"It may read four bytes before low and eight behind a token.")
	}
	Pragma("noescape")
	low, t, n := param("low"), param("t"), slot("n")
	word, pair, affix := param("words"), param("pairs"), param("affixes")

	f := newFNV(zen)
	number := f.number
	var turned, turnedEven [16]uint32
	for i := range uint32(16) {
		turned[i] = i%4*4 + i/4
		turnedEven[i] = 2 * turned[i]
	}
	turn := words("turn", turned[:]...)

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
	at, size := ZMM(), ZMM()
	VMOVDQU32_Z(Mem{Base: t, Index: k, Scale: 4, Disp: offAt}, K1, at)
	VMOVDQU32_Z(Mem{Base: t, Index: k, Scale: 4, Disp: offHashed}, K1, size)
	VPSUBD(at, size, size)
	lo, hi := newLanes(), newLanes()
	for half := range lo {
		VMOVDQU64(Mem{Base: t, Index: k, Scale: 8, Disp: offLo + 64*half}, lo[half])
		VMOVDQU64(Mem{Base: t, Index: k, Scale: 8, Disp: offHi + 64*half}, hi[half])
	}

	own, first := f.every(wordSeed), f.every(pairSeed)
	second := newLanes()[:len(own)]
	f.walk("own", low, at, size, lo, hi, own, first)

	// Words: that with its shape, where there is a capital, and the word.
	{
		capitals, mixed := bits(offCapitals), bits(offMixed)
		shaped, odd, even, mask := bits(offTitle), GP64(), GP64(), GP64()
		KMOVW(capitals.As32(), K2)
		KMOVW(mixed.As32(), K3)
		ORQ(capitals, shaped)
		ORQ(mixed, shaped)
		MOVQ(U32(0x55555555), even)
		LEAQ(Mem{Base: even, Index: even, Scale: 1}, odd)
		if !zen {
			KMOVW(odd.As32(), K4)
		}
		PDEPQ(even, shaped, mask)
		PDEPQ(odd, valid, odd)
		ORQ(odd, mask)
		shape, toX, toM := every('C'), every('C'^'X'), every('C'^'M')
		for half, h := range own {
			x, both := ZMM(), ZMM()
			if half > 0 {
				KSHIFTRW(Imm(8), K2, K2)
				KSHIFTRW(Imm(8), K3, K3)
			}
			if zen {
				VPXORD(shape, h, x)
				VPXORD(toX, x, K2, x)
				VPXORD(toM, x, K3, x)
				VPMULLD(f.prime, x, x)
				for i := range 2 { // 8 tokens
					VMOVDQU32(beside(i), both)
					VPERMI2D(h, x, both)
					store(both, mask, word)
					SHRQ(Imm(16), mask)
				}
				continue
			}
			VPXORQ(shape, h, x)
			VPXORQ(toX, x, K2, x)
			VPXORQ(toM, x, K3, x)
			VPMULUDQ(f.prime, x, both)
			VPSHUFD(Imm(0xa0), h, K4, both)
			store(both, mask, word)
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
			if i == 0 && !zen {
				KMOVW(K2, K3)
			}
			KMOVW(K2, m.As32())
			PDEPQ(spread, m, m)
			if i == 2 {
				LEAQ(Mem{Base: m, Index: m, Scale: 2}, m) // suffix and prefix
			}
			ORQ(m, mask)
		}
		final, initial := ZMM(), ZMM()
		if zen {
			for i := range 4 {
				x := XMM()
				for j := range 4 {
					e := GP64()
					MOVL(Mem{Base: t, Index: k, Scale: 4, Disp: offEnd + 4*int(turned[4*i+j])}, e.As32())
					if last := (Mem{Base: low, Index: e, Scale: 1, Disp: -4}); j == 0 {
						VMOVD(last, x)
					} else {
						VPINSRD(Imm(uint64(j)), last, x, x)
					}
				}
				if i == 0 {
					VMOVDQA32(x.AsZ(), final)
				} else {
					VINSERTI32X4(Imm(uint64(i)), x, final, final)
				}
			}
			VMOVDQU32(turn, initial)
			VPERMD(lo[0], initial, initial)
		} else {
			end, index := ZMM(), ZMM()
			VMOVDQU32(Mem{Base: t, Index: k, Scale: 4, Disp: offEnd}, end)
			VPXORD(final, final, final)
			VPGATHERDD(Mem{Base: low, Index: end, Scale: 1, Disp: -4}, K3, final)
			VMOVDQU32(turn, index)
			VPERMD(final, index, final)
			initial = pick(lo, words("turnEvens", turnedEven[:]...))
		}
		s2, s3, s4, p := every(suffix2Seed), every(suffix3Seed), every(suffix4Seed), every(prefixSeed)
		c := ZMM()
		step := func(h VecVirtual) {
			VPXORD(c, h, h)
			VPMULLD(f.prime, h, h)
		}
		for i := range 4 {
			lane := f.byteOf[i]
			if !zen {
				lane = ZMM()
				VBROADCASTI32X4(byteOf(i), lane)
			}
			VPSHUFB(lane, initial, c)
			step(p)
			VPSHUFB(lane, final, c)
			step(s4)
			if i > 0 {
				step(s3)
			}
			if i > 1 {
				step(s2)
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

	// Pairs. The second walk goes on where the token before ended.
	{
		x := ZMM()
		for _, h := range first {
			VPXORD_BCST(number(1), h, x)
			f.times(f.prime, x, h)
		}
		if zen {
			VALIGND(Imm(15), before, first[0], second[0])
		} else {
			VALIGNQ(Imm(7), before, first[0], second[0])
			VALIGNQ(Imm(7), first[0], first[1], second[1])
		}
		VMOVDQA64(first[len(first)-1], before)
	}
	f.walk("pair", low, at, size, lo, hi, second)
	{
		m := GP64()
		MOVQ(valid, m)
		ANDQ(notFirst, m)
		MOVQ(U32(0xffff), notFirst)
		KMOVW(m.As32(), K1)
		hashes := second[0]
		if !zen {
			hashes = pick(second, newEvens())
		}
		VMOVDQU32(hashes, K1, Mem{Base: pair, Index: k, Scale: 4, Disp: -4})
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

// beside puts lanes 8·i to 8·i+7 of one vector each before the same of another.
func beside(i int) Mem {
	var index [16]uint32
	for k := range index {
		index[k] = uint32(8*i + k/2 + k%2*16)
	}
	return words(fmt.Sprintf("beside%d", i), index[:]...)
}

func fmix32() {
	TEXT("fmix32AVX512", NOSPLIT, "func(hashes *uint32, n uintptr, mask uint32)")
	Doc("fmix32AVX512 is fmix32(h) & mask for n hashes.")
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
