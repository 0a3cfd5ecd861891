//go:build !race

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestMemory checks that memory does not grow with the number of documents:
// the second run has 120 MB of text more than the first, and features.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	const room = 64 << 10 // KiB, for the garbage of a longer run
	documents := func(n int) string {
		dir := t.TempDir()
		text := bytes.Repeat(append(bytes.Repeat([]byte("Agaricus campestris "), 400), '\n'), 5)
		for i := range n {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", i)), text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	few, many := documents(1000), documents(4000)
	for _, runner := range []string{"direct", "prism"} {
		peak := func(in string) int64 { // KiB
			cmd := command("--runner="+runner, "--input="+in, "--output="+filepath.Join(t.TempDir(), "out"), "--memory_limit=256MiB", "--verbosity=0")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		}
		a, b := peak(few), peak(many)
		t.Logf("%s: %d KiB for 1,000 documents, %d KiB for 4,000", runner, a, b)
		for range 3 { // a collector that gets no core comes late; a leak stays
			if b <= a+room {
				break
			}
			b = min(b, peak(many))
		}
		if b > a+room {
			t.Errorf("%s: %d KiB for 1,000 documents, %d KiB for 4,000", runner, a, b)
		}
	}
}
