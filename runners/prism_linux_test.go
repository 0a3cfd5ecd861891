package runners

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
)

// TestPrismWithoutLocalhost has a run on prism where the loopback interface is down.
func TestPrismWithoutLocalhost(t *testing.T) {
	const inside = "LINNET_TEST_WITHOUT_LOCALHOST"
	if os.Getenv(inside) != "" {
		set(t, map[string]string{"runner": Prism})
		p, scope := beam.NewPipelineWithRoot()
		beam.Create(scope, 1)
		_, err := Run(t.Context(), p, "test", 0)
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPrismWithoutLocalhost$", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
	}
	start := time.Now()
	out, err := cmd.CombinedOutput() // it fails as the test in it does
	if cmd.Process == nil {
		t.Skip("no network namespaces here: ", err)
	}
	if !strings.Contains(string(out), "runners: --runner=prism needs localhost: dial tcp ") {
		t.Errorf("after %v: %s", time.Since(start), out)
	}
}
