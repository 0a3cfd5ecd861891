// Package typeset sets an annotated text anew, as another journal might have it:
// in lines of another length or a line a paragraph, with names in capitals, without
// blank lines or with one after each line, with the mistakes of a scanner, with words
// that nobody knows, or with passages that break off or say but a few words. Trained
// on that beside the text as it stands, a model knows a label by what a line says more
// than by how one publisher prints it.
package typeset

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"unicode"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/transforms/yedda"
)

// maxGrowth is the most lines that a setting has for each line of the text: a text whose
// lines are paragraphs, set in narrow ones, would be learnt from many times as much as
// any other.
const maxGrowth = 4

// line is a row of the text.
type line struct {
	before []byte // from the end of the row before, line breaks included
	text   []byte
	label  string
}

// Vary returns rows of text, with a label each, in a setting drawn by seed, and a
// label for each of yedda.Rows of it. Now and then it is left as it stands; of what
// would be more than four lines for one, the end is left out. Equal arguments give
// equal results; text is not changed.
func Vary(text []byte, rows []yedda.Line, labels []string, seed uint64) ([]byte, []string) {
	lines, rest := split(text, rows, labels)
	rnd := rand.New(rand.NewPCG(seed, 0))
	switch u := rnd.Float64(); {
	case u < 0.05:
		lines = abridge(lines, rnd)
	case u < 0.7:
		lines = shorten(lines, rnd)
	}
	if rnd.Float64() < 0.6 {
		lines = fill(lines, width(rnd))
		lines = lines[:min(len(lines), maxGrowth*len(rows))]
	}
	if rnd.IntN(2) == 0 {
		garble(lines, rnd)
	}
	switch u := rnd.Float64(); {
	case u < 0.2:
		capitalise(lines, rnd)
	case u < 0.3:
		for i := range lines {
			lines[i].text = bytes.ToLower(lines[i].text)
		}
	}
	switch u := rnd.Float64(); {
	case u < 0.1:
		space(lines, "\n")
	case u < 0.3:
		space(lines, "\n\n")
	}
	if rnd.Float64() < 0.2 {
		for i := range lines {
			lines[i].text = addOCRErrors(lines[i].text, rnd)
		}
	}
	out, labels := join(lines)
	return append(out, rest...), labels
}

// split also returns what is behind the last row.
func split(text []byte, rows []yedda.Line, labels []string) (lines []line, rest []byte) {
	lines, end := make([]line, len(rows)), 0
	for i, r := range rows {
		lines[i] = line{text[end:r.Start], text[r.Start:r.End], labels[i]}
		end = r.End
	}
	return lines, text[end:]
}

func join(lines []line) (text []byte, labels []string) {
	labels = make([]string, len(lines))
	for i, l := range lines {
		text = append(append(text, l.before...), l.text...)
		labels[i] = l.label
	}
	return text, labels
}

// abridge leaves of every other run of lines with one label its first line, up to a
// comma or semicolon there.
func abridge(lines []line, rnd *rand.Rand) (kept []line) {
	cut := false
	for i, l := range lines {
		if i == 0 || l.label != lines[i-1].label {
			cut = rnd.IntN(2) == 0
		} else if cut {
			continue
		}
		if cut {
			n := indent(l.text)
			if end := bytes.IndexAny(l.text[n:], ",;"); end > 0 && !yedda.Blank(l.text[:n+end]) {
				l.text = l.text[:n+end]
			}
		}
		kept = append(kept, l)
	}
	return kept
}

// shorten leaves of every other run of at most three lines with one label its first
// two to five words: a name without its citation, a heading.
func shorten(lines []line, rnd *rand.Rand) (kept []line) {
	for i := 0; i < len(lines); {
		first := i
		for i++; i < len(lines) && lines[i].label == lines[first].label; i++ {
		}
		if i-first > 3 || rnd.IntN(2) == 0 {
			kept = append(kept, lines[first:i]...)
			continue
		}
		l := lines[first]
		if text := l.text[:wordsEnd(l.text, 2+rnd.IntN(4))]; !yedda.Blank(text) {
			l.text = text
		}
		kept = append(kept, l)
	}
	return kept
}

// wordsEnd is where the first n words of text end.
func wordsEnd(text []byte, n int) (end int) {
	for range n {
		end += indent(text[end:])
		if next := bytes.IndexFunc(text[end:], unicode.IsSpace); next >= 0 {
			end += next
		} else {
			return len(text)
		}
	}
	return end
}

// width draws the length of lines in bytes, 0 for a line a paragraph.
func width(rnd *rand.Rand) int {
	switch rnd.IntN(4) {
	case 0:
		return 0
	case 1, 2:
		return 30 + rnd.IntN(30)
	}
	return 80 + rnd.IntN(120)
}

