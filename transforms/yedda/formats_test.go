package yedda

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// formatCases are documents that each format must carry.
var formatCases = []struct{ name, src string }{
	{"empty", ""},
	{"plain", "[@Agaricus fictus#Nomenclature*]\nPileus 3 cm.\n"},
	{"characters of several bytes", "é ﬁ 𝔄 [@µm ﬂ#X*]\n[@Владимир#Y*]"},
	{"over lines", "[@one\n  two \n\n\tthree#X*]\nfour\n"},
	{"CR LF", "[@one\r\ntwo#X*]\r\n[@three\r\n#Y*]"},
	{"nested", "[@a[@bé\nc#X*]d#Y*] [@[@e#X*]#X*]\n"},
	{"empty and white spans", "a[@#X*]b\n[@ \n\t#Y*]c\n[@ \x1f d\u00a0\x1f#Z*][@\x1f#X*]"},
	{"breaks that are no newline", "[@a\vb\fc\x1cd\u0085e\u2028f\u2029g\x1fh#X*]\n"},
	{"to be escaped", "[@a\\b\tc\\t\"d\",e#X*]\n\"\n,\n"},
	{"not UTF-8", "\xff[@a\xc3#X*]\xa9b\n[@é\xe2\x82#Y*]\n\ufffd\n"},
	{"lines that together are UTF-8", "[@wei\xdf\n\xabx#X*]\n[@y\xc2\n\x85z#Y*]\n"},
	{"a span that cuts a character", "a[@\xc3#X*]\xa9\xe2\x82[@\xac b#Y*]\n"},
	{"markup of its own", "[[@#Literal*]@ [@a#X*]\n"},
	{"long", strings.Repeat("é[@ﬁ𝔄x\n#X*]", 300) + strings.Repeat("a", 1000) + "[@µ#Y*]"},
}

// charOffsets is the offset in characters for each offset in bytes, made the
// slow way: Go's range gives a byte that is no UTF-8 as one character.
func charOffsets(text []byte) []int {
	out := make([]int, len(text)+1)
	n := -1
	starts := map[int]bool{len(text): true}
	for i := range string(text) {
		starts[i] = true
	}
	for i := range out {
		if starts[i] {
			n++
		}
		out[i] = n
	}
	return out
}

func forFormats(t *testing.T, check func(t *testing.T, d *Document)) {
	for _, c := range formatCases {
		t.Run(c.name, func(t *testing.T) { check(t, Parse([]byte(c.src))) })
	}
	t.Run("corpus", func(t *testing.T) {
		if testing.Short() {
			t.Skip("reads the whole corpus")
		}
		n := 0
		corpus(t, func(t *testing.T, name string, src []byte) {
			if n++; n%27 == 0 { // a few are enough
				check(t, Parse(src))
			}
		})
	})
}

func TestWriteBrat(t *testing.T) {
	forFormats(t, func(t *testing.T, d *Document) {
		chars := charOffsets(d.Text)
		runes := []rune(string(d.Text))
		var want []Span
		for _, s := range d.Spans {
			if chars[s.Start] == chars[s.End] || strings.TrimFunc(string(runes[chars[s.Start]:chars[s.End]]), pythonSpace) == "" {
				continue
			}
			want = append(want, s)
		}
		ann := WriteBrat(d.Text, d.Spans)
		lines := strings.SplitAfter(string(ann), "\n")
		lines = lines[:len(lines)-1]
		if len(lines) != len(want) {
			t.Fatalf("got %d annotations, want %d:\n%q", len(lines), len(want), ann)
		}
		if len(lines) > 0 && !IsBrat(ann) {
			t.Error("IsBrat does not know it")
		}
		for i, line := range lines {
			m := regexp.MustCompile(`(?s)^T(\d+)\t([A-Za-z0-9_-]+) ([0-9; ]+)\t(.*)\n$`).FindStringSubmatch(line)
			if m == nil || m[1] != strconv.Itoa(i+1) || m[2] != want[i].Label {
				t.Fatalf("annotation %d: %q", i, line)
			}
			var parts []string
			ink := 0
			end := chars[want[i].Start]
			for f := range strings.SplitSeq(m[3], ";") {
				var a, b int
				if n, err := fmt.Sscanf(f, "%d %d", &a, &b); n != 2 || err != nil || a < end || b <= a || b > chars[want[i].End] {
					t.Fatalf("annotation %d: fragment %q after %d", i, f, end)
				}
				end = b
				part := string(runes[a:b])
				if strings.TrimFunc(part, pythonSpace) != part || strings.IndexFunc(part, pythonBreak) >= 0 {
					t.Fatalf("annotation %d: fragment %q", i, part)
				}
				parts = append(parts, part)
				ink += countInk([]byte(part))
			}
			if got := string([]rune(m[4])); got != strings.Join(parts, " ") {
				t.Errorf("annotation %d: text %q, want %q", i, got, strings.Join(parts, " "))
			}
			if all := countInk([]byte(string(runes[chars[want[i].Start]:chars[want[i].End]]))); ink != all {
				t.Errorf("annotation %d: the fragments have %d characters, the span %d", i, ink, all)
			}
		}
	})
}

