package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for in, want := range map[string][]string{
		"":                nil,
		"a":               {"a"},
		"a,b/c.txt":       {"a", "b/c.txt"},
		`a\,b,c`:          {"a,b", "c"},
		",a,,b,":          {"a", "b"},
		`C:\docs\*.txt,x`: {`C:\docs\*.txt`, "x"},
		`a\`:              {`a\`},
	} {
		if got := Split(in); !slices.Equal(got, want) {
			t.Errorf("Split(%q) = %q, want %q", in, got, want)
		}
	}
}

// A library may have a folder for each document.
func TestWalkMemory(t *testing.T) {
	const folders, most = 4000, 300 // bytes a document, the garbage collector's share left out
	dir := t.TempDir()
	for i := range folders {
		in := filepath.Join(dir, "journal", fmt.Sprintf("article-%06d", i))
		if err := errors.Join(os.MkdirAll(in, 0o777), os.WriteFile(filepath.Join(in, "text.txt"), nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New([]string{dir}, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	s.Outputs, s.Records = []Output{{Suffix: ".ann"}, {Folder: "html", Suffix: ".html"}}, []Output{{Folder: "_done", Suffix: ".json"}}
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, n, each := held(), 0, int64(0)
	if err := s.Walk(t.Context(), func(File) error {
		if n++; n == folders {
			each = (held() - before) / folders
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != folders || each > most {
		t.Errorf("a listing of %d documents holds %d bytes each, want at most %d", n, each, most)
	}
}

func TestName(t *testing.T) {
	for _, c := range []struct{ base, uri, want string }{
		{"/in", "/in/a.txt", "a.txt"},
		{"/in", "/in/sub/a.txt.ann", "sub/a.txt"},
		{"/", "/a.txt", "a.txt"},
		{"/in", "/inner/a.txt", "inner/a.txt"},
		{"", "/tmp/a.txt", "tmp/a.txt"},
		{"/in", "/in/../../etc/passwd", "etc/passwd"},
		{"", "../../a.txt", "a.txt"},
		{"gs://b/in", "gs://b/in/x/a.txt.ann", "x/a.txt"},
		{"", "gs://b/in/a.txt", "b/in/a.txt"},
		{"gs://b", "gs://b//a.txt", "a.txt"},
		{"gs://b/x/a.md", "gs://b/x/a.md", "a.md"},
		{"/in", "/in/\xff.ann", "\xff"},
	} {
		if got := Name(c.base, c.uri); got != c.want {
			t.Errorf("Name(%q, %q) = %q, want %q", c.base, c.uri, got, c.want)
		}
	}
}

func TestAbsolute(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"a/../b/":     filepath.Join(here, "b"),
		"gs://b/x/":   "gs://b/x",
		"gs://b//":    "gs://b",
		"GS://B/X":    "gs://B/X",
		"gs://":       "gs://", // no bucket, which package store refuses
		"gs:///":      "gs://",
		"s3://b/../x": "s3://b/../x",
	} {
		if got, err := Absolute(in); err != nil || got != want {
			t.Errorf("Absolute(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// TestNoWorkingFolder removes the folder that the program was started in.
func TestNoWorkingFolder(t *testing.T) {
	gone := t.TempDir()
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Skip("a working folder stays: ", err)
	}
	if got, err := Absolute(gone + "/a"); err != nil || got != filepath.Join(gone, "a") {
		t.Errorf("a whole path: %q, %v", got, err)
	}
	for _, args := range [][]string{{"a", gone + "/out"}, {gone + "/a", "a"}} {
		_, err := New(args[:1], args[1], false)
		if want := "input: a: no working folder: "; err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "name the whole path") {
			t.Errorf("%q: %v; want %s…", args, err, want)
		}
	}
}

// tree makes files in a new folder.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f), 0o666); err != nil {
			t.Skipf("this file system cannot hold %q: %v", f, err)
		}
	}
	return dir
}

// newSet is New.
func newSet(t *testing.T, args []string, output string, annotated bool) *Set {
	t.Helper()
	s, err := New(args, output, annotated)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// namesOf are the names of a Set's documents, in the order of Walk.
func namesOf(t *testing.T, s *Set) (names []string, err error) {
	err = s.Walk(t.Context(), func(f File) error { names = append(names, f.Name); return nil })
	return names, err
}

// below are the paths of names below dir.
func below(dir string, names []string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// walk is what a Set of args, below dir, finds: paths below dir → names.
func walk(t *testing.T, dir string, args []string, output string, annotated bool) (map[string]string, error) {
	t.Helper()
	if output != "" {
		output = filepath.Join(dir, output)
	}
	s, err := New(below(dir, args), output, annotated)
	if err != nil {
		return nil, err
	}
	// A Set travels to the workers as JSON.
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	s = new(Set)
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	err = s.Walk(t.Context(), func(f File) error {
		rel := strings.TrimPrefix(f.URI, dir+string(filepath.Separator))
		if _, twice := found[rel]; twice {
			t.Errorf("%s comes twice", rel)
		}
		if f.Size != int64(len(filepath.ToSlash(rel))) {
			t.Errorf("%s: size %d", rel, f.Size)
		}
		found[filepath.ToSlash(rel)] = f.Name
		return nil
	})
	return found, err
}

func TestWalk(t *testing.T) {
	files := []string{
		"in/a.txt", "in/b.txt.ann", "in/both.txt", "in/both.txt.ann", "in/notes.md", "in/c.ann", "in/sub/d.txt", "in/sub/e.txt.ann",
		"in/a[1].txt", "in/with, comma.txt", "in/\xff.txt", "in/out/old.txt.ann", "other/f.txt", "other/g.dat",
	}
	cases := map[string]struct {
		args      []string
		output    string
		annotated bool
		want      map[string]string
	}{
		"a folder": {[]string{"in"}, "", false, map[string]string{
			"in/a.txt": "a.txt", "in/b.txt.ann": "b.txt", "in/both.txt": "both.txt", "in/sub/d.txt": "sub/d.txt", "in/sub/e.txt.ann": "sub/e.txt",
			"in/a[1].txt": "a[1].txt", "in/with, comma.txt": "with, comma.txt", "in/\xff.txt": "\xff.txt", "in/out/old.txt.ann": "out/old.txt"}},
		"annotated": {[]string{"in/both.txt", "in/both.txt.ann"}, "", true, map[string]string{"in/both.txt.ann": "both.txt"}},
		"text":      {[]string{"in/both.txt.ann", "in/both.txt"}, "", false, map[string]string{"in/both.txt": "both.txt"}},
		"output inside": {[]string{"in"}, "in/out", false, map[string]string{
			"in/a.txt": "a.txt", "in/b.txt.ann": "b.txt", "in/both.txt": "both.txt", "in/sub/d.txt": "sub/d.txt", "in/sub/e.txt.ann": "sub/e.txt",
			"in/a[1].txt": "a[1].txt", "in/with, comma.txt": "with, comma.txt", "in/\xff.txt": "\xff.txt"}},
		"files of any name": {[]string{"in/notes.md", "other/g.dat"}, "", false, map[string]string{"in/notes.md": "in/notes.md", "other/g.dat": "other/g.dat"}},
		"a pattern":         {[]string{"in/*.ann"}, "", false, map[string]string{"in/b.txt.ann": "b.txt", "in/both.txt.ann": "both.txt", "in/c.ann": "c"}},
		"the same twice":    {[]string{"in/sub", "in/sub/d.txt"}, "", false, map[string]string{"in/sub/d.txt": "d.txt", "in/sub/e.txt.ann": "e.txt"}},
		"of another name":   {[]string{"in/notes.md", "in/no*"}, "", false, map[string]string{"in/notes.md": "notes.md"}},
		"two folders":       {[]string{"in/sub", "other"}, "", false, map[string]string{"in/sub/d.txt": "in/sub/d.txt", "in/sub/e.txt.ann": "in/sub/e.txt", "other/f.txt": "other/f.txt"}},
		"brackets":          {[]string{"in/a[1].txt"}, "", false, map[string]string{"in/a[1].txt": "a[1].txt"}},
		"a name of bytes":   {[]string{"in/\xff.txt"}, "", false, map[string]string{"in/\xff.txt": "\xff.txt"}},
	}
	dir := tree(t, files...)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := walk(t, dir, c.args, c.output, c.annotated)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestEscapes has characters of folders escaped, and such that exist by the very
// name with the escape in it.
func TestEscapes(t *testing.T) {
	if filepath.Separator != '/' {
		t.Skip(`\ separates folders here`)
	}
	dir := tree(t, "sp ace/a.txt", "sp ace/sub/b.txt", "st*r/c.txt", "str/d.txt", `b\s/e.txt`, "bs/f.txt", "x y.md")
	for arg, want := range map[string]map[string]string{
		`sp\ ace/*.txt`:    {"sp ace/a.txt": "a.txt"},
		`sp\ ace/**/*.txt`: {"sp ace/a.txt": "a.txt", "sp ace/sub/b.txt": "sub/b.txt"},
		`s? ace/*.txt`:     {"sp ace/a.txt": "sp ace/a.txt"},
		`sp\ ace`:          {"sp ace/a.txt": "a.txt", "sp ace/sub/b.txt": "sub/b.txt"},
		`st\*r`:            {"st*r/c.txt": "c.txt"},
		`st\*r/*`:          {"st*r/c.txt": "c.txt"},
		`b\s`:              {`b\s/e.txt`: "e.txt"},
		`b\s/*`:            {`b\s/e.txt`: "e.txt"},
		`x\ y.md`:          {"x y.md": "x y.md"},
	} {
		if got, err := walk(t, dir, []string{arg}, "", false); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, %v, want %q", arg, got, err, want)
		}
	}
}

// TestBase has arguments that need not exist.
func TestBase(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"gs://b/sp ace", []string{`gs://b/sp\ ace/*.txt`}},
		{"gs://b", []string{"gs://b/x*"}},
		{"gs://b", []string{"gs://b*/x"}},
		{"gs://b/x", []string{"gs://b/x/**"}},
		{"gs://b/x[1].txt", []string{"gs://b/x[1].txt/"}},
		{"gs://b", []string{"gs://b/x/y", "gs://b/z"}},
		{"/", []string{"/none1/x", "/none2/y"}},
		{"/none1", []string{"/none1/x/y", "/none1/z"}},
	} {
		if filepath.Separator != '/' && c.want[0] == '/' {
			continue
		}
		s, err := New(c.args, "", false)
		if err != nil || string(s.Base) != c.want {
			t.Errorf("%s: base %q, %v, want %q", c.args, s.Base, err, c.want)
		}
	}
}

