package yedda

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestAnnotatedDocuments holds the project's own annotated documents to their
// promises: no markup goes astray, every line that is a row is labelled but
// for a few, and each document of the sample is one of them without markup.
func TestAnnotatedDocuments(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata")
	files, err := filepath.Glob(filepath.Join(dir, "annotated", "*.txt.ann"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no annotated documents in %s: %v", dir, err)
	}
	samples := 0
	count := map[string]int{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := Parse(src)
			for _, w := range d.Warnings {
				t.Errorf("line %d: %s", w.Line, w.What)
			}
			rows := Rows(d.Text)
			labels := d.LineLabels(rows)
			outside := 0
			for _, l := range labels {
				count[l]++
				if l == "" {
					outside++
				}
			}
			if len(rows) < 40 || outside > len(rows)/10 {
				t.Errorf("%d of %d rows are outside every span", outside, len(rows))
			}
			if out := Format(d.Text, SpansOf(d.Text, rows, labels)); !Recovers(out, d.Text) {
				t.Error("its text does not come back")
			}
			sample, err := os.ReadFile(filepath.Join(dir, "sample", strings.TrimSuffix(filepath.Base(file), ".ann")))
			if os.IsNotExist(err) {
				return
			}
			if err != nil || !bytes.Equal(sample, d.Text) {
				t.Errorf("the sample is another text (%v)", err)
			}
			samples++
		})
	}
	if all, _ := filepath.Glob(filepath.Join(dir, "sample", "*")); len(all) != samples || samples < 4 {
		t.Errorf("%d of the %d files of the sample are annotated", samples, len(all))
	}
	for _, label := range []string{"Nomenclature", "Description", "Misc-exposition", "Bibliography", "Page-header", "Key", "Figure", "Habitat-distribution", "Diagnosis"} {
		if count[label] < 5 {
			t.Errorf("%d lines of %s", count[label], label)
		}
	}
	t.Logf("lines by label: %v", count)

	for name, odd := range map[string]func(b []byte) bool{
		"survey.txt":     func(b []byte) bool { return bytes.Count(b, []byte("\r\n")) == bytes.Count(b, newline) },
		"lichens.txt":    func(b []byte) bool { return !utf8.Valid(b) },
		"key.txt":        func(b []byte) bool { return !bytes.HasSuffix(b, newline) },
		"typescript.txt": func(b []byte) bool { return bytes.Contains(b, []byte("\n\ufffd\ufffd\ufffd \ufffd\n")) },
		"protologue.txt": func(b []byte) bool { return bytes.Contains(b, []byte("\n\f")) && bytes.Contains(b, []byte("ﬁ")) },
	} {
		b, err := os.ReadFile(filepath.Join(dir, "sample", name))
		if err != nil || !odd(b) {
			t.Errorf("%s has lost what is odd about it (%v)", name, err)
		}
	}
}
