// Package yedda reads and writes YEDDA annotation, bytes to Document and back,
// and writes labelled documents in other formats beside it.
//
// In YEDDA a span of text is written [@text#Label*]; spans may lie inside one
// another and go over many lines. The package promises:
//
//   - Parse never fails and never panics. It takes out every opener "[@" and
//     every closer "#Label*]", paired or not; all other bytes, whatever they
//     are, stay as they are and in order. Label is a letter and up to 49
//     letters, digits, '-' and '_', all of ASCII. Nothing else is markup:
//     "@Page-header*]" stays text.
//   - A closer ends the span opened last of those still open. A closer with no span
//     open and an opener that is never closed make no span; each is a Warning.
//   - Format is the other way round, for any bytes: the Text of
//     Parse(Format(text, spans)) is text. Its tokens are read again as they were
//     written, wherever they stand, for '[' and '#' only ever begin a token; a
//     token that text itself holds is taken apart by an empty span inside (Literal).
//   - Everything runs in time linear in its input, sorting aside.
//
// All offsets are in bytes, but for those in brat, JSONL and TSV, which are in
// characters (a byte that decodes to nothing is one character).
package yedda

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// Span is a labelled stretch of a Document's text.
type Span struct {
	Start, End int // bytes of the text, End exclusive; equal where the span is empty
	Label      string
}

// Warning is markup that Parse could not pair, a closer without its "#"
// ("@Page-header*]"), which stays text, or a span that ParseBrat found crossing.
type Warning struct {
	Offset int // of the token, in bytes of the source
	Line   int // of the token in the source; the first is 1
	What   string
}

// MaxWarnings is the number of warnings that a Document keeps; those beyond it
// are only counted, so that a damaged file cannot fill the memory.
const MaxWarnings = 100

// Document is a text and the spans that were marked in it.
type Document struct {
	// Text is the source without its markup. It shares the source's memory
	// where there is no markup.
	Text []byte
	// Spans stand in the order of their openers, so an outer span comes
	// before those inside it. They nest or lie apart; they never cross.
	Spans []Span
	// Warnings are the first MaxWarnings of NumWarnings, by offset.
	Warnings    []Warning
	NumWarnings int
}

// Parse reads annotated text.
func Parse(src []byte) *Document {
	var (
		d      Document
		text   []byte
		last   int   // end in src of what is in text already
		open   []int // indices in d.Spans of the spans not closed yet
		drop   bool  // d.Spans holds closed spans that are none
		labels interner
	)
	warn := func(offset int, what string) {
		if d.NumWarnings++; len(d.Warnings) < MaxWarnings {
			d.Warnings = append(d.Warnings, Warning{Offset: offset, What: what})
		}
	}
	s := newScanner(src)
	for {
		t := s.next()
		if t.kind == none {
			break
		}
		if t.kind == misclosed {
			warn(t.start, string(src[t.start:t.end])+" has no #, so it closes nothing and stays text")
			continue
		}
		if text == nil {
			text = make([]byte, 0, len(src)-(t.end-t.start))
		}
		text = append(text, src[last:t.start]...)
		last = t.end
		switch {
		case t.kind == opener:
			open = append(open, len(d.Spans))
			// Until the span is closed, End holds where it was opened, as a
			// negative number.
			d.Spans = append(d.Spans, Span{Start: len(text), End: ^t.start})
		case len(open) == 0:
			warn(t.start, string(src[t.start:t.end])+" closes nothing and is taken out")
		default:
			span := &d.Spans[open[len(open)-1]]
			open = open[:len(open)-1]
			label := labels.intern(src[t.start+1 : t.end-2])
			if span.Start == len(text) && label == Literal {
				drop = true
				continue
			}
			span.End, span.Label = len(text), label
		}
	}
	if text == nil {
		d.Text = src[:len(src):len(src)]
	} else {
		d.Text = append(text, src[last:]...)
	}
	d.NumWarnings += len(open)
	for _, i := range open[:min(len(open), MaxWarnings)] {
		at := ^d.Spans[i].End
		d.Warnings = append(d.Warnings, Warning{Offset: at, What: "[@ is never closed and is taken out" + misnamed(src[at+len(openToken):])})
	}
	if drop || len(open) > 0 {
		d.Spans = slices.DeleteFunc(d.Spans, func(s Span) bool { return s.End < 0 })
	}
	d.finishWarnings(src)
	return &d
}