func TestWalkErrors(t *testing.T) {
	dir := tree(t, "in/a.md", "in/a.md.ann", "empty/x.dat", "out/b.txt", "only/out/b.txt")
	cases := map[string]struct {
		args   []string
		output string
		none   bool
		want   string
	}{
		"missing":            {[]string{"nothing"}, "", true, "nothing"},
		"no match":           {[]string{"in/*.txt"}, "", true, "*.txt; a pattern takes files"},
		"folders":            {[]string{"*"}, "", true, "; a pattern takes files, those below a folder with /** or /**/*.txt at its end"},
		"missing, a comma":   {[]string{"in/a", " b.md"}, "", true, `a comma in a name is written \,`},
		"no text":            {[]string{"empty"}, "", true, "empty; name a file"},
		"output alone":       {[]string{"only"}, "only/out", true, "only; what there is lies in an output folder"},
		"one of two":         {[]string{"in/a.md", "in/zzz*"}, "", true, "zzz"},
		"two with one name":  {[]string{"in/a.md", "in/a.md.ann"}, "", false, "in/a.md.ann and of " + filepath.Join(dir, "in/a.md") + ";"},
		"output is input":    {[]string{"out"}, "out", false, "--output"},
		"input below output": {[]string{"out/b.txt"}, "out", false, "--output"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := walk(t, dir, c.args, c.output, false)
			if err == nil || !strings.HasPrefix(err.Error(), "input: ") || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNone) != c.none || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line that begins input: with %q; ErrNone: %t", err, c.want, c.none)
			}
			if missing := strings.HasPrefix(name, "missing"); errors.Is(err, fs.ErrNotExist) != missing {
				t.Errorf("got %v; fs.ErrNotExist: want %t", err, missing)
			}
		})
	}
	if _, err := New(nil, "", false); err == nil {
		t.Error("no argument is no error")
	}
	if _, err := New([]string{dir, "gs://b/x"}, "", false); err == nil {
		t.Error("local and gs:// together are no error")
	}
	for _, uri := range []string{"gs://", "gs:///x"} {
		if _, err := New([]string{uri}, "", false); err == nil || !strings.Contains(err.Error(), "gs://") || !strings.Contains(err.Error(), "no bucket in it") {
			t.Errorf("%s: got %v, want an error about it", uri, err)
		}
	}
	if _, err := New([]string{"s3://b/x"}, "", false); err == nil || !strings.Contains(err.Error(), "s3") {
		t.Errorf("s3://: got %v, want an error about it", err)
	}
	for _, uri := range []string{" gs://b/x", "./v1://x", "1://x", "://x"} {
		for what, args := range map[string][2]string{"input": {uri, ""}, "output": {dir, uri}} {
			if _, err := New(args[:1], args[1], false); err == nil || !strings.Contains(err.Error(), strconv.Quote(uri)) {
				t.Errorf("%q as %s: got %v, want an error that names it", uri, what, err)
			}
		}
	}
	if _, err := New([]string{"gs://b/x/*.txt", "gs://c"}, "", false); err == nil {
		t.Error("two buckets together are no error")
	}
	set := newSet(t, []string{filepath.Join(dir, "in/a.md")}, "", false)
	if err := set.Walk(t.Context(), func(File) error { return fs.ErrNotExist }); err != fs.ErrNotExist {
		t.Errorf("got %v, want the function's own error", err)
	}
}

