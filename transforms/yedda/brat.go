package yedda

import (
	"bytes"
	"strconv"
	"unicode"
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
		case unicode.IsSpace(r) || r == 0x1f:
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

// IsBrat says whether src is brat's standoff format, and so no text at all: it
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

// isBratID says whether b is a letter or # and digits.
func isBratID(b []byte) bool {
	return len(b) > 1 && bytes.IndexByte([]byte("TREAMN#"), b[0]) >= 0 && isNumber(b[1:])
}

// isOffsets says whether words are those of "0 5" or "0 5;8 9".
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
