package yedda

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	fifty := strings.Repeat("L", 50)
	for _, c := range []struct {
		name, src, text string
		spans           []Span
		warnings        []Warning // What: a part of it
	}{
		{name: "empty"},
		{name: "no markup", src: "a [b] #c* @d\n", text: "a [b] #c* @d\n"},
		{name: "one span", src: "x [@abc#Key*] y", text: "x abc y", spans: []Span{{2, 5, "Key"}}},
		{name: "span over lines", src: "[@a\nb\n#Key*]\n", text: "a\nb\n\n", spans: []Span{{0, 4, "Key"}}},
		{name: "nested", src: "[@a[@b[@c#X*]#Y*]d#Z*]", text: "abcd",
			spans: []Span{{0, 4, "Z"}, {1, 3, "Y"}, {2, 3, "X"}}},
		{name: "nested over the same text", src: "[@[@ab#X*]#Y*]", text: "ab", spans: []Span{{0, 2, "Y"}, {0, 2, "X"}}},
		{name: "siblings", src: "[@a#X*][@b#Y*]", text: "ab", spans: []Span{{0, 1, "X"}, {1, 2, "Y"}}},
		{name: "empty span", src: "a[@#X*]b", text: "ab", spans: []Span{{1, 1, "X"}}},
		{name: "empty source of markup only", src: "[@#X*]", spans: []Span{{0, 0, "X"}}},
		{name: "unclosed", src: "a\n[@b\n[@c#X*]", text: "a\nb\nc", spans: []Span{{4, 5, "X"}},
			warnings: []Warning{{2, 2, "never closed"}}},
		{name: "stray closer", src: "a\nb#X*]c", text: "a\nbc", warnings: []Warning{{3, 2, "#X*] closes nothing"}}},
		{name: "misclosed", src: "[@12 A@Page-header*]\n[@b#Key*]", text: "12 A@Page-header*]\nb",
			spans: []Span{{19, 20, "Key"}}, warnings: []Warning{{0, 1, "never closed"}, {6, 1, "@Page-header*] has no #"}}},
		{name: "warnings in order", src: "[@\n#A*]#B*]\n[@\n#C*]#D*]\n[@", text: "\n\n\n\n",
			spans:    []Span{{0, 1, "A"}, {2, 3, "C"}},
			warnings: []Warning{{7, 2, "#B*]"}, {19, 4, "#D*]"}, {24, 5, "never"}}},
		{name: "opener and label run together", src: "[@Key*]", text: "Key*]", warnings: []Warning{{0, 1, "never"}}},
		{name: "closer behind an opener", src: "[@#Key*]", text: "", spans: []Span{{0, 0, "Key"}}},
		{name: "two marks before a label", src: "[@a#A#B*]", text: "a#A", spans: []Span{{0, 3, "B"}}},
		{name: "double mark", src: "[@a##B*]", text: "a#", spans: []Span{{0, 2, "B"}}},
		{name: "two stars", src: "[@a#B**]", text: "a#B**]", warnings: []Warning{{0, 1, "never"}}},
		{name: "double bracket", src: "[[@a#B*]]", text: "[a]", spans: []Span{{1, 2, "B"}}},
		{name: "double at", src: "[@@a#B*]", text: "@a", spans: []Span{{0, 2, "B"}}},
		{name: "taking out makes new markup", src: "[[@@#[@X*]", text: "[@#X*]",
			warnings: []Warning{{1, 1, "never"}, {5, 1, "never"}}},
		{name: "label of 50", src: "[@a#" + fifty + "*]", text: "a", spans: []Span{{0, 1, fifty}}},
		{name: "label of 51", src: "[@a#" + fifty + "L*]", text: "a#" + fifty + "L*]", warnings: []Warning{{0, 1, "never"}}},
		{name: "label of none", src: "[@a#*]", text: "a#*]", warnings: []Warning{{0, 1, "never"}}},
		{name: "label begins with a digit", src: "[@a#1a*]", text: "a#1a*]", warnings: []Warning{{0, 1, `never closed and is taken out: "1a" is no label`}}},
		{name: "label begins with a dash", src: "[@a#-a*]", text: "a#-a*]", warnings: []Warning{{0, 1, "never"}}},
		{name: "label with all sorts", src: "[@a#aZ09_-*]", text: "a", spans: []Span{{0, 1, "aZ09_-"}}},
		{name: "label with a space", src: "[@a#Page header*]", text: "a#Page header*]", warnings: []Warning{{0, 1, `never closed and is taken out: "Page header" is no label`}}},
		{name: "label that is not ASCII", src: "[@a#Schlüssel*]", text: "a#Schlüssel*]", warnings: []Warning{{0, 1, `never closed and is taken out: "Schlüssel" is no label`}}},
		{name: "labels that are none, of several spans", src: "[@a [@b#B c*]\n[@d#1*] e#2*]", text: "a b#B c*]\nd#1*] e#2*]",
			warnings: []Warning{{0, 1, "taken out"}, {4, 1, `"B c" is no`}, {14, 2, `"1" is no`}}},
		{name: "unclosed before a mark of the text", src: "[@No. #1\nand *]", text: "No. #1\nand *]", warnings: []Warning{{0, 1, "taken out"}}},
		{name: "escaped text", src: "[@a [[@#Literal*]@ #[@#Literal*]Foo*]#X*]", text: "a [@ #Foo*]", spans: []Span{{0, 11, "X"}}},
		{name: "nested empty ones of the escape's label", src: "[@[@#X*]#Literal*][@[@#Literal*]#Literal*]", spans: []Span{{0, 0, "X"}}},
		{name: "not empty, so an escape no more", src: "[@a#Literal*]", text: "a", spans: []Span{{0, 1, "Literal"}}},
		{name: "label at the start of the source", src: "Key*]", text: "Key*]"},
		{name: "CR LF, form feed, no last newline", src: "[@a\r\nb#X*]\r\n\f[@c#Y*]", text: "a\r\nb\r\n\fc",
			spans: []Span{{0, 4, "X"}, {7, 8, "Y"}}},
		{name: "not UTF-8", src: "\xff[@\xc3#X*]\xa9\x00", text: "\xff\xc3\xa9\x00", spans: []Span{{1, 2, "X"}}},
		{name: "cut off in a token", src: "a[@b#Key*", text: "ab#Key*", warnings: []Warning{{1, 1, "never"}}},
		{name: "cut off in an opener", src: "a[", text: "a["},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Parse([]byte(c.src))
			if got := string(d.Text); got != c.text {
				t.Errorf("text: got %q, want %q", got, c.text)
			}
			if !slices.Equal(d.Spans, c.spans) {
				t.Errorf("spans: got %v, want %v", d.Spans, c.spans)
			}
			if d.NumWarnings != len(c.warnings) || len(d.Warnings) != len(c.warnings) {
				t.Fatalf("warnings: got %d: %v, want %v", d.NumWarnings, d.Warnings, c.warnings)
			}
			for i, w := range d.Warnings {
				want := c.warnings[i]
				named := strings.HasSuffix(want.What, "taken out") && !strings.HasSuffix(w.What, want.What)
				if w.Offset != want.Offset || w.Line != want.Line || !strings.Contains(w.What, want.What) || named {
					t.Errorf("warning %d: got %+v, want %+v", i, w, want)
				}
			}
		})
	}
}

