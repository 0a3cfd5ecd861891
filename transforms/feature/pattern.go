package feature

import (
	"bytes"
	"math/bits"
	"slices"
)

// marks are what the patterns of taxonomic prose find in a line. Each equals a
// regular expression, with Unicode letters and digits for [A-Za-z] and \d (a
// capital is an upper-case letter, small is any other) and the line's tokens
// as the borders of words.
type marks struct {
	// year: \b1[789]\d\d\b|\b20[01]\d\b
	year bool
	// measure: \d\s*(?:µ|μ|mm|cm|um\b|x\s*\d|×)|µm|μm, for both characters µ
	measure bool
	// author: \bsp\. ?nov|\bcomb\. ?nov|\bgen\. ?nov|\bnov\. ?sp|\bnom\. ?nov|
	// \bvar\.|\bFr\.|\bPers\.|[≡=]|\bet al\b|&|\bex\b
	author bool
	// novelty: \bnov\b|\bn\. ?sp|\bn\. ?gen|\bn\. ?comb, in any case
	novelty bool

	// norm is the key of the line as letters and digits alone, in lower case,
	// runs of digits as one 0 and everything else as one space; 0 where that
	// has fewer than three characters.
	norm uint64
	// first is the key of the word that ^\W*\d*\W*([A-Z][a-z]+) finds, or 0.
	first uint64
}

// Characters that are counted.
const (
	comma = iota + 1
	fullStop
	semicolon
	paren
	authorSign // = or & or ≡
	underscore
)

var signOf = [256]uint8{',': comma, '.': fullStop, ';': semicolon, '(': paren, '=': authorSign, '&': authorSign, '_': underscore}

// Short words as the patterns compare them: bytes from the lowest.
const (
	wordN    = 'n'
	wordSp   = 's' | 'p'<<8
	wordEt   = 'e' | 't'<<8
	wordEx   = 'e' | 'x'<<8
	wordAl   = 'a' | 'l'<<8
	wordFr   = 'f' | 'r'<<8
	wordCf   = 'c' | 'f'<<8
	wordMM   = 'm' | 'm'<<8
	wordCM   = 'c' | 'm'<<8
	wordUM   = 'u' | 'm'<<8
	wordX    = 'x'
	wordNov  = 'n' | 'o'<<8 | 'v'<<16
	wordNom  = 'n' | 'o'<<8 | 'm'<<16
	wordGen  = 'g' | 'e'<<8 | 'n'<<16
	wordVar  = 'v' | 'a'<<8 | 'r'<<16
	wordAff  = 'a' | 'f'<<8 | 'f'<<16
	wordComb = 'c' | 'o'<<8 | 'm'<<16 | 'b'<<24
	wordPers = 'p' | 'e'<<8 | 'r'<<16 | 's'<<24
)

