//go:build unix

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

func localStore(t *testing.T) Store {
	return storeFor(t, ".")
}

// files makes files below dir; a name that ends in a slash is a folder.
func files(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := dir + "/" + name // not Join, which cleans
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o777); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
}

func TestLocalReadWrite(t *testing.T) {
	testReadWrite(t, localStore(t), t.TempDir())
	dir := t.TempDir()
	testReadWrite(t, local{dir + "/_tmp"}, dir)
}

// TestLocalAddLink has a link where a file is to be added: it stays.
func TestLocalAddLink(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "folder/", "file")
	s := localStore(t)
	for target, want := range map[string]error{"file": ErrTaken, "folder": ErrTaken, "loop": nil} {
		uri := dir + "/loop"
		link(t, target, uri)
		_, err := s.Add(t.Context(), uri, []byte("text"))
		wantError(t, err, want, uri)
		if got, err := os.Readlink(uri); got != target {
			t.Errorf("link to %s: got %q, %v", target, got, err)
		}
		if err := os.Remove(uri); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLocalSub(t *testing.T) {
	dir := t.TempDir()
	testSub(t, localStore(t), dir)
	link(t, "../secret", dir+"/m/weights.safetensors")
	fsys, err := Sub(t.Context(), dir+"/m")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadFile(fsys, "weights.safetensors"); err != nil || string(got) != "secret" {
		t.Errorf("by a link that leaves the folder: %q, %v", got, err)
	}
	if _, err = Sub(t.Context(), dir+"/secret"); err == nil || err.Error() != "store: "+dir+"/secret: not a directory" {
		t.Errorf("of a file: %v", err)
	}
	for _, uri := range []string{dir + "/none", ""} {
		_, err = Sub(t.Context(), uri)
		wantError(t, err, ErrNotExist, uri)
	}
}

func TestLocalNastyNames(t *testing.T) {
	dir := t.TempDir()
	s := local{dir + "/_tmp"}
	want := slices.Clone(nasty)
	for _, name := range nasty {
		mustWrite(t, s, dir+"/in/"+name, name)
		wantContent(t, s, dir+"/in/"+name, name)
		got, objects := list(t, s, dir+"/in/"+name) // the name itself, not the pattern
		wantPaths(t, "file", got, []string{dir + "/in/" + name})
		if objects[0].InFolder {
			t.Errorf("%q was named itself", name)
		}
	}
	slices.Sort(want)
	want = in(dir+"/in", want...)
	for _, uri := range []string{dir + "/in", dir + "/in/"} {
		got, objects := list(t, s, uri)
		wantPaths(t, "folder", got, want)
		for _, o := range objects {
			if !o.InFolder || o.Err != nil || o.Size != int64(len(filepath.Base(o.Path))) || time.Since(o.Modified) > time.Minute {
				t.Errorf("%+v", o)
			}
			if content, err := s.Read(t.Context(), o.Path, 0); err != nil || string(content) != filepath.Base(o.Path) {
				t.Errorf("%q: read %q, %v", o.Path, content, err)
			}
		}
	}
	got, objects := list(t, s, dir+"/in/*")
	wantPaths(t, "pattern", got, want)
	if objects[0].InFolder {
		t.Error("matched by a pattern, not found in a folder")
	}
	if left, err := os.ReadDir(dir + "/_tmp"); err != nil || len(left) != 0 {
		t.Errorf("temporary folder: %v, %v; want it empty", left, err)
	}
	for _, name := range nasty {
		if err := s.Delete(t.Context(), dir+"/in/"+name); err != nil {
			t.Error(err)
		}
	}
	if err := s.Delete(t.Context(), dir+"/in"); err != nil { // an empty folder
		t.Error(err)
	}
	_, err := os.Stat(dir + "/in")
	wantError(t, localError("x", err), ErrNotExist)

	err = s.Write(t.Context(), dir+"/"+strings.Repeat("n", 256), nil)
	wantError(t, err, ErrName, "nnn")
}

func TestLocalPatterns(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "a.txt", "b.txt", "a[1].txt", "a1.txt", "c.ann", "s/d.txt", "s/t/e.txt", "s[2]/f.txt", "s2/g.txt", "empty/", "x/y.txt/z.txt")
	s := localStore(t)
	tests := []struct {
		pattern string
		want    []string
	}{
		{"*.txt", []string{"a.txt", "a1.txt", "a[1].txt", "b.txt"}},
		{"a[1].txt", []string{"a[1].txt"}}, // exists by that name
		{"[ab].txt", []string{"a.txt", "b.txt"}},
		{"?.*", []string{"a.txt", "b.txt", "c.ann"}},
		{"**/*.txt", []string{"a.txt", "a1.txt", "a[1].txt", "b.txt", "s/d.txt", "s/t/e.txt", "s2/g.txt", "s[2]/f.txt", "x/y.txt/z.txt"}},
		{"**", []string{"a.txt", "a1.txt", "a[1].txt", "b.txt", "c.ann", "s/d.txt", "s/t/e.txt", "s2/g.txt", "s[2]/f.txt", "x/y.txt/z.txt"}},
		{"s/**", []string{"s/d.txt", "s/t/e.txt"}},
		{"s/**/e.txt", []string{"s/t/e.txt"}},
		{"*/*.txt", []string{"s/d.txt", "s2/g.txt", "s[2]/f.txt"}}, // x/y.txt is a folder
		{"s[2]/*.txt", []string{"s[2]/f.txt"}},                     // the folder exists by that name
		{"s[23]/*.txt", []string{"s2/g.txt"}},
		{`s\[2]/*`, []string{"s[2]/f.txt"}},
		{`a\[1].txt`, []string{"a[1].txt"}},
		{"s/../[a]*.txt", []string{"a.txt", "a1.txt", "a[1].txt"}},
	}
	for _, test := range tests {
		got, _ := list(t, s, dir+"/"+test.pattern)
		wantPaths(t, test.pattern, got, in(dir, test.want...))
	}
	for _, none := range []string{"*.pdf", "none/*.txt", "s/d.txt/*", "s/d.txt/x/*", "empty/*", "s/*/*/*"} {
		err := s.List(t.Context(), dir+"/"+none, func(o Object) error { t.Errorf("%s found %s", none, o.Path); return nil })
		wantError(t, err, ErrNotExist, dir+"/"+none, "nothing matches")
	}
	wantError(t, s.List(t.Context(), dir+"/none", nil), ErrNotExist, dir+"/none")
	wantError(t, s.List(t.Context(), "", nil), nil, "empty")
	if err := s.List(t.Context(), dir+"/empty", nil); err != nil {
		t.Errorf("empty folder: %v", err)
	}

	t.Chdir(dir + "/s")
	got, _ := list(t, s, "*.txt")
	wantPaths(t, "relative pattern", got, []string{"d.txt"})
	got, _ = list(t, s, ".")
	wantPaths(t, "this folder", got, []string{"d.txt", "t/e.txt"})
	got, _ = list(t, s, "./t/../*/*")
	wantPaths(t, "relative pattern with folders", got, []string{"t/e.txt"})
	got, _ = list(t, s, "../s2")
	wantPaths(t, "folder above", got, []string{"../s2/g.txt"})
}

