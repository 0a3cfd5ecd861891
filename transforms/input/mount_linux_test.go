package input

import (
	"path/filepath"
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
