package feature

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// extract is Extract with exactly so many parts, however short the document.
func extract(text []byte, rows []yedda.Line, inputSize, workers int) *model.Batch {
	b := new(model.Batch)
	new(extractor).extract(b, text, rows, inputSize, workers)
	return b
}

// plainly runs f without assembly.
func plainly(f func()) {
	restore, _ := kernel.SwitchISA("generic")
	defer restore()
	f()
}

// fragments are what the random texts are made of.
var fragments = strings.Split("sp|nov|.|.| | | |  |n|gen|comb|nom|Fr|Pers|var|et|al|ex|=|&|5|19|98|1998|2011|mm|um|x|_|"+
	"Amanita|Boletus|cf|aff|muscaria|edulis|A|b|,|;|(|)|-|:|the|Cap|spores|\t|\r|\f|\n|\n|\n\n", "|")

// foreign are fragments beyond ASCII, and some that do not decode.
var foreign = strings.Split("µ|μ|Μ|×|é|É|ﬁ|\u0301|\u00a0|\u2003|–|≡|٣|²|Ⅷ|İ|Ⱥ|K|ẞ|ß|Ж|ж|漢|𝒳|\u00ad|‐|\ufffd|\xff|\xc3|\xe2\x82|\xf0\x9f", "|")

// randomText is n fragments, one of them in share beyond ASCII.
func randomText(r *rand.Rand, n, share int) []byte {
	var b bytes.Buffer
	for range n {
		if share > 0 && r.IntN(share) == 0 {
			b.WriteString(foreign[r.IntN(len(foreign))])
		} else {
			b.WriteString(fragments[r.IntN(len(fragments))])
		}
		if r.IntN(3) == 0 {
			b.WriteByte(' ')
		}
	}
	return b.Bytes()
}

// check reports what no Batch of n lines may have.
func check(t *testing.T, b *model.Batch, n, inputSize int) {
	t.Helper()
	if b.NumLines() != n || len(b.GroupScale) != n*model.Groups || len(b.Layout) != n*LayoutSize || b.Windows != nil {
		t.Fatalf("got %d lines, %d scales, %d numbers, %d windows for %d lines",
			b.NumLines(), len(b.GroupScale), len(b.Layout), len(b.Windows), n)
	}
	from := uint32(0)
	for k, end := range b.GroupEnd {
		if end < from {
			t.Fatalf("group %d of line %d ends before it begins", k%model.Groups, k/model.Groups)
		}
		want := float32(0)
		if end > from {
			want = float32(1 / math.Sqrt(float64(end-from)))
		}
		if got := b.GroupScale[k]; got != want {
			t.Fatalf("scale of %d ids: got %v, want %v", end-from, got, want)
		}
		from = end
	}
	if int(from) != len(b.IDs) {
		t.Fatalf("groups end at %d of %d ids", from, len(b.IDs))
	}
	for _, id := range b.IDs {
		if int(id) >= inputSize {
			t.Fatalf("id %d of %d", id, inputSize)
		}
	}
	for k, v := range b.Layout {
		if v64 := float64(v); math.IsNaN(v64) || math.IsInf(v64, 0) {
			t.Fatalf("line %d: number %d is %v", k/LayoutSize, k%LayoutSize, v)
		}
	}
}

func same(t *testing.T, got, want *model.Batch, what string) {
	t.Helper()
	if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.GroupEnd, want.GroupEnd) ||
		!slices.Equal(got.GroupScale, want.GroupScale) || !slices.Equal(got.Layout, want.Layout) {
		t.Fatalf("%s: features differ", what)
	}
}

func TestExtractEmpty(t *testing.T) {
	check(t, Extract(nil, nil, 10, 4), 0, 10)
	check(t, Extract([]byte("\n\f\n"), nil, 10, 4), 0, 10)
	// Blank lines are no rows, but must not break anything.
	text := []byte("\n \xff\n\ufffd\na\n\n")
	check(t, extract(text, yedda.Lines(text), 10, 1), 5, 10)
	check(t, extract(text, yedda.Lines(text), 10, 3), 5, 10)
}

// largest is the largest input size, 2³²−1 where an int holds it.
var largest = min(1<<32-1, math.MaxInt)

func TestInputSizeRange(t *testing.T) {
	for _, size := range []int{0, -1, largest + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("input size %d: no panic", size)
				}
			}()
			Extract([]byte("a"), []yedda.Line{{Start: 0, End: 1}}, size, 1)
		}()
	}
}