// misnamed tells of what stands where the label should that closes the span which
// begins with src, as in "text#Type material*]", or is "".
func misnamed(src []byte) string {
	inside, _, _ := bytes.Cut(src, openToken)
	inside, _, closed := bytes.Cut(inside, closeTail)
	label := inside[bytes.LastIndexByte(inside, '#')+1:]
	if !closed || len(label) == len(inside) || len(label) > 2*maxLabel || bytes.Contains(label, newline) {
		return ""
	}
	return fmt.Sprintf(": %q is no label", label)
}

// finishWarnings puts the warnings in order and finds their lines.
func (d *Document) finishWarnings(src []byte) {
	slices.SortFunc(d.Warnings, func(a, b Warning) int { return cmp.Compare(a.Offset, b.Offset) })
	d.Warnings = d.Warnings[:min(len(d.Warnings), MaxWarnings)]
	line, at := 1, 0
	for i := range d.Warnings {
		w := &d.Warnings[i]
		line += bytes.Count(src[at:w.Offset], newline)
		at = w.Offset
		w.Line = line
	}
}

var (
	newline   = []byte("\n")
	openToken = []byte("[@")
	closeTail = []byte("*]")
)

const maxLabel = 50 // bytes

// LabelRule says what a label is.
const LabelRule = "a letter from A to Z and up to 49 of these, digits, _ or -"

type tokenKind int

const (
	none      tokenKind = iota // the end of the source
	opener                     // [@
	closer                     // #Label*]
	misclosed                  // @Label*], which is text
)

type token struct {
	kind       tokenKind
	start, end int // bytes of the source
}

// scanner finds the tokens of src in order. It looks for "[@" and for "*]",
// each in one sweep of its own, and from "*]" back to the '#'.
type scanner struct {
	src        []byte
	pos        int // end of the last token
	open, tail int // the next "[@" and "*]"; len(src) where there is none
}

func newScanner(src []byte) scanner {
	return scanner{src: src, open: index2(src, openToken, 0), tail: index2(src, closeTail, 0)}
}

// index is the offset of the first c in src from from on, or len(src).
func index(src []byte, c byte, from int) int {
	if i := bytes.IndexByte(src[from:], c); i >= 0 {
		return from + i
	}
	return len(src)
}

// index2 is index of the two bytes of pair, the first of which is rare. A
// search for that one is faster than bytes.Index.
func index2(src, pair []byte, from int) int {
	for {
		i := index(src, pair[0], from)
		if i+1 >= len(src) {
			return len(src)
		}
		if src[i+1] == pair[1] {
			return i
		}
		from = i + 1
	}
}

func (s *scanner) next() token {
	for {
		if s.open < s.tail {
			t := token{opener, s.open, s.open + len(openToken)}
			s.pos = t.end
			s.open = index2(s.src, openToken, t.end)
			return t
		}
		if s.tail == len(s.src) {
			return token{kind: none}
		}
		tail := s.tail
		s.tail = index2(s.src, closeTail, tail+len(closeTail))
		i := tail // becomes the label's first byte
		for i > s.pos && tail-i < maxLabel && labelBytes[s.src[i-1]] {
			i--
		}
		if i == s.pos || i == tail || !isLetter(s.src[i]) {
			continue
		}
		kind := closer
		switch s.src[i-1] {
		case '#':
		case '@':
			kind = misclosed
		default:
			continue
		}
		s.pos = tail + len(closeTail)
		return token{kind, i - 1, s.pos}
	}
}

// nextMarkup is next without the misclosed tokens.
func (s *scanner) nextMarkup() token {
	t := s.next()
	for t.kind == misclosed {
		t = s.next()
	}
	return t
}

func isLetter(c byte) bool { c |= 0x20; return 'a' <= c && c <= 'z' }

var labelBytes = func() (is [256]bool) {
	for c := range 256 {
		is[c] = isLetter(byte(c)) || '0' <= c && c <= '9' || c == '-' || c == '_'
	}
	return is
}()

// interner keeps one string for each label, for a document has few labels and
// many spans.
type interner struct {
	last string
	all  map[string]string
}

func (in *interner) intern(b []byte) string {
	if in.last == string(b) {
		return in.last
	}
	s, ok := in.all[string(b)]
	if !ok {
		if in.all == nil {
			in.all = make(map[string]string)
		}
		s = string(b)
		in.all[s] = s
	}
	in.last = s
	return s
}
