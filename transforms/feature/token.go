package feature

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// maxTokens is how many tokens of a line make features. A longer line is
// described by its head: only its length and its last character are those of
// the whole line.
const maxTokens = 512

// lead is how many bytes stand before line.low: four are read from the end of a
// word of three.
const lead = 8

// maxBytes is how much of a line is read at all; offsets have 32 bits.
const maxBytes = 1 << 30

// tokens are the tokens of a line. Offsets are bytes in line.low. A bitset has
// a bit a token, those behind the last one 0. Assembly writes up to 64 numbers
// of an array, and two words of a bitset, at a time. Numbers behind the last token's are an
// earlier line's, or at most 64 more than the line's end: offsets within low, too.
type tokens struct {
	n       int
	at, end [maxTokens + 64]int32
	hashed  [maxTokens + 64]int32 // end of what is hashed: of a number four digits
	runes   [maxTokens + 64]int32 // characters

	letter, digit bitset // its class; the rest is of class other
	upper         bitset // begins with a capital
	spaced        bitset // stands behind white space or first in the line
	// The capitals of a token of letters: one, all of two or more, and some of
	// two or more.
	title, capitals, mixed bitset

	_ uint64 // behind the last bitset

	// What line.look writes. Of each token the first 8 bytes of what is hashed
	// and the 8 behind them, zeros behind its end: of vectors alone, AVX2's and Zen's in
	// orders of their own.
	lo, hi [maxTokens + 64]uint64
	keys   [maxTokens + 64]uint64 // of letters, and digitsKey of digits
	// Bits that other classes have are nothing: a word with more than one
	// character, one that may be an abbreviation, and a number of four digits.
	several, known, four bitset
	signs                [7]bitset // tokens of class other, by signOf but for 0
	// What shape has of the first tokens, of class other their first byte.
	shapes [16]uint32
	// The pairs' hashes as far as their first token, separator included: of AVX2 alone.
	firsts [maxTokens + 64]uint32
}

// bitset has a word more than the tokens need, for what looks at the next.
type bitset [maxTokens/64 + 1]uint64

func (b *bitset) has(k int) bool { return b[k>>6]>>(k&63)&1 != 0 }

// class is the class of token k.
func (t *tokens) class(k int) uint8 {
	return other - uint8(t.letter[k>>6]>>(k&63)&1)*(other-letter) - uint8(t.digit[k>>6]>>(k&63)&1)*(other-digit)
}

// small reports whether token k is of letters without a capital.
func (t *tokens) small(k int) bool {
	w := k >> 6
	return (t.letter[w]&^t.title[w]&^t.capitals[w]&^t.mixed[w])>>(k&63)&1 != 0
}

// clear empties the bitsets.
func (t *tokens) clear() {
	for _, b := range []*bitset{&t.letter, &t.digit, &t.upper, &t.spaced, &t.title, &t.capitals, &t.mixed} {
		*b = bitset{}
	}
}

// masks say what the bytes low[64*i:64*i+64] of a line are, a bit a byte from
// the lowest. All bytes of a character have its class; a byte of no class is
// of class other.
type masks struct {
	letter, digit, space uint64
	upper                uint64 // first bytes of letters that were capitals
	cont                 uint64 // all but the first byte of a character
}

// counts are of the head of a line. Assembly writes them.
type counts struct {
	letters, uppers, digits, spaces int    // characters
	conts                           int    // bytes that are not the first of a character
	words, capitalised              int    // parts between white space; those beginning with a capital
	signs                           [7]int // by signOf
}

