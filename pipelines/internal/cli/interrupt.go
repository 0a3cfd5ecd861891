package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Causes of a context that interruptible's signals ended. ErrTerminated wraps
// ErrInterrupted.
var (
	ErrInterrupted = errors.New("interrupted")
	ErrTerminated  = fmt.Errorf("%w by SIGTERM", ErrInterrupted)
)

// grace is how long a program has to end after SIGTERM: those who send it, such
// as a batch system or a cloud that takes a machine back, often kill after 10 s.
const grace = 9 * time.Second

// echo is how soon after the first signal another is taken for the same one: timeout(1)
// signals the program and its process group, and a script may pass on what a terminal
// or a batch system sent to the script and the program.
var echo = 200 * time.Millisecond // a test has another

// interruptible returns a context that the first SIGINT or SIGTERM ends, with
// the cause ErrInterrupted or ErrTerminated; the second ends the program at once,
// and so does the end of 9 s after SIGTERM.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var first time.Time
		for s := range signals {
			if !first.IsZero() {
				if time.Since(first) < echo {
					continue
				}
				fmt.Fprintln(os.Stderr, "\nlinnet: interrupted twice, ended at once")
				os.Exit(Failed)
			}
			first = time.Now()
			if s != syscall.SIGTERM {
				cancel(ErrInterrupted)
				continue
			}
			cancel(ErrTerminated)
			time.AfterFunc(grace, func() {
				fmt.Fprintf(os.Stderr, "linnet: %v, and not through after %v; what is done is kept, run again to go on, train with --resume\n", ErrTerminated, grace)
				os.Exit(Failed)
			})
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// ErrLeft says that a job elsewhere goes on without this program.
var ErrLeft = fmt.Errorf("%w: the job goes on without this program (--cancel_on_exit would cancel it)", ErrTerminated)

// RunJob is run(ctx). With leave, which is for a job elsewhere, it returns ErrLeft
// at SIGTERM and leaves the job alone, for who sends it may want the launcher's
// machine and not the job's end; any other end of ctx, and one before the job is
// submitted, ends the context of run.
func RunJob[T any](ctx context.Context, leave bool, submitted func() bool, run func(context.Context) (T, error)) (T, error) {
	if !leave {
		return run(ctx)
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	left := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrTerminated) && submitted() {
			close(left)
		} else {
			cancel(context.Cause(ctx))
		}
	})()
	type ran struct {
		result T
		err    error
	}
	over := make(chan ran, 1)
	go func() {
		var r ran
		r.err = guard(inner, func(ctx context.Context) (err error) {
			r.result, err = run(ctx)
			return err
		})
		over <- r
	}()
	select {
	case r := <-over:
		return r.result, r.err
	case <-left:
		var none T
		return none, ErrLeft
	}
}