// pack returns a word of one to four bytes as the constants above have it, 0
// for other lengths.
func pack(b []byte) uint32 {
	switch len(b) {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(b[0]) | uint32(b[1])<<8
	case 3:
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	case 4:
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	return 0
}

// find looks for the patterns in l and leaves in m what it finds. It appends the
// key of each word of two or more small letters to words and that of each genus,
// once a line, to genera:
// \b([A-Z][a-z]{3,})\s+(?:cf\. |aff\. )?[a-z]{4}
//
// Which class comes next is unpredictable, and a branch misprediction costs as much
// as a token: so one loop goes over the tokens of each class, and rare properties are
// found in bitsets.
func (l *line) find(m *marks, words, genera []uint64) ([]uint64, []uint64) {
	*m = marks{}
	t := &l.tokens
	ownGenera := len(genera)
	norm, normLength, normed := uint64(0), l.letters, 0
	beforeOther, beforeOwn := uint64(0), uint64(0) // 1 if the token before is of class other; of letters, digits or _
	seeking, numbers := true, 0
	for w := range (t.n + 63) / 64 {
		base := w << 6
		at, end, runes := (*[64]int32)(t.at[base:]), (*[64]int32)(t.end[base:]), (*[64]int32)(t.runes[base:])
		keys := (*[64]uint64)(t.keys[base:])
		letters, digits := t.letter[w], t.digit[w]
		others := until(base, t.n) &^ (letters | digits)
		small := letters &^ (t.title[w] | t.capitals[w] | t.mixed[w])

		scores := t.signs[underscore][w] & others

		parted := t.spaced[w] | others<<1 | beforeOther
		beforeOther = others >> 63
		if normed == 0 { // before the first word there is nothing to part from
			parted &^= (letters | digits) & -(letters | digits)
		}
		normLength += bits.OnesCount64(digits) + bits.OnesCount64(parted&(letters|digits))
		own := letters | digits | scores
		free := ^(own<<1 | beforeOwn) | t.spaced[w] // not glued
		beforeOwn = own >> 63
		words, norm = sum(words, norm, keys, letters|digits, parted, normed, small&free&t.several[w])
		normed += bits.OnesCount64(letters | digits)
		next := (t.letter[w]&t.spaced[w]&^t.upper[w])>>1 | (t.letter[w+1]&t.spaced[w+1]&^t.upper[w+1])<<63
		for x := t.title[w] & t.upper[w] & free & next; x != 0; x &= x - 1 {
			p := bits.TrailingZeros64(x) & 63
			if key := keys[p]; runes[p] > 3 && l.epithet(base+p+1) && !slices.Contains(genera[ownGenera:], key) {
				genera = append(genera, key)
			}
		}
		if seeking {
			p := bits.TrailingZeros64(letters)
			ahead := ^(^uint64(0) << p)
			numbers += bits.OnesCount64(digits & ahead)
			seeking = numbers < 2 && scores&ahead == 0
			if seeking && p < 64 {
				seeking = false
				if t.upper[w]>>p&1 != 0 {
					m.first = l.capitalisedKey(base+p, keys[p])
				}
			}
		}
		for x := letters & t.known[w] & free; x != 0; x &= x - 1 {
			l.abbreviation(m, base+bits.TrailingZeros64(x))
		}
		if l.wideLetters {
			for x := letters; x != 0 && !m.measure; x &= x - 1 {
				if p := bits.TrailingZeros64(x) & 63; runes[p] != end[p]-at[p] {
					m.measure = l.hasMicrometre(base + p)
				}
			}
		}
		for x := digits & t.four[w]; x != 0 && !m.year; x &= x - 1 {
			m.year = l.isYear(base + bits.TrailingZeros64(x))
		}
		for x := digits; x != 0 && !m.measure; x &= x - 1 {
			if k := base + bits.TrailingZeros64(x); k+1 < t.n {
				m.measure = l.isUnit(k + 1)
			}
		}
	}
	m.author = m.author || l.signs[authorSign] > 0
	if normLength > 2 {
		m.norm = norm | 1
	}
	return words, genera
}

// sum appends those of keys that small has to words and adds those that which
// has, each with its bit of parted, to norm, the first of them at place n.
func sum(words []uint64, norm uint64, keys *[64]uint64, which, parted uint64, n int, small uint64) ([]uint64, uint64) {
	if vectors() {
		return sumVector(words, norm, keys, which, parted, n, small)
	}
	for x := which; x != 0; x &= x - 1 {
		p := bits.TrailingZeros64(x) & 63
		norm += (keys[p] + parted>>p&1) * factors[n&(maxTokens-1)]
		n++
	}
	for x := small; x != 0; x &= x - 1 {
		words = append(words, keys[bits.TrailingZeros64(x)&63])
	}
	return words, norm
}

// capitalisedKey returns the key of the capital and the small letters after
// it that token k begins with, 0 if there are none; key is that of all of it.
func (l *line) capitalisedKey(k int, key uint64) uint64 {
	t := &l.tokens
	if t.runes[k] < 2 {
		return 0
	}
	if t.title.has(k) {
		return key
	}
	at := l.next(t.at[k])
	if l.capital(at) {
		return 0
	}
	for at < t.end[k] && !l.capital(at) {
		at = l.next(at)
	}
	return wordKey(l.low, t.at[k], at)
}

// pack is token k as the constants have it.
func (l *line) pack(k int) uint32 { return pack(l.low[l.tokens.at[k]:l.tokens.end[k]]) }

// epithet reports whether tokens from k on, which stands behind white space, read like
// the rest of a binomial.
func (l *line) epithet(k int) bool {
	t := &l.tokens
	if k+2 < t.n && t.small(k) {
		if w := l.pack(k); (w == wordCf || w == wordAff) && l.dotted(k) &&
			t.at[k+2] == t.end[k+1]+1 && l.orig[t.end[k+1]] == ' ' {
			k += 2
		}
	}
	if !t.letter.has(k) || t.runes[k] < 4 || t.upper.has(k) {
		return false
	}
	if t.small(k) {
		return true
	}
	at := t.at[k]
	for range 4 {
		if l.capital(at) {
			return false
		}
		at = l.next(at)
	}
	return true
}

// dotted reports whether a full stop follows token k directly.
func (l *line) dotted(k int) bool {
	t := &l.tokens
	return k+1 < t.n && t.at[k+1] == t.end[k] && l.orig[t.at[k+1]] == '.'
}

// bordered reports whether no letter, digit or _ follows token k directly.
func (l *line) bordered(k int) bool {
	t := &l.tokens
	return k+1 >= t.n || t.at[k+1] > t.end[k] || t.class(k+1) == other && l.orig[t.at[k+1]] != '_'
}

// afterDot returns the token behind token k, a full stop and at most one
// space, or -1.
func (l *line) afterDot(k int) int {
	t := &l.tokens
	if k+2 >= t.n || !l.dotted(k) {
		return -1
	}
	switch end := t.end[k+1]; t.at[k+2] - end {
	case 0:
		return k + 2
	case 1:
		if l.orig[end] == ' ' {
			return k + 2
		}
	}
	return -1
}

// begins reports whether token k begins with w, in this case.
func (l *line) begins(k int, w string) bool {
	return k >= 0 && bytes.HasPrefix(l.orig[l.tokens.at[k]:l.tokens.end[k]], []byte(w))
}

// lowBegins reports whether token k begins with w, in any case.
func (l *line) lowBegins(k int, w string) bool {
	return k >= 0 && bytes.HasPrefix(l.low[l.tokens.at[k]:l.tokens.end[k]], []byte(w))
}

// abbreviation looks at token k, a word of letters that is not glued.
func (l *line) abbreviation(m *marks, k int) {
	t := &l.tokens
	small := t.small(k)
	switch l.pack(k) {
	case wordN:
		if next := l.afterDot(k); next >= 0 {
			m.novelty = m.novelty || l.lowBegins(next, "sp") || l.lowBegins(next, "gen") || l.lowBegins(next, "comb")
		}
	case wordNov:
		m.novelty = m.novelty || l.bordered(k)
		m.author = m.author || small && l.begins(l.afterDot(k), "sp")
	case wordSp, wordComb, wordGen, wordNom:
		m.author = m.author || small && l.begins(l.afterDot(k), "nov")
	case wordVar:
		m.author = m.author || small && l.dotted(k)
	case wordFr, wordPers:
		m.author = m.author || t.upper.has(k) && t.title.has(k) && l.dotted(k)
	case wordEx:
		m.author = m.author || small && l.bordered(k)
	case wordEt:
		if small && k+1 < t.n {
			m.author = m.author || t.at[k+1] == t.end[k]+1 && l.orig[t.end[k]] == ' ' && t.small(k+1) &&
				l.pack(k+1) == wordAl && l.bordered(k+1)
		}
	}
}

// isYear reports whether token k, four digits, is a year from 1700 to 2019.
func (l *line) isYear(k int) bool {
	b := l.orig[l.tokens.at[k]:l.tokens.end[k]]
	if max(b[1], b[2], b[3]) > '9' || l.glued(k) || !l.bordered(k) {
		return false // a digit is not ASCII, or the token is part of a word
	}
	return b[0] == '1' && b[1] >= '7' || b[0] == '2' && b[1] == '0' && b[2] <= '1'
}

// isUnit reports whether token k makes a measurement of the number before it.
func (l *line) isUnit(k int) bool {
	t := &l.tokens
	b := l.orig[t.at[k]:t.end[k]]
	if len(b) > 1 {
		switch uint32(b[0]) | uint32(b[1])<<8 {
		case wordMM, wordCM, 0xb5c2 /* µ */, 0x97c3 /* × */ :
			return true
		case 0xbcce /* μ */ :
			return !t.upper.has(k)
		case wordUM:
			return len(b) == 2 && l.bordered(k)
		}
		return false
	}
	return b[0] == wordX && k+1 < t.n && t.digit.has(k+1)
}

// hasMicrometre reports whether token k has µm or μm in it, in these letters.
func (l *line) hasMicrometre(k int) bool {
	at := l.tokens.at[k]
	b := l.orig[at:l.tokens.end[k]]
	for i := range max(0, len(b)-2) {
		if b[i+2] == 'm' && (b[i] == 0xc2 && b[i+1] == 0xb5 || b[i] == 0xce && b[i+1] == 0xbc && !l.capital(at+int32(i))) {
			return true
		}
	}
	return false
}