// An id is one hash, modulo the input size.
func TestInputSize(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("an int has 32 bits here, so that no input size leaves a hash as it is")
	}
	text := randomText(rand.New(rand.NewPCG(1, 1)), 4000, 9)
	rows := yedda.Rows(text)
	whole := extract(text, rows, largest, 1)
	for _, size := range []int{1, 2, 7, 2000, 1 << 14, 1 << 16, 1<<16 + 1, largest/2 + 1} {
		b := extract(text, rows, size, 1)
		check(t, b, len(rows), size)
		used := map[uint32]bool{}
		for i, id := range b.IDs {
			// The hash itself is whole.IDs[i] but for 2³²-1, which became 0.
			if h := whole.IDs[i]; id != uint32(uint64(h)%uint64(size)) && h != 0 {
				t.Fatalf("size %d: id %d of hash %d", size, id, h)
			}
			used[id] = true
		}
		if len(used) < min(size, 100) {
			t.Errorf("size %d: only %d ids in use", size, len(used))
		}
		if !slices.Equal(b.Layout, whole.Layout) {
			t.Errorf("size %d: the layout numbers changed", size)
		}
	}
}

func TestWorkers(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		text := randomText(r, 3+r.IntN(30000), 20)
		rows := yedda.Rows(text)
		want := extract(text, rows, 1<<16, 1)
		check(t, want, len(rows), 1<<16)
		for _, workers := range []int{2, 3, 7, 16} {
			same(t, extract(text, rows, 1<<16, workers), want, fmt.Sprintf("seed %d, %d rows, %d workers", seed, len(rows), workers))
		}
		same(t, Extract(text, rows, 1<<16, 4), want, "Extract")
	}
}

// Memory that was used for another document leaves no trace.
func TestReuse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	e, b := new(extractor), new(model.Batch)
	for i := range 200 {
		text := randomText(r, 1+r.IntN(2000), 1+r.IntN(30))
		rows := yedda.Rows(text)
		e.extract(b, text, rows, 1000, 1+i%3)
		same(t, b, extract(text, rows, 1000, 1), fmt.Sprintf("document %d", i))
		if i%2 == 0 {
			NewSurvey(text, rows, 1000, 1).ExtractTo(b, len(rows)/2, len(rows)/3)
		}
		spoil(b)
	}
}

// spoil leaves no number of b's memory as it is.
func spoil(b *model.Batch) {
	for _, s := range [][]float32{b.GroupScale, b.Layout} {
		for i := range s[:cap(s)] {
			s[:cap(s)][i] = -7
		}
	}
	for _, s := range [][]uint32{b.IDs, b.GroupEnd} {
		for i := range s[:cap(s)] {
			s[:cap(s)][i] = 1 << 31
		}
	}
}

// What lies outside text is not looked at.
func TestSurroundings(t *testing.T) {
	inner := "alba µ 12\nAmanita"
	want := Extract([]byte(inner), yedda.Rows([]byte(inner)), 1000, 1)
	around := []byte(inner + "rubra\xff99\n\f")
	text := around[:len(inner)]
	same(t, Extract(text, yedda.Rows(text), 1000, 1), want, "text with more behind it")
}

func TestLower(t *testing.T) {
	for _, c := range []struct{ text, lower string }{
		{"ABCXYZ[\\]^_`{|}~@", "abcxyz[\\]^_`{|}~@"},
		{"ÄÖÜ ÆŒ ÞÐ ŁŻ ÉÈ", "äöü æœ þð łż éè"},
		{"ﬁ ﬀ ﬂ ﬃ ﬄ", "ﬁ ﬀ ﬂ ﬃ ﬄ"},
		{"ГРИБ Ё Ѐ", "гриб ё ѐ"},
		{"İ ẞ Ⱥ K Å Ω", "i ß ⱥ k å ω"},
		{"𐐀Ａ", "𐐨ａ"},
		{"a1b23456 ७९", "a0b00000 00"},
		{"a\xffb\ufffdc\xc3", "abc"},
	} {
		var l line
		l.read([]byte(c.text))
		if got := string(l.low[l.from:l.end]); got != c.lower {
			t.Errorf("%q: got %q, want %q", c.text, got, c.lower)
		}
	}
}

