package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Parse makes a document of data, which was read at uri. One whose name ends in
// .ann is YEDDA, all others are text as they stand.
//
// With annotated, brat's pairs are annotation too: X.txt gets the spans of an
// X.ann beside it, which must be brat standoff, and where uri is such an X.ann, the
// text is that of X.txt. At is where the text stands. An X.ann is read up to
// limit bytes, 0 for no limit. Without annotated brat standoff is an error, and
// so are UTF-16 and UTF-32, for text and markup would be mistaken for other bytes,
// lines most of which end in CR alone, for all of those would be one, and, by their
// first bytes, files that are known to be no text.
func Parse(ctx context.Context, uri string, data []byte, annotated bool, limit int64) (d *yedda.Document, at string, err error) {
	for _, b := range binaries {
		if begins(data, b.begin) {
			return nil, uri, errors.New(b.reason)
		}
	}
	if encoding := wideEncoding(data); encoding != "" {
		return nil, uri, fmt.Errorf("%s, which is not read; convert it with: %s", encoding, Iconv(uri, encoding))
	}
	// Tools that end lines in CR CR LF are about, so CRs have to be more than that.
	if cr := bytes.Count(data, []byte("\r")); cr > 1 && cr > 3*bytes.Count(data, []byte("\n")) {
		return nil, uri, fmt.Errorf("lines that end in CR alone, which are not read; convert it with: %s", inPlace(uri, `tr '\r' '\n' <`, `[IO.File]::WriteAllBytes(@, [byte[]]([IO.File]::ReadAllBytes(@) -replace '\b13\b', 10))`))
	}
	stem, text := strings.CutSuffix(uri, ".txt")
	switch {
	case isAnnotation(uri) && !yedda.IsBrat(data):
		return yedda.Parse(data), uri, nil
	case isAnnotation(uri) && !annotated:
		return nil, uri, errors.New("brat standoff, which is not YEDDA; give the .txt beside it")
	case isAnnotation(uri):
		at = strings.TrimSuffix(uri, ".ann")
		if !strings.HasSuffix(at, ".txt") {
			at += ".txt"
		}
		of, err := store.Read(ctx, at, limit)
		if errors.Is(err, store.ErrNotExist) {
			return nil, at, fmt.Errorf("brat standoff without its text; put %s beside it", at)
		}
		if err != nil {
			return nil, at, err
		}
		d, err = yedda.ParseBrat(of, data)
		return d, at, err
	case annotated && text:
		ann, err := store.Read(ctx, stem+".ann", limit)
		if err == nil && yedda.IsBrat(ann) {
			if d, err = yedda.ParseBrat(data, ann); err != nil {
				err = fmt.Errorf("%s: %w", stem+".ann", err)
			}
			return d, uri, err
		}
		if encoding := wideEncoding(ann); encoding != "" {
			return nil, uri, fmt.Errorf("%s: %s, which is not read; convert it with: %s", stem+".ann", encoding, Iconv(stem+".ann", encoding))
		}
		if len(bytes.TrimSpace(bytes.TrimPrefix(ann, []byte("\ufeff")))) > 0 {
			return nil, uri, fmt.Errorf("%s does not begin with brat standoff; if it is YEDDA, call it %s.ann", stem+".ann", uri)
		}
		if err != nil && !errors.Is(err, store.ErrNotExist) {
			return nil, uri, err
		}
	}
	return &yedda.Document{Text: data}, uri, nil
}

const picture = "a picture, which is not read; name text files alone, or make text of it by OCR"

const bzip2 = "bzip2, which is not read; let its name end in .bz2, then unpack it with: bunzip2"

// begins reports whether data begins with begin, in which a ? is any byte.
func begins(data []byte, begin string) bool {
	for i := range len(begin) {
		if i == len(data) || begin[i] != data[i] && begin[i] != '?' {
			return false
		}
	}
	return true
}

// binaries are what people have beside their texts, and now and then call .txt.
var binaries = []struct{ begin, reason string }{
	{"%PDF-", "PDF, which is not read; make text of it with: pdftotext -layout (of pages in columns: pdftotext)"},
	{"\x1f\x8b", "gzip, which is not read; let its name end in .gz, then unpack it with: gunzip"},
	{"BZh?1AY&SY", bzip2}, // ? is the level, which bzip2 --fast has as 1
	{"BZh?\x17rE8P\x90", bzip2},
	{"\xfd7zXZ\x00", "xz, which is not read; let its name end in .xz, then unpack it with: unxz"},
	{"\x28\xb5\x2f\xfd", "zstd, which is not read; let its name end in .zst, then unpack it with: unzstd"},
	{"PK\x03\x04", "a zip archive or a document such as .docx, which is not read; unpack it, or save it as plain text"},
	{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document such as .doc, which is not read; save it as plain text"},
	{`{\rtf`, "RTF, which is not read; save it as plain text"},
	{"AT&TFORM", "DjVu, which is not read; make text of it with: djvutxt"},
	{"%!PS-", "PostScript, which is not read; make text of it with: ps2ascii"},
	{"\xff\xd8\xff", picture},
	{"\x89PNG\r\n\x1a\n", picture},
	{"II*\x00", picture}, // TIFF
	{"MM\x00*", picture},
	{"\x00\x00\x00\x0cjP  ", picture}, // JPEG 2000
	{"GIF87a", picture},
	{"GIF89a", picture},
}

// Foreign reports whether text seems to be in another encoding than UTF-8: of its
// characters beyond ASCII most are bytes that are no UTF-8, and more than the 3 that a
// cut through one leaves. Latin says that it may then be one of Latin letters: a quarter
// of the letters at most are beyond ASCII, of which French has some 5 % and Russian,
// Greek, Chinese and Japanese more than half.
func Foreign(text []byte) (foreign, latin bool) {
	if utf8.Valid(text) { // most are, and it is fast
		return false, false
	}
	bad, good, ascii, beyond := 0, 0, 0, 0
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			if c |= 0x20; 'a' <= c && c <= 'z' {
				ascii++
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			bad++
		} else {
			good++
		}
		i += size
		beyond += size
	}
	return bad > 3 && bad > good, 3*beyond <= ascii
}

