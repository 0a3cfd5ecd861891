package yedda

import "bytes"

// Literal labels the empty span that Format puts into a token of the text
// itself, behind its first byte: the text "[@" is written "[[@#Literal*]@".
// Every reader of YEDDA finds the text again when it takes the markup out, and
// Parse leaves these spans out, so they never come back as annotation.
const Literal = "Literal"

const literalSpan = "[@#" + Literal + "*]"

// Format writes text with its spans marked. spans stand in the order of their
// starts, outer before inner, and do not cross, as Parse and SpansOf give
// them; Format panics where they do not. Labels are for the caller to check.
//
// Parse of the result gives back text and spans, whatever bytes text holds.
// Only two things do not come back, and Parse gives neither: how empty spans
// were nested among spans with the same border ("[@a[@#X*]#Y*]" is written
// "[@a#Y*][@#X*]", which has the same spans in the same order), and empty
// spans labelled Literal.
func Format(text []byte, spans []Span) []byte {
	size := len(text)
	for i := range spans {
		size += len(openToken) + len("#") + len(spans[i].Label) + len(closeTail)
	}
	var (
		out  = make([]byte, 0, size)
		open []Span
		at   int // how much of text is in out
		s    = newScanner(text)
		t    = s.nextMarkup()
	)
	// copyTo writes text up to a border of a span, or to its end. A token of
	// text that a border cuts in two is none any more.
	copyTo := func(pos int) {
		for ; t.kind != none && t.start < pos; t = s.nextMarkup() {
			if t.end <= pos {
				out = append(out, text[at:t.start+1]...)
				out = append(out, literalSpan...)
				at = t.start + 1
			}
		}
		out = append(out, text[at:pos]...)
		at = pos
	}
	closeTo := func(pos int) { // every span that ends at pos or before
		for len(open) > 0 && open[len(open)-1].End <= pos {
			span := open[len(open)-1]
			open = open[:len(open)-1]
			copyTo(span.End)
			out = append(out, '#')
			out = append(out, span.Label...)
			out = append(out, closeTail...)
		}
	}
	for _, span := range spans {
		if span.Start < 0 || span.End < span.Start || span.End > len(text) {
			panic("yedda: span outside the text")
		}
		closeTo(span.Start)
		if span.Start < at {
			panic("yedda: spans out of order")
		}
		if len(open) > 0 && span.End > open[len(open)-1].End {
			panic("yedda: spans cross")
		}
		copyTo(span.Start)
		out = append(out, openToken...)
		open = append(open, span)
	}
	closeTo(len(text))
	copyTo(len(text))
	return out
}

// Recovers reports whether taking the markup out of out gives text, without
// making a copy: bytes.Equal(Parse(out).Text, text). It does for what Format wrote,
// unless a label is none of YEDDA.
func Recovers(out, text []byte) bool {
	s := newScanner(out)
	for last := 0; ; {
		t := s.nextMarkup()
		end := t.start
		if t.kind == none {
			end = len(out)
		}
		if !bytes.HasPrefix(text, out[last:end]) {
			return false
		}
		text = text[end-last:]
		if t.kind == none {
			return len(text) == 0
		}
		last = t.end
	}
}
