package yedda

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// corpus gives every annotated file of the corpus to check.
func corpus(t *testing.T, check func(t *testing.T, name string, src []byte)) {
	t.Helper()
	dir := os.Getenv("LINNET_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	if !exists(dir) {
		t.Skipf("the annotated corpus is missing: no folder %s; set LINNET_CORPUS", dir)
	}
	n := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".ann") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		name, _ := filepath.Rel(dir, path)
		check(t, name, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Fatalf("%s holds no *.ann", dir)
	}
	t.Logf("%d files", n)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestCorpusRoundTrip takes the markup out of every file, puts it in again as
// it was and as lines would have it, and wants the text back each time.
func TestCorpusRoundTrip(t *testing.T) {
	var spans, warnings, stray, misclosed, unclosed, asLines int
	corpus(t, func(t *testing.T, name string, src []byte) {
		d := Parse(src)
		spans += len(d.Spans)
		warnings += d.NumWarnings
		for _, w := range d.Warnings {
			switch {
			case strings.Contains(w.What, "nothing and is taken out"):
				stray++
			case strings.Contains(w.What, "has no #"):
				misclosed++
			case strings.Contains(w.What, "never closed"):
				unclosed++
			}
		}
		out := Format(d.Text, d.Spans)
		again := Parse(out)
		if !bytes.Equal(again.Text, d.Text) || !slices.Equal(again.Spans, d.Spans) {
			t.Errorf("%s: Format and Parse change it", name)
		}
		rows := Rows(d.Text)
		labels := d.LineLabels(rows)
		made := SpansOf(d.Text, rows, labels)
		asLines += len(made)
		out = Format(d.Text, made)
		again = Parse(out)
		if !bytes.Equal(again.Text, d.Text) || !slices.Equal(again.LineLabels(rows), labels) {
			t.Errorf("%s: labels or text do not come back from lines", name)
		}
	})
	t.Logf("%d spans; %d warnings: %d closers stray, %d misclosed, %d openers unclosed; %d spans made of lines",
		spans, warnings, stray, misclosed, unclosed, asLines)
}

// TestCorpusLineLabels holds LineLabels to the definition by which line
// labelling is scored, written down here a second time, character by
// character: a stray closer is text there. Files without one must agree in
// every line; in those with one, once it is taken out.
func TestCorpusLineLabels(t *testing.T) {
	var files, closers, lines, labelled int
	corpus(t, func(t *testing.T, name string, src []byte) {
		d := Parse(src)
		rows := Rows(d.Text)
		got := d.LineLabels(rows)

		want, stray := scoredLines(string(src), true)
		if len(stray) > 0 {
			files++
			closers += len(stray)
			kept, _ := scoredLines(string(src), false)
			t.Logf("%s: %d stray closers; %d lines with them, %d without", name, len(stray), len(kept), len(want))
		}
		// The definition scores lines of U+FFFD; they are no rows.
		want = slices.DeleteFunc(want, func(l scoredLine) bool { return strings.Trim(l.text, " \ufffd") == "" })
		if len(got) != len(want) {
			t.Errorf("%s: %d rows, want %d", name, len(got), len(want))
			return
		}
		for i, w := range want {
			text := strings.Join(strings.FieldsFunc(string(d.Text[rows[i].Start:rows[i].End]), pythonSpace), " ")
			if strings.ToValidUTF8(text, "\ufffd") != w.text || got[i] != w.label {
				t.Errorf("%s: row %d is labelled %q, want %q, or is another line", name, i, got[i], w.label)
				return
			}
			lines++
			if w.label != "" {
				labelled++
			}
		}
	})
	t.Logf("%d lines, %d labelled; %d files with %d stray closers", lines, labelled, files, closers)
}

type scoredLine struct{ text, label string }

// scoredLines gives the lines of an annotated text that are scored. Stray
// closers are text unless strip is set; it returns them as well.
func scoredLines(src string, strip bool) (out []scoredLine, stray []string) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	type span struct {
		start, end int
		label      string
	}
	var (
		raw   []rune
		stack []int
		spans []span
		pos   int
	)
	for _, m := range tokenPattern.FindAllStringIndex(src, -1) {
		raw = append(raw, []rune(src[pos:m[0]])...)
		token := src[m[0]:m[1]]
		pos = m[1]
		switch {
		case token == "[@":
			stack = append(stack, len(raw))
		case len(stack) > 0:
			spans = append(spans, span{stack[len(stack)-1], len(raw), token[1 : len(token)-2]})
			stack = stack[:len(stack)-1]
		default:
			stray = append(stray, token)
			if !strip {
				raw = append(raw, []rune(token)...)
			}
		}
	}
	raw = append(raw, []rune(src[pos:])...)
	owner := make([]string, len(raw))
	// Widest first; of equally wide ones, first closed first.
	slices.SortStableFunc(spans, func(a, b span) int { return (b.end - b.start) - (a.end - a.start) })
	for _, s := range spans {
		for i := s.start; i < s.end; i++ {
			owner[i] = s.label
		}
	}
	var (
		order  []string // the owners met in a line, in order
		counts []int
	)
	for start := 0; start <= len(raw); {
		end := start
		for end < len(raw) && raw[end] != '\n' {
			end++
		}
		order, counts = order[:0], counts[:0]
		for i := start; i < end; i++ {
			if pythonSpace(raw[i]) {
				continue
			}
			k := slices.Index(order, owner[i])
			if k < 0 {
				k = len(order)
				order, counts = append(order, owner[i]), append(counts, 0)
			}
			counts[k]++
		}
		if len(order) > 0 {
			best := slices.Index(counts, slices.Max(counts))
			out = append(out, scoredLine{strings.Join(strings.FieldsFunc(string(raw[start:end]), pythonSpace), " "), order[best]})
		}
		start = end + 1
	}
	return out, stray
}

func pythonSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }
