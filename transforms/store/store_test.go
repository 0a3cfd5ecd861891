package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"
)

// list returns the paths that uri names; errors stand behind their paths.
func list(t *testing.T, s Store, uri string) (paths []string, objects []Object) {
	t.Helper()
	err := s.List(t.Context(), uri, func(o Object) error {
		paths, objects = append(paths, o.Path), append(objects, o)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths, objects
}

func storeFor(t *testing.T, uri string) Store {
	t.Helper()
	s, err := For(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func locked(t *testing.T, s Store, uri string) (unlock func() error) {
	t.Helper()
	unlock, err := s.Lock(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

func wantPaths(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// wantError checks the sentinel, the text and that there is one line of it.
func wantError(t *testing.T, err, sentinel error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v %q", sentinel, parts)
		return
	}
	if sentinel != nil && !errors.Is(err, sentinel) {
		t.Errorf("got %v, want one that is %v", err, sentinel)
	}
	for _, part := range append(parts, "store: ") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %q, want %q in it", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
}

func mustWrite(t *testing.T, s Store, uri, text string) {
	t.Helper()
	if err := s.Write(t.Context(), uri, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, s Store, uri, want string) {
	t.Helper()
	got, err := s.Read(t.Context(), uri, 0)
	if err != nil {
		t.Error(err)
	} else if string(got) != want {
		t.Errorf("%q: got %q, want %q", uri, got, want)
	}
}

// testAdd writes over nothing but what is lost nowhere.
func testAdd(t *testing.T, s Store, uri string) {
	t.Helper()
	for _, c := range []struct {
		there, add string
		taken      bool
	}{
		{"", "one", false}, {"one", "one", false}, {"o", "one", false}, {"", "", false},
		{"two", "one", true}, {"one more", "one", true}, {"one", "", true},
	} {
		mustWrite(t, s, uri, c.there)
		added, err := s.Add(t.Context(), uri, []byte(c.add))
		if c.taken {
			wantError(t, err, ErrTaken, uri)
			wantContent(t, s, uri, c.there)
			continue
		}
		if err != nil || added != (c.there != c.add) {
			t.Errorf("Add %q to %q: added %t, %v", c.add, c.there, added, err)
		}
		wantContent(t, s, uri, c.add)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, text := range []string{"two", ""} {
		if _, err := s.Add(over, uri, []byte(text)); !errors.Is(err, context.Canceled) {
			t.Errorf("Add in a context that is over: %v", err)
		}
	}
	if err := s.Delete(t.Context(), uri); err != nil {
		t.Error(err)
	}
	if added, err := s.Add(t.Context(), uri, []byte("new")); err != nil || !added {
		t.Errorf("added %t, %v", added, err)
	}
	wantContent(t, s, uri, "new")
	if err := s.Delete(t.Context(), uri); err != nil {
		t.Error(err)
	}
}

// testReadWrite is what every Store does.
func testReadWrite(t *testing.T, s Store, base string) {
	uri := Join(base, "out", "x.txt")
	if _, err := s.Read(t.Context(), uri, 0); !errors.Is(err, ErrNotExist) {
		t.Errorf("Read before Write: %v", err)
	}
	mustWrite(t, s, uri, "one")
	wantContent(t, s, uri, "one")
	mustWrite(t, s, uri, "two two") // longer, then shorter
	wantContent(t, s, uri, "two two")
	mustWrite(t, s, uri, "")
	wantContent(t, s, uri, "")
	big := strings.Repeat("0123456789abcdef", 1<<16)
	mustWrite(t, s, uri, big)
	wantContent(t, s, uri, big)

	if o, err := s.Stat(t.Context(), uri); err != nil || o.Path != uri || o.Size != int64(len(big)) || time.Since(o.Modified) > time.Minute {
		t.Errorf("Stat: %+v, %v", o, err)
	}
	testCreate(t, s, uri, big)
	testAdd(t, s, Join(base, "out", "added.txt"))
	// Names that are not there, but would be patterns.
	_, err := s.Stat(t.Context(), Join(base, "out", "[x].txt"))
	wantError(t, err, ErrNotExist, "[x].txt")
	wantError(t, s.List(t.Context(), Join(base, "o[u]t")+"/", nil), ErrNotExist, "o[u]t")
	wantError(t, s.List(t.Context(), Join(base, "out", "[x].txt")+"/", func(Object) error { return nil }), ErrNotExist)
	if got, _ := list(t, s, Join(base, "out")+"/"); !slices.Equal(got, []string{uri}) {
		t.Errorf("folder with a slash: %q", got)
	}

	if _, err := s.Read(t.Context(), uri, int64(len(big))); err != nil {
		t.Errorf("Read at the limit: %v", err)
	}
	_, err = s.Read(t.Context(), uri, int64(len(big))-1)
	wantError(t, err, ErrTooLarge, uri, "1048576 bytes, the limit is 1048575")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(cancelled, uri, []byte("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("Write when cancelled: %v", err)
	}
	wantContent(t, s, uri, big)
	if _, err := s.Read(cancelled, uri, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Read when cancelled: %v", err)
	}

	for range 2 {
		if err := s.Delete(t.Context(), uri); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	if _, err := s.Read(t.Context(), uri, 0); !errors.Is(err, ErrNotExist) {
		t.Errorf("Read after Delete: %v", err)
	}
}

// testCreate creates what takes several requests on gs://, and fails to.
func testCreate(t *testing.T, s Store, uri, content string) {
	t.Helper()
	const times = 20
	pieces := func(w io.Writer) error {
		for range times {
			if _, err := io.WriteString(w, content); err != nil {
				return err
			}
		}
		return nil
	}
	full := errors.New("no more")
	for _, there := range []string{content, ""} { // over an object, and over none
		if there == "" {
			if err := s.Delete(t.Context(), uri); err != nil {
				t.Fatal(err)
			}
		}
		err := s.Create(t.Context(), uri, func(w io.Writer) error { return errors.Join(pieces(w), full) })
		if !errors.Is(err, full) {
			t.Errorf("Create: %v, want the writer's error", err)
		}
		if there != "" {
			wantContent(t, s, uri, there)
		} else if _, err := s.Read(t.Context(), uri, 0); !errors.Is(err, ErrNotExist) {
			t.Errorf("half an object is there: %v", err)
		}
		if err := s.Create(t.Context(), uri, pieces); err != nil {
			t.Fatal(err)
		}
		wantContent(t, s, uri, strings.Repeat(content, times))
		mustWrite(t, s, uri, content)
	}
}

// testSub loads a "model" through Sub.
func testSub(t *testing.T, s Store, base string) {
	mustWrite(t, s, Join(base, "m", "config.json"), "{}")
	mustWrite(t, s, Join(base, "secret"), "secret")
	fsys, err := Sub(t.Context(), Join(base, "m"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadFile(fsys, "config.json"); err != nil || string(got) != "{}" {
		t.Errorf("got %q, %v", got, err)
	}
	f, err := fsys.Open("config.json")
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != 2 || info.Name() != "config.json" || info.IsDir() {
		t.Errorf("Stat: %v, %v", info, err)
	}
	f.Close()
	if info, err := fs.Stat(fsys, "config.json"); err != nil || info.Size() != 2 || info.Name() != "config.json" || !info.Mode().IsRegular() {
		t.Errorf("fs.Stat: %v, %v", info, err)
	}
	for way, try := range map[string]func(string) error{
		"ReadFile": func(name string) error { _, err := fs.ReadFile(fsys, name); return err },
		"Stat":     func(name string) error { _, err := fs.Stat(fsys, name); return err },
		"Open": func(name string) error {
			f, err := fsys.Open(name)
			if err == nil {
				f.Close()
			}
			return err
		},
	} {
		if err := try("none"); !errors.Is(err, ErrNotExist) {
			t.Errorf("%s of a missing file: %v", way, err)
		}
		for _, name := range []string{"../secret", "/secret", "../m/config.json"} {
			if try(name) == nil {
				t.Errorf("%s of %s, which lies outside", way, name)
			}
		}
	}
}

func TestForRefuses(t *testing.T) {
	for uri, want := range map[string]string{
		"s3://bucket/x":      "s3://bucket/x: s3:// is not supported; give a local path or gs://",
		"HDFS://host/x":      "hdfs:// is not supported",
		"https://host/x":     "https:// is not supported",
		"file:///etc/passwd": "file:// is not supported; give the path itself",
		"gs://":              "no bucket",
		"gs:///x":            "no bucket",
		" gs://bucket/x":     `" gs://bucket/x": no scheme stands before ://; give gs://bucket/object, or a local path without ://`,
		"a/b://x":            "no scheme",
		"1s://x":             "no scheme",
		"://":                "no scheme",
	} {
		_, err := For(t.Context(), uri)
		wantError(t, err, nil, want)
		_, err = Sub(t.Context(), uri)
		wantError(t, err, nil, want)
	}
	for _, uri := range []string{"a", "/a", "a:b", "a:/x", "C:\\x"} {
		if _, err := For(t.Context(), uri); err != nil {
			t.Errorf("%q is a local path: %v", uri, err)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Join("a", "b"), "a/b"},
		{Join("a/", "b", "c d"), "a/b/c d"},
		{Join("a"), "a"},
		{Join("/", "b"), "/b"},
		{Join("gs://b", "o"), "gs://b/o"},
		{Join("gs://b/", "o", "p"), "gs://b/o/p"},
		{Join("gs://b/x", "o//p", "../q"), "gs://b/x/o//p/../q"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for uri, want := range map[string]string{
		"/a/ü, [1].txt": "/a/ü, [1].txt",
		`a"b\c`:         `a"b\c`,
		"a\nb":          `"a\nb"`,
		"a\xff":         `"a\xff"`,
		"a\x1b[31m":     `"a\x1b[31m"`,
	} {
		if got := quote(uri); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// in puts dir before the names.
func in(dir string, names ...string) []string {
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	return names
}

// nasty are names that some program cannot take.
var nasty = []string{
	"a b.txt", "a,b.txt", "a[1].txt", "a{b}.txt", "a*b.txt", "a?b.txt", "a\nb.txt", "a\rb.txt", "a\tb.txt",
	"\xff\xfe.txt", "\xc3.txt", "ä.txt", "日本.txt", "-n.txt", "~", "#1.txt", "%41.txt", "a'b\"c.txt", "$(x).txt", `a\b.txt`,
	" ", "...", ".hidden.txt", "a:b.txt", "x.txt.ann", strings.Repeat("n", 255),
}