// TestTwinsAreNamed has two documents with one output: the error names both and the
// output, and none that the run does not read.
func TestTwinsAreNamed(t *testing.T) {
	dir := tree(t, "0.txt", "a.txt", "a.txt.notes", "out/a.txt.notes", "z.txt")
	set := newSet(t, []string{dir, filepath.Join(dir, "*.notes")}, filepath.Join(dir, "out"), false)
	set.Outputs = []Output{{Suffix: ".notes.html"}, {Suffix: ".html"}}
	err := set.Walk(t.Context(), func(File) error { return nil })
	want := fmt.Sprintf("a.txt.notes.html of %s and of %s;", filepath.Join(dir, "a.txt.notes"), filepath.Join(dir, "a.txt"))
	if !errors.Is(err, ErrTwins) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	set.Args = [][]byte{[]byte(filepath.Join(dir, "z.txt")), []byte(filepath.Join(dir, "z*"))}
	if err := set.Walk(t.Context(), func(File) error { return nil }); err != nil {
		t.Errorf("named twice: %v", err)
	}
}

// TestTwinsOfNothing has links to nothing and in a circle, which are rejected, beside
// documents that would have their outputs.
func TestTwinsOfNothing(t *testing.T) {
	dir := tree(t, "a.txt", "b.txt")
	for name, to := range map[string]string{"a": "nothing", "b": "b"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	for _, arg := range []string{"", "*"} {
		set := newSet(t, []string{filepath.Join(dir, arg)}, "", false)
		set.Outputs = []Output{{Trim: ".txt", Suffix: ".txt"}}
		names, err := namesOf(t, set)
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"a", "a.txt", "b", "b.txt"}) {
			t.Errorf("%q: got %q, %v, want both links and both documents", arg, names, err)
		}
	}
}

