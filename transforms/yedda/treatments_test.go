package yedda

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// annotated is a document of testdata/annotated as a table: its own labels,
// with probability 1 for Nomenclature and 0.5 for all others.
func annotated(t testing.TB, name string) *Table {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", "..", "testdata", "annotated", name))
	if err != nil {
		t.Fatal(err)
	}
	d := Parse(src)
	rows := Rows(d.Text)
	return tableOf(strings.TrimSuffix(name, ".ann"), d.Text, rows, d.LineLabels(rows))
}

func tableOf(uri string, text []byte, rows []Line, labels []string) *Table {
	table := &Table{URI: uri, Text: text, Rows: rows, Labels: labels}
	index := map[string]int{}
	for _, l := range table.Labels {
		if _, ok := index[l]; !ok && l != "" {
			index[l] = len(table.Classes)
			table.Classes = append(table.Classes, l)
		}
	}
	k := len(table.Classes)
	table.Probs = make([]float32, len(rows)*k)
	for i, l := range table.Labels {
		switch l {
		case "":
		case nomenclature:
			table.Probs[i*k+index[l]] = 1
		default:
			table.Probs[i*k+index[l]] = 0.5
		}
	}
	return table
}

// wantPassage is a passage by how it begins and ends.
type wantPassage struct {
	page        int
	first, last string
}

type wantTreatment struct {
	name       string
	line       int
	confidence float64
	names      []wantPassage
	texts      []wantPassage
}