// A line whose characters keep their places has the classes that one has whose
// characters are taken one after the other.
func TestClassify(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var got, want line
	mended := 0
	for range 20000 {
		text := bytes.ReplaceAll(randomText(r, r.IntN(60), 5+r.IntN(40)), []byte("\n"), nil)
		n := got.classify(text)
		want.low, want.masks = make([]byte, len(got.low)), make([]masks, len(got.masks))
		if end := want.classifyWide(text); n != end {
			t.Fatalf("%q: got %d bytes, want %d", text, n, end)
		}
		if string(got.low[:n]) != string(want.low[:n]) || !slices.Equal(got.masks[:n/64+1], want.masks[:n/64+1]) {
			t.Fatalf("%q: got %q with %x, want %q with %x", text, got.low[:n], got.masks[:n/64+1], want.low[:n], want.masks[:n/64+1])
		}
		for i, c := range want.orig {
			if c < utf8.RuneSelf && got.orig[i] != c {
				t.Fatalf("%q: byte %d: got %q, want %q", text, i, got.orig[i], c)
			}
		}
		if got.wide && len(got.orig) == len(text) && (n == 0 || &got.orig[0] == &text[0]) {
			mended++
		}
	}
	if mended < 1000 {
		t.Errorf("%d lines beyond ASCII kept their places", mended)
	}
}

// What does not decode is as if it were not there, though its line is read another way.
func TestUndecodable(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 60 {
		text := randomText(r, 1000, 30)
		var spoilt []byte
		for rest := text; len(rest) > 0; {
			_, size := utf8.DecodeRune(rest)
			spoilt = append(spoilt, rest[:size]...)
			rest = rest[size:]
			if r.IntN(20) == 0 {
				spoilt = append(spoilt, []string{"\xff", "\ufffd"}[r.IntN(2)]...)
			}
		}
		got, want := Extract(spoilt, yedda.Rows(spoilt), 1<<16, 1), Extract(text, yedda.Rows(text), 1<<16, 1)
		same(t, got, want, fmt.Sprintf("%q", spoilt))
	}
}

// A byte order mark before a text is as if it were not there. Where it stands alone
// the row has its features.
func TestByteOrderMark(t *testing.T) {
	for _, s := range []string{"Amanita muscaria\n  x", "\fA\n", " 5 mm", "\ufffdx\n", "\xff.\n", strings.Repeat("Boletus edulis\n", 40)} {
		text, marked := []byte(s), []byte("\ufeff"+s)
		rows := yedda.Rows(marked)
		same(t, Extract(marked, rows, 1<<16, 1), Extract(text, yedda.Rows(text), 1<<16, 1), fmt.Sprintf("%q", marked))
		got := new(model.Batch)
		NewSurvey(marked, rows, 1<<16, 1).ExtractTo(got, 0, len(rows))
		same(t, got, Extract(marked, rows, 1<<16, 1), fmt.Sprintf("survey of %q", marked))
	}
	for _, s := range []string{"\ufeff", "\ufeff\ufffd \nx"} {
		if b := Extract([]byte(s), yedda.Rows([]byte(s)), 1<<16, 1); b.GroupEnd[0] == 0 {
			t.Errorf("%q: the first row has no id", s)
		}
	}
}

// A character has the features of its class wherever it stands in the line,
// at every place within the words of the masks.
func TestPlaces(t *testing.T) {
	for _, tail := range []string{"Éa 1", "ﬁ-–7", "Amanita muscaria", "𝒳\xffy ٣٣"} {
		var want [3]int32
		var l line
		for pad := range 200 {
			l.read([]byte(strings.Repeat("É", 200))) // leaves bits behind
			l.read([]byte(strings.Repeat(".", pad) + tail + strings.Repeat(" ", pad%2)))
			k := l.tokens.n - 1
			got := [3]int32{l.tokens.runes[k], int32(l.tokens.class(k))<<8 | int32(l.shape(k)), int32(l.tokens.n - pad)}
			if pad == 0 {
				want = got
			} else if got != want {
				t.Fatalf("%q behind %d bytes: got %v, want %v", tail, pad, got, want)
			}
			if l.length != pad+len([]rune(strings.ReplaceAll(tail, "\xff", ""))) {
				t.Fatalf("%q behind %d bytes: length %d", tail, pad, l.length)
			}
		}
	}
}