// line is a line taken apart. Its memory is used again for the next one.
type line struct {
	// low is the line in lower case, with 0 for every digit and one ASCII
	// character for white space. What does not decode is left out. At least 16
	// bytes follow it, and lead bytes stand before it.
	low []byte
	// orig has the ASCII characters of the line as they were, each where low
	// has it.
	orig              []byte
	wide, wideLetters bool // it has characters beyond ASCII, and letters among them
	masks             []masks
	tokens            tokens

	length int  // characters of the whole trimmed line
	indent int  // columns of white space before it; a form feed begins anew
	feed   bool // a form feed stands in that white space

	from, end int // of the trimmed line in low
	headEnd   int // end of the last token

	counts
	others int // the other characters of the head

	buf []byte // behind orig where that is not the line itself
	// What the first token's and the first two tokens' hash is behind each byte.
	ones, twos [maxHead]uint32
}

// read takes raw apart.
func (l *line) read(raw []byte) {
	raw = raw[:min(len(raw), maxBytes)]
	n := l.classify(raw)
	l.trim(n)
	l.margin(raw)
	l.split()
	l.look()
	l.count()
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// within returns the high bits of the bytes of x that lie in [lo, hi]; all
// bytes are below 0x80.
func within(x uint64, lo, hi uint64) uint64 {
	return (x + (0x80-lo)*ones) &^ (x + (0x7f-hi)*ones) & highs
}

// gather makes one bit of each byte's high bit.
func gather(x uint64) uint64 {
	return x >> 7 * 0x0102040810204080 >> 56
}

// load returns the up to eight bytes of raw from i on, and how many there are.
// It may look at bytes behind the length of raw.
func load(raw []byte, i int) (x uint64, n int) {
	n = min(8, len(raw)-i)
	if around := raw[:cap(raw)]; i+8 <= len(around) {
		x = binary.LittleEndian.Uint64(around[i:])
		return x & (^uint64(0) >> (64 - 8*n)), n
	}
	for k, c := range raw[i:] {
		x |= uint64(c) << (8 * k)
	}
	return x, n
}

// classes returns eight ASCII characters in lower case, digits as 0, and the
// high bits of those of each class.
func classes(x uint64) (low, letters, digits, spaces, uppers uint64) {
	letters = within(x|0x20*ones, 'a', 'z')
	uppers = letters &^ (x << 2)
	digits = within(x, '0', '9')
	spaces = within(x, '\t', '\r') | within(x, 0x1c, ' ')
	low = (x | uppers>>2) &^ (digits >> 7 * 0xf)
	return low, letters, digits, spaces, uppers
}

// classify fills low, orig and masks from raw and returns the length of low.
func (l *line) classify(raw []byte) int {
	// Lower case may take three bytes for two; 64 are written at a time, and 16 are
	// read from up to 64 behind the line on.
	need := len(raw) + len(raw)/2 + 64 + 16
	if len(l.low) < need {
		l.low = make([]byte, lead+need+need/4)[lead:]
		l.masks = make([]masks, len(l.low)/64+2)
	}
	l.orig, l.wideLetters = raw, false
	if vectors() {
		l.wide = l.classifyVector(raw)
	} else {
		l.wide = l.classifyASCII(raw)
	}
	l.masks[(len(raw)+63)>>6] = masks{}
	if l.wide && !l.mendClasses(raw) {
		clear(l.masks[:need/64+2])
		return l.classifyWide(raw)
	}
	return len(raw)
}

// classifyASCII is classify of ASCII. All other bytes stay as they are, marked as
// continuations; wide reports whether there are any.
func (l *line) classifyASCII(raw []byte) (wide bool) {
	for i := 0; i < len(raw); {
		m := &l.masks[i>>6]
		*m = masks{}
		low := l.low[i : i+64]
		for s := uint(0); s < 64 && i < len(raw); s += 8 {
			x, n := load(raw, i)
			high := x & highs
			beyond := x & (high >> 7 * 0xff)
			lower, letters, digits, spaces, uppers := classes(x ^ beyond)
			binary.LittleEndian.PutUint64(low[s:], lower|beyond)
			m.letter |= gather(letters) << s
			m.digit |= gather(digits) << s
			m.space |= gather(spaces) << s
			m.upper |= gather(uppers) << s
			m.cont |= gather(high) << s
			wide = wide || high != 0
			i += n
		}
	}
	return wide
}

// mendClasses puts right what classifyASCII left of the characters beyond ASCII.
// Where one of them does not take as many bytes in low as in raw it reports false,
// and all is to be done anew.
func (l *line) mendClasses(raw []byte) bool {
	next := 0 // behind the last of them
	for base := 0; base < len(raw); base += 64 {
		for high := l.masks[base>>6].cont; high != 0; high &= high - 1 {
			at := base + bits.TrailingZeros64(high)
			if at < next {
				continue
			}
			r, size := utf8.DecodeRune(raw[at:])
			info := infoOf(r)
			switch {
			case r == utf8.RuneError, info.class == space, info.class == digit:
				return false
			case info.class == letter:
				if utf8.RuneLen(info.lower) != size {
					return false
				}
				utf8.EncodeRune(l.low[at:at+size], info.lower)
				m := masks{letter: 1<<size - 1}
				if info.upper {
					m.upper = 1
				}
				l.mark(at, m)
				l.wideLetters = true
			}
			l.masks[at>>6].cont &^= 1 << (at & 63)
			next = at + size
		}
	}
	return true
}

// classifyWide is classify of any text. The masks are clear.
func (l *line) classifyWide(raw []byte) int {
	if len(l.buf) < len(l.low) {
		l.buf = make([]byte, len(l.low))
	}
	low, orig, at := l.low, l.buf, 0
	for i := 0; i < len(raw); {
		x, n := load(raw, i)
		high := x & highs
		if high != 0 {
			n = bits.TrailingZeros64(high) >> 3
			x &= 1<<(8*n) - 1
		}
		if n > 0 {
			lower, letters, digits, spaces, uppers := classes(x)
			binary.LittleEndian.PutUint64(low[at:], lower)
			binary.LittleEndian.PutUint64(orig[at:], x)
			l.mark(at, masks{letter: gather(letters), digit: gather(digits), space: gather(spaces), upper: gather(uppers)})
			at += n
			i += n
		}
		if high == 0 {
			continue
		}
		r, size := utf8.DecodeRune(raw[i:])
		i += size
		if r == utf8.RuneError {
			continue
		}
		info := infoOf(r)
		m := masks{}
		n = 1
		switch info.class {
		case letter:
			n = utf8.EncodeRune(low[at:at+utf8.UTFMax], info.lower)
			copy(orig[at:], low[at:at+n])
			m.letter = 1<<n - 1
			l.wideLetters = true
			if info.upper {
				m.upper = 1
			}
		case digit:
			low[at], orig[at] = '0', 0xff
			m.digit = 1
		case space:
			low[at], orig[at] = '\v', '\v'
			m.space = 1
		default:
			n = copy(low[at:], raw[i-size:i])
			copy(orig[at:], raw[i-size:i])
		}
		m.cont = 1<<n - 2
		l.mark(at, m)
		at += n
	}
	l.orig = orig[:at]
	return at
}

// mark sets the bits of up to eight bytes from offset at on.
func (l *line) mark(at int, b masks) {
	m := &l.masks[at>>6]
	s := uint(at) & 63
	m.letter |= b.letter << s
	m.digit |= b.digit << s
	m.space |= b.space << s
	m.upper |= b.upper << s
	m.cont |= b.cont << s
	if s > 56 {
		m = &l.masks[at>>6+1]
		s = 64 - s
		m.letter |= b.letter >> s
		m.digit |= b.digit >> s
		m.space |= b.space >> s
		m.upper |= b.upper >> s
		m.cont |= b.cont >> s
	}
}

// until returns the bits below end of the word that begins at base, both bytes
// or both tokens.
func until(base, end int) uint64 {
	if end-base >= 64 {
		return ^uint64(0)
	}
	return 1<<uint(end-base) - 1
}

// trim finds from and end, low having n bytes. Both are 0 for a blank line.
func (l *line) trim(n int) {
	l.from, l.end = 0, 0
	for base := 0; base < n; base += 64 {
		if ink := ^l.masks[base>>6].space & until(base, n); ink != 0 {
			l.from = base + bits.TrailingZeros64(ink)
			break
		}
	}
	for base := (n - 1) &^ 63; base >= 0; base -= 64 {
		if ink := ^l.masks[base>>6].space & until(base, n); ink != 0 {
			l.end = base + bits.Len64(ink)
			break
		}
	}
}

// margin looks at the white space that raw begins with.
func (l *line) margin(raw []byte) {
	l.indent, l.feed = 0, false
	if l.from == 0 {
		return
	}
	for at := 0; at < len(raw); {
		switch raw[at] {
		case ' ':
			l.indent++
			at++
		case '\t':
			l.indent = tabStop(l.indent)
			at++
		case '\f':
			l.indent, l.feed = 0, true
			at++
		default:
			r, size := utf8.DecodeRune(raw[at:])
			if r != utf8.RuneError {
				if infoOf(r).class != space {
					return
				}
				l.indent++
			}
			at += size
		}
	}
}

// tabStop is the column behind a tab at column i. It is bounded, so that with the characters
// of the line it fits 32 bits.
func tabStop(i int) int { return min(i&^7+8, maxBytes) }

// split finds the tokens between from and end.
func (l *line) split() {
	t := &l.tokens
	l.headEnd = l.from
	if l.end <= maxTokens && vectors() { // so few bytes are no more tokens
		l.splitVector()
		if l.wide {
			l.countRunes()
		}
		if t.n > 0 {
			l.headEnd = int(t.end[t.n-1])
		}
		return
	}
	t.clear()
	n := 0
	afterLetter, afterDigit, afterSpace := uint64(0), uint64(0), uint64(1)
scan:
	for base := l.from &^ 63; base < l.end; base += 64 {
		m := &l.masks[base>>6]
		stops := m.letter&^(m.letter<<1|afterLetter) | m.digit&^(m.digit<<1|afterDigit) |
			^(m.letter | m.digit | m.space | m.cont)
		starts := stops & until(base, l.end)
		if base < l.from {
			starts &^= until(base, l.from)
		}
		stops |= m.space
		spaced := m.space<<1 | afterSpace
		afterLetter, afterDigit, afterSpace = m.letter>>63, m.digit>>63, m.space>>63
		for ; starts != 0; starts &= starts - 1 {
			if n == maxTokens {
				break scan
			}
			p := uint(bits.TrailingZeros64(starts)) & 63
			isLetter, isUpper := m.letter>>p&1, m.upper>>p&1
			var end, uppers, conts int
			if rest := stops >> p >> 1; rest != 0 {
				size := uint(bits.TrailingZeros64(rest)) + 1
				own := uint64(1<<(size&63)-1) << p
				end = base + int(p+size)
				uppers = bits.OnesCount64(m.upper & own)
				conts = bits.OnesCount64(m.cont & own)
			} else {
				end, uppers, conts = l.across(base+int(p), uint8(other-(other-letter)*isLetter-(other-digit)*(m.digit>>p&1)))
			}
			at := base + int(p)
			runes := end - at - conts
			t.at[n], t.end[n], t.hashed[n], t.runes[n] = int32(at), int32(end), int32(end), int32(runes)
			w, s := n>>6, uint(n)&63
			t.letter[w] |= isLetter << s
			if m.digit>>p&1 != 0 {
				t.digit[w] |= 1 << s
				t.hashed[n] = int32(min(end, at+4))
			}
			t.upper[w] |= isUpper << s
			t.spaced[w] |= spaced >> p & 1 << s
			if uppers > 0 {
				switch uppers {
				case 1:
					t.title[w] |= 1 << s
				case runes:
					t.capitals[w] |= 1 << s
				default:
					t.mixed[w] |= 1 << s
				}
			}
			n++
			l.headEnd = end
		}
	}
	t.n = n
}

// countRunes corrects the tokens' runes, which the assembly counted in bytes: it takes off
// the continuation bytes.
func (l *line) countRunes() {
	t := &l.tokens
	k := 0
	for base := l.from &^ 63; base < l.end; base += 64 {
		for conts := l.masks[base>>6].cont; conts != 0; conts &= conts - 1 {
			at := int32(base + bits.TrailingZeros64(conts))
			for t.end[k] <= at {
				k++
			}
			t.runes[k]--
		}
	}
}

// across measures a token of a class that begins at offset at and goes on to
// the end of its word of masks at least.
func (l *line) across(at int, class uint8) (end, uppers, conts int) {
	first := ^until(at&^63, at)
	for base := at &^ 63; ; base += 64 {
		m := &l.masks[base>>6]
		goes := m.cont // on with the token
		switch class {
		case letter:
			goes = m.letter
		case digit:
			goes = m.digit
		}
		if base == at&^63 && class == other {
			goes = ^uint64(0)
		}
		own := first
		stop := ^goes & first
		if stop != 0 {
			end = base + bits.TrailingZeros64(stop)
			own &= until(base, end)
		}
		uppers += bits.OnesCount64(m.upper & own)
		conts += bits.OnesCount64(m.cont & own)
		if stop != 0 {
			return end, uppers, conts
		}
		first = ^uint64(0)
	}
}

// count counts characters: of the line, and by class of its head; words and signs.
func (l *line) count() {
	l.length, l.others = l.end-l.from, 0
	if l.end == l.from {
		l.counts = counts{}
		return
	}
	if vectors() {
		l.countVector()
	} else {
		l.countHead()
	}
	conts := l.conts
	l.others = l.headEnd - l.from - conts - l.letters - l.digits - l.spaces
	for base := l.headEnd &^ 63; l.headEnd < l.end && base < l.end; base += 64 {
		in := until(base, l.end)
		if base < l.headEnd {
			in &^= until(base, l.headEnd)
		}
		conts += bits.OnesCount64(l.masks[base>>6].cont & in)
	}
	l.length -= conts
}

// countHead writes l.counts.
func (l *line) countHead() {
	l.counts = counts{}
	t := &l.tokens
	for w := range (t.n + 63) / 64 {
		l.words += bits.OnesCount64(t.spaced[w])
		l.capitalised += bits.OnesCount64(t.spaced[w] & t.upper[w])
		for i := 1; i < len(l.signs); i++ {
			l.signs[i] += bits.OnesCount64(t.signs[i][w])
		}
	}
	for base := l.from &^ 63; base < l.headEnd; base += 64 {
		m := &l.masks[base>>6]
		in := until(base, l.headEnd)
		if base < l.from {
			in &^= until(base, l.from)
		}
		l.letters += bits.OnesCount64(m.letter & in &^ m.cont)
		l.uppers += bits.OnesCount64(m.upper & in)
		l.digits += bits.OnesCount64(m.digit & in)
		l.spaces += bits.OnesCount64(m.space & in)
		l.conts += bits.OnesCount64(m.cont & in)
	}
}

// capital reports whether the letter at offset at was a capital.
func (l *line) capital(at int32) bool {
	return l.masks[at>>6].upper>>(at&63)&1 != 0
}

// next returns the offset of the character behind that at offset at.
func (l *line) next(at int32) int32 {
	at++
	for l.masks[at>>6].cont>>(at&63)&1 != 0 {
		at++
	}
	return at
}

// glued reports whether a letter, a digit or _ stands before token k directly.
func (l *line) glued(k int) bool {
	t := &l.tokens
	return !t.spaced.has(k) && (t.class(k-1) != other || l.low[t.at[k]-1] == '_')
}