// The treatments of two documents, written down by reading them.
func TestWriteTreatmentsByHand(t *testing.T) {
	for name, want := range map[string][]wantTreatment{
		// UTF-8; descriptions go on behind a page's end.
		"protologue.txt.ann": {
			{
				"Pallidocybe lutrina Okonjo-Reyes & Whitlatch, sp. nov. Figs 1, 3a–d", 52, (2*1 + 18*0.5) / 20,
				[]wantPassage{{2, "Pallidocybe lutrina", "FungusName FN 701233"}},
				[]wantPassage{
					{2, "Pileus 8–26(–31) mm diam.", "Spore deposit cream."},
					{2, "Basidiospores (5.2–)5.6", "cylindrical hyphae 3–11 µm"},
					{3, "wide. Pileipellis a cutis", "present in all tissues."},
				},
			},
			{
				"Pallidocybe ﬁssilis Vestergård, sp. nov. Figs 2, 3e–h", 105, (2*1 + 9*0.5) / 11,
				[]wantPassage{{3, "Pallidocybe ﬁssilis", "FungusName FN 701234"}},
				[]wantPassage{
					{3, "Pileus 15–40 mm diam.", "deposit pale cream."},
					{3, "Basidiospores 10.2–12.8", ""},
					{4, "apex, smooth, with walls", "Clamp connections present."},
				},
			},
		},
		// Latin-1: é is one byte that is no UTF-8, and so is the dash.
		"lichens.txt.ann": {
			{
				"Caloplecta odiliana Br\xe9hier & Duf\xf4r, sp. nov.", 16, (1 + 7*0.5) / 8,
				[]wantPassage{{1, "Caloplecta odiliana", "sp. nov."}},
				[]wantPassage{{1, "Thallus crustose, forming", "Thallus K+ purple, C\x96, Pd\x96."}},
			},
			{
				"Caloplecta fumida Duf\xf4r, sp. nov.", 41, (1 + 3*0.5) / 4,
				[]wantPassage{{2, "Caloplecta fumida", "sp. nov."}},
				[]wantPassage{{2, "Thallus of scattered, smoke-grey", "6 \xb5m at the tip."}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := annotated(t, name)
			got := readTreatments(t, table)
			if len(got) != len(want) {
				t.Fatalf("%d treatments, want %d", len(got), len(want))
			}
			for i, w := range want {
				g := got[i]
				if g.URI != table.URI || g.Treatment != i+1 {
					t.Errorf("treatment %d: uri %q, number %d", i+1, g.URI, g.Treatment)
				}
				if wantName := string([]rune(w.name)); g.Name != wantName || g.Line != w.line || g.Page != w.names[0].page {
					t.Errorf("treatment %d: name %q, line %d, page %d; want %q, %d, %d", i+1, g.Name, g.Line, g.Page, wantName, w.line, w.names[0].page)
				}
				if g.Confidence == nil || math.Abs(*g.Confidence-w.confidence) > 1e-6 {
					t.Errorf("treatment %d: confidence %v, want %v", i+1, g.Confidence, w.confidence)
				}
				last := g.Nomenclature[len(g.Nomenclature)-1]
				if n := len(g.Descriptions); n > 0 {
					last = g.Descriptions[n-1]
				}
				if g.Start != g.Nomenclature[0].Start || g.End != last.End {
					t.Errorf("treatment %d: bytes %d to %d, its passages %d to %d", i+1, g.Start, g.End, g.Nomenclature[0].Start, last.End)
				}
				checkPassages(t, table.Text, g.Nomenclature, w.names, 1)
				checkPassages(t, table.Text, g.Descriptions, w.texts, 0.5)
			}
		})
	}
}

// readPassage and readTreatment are the JSON as a stranger reads it.
type readPassage struct {
	Start, End, Page int
	Confidence       *float64
	Text             string
	Base64           []byte `json:"text_base64"`
}

type readTreatment struct {
	URI, Name                         string
	Treatment, Line, Page, Start, End int
	Confidence                        *float64
	Nomenclature, Descriptions        []readPassage
}

func readTreatments(t *testing.T, table *Table) (out []readTreatment) {
	t.Helper()
	for _, line := range bytes.SplitAfter(WriteTreatments(table, SpansOf(table.Text, table.Rows, table.Labels)), newline) {
		if len(line) == 0 {
			continue
		}
		var r readTreatment
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil || line[len(line)-1] != '\n' {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

func checkPassages(t *testing.T, text []byte, got []readPassage, want []wantPassage, confidence float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d passages, want %d", len(got), len(want))
		return
	}
	for i, w := range want {
		g := got[i]
		exact := text[g.Start:g.End]
		if !bytes.HasPrefix(exact, []byte(w.first)) || !bytes.HasSuffix(exact, []byte(w.last)) {
			t.Errorf("passage %q, want %q … %q", exact, w.first, w.last)
		}
		if g.Page != w.page || g.Confidence == nil || *g.Confidence != confidence {
			t.Errorf("passage %q: page %d, confidence %v; want %d, %v", w.first, g.Page, g.Confidence, w.page, confidence)
		}
		if g.Text != string([]rune(string(exact))) {
			t.Errorf("passage %q has the text %q", exact, g.Text)
		}
		if utf8.Valid(exact) == (g.Base64 != nil) || g.Base64 != nil && !bytes.Equal(g.Base64, exact) {
			t.Errorf("passage %q has the bytes %q", exact, g.Base64)
		}
	}
}

func TestWriteTreatments(t *testing.T) {
	const N, D, M = nomenclature, description, "Misc-exposition"
	for _, c := range []struct {
		name   string
		text   string
		labels []string
		want   string // for each treatment its names and, behind a |, its descriptions
	}{
		{"nothing", "", nil, ""},
		{"a description before every name", "a\nb\n", []string{D, N}, "b|"},
		{"names over a blank line are one run", "a\n\nb\nc\n", []string{N, N, D}, "a,b|c"},
		{"another label ends a run", "a\nb\nc\nd\n", []string{N, M, N, D}, "a|;c|d"},
		{"a description ends a run", "a\nb\nc\n", []string{N, D, N}, "a|b;c|"},
		{"descriptions go on behind other labels", "a\nb\nc\nd\n", []string{N, D, M, D}, "a|b,d"},
		{"a form feed in a line", "a\fb\nc\n", []string{N, D}, "a,b|c"},
		{"unlabelled", "a\nb\nc\n", []string{N, "", D}, "a|c"},
	} {
		table := tableOf("u", []byte(c.text), Rows([]byte(c.text)), c.labels)
		var parts []string
		for _, g := range readTreatments(t, table) {
			join := func(passages []readPassage) string {
				var texts []string
				for _, p := range passages {
					texts = append(texts, p.Text)
				}
				return strings.Join(texts, ",")
			}
			parts = append(parts, join(g.Nomenclature)+"|"+join(g.Descriptions))
		}
		if got := strings.Join(parts, ";"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	// A row that form feeds cut is one row, in however many passages it is.
	cut := &Table{Text: []byte("a\fb\fc\nd\ne\ff\ng\n"), Labels: []string{N, N, D, D}, Classes: []string{N, D}, Probs: []float32{.5, .5, .75, .25, .5, .5, 0, 1}}
	cut.Rows = Rows(cut.Text)
	if got := readTreatments(t, cut); len(got) != 1 || len(got[0].Nomenclature) != 3 || *got[0].Nomenclature[2].Confidence != .625 || *got[0].Confidence != (.5+.75+.5+1)/4 {
		t.Errorf("rows that form feeds cut: %+v", got)
	}
	// A byte order mark is no part of the name.
	text := []byte("\ufeffa b\n")
	if got := readTreatments(t, tableOf("u", text, Rows(text), []string{N})); len(got) != 1 || got[0].Name != "a b" || got[0].Start != 0 {
		t.Errorf("with a byte order mark: %+v", got)
	}
	// Nor is one that stands alone ahead of a form feed, or on a line, a name.
	// Separators of ASCII are white space, as they are to Rows and to Python.
	for src, want := range map[string]int{
		"\ufeff\fa b\n": 1, "\ufeff\na b\n": 2, "\ufeff\n\na b\n": 3,
		"\x1c a b\u3000\x1f\r\n": 1, "\ufeff\x1e\na b\n": 2,
	} {
		text := []byte(src)
		rows := Rows(text)
		got := readTreatments(t, tableOf("u", text, rows, []string{N, N}[:len(rows)]))
		if len(got) != 1 || got[0].Name != "a b" || got[0].Line != want {
			t.Errorf("%q: %+v, want line %d", src, got, want)
		}
	}
	// Without probabilities there is no confidence.
	table := &Table{Text: []byte("a\n"), Rows: []Line{{0, 1}}, Labels: []string{N}}
	if got := readTreatments(t, table); len(got) != 1 || got[0].Confidence != nil || got[0].Descriptions == nil {
		t.Errorf("without probabilities: %+v", got)
	}
}

// corpusTreatments is testdata/goldens/treatments.json: what the annotated
// corpus has, by volume. No text of it.
type corpusTreatments struct {
	Documents  int `json:"documents"`
	Treatments int `json:"treatments"`
	Described  int `json:"described"` // treatments with a Description
}

// Every row of Nomenclature is in one treatment, whatever the document; and
// there are as many treatments as the labels of lines have runs, counted apart,
// and as the record says.
func TestWriteTreatmentsCorpus(t *testing.T) {
	counts := map[string]corpusTreatments{}
	corpus(t, func(t *testing.T, name string, src []byte) {
		d := Parse(src)
		rows := Rows(d.Text)
		table := &Table{URI: name, Text: d.Text, Rows: rows, Labels: d.LineLabels(rows)}
		got := readTreatments(t, table)
		c := counts[filepath.ToSlash(filepath.Dir(name))]
		c.Documents++
		c.Treatments += len(got)
		covered, i := 0, 0
		var passages []readPassage
		described := 0
		for _, g := range got {
			passages = append(passages, g.Nomenclature...)
			if len(g.Descriptions) > 0 {
				described++
			}
			if want := 1 + bytes.Count(d.Text[:g.Start], []byte("\f")); g.Page != want {
				t.Errorf("%s: byte %d is on page %d, want %d", name, g.Start, g.Page, want)
			}
		}
		c.Described += described
		counts[filepath.ToSlash(filepath.Dir(name))] = c

		names, runs, runsDescribed := 0, 0, 0
		last, open := "", false // the last label, and a run that waits for a description
		for k, row := range rows {
			label := table.Labels[k]
			if label == "" {
				continue
			}
			switch {
			case label == nomenclature && last != nomenclature:
				runs++
				open = true
			case label == description && open:
				runsDescribed++
				open = false
			}
			last = label
			if label != nomenclature {
				continue
			}
			names++
			for i < len(passages) && passages[i].End <= row.Start {
				i++
			}
			if i < len(passages) && passages[i].Start < row.End {
				covered++
			}
		}
		if covered != names {
			t.Errorf("%s: %d of %d lines of Nomenclature are in treatments", name, covered, names)
		}
		if len(got) != runs || described != runsDescribed {
			t.Errorf("%s: %d treatments, %d described; its lines have %d runs, %d described", name, len(got), described, runs, runsDescribed)
		}
	})
	file := filepath.Join("..", "..", "testdata", "goldens", "treatments.json")
	got, err := json.MarshalIndent(counts, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if os.Getenv("LINNET_RECORD") != "" {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the corpus has %s\n%s has %s (%v); LINNET_RECORD=1 writes it", got, file, want, err)
	}
}
