//go:build amd64 || arm64

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// TestHugePages counts the faults of pages that memory takes when it is touched first,
// in a program of its own: the test's heap is in use.
func TestHugePages(t *testing.T) {
	const child, touched = "LINNET_HUGE_PAGES", 32 << 20
	if mode := os.Getenv(child); mode != "" {
		if mode == "huge" {
			hugePages(2 * touched)
		}
		var before, after syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		memory := make([]byte, touched)
		for i := 0; i < len(memory); i += 1 << 10 {
			memory[i] = 1
		}
		syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		runtime.KeepAlive(memory)
		fmt.Println("faults", after.Minflt-before.Minflt)
		return
	}
	enabled, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if !bytes.Contains(enabled, []byte("[madvise]")) {
		t.Skipf("transparent_hugepage/enabled is %q, not madvise", bytes.TrimSpace(enabled))
	}
	faults := map[string]int{}
	for _, mode := range []string{"small", "huge"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHugePages$")
		cmd.Env = append(os.Environ(), child+"="+mode)
		out, err := cmd.Output()
		var n int
		if _, e := fmt.Sscanf(string(out), "faults %d", &n); err != nil || e != nil {
			t.Fatalf("%v, %v: %s", err, e, out)
		}
		faults[mode] = n
	}
	t.Logf("faults of %d MiB: %v", touched>>20, faults)
	if small := touched / os.Getpagesize(); faults["small"] < small/2 {
		t.Skipf("%d faults without huge pages, where %d pages are touched", faults["small"], small)
	}
	if faults["huge"] > faults["small"]/4 {
		t.Errorf("%d faults with huge pages, %d without", faults["huge"], faults["small"])
	}
}