// tokenPattern is the same grammar once more, as the annotators' own tools
// write it.
var tokenPattern = regexp.MustCompile(`\[@|#[A-Za-z][A-Za-z0-9_-]{0,49}\*\]`)

var labelPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,49}$`)

func TestWarningsAreBounded(t *testing.T) {
	n := 10 * MaxWarnings
	d := Parse([]byte(strings.Repeat("#X*]\n", n) + strings.Repeat("[@\n", n)))
	if d.NumWarnings != 2*n || len(d.Warnings) != MaxWarnings {
		t.Errorf("got %d warnings, %d kept; want %d, %d", d.NumWarnings, len(d.Warnings), 2*n, MaxWarnings)
	}
	if got := d.Warnings[MaxWarnings-1].Line; got != MaxWarnings {
		t.Errorf("last warning kept is of line %d, want %d", got, MaxWarnings)
	}
}

func TestParseSharesMemory(t *testing.T) {
	plain := append(make([]byte, 0, 100), "no markup at all *] @Key*]\n"...)
	if d := Parse(plain); &d.Text[0] != &plain[0] {
		t.Error("Parse copied a text without markup")
	}
	if d := Parse(plain); cap(d.Text) != len(plain) {
		t.Error("an append to Text could write into the source")
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		name, text string
		spans      []Span
		want       string
	}{
		{name: "nothing"},
		{name: "no spans", text: "abc", want: "abc"},
		{name: "whole", text: "abc", spans: []Span{{0, 3, "X"}}, want: "[@abc#X*]"},
		{name: "part", text: "abc", spans: []Span{{1, 2, "X"}}, want: "a[@b#X*]c"},
		{name: "nested", text: "abcd", spans: []Span{{0, 4, "X"}, {1, 3, "Y"}, {3, 4, "Z"}}, want: "[@a[@bc#Y*][@d#Z*]#X*]"},
		{name: "same text", text: "a", spans: []Span{{0, 1, "X"}, {0, 1, "Y"}}, want: "[@[@a#Y*]#X*]"},
		{name: "adjoining", text: "ab", spans: []Span{{0, 1, "X"}, {1, 2, "X"}}, want: "[@a#X*][@b#X*]"},
		{name: "empty", text: "ab", spans: []Span{{1, 1, "X"}}, want: "a[@#X*]b"},
		{name: "empty ones at one place", spans: []Span{{0, 0, "X"}, {0, 0, "Y"}}, want: "[@#X*][@#Y*]"},
		{name: "empty before, in and behind", text: "a", spans: []Span{{0, 0, "X"}, {0, 1, "Y"}, {0, 0, "Z"}, {1, 1, "W"}},
			want: "[@#X*][@[@#Z*]a#Y*][@#W*]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Format([]byte(c.text), c.spans)
			if string(out) != c.want {
				t.Fatalf("got %q, want %q", out, c.want)
			}
			d := Parse(out)
			if string(d.Text) != c.text || !slices.Equal(d.Spans, c.spans) || d.NumWarnings != 0 {
				t.Errorf("Parse gives %q %v %v", d.Text, d.Spans, d.Warnings)
			}
		})
	}
}

func TestFormatPanics(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []Span
		want  string
	}{
		{"before the text", []Span{{-1, 1, "X"}}, "yedda: span outside the text"},
		{"behind the text", []Span{{1, 4, "X"}}, "yedda: span outside the text"},
		{"backwards", []Span{{2, 1, "X"}}, "yedda: span outside the text"},
		{"out of order", []Span{{1, 2, "X"}, {0, 1, "Y"}}, "yedda: spans out of order"},
		{"inner first", []Span{{0, 1, "X"}, {0, 3, "Y"}}, "yedda: spans cross"},
		{"crossing", []Span{{0, 2, "X"}, {1, 3, "Y"}}, "yedda: spans cross"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != c.want {
					t.Errorf("got panic %v, want %q", got, c.want)
				}
			}()
			Format([]byte("abc"), c.spans)
		})
	}
}

// TestTextComesBack holds the texts that could go wrong where text and markup
// meet, and those that hold markup of their own.
func TestTextComesBack(t *testing.T) {
	for _, c := range []struct {
		name, text string
		spans      []Span
		want       string // where it is not plain
	}{
		{name: "text ends like a closer", text: "a#Foo*", spans: []Span{{0, 6, "X"}}},
		{name: "text ends with a mark", text: "a#", spans: []Span{{0, 2, "X"}}},
		{name: "text ends with a mark and a label", text: "a#Foo", spans: []Span{{0, 5, "X"}}},
		{name: "text begins with at", text: "[\n@a", spans: []Span{{2, 4, "X"}}},
		{name: "text begins like the rest of a closer", text: "#X\nFoo*]", spans: []Span{{3, 8, "X"}}},
		{name: "text is the rest of a closer", text: "#*]", spans: []Span{{1, 3, "X"}}},
		{name: "bracket before a span", text: "[a", spans: []Span{{1, 2, "X"}}},
		{name: "bracket before and at inside", text: "[@", spans: []Span{{1, 2, "X"}}, want: "[[@@#X*]"},
		{name: "bracket inside and at behind", text: "[@", spans: []Span{{0, 1, "X"}}, want: "[@[#X*]@"},
		{name: "empty span between bracket and at", text: "[@", spans: []Span{{1, 1, "X"}}, want: "[[@#X*]@"},
		{name: "closer cut by a span", text: "#Foo*]", spans: []Span{{2, 3, "X"}}, want: "#F[@o#X*]o*]"},
		{name: "misclosed", text: "@Page-header*]", spans: []Span{{0, 14, "X"}}},
		{name: "opener", text: "[@", want: "[[@#Literal*]@"},
		{name: "closer", text: "#Foo*]", want: "#[@#Literal*]Foo*]"},
		{name: "closer labelled", text: "#Foo*]", spans: []Span{{0, 6, "X"}}, want: "[@#[@#Literal*]Foo*]#X*]"},
		{name: "closer of an escape", text: "[@#Literal*]", want: "[[@#Literal*]@#[@#Literal*]Literal*]"},
		{name: "many", text: "[@[@#a*]#a*] [[@@", spans: []Span{{2, 8, "X"}}},
		{name: "tokens beside borders", text: "[@#a*][@", spans: []Span{{2, 6, "X"}, {6, 6, "Y"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := []byte(c.text)
			out := Format(text, c.spans)
			if c.want != "" && string(out) != c.want {
				t.Errorf("got %q, want %q", out, c.want)
			}
			if got := tokenPattern.ReplaceAllString(string(out), ""); got != c.text {
				t.Errorf("%q gives %q, want %q", out, got, c.text)
			}
			d := Parse(out)
			if string(d.Text) != c.text || !slices.Equal(d.Spans, c.spans) || !Recovers(out, text) {
				t.Errorf("%q is read as %q %v", out, d.Text, d.Spans)
			}
			for _, w := range d.Warnings {
				if !strings.Contains(w.What, "stays text") {
					t.Errorf("%q: warning %v", out, w)
				}
			}
		})
	}
}

func TestRecovers(t *testing.T) {
	for _, c := range []struct {
		out, text string
		want      bool
	}{
		{"", "", true}, {"[@#X*]", "", true}, {"[@abc#X*]", "abc", true}, {"a[@b#X*]c\n", "abc\n", true},
		{"[@ab#X*]", "abc", false}, {"[@abc#X*]", "ab", false}, {"[@abc#X*]", "axc", false}, {"a", "", false}, {"", "a", false},
		{"[[@@", "[@", true}, {"[@", "[@", false}, {"a@X*]", "a@X*]", true}, {"a@X*][@#X*]", "a@X*]", true},
		{string(Format([]byte("a"), []Span{{0, 1, "not a label"}})), "a", false},
		{string(Format([]byte("a"), []Span{{0, 1, ""}})), "a", false},
		{string(Format([]byte("a"), []Span{{0, 1, strings.Repeat("a", 51)}})), "a", false},
	} {
		if got := Recovers([]byte(c.out), []byte(c.text)); got != c.want {
			t.Errorf("Recovers(%q, %q) = %v, want %v", c.out, c.text, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "[@a#X*]", "[@a[@b#X*]#Y*]", "[[@@", "#X*]", "[@", "[@#X*]", "[@a@Page-header*]\n[@b#X*]",
		"\f[@a\r\nb#X*]\r\n", "\xff[@\xc3#X*]\xa9", "[@[@#A*]#B*]", "[[@#A*]@", "#F[@#A*]oo*]", "[@a[@#X*]#Y*]",
		"\ufffd\n\xe2\x82\n[@\u00a0#X*]\x1c\n", "*]*]#a*]", "[@#[@#Literal*]Foo*]#X*]", "[@[@#X*]#Literal*]", "[@\n\n\f x \n#X*]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		d := Parse(src)
		if !bytes.Equal(src, before) {
			t.Fatal("Parse changed its source")
		}
		if want := tokenPattern.ReplaceAll(src, nil); !bytes.Equal(d.Text, want) {
			t.Fatalf("text: got %q, want %q", d.Text, want)
		}
		if !Recovers(src, d.Text) {
			t.Fatalf("Recovers disagrees with Parse")
		}
		checkSpans(t, d)
		for _, w := range d.Warnings {
			if want := 1 + bytes.Count(src[:w.Offset], newline); w.Line != want {
				t.Fatalf("warning %+v, want line %d", w, want)
			}
		}

		roundTrip(t, d)
		roundTrip(t, &Document{Text: src}) // an input that is no annotation
		roundTrip(t, &Document{Text: src, Spans: []Span{{0, len(src), "X"}, {len(src) / 3, len(src) / 2, "Y"}}})

		// Labels made of spans, and spans of labels.
		rows := Rows(d.Text)
		labels := d.LineLabels(rows)
		if utf8.Valid(src) && bytes.IndexByte(src, '\r') < 0 {
			scored, _ := scoredLines(string(src), true)
			scored = slices.DeleteFunc(scored, func(l scoredLine) bool { return strings.Trim(l.text, " \ufffd") == "" })
			want := make([]string, 0, len(rows))
			for _, l := range scored {
				want = append(want, l.label)
			}
			if !slices.Equal(labels, want) {
				t.Fatalf("labels of %q: got %q, want %q", src, labels, want)
			}
		}
		spans := SpansOf(d.Text, rows, labels)
		made := &Document{Text: d.Text, Spans: spans}
		checkSpans(t, made)
		if got := made.LineLabels(rows); !slices.Equal(got, labels) {
			t.Fatalf("labels %q of %q become %q", labels, d.Text, got)
		}
		for _, s := range spans {
			if bytes.IndexByte(d.Text[s.Start:s.End], '\f') >= 0 {
				t.Fatalf("span %v of %q holds a form feed", s, d.Text)
			}
		}
		roundTrip(t, made)
	})
}

// roundTrip fails where Format and Parse do not give d back.
func roundTrip(t *testing.T, d *Document) {
	t.Helper()
	out := Format(d.Text, d.Spans)
	again := Parse(out)
	if !bytes.Equal(again.Text, d.Text) || !slices.Equal(again.Spans, d.Spans) {
		t.Fatalf("%q %v is written %q and read %q %v", d.Text, d.Spans, out, again.Text, again.Spans)
	}
	if !bytes.Equal(tokenPattern.ReplaceAll(out, nil), d.Text) || !Recovers(out, d.Text) {
		t.Fatalf("%q does not give back %q", out, d.Text)
	}
	for _, w := range again.Warnings {
		if !strings.Contains(w.What, "stays text") {
			t.Fatalf("%q: warning %v", out, w)
		}
	}
}

// checkSpans fails where the spans of d are not in order, nested and in the
// text.
func checkSpans(t *testing.T, d *Document) {
	t.Helper()
	var open []Span
	last := 0
	for _, s := range d.Spans {
		for len(open) > 0 && open[len(open)-1].End <= s.Start {
			open = open[:len(open)-1]
		}
		if s.Start < last || s.End < s.Start || s.End > len(d.Text) || !labelPattern.MatchString(s.Label) ||
			len(open) > 0 && open[len(open)-1].End < s.End {
			t.Fatalf("spans %v of %d bytes", d.Spans, len(d.Text))
		}
		last = s.Start
		open = append(open, s)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name string
		src  []byte
	}{
		{"annotated", sample()},
		{"plain", Parse(sample()).Text},
		{"markup-only", bytes.Repeat([]byte("[@#X*]"), 1<<17)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.src)))
			b.ReportAllocs()
			for b.Loop() {
				Parse(c.src)
			}
		})
	}
}

func BenchmarkFormat(b *testing.B) {
	d := Parse(sample())
	b.SetBytes(int64(len(d.Text)))
	b.ReportAllocs()
	for b.Loop() {
		if !Recovers(Format(d.Text, d.Spans), d.Text) {
			b.Fatal("does not come back")
		}
	}
}

// sample is about a MiB that looks like an annotated journal.
func sample() []byte {
	var b bytes.Buffer
	for page := 1; b.Len() < 1<<20; page++ {
		fmt.Fprintf(&b, "\f[@%d ... The Lost Fungi of Île-aux-Cèpes#Page-header*]\n\n", page)
		for i := range 6 {
			fmt.Fprintf(&b, "[@Agaricus fictus var. n%d Scriptor, sp. nov.#Nomenclature*]\n", i)
			b.WriteString("[@Pileus 3–5 cm latus, convexus, ﬂavidus; lamellae liberae; stipes 4 × 0.5 cm,\n" +
				"Spores 6–8 µm, smooth, thin-walled, hyaline in KOH, with one drop of oil;\nbasidia 4-spored.#Description*]\n\n" +
				"On the ground in a wood that nobody has seen since, here and there.\n")
		}
	}
	return b.Bytes()
}