// pythonBreak knows the characters at which str.splitlines breaks.
func pythonBreak(r rune) bool {
	return strings.ContainsRune("\n\v\f\r\x1c\x1d\x1e\u0085\u2028\u2029", r)
}

func TestIsBrat(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      bool
	}{
		{"text-bound", "T1\tNomenclature 0 5\tAmani\n", true},
		{"no last newline", "T12\tX 0 5\tAmani", true},
		{"fragments", "T1\tX 0 5;8 12;20 30\tAmani cae\n", true},
		{"CR LF", "T1\tX 0 5\tAmani\r\n", true},
		{"byte order mark", "\ufeffT1\tX 0 5\tAmani\n", true},
		{"blank lines first", "\n\r\nT1\tX 0 5\tAmani\n", true},
		{"note first", "#1\tAnnotatorNotes T1\tunsure\nT1\tX 0 5\tAmani\n", true},
		{"event", "E1\tOrigin:T1 Theme:T2\n", true},
		{"relation", "R1\tOrigin Arg1:T1 Arg2:T2\n", true},
		{"relation, CR LF", "R1\tOrigin Arg1:T1 Arg2:T2\r\n", true},
		{"attribute", "A1\tNegation T1\n", true},
		{"modification", "M1\tSpeculation E1\n", true},
		{"normalisation", "N1\tReference T1 MB:1234\tAmanita\n", true},
		{"equivalence", "*\tEquiv T1 T2\n", true},
		{"empty", "", false},
		{"blank", " \n\n", false},
		{"YEDDA", "[@Amanita#Nomenclature*]\n", false},
		{"YEDDA with brat in it", "[@x#Y*]\nT1\tX 0 5\tAmani\n", false},
		{"plain text", "The genus Amanita in Patagonia\n", false},
		{"table", "T1\tN 12\t33\nT2\tN 15\t34\n", false},
		{"no text", "T1\tX 0 5\n", false},
		{"no type", "T1\t 0 5\tAmani\n", false},
		{"one offset", "T1\tX 0\tAmani\n", false},
		{"bad fragments", "T1\tX 0 5,8 12\tAmani\n", false},
		{"bad number", "T1\tX 0 5a\tAmani\n", false},
		{"no id", "T\tX 0 5\tAmani\n", false},
		{"spaces for tabs", "T1 X 0 5 Amani\n", false},
		{"attribute of nothing", "A1\tNegation of T\n", false},
		{"footnote", "*\tCorresponding author\n", false},
		{"numbered figure", "E1\tSpores\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := IsBrat([]byte(c.src)); got != c.want {
				t.Errorf("IsBrat(%q) = %v, want %v", c.src, got, c.want)
			}
		})
	}
	t.Run("corpus", func(t *testing.T) {
		corpus(t, func(t *testing.T, name string, src []byte) {
			if IsBrat(src) || IsBrat(Parse(src).Text) {
				t.Errorf("%s is taken for brat", name)
			}
		})
	})
}

