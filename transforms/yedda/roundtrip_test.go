package yedda

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// bratCan is what brat can say of the spans of a document: without the white
// space around them, and none of white space alone. (A border inside a
// character lies before it, there.)
func bratCan(d *Document) (spans []Span, trimmed, left int) {
	for _, s := range d.Spans {
		s.Start, s.End = characterStart(d.Text, s.Start), characterStart(d.Text, s.End)
		text := string(d.Text[s.Start:s.End])
		inner := strings.TrimFunc(text, pythonSpace)
		if inner == "" {
			left++
			continue
		}
		if len(inner) < len(text) {
			trimmed++
		}
		s.Start += strings.Index(text, inner)
		s.End = s.Start + len(inner)
		spans = append(spans, s)
	}
	return spans, trimmed, left
}

// YEDDA → brat → YEDDA.
func TestBratRoundTrip(t *testing.T) {
	check := func(t *testing.T, name string, d *Document) (kept, trimmed, left int) {
		back, err := ParseBrat(d.Text, WriteBrat(d.Text, d.Spans))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		want, trimmed, left := bratCan(d)
		if !slices.Equal(back.Spans, want) || back.NumWarnings > 0 {
			t.Errorf("%s: got %d spans and %v, want %d: %v\n%v", name, len(back.Spans), back.Warnings, len(want), back.Spans, want)
		}
		again := Parse(Format(d.Text, back.Spans))
		if !bytes.Equal(again.Text, d.Text) || !slices.Equal(again.Spans, want) {
			t.Errorf("%s: YEDDA of what came back differs", name)
		}
		return len(want), trimmed, left
	}
	for _, c := range formatCases {
		check(t, c.name, Parse([]byte(c.src)))
	}
	t.Run("corpus", func(t *testing.T) {
		var kept, trimmed, left, made int
		corpus(t, func(t *testing.T, name string, src []byte) {
			d := Parse(src)
			k, tr, l := check(t, name, d)
			kept, trimmed, left = kept+k, trimmed+tr, left+l
			if tr+l > 0 {
				t.Logf("%s: %d spans lose white space at a border, %d of white space alone are left out", name, tr, l)
			}
			// What predict writes, brat can say to the letter.
			rows := Rows(d.Text)
			labels := d.LineLabels(rows)
			d.Spans = SpansOf(d.Text, rows, labels)
			check(t, name, d)
			made += len(d.Spans)
			back, err := ParseBrat(d.Text, WriteBrat(d.Text, d.Spans))
			if err != nil || !slices.Equal(back.LineLabels(rows), labels) {
				t.Errorf("%s: the labels of its lines do not come back (%v)", name, err)
			}
		})
		t.Logf("%d spans come back, %d of them without white space at a border; %d are of white space alone and left out; %d spans of lines come back", kept, trimmed, left, made)
	})
}