// TestTwinsOfCase has two documents whose names differ in case alone: they are twins where
// the output folder takes both for one name. A link stands for such a disk.
func TestTwinsOfCase(t *testing.T) {
	dir := tree(t, "in/A/Ä.txt", "in/a/ä.txt", "in/a/b.txt", "out/_manifest.jsonl")
	for _, folds := range []bool{false, true} {
		if folds {
			if err := os.Link(filepath.Join(dir, "out/_manifest.jsonl"), filepath.Join(dir, "out/_MANIFEST.JSONL")); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Skip("no hard links here: ", err)
			}
		} else if _, err := os.Stat(filepath.Join(dir, "out/_MANIFEST.JSONL")); err == nil {
			t.Skip("no disk here that tells A from a")
		}
		for _, outputs := range [][]Output{{{Suffix: ".ann"}}, {{Folder: "brat", Trim: ".txt", Suffix: ".ann"}}} {
			set := newSet(t, []string{filepath.Join(dir, "in")}, filepath.Join(dir, "out"), false)
			set.Outputs = outputs
			err := set.Walk(t.Context(), func(File) error { return nil })
			if errors.Is(err, ErrTwins) != folds || err != nil && !folds {
				t.Errorf("%v: %v", outputs, err)
			}
			if want := filepath.Join(dir, "in/a/ä.txt") + " and of " + filepath.Join(dir, "in/A/Ä.txt"); folds && !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
	}
}

// TestTwinsOfSlashes has objects of gs:// whose names differ where paths do not: no
// one of them may be passed over for the other.
func TestTwinsOfSlashes(t *testing.T) {
	set := newSet(t, []string{"gs://b/in"}, "", false)
	n := &names{set: set, links: set.links(), seed: maphash.MakeSeed(), taken: map[uint64]uint64{}, written: map[uint64]uint64{}, pairs: map[uint64]bool{}}
	for _, c := range []struct {
		uri   string
		taken bool
		want  error
	}{
		{"gs://b/in/a/x.txt", true, nil}, {"gs://b/in/a/x.txt", false, nil}, {"gs://b/in/a/x.txt.ann", false, nil},
		{"gs://b/in/a//x.txt", false, ErrTwins}, {"gs://b/in/a//x.txt.ann", false, ErrTwins}, {"gs://b/in/b/x.txt", true, nil},
	} {
		ok, err := n.take(t.Context(), File{URI: c.uri, Name: set.Name(c.uri)})
		if ok != c.taken || !errors.Is(err, c.want) {
			t.Errorf("%s: taken: %t, %v; want %t, %v", c.uri, ok, err, c.taken, c.want)
		}
	}
}

