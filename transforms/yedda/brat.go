package yedda

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"sort"
	"strconv"
	"unicode/utf8"
)

// WriteBrat writes spans in brat's standoff format, the contents of X.ann; the
// contents of X.txt are text as it is. Offsets are in characters. (Where text
// is not UTF-8, the reference text here is not either; brat wants UTF-8.)
//
// An annotation of brat stays on one line, so a span over several lines
// becomes one of several fragments, "T1\tLabel 0 5;6 9\tfirst second", without
// the white space around each. A span of white space only is left out.
func WriteBrat(text []byte, spans []Span) []byte {
	var (
		out       = make([]byte, 0, len(text)+32*len(spans))
		chars     = newCharacters(text)
		fragments []Line
		id        int64
	)
	for _, s := range spans {
		fragments = appendFragments(fragments[:0], text, characterStart(text, s.Start), characterStart(text, s.End))
		if len(fragments) == 0 {
			continue
		}
		id++
		out = append(out, 'T')
		out = strconv.AppendInt(out, id, 10)
		out = append(out, '\t')
		out = append(out, s.Label...)
		sep := byte(' ')
		for _, f := range fragments {
			start := chars.of(f.Start)
			out = append(out, sep)
			out = strconv.AppendInt(out, int64(start), 10)
			out = append(out, ' ')
			out = strconv.AppendInt(out, int64(start+countCharacters(text[f.Start:f.End])), 10)
			sep = ';'
		}
		sep = '\t'
		for _, f := range fragments {
			out = append(out, sep)
			out = append(out, text[f.Start:f.End]...)
			sep = ' '
		}
		out = append(out, '\n')
	}
	return out
}

// appendFragments appends the parts of text[start:end] that stand on one line
// each, without the white space around them. brat breaks lines where Python's
// str.splitlines does: at every kind of separator that Unicode knows.
func appendFragments(out []Line, text []byte, start, end int) []Line {
	first := -1 // the fragment's first byte, -1 before there is one
	last := start
	for i := start; i < end; {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:end])
		}
		switch {
		case isLineBreak(r):
			if first >= 0 {
				out = append(out, Line{first, last})
				first = -1
			}
		case isSpace(r):
		default:
			if first < 0 {
				first = i
			}
			last = i + size
		}
		i += size
	}
	if first >= 0 {
		out = append(out, Line{first, last})
	}
	return out
}

func isLineBreak(r rune) bool {
	return '\n' <= r && r <= '\r' || 0x1c <= r && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// ParseBrat reads the text-bound annotations ("T1…") of brat's standoff format,
// ann, over text; others say nothing of text and are passed over. ann is the
// contents of X.ann, text those of X.txt, and the Document's Text is text.
//
// An annotation becomes a span from its first fragment to its last, as WriteBrat
// makes them, but for fragments with more than white space between: those
// become spans of their own. Spans of brat may cross; where two do, the one that
// begins later loses its part inside the other, and that is a Warning with its
// line in ann. A line that cannot be read, or whose text is not what stands at
// its offsets, is an error: offsets are in characters of this very text.
func ParseBrat(text, ann []byte) (*Document, error) {
	var (
		d      = &Document{Text: text[:len(text):len(text)]}
		chars  = newCharacters(text)
		lines  []int // of the spans, in ann
		labels interner
		number = 0
	)
	ann = bytes.TrimPrefix(ann, []byte("\ufeff"))
	for line := range bytes.Lines(ann) {
		number++
		line = bytes.TrimRight(line, "\r\n")
		id, rest, _ := bytes.Cut(line, []byte("\t"))
		if len(id) == 0 || id[0] != 'T' {
			continue
		}
		data, quote, ok := bytes.Cut(rest, []byte("\t"))
		words := bytes.Split(data, []byte(" "))
		if !ok || !isBratID(id) || len(words[0]) == 0 || !isOffsets(words[1:]) {
			return nil, fmt.Errorf("brat: line %d is no annotation such as: T1, tab, Label 0 5, tab, text", number)
		}
		var (
			label = labels.intern(words[0])
			first = len(d.Spans)
			same  = true // the text so far
		)
		for f := range bytes.SplitSeq(bytes.Join(words[1:], []byte(" ")), []byte(";")) {
			a, b, _ := bytes.Cut(f, []byte(" "))
			start, err1 := strconv.Atoi(string(a))
			end, err2 := strconv.Atoi(string(b))
			if err1 != nil || err2 != nil || end < start || end > chars.total() {
				return nil, fmt.Errorf("brat: line %d: %s lies outside the text, which has %d characters; is it the text of this annotation?", number, f, chars.total())
			}
			s := Span{chars.offset(start), chars.offset(end), label}
			if quote, same = cutInk(quote, text[s.Start:s.End]); !same {
				break
			}
			if n := len(d.Spans); n > first && s.Start >= d.Spans[n-1].End && !hasInk(text[d.Spans[n-1].End:s.Start]) {
				d.Spans[n-1].End = s.End
				continue
			}
			d.Spans = append(d.Spans, s)
			lines = append(lines, number)
		}
		if !same || hasInk(quote) {
			return nil, fmt.Errorf("brat: line %d: its text is not what stands at its offsets, which count characters; is it the text of this annotation?", number)
		}
	}
	d.nest(lines)
	return d, nil
}

// nest puts spans that came in any order, of lines of their source, in order,
// and cuts those that cross.
func (d *Document) nest(lines []int) {
	waiting := make(outermost, len(d.Spans))
	for i, s := range d.Spans {
		waiting[i] = marked{s, lines[i], i}
	}
	heap.Init(&waiting)
	var open []Span
	d.Spans = d.Spans[:0]
	for turn := len(waiting); len(waiting) > 0; turn++ {
		s := waiting[0]
		for len(open) > 0 && open[len(open)-1].End <= s.Start {
			open = open[:len(open)-1]
		}
		// Who is further in ends no later, so those that end before s are the last.
		crossed := sort.Search(len(open), func(i int) bool { return open[i].End < s.End })
		if crossed < len(open) {
			if d.NumWarnings++; len(d.Warnings) < MaxWarnings {
				d.Warnings = append(d.Warnings, Warning{Line: s.line, What: s.Label + " crosses another span and loses the part inside it"})
			}
			waiting[0].Start, waiting[0].turn = open[crossed].End, turn // which may come later now
			heap.Fix(&waiting, 0)
			continue
		}
		heap.Pop(&waiting)
		d.Spans = append(d.Spans, s.Span)
		open = append(open, s.Span)
	}
}

// marked is a span, the line of the source that it stands in, and its turn among
// spans of the same bytes.
type marked struct {
	Span
	line, turn int
}

// outermost is a heap of spans: the one that begins first, of these the longest.
type outermost []marked

func (h outermost) Len() int      { return len(h) }
func (h outermost) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h outermost) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End), cmp.Compare(a.turn, b.turn)) < 0
}
func (h *outermost) Push(s any) { *h = append(*h, s.(marked)) }
func (h *outermost) Pop() any {
	s := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return s
}

