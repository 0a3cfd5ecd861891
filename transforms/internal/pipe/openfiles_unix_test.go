//go:build unix

package pipe

import (
	"runtime"
	"testing"
)

// TestOpenFiles has limits of open files as `ulimit -n` sets them.
func TestOpenFiles(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	defer func(before func() int) { openFiles = before }(openFiles)
	if got := openFiles(); got < 1 {
		t.Fatalf("%d files may be open", got)
	}
	for limit, want := range map[int]int{1: 1, 64: 32, 256: 128, 1024: 512, 1 << 20: 512} {
		openFiles = func() int { return limit }
		if got := ioWorkers(); got != want {
			t.Errorf("%d files may be open: %d workers, want %d", limit, got, want)
		}
	}
}
