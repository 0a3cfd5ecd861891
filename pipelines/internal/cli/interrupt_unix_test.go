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
	if within := os.Getenv("LINNET_ECHO"); within != "" {
		var err error
		if echo, err = time.ParseDuration(within); err != nil {
			t.Fatal(err)
		}
		ctx, stop := interruptible()
		defer stop()
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrTerminated) {
			t.Fatal(context.Cause(ctx))
		}
		syscall.Kill(os.Getpid(), syscall.SIGINT)
		if echo > 0 {
			time.Sleep(time.Second) // and nothing happens
			return
		}
		time.Sleep(time.Minute)
		t.Fatal("it goes on")
	}
	for _, c := range []struct{ echo, says string }{
		{"1h", ""},
		{"0s", "linnet: interrupted twice, ended at once"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInterruptible$")
		cmd.Env = append(os.Environ(), "LINNET_ECHO="+c.echo)
		out, err := cmd.CombinedOutput()
		if ended := err != nil; ended != (c.says != "") || !strings.Contains(string(out), c.says) {
			t.Errorf("a second signal, one within %s being the first again: %v, %q, want %q", c.echo, err, out, c.says)
		}
	}
}
