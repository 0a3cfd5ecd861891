package feature

import "bytes"

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

	// signs counts single characters by index in signOf.
	signs [6]int32
}

// Characters that are counted.
const (
	comma = iota + 1
	fullStop
	semicolon
	paren
	authorSign // = or &
)

var signOf = [256]uint8{',': comma, '.': fullStop, ';': semicolon, '(': paren, '=': authorSign, '&': authorSign}

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

// digitsKey stands for a run of digits in a line's norm.
const digitsKey = 0x8ebc6af09c88c6e3

// find looks for the patterns in l. It appends the key of each word of two or
// more small letters to words and that of each genus, once a line, to genera:
// \b([A-Z][a-z]{3,})\s+(?:cf\. |aff\. )?[a-z]{4}
func (l *line) find(words, genera []uint64) (marks, []uint64, []uint64) {
	var m marks
	tokens, low := l.tokens, l.low
	ownGenera := len(genera)

	norm, normLength := uint64(0), int32(0)
	wordEnd := int32(0) // of the letters or digits before

	seeking, numbers := true, 0 // the first word

	for k := range tokens {
		t := &tokens[k]
		switch t.class {
		case letter:
			key := wordKey(low, t.at, t.end)
			part := key
			if normLength > 0 && t.at > wordEnd {
				part++
				normLength++
			}
			norm = mix(norm^part, key1)
			normLength += t.runes
			wordEnd = t.end

			if seeking {
				seeking = false
				if t.upper {
					m.first = l.capitalisedKey(t, key)
				}
			}
			if t.shape == 'x' {
				if t.runes > 1 && !l.glued(k) {
					words = append(words, key)
				}
			} else if t.shape == 'C' && t.upper && t.runes > 3 && !l.glued(k) && l.epithet(k+1) {
				known := false
				for _, g := range genera[ownGenera:] {
					known = known || g == key
				}
				if !known {
					genera = append(genera, key)
				}
			}
			if size := t.end - t.at; size <= 4 {
				l.abbreviation(&m, k, pack(low[t.at:t.end]))
			}
			if t.runes != t.end-t.at && !m.measure {
				m.measure = l.hasMicrometre(t)
			}
		case digit:
			part := uint64(digitsKey)
			if normLength > 0 && t.at > wordEnd {
				part++
				normLength++
			}
			norm = mix(norm^part, key1)
			normLength++
			wordEnd = t.end

			numbers++
			seeking = seeking && numbers < 2
			if t.runes == 4 && !m.year {
				m.year = l.isYear(k)
			}
			if k+1 < len(tokens) && !m.measure {
				m.measure = l.isUnit(k + 1)
			}
		default:
			c := low[t.at]
			m.signs[signOf[c]]++
			seeking = seeking && c != '_'
			if c == 0xe2 && string(low[t.at:t.end]) == "≡" {
				m.author = true
			}
		}
	}
	m.author = m.author || m.signs[authorSign] > 0
	if normLength > 2 {
		m.norm = norm | 1
	}
	return m, words, genera
}

// capitalisedKey returns the key of the capital and the small letters after
// it that t begins with, 0 if there are none; key is that of all of t.
func (l *line) capitalisedKey(t *token, key uint64) uint64 {
	if t.runes < 2 {
		return 0
	}
	if t.shape == 'C' {
		return key
	}
	at := l.next(t.at)
	if l.capital(at) {
		return 0
	}
	for at < t.end && !l.capital(at) {
		at = l.next(at)
	}
	return wordKey(l.low, t.at, at)
}