func TestParseBrat(t *testing.T) {
	text := "𝔄bc é dé\r\nfg hi\n"
	for _, c := range []struct{ name, ann, want string }{
		{"nothing", "", "[] 0"},
		{"beyond the plane", "T1\tX 0 3\t𝔄bc\n", "[{0 6 X}] 0"},
		{"in brat's order", "T2\tY 4 5\té\nT1\tX 0 3\t𝔄bc\n", "[{0 6 X} {7 9 Y}] 0"},
		{"fragments of two lines", "T1\tX 6 8;10 12\tdé fg\n", "[{10 17 X}] 0"},
		{"fragments with ink between", "T1\tX 0 3;6 8\t𝔄bc dé\n", "[{0 6 X} {10 13 X}] 0"},
		{"others", "T1\tX 0 3\t𝔄bc\nR1\tOrigin Arg1:T1 Arg2:T1\n#1\tAnnotatorNotes T1\tunsure\n*\tEquiv T1 T1\nA1\tSure T1\nE1\tX:T1\n\n", "[{0 6 X}] 0"},
		{"CR LF and a byte order mark", "\ufeffT1\tX 0 3\t𝔄bc\r\n", "[{0 6 X}] 0"},
		{"nested", "T1\tX 1 2\tb\nT2\tY 0 3\t𝔄bc\nT3\tX 0 3\t𝔄bc\n", "[{0 6 Y} {0 6 X} {4 5 X}] 0"},
		{"crossing", "T1\tX 0 5\t𝔄bc é\nT2\tY 2 8\tc é dé\nT3\tZ 4 8\té dé\nT4\tV 1 2\tb\n", "[{0 9 X} {4 5 V} {9 13 Y} {9 13 Z}] 2"},
	} {
		d, err := ParseBrat([]byte(text), []byte(c.ann))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := fmt.Sprint(d.Spans, d.NumWarnings); got != c.want || string(d.Text) != text {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for ann, want := range map[string]string{
		"T1\tX 0 3\t𝔄bc\nT2\tX\n":         "brat: line 2 is no annotation",
		"T1\tX 0 3\n":                     "brat: line 1 is no annotation",
		"Tx\tX 0 3\t𝔄bc\n":                "brat: line 1 is no annotation",
		"T1\t 0 3\t𝔄bc\n":                 "brat: line 1 is no annotation",
		"T1\tX 0\t𝔄bc\n":                  "brat: line 1 is no annotation",
		"T1\tX 10 99\tfg\n":               "brat: line 1: 10 99 lies outside the text, which has 16 characters",
		"T1\tX 0 4\t𝔄bc é\n":              "brat: line 1: its text is not what stands",
		"T1\tX 0 4\té\n":                  "brat: line 1: its text is not what stands",
		"T1\tX 5 2\té\n":                  "brat: line 1: 5 2 lies outside",
		"T1\tX 99999999999999999999 2\ta": "brat: line 1: 99999999999999999999 2 lies outside",
	} {
		if _, err := ParseBrat([]byte(text), []byte(ann)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", ann, err, want)
		}
	}
}

// TestParseBratMemory names the whole text in a hundred fragments: as much memory went
// to all of them together before anybody looked at what they should say.
func TestParseBratMemory(t *testing.T) {
	text := bytes.Repeat([]byte("x"), 1<<20)
	ann := fmt.Appendf(nil, "T1\tX %s\tx\n", strings.TrimSuffix(strings.Repeat(fmt.Sprintf("0 %d;", len(text)), 100), ";"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ParseBrat(text, ann); err == nil || !strings.HasPrefix(err.Error(), "brat: line 1: its text is not what stands") {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("it took %d bytes", n)
	}
}

// fromJSONL is a document as a reader of doccano's JSONL has it: text in code
// points, spans by their numbers.
func fromJSONL(t *testing.T, line []byte) *Document {
	t.Helper()
	var doc struct {
		Text   string
		Base64 []byte `json:"text_base64"`
		Label  [][3]any
	}
	if err := json.Unmarshal(line, &doc); err != nil {
		t.Fatal(err)
	}
	d := &Document{Text: doc.Base64}
	if d.Text == nil {
		d.Text = []byte(doc.Text)
	}
	at := make([]int, 0, len(d.Text)+1) // offset of each code point
	for i := 0; i < len(d.Text); {
		at = append(at, i)
		_, size := utf8.DecodeRune(d.Text[i:])
		i += size
	}
	at = append(at, len(d.Text))
	for _, l := range doc.Label {
		d.Spans = append(d.Spans, Span{at[int(l[0].(float64))], at[int(l[1].(float64))], l[2].(string)})
	}
	return d
}

// YEDDA → JSONL → YEDDA, over every span of every document.
func TestJSONLRoundTrip(t *testing.T) {
	check := func(t *testing.T, name string, d *Document) {
		back := fromJSONL(t, WriteJSONL(&Table{Text: d.Text}, d.Spans, false))
		want := slices.Clone(d.Spans)
		for i, s := range want {
			want[i].Start, want[i].End = characterStart(d.Text, s.Start), characterStart(d.Text, s.End)
		}
		if !bytes.Equal(back.Text, d.Text) || !slices.Equal(back.Spans, want) {
			t.Errorf("%s: text or spans do not come back", name)
		}
		if out := Format(d.Text, d.Spans); slices.Equal(want, d.Spans) && !bytes.Equal(Format(back.Text, back.Spans), out) {
			t.Errorf("%s: YEDDA of what came back differs", name)
		}
	}
	for _, c := range formatCases {
		check(t, c.name, Parse([]byte(c.src)))
	}
	t.Run("corpus", func(t *testing.T) {
		spans, beyond := 0, 0
		corpus(t, func(t *testing.T, name string, src []byte) {
			d := Parse(src)
			check(t, name, d)
			spans += len(d.Spans)
			for _, r := range string(d.Text) {
				if r > 0xffff {
					beyond++
				}
			}
		})
		t.Logf("%d spans come back; %d characters lie beyond the Basic Multilingual Plane", spans, beyond)
	})
}
