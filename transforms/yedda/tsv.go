package yedda

import "strconv"

// WriteTSV writes a header and a line for each span: its number, counted from
// 1, its text, its label, and where it starts and ends, in characters. In text
// and label, tab, LF, CR and backslash are written \t, \n, \r and \\; bytes that
// are not UTF-8 stay as they are.
func WriteTSV(text []byte, spans []Span) []byte {
	out := make([]byte, 0, len(text)+48*(len(spans)+1))
	out = append(out, "number\ttext\tlabel\tstart\tend\n"...)
	chars := newCharacters(text)
	for i, s := range spans {
		out = strconv.AppendInt(out, int64(i+1), 10)
		out = append(out, '\t')
		out = appendField(out, text[s.Start:s.End])
		out = append(out, '\t')
		out = appendField(out, s.Label)
		out = append(out, '\t')
		out = strconv.AppendInt(out, int64(chars.of(s.Start)), 10)
		out = append(out, '\t')
		out = strconv.AppendInt(out, int64(chars.of(s.End)), 10)
		out = append(out, '\n')
	}
	return out
}

// appendField appends a field of TSV.
func appendField[T string | []byte](out []byte, field T) []byte {
	for i := range len(field) {
		switch c := field[i]; c {
		case '\t':
			out = append(out, `\t`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\\':
			out = append(out, `\\`...)
		default:
			out = append(out, c)
		}
	}
	return out
}
