package typeset

import (
	"bytes"
	"maps"
	"math"
	"math/rand/v2"
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
		if unicode.IsSpace(r) || strings.ContainsRune("-1eo0iu5.,"+consonants, r) || r == unicode.ReplacementChar {
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
			"Agaricus fictus", " Doe, ", "a23 ", "4a6", "7y8z", ",", "\n", "\n", "\n\n", "\n  ", "\f", "\r\n", "pi-\nleus", "a-", "\tSporæ ", "\u00a0", "\xff", "É", "-", "ß",
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
		if len(moved) == maxGrowth*len(labels) { // the rest may be left out
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
		{"few words", "  12. Agaricus fictus\nPileus convex, brown"},
		{"as it stands", sample},
	} {
		seed := uint64(0)
		for ; seed < 5000; seed++ {
			if set, _ := Vary(text, rows, sampleLabels, seed); strings.Contains(string(set), c.has) {
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
	if same < 15 || same > 60 {
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

// set is a text of lines, each with a label before it, "" for that of the one above,
// and what is before it but for a line break.
func set(rows ...string) (lines []line) {
	label := ""
	for i, r := range rows {
		l, text, ok := strings.Cut(r, "|")
		if !ok {
			l, text = "", r
		}
		if l != "" {
			label = l
		}
		before := "\n"
		if i == 0 {
			before = ""
		}
		body := strings.TrimLeft(text, "\n")
		lines = append(lines, line{[]byte(before + text[:len(text)-len(body)]), []byte(body), label})
	}
	return lines
}

func unset(lines []line) string {
	text, _ := join(lines)
	return string(text)
}

// TestFill sets paragraphs that end and begin in every way.
func TestFill(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []line
		width int
		want  string
	}{
		{"parted words", set("A|gla-", "brous b-", "a-", "z and so", "on- and", "on"), 0, "glabrous baz and so on- and on"},
		{"no parted words", set("A|gla-", "Brous -", "a 5-", "{x"), 0, "gla- Brous - a 5- {x"},
		{"a blank line", set("A|one", "two", "\nthree", "four"), 0, "one two\n\nthree four"},
		{"a label", set("A|one", "B|two", "A|three"), 0, "one\ntwo\nthree"},
		{"set in", set("A|one", "  two", "   three", "     four", " five"), 0, "one\n  two three\n     four five"},
		{"a page", set("A|one", "two", "\fthree", "four"), 0, "one two\n\fthree four"},
		{"first lines", set("A|\n\none", "two"), 0, "\n\none two"},
		{"width", set("A|aaaa bbbb", "cc dd ee"), 9, "aaaa bbbb\ncc dd ee"},
		{"less width", set("A|aaaa bbbb cc"), 8, "aaaa\nbbbb cc"},
		{"long words", set("A|aaaa bbbb"), 3, "aaaa\nbbbb"},
		{"nothing to label alone", set("A|aaaa \uFFFD bbbb"), 3, "aaaa \uFFFD\nbbbb"},
		{"nothing to label first", set("A|\uFFFD bbbb cc"), 3, "\uFFFD bbbb\ncc"},
	} {
		if got := unset(fill(c.lines, c.width)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// shortened are the settings that shorten may draw in TestDraws: of a run of four
// lines all, of two the first one or both, of six words two to five or all.
func shortened() (all []string) {
	for _, b := range []string{"  a b", "  a b\nc"} {
		for _, a := range []string{"d e", "d e f", "d e f g", "d e f g h", "d e f g h i"} {
			all = append(all, "one\ntwo\nthree\nfour\n"+b+"\n"+a+"\n\uFFFD \uFFFD \uFFFD \uFFFD \uFFFD j")
		}
	}
	slices.Sort(all)
	return all
}

// TestDraws has what is drawn for each run, paragraph or character: all that may
// come of it, and nothing else.
func TestDraws(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*rand.Rand) []line
		want []string
	}{
		{"abridged", func(r *rand.Rand) []line { return abridge(set("A|one, two;", "three", "B| , four", "\uFFFD,"), r) },
			[]string{"one\n , four", "one\n , four\n\uFFFD,", "one, two;\nthree\n , four", "one, two;\nthree\n , four\n\uFFFD,"}},
		{"abridged at signs", func(r *rand.Rand) []line { return abridge(set("A| \uFFFD, one"), r) }, []string{" \uFFFD, one"}},
		{"abridged at a semicolon", func(r *rand.Rand) []line { return abridge(set("A| a; b, c"), r) }, []string{" a", " a; b, c"}},
		{"shortened", func(r *rand.Rand) []line {
			return shorten(set("A|one", "two", "three", "four", "B|  a b", "c", "A|d e f g h i", "B|\uFFFD \uFFFD \uFFFD \uFFFD \uFFFD j"), r)
		}, shortened()},
		{"capitals", func(r *rand.Rand) []line {
			l := set("A|  one two three", "four", "B|five")
			capitalise(l, r)
			return l
		}, []string{"  ONE TWO three\nfour\nFIVE", "  ONE TWO three\nfour\nfive", "  one two three\nfour\nFIVE", "  one two three\nfour\nfive"}},
		{"a line between", func(*rand.Rand) []line {
			l := set("A|\none", "two", "\nthree", "\n\f\nfour", "\ffive")
			l[3].before = []byte("\n\f\n")
			l[3].text = []byte("four")
			space(l, "\n\n")
			return l
		}, []string{"\none\n\ntwo\n\nthree\n\f\nfour\n\n\ffive"}},
	} {
		seen := map[string]bool{}
		for seed := range uint64(100) {
			seen[unset(c.set(rand.New(rand.NewPCG(seed, 0))))] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	const n = 100_000
	got := string(addOCRErrors([]byte(strings.Repeat("lx", n)), rand.New(rand.NewPCG(1, 1))))
	wrong, spaces := strings.Count(got, "1"), strings.Count(got, " ")
	if math.Abs(float64(wrong)-n/20) > n/400 || math.Abs(float64(spaces)-2*n/100) > n/1000 || strings.Count(got, "x") != n || len(got) != 2*n+spaces {
		t.Errorf("of %d l and as many x %d are misread, with %d spaces", n, wrong, spaces)
	}
}

// TestGarble holds words to what stays of them, and about half of many to a change.
func TestGarble(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	changed, to := 0, map[rune]rune{}
	var words []string
	for range 1000 {
		w := []byte{'B', 'a', 'a', 'a', 'a', 'a', 'd', 'e', 'f'}
		for i := 1; i < 6; i++ {
			w[i] = consonants[rnd.IntN(len(consonants))]
		}
		words = append(words, string(w))
	}
	text := strings.Join(words, " ")
	lines := set("A|"+text, strings.ToUpper(text), "B|"+text, "bede gade lebe made neve wife jute hope vale tree bbb2ccc Éé\xff")
	garble(lines, rnd)
	if got := string(lines[1].text); got != strings.ToUpper(string(lines[0].text)) || string(lines[2].text) != string(lines[0].text) {
		t.Error("equal words do not stay equal")
	}
	if got := string(lines[3].text); got != "bede gade lebe made neve wife jute hope vale tree bbb2ccc Éé\xff" {
		t.Errorf("got %q of short words", got)
	}
	got := strings.Fields(string(lines[0].text))
	for i, w := range words {
		if got[i] == w {
			continue
		}
		changed++
		if len(got[i]) != len(w) || got[i][6:] != "def" {
			t.Fatalf("%q became %q", w, got[i])
		}
		for k, r := range strings.ToLower(w[:6]) {
			if other := unicode.ToLower(rune(got[i][k])); to[r] != 0 && to[r] != other {
				t.Fatalf("%q became both %q and %q", r, to[r], other)
			} else {
				to[r] = other
			}
		}
	}
	if changed < 400 || changed > 600 || len(to) != len(consonants) {
		t.Errorf("%d of 1,000 words changed, by %d consonants", changed, len(to))
	}
	seen := map[rune]bool{}
	for _, other := range to {
		seen[other] = true
	}
	if len(seen) != len(to) {
		t.Errorf("%d consonants became %d", len(to), len(seen))
	}
}