// cutInk takes the characters of prefix, but for white space and separators, off the
// front of b, and reports whether they stand there.
func cutInk(b, prefix []byte) (rest []byte, ok bool) {
	for {
		if prefix = bytes.TrimLeftFunc(prefix, isSpace); len(prefix) == 0 {
			return b, true
		}
		b = bytes.TrimLeftFunc(b, isSpace)
		_, n := utf8.DecodeRune(prefix)
		if len(b) < n || !bytes.Equal(b[:n], prefix[:n]) {
			return nil, false
		}
		b, prefix = b[n:], prefix[n:]
	}
}

// IsBrat reports whether src is brat's standoff format, and so no text at all: it
// goes by the first line that is not blank, which must be a whole annotation.
func IsBrat(src []byte) bool {
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	src = bytes.TrimLeft(src, " \t\r\n")
	if len(src) == 0 || bytes.IndexByte([]byte("TREAMN#*"), src[0]) < 0 {
		return false
	}
	line, _, _ := bytes.Cut(src, newline)
	id, rest, ok := bytes.Cut(line, []byte("\t"))
	if !ok || !isBratID(id) && string(id) != "*" {
		return false
	}
	data, _, hasText := bytes.Cut(rest, []byte("\t"))
	words := bytes.Split(bytes.TrimRight(data, "\r"), []byte(" "))
	if id[0] == 'T' {
		return hasText && len(words[0]) > 0 && isOffsets(words[1:])
	}
	// Everything else speaks of another annotation: "Type T1", "Type:T1",
	// "Type Arg1:T1 Arg2:T2".
	for i, w := range words {
		target := w[bytes.IndexByte(w, ':')+1:]
		if (i > 0 || len(target) < len(w)) && isBratID(target) {
			return len(words[0]) > 0
		}
	}
	return false
}

// isBratID reports whether b is a letter or # and digits.
func isBratID(b []byte) bool {
	return len(b) > 1 && bytes.IndexByte([]byte("TREAMN#"), b[0]) >= 0 && isNumber(b[1:])
}

// isOffsets reports whether words are those of "0 5" or "0 5;8 9".
func isOffsets(words [][]byte) bool {
	if len(words) < 2 {
		return false
	}
	for i, w := range words {
		if i == 0 || i == len(words)-1 {
			if !isNumber(w) {
				return false
			}
			continue
		}
		end, start, ok := bytes.Cut(w, []byte(";"))
		if !ok || !isNumber(end) || !isNumber(start) {
			return false
		}
	}
	return true
}

func isNumber(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}
