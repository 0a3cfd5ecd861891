package yedda

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, text  string
		lines, rows []string
	}{
		{name: "empty"},
		{name: "one newline", text: "\n", lines: []string{""}},
		{name: "last newline missing", text: "a\nb", lines: []string{"a", "b"}, rows: []string{"a", "b"}},
		{name: "last newline there", text: "a\nb\n", lines: []string{"a", "b"}, rows: []string{"a", "b"}},
		{name: "blank lines", text: "\n\na\n \t\n\n", lines: []string{"", "", "a", " \t", ""}, rows: []string{"a"}},
		{name: "CR stays", text: "a\r\n\r\nb\rc\r", lines: []string{"a\r", "\r", "b\rc\r"}, rows: []string{"a\r", "b\rc\r"}},
		{name: "form feeds", text: "\f\n\fa\na\fb\n", lines: []string{"\f", "\fa", "a\fb"}, rows: []string{"\fa", "a\fb"}},
		{name: "U+FFFD", text: "\ufffd \ufffd\nx\ufffd\n", lines: []string{"\ufffd \ufffd", "x\ufffd"}, rows: []string{"x\ufffd"}},
		{name: "other line separators", text: "a\vb\u2028c\u0085d\n", lines: []string{"a\vb\u2028c\u0085d"}, rows: []string{"a\vb\u2028c\u0085d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strs(c.text, Lines([]byte(c.text))); !slices.Equal(got, c.lines) {
				t.Errorf("Lines: got %q, want %q", got, c.lines)
			}
			if got := strs(c.text, Rows([]byte(c.text))); !slices.Equal(got, c.rows) {
				t.Errorf("Rows: got %q, want %q", got, c.rows)
			}
		})
	}
}

func strs(text string, lines []Line) []string {
	var out []string
	for _, l := range lines {
		out = append(out, text[l.Start:l.End])
	}
	return out
}

func TestInked(t *testing.T) {
	for text, want := range map[string][]string{
		"\ufffd \ufffd\nx\ufffd\n \n\xff\xfe\r\n\f\ufffd": {"\ufffd \ufffd", "x\ufffd", "\xff\xfe\r", "\f\ufffd"},
		"a\n\n\fé\n":   {"a", "\fé"},
		"a\n\ufffd":    {"a", "\ufffd"},
		"\ufffd\na":    {"\ufffd", "a"},
		"a\n\xff\nb\n": {"a", "\xff", "b"},
		"\xff":         {"\xff"},
		"":             nil,
	} {
		if got := strs(text, Inked([]byte(text), Rows([]byte(text)))); !slices.Equal(got, want) {
			t.Errorf("Inked(%q): got %q, want %q", text, got, want)
		}
	}
}

func TestBlank(t *testing.T) {
	for _, c := range []struct {
		line string
		want bool
	}{
		{"", true}, {" \t\v\f\r\n", true}, {"\x1c\x1d\x1e\x1f", true}, {"\u00a0\u2003\u3000\u2028\u0085", true},
		{"\ufffd", true}, {" \ufffd\ufffd ", true}, {"\xff", true}, {"\xe2\x82", true}, {"\xed\xa0\x80", true}, {"\xc0\x80\ufffd \xfe", true},
		{"a", false}, {"  .", false}, {"\ufffd.", false}, {"\xffa", false}, {"é", false}, {"\u200b", false}, {"\ufeff", false}, {"\x00", false},
		{"\u00a0é", false}, {"𝔄", false},
	} {
		if got := Blank([]byte(c.line)); got != c.want {
			t.Errorf("Blank(%q) = %v, want %v", c.line, got, c.want)
		}
	}
}

