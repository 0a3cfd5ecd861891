//go:build unix

package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A signal that comes twice at once, as timeout sends it, is one; a later one
// ends the program. The test is its own program.
func TestInterruptible(t *testing.T) {
	if pause := os.Getenv("LINNET_SECOND_SIGNAL"); pause != "" {
		ctx, stop := Interruptible(context.Background())
		defer stop()
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
		wait, err := time.ParseDuration(pause)
		if err != nil || !errors.Is(context.Cause(ctx), ErrTerminated) {
			t.Fatal(err, context.Cause(ctx))
		}
		time.Sleep(wait)
		syscall.Kill(os.Getpid(), syscall.SIGINT)
		time.Sleep(time.Second)
		return
	}
	for _, c := range []struct{ pause, says string }{
		{"0s", ""},
		{"300ms", "linnet: interrupted twice, ended at once"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInterruptible$")
		cmd.Env = append(os.Environ(), "LINNET_SECOND_SIGNAL="+c.pause)
		out, err := cmd.CombinedOutput()
		if ended := err != nil; ended != (c.says != "") || !strings.Contains(string(out), c.says) {
			t.Errorf("a second signal after %s: %v, %q, want %q", c.pause, err, out, c.says)
		}
	}
}
