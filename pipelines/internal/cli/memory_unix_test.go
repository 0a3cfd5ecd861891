//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// The memory of the process that started this one is not its own. The test is
// its own program.
func TestPeakMemory(t *testing.T) {
	const child = "LINNET_PEAK"
	if os.Getenv(child) != "" {
		fmt.Println("peak", PeakMemory())
		return
	}
	const large = 256 << 20
	ballast := make([]byte, large)
	for i := 0; i < large; i += 1 << 10 {
		ballast[i] = 1
	}
	if got := PeakMemory(); got < large || got > 8*large {
		t.Errorf("%d bytes, %d of which are held", got, large)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeakMemory$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	runtime.KeepAlive(ballast)
	var got int64
	if _, err := fmt.Sscanf(string(out), "peak %d", &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err != nil || got < 1<<20 || got >= large && runtime.GOOS == "linux" {
		t.Errorf("a program that holds nothing: %d bytes, %v", got, err)
	}
}
