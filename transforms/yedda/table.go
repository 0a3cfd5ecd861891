package yedda

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Table is a labelled document, row by row, as WriteCSV, WriteJSONL, WriteTreatments and
// WriteHTML take it.
type Table struct {
	URI    string
	Text   []byte
	Rows   []Line   // Rows(Text)
	Labels []string // of Rows

	Classes []string
	Probs   []float32 // [len(Rows), len(Classes)], row-major; empty where there are none
}

func (t *Table) check() {
	if len(t.Rows) != len(t.Labels) {
		panic("yedda: rows and labels differ in number")
	}
	if len(t.Probs) > 0 && len(t.Probs) < len(t.Rows)*len(t.Classes) {
		panic("yedda: short probs")
	}
}

// hasProbs reports whether there are any, or no row that could have some.
func (t *Table) hasProbs() bool { return len(t.Probs) > 0 || len(t.Rows) == 0 }

// probs are the probabilities of Classes for a row.
func (t *Table) probs(row int) []float32 {
	k := len(t.Classes)
	return t.Probs[row*k : (row+1)*k]
}

// confidence is the probability of the label of a row; ok is false where there
// is none.
func (t *Table) confidence(row int) (p float32, ok bool) {
	k := slices.Index(t.Classes, t.Labels[row])
	if k < 0 || len(t.Probs) == 0 {
		return 0, false
	}
	return t.probs(row)[k], true
}

// appendProb appends p with six decimals, or none where it is no number.
func appendProb(b []byte, p float32, none string) []byte {
	if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) {
		return append(b, none...)
	}
	return strconv.AppendFloat(b, float64(p), 'f', 6, 32)
}

// lineNumbers gives the numbers of lines, counted from 1, of offsets that do
// not go back.
type lineNumbers struct {
	text   []byte
	at, lf int // lf newlines stand before at
}

func (l *lineNumbers) of(offset int) int {
	l.lf += bytes.Count(l.text[l.at:offset], newline)
	l.at = offset
	return l.lf + 1
}

// characters turns offsets in bytes into offsets in characters (code points),
// in any order. A byte that is no UTF-8 is one character, which is how Python
// reads it with errors="surrogateescape" and JSON as U+FFFD.
type characters struct {
	text  []byte
	marks []mark // one for each charStep bytes
}

type mark struct{ byte, char int } // the first character that begins at or behind the step

const charStep = 256 // bytes

func newCharacters(text []byte) *characters {
	c := &characters{text: text, marks: make([]mark, 0, len(text)/charStep+1)}
	at, n := 0, 0
	for step := 0; step <= len(text); step += charStep {
		for at < step {
			size := 1
			if text[at] >= utf8.RuneSelf {
				_, size = utf8.DecodeRune(text[at:])
			}
			at += size
			n++
		}
		c.marks = append(c.marks, mark{at, n})
	}
	return c
}

// of is the number of characters before offset. An offset inside a character
// counts as its start.
func (c *characters) of(offset int) int {
	offset = characterStart(c.text, offset)
	m := c.marks[offset/charStep] // not behind offset, where a character begins
	return m.char + countCharacters(c.text[m.byte:offset])
}

// total is the number of characters of the text.
func (c *characters) total() int { return c.of(len(c.text)) }

// offset is where the character of a number begins, in bytes: of undoes it.
func (c *characters) offset(char int) int {
	i, exact := slices.BinarySearchFunc(c.marks, char, func(m mark, char int) int { return cmp.Compare(m.char, char) })
	if !exact {
		i--
	}
	at := c.marks[i].byte
	for n := c.marks[i].char; n < char; n++ {
		_, size := utf8.DecodeRune(c.text[at:])
		at += size
	}
	return at
}

// countCharacters is utf8.RuneCount, which in Go 1.26 copies what is not ASCII.
func countCharacters(b []byte) int {
	n := 0
	for i := 0; i < len(b); n++ {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, size := utf8.DecodeRune(b[i:])
		i += size
	}
	return n
}

// characterStart is offset, or the start of the character it is inside of.
// (Markup may stand between the bytes of one.)
func characterStart(text []byte, offset int) int {
	for back := 1; back < utf8.UTFMax && back <= offset; back++ {
		if _, size := utf8.DecodeRune(text[offset-back:]); size > back {
			return offset - back
		}
	}
	return offset
}
