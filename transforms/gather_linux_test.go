package transforms

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestMergeWithMounts has a disk mounted where temporary files are written, as one in
// memory for speed: its folder cannot be removed, which is no fault of the run's.
func TestMergeWithMounts(t *testing.T) {
	out := t.TempDir()
	temp := filepath.Join(out, TempFolder)
	if err := os.Mkdir(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", temp, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs the right to mount, as root has: ", err)
	}
	defer syscall.Unmount(temp, 0)
	left := filepath.Join(temp, ".KILLED.tmp")
	if err := os.WriteFile(left, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Merge(t.Context(), out); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("a temporary file is left")
	}
}