// A text with brat's annotation and YEDDA's would count twice.
func TestTwoAnnotations(t *testing.T) {
	dir := tree(t, "in/a.txt", "in/a.ann", "in/a.txt.ann", "apart/b.ann", "apart/b.txt.ann")
	for _, args := range [][]string{{"in/*"}, {"in/*.ann"}, {"in/a.ann", "in/a.txt.ann"}, {"in/a.txt.ann", "in/a.ann"}, {"in", "in/a.ann"}} {
		if got, err := walk(t, dir, args, "", true); !errors.Is(err, ErrTwins) || !strings.Contains(err.Error(), "a.ann and ") {
			t.Errorf("%q: got %q, %v, want an error that names both", args, got, err)
		}
	}
	for _, c := range []struct {
		args []string
		want map[string]string
	}{
		{[]string{"in"}, map[string]string{"in/a.txt.ann": "a.txt"}},
		{[]string{"in/a.txt"}, map[string]string{"in/a.txt": "a.txt"}},
		{[]string{"in/a.txt", "in/a.ann"}, map[string]string{"in/a.ann": "a"}},
		{[]string{"apart/*"}, map[string]string{"apart/b.ann": "b", "apart/b.txt.ann": "b.txt"}},
	} {
		if got, err := walk(t, dir, c.args, "", true); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %q, %v, want %q", c.args, got, err, c.want)
		}
	}
}

// What a browser calls a second export is told of, and brat's files are not.
func TestPassed(t *testing.T) {
	dir := tree(t, "in/a.txt.ann", "in/a.txt (1).ann", "in/b.txt", "in/b.ann", "in/sub/c.md.ann", "in/d.md")
	for _, c := range []struct {
		args      []string
		annotated bool
		want      string
	}{
		{[]string{"in"}, true, `a.txt (1).ann" end in .ann`},
		{[]string{"in", "in/sub/c.md.ann"}, true, `a.txt (1).ann" ends in .ann`},
		{[]string{"in/*.ann", "in/sub/*"}, true, ""},
		{[]string{"in"}, false, ""},
	} {
		s := newSet(t, below(dir, c.args), "", c.annotated)
		for range 2 {
			if err := s.Walk(t.Context(), func(File) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(s.Passed(), "; "); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q: got %q, want %q", c.args, got, c.want)
		}
	}

	// The same where the folder holds nothing else.
	dir = tree(t, "in/a.txt (1).ann", "other/b.txt.ann")
	s := newSet(t, []string{filepath.Join(dir, "other"), filepath.Join(dir, "in")}, "", true)
	err := s.Walk(t.Context(), func(File) error { return nil })
	if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), `a.txt (1).ann" ends in .ann`) {
		t.Errorf("got %v, want no document, and why", err)
	}
}

// A PDF beside its text is a scan's own; one without would be missed.
func TestPDF(t *testing.T) {
	dir := tree(t, "in/a.pdf", "in/a.txt", "in/b.PDF", "in/b.PDF.txt", "in/c.pdf", "in/c_djvu.txt", "in/s/d.pdf", "in/s/d.txt", "in/s/e.pdf", "more/s/e.txt", "more/f.pdf", "none/g.Pdf", "none/.h.pdf")
	for _, c := range []struct {
		args      []string
		annotated bool
		want      string // of what is said
	}{
		{[]string{"in"}, false, `"` + filepath.Join(dir, "in/s/e.pdf") + `" is a PDF`},
		{[]string{"in", "more"}, false, `2 files such as "` + filepath.Join(dir, "in/s/e.pdf") + `" are PDFs`},
		{[]string{"none"}, false, filepath.Join(dir, "none/g.Pdf") + `" is a PDF`},
		{[]string{"in/*.txt"}, false, ""},
		{[]string{"in"}, true, ""}, // who looks for annotation has no use for text
	} {
		s := newSet(t, below(dir, c.args), "", c.annotated)
		err := s.Walk(t.Context(), func(File) error { return nil })
		got := strings.Join(s.Passed(), "; ")
		if errors.Is(err, ErrNone) {
			got = err.Error()
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q: says %q, want %q", c.args, got, c.want)
		}
	}
}

