package feature

import "unicode/utf8"

// maxTokens is how many tokens of a line make features. A longer line is
// described by its head: only its length and its last character are those of
// the whole line.
const maxTokens = 512

// maxBytes is how much of a line is read at all; offsets have 32 bits.
const maxBytes = 1 << 30

// token is one token of a line. Offsets are bytes.
type token struct {
	at, end       int32 // in line.clean
	lowAt, lowEnd int32 // in line.low
	runes         int32 // a run of digits counts in full
	class         uint8 // letter, digit or other
	shape         uint8 // x aaa, C Aaa, X AAA, M AaA; d to three digits, D more; 0 for other
	upper         bool  // begins with a capital
	spaced        bool  // stands behind white space or first in the line
	glued         bool  // follows a letter, a digit or _ directly
}

// line is a line taken apart. Its memory is used again for the next one.
type line struct {
	clean  []byte // the head without what does not decode, trimmed
	low    []byte // lower case, digits 0, runs of four at most, white space as one ' '
	tokens []token

	length int  // characters of the whole trimmed line
	indent int  // columns of white space before it; a form feed begins anew
	feed   bool // a form feed stands in that white space

	first, last rune // of the trimmed line; 0 if there are none

	letters, uppers, digits, others, spaces int // characters of the head
	words, capitalised                      int // parts between white space; those beginning with a capital
	commas, dots, semicolons, parens        int

	buf      []byte // behind clean where something was deleted
	tokenBuf [maxTokens]token
}

// read takes raw apart.
func (l *line) read(raw []byte) {
	clean := raw[:min(len(raw), maxBytes)]
	ascii := isASCII(clean)
	if !ascii && hasBroken(clean) {
		l.buf = appendClean(l.buf[:0], clean)
		clean = l.buf
	}
	clean = l.trim(clean)
	l.length = len(clean)
	if !ascii {
		l.length = utf8.RuneCount(clean)
	}
	l.first, _ = utf8.DecodeRune(clean)
	l.last, _ = utf8.DecodeLastRune(clean)
	if len(clean) == 0 {
		l.first, l.last = 0, 0
	}
	l.split(clean)
}

// hasBroken reports whether b holds U+FFFD or bytes that are no UTF-8.
func hasBroken(b []byte) bool {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError {
			return true
		}
		i += n
	}
	return false
}

// trim returns b without white space around it and notes the indent.
func (l *line) trim(b []byte) []byte {
	l.indent, l.feed = 0, false
	at := 0
lead:
	for at < len(b) {
		switch b[at] {
		case ' ':
			l.indent++
			at++
		case '\t':
			l.indent = l.indent&^7 + 8
			at++
		case '\f':
			l.indent, l.feed = 0, true
			at++
		default:
			r, n := utf8.DecodeRune(b[at:])
			if infoOf(r).class != space {
				break lead
			}
			l.indent++
			at += n
		}
	}
	b = b[at:]
	for len(b) > 0 {
		r, n := utf8.DecodeLastRune(b)
		if infoOf(r).class != space {
			break
		}
		b = b[:len(b)-n]
	}
	return b
}

// split finds the tokens of c, which is trimmed and decodes throughout.
func (l *line) split(c []byte) {
	l.letters, l.uppers, l.digits, l.others, l.spaces = 0, 0, 0, 0, 0
	l.words, l.capitalised = 0, 0
	l.commas, l.dots, l.semicolons, l.parens = 0, 0, 0, 0

	// Lower case may take three bytes for two; spaces take none of their own.
	if need := len(c) + len(c)/2 + 16; len(l.low) < need {
		l.low = make([]byte, need+need/4)
	}
	low := l.low
	tokens := &l.tokenBuf
	n, lowN := 0, 0
	spaced, glued := true, false
	i := 0
	for i < len(c) && n < maxTokens {
		class := asciiClass[c[i]]
		var info runeInfo
		size := 1
		if class == wide {
			var r rune
			r, size = utf8.DecodeRune(c[i:])
			info = infoOf(r)
			class = info.class
		}
		if class == space {
			if !spaced {
				low[lowN] = ' '
				lowN++
			}
			spaced, glued = true, false
			l.spaces++
			i += size
			continue
		}
		t := &tokens[n]
		n++
		t.at, t.lowAt = int32(i), int32(lowN)
		t.class, t.spaced, t.glued = class, spaced, glued
		t.upper = false
		switch class {
		case letter:
			uppers, runes := 0, 0
			for i < len(c) {
				ch := c[i]
				if lo := asciiLower[ch]; lo != 0 {
					up := int(ch^lo) >> 5
					uppers += up
					low[lowN] = lo
					lowN++
					i++
				} else if ch < utf8.RuneSelf {
					break
				} else {
					r, size := utf8.DecodeRune(c[i:])
					info := infoOf(r)
					if info.class != letter {
						break
					}
					if info.upper {
						uppers++
					}
					lowN += utf8.EncodeRune(low[lowN:lowN+utf8.UTFMax], info.lower)
					i += size
				}
				if runes == 0 {
					t.upper = uppers == 1
				}
				runes++
			}
			t.runes = int32(runes)
			l.letters += runes
			l.uppers += uppers
			switch {
			case uppers == 0:
				t.shape = 'x'
			case uppers == 1:
				t.shape = 'C'
			case uppers == runes:
				t.shape = 'X'
			default:
				t.shape = 'M'
			}
		case digit:
			runes := 0
			for i < len(c) {
				size := 1
				if c[i] >= utf8.RuneSelf {
					var r rune
					r, size = utf8.DecodeRune(c[i:])
					if infoOf(r).class != digit {
						break
					}
				} else if asciiClass[c[i]] != digit {
					break
				}
				if runes < 4 {
					low[lowN] = '0'
					lowN++
				}
				runes++
				i += size
			}
			t.runes = int32(runes)
			l.digits += runes
			t.shape = 'd'
			if runes >= 4 {
				t.shape = 'D'
			}
		default:
			if size == 1 {
				switch c[i] {
				case ',':
					l.commas++
				case '.':
					l.dots++
				case ';':
					l.semicolons++
				case '(':
					l.parens++
				}
			}
			lowN += copy(low[lowN:], c[i:i+size])
			l.others++
			t.runes = 1
			t.shape = 0
			i += size
		}
		t.end, t.lowEnd = int32(i), int32(lowN)
		if spaced {
			l.words++
			if t.upper {
				l.capitalised++
			}
		}
		spaced = false
		glued = class != other || c[i-1] == '_'
	}
	l.clean = c[:i]
	l.tokens = tokens[:n]
}
