package feature

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/model"
)

// Text becomes ids by FNV-1a with 32 bits, begun at the offset basis XOR the seed
// of the kind of feature, then murmur3's finaliser, modulo the input size:
// model.FeatureHash. _asm/hash.go repeats the seeds.
const (
	fnvBasis = 2166136261
	fnvPrime = 16777619

	wordSeed       = fnvBasis ^ 1
	pairSeed       = fnvBasis ^ 2
	shapeSeed      = fnvBasis ^ 0x51
	suffix2Seed    = fnvBasis ^ 0x102
	suffix3Seed    = fnvBasis ^ 0x103
	suffix4Seed    = fnvBasis ^ 0x104
	prefixSeed     = fnvBasis ^ 0x200
	firstSeed      = fnvBasis ^ 0x401
	lastSeed       = fnvBasis ^ 0x402
	firstTwoSeed   = fnvBasis ^ 0x403
	lastTwoSeed    = fnvBasis ^ 0x404
	firstThreeSeed = fnvBasis ^ 0x405
)

const (
	shapedTokens = 6                                             // of a line
	maxAffixes   = 4                                             // of a token
	maxIDs       = maxTokens*(2+1+maxAffixes) + 5 + shapedTokens // of a line
	maxGroup     = maxTokens * maxAffixes                        // of a line
)

var groupScale [maxGroup + 1]float32 // 1/√n, 0 for 0

func init() {
	for n := 1; n <= maxGroup; n++ {
		groupScale[n] = float32(1 / math.Sqrt(float64(n)))
	}
}

func fnv(h uint32, b []byte) uint32 {
	for _, c := range b {
		h = (h ^ uint32(c)) * fnvPrime
	}
	return h
}

// fmix32 is the finaliser of MurmurHash3.
func fmix32(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return h
}

// appendIDs appends the ids of l to ids, and the ends and scales of its groups
// to ends and scales.
func (l *line) appendIDs(ids, ends []uint32, scales []float32, size uint32) ([]uint32, []uint32, []float32) {
	begin := len(ids)
	if cap(ids)-begin < maxIDs {
		grown := make([]uint32, begin, 2*cap(ids)+maxIDs)
		copy(grown, ids)
		ids = grown
	}
	out := ids[begin : begin+maxIDs]
	wordEnd, pairEnd, affix := l.hashTokens(out)
	n := l.edges(out, affix)

	out = out[:n]
	if size&(size-1) == 0 && n > 0 && vectors() {
		fmix32Vector(out, size-1)
	} else if size&(size-1) == 0 {
		for i, h := range out {
			out[i] = fmix32(h) & (size - 1)
		}
	} else {
		for i, h := range out {
			out[i] = fmix32(h) % size
		}
	}
	e := uint32(begin)
	ends = append(ends, e+uint32(wordEnd), e+uint32(pairEnd), e+uint32(affix), e+uint32(n))
	scales = append(scales, groupScale[wordEnd], groupScale[pairEnd-wordEnd], groupScale[affix-pairEnd], groupScale[n-affix])
	return ids[:begin+n], ends, scales
}

// What package model says of the features.
var (
	_ = [1]int{}[model.Groups-4] // words, pairs, affixes, edges
	_ = [1]int{}[model.FeatureLayout-LayoutSize]
)

// hashTokens writes the hashes of words, of pairs and of affixes to out, one
// group behind the other, and returns their ends.
func (l *line) hashTokens(out []uint32) (wordEnd, pairEnd, affixEnd int) {
	t, low := &l.tokens, l.low
	// The numbers of words and pairs are known, so each group is written at
	// its place.
	word, wordEnd := 0, t.n+l.shaped()
	pair, pairEnd := wordEnd, wordEnd+max(0, t.n-1)
	affix := pairEnd
	if t.n > 0 && vectors() {
		affix = l.hashVector(out, wordEnd, pairEnd)
		if l.wideLetters {
			l.mendAffixes(out, pairEnd)
		}
		return wordEnd, pairEnd, affix
	}
	before := uint32(0) // the pair's hash as far as the token before, separator included
	for k := range t.n {
		b := l.hashed(k)
		own, first, second := uint32(wordSeed), uint32(pairSeed), before
		for _, c := range b {
			c := uint32(c)
			own = (own ^ c) * fnvPrime
			first = (first ^ c) * fnvPrime
			second = (second ^ c) * fnvPrime
		}
		if k > 0 {
			out[pair] = second
			pair++
		}
		before = (first ^ 1) * fnvPrime
		if t.letter.has(k) {
			if shape := l.shape(k); shape != 'x' {
				out[word] = (own ^ uint32(shape)) * fnvPrime
				word++
			}
			if t.runes[k] > 2 {
				affix = appendAffixes(out, affix, low[t.at[k]:t.end[k]], int(t.runes[k]))
			}
		}
		out[word] = own
		word++
	}
	return wordEnd, pairEnd, affix
}