// Hidden files are read where they are named, or a pattern spells their dots; what is
// called nearly as a document is told of.
func TestHidden(t *testing.T) {
	dir := tree(t, "in/a.txt", "in/._a.txt", "in/._a.png", "in/.git/b.txt", "in/.git/c.md", "in/s/.old/d.txt.ann", "in/s/e.TXT", "in/s/f.txt.gz", "in/s/g.txt.zst", "none/.a.txt", "back/a.txt", `back/b\c.TXT`)
	both := `3 files such as "` + filepath.Join(dir, "in/._a.txt") + `" are hidden`
	for _, c := range []struct {
		args []string
		want []string // names
		says []string
	}{
		{[]string{"in"}, []string{"a.txt"}, []string{`3 files such as "` + filepath.Join(dir, "in/s/e.TXT") + `" do not end`, both}},
		{[]string{"in/**/*.[tT]*"}, []string{"a.txt", "s/e.TXT", "s/f.txt.gz", "s/g.txt.zst"}, []string{both}},
		{[]string{"in/*"}, []string{"a.txt"}, []string{"2 files such as"}},
		{[]string{"in/[!a]*"}, nil, []string{"2 files such as"}},
		{[]string{"in/**/.*.txt"}, []string{"._a.txt"}, nil},
		{[]string{"in/.*/?.txt"}, []string{".git/b.txt"}, nil},
		{[]string{"in/**/.old/**"}, []string{"s/.old/d.txt"}, nil},
		{[]string{"in/.git"}, []string{"b.txt"}, nil},
		{[]string{"in/.git/b.txt", "in/s/.old"}, []string{".git/b.txt", "s/.old/d.txt"}, nil},
		{[]string{"in/a.txt", "none"}, []string{"a.txt"}, []string{`.a.txt" is hidden`}},
		{[]string{"back"}, []string{"a.txt"}, []string{`"` + filepath.Join(dir, `back/b\c.TXT`) + `" does not end`}},
	} {
		s := newSet(t, below(dir, c.args), "", false)
		var names []string
		var err error
		for range 2 {
			names, err = namesOf(t, s)
		}
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], "in/")
		}
		if slices.Sort(names); !slices.Equal(names, c.want) {
			t.Errorf("%q: got %q, want %q", c.args, names, c.want)
		}
		says := s.Passed()
		if errors.Is(err, ErrNone) {
			says = []string{err.Error()}
		} else if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(says, c.says, strings.Contains) {
			t.Errorf("%q: says %q, want %q", c.args, says, c.says)
		}
	}
}

// TestOutputByAnotherName has the output folder under a link and the input
// under the real name, and the other way round.
func TestOutputByAnotherName(t *testing.T) {
	dir := tree(t, "real/in/a.txt", "real/in/out/b.txt.ann")
	if err := os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	for _, c := range [][2]string{{"real/in", "link/in/out"}, {"link/in", "real/in/out"}} {
		got, err := namesOf(t, newSet(t, []string{filepath.Join(dir, c[0])}, filepath.Join(dir, c[1]), false))
		if err != nil || !slices.Equal(got, []string{"a.txt"}) {
			t.Errorf("input %s, output %s: %q, %v; want a.txt alone", c[0], c[1], got, err)
		}
	}
	if _, err := New([]string{filepath.Join(dir, "link/in/out")}, filepath.Join(dir, "real/in/out"), false); err == nil {
		t.Error("an input that is the output under another name is no error")
	}
}