func TestLocalLinks(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "in/a/1.txt", "in/b/2.txt", "out/3.txt", "out/d/4.txt")
	link(t, "../out", dir+"/in/aa")            // elsewhere
	link(t, "../out", dir+"/in/az")            // the same once more
	link(t, "..", dir+"/in/b/up")              // a loop
	link(t, "b", dir+"/in/bb")                 // a folder that is listed anyway
	link(t, "../../in", dir+"/out/d/back")     // a loop over two links
	link(t, "a/1.txt", dir+"/in/link.txt")     // a file
	link(t, "nowhere", dir+"/in/dangling.txt") // nothing
	link(t, "loop.txt", dir+"/in/loop.txt")    // itself
	link(t, "in", dir+"/inlink")               // the root
	link(t, "nothing", dir+"/dangling")        // a named one
	if err := syscall.Mkfifo(dir+"/in/pipe.txt", 0o666); err != nil {
		t.Fatal(err)
	}
	s := localStore(t)
	got, objects := list(t, s, dir+"/in")
	wantPaths(t, "folder", got, in(dir+"/in", "a/1.txt", "b/2.txt", "dangling.txt", "link.txt", "loop.txt", "pipe.txt", "aa/3.txt", "aa/d/4.txt"))
	for _, o := range objects {
		switch name := filepath.Base(o.Path); name {
		case "dangling.txt":
			wantError(t, o.Err, ErrNotExist, o.Path+": link to nowhere, which does not exist")
		case "loop.txt":
			wantError(t, o.Err, nil, o.Path)
		case "pipe.txt":
			wantError(t, o.Err, nil, o.Path+": is a pipe, not a file")
			_, err := s.Read(t.Context(), o.Path, 0) // must not wait
			wantError(t, err, nil, "is a pipe")
		default:
			if o.Err != nil {
				t.Error(o.Err)
			}
		}
	}
	got, _ = list(t, s, dir+"/inlink")
	if len(got) != 8 || got[0] != dir+"/inlink/a/1.txt" {
		t.Errorf("a link to the root: %q", got)
	}
	got, _ = list(t, s, dir+"/in/**/[1-4].txt")
	wantPaths(t, "pattern", got, in(dir+"/in", "a/1.txt", "b/2.txt", "aa/3.txt", "aa/d/4.txt"))
	got, _ = list(t, s, dir+"/in/aa/*.txt")
	wantPaths(t, "pattern below a link", got, in(dir+"/in/aa", "3.txt"))
	got, objects = list(t, s, dir+"/dangling")
	wantPaths(t, "named", got, []string{dir + "/dangling"})
	wantError(t, objects[0].Err, ErrNotExist, "link to nothing")
	_, err := s.Read(t.Context(), dir+"/in", 0)
	wantError(t, err, ErrFolder, "is a folder, not a file")
	_, err = s.Stat(t.Context(), dir+"/in")
	wantError(t, err, ErrFolder, "is a folder, not a file")
	if o, err := s.Stat(t.Context(), dir+"/in/link.txt"); err != nil || o.Size != int64(len("in/a/1.txt")) {
		t.Errorf("Stat of a link: %+v, %v", o, err)
	}
	for path, want := range map[string]struct {
		link bool
		err  error // of the object
		says string
	}{
		"/in/a/1.txt": {}, "/in/link.txt": {link: true}, "/in/dangling.txt": {true, ErrNotExist, "link to nowhere"}, "/in/loop.txt": {link: true, says: "symbolic links"},
		"/in/pipe.txt": {false, ErrNotFile, "is a pipe"}, "/in": {false, ErrFolder, "is a folder"}, "/inlink": {true, ErrFolder, "is a folder"},
	} {
		o, err := s.Look(t.Context(), dir+path)
		if err != nil || o.Link != want.link || (o.Err != nil) != (want.says != "") {
			t.Errorf("Look at %s: %+v, %v", path, o, err)
		} else if o.Err != nil {
			wantError(t, o.Err, want.err, want.says)
		}
	}
	for _, path := range []string{"/in/gone.txt", "/in/a/1.txt/x.txt"} {
		_, err := s.Look(t.Context(), dir+path)
		wantError(t, err, ErrNotExist, path)
	}

	// A pattern may match by a link alone what it came by before.
	files(t, dir, "years/text1994/4.txt", "years/1994/5.txt")
	link(t, "../text1994", dir+"/years/1994/text")
	link(t, "..", dir+"/years/1994/up")
	for uri, want := range map[string][]string{
		"/years/*/text/*.txt":  {"1994/text/4.txt"},
		"/years/**/text/*.txt": {"1994/text/4.txt"},
		"/years/**/*.txt":      {"1994/5.txt", "text1994/4.txt"},
		"/years/**/up/**/5*":   {"1994/up/1994/5.txt"},
	} {
		got, _ = list(t, s, dir+uri)
		wantPaths(t, uri, got, in(dir+"/years", want...))
	}

	// What is hidden and reached by another name too is listed by that.
	files(t, dir, "cache/.store/v/1.txt", "cache/.x/.y/3.txt", "far/2.txt")
	link(t, ".store/v", dir+"/cache/v")
	link(t, "../far", dir+"/cache/w")
	link(t, "../far", dir+"/cache/.w")
	for uri, want := range map[string][]string{
		"/cache":       {"v/1.txt", "w/2.txt", ".x/.y/3.txt hidden"},
		"/cache/**":    {"v/1.txt", "w/2.txt", ".x/.y/3.txt hidden"},
		"/cache/.*/*":  {".w/2.txt"},
		"/cache/.*/**": {".store/v/1.txt", ".w/2.txt", ".x/.y/3.txt hidden"},
	} {
		got, objects = list(t, s, dir+uri)
		for i, o := range objects {
			if o.Hidden {
				got[i] += " hidden"
			}
		}
		wantPaths(t, uri, got, in(dir+"/cache", want...))
	}
}