func TestLineLabels(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"no rows", "\n\f\n", nil},
		{"outside", "a\nb\n", []string{"", ""}},
		{"span over lines", "a\n[@b\n\nc#X*]\nd", []string{"", "X", "X", ""}},
		{"majority", "[@aaa#X*]bb\n[@aa#X*]bbb", []string{"X", ""}},
		{"white space has no vote", "[@a         #X*]bb", []string{""}},
		{"characters count, not bytes", "[@éé#X*][@aaa#Y*]", []string{"Y"}},
		{"a tie goes to the first", "[@aa#X*][@bb#Y*]\n[@bb#Y*][@aa#X*]\naa[@bb#X*]", []string{"X", "Y", ""}},
		{"first in the line, not first seen", "[@a#X*][@bb#Y*][@c#X*]", []string{"X"}},
		{"spans of one label add up", "[@aa#X*][@bbb#Y*][@aa#X*]", []string{"X"}},
		{"inner wins", "[@aaa[@bbbb#X*]#Y*]\n[@aaaa[@bbb#X*]c#Y*]", []string{"X", "Y"}},
		{"inner covers the whole line", "[@a\n[@b#X*]\nc#Y*]", []string{"Y", "X", "Y"}},
		{"over the same text the outer wins", "[@[@ab#X*]#Y*]", []string{"Y"}},
		{"three over the same text", "[@[@[@ab#X*]#Y*]#Z*]", []string{"Z"}},
		{"same text but for a space", "[@[@ab#X*] #Y*]", []string{"X"}},
		{"inside two over the same text", "[@[@a[@bb#W*]#X*]#Y*]", []string{"W"}},
		{"empty spans have no say", "[@#X*]a[@#X*]", []string{""}},
		{"unclosed is outside", "[@a\n[@b#X*]", []string{"", "X"}},
		{"U+FFFD has a vote", "[@\ufffd\ufffd#X*]a", []string{"X"}},
		{"not UTF-8 has a vote a byte", "[@\xff\xff#X*]a", []string{"X"}},
		{"CR has none", "[@a#X*][@b\r\n#Y*]", []string{"X"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Parse([]byte(c.src))
			if got := d.LineLabels(Rows(d.Text)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestSpansOf(t *testing.T) {
	for _, c := range []struct {
		name, text string
		labels     string // one letter a row, '.' for ""
		want       string // as Format writes it
	}{
		{"nothing", "", "", ""},
		{"one line", "a\n", "X", "[@a#X*]\n"},
		{"neighbours", "a\nb\nc", "XXY", "[@a\nb#X*]\n[@c#Y*]"},
		{"none", "a\nb\nc\n", "X.X", "[@a#X*]\nb\n[@c#X*]\n"},
		{"blank line", "a\n\nb\n", "XX", "[@a#X*]\n\n[@b#X*]\n"},
		{"line of spaces", "a\n  \nb\n", "XX", "[@a#X*]\n  \n[@b#X*]\n"},
		{"line of U+FFFD", "a\n\ufffd\nb\n", "XX", "[@a#X*]\n\ufffd\n[@b#X*]\n"},
		{"blanks stay in their line", "  a \n b\t\n", "XX", "[@  a \n b\t#X*]\n"},
		{"form feed line", "a\n\f\nb\n", "XX", "[@a#X*]\n\f\n[@b#X*]\n"},
		{"form feed before a line", "a\n\fb\nc\n", "XXX", "[@a#X*]\n\f[@b\nc#X*]\n"},
		{"form feed behind a line", "a\f\nb\n", "XX", "[@a#X*]\f\n[@b#X*]\n"},
		{"form feed in a line", "a\fb\nc", "XX", "[@a#X*]\f[@b\nc#X*]"},
		{"form feeds and spaces", " \f \f a\n", "X", " \f \f[@ a#X*]\n"},
		{"CR LF", "a\r\nb\r\n\r\nc\r\n", "XXX", "[@a\r\nb#X*]\r\n\r\n[@c#X*]\r\n"},
		{"CR LF, two labels", "a\r\nb\r\n", "XY", "[@a#X*]\r\n[@b#Y*]\r\n"},
		{"CR at the end of the text", "a\r", "X", "[@a#X*]\r"},
		{"only CRs behind", "a\r\r\nb", "XX", "[@a\r\r\nb#X*]"},
		{"not UTF-8", "\xffa\n", "X", "[@\xffa#X*]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := []byte(c.text)
			var labels []string
			for _, l := range c.labels {
				labels = append(labels, strings.Trim(string(l), "."))
			}
			spans := SpansOf(text, Rows(text), labels)
			out := Format(text, spans)
			if string(out) != c.want {
				t.Fatalf("got %q, want %q", out, c.want)
			}
			d := Parse(out)
			if got := d.LineLabels(Rows(d.Text)); !slices.Equal(got, labels) {
				t.Errorf("labels %q become %q", labels, got)
			}
		})
	}
	t.Run("blank lines with a label", func(t *testing.T) {
		text := []byte("a\n\nb\n \r\n\ufffd\nc\n\f\nd")
		labels := slices.Repeat([]string{"X"}, len(Lines(text)))
		const want = "[@a#X*]\n\n[@b#X*]\n \r\n[@\ufffd\nc#X*]\n\f\n[@d#X*]"
		if got := Format(text, SpansOf(text, Lines(text), labels)); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("too few labels", func(t *testing.T) {
		defer func() {
			if got := recover(); got != "yedda: rows and labels differ in number" {
				t.Errorf("got panic %v", got)
			}
		}()
		SpansOf([]byte("a"), []Line{{0, 1}}, nil)
	})
}

func BenchmarkLines(b *testing.B) {
	d := Parse(sample())
	rows := Rows(d.Text)
	labels := d.LineLabels(rows)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"Rows", func() { Rows(d.Text) }},
		{"LineLabels", func() { d.LineLabels(rows) }},
		{"SpansOf", func() { SpansOf(d.Text, rows, labels) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(d.Text)))
			b.ReportAllocs()
			for b.Loop() {
				c.f()
			}
		})
	}
}

func ExampleParse() {
	d := Parse([]byte("[@Agaricus fictus Scriptor, sp. nov.#Nomenclature*]\nPileus 3 cm.\n"))
	rows := Rows(d.Text)
	for i, label := range d.LineLabels(rows) {
		fmt.Printf("%q %q\n", d.Text[rows[i].Start:rows[i].End], label)
	}
	// Output:
	// "Agaricus fictus Scriptor, sp. nov." "Nomenclature"
	// "Pileus 3 cm." ""
}