// TestLeaveOut has earlier outputs below the input, one of a run that did not end.
func TestLeaveOut(t *testing.T) {
	dir := tree(t, "a.txt", "_manifest.jsonl", "mine/_done/x.json", "old/_done/b.txt.json", "old/b.txt.ann", "older/_manifest.jsonl", "older/c.txt.ann", "kept/_done/readme.md", "kept/d.txt")
	set := newSet(t, []string{dir}, filepath.Join(dir, "mine"), false)
	walk := func() []string {
		t.Helper()
		names, err := namesOf(t, set)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return names
	}
	walk()
	if got, want := set.LeaveOut(), fmt.Sprintf("%q and 1 more folder below --input: output of an earlier run", filepath.Join(dir, "old")); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q…", got, want)
	}
	if got, want := walk(), []string{"a.txt", "kept/d.txt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := set.LeaveOut(); got != "" {
		t.Errorf("told again: %q", got)
	}

	// A folder of that name above the input is none of a run's.
	dir = tree(t, "_done/in/a.txt", "_done/in/about.json", "_done/in/s/_done/b.txt.json", "_done/in/s/b.txt.ann")
	for arg, want := range map[string][]string{"_done/in": {"a.txt"}, "_done/in/**/*.txt": {"a.txt"}, "_done/in/s/": {"b.txt"}, "_done": {"in/a.txt"}} {
		set = newSet(t, []string{filepath.Join(dir, arg)}, "", false)
		walk()
		said := set.LeaveOut()
		if got := walk(); !slices.Equal(got, want) || strings.HasPrefix(said, fmt.Sprintf("%q", dir)) {
			t.Errorf("%s: got %q, %q, want %q", arg, got, said, want)
		}
	}

	// ** passes over an earlier output as a folder does, and reads what it is put behind.
	dir = tree(t, "in/a.txt", "in/s/old/_manifest.jsonl", "in/s/old/_done/b.txt.json", "in/s/old/b.txt.ann", "in/s/old/brat/b.txt")
	for pattern, want := range map[string][]string{
		"in/**":              {"a.txt"},
		"in/**/*.txt":        {"a.txt"},
		"in/s/old/**/*.ann":  {"b.txt"},
		"in/s/*/*.ann":       {"old/b.txt"},
		"in/*.txt,in/s/old/": {"a.txt", "s/old/b.txt", "s/old/brat/b.txt"},
	} {
		var args []string
		for _, arg := range Split(pattern) {
			args = append(args, filepath.Join(dir, arg))
		}
		set = newSet(t, args, "", false)
		walk()
		said := set.LeaveOut()
		if got := walk(); !slices.Equal(got, want) || (said != "") != strings.HasPrefix(pattern, "in/**") {
			t.Errorf("%s: got %q, %q, want %q", pattern, got, said, want)
		}
	}
}

// TestPredicted names a folder that a run wrote to, alone and beside the one that
// it lies in.
func TestPredicted(t *testing.T) {
	dir := tree(t, "a.txt.ann", "old/_done/b.txt.json", "old/b.txt.ann", "old/_done/sub/c.txt.json", "old/sub/c.txt.ann", "old/gold/c.txt.ann",
		"old/brat/b.ann", "old/brat/b.txt", "old/brat/sub/c.ann", "old/brat/sub/c.txt", "old/brat/gold/c.txt")
	old := filepath.Join(dir, "old")
	in := func(name string) []string { return []string{filepath.Join(old, name)} }
	for _, c := range []struct {
		args      []string
		documents int
		want      string
	}{
		{[]string{dir}, 7, ""}, {[]string{old}, 6, old}, {[]string{dir, old}, 7, old}, {[]string{old + string(filepath.Separator), dir}, 7, old},
		{in("sub"), 1, old}, {in("b.txt.ann"), 1, old}, {in("*.ann"), 1, old}, {in("s*/*.ann"), 1, old}, {in("gold"), 1, ""},
		{in("brat"), 3, old}, {in("brat/sub"), 1, old}, {in("brat/b.txt"), 1, old}, {in("brat/b.ann"), 1, old}, {in("brat/*.txt"), 1, old}, {in("brat/gold"), 1, ""},
	} {
		set := newSet(t, c.args, "", true)
		names, err := namesOf(t, set)
		if err != nil {
			t.Fatal(err)
		}
		said := set.Predicted()
		if len(names) != c.documents || (c.want == "") != (said == "") || !strings.HasPrefix(said, fmt.Sprintf("%q is the output", c.want)) && said != "" {
			t.Errorf("%q: %d documents, %q; want %d, %s", c.args, len(names), said, c.documents, c.want)
		}
		if left := set.LeaveOut(); (left != "") != slices.Equal(c.args, []string{dir}) {
			t.Errorf("%q: left out: %q", c.args, left)
		}
	}
}