// The patterns equal regular expressions, which are tried on ASCII here; the
// goldens have the rest of Unicode.
func TestPatterns(t *testing.T) {
	var (
		year     = regexp.MustCompile(`\b1[789]\d\d\b|\b20[01]\d\b`)
		measure  = regexp.MustCompile(`\d[\s\v]*(?:mm|cm|um\b|x[\s\v]*\d)`)
		author   = regexp.MustCompile(`\bsp\. ?nov|\bcomb\. ?nov|\bgen\. ?nov|\bnov\. ?sp|\bnom\. ?nov|\bvar\.|\bFr\.|\bPers\.|=|\bet al\b|&|\bex\b`)
		novelty  = regexp.MustCompile(`(?i)\bnov\b|\bn\. ?sp|\bn\. ?gen|\bn\. ?comb`)
		binomial = regexp.MustCompile(`\b([A-Z][a-z]{3,})[\s\v]+(?:cf\. |aff\. )?[a-z]{4,}`)
		first    = regexp.MustCompile(`^\W*\d*\W*([A-Z][a-z]+)`)
		blanks   = regexp.MustCompile(`[^a-z0-9]+`)
		numbers  = regexp.MustCompile(`\d+`)
	)
	key := func(word string) uint64 {
		return wordKey([]byte(strings.ToLower(word)+"0123456789abcdef"), 0, int32(len(word)))
	}
	r := rand.New(rand.NewPCG(5, 5))
	var l line
	norms, texts := map[string]uint64{}, map[uint64]string{}
	found := [6]int{}
	rare := []string{"Poria cf. minor", "Poria cf.\tminor", "Poria aff.\vminor", "Poria cf.  minor", "Poria cf.-minor", "Poria cf.minor", "Poria cf. Minor", "Poria cf."}
	for i := range 12000 {
		text := strings.TrimSpace(strings.ReplaceAll(string(randomText(r, 1+r.IntN(12), 0)), "\n", "\v"))
		if i < len(rare) {
			text = rare[i]
		}
		l.read([]byte(text))
		var m marks
		_, genera := l.find(&m, nil, nil)
		for k, c := range []struct {
			what      string
			got, want bool
		}{
			{"year", m.year, year.MatchString(text)},
			{"measure", m.measure, measure.MatchString(text)},
			{"author", m.author, author.MatchString(text)},
			{"novelty", m.novelty, novelty.MatchString(text)},
			{"first word", m.first != 0, first.MatchString(text)},
			{"binomial", len(genera) > 0, binomial.MatchString(text)},
		} {
			if c.got != c.want {
				t.Fatalf("%q: %s: got %v, want %v", text, c.what, c.got, c.want)
			}
			if c.want {
				found[k]++
			}
		}
		if w := first.FindStringSubmatch(text); w != nil && m.first != key(w[1]) {
			t.Fatalf("%q: another first word than %q", text, w[1])
		}
		var want []uint64
		for _, w := range binomial.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(want, key(w[1])) {
				want = append(want, key(w[1]))
			}
		}
		if !slices.Equal(genera, want) {
			t.Fatalf("%q: got %d genera, want %d", text, len(genera), len(want))
		}
		norm := strings.TrimSpace(numbers.ReplaceAllString(blanks.ReplaceAllString(strings.ToLower(text), " "), "0"))
		if (m.norm != 0) != (len(norm) > 2) {
			t.Fatalf("%q: norm %q: key %d", text, norm, m.norm)
		}
		if m.norm != 0 {
			if k, ok := norms[norm]; ok && k != m.norm {
				t.Fatalf("%q: norm %q has two keys", text, norm)
			}
			if other, ok := texts[m.norm]; ok && other != norm {
				t.Fatalf("norms %q and %q have one key", other, norm)
			}
			norms[norm], texts[m.norm] = m.norm, norm
		}
	}
	if slices.Min(found[:]) < 150 {
		t.Errorf("the random lines hardly try some pattern: %v", found)
	}
}

