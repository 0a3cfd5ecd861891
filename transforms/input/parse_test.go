package input

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/transforms/store"
)

func TestParse(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"pair.txt":        "Agaricus é\n",
		"pair.ann":        "T1\tN 0 10\tAgaricus é\n",
		"empty.txt":       "Agaricus\n",
		"empty.ann":       "",
		"both.txt":        "Agaricus\n",
		"both.ann":        "[@Boletus#N*]\n",
		"both.txt.ann":    "T1\tN 0 8\tAgaricus\n",
		"alone.ann":       "T1\tN 0 8\tAgaricus\n",
		"wrong.txt":       "Aga\n",
		"wrong.ann":       "T1\tN 0 8\tAgaricus\n",
		"plain.txt":       "[@Agaricus#N*]\n",
		"yedda.txt.ann":   "[@Agaricus#N*]\n",
		"utf16":           "\xff\xfeA\x00",
		"utf16be.txt":     "\xfe\xff\x00A",
		"utf32":           "\xff\xfe\x00\x00A\x00\x00\x00",
		"utf32be.txt":     "\x00\x00\xfe\xff\x00\x00\x00A",
		"utf16.txt.ann":   "A\x00g\x00a\x00r\x00i\x00c\x00u\x00s\x00",
		"utf16be.txt.ann": "\x00A\x00g\x00a\x00r\x00i\x00c\x00u\x00s",
		"pdf.txt":         "%PDF-1.4\n%\xe2\xe3\xcf\xd3\n",
		"gzip.txt.ann":    "\x1f\x8b\x08\x00",
		"zip.txt":         "PK\x03\x04\x14\x00",
		"doc.txt":         "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00",
		"pk.txt":          "PK 3, see %PDF-\n",
		"zeros.txt":       "A\x00\x00\x00\x00\x00\x00\x00",
		"latin1.txt":      "\xff\xfe\xe9",
		"cr.txt":          "Agaricus\rPileus\r",
		"cr.txt.ann":      "[@Agaricus\rPileus\r#N*]",
		"crlf.txt":        "Agaricus\rPileus\r\n",
		"line.txt":        "Agaricus\r",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, annotated, want string // what with annotated, what without; "" is the same
	}{
		{"pair.txt", "pair.txt [{0 11 N}]", "pair.txt []"},
		{"pair.ann", "pair.txt [{0 11 N}]", "brat standoff, which is not YEDDA; give the .txt beside it"},
		{"empty.txt", "empty.txt []", ""},
		{"both.txt", "both.txt []", ""},
		{"both.ann", "both.ann [{0 7 N}]", ""},
		{"both.txt.ann", "both.txt [{0 8 N}]", "brat standoff, which"},
		{"alone.ann", "brat standoff without its text; put ", "brat standoff, which"},
		{"wrong.txt", filepath.Join(dir, "wrong.ann") + ": brat: line 1: 0 8 lies outside", "wrong.txt []"},
		{"wrong.ann", "brat: line 1: 0 8 lies outside", "brat standoff, which"},
		{"plain.txt", "plain.txt []", ""},
		{"yedda.txt.ann", "yedda.txt.ann [{0 8 N}]", ""},
		{"utf16", "UTF-16LE, which is not read; convert it with: iconv -f UTF-16LE -t UTF-8", ""},
		{"utf32", "UTF-32LE, which is not read; convert it with: iconv -f UTF-32LE -t UTF-8", ""},
		{"utf32be.txt", "UTF-32BE,", ""},
		{"utf16be.txt", "UTF-16BE, which is not read; convert it with: iconv -f UTF-16BE", ""},
		{"utf16.txt.ann", "UTF-16LE, which is not read; convert it with: iconv -f UTF-16LE", ""},
		{"utf16be.txt.ann", "UTF-16BE, which is not read; convert it with: iconv -f UTF-16BE", ""},
		{"pdf.txt", "PDF, which is not read; make text of it with: pdftotext -layout (of pages in columns: pdftotext)", ""},
		{"gzip.txt.ann", "gzip, which is not read; unpack it with: gunzip", ""},
		{"zip.txt", "a zip archive or a document such as .docx, which is not read; ", ""},
		{"cr.txt", "lines that end in CR alone, which are not read; convert them with: mac2unix", ""},
		{"cr.txt.ann", "lines that end in CR alone", ""},
		{"crlf.txt", "crlf.txt []", ""},
		{"line.txt", "line.txt []", ""},
		{"doc.txt", "an old Office document such as .doc, which is not read; save it as plain text", ""},
		{"pk.txt", "pk.txt []", ""},
		{"zeros.txt", "zeros.txt []", ""},
		{"latin1.txt", "latin1.txt []", ""},
	} {
		uri := filepath.Join(dir, c.name)
		data, err := os.ReadFile(uri)
		if err != nil {
			t.Fatal(err)
		}
		for _, annotated := range []bool{true, false} {
			want := c.annotated
			if !annotated && c.want != "" {
				want = c.want
			}
			d, at, err := Parse(t.Context(), uri, data, annotated, 0)
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(filepath.Base(at), " ", d.Spans)
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s, annotated %t: got %s, want %s", c.name, annotated, got, want)
			}
		}
	}
	_, _, err := Parse(t.Context(), "/in/it's.txt", []byte("\xff\xfeA\x00"), false, 0)
	if want := `UTF-16LE, which is not read; convert it with: iconv -f UTF-16LE -t UTF-8 '/in/it'\''s.txt' > '/in/it'\''s.txt.new' && mv '/in/it'\''s.txt.new' '/in/it'\''s.txt'`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, _, err = Parse(t.Context(), filepath.Join(dir, "pair.txt"), []byte("Agaricus é\n"), true, 3)
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("an annotation above the limit: %v", err)
	}
	_, _, err = Parse(t.Context(), filepath.Join(dir, "pair.ann"), []byte("T1\tN 0 8\tAgaricus\n"), true, 3)
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a text above the limit: %v", err)
	}
}

// TestForeign has texts of one byte a letter, and UTF-8 with bytes here and there
// that are none.
func TestForeign(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"nothing", "", false},
		{"ASCII", "Agaricus", false},
		{"UTF-8", "Pileus 3–5 mm, à marge striée, später glatt", false},
		{"Latin-1", "Chapeau \xe0 marge stri\xe9e, sp\xe4ter gl\xe4nzend", true},
		{"a stray byte", "Pileus 3\x965 mm", false},
		{"cut through a character", "sporae \xf0\x9f\x8d", false},
		{"stray bytes beside as much UTF-8", "é à ü ö ß \xe9\xe9 \xe4 \xe4 \xe4", false},
		{"U+FFFD", "\ufffd \ufffd \ufffd \ufffd \ufffd", false},
		{"Latin-1 with letters that look like UTF-8", "\xe9 \xe9 \xe9 \xe9 \xc3\xa9", true},
	} {
		if got := Foreign([]byte(c.text)); got != c.want {
			t.Errorf("%s: got %t, want %t", c.name, got, c.want)
		}
	}
}