// TestLinks has links from the input into the output folder, and the other way
// round, made after the Set.
func TestLinks(t *testing.T) {
	dir := tree(t, "in/a.txt", "in/sub/b.txt", "in/sub/b.txt.ann", "else/c.txt", "big/y")
	at := func(path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
	set := newSet(t, []string{at("in")}, at("out"), false)
	set.Outputs = []Output{{Suffix: ".ann"}, {Folder: "html", Suffix: ".html"}}
	check := func(what string, wantErr error, passedOver int, want ...string) {
		t.Helper()
		over := 0
		names, err := namesOf(t, set)
		if !errors.Is(err, wantErr) || err == nil && !slices.Equal(names, want) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q, %v; want %q, %v", what, names, err, want, wantErr)
		}
		names = nil
		if err := set.WalkOn(t.Context(), func(f File) error { names = append(names, f.Name); return nil }, func(error) { over++ }); err != nil || over != passedOver || !slices.Equal(names, want) {
			t.Errorf("%s: watched, %q and %d passed over, %v; want %q and %d", what, names, over, err, want, passedOver)
		}
	}
	link := func(to, from string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(from)), 0o777), os.Symlink(at(to), at(from))); err != nil {
			t.Skip(err)
		}
	}
	check("no links", nil, 0, "a.txt", "sub/b.txt")
	link("out/deep", "in/labelled")
	if err := os.MkdirAll(at("out/deep/more"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out/deep/a.txt.ann", "out/deep/more/a.txt.ann"} {
		if err := os.WriteFile(at(name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("out/deep/_manifest.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	check("a link to outputs", nil, 0, "a.txt", "sub/b.txt")
	link("out/deep/a.txt.ann", "in/c.txt")
	check("a link to an output", nil, 0, "a.txt", "sub/b.txt")
	if said := set.LeaveOut(); said != "" {
		t.Errorf("the output itself is told of: %s", said)
	}
	link("big", "out/html/sub")
	check("a link to another disk", nil, 0, "a.txt", "sub/b.txt")
	link("in/sub", "out/sub")
	check("a link to an input", ErrTwins, 2, "a.txt") // b.txt, and b.txt.ann in its place
	if err := os.Remove(at("out/sub")); err != nil {
		t.Fatal(err)
	}
	link("else", "in/z")
	link("else", "out/z")
	check("the same link in both", ErrTwins, 1, "a.txt", "sub/b.txt")
	if err := errors.Join(os.Remove(at("out/z")), os.MkdirAll(at("in/empty"), 0o777)); err != nil {
		t.Fatal(err)
	}
	link("in/empty", "out/z")
	check("a link to another folder of the inputs", ErrTwins, 1, "a.txt", "sub/b.txt")
	if err := errors.Join(os.MkdirAll(at("else/deep"), 0o777), os.WriteFile(at("else/deep/d.txt"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	check("a folder that would be made there", ErrTwins, 2, "a.txt", "sub/b.txt")
	if err := os.RemoveAll(at("else/deep")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("out/z")); err != nil {
		t.Fatal(err)
	}
	link("in/sub", "out/_done/sub")
	check("a link that nothing is written to", nil, 0, "a.txt", "sub/b.txt", "z/c.txt")
	set.Records = []Output{{Folder: "_done", Suffix: ".json"}}
	check("a link among records", ErrTwins, 2, "a.txt", "z/c.txt")
}

// TestLinkToNothing has one of a name that is no document's: it may have been a
// folder, so that who reads it tells of it.
func TestLinkToNothing(t *testing.T) {
	dir := tree(t, "a.txt", "b.dat")
	if err := os.Symlink("nothing", filepath.Join(dir, "gone")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	names, err := namesOf(t, newSet(t, []string{dir}, "", false))
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"a.txt", "gone"}) {
		t.Errorf("got %q, %v, want a.txt and gone", names, err)
	}
}

func TestSample(t *testing.T) {
	var files []string
	for i := range 100 {
		files = append(files, fmt.Sprintf("in/%02d.txt", i))
	}
	dir := tree(t, files...)
	take := func(n int) []string {
		s := newSet(t, []string{filepath.Join(dir, "in")}, "", false)
		s.Sample = n
		names, err := namesOf(t, s)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	ten := take(10)
	if len(ten) != 10 || !slices.Equal(ten, take(10)) {
		t.Errorf("two samples of ten: %q, %q", ten, take(10))
	}
	all := take(100)
	for _, n := range []int{1, 2, 10, 11, 33, 49, 50, 51, 99} {
		if !slices.Equal(take(n), all[:n]) {
			t.Errorf("a sample of %d is not how a larger one begins", n)
		}
	}
	slices.Sort(ten)
	if ten[9] < "50" || ten[0] > "50" {
		t.Errorf("the sample is not spread: %q", ten)
	}
	if n := len(take(1000)); n != 100 {
		t.Errorf("a sample of 1,000 of 100 has %d", n)
	}
	s := newSet(t, []string{filepath.Join(dir, "in"), filepath.Join(dir, "none")}, "", false)
	s.Sample = 10
	if err := s.Walk(t.Context(), func(File) error { return nil }); !errors.Is(err, ErrNone) {
		t.Errorf("a sample of what is not there: got %v, want ErrNone", err)
	}
	s.Args = s.Args[:1]
	if err := s.Walk(t.Context(), func(File) error { return ErrNone }); !errors.Is(err, ErrNone) {
		t.Errorf("got %v, want the caller's error", err)
	}
}