// begins reports whether line i begins a paragraph: behind a blank line or another
// label, set in by two columns or more, or on a new page.
func begins(lines []line, i int) bool {
	if i == 0 {
		return true
	}
	l, above := lines[i], lines[i-1]
	return string(l.before) != "\n" || l.label != above.label || indent(l.text) >= indent(above.text)+2 || bytes.ContainsRune(l.text, '\f')
}

func indent(text []byte) int { return len(text) - len(bytes.TrimLeftFunc(text, unicode.IsSpace)) }

// fill sets paragraphs in lines of at most width bytes, but for longer words.
func fill(lines []line, width int) (filled []line) {
	for i := 0; i < len(lines); {
		first := i
		for i++; i < len(lines) && !begins(lines, i); i++ {
		}
		l := lines[first]
		l.text = l.text[:indent(l.text):indent(l.text)]
		for j, word := range words(lines[first:i]) {
			switch {
			case j == 0:
				l.text = append(l.text, word...)
			case width > 0 && len(l.text)+1+len(word) > width && !yedda.Blank(l.text) && !yedda.Blank(word):
				filled = append(filled, l)
				l = line{[]byte("\n"), bytes.Clone(word), l.label}
			default:
				l.text = append(append(l.text, ' '), word...)
			}
		}
		filled = append(filled, l)
	}
	return filled
}

// words are the words of a paragraph; what a hyphen parts at the end of a line is one.
func words(lines []line) (words [][]byte) {
	parted := false
	for _, l := range lines {
		for i, w := range bytes.Fields(l.text) {
			if n := len(words) - 1; i == 0 && parted && 'a' <= w[0] && w[0] <= 'z' {
				words[n] = append(bytes.Clone(words[n][:len(words[n])-1]), w...)
			} else {
				words = append(words, w)
			}
		}
		last := words[len(words)-1]
		parted = len(last) > 1 && last[len(last)-1] == '-'
	}
	return words
}

const consonants = "bcdfghjklmnprstvw"

// garble replaces consonants by others in about every other word of five bytes or more,
// but for its last three bytes, so that it looks like a word of another group or language
// with the same ending. Equal words stay equal.
func garble(lines []line, rnd *rand.Rand) {
	var other [256]byte
	for i := range other {
		other[i] = byte(i)
	}
	for i, j := range rnd.Perm(len(consonants)) {
		other[consonants[i]] = consonants[j]
		other[consonants[i]-'a'+'A'] = consonants[j] - 'a' + 'A'
	}
	seed := binary.LittleEndian.AppendUint32(nil, rnd.Uint32())
	for i := range lines {
		lines[i].text = bytes.Clone(lines[i].text)
		for word := range bytes.FieldsFuncSeq(lines[i].text, func(r rune) bool { return !unicode.IsLetter(r) }) {
			hash := fnv.New32a()
			hash.Write(seed)
			hash.Write(bytes.ToLower(word))
			if len(word) < 5 || hash.Sum32()>>16&1 == 0 {
				continue
			}
			for k := range word[3:] {
				word[k] = other[word[k]]
			}
		}
	}
}

// capitalise sets the first two words of about every other paragraph in capitals.
func capitalise(lines []line, rnd *rand.Rand) {
	for i := range lines {
		if !begins(lines, i) || rnd.IntN(2) == 0 {
			continue
		}
		text := lines[i].text
		n := wordsEnd(text, 2)
		lines[i].text = append(bytes.ToUpper(text[:n]), text[n:]...)
	}
}

// space sets between for what is between lines, but for the ends of pages.
func space(lines []line, between string) {
	for i := range lines {
		if i > 0 && !bytes.ContainsRune(lines[i].before, '\f') {
			lines[i].before = []byte(between)
		}
	}
}

// ocrErrors are characters and what OCR takes them for.
var ocrErrors = map[rune]string{'l': "1", '1': "l", 'e': "c", 'o': "0", 'i': "l", 'm': "rn", 'u': "n", 'h': "b", '5': "S", '.': ",", ',': "."}

// addOCRErrors replaces one in twenty characters that ocrErrors has, and puts a space
// after one in a hundred of all.
func addOCRErrors(text []byte, rnd *rand.Rand) []byte {
	out := make([]byte, 0, len(text)+8)
	for _, r := range string(text) {
		if wrong, ok := ocrErrors[r]; ok && rnd.IntN(20) == 0 {
			out = append(out, wrong...)
		} else {
			out = utf8.AppendRune(out, r)
		}
		if rnd.IntN(100) == 0 {
			out = append(out, ' ')
		}
	}
	return out
}
