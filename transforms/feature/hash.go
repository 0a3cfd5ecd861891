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

// appendIDs appends the ids of l to ids and the ends of its groups to ends.
// pairs and affixes are scratch.
func (l *line) appendIDs(ids []uint32, ends []uint32, scales []float32, size uint32, s *groupScratch) ([]uint32, []uint32, []float32) {
	begin := len(ids)
	if cap(ids)-begin < maxIDs {
		grown := make([]uint32, begin, 2*cap(ids)+maxIDs)
		copy(grown, ids)
		ids = grown
	}
	out := ids[begin : begin+maxIDs]
	nw, np, na := 0, 0, 0
	low := l.low
	var before uint32 // the pair hash of the token before, its separator added
	for k := range l.tokens {
		t := &l.tokens[k]
		b := low[t.at:t.hashEnd]
		word, pair, joined := uint32(wordSeed), uint32(pairSeed), before
		for _, c := range b {
			c := uint32(c)
			word = (word ^ c) * fnvPrime
			pair = (pair ^ c) * fnvPrime
			joined = (joined ^ c) * fnvPrime
		}
		if k > 0 {
			s.pairs[np] = joined
			np++
		}
		before = (pair ^ 1) * fnvPrime
		if t.class == letter {
			if t.shape != 'x' {
				out[nw] = (word ^ uint32(t.shape)) * fnvPrime
				nw++
			}
			if t.runes > 2 {
				na = appendAffixes(&s.affixes, na, b, int(t.runes))
			}
		}
		out[nw] = word
		nw++
	}
	n := nw
	n += copy(out[n:], s.pairs[:np])
	n += copy(out[n:], s.affixes[:na])
	nm := n
	n = l.edges(out, n)
	nm = n - nm

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
	e0 := e + uint32(nw)
	e1 := e0 + uint32(np)
	e2 := e1 + uint32(na)
	ends = append(ends, e0, e1, e2, e2+uint32(nm))
	scales = append(scales, groupScale[nw], groupScale[np], groupScale[na], groupScale[nm])
	return ids[:begin+n], ends, scales
}

// groupScratch holds the pairs and affixes of a line while its words are
// written.
type groupScratch struct {
	pairs   [maxTokens]uint32
	affixes [maxTokens*maxAffixes + maxAffixes]uint32
}

var _ = [1]int{}[model.Groups-4] // words, pairs, affixes, edges

// appendAffixes writes the suffixes of 2 to 4 and the prefix of 4 characters
// that are shorter than b, a word of n characters, n > 2.
func appendAffixes(dst *[maxTokens*maxAffixes + maxAffixes]uint32, at int, b []byte, n int) int {
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
	last := len(tokens) - 1
	out[n] = l.add(firstSeed, 0, 0)
	out[n+1] = l.add(lastSeed, last, last)
	n += 2
	if last > 0 {
		out[n] = l.add(firstTwoSeed, 0, 1)
		out[n+1] = l.add(lastTwoSeed, last-1, last)
		n += 2
	}
	if last > 1 {
		out[n] = l.add(firstThreeSeed, 0, 2)
		n++
	}
	return n
}

// add goes on with h over tokens from to to, and a space where white space
// parts them.
func (l *line) add(h uint32, from, to int) uint32 {
	for k := from; k <= to; k++ {
		t := &l.tokens[k]
		if k > from && t.spaced {
			h = (h ^ ' ') * fnvPrime
		}
		h = fnv(h, l.low[t.at:t.hashEnd])
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
// It is never 0.
func wordKey(low []byte, at, end int32) uint64 {
	b := low[at : end+8]
	n := int(end - at)
	h := uint64(key0) ^ uint64(n)
	for n > 8 {
		h = mix(h^binary.LittleEndian.Uint64(b), key1)
		b, n = b[8:], n-8
	}
	tail := binary.LittleEndian.Uint64(b)
	if n < 8 {
		tail &= 1<<(8*uint(n)) - 1
	}
	return mix(h^tail, key1) | 1
}
