package typeset

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/linnet-ml/linnet/transforms/yedda"
)

// letters are those of text that no setting changes, in lower case.
func letters(text []byte) string {
	return strings.Map(func(r rune) rune {
		r = unicode.ToLower(r)
		if unicode.IsSpace(r) || strings.ContainsRune("-l1eco0imrnuhbs5.,", r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, string(text))
}

// byLabel is what runs of one label say.
func byLabel(text []byte, labels []string) (runs []string) {
	for i, r := range yedda.Rows(text) {
		if i == 0 || labels[i] != labels[i-1] {
			runs = append(runs, labels[i]+":")
		}
		runs[len(runs)-1] += letters(text[r.Start:r.End])
	}
	return runs
}

// TestVary holds any text in any setting to what each run of one label says, in
// their order; of a run that breaks off, to how it begins.
func TestVary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			"Agaricus fictus", " Doe, ", ",", "\n", "\n", "\n\n", "\n  ", "\f", "\r\n", "pi-\nleus", "a-", "\tSporæ ", "\u00a0", "\xff", "É", "-", "ß",
		})).Draw(t, "text"), ""))
		rows := yedda.Rows(text)
		labels := make([]string, len(rows))
		for i := range labels {
			labels[i] = rapid.SampledFrom([]string{"", "Key", "Description"}).Draw(t, "label")
		}
		before := bytes.Clone(text)
		seed := rapid.Uint64().Draw(t, "seed")
		set, moved := Vary(text, rows, labels, seed)
		if !bytes.Equal(text, before) {
			t.Fatalf("%q became %q", before, text)
		}
		if n := len(yedda.Rows(set)); n != len(moved) {
			t.Fatalf("%q: %d rows, %d labels", set, n, len(moved))
		}
		got, want := byLabel(set, moved), byLabel(text, labels)
		if len(moved) == longest*len(labels) { // the rest may be left out
			want = want[:len(got)]
		}
		if !slices.EqualFunc(want, got, strings.HasPrefix) {
			t.Fatalf("%q as %q: got %q, want %q", text, set, got, want)
		}
		if again, _ := Vary(text, rows, labels, seed); !bytes.Equal(again, set) {
			t.Fatalf("the same seed gives %q and %q", set, again)
		}
	})
}

const sample = `  12. Agaricus fictus Doe, Mycologia 3: 4. 1950.
Pileus convex, brown, surface gla-
brous; lamellae free.
Spores 5 um.

Notes on it.
`

var sampleLabels = []string{"Nomenclature", "Description", "Description", "Description", "Misc-exposition"}

// TestSettings has one setting of each kind.
func TestSettings(t *testing.T) {
	text := []byte(sample)
	rows := yedda.Rows(text)
	for _, c := range []struct {
		name, has string
	}{
		{"paragraphs", "\nPileus convex, brown, surface glabrous; lamellae free. Spores 5 um.\n\nNotes on it.\n"},
		{"narrow", "\nPileus convex, brown, surface\nglabrous; lamellae free.\nSpores 5 um.\n\n"},
		{"capitals", "  12. AGARICUS fictus"},
		{"lower case", "  12. agaricus fictus doe, mycologia"},
		{"no blank line", "\nSpores 5 um.\nNotes on it."},
		{"a blank line after each", "1950.\n\nPileus convex, brown, surface gla-\n\nbrous; lamellae free.\n\nSpores"},
		{"misread", "rnycologia"},
		{"broken off", "Doe\nPileus convex\n\nNotes on it.\n"},
		{"as it stands", sample},
	} {
		seed := uint64(0)
		for ; seed < 5000; seed++ {
			if set, _ := Vary(text, rows, sampleLabels, seed); strings.Contains(strings.ReplaceAll(string(set), "Mycologia", "mycologia"), strings.ReplaceAll(c.has, "Mycologia", "mycologia")) {
				break
			}
		}
		if seed == 5000 {
			t.Errorf("%s: no setting has %q", c.name, c.has)
		}
	}
	same := 0
	for seed := range uint64(1000) {
		if set, _ := Vary(text, rows, sampleLabels, seed); string(set) == sample {
			same++
		}
	}
	if same < 100 || same > 250 {
		t.Errorf("%d of 1,000 settings leave the text as it stands", same)
	}
}

// TestLongest sets lines as long as paragraphs: a part of 0.3 of them in narrow ones
// was many times what there is to learn from.
func TestLongest(t *testing.T) {
	text := []byte(strings.Repeat(strings.Repeat("Pileus convexus ", 200)+"\n\n", 20))
	rows := yedda.Rows(text)
	labels, most := make([]string, len(rows)), 0
	for seed := range uint64(100) {
		set, moved := Vary(text, rows, labels, seed)
		if n := len(yedda.Rows(set)); n != len(moved) {
			t.Fatalf("%d rows, %d labels", n, len(moved))
		}
		most = max(most, len(moved))
	}
	if want := 4 * len(rows); most != want {
		t.Errorf("%d lines in the longest setting of %d, want %d", most, len(rows), want)
	}
}