// epithet reports whether tokens from k on read like the rest of a binomial.
func (l *line) epithet(k int) bool {
	tokens := l.tokens
	if k >= len(tokens) || !tokens[k].spaced {
		return false
	}
	if t := &tokens[k]; k+2 < len(tokens) && t.shape == 'x' {
		if w := pack(l.low[t.at:t.end]); (w == wordCf || w == wordAff) && l.dotted(k) &&
			tokens[k+2].at == tokens[k+1].end+1 && l.orig[tokens[k+1].end] == ' ' {
			k += 2
		}
	}
	t := &tokens[k]
	if t.class != letter || t.runes < 4 || t.upper {
		return false
	}
	if t.shape == 'x' {
		return true
	}
	at := t.at
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
	return k+1 < len(l.tokens) && l.tokens[k+1].at == l.tokens[k].end && l.orig[l.tokens[k+1].at] == '.'
}

// bordered reports whether no letter, digit or _ follows token k directly.
func (l *line) bordered(k int) bool {
	if k+1 >= len(l.tokens) {
		return true
	}
	t := &l.tokens[k+1]
	return t.at > l.tokens[k].end || t.class == other && l.orig[t.at] != '_'
}

// afterDot returns the token behind token k, a full stop and at most one
// space, or -1.
func (l *line) afterDot(k int) int {
	if k+2 >= len(l.tokens) || !l.dotted(k) {
		return -1
	}
	switch end := l.tokens[k+1].end; l.tokens[k+2].at - end {
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
	return k >= 0 && bytes.HasPrefix(l.orig[l.tokens[k].at:l.tokens[k].end], []byte(w))
}

// lowBegins reports whether token k begins with w, in any case.
func (l *line) lowBegins(k int, w string) bool {
	return k >= 0 && bytes.HasPrefix(l.low[l.tokens[k].at:l.tokens[k].end], []byte(w))
}

// abbreviation looks at token k, a word of letters w in lower case.
func (l *line) abbreviation(m *marks, k int, w uint32) {
	t := &l.tokens[k]
	if l.glued(k) {
		return
	}
	small := t.shape == 'x'
	switch w {
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
		m.author = m.author || t.upper && t.shape == 'C' && l.dotted(k)
	case wordEx:
		m.author = m.author || small && l.bordered(k)
	case wordEt:
		if small && k+1 < len(l.tokens) {
			n := &l.tokens[k+1]
			m.author = m.author || n.at == t.end+1 && l.orig[t.end] == ' ' && n.shape == 'x' &&
				pack(l.low[n.at:n.end]) == wordAl && l.bordered(k+1)
		}
	}
}

// isYear reports whether token k, four digits, is a year from 1700 to 2019.
func (l *line) isYear(k int) bool {
	t := &l.tokens[k]
	b := l.orig[t.at:t.end]
	if max(b[1], b[2], b[3]) > '9' || l.glued(k) || !l.bordered(k) {
		return false // a digit is not ASCII, or the token is part of a word
	}
	return b[0] == '1' && b[1] >= '7' || b[0] == '2' && b[1] == '0' && b[2] <= '1'
}

// isUnit reports whether token k makes a measurement of the number before it.
func (l *line) isUnit(k int) bool {
	t := &l.tokens[k]
	b := l.orig[t.at:t.end]
	if len(b) > 1 {
		switch uint32(b[0]) | uint32(b[1])<<8 {
		case wordMM, wordCM, 0xb5c2 /* µ */, 0x97c3 /* × */ :
			return true
		case 0xbcce /* μ */ :
			return !t.upper
		case wordUM:
			return len(b) == 2 && l.bordered(k)
		}
		return false
	}
	return b[0] == wordX && k+1 < len(l.tokens) && l.tokens[k+1].class == digit
}

// hasMicrometre reports whether t has µm or μm in it, in these letters.
func (l *line) hasMicrometre(t *token) bool {
	b := l.orig[t.at:t.end]
	for i := range max(0, len(b)-2) {
		if b[i+2] == 'm' && (b[i] == 0xc2 && b[i+1] == 0xb5 || b[i] == 0xce && b[i+1] == 0xbc && !l.capital(t.at+int32(i))) {
			return true
		}
	}
	return false
}