// A line of any length works, and the time it takes is in proportion.
func TestLongLines(t *testing.T) {
	for _, c := range []struct {
		what, unit string
	}{
		{"words", "Amanita muscaria "}, {"one word", "a"}, {"digits", "1"}, {"spaces", " "},
		{"stops", "."}, {"accents", "é"}, {"what does not decode", "\xff"}, {"growing", "Ⱥ"},
	} {
		text := []byte("a\nx" + strings.Repeat(c.unit, 1<<20/len(c.unit)) + "\nb")
		b := Extract(text, yedda.Rows(text), 1<<16, 1)
		check(t, b, 3, 1<<16)
		if n := len(b.IDs); n > 3*maxIDs {
			t.Errorf("%s: %d ids", c.what, n)
		}
	}
	var l line
	l.read([]byte(strings.Repeat("Ab ", 600) + "z."))
	if got := l.tokens.n; got != maxTokens {
		t.Errorf("got %d tokens, want %d", got, maxTokens)
	}
	if l.length != 1802 || l.letters != 2*maxTokens || l.words != maxTokens {
		t.Errorf("got length %d, %d letters, %d words", l.length, l.letters, l.words)
	}
}

// A line of tabs may have more columns than 32 bits can count.
func TestTabStop(t *testing.T) {
	for i, want := range map[int]int{0: 8, 7: 8, 8: 16, 1<<30 - 9: 1<<30 - 8, 1<<30 - 8: 1 << 30, 1 << 30: 1 << 30} {
		if got := tabStop(i); got != want {
			t.Errorf("column %d: got %d, want %d", i, got, want)
		}
	}
}

// Once memory has grown, a document costs a function value a stage, however many
// lines it has.
func TestAllocations(t *testing.T) {
	for _, n := range []int{2000, 20000} {
		text := randomText(rand.New(rand.NewPCG(6, 6)), n, 20)
		rows := yedda.Rows(text)
		e, b := new(extractor), new(model.Batch)
		e.extract(b, text, rows, 1<<16, 1)
		if got := testing.AllocsPerRun(5, func() { e.extract(b, text, rows, 1<<16, 1) }); got > 5 {
			t.Errorf("%d rows: %v allocations, want at most 5", len(rows), got)
		}
	}
}

func FuzzExtract(f *testing.F) {
	_, texts, _ := readGoldens(f)
	for i, text := range texts {
		f.Add(text, uint16(i*999), byte(i))
	}
	for _, s := range foreign {
		f.Add([]byte(s+"\n \f"+s+"a1 "+s), uint16(0), byte(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint16, workers byte) {
		rows := yedda.Rows(text)
		b := extract(text, rows, int(size)+1, 1)
		check(t, b, len(rows), int(size)+1)
		same(t, extract(text, rows, int(size)+1, 1+int(workers%8)), b, "more workers")
		plainly(func() { same(t, extract(text, rows, int(size)+1, 1), b, "without assembly") })
		lines := yedda.Lines(text)
		check(t, extract(text, lines, 1<<16, 1), len(lines), 1<<16)
	})
}

// Distinct words have distinct keys, also where they differ in few letters, at
// the ends of the 8 bytes that a key takes at a time.
func TestWordKeys(t *testing.T) {
	words := map[string]bool{}
	_, texts, _ := readGoldens(t)
	filepath.WalkDir(os.Getenv("LINNET_CORPUS"), func(path string, _ fs.DirEntry, err error) error {
		if src, err := os.ReadFile(path); err == nil && filepath.Ext(path) == ".ann" {
			texts = append(texts, yedda.Parse(src).Text)
		}
		return nil
	})
	for _, text := range texts {
		for _, w := range bytes.FieldsFunc(bytes.ToLower(text), func(r rune) bool { return infoOf(r).class != letter }) {
			words[string(w)] = true
		}
	}
	r := rand.New(rand.NewPCG(9, 9))
	for len(words) < 300_000 {
		w := make([]byte, 1+r.IntN(40))
		for i := range w {
			w[i] = byte('a' + r.IntN(26))
		}
		words[string(w)] = true
	}
	for range 3 {
		w := []byte("abcdefghijklmnopqrstuvwxyzabcdefghij")[:7+r.IntN(30)]
		for n := range 1 << 18 { // four letters at each of nine places
			for i, at := range []int{0, 6, 7, 8, 14, 15, 16, 31, 32} {
				if at < len(w) {
					w[at] = 'a' + byte(n>>(2*i)&3)
				}
			}
			words[string(w)] = true
		}
	}
	seen := make(map[uint64]string, len(words))
	for w := range words {
		key := wordKey([]byte(w+strings.Repeat("\x00", 16)), 0, int32(len(w)))
		if before, ok := seen[key]; ok || key == 0 {
			t.Fatalf("%q has the key of %q, %#x", w, before, key)
		}
		seen[key] = w
	}
}