func TestWriteTSV(t *testing.T) {
	forFormats(t, func(t *testing.T, d *Document) {
		chars := charOffsets(d.Text)
		lines := strings.Split(string(WriteTSV(d.Text, d.Spans)), "\n")
		if lines[0] != "number\ttext\tlabel\tstart\tend" || lines[len(lines)-1] != "" {
			t.Fatalf("header %q, last line %q", lines[0], lines[len(lines)-1])
		}
		lines = lines[1 : len(lines)-1]
		if len(lines) != len(d.Spans) {
			t.Fatalf("got %d lines, want %d", len(lines), len(d.Spans))
		}
		for i, s := range d.Spans {
			got := strings.Split(lines[i], "\t")
			if len(got) != 5 {
				t.Fatalf("line %q has %d fields", lines[i], len(got))
			}
			got[1] = regexp.MustCompile(`(?s)\\.`).ReplaceAllStringFunc(got[1], func(e string) string {
				return map[string]string{`\t`: "\t", `\n`: "\n", `\r`: "\r", `\\`: `\`}[e]
			})
			want := []string{strconv.Itoa(i + 1), string(d.Text[s.Start:s.End]), s.Label, strconv.Itoa(chars[s.Start]), strconv.Itoa(chars[s.End])}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
	const want = "number\ttext\tlabel\tstart\tend\n1\ta\tby\\thand\\n\\\\\t0\t1\n"
	if got := WriteTSV([]byte("a"), []Span{{0, 1, "by\thand\n\\"}}); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// testTable is d with labels and probabilities.
func testTable(d *Document) *Table {
	rows := Rows(d.Text)
	t := &Table{
		URI: "folder/a é.txt", Text: d.Text, Rows: rows, Labels: d.LineLabels(rows),
		Classes: []string{"X", "Y", "Nomenclature"},
	}
	for i := range rows {
		x := float32(i%7) / 8
		t.Probs = append(t.Probs, x, float32(math.NaN()), 1-x)
	}
	return t
}

func TestWriteCSV(t *testing.T) {
	forFormats(t, func(t *testing.T, d *Document) {
		table := testTable(d)
		for _, probabilities := range []bool{false, true} {
			r := csv.NewReader(bytes.NewReader(WriteCSV(table, probabilities)))
			records, err := r.ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			header := []string{"line", "label", "confidence", "text"}
			if probabilities {
				header = append(header, table.Classes...)
			}
			if !slices.Equal(records[0], header) || len(records) != len(table.Rows)+1 {
				t.Fatalf("got %d records, header %q; want %d, %q", len(records), records[0], len(table.Rows)+1, header)
			}
			for i, row := range table.Rows {
				x := float64(i%7) / 8
				probs := map[string]string{"X": fmt.Sprintf("%.6f", x), "Y": "", "Nomenclature": fmt.Sprintf("%.6f", 1-x)}
				want := []string{
					strconv.Itoa(1 + strings.Count(string(d.Text[:row.Start]), "\n")), table.Labels[i], probs[table.Labels[i]],
					strings.TrimSuffix(string(d.Text[row.Start:row.End]), "\r"),
				}
				if probabilities {
					want = append(want, probs["X"], probs["Y"], probs["Nomenclature"])
				}
				if !slices.Equal(records[i+1], want) {
					t.Errorf("got %q, want %q", records[i+1], want)
				}
			}
		}
	})
}

func TestWriteJSONL(t *testing.T) {
	forFormats(t, func(t *testing.T, d *Document) {
		table := testTable(d)
		chars := charOffsets(d.Text)
		for _, probabilities := range []bool{false, true} {
			out := WriteJSONL(table, d.Spans, probabilities)
			if bytes.IndexByte(out, '\n') != len(out)-1 {
				t.Fatalf("not one line: %q", out)
			}
			var got map[string]any
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if got["uri"] != table.URI {
				t.Errorf("uri: got %q", got["uri"])
			}
			text := []rune(got["text"].(string))
			if want := []rune(string(d.Text)); !slices.Equal(text, want) {
				t.Errorf("text: got %q, want %q", string(text), string(want))
			}
			exact := string(text)
			if s, ok := got["text_base64"].(string); ok {
				b, err := base64.StdEncoding.DecodeString(s)
				if err != nil {
					t.Fatal(err)
				}
				exact = string(b)
			}
			if exact != string(d.Text) {
				t.Errorf("exact text: got %q, want %q", exact, d.Text)
			}
			// doccano takes no documents of which one lacks what another has.
			members := []string{"label", "text", "text_base64", "uri"}
			if probabilities {
				members = []string{"classes", "label", "lines", "text", "text_base64", "uri"}
			}
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, members) {
				t.Errorf("members %q, want %q", names, members)
			}
			label := got["label"].([]any)
			if len(label) != len(d.Spans) {
				t.Fatalf("got %d labels, want %d", len(label), len(d.Spans))
			}
			for i, s := range d.Spans {
				if want := fmt.Sprint([]any{chars[s.Start], chars[s.End], s.Label}); fmt.Sprint(whole(label[i])) != want {
					t.Errorf("got label %v, want %v", label[i], want)
				}
			}
			lines, has := got["lines"].([]any)
			if !probabilities {
				if has || got["classes"] != nil {
					t.Errorf("got lines that were not asked for")
				}
				continue
			}
			if fmt.Sprint(got["classes"]) != fmt.Sprint(table.Classes) || !has || len(lines) != len(table.Rows) {
				t.Fatalf("got classes %v and %d lines, want %d", got["classes"], len(lines), len(table.Rows))
			}
			for i, row := range table.Rows {
				l := lines[i].(map[string]any)
				x := float64(i%7) / 8
				want := fmt.Sprint([]any{1 + strings.Count(string(d.Text[:row.Start]), "\n"), chars[row.Start], chars[row.End], table.Labels[i], x, nil, 1 - x})
				probs := l["probabilities"].([]any)
				if got := fmt.Sprint(append(whole([]any{l["line"], l["start"], l["end"]}), l["label"], probs[0], probs[1], probs[2])); got != want {
					t.Errorf("got line %v, want %v", got, want)
				}
			}
		}
	})
}

// whole makes the numbers of a JSON array whole ones.
func whole(array any) []any {
	var out []any
	for _, x := range array.([]any) {
		if f, ok := x.(float64); ok {
			x = int(f)
		}
		out = append(out, x)
	}
	return out
}

func TestNoProbabilities(t *testing.T) {
	table := &Table{URI: "a", Text: []byte("a\n\n<b>\n"), Rows: []Line{{0, 1}, {3, 6}}, Labels: []string{"X", ""}}
	if got, want := string(WriteCSV(table, true)), "line,label,confidence,text\n1,X,,a\n3,,,<b>\n"; got != want {
		t.Errorf("CSV: got %q, want %q", got, want)
	}
	if got, want := string(WriteJSONL(table, []Span{{0, 1, "X"}}, true)), `{"uri":"a","text":"a\n\n<b>\n","text_base64":null,"label":[[0,1,"X"]]}`+"\n"; got != want {
		t.Errorf("JSONL: got %q, want %q", got, want)
	}
	table.Classes = []string{"X"} // and still no probabilities
	if got, want := string(WriteCSV(table, true)), "line,label,confidence,text\n1,X,,a\n3,,,<b>\n"; got != want {
		t.Errorf("CSV: got %q, want %q", got, want)
	}
	for want, table := range map[string]*Table{
		"yedda: rows and labels differ in number": {Rows: []Line{{0, 0}}},
		"yedda: short probs":                      {Rows: []Line{{0, 0}, {0, 0}}, Labels: []string{"X", "X"}, Classes: []string{"X"}, Probs: []float32{1}},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("got panic %v, want %q", got, want)
				}
			}()
			WriteCSV(table, true)
		}()
	}
}

func TestCharacters(t *testing.T) {
	for _, c := range formatCases {
		for _, shift := range []int{0, 1, 2, 3, 250, 253, 254, 255, 256, 257} {
			text := []byte(strings.Repeat("a", shift) + c.src)
			want, chars := charOffsets(text), newCharacters(text)
			for i := range want {
				if got := chars.of(i); got != want[i] {
					t.Fatalf("%s, shift %d: byte %d is character %d, want %d", c.name, shift, i, got, want[i])
				}
			}
		}
	}
}

func FuzzFormats(f *testing.F) {
	for _, c := range formatCases {
		f.Add([]byte(c.src))
	}
	f.Add([]byte("T1\tX 0 5;7 8\tab c"))
	f.Add([]byte("T1\tX 0 2\tT1\nT2\tY 1 4\t1\tX\nT3\tZ 1 2;3 4\t1 X\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		IsBrat(src)
		d := Parse(src)
		if back, err := ParseBrat(d.Text, WriteBrat(d.Text, d.Spans)); err != nil || len(back.Spans) > len(d.Spans) {
			t.Fatalf("brat does not come back: %v", err)
		}
		if back, err := ParseBrat(d.Text, src); err == nil {
			Format(back.Text, back.Spans) // panics where spans cross
		}
		table := testTable(d)
		WriteTSV(d.Text, d.Spans)
		if _, err := csv.NewReader(bytes.NewReader(WriteCSV(table, true))).ReadAll(); err != nil {
			t.Fatal(err)
		}
		if out := WriteJSONL(table, d.Spans, true); !json.Valid(out) {
			t.Fatalf("not JSON: %q", out)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(WriteBrat(d.Text, d.Spans)), "\n"), "\n") {
			if line != "" && (!IsBrat([]byte(line)) || strings.IndexFunc(line, pythonBreak) >= 0 || strings.TrimRightFunc(line, unicode.IsSpace) != line) {
				t.Fatalf("not a line of brat: %q", line)
			}
		}
	})
}

func BenchmarkFormats(b *testing.B) {
	d := Parse(sample())
	table := testTable(d)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"brat", func() { WriteBrat(d.Text, d.Spans) }},
		{"tsv", func() { WriteTSV(d.Text, d.Spans) }},
		{"csv", func() { WriteCSV(table, true) }},
		{"jsonl", func() { WriteJSONL(table, d.Spans, true) }},
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