// TestLocalSameNumber has another folder's number for two folders, as a disk that is made
// of several may give it: they are listed all the same, once.
func TestLocalSameNumber(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "a/1.txt", "b/c/2.txt")
	link(t, "b", dir+"/l")
	root, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	w := walker{ctx: t.Context(), base: dir, entered: map[folderID]*states{}, fn: func(o Object) error { got = append(got, o.Path); return o.Err }}
	for _, folder := range []string{"/a", "/b", "/b/c"} {
		info, err := os.Stat(dir + folder)
		if err != nil {
			t.Fatal(err)
		}
		w.entered[folderID{idOf(dir+folder, info), info.Size(), info.ModTime().UnixNano() - 1}] = nil
	}
	if err := w.root(dir, root); err != nil {
		t.Fatal(err)
	}
	wantPaths(t, "folders of one number", got, in(dir, "a/1.txt", "b/c/2.txt"))
}

// TestSame has a file as it was in place of another one of the same number.
func TestSame(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "a", "b")
	look := func(path string) os.FileInfo {
		t.Helper()
		info, err := os.Stat(dir + path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	link(t, "a", dir+"/l")
	before := look("/a")
	if !Same(before, look("/l")) || Same(before, look("/b")) {
		t.Error("a file is not the same by a link, or the same as another")
	}
	if err := os.Chtimes(dir+"/a", time.Time{}, before.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if Same(before, look("/a")) {
		t.Error("another time is the same file")
	}
	if err := errors.Join(os.WriteFile(dir+"/a", []byte("longer"), 0o666), os.Chtimes(dir+"/a", time.Time{}, before.ModTime())); err != nil {
		t.Fatal(err)
	}
	if Same(before, look("/a")) {
		t.Error("another size is the same file")
	}
}

// TestLocalPages lists folders of more names than a page holds, in order.
func TestLocalPages(t *testing.T) {
	defer func(n int) { pageNames = n }(pageNames)
	dir := t.TempDir()
	var want []string
	for i := range 3000 { // more than the system hands out at a time
		want = append(want, fmt.Sprintf("%d.txt", i*7919%10007))
	}
	files(t, dir, want...)
	files(t, dir, "sub/1", "sub/2", "sub/3")
	want = append(want, "sub/1", "sub/2", "sub/3")
	slices.Sort(want)
	for _, pageNames = range []int{1 << 17, 2999, 1000, 7, 3} {
		var got []string
		if err := localStore(t).List(t.Context(), dir, func(o Object) error {
			got = append(got, o.Path[len(dir)+1:])
			return o.Err
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with pages of %d names: %d files of %d, or not in order", pageNames, len(got), len(want))
		}
	}
}

// TestLocalWriteIsWhole has readers look while writers replace a file.
func TestLocalWriteIsWhole(t *testing.T) {
	dir := t.TempDir()
	s := local{dir + "/_tmp"}
	uri := dir + "/out/x.txt"
	texts := []string{strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<17)}
	mustWrite(t, s, uri, texts[0])
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for range 50 {
				if err := s.Write(t.Context(), uri, []byte(texts[i%2])); err != nil {
					t.Error(err)
				}
				got, err := os.ReadFile(uri)
				if err != nil || string(got) != texts[0] && string(got) != texts[1] {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	wait.Wait()
	if left, err := os.ReadDir(dir + "/_tmp"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLocalWriteFails(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "file", "folder/x")
	s := local{dir + "/_tmp"}
	wantError(t, s.Write(t.Context(), dir+"/file/x", nil), nil, dir+"/file/x: not a directory")
	err := s.Create(t.Context(), dir+"/all", func(io.Writer) error { _, err := s.Read(t.Context(), dir+"/none", 0); return err })
	if err == nil || strings.Contains(err.Error(), "choose") {
		t.Errorf("a file that was to be read tells %v of the one to be written", err)
	}
	wantError(t, s.Write(t.Context(), dir+"/folder", nil), nil, dir+"/folder")
	wantError(t, s.Delete(t.Context(), dir+"/folder"), nil, dir+"/folder")
	if left, _ := os.ReadDir(dir + "/_tmp"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	wantContent(t, s, dir+"/folder/x", "folder/x")
}

// TestLocalWriteSwept has somebody remove the folder of half-written files as one is written.
func TestLocalWriteSwept(t *testing.T) {
	dir := t.TempDir()
	s, err := WithTemp(t.Context(), dir, dir+"/_tmp")
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = s.Create(t.Context(), dir+"/a/n1.txt.ann", func(w io.Writer) error {
		if tries++; tries == 1 {
			if err := os.RemoveAll(dir + "/_tmp"); err != nil {
				t.Skip("needs to remove what is open: ", err)
			}
		}
		_, err := io.WriteString(w, "whole")
		return err
	})
	if got, _ := os.ReadFile(dir + "/a/n1.txt.ann"); err != nil || string(got) != "whole" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLocalReadChanging(t *testing.T) {
	dir := t.TempDir()
	uri := dir + "/x.txt"
	s := localStore(t)
	mustWrite(t, s, uri, strings.Repeat("x", 1<<22))
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		f, err := os.OpenFile(uri, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for ctx.Err() == nil {
			f.WriteString("x")
		}
	})
	var err error
	for range 1000 {
		if _, err = s.Read(ctx, uri, 0); err != nil {
			break
		}
	}
	cancel()
	wait.Wait()
	wantError(t, err, ErrChanged, uri+": changed while it was read")
}

// TestLocalReadTouched has the time of a file change while it is read, and nothing else: a
// mount of a remote store gives it another one when it has sent it off.
func TestLocalReadTouched(t *testing.T) {
	uri := t.TempDir() + "/x.txt"
	s := localStore(t)
	text := strings.Repeat("x", 1<<22)
	mustWrite(t, s, uri, text)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := int64(0); ctx.Err() == nil; n++ {
			if err := os.Chtimes(uri, time.Time{}, time.Unix(n, 0)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 100 {
		if got, err := s.Read(ctx, uri, 0); err != nil || string(got) != text {
			t.Errorf("%d bytes, %v", len(got), err)
			break
		}
	}
	cancel()
	wait.Wait()
}

// TestLocalNoRename has the error that a disk which cannot rename gives.
func TestLocalNoRename(t *testing.T) {
	for _, cause := range []error{syscall.ENOSYS, syscall.EOPNOTSUPP} {
		err := WriteError("out/x", &os.LinkError{Op: "rename", Old: "out/_tmp/y", New: "out/x", Err: cause})
		wantError(t, err, cause, "store: out/x: "+cause.Error()+": this disk cannot do that; choose a folder on another disk")
	}
}

// TestLocalReadReplaced reads a file that is written again and again, each time whole.
func TestLocalReadReplaced(t *testing.T) {
	uri := t.TempDir() + "/x.txt"
	s := localStore(t)
	mustWrite(t, s, uri, "x")
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := 1; ctx.Err() == nil; n = n%9 + 1 {
			if err := s.Write(t.Context(), uri, bytes.Repeat([]byte("x"), n)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		if _, err := s.Read(ctx, uri, 0); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	wait.Wait()
}

func TestLocalLock(t *testing.T) {
	uri := t.TempDir() + "/out/_lock"
	s := localStore(t)
	unlock := locked(t, s, uri)
	_, err := s.Lock(t.Context(), uri)
	wantError(t, err, ErrLocked, uri, "process "+strconv.Itoa(os.Getpid())+" on ", "wait for its end")
	for range 2 {
		if err := unlock(); err != nil {
			t.Errorf("unlock: %v", err)
		}
	}
	// A process that is killed leaves its lock free.
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperLock$")
	cmd.Env = append(os.Environ(), "LOCK_URI="+uri)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out); err != nil { // it has the lock
		t.Fatal(err)
	}
	_, err = s.Lock(t.Context(), uri)
	wantError(t, err, ErrLocked, "process "+strconv.Itoa(cmd.Process.Pid)+" on ")
	cmd.Process.Kill()
	cmd.Wait()
	unlock, err = s.Lock(t.Context(), uri)
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// A lock whose file went, or is another run's by now, is told of at the end: another may
// have written there, too.
func TestLocalLockLost(t *testing.T) {
	s := localStore(t)
	for name, content := range map[string]string{"removed": "", "another's": "\x00process 1 on elsewhere"} {
		uri := t.TempDir() + "/_lock"
		unlock := locked(t, s, uri)
		if err := os.Remove(uri); err != nil {
			t.Skip("needs to remove what is open: ", err)
		}
		if content != "" {
			if err := os.WriteFile(uri, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		wantError(t, unlock(), ErrLost, uri)
		if got, _ := os.ReadFile(uri); string(got) != content {
			t.Errorf("%s: after unlock the file has %q", name, got)
		}
	}
}

// A lock that nobody has told the holder of yet is about to be, or free in a moment.
func TestLocalLockReleased(t *testing.T) {
	uri := t.TempDir() + "/_lock"
	ending := flock.New(uri)
	if ok, err := ending.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	time.AfterFunc(100*time.Millisecond, func() { ending.Unlock() })
	if err := locked(t, localStore(t), uri)(); err != nil {
		t.Error(err)
	}
}

// A disk without file locks, such as Lustre as it is often mounted, or NFS without its
// lock daemon, says so and what to do.
func TestLocalNoLocks(t *testing.T) {
	for _, cause := range []error{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENOLCK} {
		err := lockFailure("out/_lock", cause)
		if want := fmt.Sprintf("store: out/_lock: %v; this disk has no file locks: mount it with them (-o flock), or choose a folder on another disk", cause); err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := lockFailure("out/_lock", syscall.EACCES); strings.Contains(err.Error(), "no file locks") {
		t.Errorf("of another fault: got %v", err)
	}
}

// TestHelperLock is the other process of TestLocalLock.
func TestHelperLock(t *testing.T) {
	uri := os.Getenv("LOCK_URI")
	if uri == "" {
		t.Skip("runs only as a part of TestLocalLock")
	}
	if _, err := localStore(t).Lock(t.Context(), uri); err != nil {
		t.Fatal(err)
	}
	fmt.Println()
	time.Sleep(10 * time.Minute) // until it is killed
}

func TestLocalListStops(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, "a", "b", "c")
	s := localStore(t)
	want := errors.New("enough")
	n := 0
	err := s.List(t.Context(), dir, func(Object) error {
		if n++; n == 2 {
			return want
		}
		return nil
	})
	if !errors.Is(err, want) || n != 2 {
		t.Errorf("got %v after %d, want fn's error after 2", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = s.List(ctx, dir, func(Object) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func BenchmarkLocalWrite(b *testing.B) {
	dir := b.TempDir()
	s := local{dir + "/_tmp"}
	data := make([]byte, 10<<10)
	for i := 0; b.Loop(); i++ {
		if err := s.Write(b.Context(), fmt.Sprintf("%s/out/%d", dir, i), data); err != nil {
			b.Fatal(err)
		}
	}
}
