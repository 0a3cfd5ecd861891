package feature

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/model"
)

// Hash names how text becomes ids: FNV-1a with 32 bits, begun at the offset
// basis XOR the seed of the kind of feature, then murmur3's finaliser, modulo
// the input size.
const Hash = "fnv1a32-murmur3"

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
	shapedTokens   = 6                                             // of a line
	maxAffixes     = 4                                             // of a token
	maxIDs         = maxTokens*(2+1+maxAffixes) + 5 + shapedTokens // of a line
	maxGroup       = maxTokens * maxAffixes                        // of a line
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

// finish is murmur3's finaliser.
func finish(h uint32) uint32 {
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
	tokens, low := l.tokens, l.low
	// The numbers of words and pairs are known, so each group is written at
	// its place.
	word, wordEnd := 0, len(tokens)+l.shaped
	pair, pairEnd := wordEnd, wordEnd+max(0, len(tokens)-1)
	affix := pairEnd
	before := uint32(0) // the pair's hash as far as the token before, separator included
	for k := range tokens {
		t := &tokens[k]
		b := low[t.at:t.hashEnd]
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
		if t.class == letter {
			if t.shape != 'x' {
				out[word] = (own ^ uint32(t.shape)) * fnvPrime
				word++
			}
			if t.runes > 2 {
				affix = appendAffixes(out, affix, b, int(t.runes))
			}
		}
		out[word] = own
		word++
	}
	n := l.edges(out, affix)

	out = out[:n]
	if size&(size-1) == 0 {
		for i, h := range out {
			out[i] = finish(h) & (size - 1)
		}
	} else {
		for i, h := range out {
			out[i] = finish(h) % size
		}
	}
	e := uint32(begin)
	ends = append(ends, e+uint32(wordEnd), e+uint32(pairEnd), e+uint32(affix), e+uint32(n))
	scales = append(scales, groupScale[wordEnd], groupScale[pairEnd-wordEnd], groupScale[affix-pairEnd], groupScale[n-affix])
	return ids[:begin+n], ends, scales
}

var _ = [1]int{}[model.Groups-4] // words, pairs, affixes, edges

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
	tokens := l.tokens
	if len(tokens) == 0 {
		return n
	}
	shape := uint32(shapeSeed)
	for k := range min(len(tokens), shapedTokens) {
		t := &tokens[k]
		if t.class == other {
			shape = fnv(shape, l.low[t.at:t.end])
		} else {
			shape = (shape ^ uint32(t.shape)) * fnvPrime
		}
		out[n] = shape
		n++
	}
	// Two or three hashes go on together over the tokens they share.
	one, two, three := uint32(firstSeed), uint32(firstTwoSeed), uint32(firstThreeSeed)
	for _, c := range l.hashed(0) {
		c := uint32(c)
		one = (one ^ c) * fnvPrime
		two = (two ^ c) * fnvPrime
		three = (three ^ c) * fnvPrime
	}
	last := len(tokens) - 1
	final, finalTwo := uint32(lastSeed), uint32(lastTwoSeed)
	if last > 0 {
		finalTwo = l.part(fnv(finalTwo, l.hashed(last-1)), last)
	}
	for _, c := range l.hashed(last) {
		c := uint32(c)
		final = (final ^ c) * fnvPrime
		finalTwo = (finalTwo ^ c) * fnvPrime
	}
	out[n], out[n+1] = one, final
	n += 2
	if last > 0 {
		two, three = l.part(two, 1), l.part(three, 1)
		for _, c := range l.hashed(1) {
			c := uint32(c)
			two = (two ^ c) * fnvPrime
			three = (three ^ c) * fnvPrime
		}
		out[n], out[n+1] = two, finalTwo
		n += 2
	}
	if last > 1 {
		out[n] = fnv(l.part(three, 2), l.hashed(2))
		n++
	}
	return n
}

// hashed is what of token k is hashed.
func (l *line) hashed(k int) []byte { return l.low[l.tokens[k].at:l.tokens[k].hashEnd] }

// part goes on with h over the space before token k, if there is any.
func (l *line) part(h uint32, k int) uint32 {
	if l.tokens[k].spaced {
		h = (h ^ ' ') * fnvPrime
	}
	return h
}

// Keys of the counts of a document are hashes of 64 bits, so that distinct
// words practically never meet.

const (
	key0 = 0xa0761d6478bd642f
	key1 = 0xe7037ed1a0b428db
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// wordKey hashes low[at:end]; low goes on for at least 8 bytes behind end.
// The word is not empty; its key is never 0.
func wordKey(low []byte, at, end int32) uint64 {
	b := low[at : end+8]
	n := int(end - at)
	h := uint64(key0) ^ uint64(n)
	for n > 8 {
		h = mix(h^binary.LittleEndian.Uint64(b), key1)
		b, n = b[8:], n-8
	}
	tail := binary.LittleEndian.Uint64(b) & (^uint64(0) >> (64 - 8*n))
	return mix(h^tail, key1) | 1
}
