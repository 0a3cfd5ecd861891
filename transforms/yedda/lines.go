package yedda

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Line is a line of a text: bytes [Start, End). End excludes the '\n'; a CR
// before it stays inside.
type Line struct{ Start, End int }

// Lines are all lines of text, blank ones too. A line ends at LF alone, the
// last one also at the end of the text; there is none after a last LF.
func Lines(text []byte) []Line { return pick(text, func([]byte) bool { return true }) }

// Rows are the lines of text that are not Blank, those that reach a model.
func Rows(text []byte) []Line { return pick(text, func(line []byte) bool { return !Blank(line) }) }

// pick returns the lines of text that keep says yes to.
func pick(text []byte, keep func(line []byte) bool) []Line {
	lines := make([]Line, 0, bytes.Count(text, newline)+1)
	for start := 0; start < len(text); {
		end := index(text, '\n', start)
		if keep(text[start:end]) {
			lines = append(lines, Line{start, end})
		}
		start = end + 1
	}
	return lines
}

// Blank reports whether line holds nothing to label: only white space (form feeds
// too), U+FFFD and bytes that are no UTF-8, which every other reader turns
// into U+FFFD.
func Blank(line []byte) bool { return !anyInk(line, false) }

// Inked are the lines of text that hold ink: Rows, and those that nobody can
// read, of U+FFFD or bytes that are no UTF-8. It is rows, which must be
// Rows(text), where there are no others.
func Inked(text []byte, rows []Line) []Line {
	if !inkBeside(text, rows) {
		return rows
	}
	return pick(text, hasInk)
}

// inkBeside reports whether there is ink in no row.
func inkBeside(text []byte, rows []Line) bool {
	at := 0
	for _, row := range rows {
		if row.Start > at+1 && hasInk(text[at:row.Start]) {
			return true
		}
		at = row.End
	}
	return hasInk(text[at:])
}

// asciiSpace holds the white space of ASCII: the usual six and the four
// separators 1C to 1F, which Python's str.isspace counts too.
var asciiSpace = [utf8.RuneSelf]bool{
	'\t': true, '\n': true, '\v': true, '\f': true, '\r': true, ' ': true,
	0x1c: true, 0x1d: true, 0x1e: true, 0x1f: true,
}

// isSpace reports whether r is white space; asciiSpace is the part of it in ASCII.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// countInk counts the characters of b that are no white space. A byte that is
// no UTF-8 counts as one.
func countInk(b []byte) int {
	n := 0
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf {
			if !asciiSpace[c] {
				n++
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if !unicode.IsSpace(r) {
			n++
		}
		i += size
	}
	return n
}

// hasInk reports whether countInk(b) > 0.
func hasInk(b []byte) bool { return anyInk(b, true) }

// anyInk reports whether b has a character that is no white space; U+FFFD and bytes
// that are no UTF-8 count where unreadable says so.
func anyInk(b []byte, unreadable bool) bool {
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf {
			if !asciiSpace[c] {
				return true
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if !unicode.IsSpace(r) && (unreadable || r != utf8.RuneError) {
			return true
		}
		i += size
	}
	return false
}

// LineLabels gives each of rows, which are Rows(d.Text), its label: that of
// most of its characters that are no white space, and of several equally
// common the one that comes first in the line. A character belongs to the
// innermost span around it, of spans over the very same text to the outermost.
// "" is the label of what is outside every span; it takes part in the count.
func (d *Document) LineLabels(rows []Line) []string {
	type tally struct {
		label string
		n     int
	}
	type place struct{ row, tally int }
	var tallies []tally          // of a row
	places := map[string]place{} // of a label, in the last row that has it
	labels := make([]string, len(rows))
	segments := d.flatten()
	k := 0
	for i, row := range rows {
		for segments[k].end <= row.Start {
			k++
		}
		if segments[k].end >= row.End {
			labels[i] = segments[k].label
			continue
		}
		tallies = tallies[:0]
		for j, at := k, row.Start; at < row.End; j++ {
			end := min(segments[j].end, row.End)
			n := countInk(d.Text[at:end])
			at = end
			if n == 0 {
				continue
			}
			p, ok := places[segments[j].label]
			if !ok || p.row != i {
				p = place{i, len(tallies)}
				places[segments[j].label] = p
				tallies = append(tallies, tally{label: segments[j].label})
			}
			tallies[p.tally].n += n
		}
		most := 0
		for _, t := range tallies {
			if t.n > most {
				labels[i], most = t.label, t.n
			}
		}
	}
	return labels
}

// segment is a part of a text, from the end of the previous one, all of whose
// characters have one label.
type segment struct {
	end   int
	label string
}

// flatten turns the nested spans into segments that together cover the text.
func (d *Document) flatten() []segment {
	var (
		out  []segment
		open []Span
		at   int
	)
	cover := func(to int) { // up to to, with the innermost open span's label
		if to <= at {
			return
		}
		at = to
		label := ""
		if len(open) > 0 {
			label = open[len(open)-1].Label
		}
		if n := len(out); n > 0 && out[n-1].label == label {
			out[n-1].end = to
			return
		}
		out = append(out, segment{to, label})
	}
	for _, s := range d.Spans {
		for len(open) > 0 && open[len(open)-1].End <= s.Start {
			cover(open[len(open)-1].End)
			open = open[:len(open)-1]
		}
		cover(s.Start)
		if n := len(open); n > 0 && open[n-1].Start == s.Start && open[n-1].End == s.End {
			continue // the outer of the two holds
		}
		open = append(open, s)
	}
	for len(open) > 0 {
		cover(open[len(open)-1].End)
		open = open[:len(open)-1]
	}
	cover(len(d.Text))
	return out
}

// SpansOf makes spans of rows, which are lines of text in order, and their labels:
// neighbouring rows with one label are one span, from the first one's first
// byte to the last one's end. A blank line ends a span and stays outside, and
// so does a form feed, wherever in a row it stands. The CR of a CR LF that
// follows a span stays outside too, so that the pair is not torn apart. ""
// makes no span.
func SpansOf(text []byte, rows []Line, labels []string) []Span {
	if len(rows) != len(labels) {
		panic("yedda: rows and labels differ in number")
	}
	spans := make([]Span, 0, len(rows)/4)
	grow := false // the last span may go on with the next row
	feed := -1    // the form feed at or behind the row's start, or the text's end
	for i, row := range rows {
		label := labels[i]
		if i > 0 && row.Start != rows[i-1].End+1 {
			grow = false
		}
		if label == "" {
			grow = false
			continue
		}
		end := row.End
		if end > row.Start && text[end-1] == '\r' {
			end--
		}
		for start := row.Start; ; {
			if feed < start {
				feed = index(text, '\f', start)
			}
			cut := min(feed, end)
			ink := hasInk(text[start:cut])
			if ink {
				if n := len(spans); grow && spans[n-1].Label == label {
					spans[n-1].End = cut
				} else {
					spans = append(spans, Span{start, cut, label})
				}
			}
			grow = ink
			if cut == end {
				break
			}
			grow = false
			start = cut + 1
		}
	}
	return spans
}