// Iconv is the command that converts the file at uri, in its place.
func Iconv(uri, encoding string) string {
	return inPlace(uri, "iconv -f "+encoding+" -t UTF-8", "[IO.File]::WriteAllText(@, [IO.File]::ReadAllText(@, [Text.Encoding]::GetEncoding('"+encoding+"')))")
}

// inPlace is a shell's command that puts what command makes of the file at uri in its
// place. Windows has PowerShell, whose command has @ for the file.
func inPlace(uri, command, powerShell string) string {
	if store.Remote(uri) {
		return strings.TrimSuffix(command, " <")
	}
	if runtime.GOOS == "windows" {
		return inPowerShell(uri, powerShell)
	}
	// A reason is one line and UTF-8, whatever the name.
	quote := func(path string) string {
		var b strings.Builder
		for rest := path; rest != ""; {
			r, size := utf8.DecodeRuneInString(rest)
			switch {
			case r == '\'':
				b.WriteString(`'\''`)
			case unicode.IsControl(r), r == utf8.RuneError && size == 1:
				b.WriteString("'$'")
				for i := range size { // byte by byte: what bash makes of \u0085 depends on the locale
					escape := strconv.Quote(rest[i : i+1])
					b.WriteString(escape[1 : len(escape)-1])
				}
				b.WriteString("''")
			default:
				b.WriteString(rest[:size])
			}
			rest = rest[size:]
		}
		return "'" + b.String() + "'"
	}
	from, to := quote(uri), quote(uri+".new")
	return fmt.Sprintf("%s %s > %s && mv %[3]s %[2]s", command, from, to)
}

// inPowerShell is what its own prompt and that of cmd take. Quotation marks of books are
// quotes to it.
func inPowerShell(uri, command string) string {
	quoted := "'" + strings.NewReplacer("'", "''", "‘", "‘‘", "’", "’’", "‚", "‚‚", "‛", "‛‛").Replace(uri) + "'"
	return `powershell -c "` + strings.ReplaceAll(command, "@", quoted) + `"`
}

// wideEncoding names the encoding of data where that is UTF-16 or UTF-32, and is ""
// otherwise: data begins with a byte order mark, even if UTF-16 ends within a character,
// or its first KiB has zeros where no text of one byte a letter has them: every fourth
// byte and most of those beside it, or one of two bytes and hardly ever the other, in most
// places, or beside blanks and ends of lines among few letters of ASCII, as in scripts other
// than Latin. A few bytes more at its end, such as an editor's "\n", change nothing.
func wideEncoding(data []byte) string {
	marked := func(mark string) bool { return bytes.HasPrefix(data, []byte(mark)) }
	begin := data[:min(len(data), 1024)&^3]
	var zero [4]int
	for i, c := range begin {
		if c == 0 {
			zero[i%4]++
		}
	}
	ascii := func(c byte) bool { return c >= ' ' && c < 0x7f }
	blank := func(c byte) bool { return c == ' ' || c == '\n' || c == '\r' }
	var little, big, narrow int // blanks of UTF-16LE, of UTF-16BE, and pairs of ASCII
	for i := 0; i < len(begin); i += 2 {
		switch a, b := begin[i], begin[i+1]; {
		case b == 0 && blank(a):
			little++
		case a == 0 && blank(b):
			big++
		case ascii(a) && ascii(b):
			narrow++
		}
	}
	even := len(data)%2 == 0
	chars := len(begin) / 4                           // of UTF-32
	first, second := zero[0]+zero[2], zero[1]+zero[3] // of UTF-16's two bytes
	switch {
	case marked("\xff\xfe\x00\x00"):
		return "UTF-32LE"
	case marked("\x00\x00\xfe\xff"):
		return "UTF-32BE"
	case marked("\xff\xfe") && (even || second > 0):
		return "UTF-16LE"
	case marked("\xfe\xff") && (even || first > 0):
		return "UTF-16BE"
	case chars < 2:
	case zero[3] == chars && zero[2] > chars/2 && zero[0] <= chars/4:
		return "UTF-32LE"
	case zero[0] == chars && zero[1] > chars/2 && zero[3] <= chars/4:
		return "UTF-32BE"
	case (second > chars || little >= 4 && narrow < chars) && first <= second/4:
		return "UTF-16LE"
	case (first > chars || big >= 4 && narrow < chars) && second <= first/4:
		return "UTF-16BE"
	}
	return ""
}
