package cli

import (
	"context"
	"errors"
	"testing"
)

// TestRunJob ends a job's context by SIGTERM, which leaves the job alone once it is
// submitted, by ctrl-C, which reaches it, and not at all.
func TestRunJob(t *testing.T) {
	for _, c := range []struct {
		end       error
		submitted bool
		want      error
	}{{ErrTerminated, true, ErrLeft}, {ErrTerminated, false, ErrTerminated}, {ErrInterrupted, true, ErrInterrupted}, {nil, true, nil}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		got, err := RunJob(ctx, true, func() bool { return c.submitted }, func(inner context.Context) (int, error) {
			if c.end == nil {
				return 7, nil
			}
			cancel(c.end)
			<-inner.Done() // or the end of RunJob
			return 0, context.Cause(inner)
		})
		cancel(nil)
		if !errors.Is(err, c.want) || errors.Is(err, ErrLeft) != (c.want == ErrLeft) || c.want == nil && got != 7 {
			t.Errorf("%v: got %d, %v, want %v", c.end, got, err, c.want)
		}
	}
	if _, err := RunJob(t.Context(), true, func() bool { return true }, func(context.Context) (int, error) { panic("no such image") }); err == nil || err.Error() != "no such image" {
		t.Errorf("a panic: got %v", err)
	}
}
