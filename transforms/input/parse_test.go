package input

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

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
		"bom.txt":         "Agaricus\n",
		"bom.ann":         "\ufeff\r\n", // as Windows saves it without an annotation
		"wide.txt":        "A\n",
		"wide.ann":        "\xff\xfeT\x001\x00",
		"wrong.txt":       "Aga\n",
		"wrong.ann":       "T1\tN 0 8\tAgaricus\n",
		"plain.txt":       "[@Agaricus#N*]\n",
		"yedda.txt.ann":   "[@Agaricus#N*]\n",
		"utf16":           "\xff\xfeA\x00",
		"utf16be.txt":     "\xfe\xff\x00A",
		"utf16cut.txt":    "\xff\xfeA\x00g\x00\n",
		"utf32":           "\xff\xfe\x00\x00A\x00\x00\x00",
		"utf32be.txt":     "\x00\x00\xfe\xff\x00\x00\x00A",
		"utf16.txt.ann":   "A\x00g\x00a\x00r\x00i\x00c\x00u\x00s\x00",
		"utf16be.txt.ann": "\x00A\x00g\x00a\x00r\x00i\x00c\x00u\x00s",
		"pdf.txt":         "%PDF-1.4\n%\xe2\xe3\xcf\xd3\n",
		"gzip.txt.ann":    "\x1f\x8b\x08\x00",
		"zip.txt":         "PK\x03\x04\x14\x00",
		"doc.txt":         "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00",
		"bz2.txt":         "BZh91AY&SYwK\xb0\x14\x00\x00\x00\x00\x80\x00@ \x00!\x18F\x82\xeeH\xa7\x0a\x12\x0e\xe9v\x02\x80", // of python3's bz2
		"bz2fast.txt":     "BZh11AY&SYwK\xb0\x14\x00\x00\x00\x00\x80\x00@ \x00!\x18F\x82\xeeH\xa7\x0a\x12\x0e\xe9v\x02\x80", // with compresslevel=1
		"bz2none.txt":     "BZh9\x17rE8P\x90\x00\x00\x00\x00",                                                               // of nothing
		"bz2.not.txt":     "BZh is a name\n",
		"xz.txt":          "\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F\x02\x00!\x01\x16\x00\x00\x00t/\xe5\xa3", // of its lzma
		"zst.txt":         "(\xb5/\xfd\x04X\x09\x00\x00x",                                             // RFC 8878, 3.1.1
		"rtf.txt":         "{\\rtf1\\ansi Agaricus\\par\n}\n",
		"djvu.txt":        "AT&TFORM\x00\x00\x01\x00DJVM",
		"ps.txt":          "%!PS-Adobe-3.0\n",
		"jpeg":            "\xff\xd8\xff\xe0\x00\x10JFIF",
		"png":             "\x89PNG\r\n\x1a\n",
		"tiff":            "II*\x00\x08\x00\x00\x00\x0b\x00\x00\x01\x04\x00\x01\x00\x00\x00\x80\x00\x00\x00", // as UTF-16 is, for the most part
		"jp2":             "\x00\x00\x00\x0cjP  \r\n\x87\n",
		"gif.txt":         "GIF89a",
		"pk.txt":          "PK 3, see %PDF-\n",
		"zeros.txt":       "A\x00\x00\x00\x00\x00\x00\x00",
		"latin1.txt":      "\xff\xfe\xe9",
		"cr.txt":          "Agaricus\rPileus\r",
		"cr.txt.ann":      "[@Agaricus\rPileus\r#N*]",
		"crlf.txt":        "Agaricus\rPileus\r\n",
		"crend.txt":       "Agaricus\rPileus\rLamellae\rSporae\r\n",
		"crlast.txt.ann":  "[@Agaricus\rPileus#N*]\rLamellae\rSporae\rHabitat\n",
		"crcrlf.txt":      "Agaricus\r\r\r\nPileus\r\r\r\n",
		"crlfs.txt":       strings.Repeat("Agaricus\r\n", 9),
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
		{"bom.txt", "bom.txt []", ""},
		{"both.txt", filepath.Join(dir, "both.ann") + " does not begin with brat standoff; if it is YEDDA, call it " + filepath.Join(dir, "both.txt.ann"), "both.txt []"},
		{"wide.txt", filepath.Join(dir, "wide.ann") + ": UTF-16LE, which is not read; convert it with: iconv -f UTF-16LE -t UTF-8 '" + filepath.Join(dir, "wide.ann"), "wide.txt []"},
		{"both.ann", "both.ann [{0 7 N}]", ""},
		{"both.txt.ann", "both.txt [{0 8 N}]", "brat standoff, which"},
		{"alone.ann", "brat standoff without its text; put ", "brat standoff, which"},
		{"wrong.txt", filepath.Join(dir, "wrong.ann") + ": brat: line 1: 0 8 lies outside", "wrong.txt []"},
		{"wrong.ann", "brat: line 1: 0 8 lies outside", "brat standoff, which"},
		{"plain.txt", "plain.txt []", ""},
		{"yedda.txt.ann", "yedda.txt.ann [{0 8 N}]", ""},
		{"utf16", "UTF-16LE, which is not read; convert it with: ", ""},
		{"utf16cut.txt", "UTF-16LE, which is not read", ""},
		{"utf32", "UTF-32LE, which is not read; convert it with: ", ""},
		{"utf32be.txt", "UTF-32BE,", ""},
		{"utf16be.txt", "UTF-16BE, which is not read; convert it with: ", ""},
		{"utf16.txt.ann", "UTF-16LE, which is not read; convert it with: ", ""},
		{"utf16be.txt.ann", "UTF-16BE, which is not read; convert it with: ", ""},
		{"pdf.txt", "PDF, which is not read; make text of it with: pdftotext -layout (of pages in columns: pdftotext)", ""},
		{"gzip.txt.ann", "gzip, which is not read; let its name end in .gz, then unpack it with: gunzip", ""},
		{"zip.txt", "a zip archive or a document such as .docx, which is not read; ", ""},
		{"cr.txt", "lines that end in CR alone, which are not read; convert it with: ", ""},
		{"cr.txt.ann", "lines that end in CR alone", ""},
		{"crlf.txt", "crlf.txt []", ""},
		{"crend.txt", "lines that end in CR alone, which are not read; convert it with: ", ""},
		{"crlast.txt.ann", "lines that end in CR alone", ""},
		{"crcrlf.txt", "crcrlf.txt []", ""},
		{"crlfs.txt", "crlfs.txt []", ""},
		{"line.txt", "line.txt []", ""},
		{"bz2.txt", "bzip2, which is not read; let its name end in .bz2, then unpack it with: bunzip2", ""},
		{"bz2fast.txt", "bzip2, which is not read", ""},
		{"bz2none.txt", "bzip2, which is not read", ""},
		{"bz2.not.txt", "bz2.not.txt []", ""},
		{"xz.txt", "xz, which is not read; let its name end in .xz, then unpack it with: unxz", ""},
		{"zst.txt", "zstd, which is not read; let its name end in .zst, then unpack it with: unzstd", ""},
		{"rtf.txt", "RTF, which is not read; save it as plain text", ""},
		{"doc.txt", "an old Office document such as .doc, which is not read; save it as plain text", ""},
		{"djvu.txt", "DjVu, which is not read; make text of it with: djvutxt", ""},
		{"ps.txt", "PostScript, which is not read; make text of it with: ps2ascii", ""},
		{"jpeg", picture, ""},
		{"png", picture, ""},
		{"tiff", picture, ""},
		{"jp2", picture, ""},
		{"gif.txt", picture, ""},
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
	for _, c := range []struct{ data, want, windows string }{
		{"\xff\xfeA\x00", `UTF-16LE, which is not read; convert it with: iconv -f UTF-16LE -t UTF-8 '/in/it'\''s.txt' > '/in/it'\''s.txt.new' && mv '/in/it'\''s.txt.new' '/in/it'\''s.txt'`,
			`UTF-16LE, which is not read; convert it with: powershell -c "[IO.File]::WriteAllText('/in/it''s.txt', [IO.File]::ReadAllText('/in/it''s.txt', [Text.Encoding]::GetEncoding('UTF-16LE')))"`},
		{"a\rb\r", `lines that end in CR alone, which are not read; convert it with: tr '\r' '\n' < '/in/it'\''s.txt' > '/in/it'\''s.txt.new' && mv '/in/it'\''s.txt.new' '/in/it'\''s.txt'`,
			`lines that end in CR alone, which are not read; convert it with: powershell -c "[IO.File]::WriteAllBytes('/in/it''s.txt', [byte[]]([IO.File]::ReadAllBytes('/in/it''s.txt') -replace '\b13\b', 10))"`},
	} {
		if runtime.GOOS == "windows" {
			c.want = c.windows
		}
		if _, _, err := Parse(t.Context(), "/in/it's.txt", []byte(c.data), false, 0); fmt.Sprint(err) != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	_, _, err := Parse(t.Context(), filepath.Join(dir, "pair.txt"), []byte("Agaricus é\n"), true, 3)
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("an annotation above the limit: %v", err)
	}
	_, _, err = Parse(t.Context(), filepath.Join(dir, "pair.ann"), []byte("T1\tN 0 8\tAgaricus\n"), true, 3)
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a text above the limit: %v", err)
	}
}