// mendAffixes writes the affixes of words beyond ASCII to out, those of the line
// from at on.
func (l *line) mendAffixes(out []uint32, at int) {
	t := &l.tokens
	for w := range (t.n + 63) / 64 {
		for x := t.letter[w]; x != 0; x &= x - 1 {
			k := w<<6 + bits.TrailingZeros64(x)
			switch runes := t.runes[k]; {
			case runes < 3:
			case runes < t.end[k]-t.at[k]:
				at = appendAffixes(out, at, l.hashed(k), int(runes))
			default:
				at += int(min(runes, 5)) - 2
				if runes > 4 {
					at++
				}
			}
		}
	}
}

// shaped is the number of tokens with a capital.
func (l *line) shaped() int {
	n := 0
	for w := range (l.tokens.n + 63) / 64 {
		t := &l.tokens
		n += bits.OnesCount64(t.title[w] | t.capitals[w] | t.mixed[w])
	}
	return n
}

// shape is x for aaa, C for Aaa, X for AAA, M for AaA; d for up to three
// digits, D for more; 0 for a token of class other.
func (l *line) shape(k int) uint8 {
	t := &l.tokens
	switch {
	case t.title.has(k):
		return 'C'
	case t.capitals.has(k):
		return 'X'
	case t.mixed.has(k):
		return 'M'
	case t.letter.has(k):
		return 'x'
	case !t.digit.has(k):
		return 0
	case t.runes[k] > 3:
		return 'D'
	}
	return 'd'
}

// appendAffixes writes the suffixes of 2 to 4 and the prefix of 4 characters
// that are shorter than b, a word of n characters, n > 2.
func appendAffixes(dst []uint32, at int, b []byte, n int) int {
	// Offsets of the last 4, 3, 2 characters and of the end of the first 4.
	e := len(b)
	a2, a3, a4, p4 := e-2, e-3, e-4, 4
	if e != n {
		a2 = back(b, back(b, e))
		a3 = back(b, a2)
		if n > 3 {
			a4 = back(b, a3)
		}
		if n > 4 {
			p4 = 0
			for range 4 {
				_, size := utf8.DecodeRune(b[p4:])
				p4 += size
			}
		}
	}
	dst[at] = fnv(suffix2Seed, b[a2:])
	at++
	if n > 3 {
		dst[at] = fnv(suffix3Seed, b[a3:])
		at++
	}
	if n > 4 {
		dst[at] = fnv(suffix4Seed, b[a4:])
		dst[at+1] = fnv(prefixSeed, b[:p4])
		at += 2
	}
	return at
}

// back returns the offset of the character before offset i of b.
func back(b []byte, i int) int {
	i--
	for i > 0 && !utf8.RuneStart(b[i]) {
		i--
	}
	return i
}

// edges writes the hashes of the shapes of the first tokens, one for each
// prefix, and of the first one to three and last two tokens, behind out[:n].
func (l *line) edges(out []uint32, n int) int {
	t := &l.tokens
	last := t.n - 1
	if last < 0 {
		return n
	}
	shapes := min(last+1, shapedTokens)
	l.shapes(out[n : n+shapes])
	n += shapes
	if last > 1 && vectors() && l.follows(1) && l.follows(2) && l.follows(last) &&
		t.hashed[2]-t.at[0] <= maxHead && t.hashed[last]-t.at[last-1] <= maxHead {
		l.edgesVector(out[n : n+5])
		return n + 5
	}
	one, two, three := l.head(min(last, 2))
	final, finalTwo := l.tail(last)
	out[n], out[n+1] = one, final
	n += 2
	if last > 0 {
		out[n], out[n+1] = two, finalTwo
		n += 2
	}
	if last > 1 {
		out[n] = three
		n++
	}
	return n
}

