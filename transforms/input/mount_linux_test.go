package input

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestTwoNames has one folder at two places, as containers have of a volume that is
// mounted twice: an output there would be written over its input.
func TestTwoNames(t *testing.T) {
	dir := tree(t, "in/s/a.txt.ann", "out/b.txt", "other/c.txt")
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := syscall.Mount(in, out, "", syscall.MS_BIND, ""); err != nil {
		t.Skip("needs the right to mount, as root has: ", err)
	}
	defer syscall.Unmount(out, 0)
	for _, arg := range []string{in, filepath.Join(in, "s"), filepath.Join(in, "s/a.txt.ann"), filepath.Join(in, "*/*.ann")} {
		if _, err := New([]string{arg}, out, false); err == nil || !strings.Contains(err.Error(), "lies in the output folder") {
			t.Errorf("%s into %s: %v", arg, out, err)
		}
	}
	if _, err := New([]string{in}, filepath.Join(out, "s"), false); err != nil {
		t.Errorf("an output below its input: %v", err)
	}
	if _, err := New([]string{in}, filepath.Join(dir, "other"), false); err != nil {
		t.Errorf("an output beside its input: %v", err)
	}
}

// TestMountBelowOutput has folders of the inputs below the output, by a mount: an output
// there would be written over an input, or beside them.
func TestMountBelowOutput(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		wantErr        error
	}{
		{"the folder of the same name", "in/s", "out/s", ErrTwins},
		{"a folder above", "in", "out/html", ErrTwins},
		{"below a format's folder", "in/s/d", "out/html/s/d", ErrTwins},
		{"a folder of nobody's", "else", "out/s", nil},
		{"nothing is written to it", "in/s", "out/old", nil},
	} {
		dir := tree(t, "in/a.txt", "in/s/b.txt.ann", "in/s/d/c.txt", "out/s/x", "out/html/s/d/x", "out/old/x", "else/y")
		at := func(path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
		if err := syscall.Mount(at(c.from), at(c.to), "", syscall.MS_BIND, ""); err != nil {
			t.Skip("needs the right to mount, as root has: ", err)
		}
		t.Cleanup(func() { syscall.Unmount(at(c.to), 0) })
		set := newSet(t, []string{at("in")}, at("out"), false)
		set.Outputs = []Output{{Suffix: ".ann"}, {Folder: "html", Suffix: ".html"}}
		names, err := namesOf(t, set)
		slices.Sort(names)
		if !errors.Is(err, c.wantErr) || err == nil && !slices.Equal(names, []string{"a.txt", "s/b.txt", "s/d/c.txt"}) || err != nil && !strings.Contains(err.Error(), "would lie among the inputs") {
			t.Errorf("%s: %q, %v; want %v", c.name, names, err, c.wantErr)
		}
	}
	dir := tree(t, "in/s/a.txt", "in/out/s/x")
	set := newSet(t, []string{filepath.Join(dir, "in")}, filepath.Join(dir, "in/out"), false)
	set.Outputs = []Output{{Suffix: ".ann"}}
	if names, err := namesOf(t, set); err != nil || !slices.Equal(names, []string{"s/a.txt"}) {
		t.Errorf("an output below its input, without mounts: %q, %v", names, err)
	}
}