// TestConverts runs the command that a document is answered with.
func TestConverts(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("no bash")
	}
	for _, name := range []string{"x.txt", "it's.txt", "x\ny.txt", "x\r\n'y.txt", "$x`\\n", "\t\x1b[31m\u0085", "caf\xe9", "\xff'\xfe9", "é\ufffd"} {
		uri := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(uri, []byte("a\rb\r"), 0o600); err != nil {
			if utf8.ValidString(name) {
				t.Fatal(err)
			}
			continue // a disk of UTF-8 alone
		}
		_, _, err := Parse(t.Context(), uri, []byte("a\rb\r"), false, 0)
		_, command, _ := strings.Cut(err.Error(), "convert it with: ")
		if !utf8.ValidString(command) || strings.ContainsFunc(command, unicode.IsControl) {
			t.Errorf("%q: the command %q is no line of UTF-8", name, command)
		}
		cmd := exec.Command(bash, "-c", command)
		cmd.Env = append(os.Environ(), "LC_ALL=C") // as under cron
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %s: %v: %s", name, command, err, out)
		}
		if got, _ := os.ReadFile(uri); string(got) != "a\nb\n" {
			t.Errorf("%q: %s makes %q", name, command, got)
		}
	}
}

// TestWide has UTF-16 and UTF-32 without byte order marks, and text with zeros.
func TestWide(t *testing.T) {
	bytesOf := func(text string, size int, order binary.AppendByteOrder) string {
		var b []byte
		for _, r := range text {
			if size == 2 {
				b = order.AppendUint16(b, uint16(r))
			} else {
				b = order.AppendUint32(b, uint32(r))
			}
		}
		return string(b)
	}
	le, be := binary.LittleEndian, binary.BigEndian
	long := strings.Repeat("Agaricus campestris L., ad terram. ", 99)
	cyrillic := "Русула съедобная, шляпка\nдо 9 см, ножка белая\n"
	for _, c := range []struct{ name, data, want string }{
		{"UTF-16LE", bytesOf(long, 2, le), "UTF-16LE"},
		{"UTF-16BE", bytesOf(long, 2, be), "UTF-16BE"},
		{"UTF-16LE, and a line's end", bytesOf("Agaricus", 2, le) + "\n", "UTF-16LE"},
		{"UTF-16BE, and a line's end", bytesOf(long, 2, be) + "\n", "UTF-16BE"},
		{"UTF-16LE with U+0100", bytesOf("Āgenskalns", 2, le), "UTF-16LE"},
		{"UTF-16BE with U+0100", bytesOf(long+"Ā", 2, be), "UTF-16BE"},
		{"UTF-16BE that begins with U+0100", bytesOf("Ā"+long, 2, be), "UTF-16BE"},
		{"UTF-16LE of Russian", bytesOf(cyrillic, 2, le), "UTF-16LE"},
		{"UTF-16BE of Russian", bytesOf(cyrillic, 2, be), "UTF-16BE"},
		{"UTF-16LE of Hindi", bytesOf(strings.Repeat("नई प्रजाति का वर्णन\n", 9), 2, le), "UTF-16LE"},
		{"UTF-16BE of Greek", bytesOf(strings.Repeat("νέο είδος, περιγραφή\n", 9), 2, be), "UTF-16BE"},
		{"UTF-16LE of Russian sizes", bytesOf(strings.Repeat("Русула, споры 8–10 × 4–5–6 мкм\n", 9), 2, le), "UTF-16LE"}, // U+0420 and U+2013 have 0x20
		{"UTF-16LE of Chinese", bytesOf(strings.Repeat("“上文”不同的名，新种…\n", 9), 2, le), "UTF-16LE"},                         // U+4E0A, U+4E0D, U+540D
		{"UTF-16BE of Gujarati", bytesOf(strings.Repeat("નવી પ્રજાતિનું વર્ણન\n", 9), 2, be), "UTF-16BE"},                // U+0Axx
		{"UTF-32LE", bytesOf(long, 4, le), "UTF-32LE"},
		{"UTF-32BE", bytesOf(long, 4, be), "UTF-32BE"},
		{"UTF-32LE, and a line's end", bytesOf("Agaricus", 4, le) + "\r\n", "UTF-32LE"},
		{"UTF-32BE, and a line's end", bytesOf("Agaricus", 4, be) + "\n", "UTF-32BE"},
		{"UTF-32LE with U+0100 and U+1F344", bytesOf("Āgenskalns 🍄", 4, le), "UTF-32LE"},
		{"UTF-32BE of Chinese", bytesOf("蘑菇新种的描述", 4, be), "UTF-32BE"},
		{"ASCII", long, ""},
		{"zeros here and there", strings.Repeat("Agaricus\x00 campestris\x00\x00 L.", 99), ""},
		{"a zero behind each fourth letter", strings.Repeat("Aga\x00ricu\x00", 99), ""},
		{"every fourth byte is zero", strings.Repeat("Aga\x00", 99), ""},
		{"lines padded to 80 bytes", strings.Repeat("Agaricus"+strings.Repeat("\x00", 71)+"\n", 99), ""},
		{"lines padded to 3 bytes", strings.Repeat("A\x00\n", 99), ""},
		{"words, zeros before lines' ends", strings.Repeat("Agaricus campestre\x00\n", 99), ""},
		{"words, zeros behind lines' ends", strings.Repeat("Agaricus campestre\n\x00", 99), ""},
		{"a word, a zero before its line's end", strings.Repeat("Agaricus\x00\n", 99), ""},
		{"a word, a zero behind its line's end", strings.Repeat("Agaricus\n\x00", 99), ""},
		{"a letter and zeros", "A" + strings.Repeat("\x00", 1999), ""},
		{"zeros", strings.Repeat("\x00", 2000), ""},
	} {
		if got := wideEncoding([]byte(c.data)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestPowerShell has names as Windows takes them.
func TestPowerShell(t *testing.T) {
	for uri, quoted := range map[string]string{
		`C:\in\a b.txt`: `'C:\in\a b.txt'`,
		`in\O'Neil's`:   `'in\O''Neil''s'`,
		"‘a’ ‚b‛":       "'‘‘a’’ ‚‚b‛‛'",
	} {
		if got, want := inPowerShell(uri, "f(@, g(@))"), `powershell -c "f(`+quoted+", g("+quoted+`))"`; got != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
}

// TestForeign has texts of one byte a letter, and UTF-8 with bytes here and there
// that are none.
func TestForeign(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       [2]bool // foreign, latin
	}{
		{"nothing", "", [2]bool{}},
		{"ASCII", "Agaricus", [2]bool{}},
		{"UTF-8", "Pileus 3–5 mm, à marge striée, später glatt", [2]bool{}},
		{"Latin-1", "Chapeau \xe0 marge stri\xe9e, sp\xe4ter gl\xe4nzend", [2]bool{true, true}},
		{"Windows-1252, sizes", "Spores 5\x967 \xd7 3\x964 \xb5m, \x91lisses\x92, hyalines", [2]bool{true, true}},
		{"a stray byte", "Pileus 3\x965 mm", [2]bool{}},
		{"cut through a character", "sporae \xf0\x9f\x8d", [2]bool{}},
		{"stray bytes beside as much UTF-8", "é à ü ö ß \xe9\xe9 \xe4 \xe4 \xe4", [2]bool{}},
		{"U+FFFD", "\ufffd \ufffd \ufffd \ufffd \ufffd", [2]bool{}},
		{"Latin-1 with letters that look like UTF-8", "tr\xe8s \xe9tal\xe9 et stri\xe9, pr\xc3\xa9lev\xe9 en automne", [2]bool{true, true}},
		{"KOI8-R", "\xf7\xc9\xc4 Agaricus, \xdb\xcc\xd1\xd0\xcb\xc1 \xcb\xd2\xc1\xd3\xce\xc1\xd1", [2]bool{true, false}},
		{"Shift JIS", "\x82\xab\x82\xcc\x82\xb1\x82\xcc Agaricus", [2]bool{true, false}},
		{"GBK", "\xc4\xa2\xb9\xbd\xb5\xc4\xd0\xc2\xd6\xd6 Agaricus", [2]bool{true, false}},
	} {
		foreign, latin := Foreign([]byte(c.text))
		if got := [2]bool{foreign, foreign && latin}; got != c.want {
			t.Errorf("%s: got %t, want %t", c.name, got, c.want)
		}
	}
}