// head hashes the first token, the first two and the first three, of which the
// last is at most 2. Where the tokens follow each other as they are hashed,
// which is most often, one loop goes over the bytes of all.
func (l *line) head(last int) (one, two, three uint32) {
	t := &l.tokens
	one, two, three = firstSeed, firstTwoSeed, firstThreeSeed
	begin := t.at[0]
	b := l.low[begin:t.hashed[last]]
	if len(b) <= len(l.ones) && (last < 1 || l.follows(1)) && (last < 2 || l.follows(2)) {
		for i, c := range b {
			c := uint32(c)
			one = (one ^ c) * fnvPrime
			two = (two ^ c) * fnvPrime
			three = (three ^ c) * fnvPrime
			l.ones[i&(maxHead-1)], l.twos[i&(maxHead-1)] = one, two
		}
		return l.ones[(t.hashed[0]-begin-1)&(maxHead-1)], l.twos[(t.hashed[min(last, 1)]-begin-1)&(maxHead-1)], three
	}
	one = fnv(one, l.hashed(0))
	two, three = fnv(two, l.hashed(0)), fnv(three, l.hashed(0))
	if last > 0 {
		two, three = fnv(l.overSpace(two, 1), l.hashed(1)), fnv(l.overSpace(three, 1), l.hashed(1))
	}
	if last > 1 {
		three = fnv(l.overSpace(three, 2), l.hashed(2))
	}
	return one, two, three
}

// maxHead is the length up to which head takes one loop, a power of two.
const maxHead = 64

// tail hashes the last token and the last two.
func (l *line) tail(last int) (one, two uint32) {
	t := &l.tokens
	if last > 0 && l.follows(last) {
		begin := int(t.at[last] - t.at[last-1])
		one, two = lastSeed, lastTwoSeed
		for i, c := range l.low[t.at[last-1]:t.hashed[last]] {
			c := uint32(c)
			if i == begin {
				one = lastSeed
			}
			one = (one ^ c) * fnvPrime
			two = (two ^ c) * fnvPrime
		}
		return one, two
	}
	if last > 0 {
		two = fnv(l.overSpace(fnv(lastTwoSeed, l.hashed(last-1)), last), l.hashed(last))
	}
	return fnv(lastSeed, l.hashed(last)), two
}

// follows reports whether token k stands behind all that is hashed of the one
// before it and at most one space.
func (l *line) follows(k int) bool {
	t := &l.tokens
	gap := t.at[k] - t.hashed[k-1]
	return gap == 0 || gap == 1 && l.low[t.at[k]-1] == ' '
}

// shapes writes the hashes of the shapes of the first tokens.
func (l *line) shapes(out []uint32) {
	h := uint32(shapeSeed)
	for k := range out {
		if c := l.tokens.shapes[k]; c < utf8.RuneSelf {
			h = (h ^ c) * fnvPrime
		} else {
			h = fnv(h, l.hashed(k))
		}
		out[k] = h
	}
}

// hashed is what of token k is hashed.
func (l *line) hashed(k int) []byte { return l.low[l.tokens.at[k]:l.tokens.hashed[k]] }

// overSpace goes on with h over the space before token k, if there is any.
func (l *line) overSpace(h uint32, k int) uint32 {
	if l.tokens.spaced.has(k) {
		h = (h ^ ' ') * fnvPrime
	}
	return h
}

// Keys of the counts of a document are hashes of 64 bits, so that distinct
// words practically never collide. The first 8 bytes are multiplied by an odd
// number, and the high half of the product, which depends on all of them, is
// XORed into the low one: both steps are invertible, so words of at most 8 bytes
// never collide but for the last bit, which is set to 1. The next 8 bytes are
// multiplied by another, with the halves swapped: the highest bits of one product,
// which the last bytes decide, are then XORed with the middle of the other.

