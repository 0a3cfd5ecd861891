package feature

import "unicode"

// Classes of characters. A token is a run of letters, a run of digits or a
// single other character; white space parts tokens.
const (
	space  = iota // White_Space and the separators U+001C to U+001F
	letter        // L*, and the marks (M*) that letters carry
	digit         // Nd
	other         // everything else
)

// runeInfo is what the features need to know of a character.
type runeInfo struct {
	lower rune // simple lower case (one character) of a letter
	class uint8
	upper bool // Lu
}

var (
	// The parts of Unicode that the literature uses are looked up; the rest
	// goes through package unicode.
	latin   [0x600]runeInfo // to U+05FF: Latin, Greek, Cyrillic, marks
	symbols [0x300]runeInfo // U+2000 to U+22FF: punctuation, arrows, mathematics
	forms   [0x10]runeInfo  // U+FB00 to U+FB0F: the ligatures ﬀ ﬁ ﬂ ﬃ ﬄ
)

func init() {
	for i := range latin {
		latin[i] = slowInfo(rune(i))
	}
	for i := range symbols {
		symbols[i] = slowInfo(0x2000 + rune(i))
	}
	for i := range forms {
		forms[i] = slowInfo(0xfb00 + rune(i))
	}
}

func slowInfo(r rune) runeInfo {
	switch {
	case unicode.IsLetter(r) || unicode.IsMark(r):
		return runeInfo{lower: unicode.ToLower(r), class: letter, upper: unicode.IsUpper(r)}
	case unicode.IsDigit(r):
		return runeInfo{lower: '0', class: digit}
	case unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f: // as package yedda
		return runeInfo{lower: ' ', class: space}
	}
	return runeInfo{lower: r, class: other}
}

func infoOf(r rune) runeInfo {
	switch {
	case uint32(r) < uint32(len(latin)):
		return latin[r]
	case uint32(r-0x2000) < uint32(len(symbols)):
		return symbols[r-0x2000]
	case uint32(r-0xfb00) < uint32(len(forms)):
		return forms[r-0xfb00]
	}
	return slowInfo(r)
}
