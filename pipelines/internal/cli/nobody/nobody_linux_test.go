package nobody_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	// Whose initialisation asks for the user.
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam"

	_ "github.com/linnet-ml/linnet/pipelines/internal/cli/nobody"
)

// TestUnknownUser starts this program as a user without a name.
func TestUnknownUser(t *testing.T) {
	for _, env := range [][]string{{}, {"HOME=/"}, {"USER=somebody"}} {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 65532, HostID: os.Getuid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if cmd.Process == nil {
			t.Skip("no user namespaces here: ", err)
		}
		if err != nil && !strings.HasPrefix(string(out), "linnet: user: unknown userid 65532: ") { // with cgo
			t.Errorf("%q: %v: %s", env, err, out)
		}
	}
}