const (
	key0 = 0x9e79a397ba00b9cd // tells abbreviations apart too
	key1 = 0xe7037ed1a0b428db
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// wordMasks cut 16 bytes down to so many.
var wordMasks [17][2]uint64

func init() {
	for n := range wordMasks {
		wordMasks[n] = [2]uint64{^uint64(0) >> (64 - 8*min(n, 8)), ^uint64(0) >> (64 - 8*max(0, n-8))}
	}
}

// load16 returns the first 16 of the n bytes of low from offset at on, then
// zeros; low goes on for at least 16 bytes behind at.
func load16(low []byte, at, n int32) (lo, hi uint64) {
	b, masks := low[at:at+16], &wordMasks[min(n, 16)]
	return binary.LittleEndian.Uint64(b) & masks[0], binary.LittleEndian.Uint64(b[8:]) & masks[1]
}

// wordKey hashes low[at:end], which is not empty; low goes on for at least 16
// bytes behind at. The key is never 0.
func wordKey(low []byte, at, end int32) uint64 {
	lo, hi := load16(low, at, end-at)
	key := keyOf(lo, hi)
	for at += 16; at < end; at += 16 {
		lo, hi = load16(low, at, end-at)
		key = mix(key^lo, hi^key1) | 1
	}
	return key
}

// keyOf is the key of a word of at most 16 bytes.
func keyOf(lo, hi uint64) uint64 {
	a := lo * key0
	return a ^ a>>32 ^ bits.RotateLeft64(hi*key1, 32) | 1
}

// abbreviations are the words that line.abbreviation knows, each where keyOf's
// product has it in its highest bits.
var abbreviations [16]uint64

func init() {
	for _, w := range []uint64{wordN, wordNov, wordSp, wordComb, wordGen, wordNom, wordVar, wordFr, wordPers, wordEx, wordEt} {
		abbreviations[abbreviationSlot(w)] = w
	}
}

func abbreviationSlot(lo uint64) uint64 { return lo * key0 >> 60 }

// factors stand for the places of the tokens in a line's norm, a sum of keys
// times factors. They are odd, so that lines that differ in one key never collide;
// those that differ in more collide only where the differences cancel. Assembly
// reads eight at a time.
var factors [maxTokens + 8]uint64

func init() {
	f := uint64(key0)
	for i := range factors {
		f = mix(f, key1) | 1
		factors[i] = f
	}
}

// look finds the keys of the tokens and what else find wants to know of them.
func (l *line) look() {
	t, low := &l.tokens, l.low
	if t.n > 0 && vectors() {
		if l.lookVector() {
			for k := range t.n { // a word goes on behind hi
				if at, end := t.at[k], t.end[k]; end-at > 16 && t.letter.has(k) {
					t.keys[k] = wordKey(low, at, end)
				}
			}
		}
		return
	}
	for w := range (t.n + 63) / 64 {
		base := w << 6
		at, end, runes := (*[64]int32)(t.at[base:]), (*[64]int32)(t.end[base:]), (*[64]int32)(t.runes[base:])
		keys := (*[64]uint64)(t.keys[base:])
		several, known, four := uint64(0), uint64(0), uint64(0)
		for x := t.letter[w]; x != 0; x &= x - 1 {
			p := bits.TrailingZeros64(x) & 63
			lo, hi := load16(low, at[p], end[p]-at[p])
			keys[p] = keyOf(lo, hi)
			if end[p]-at[p] > 16 {
				keys[p] = wordKey(low, at[p], end[p])
			}
			several |= one(runes[p] > 1) << p
			known |= one(abbreviations[abbreviationSlot(lo)] == lo) << p
		}
		for x := t.digit[w]; x != 0; x &= x - 1 {
			p := bits.TrailingZeros64(x) & 63
			keys[p] = digitsKey
			four |= one(runes[p] == 4) << p
		}
		t.several[w], t.known[w], t.four[w] = several, known, four
		var signs [8]uint64
		for x := until(base, t.n) &^ (t.letter[w] | t.digit[w]); x != 0; x &= x - 1 {
			p := bits.TrailingZeros64(x) & 63
			sign := signOf[low[at[p]]]
			if low[at[p]] == 0xe2 && string(low[at[p]:end[p]]) == "≡" {
				sign = authorSign
			}
			signs[sign&7] |= 1 << p
		}
		for i := range t.signs {
			t.signs[i][w] = signs[i&7]
		}
	}
	for k := range min(t.n, shapedTokens) {
		t.shapes[k] = uint32(l.shape(k))
		if t.shapes[k] == 0 {
			t.shapes[k] = uint32(low[t.at[k]])
		}
	}
}

// digitsKey stands for a run of digits in a line's norm.
const digitsKey = 0x8ebc6af09c88c6e3

// one is 1 for true.
func one(b bool) (n uint64) {
	if b {
		n = 1
	}
	return n
}
