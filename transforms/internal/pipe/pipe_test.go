package pipe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOrder pushes elements of random sizes through random limits and takes
// random times over them; every result comes once, in order, on the caller's
// goroutine, and never more than the limit is in flight.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 100).Draw(t, "limit")
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 120), 0, 60).Draw(t, "sizes")
		drainEvery := rapid.IntRange(1, 30).Draw(t, "drain every")
		newPipe := New[int, int]
		if rapid.Bool().Draw(t, "io") {
			newPipe = NewIO[int, int]
		}
		var begun atomic.Int64
		p := newPipe(limit, func(_ context.Context, i int) (int, error) {
			begun.Add(1)
			for range i * 7919 % 3 {
				runtime.Gosched()
			}
			if i%5 == 4 {
				return i, fmt.Errorf("element %d", i)
			}
			return i, nil
		})
		var inFlight int64
		next := 0
		emit := func(i int, err error) error {
			if i != next {
				t.Fatalf("emitted %d, want %d", i, next)
			}
			if (err != nil) != (i%5 == 4) {
				t.Fatalf("element %d: error %v", i, err)
			}
			inFlight -= max(sizes[i], 1)
			next++
			return nil
		}
		for i, size := range sizes {
			if err := p.Push(t.Context(), i, size, emit); err != nil {
				t.Fatal(err)
			}
			inFlight += max(size, 1)
			if alone := next == i; inFlight > limit && !alone && inFlight > 0 {
				t.Fatalf("%d bytes in flight, limit %d", inFlight, limit)
			}
			if i%drainEvery == 0 {
				if err := p.Drain(t.Context(), emit); err != nil {
					t.Fatal(err)
				}
				if next != i+1 {
					t.Fatalf("%d emitted after Drain, want %d", next, i+1)
				}
			}
		}
		if err := p.Drain(t.Context(), emit); err != nil {
			t.Fatal(err)
		}
		if p.inFlight != 0 {
			t.Fatalf("%d bytes in flight at the end", p.inFlight)
		}
		if next != len(sizes) || int(begun.Load()) != len(sizes) {
			t.Fatalf("%d emitted, %d begun, want %d", next, begun.Load(), len(sizes))
		}
	})
}

// TestLarger has elements that count for too little at first: each comes once, and
// no more is in flight than the limit, or one alone, by what they then count for.
func TestLarger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 100).Draw(t, "limit")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 120), 0, 60).Draw(t, "sizes")
		room := make([]int64, len(sizes))
		var held, alone atomic.Int64 // what f returned and was not emitted
		p := NewIO(limit, func(_ context.Context, i int) (int, error) {
			if room[i] < sizes[i] {
				room[i] = sizes[i]
				return 0, Larger(sizes[i])
			}
			if n := held.Add(sizes[i]); n > limit && n != sizes[i] {
				alone.Add(1)
			}
			return i, nil
		})
		seen := map[int]bool{}
		emit := func(i int, err error) error {
			if err != nil || seen[i] {
				t.Fatalf("element %d, seen %t, %v", i, seen[i], err)
			}
			seen[i] = true
			held.Add(-sizes[i])
			return nil
		}
		for i := range sizes {
			room[i] = min(sizes[i], 10)
			if err := p.Push(t.Context(), i, room[i], emit); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Drain(t.Context(), emit); err != nil {
			t.Fatal(err)
		}
		if len(seen) != len(sizes) || p.inFlight != 0 || alone.Load() != 0 {
			t.Fatalf("%d of %d emitted, %d bytes in flight at the end, %d times beyond the limit", len(seen), len(sizes), p.inFlight, alone.Load())
		}
	})
}

// TestParallel shows that a Pipe uses all workers, and no more.
func TestParallel(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var running, most atomic.Int64
	var all sync.WaitGroup
	all.Add(3)
	f := func(_ context.Context, i int) (int, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if i < 3 { // the first three wait for each other
			all.Done()
			all.Wait()
		}
		return i, nil
	}
	p, q := New(1<<20, f), New(1<<20, f)
	emit := func(int, error) error { return nil }
	for i := range 100 {
		if err := errors.Join(p.Push(t.Context(), i+i/3*3, 1, emit), q.Push(t.Context(), i+3, 1, emit)); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if err := p.Drain(t.Context(), emit); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(p.Drain(t.Context(), emit), q.Drain(t.Context(), emit)); err != nil {
		t.Fatal(err)
	}
	if got := most.Load(); got != 3 {
		t.Errorf("%d ran at once, want 3", got)
	}
}

// TestIOHoldsNoCore fills NewIO's pool with waiting calls; New's goes on.
func TestIOHoldsNoCore(t *testing.T) {
	release := make(chan struct{})
	reads := NewIO(1<<20, func(context.Context, int) (int, error) { <-release; return 0, nil })
	emit := func(int, error) error { return nil }
	for i := range 2 * ioWorkers() {
		if err := reads.Push(t.Context(), i, 1, emit); err != nil {
			t.Fatal(err)
		}
	}
	work := New(1<<20, func(_ context.Context, i int) (int, error) { return i, nil })
	if err := work.Push(t.Context(), 1, 1, emit); err != nil {
		t.Fatal(err)
	}
	if err := work.Drain(t.Context(), emit); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := reads.Drain(t.Context(), emit); err != nil {
		t.Fatal(err)
	}
}

func TestReadyIsEmittedByPush(t *testing.T) {
	p := New(1<<20, func(_ context.Context, i int) (int, error) { return i, nil })
	var got []int
	emit := func(i int, _ error) error { got = append(got, i); return nil }
	if err := p.Push(t.Context(), 0, 1, emit); err != nil {
		t.Fatal(err)
	}
	for len(p.queue) > 0 && !p.queue[0].ready() {
		time.Sleep(time.Millisecond)
	}
	if err := p.Push(t.Context(), 1, 1, emit); err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		t.Error("a result that was ready was not emitted by the next Push")
	}
	p.Reset()
}

func TestPanic(t *testing.T) {
	p := New(1<<20, func(_ context.Context, i int) (int, error) {
		if i == 1 {
			panic(fmt.Errorf("boom\nline 2: %w", errTest))
		}
		return i, nil
	})
	var errs []error
	emit := func(_ int, err error) error { errs = append(errs, err); return nil }
	for i := range 3 {
		if err := p.Push(t.Context(), i, 1, emit); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Drain(t.Context(), emit); err != nil {
		t.Fatal(err)
	}
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("errors beside the panic: %v", errs)
	}
	caught, ok := errors.AsType[*Panic](errs[1])
	if !ok || !errors.Is(errs[1], errTest) {
		t.Fatalf("got %v, want a *Panic that wraps its value", errs[1])
	}
	if got, want := errs[1].Error(), "pipe: element 1: panic: boom line 2: test (pipe_test.go:"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q…", got, want)
	}
	if !strings.Contains(caught.Stack, "TestPanic") {
		t.Errorf("stack without the function that panicked:\n%s", caught.Stack)
	}
	// The runtime's frames of a panic of its own are not where it was raised.
	var lines []string
	if got, want := Catch(func() error { _ = lines[len(errs)]; return nil }).Error(), "with length 0 (pipe_test.go:"; !strings.Contains(got, want) {
		t.Errorf("got %q, want …%q…", got, want)
	}
}

var errTest = errors.New("test")

// TestEmitFails has emit fail, once, where Push waits for room, where Push finds
// an element ready, and in Drain.
func TestEmitFails(t *testing.T) {
	p := New(1, func(_ context.Context, i int) (int, error) { return i, nil })
	pass := func(int, error) error { return nil }
	failed := false
	fail := func(int, error) error {
		if failed {
			return nil
		}
		failed = true
		return errTest
	}
	push := func() error { return p.Push(t.Context(), 0, 1, fail) }
	for where, f := range map[string]func() error{
		"no room": func() error { p.limit = 1; return push() },
		"ready":   func() error { p.limit = 10; return push() },
		"Drain":   func() error { return p.Drain(t.Context(), fail) },
	} {
		for p.limit = 10; len(p.queue) == 0; { // or it was ready at once
			if err := p.Push(t.Context(), 0, 1, pass); err != nil {
				t.Fatal(err)
			}
		}
		<-p.queue[0].done
		failed = false
		if err := f(); !errors.Is(err, errTest) {
			t.Errorf("%s: got %v, want emit's error", where, err)
		}
		p.Reset()
		if p.inFlight != 0 || p.pushed != 0 {
			t.Errorf("%s: %d bytes in flight and %d pushed after Reset", where, p.inFlight, p.pushed)
		}
	}
}

// TestCancel shows that a cancelled context ends a Push that waits, and that
// Reset ends what has begun and drops what has not.
func TestCancel(t *testing.T) {
	var begun atomic.Int64
	p := New(10, func(ctx context.Context, _ int) (int, error) {
		begun.Add(1)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	emit := func(_ int, err error) error { return err }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	bundle, end := context.WithCancel(t.Context()) // outlives ctx
	defer end()
	for i := range 10 {
		if err := p.Push(bundle, i, 1, emit); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Push(ctx, 10, 1, emit); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Push: got %v, want the context's error", err)
	}
	if err := p.Drain(ctx, emit); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Drain: got %v, want the context's error", err)
	}
	p.Reset()
	if got, most := begun.Load(), int64(runtime.GOMAXPROCS(0)); got > most {
		t.Errorf("%d begun, want at most %d: Reset should drop the rest", got, most)
	}
	if err := p.Drain(t.Context(), func(int, error) error { return errTest }); err != nil {
		t.Errorf("Reset left results behind")
	}
}

// TestResetWaits has a call that goes on for a while after its context ended: it
// has ended too when Reset returns, or it would write into the next bundle.
func TestResetWaits(t *testing.T) {
	begun := make(chan struct{})
	var ended atomic.Bool
	p := New(10, func(ctx context.Context, _ int) (int, error) {
		close(begun)
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond)
		ended.Store(true)
		return 0, nil
	})
	if err := p.Push(t.Context(), 0, 1, func(int, error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	<-begun
	p.Reset()
	if !ended.Load() {
		t.Error("Reset returned while a call of f went on")
	}
}

// TestContextsEnd shows that the context of a call ends with it: those of a bundle
// of a million documents would otherwise stay until the bundle's own ends.
func TestContextsEnd(t *testing.T) {
	var ctx context.Context
	p := New(10, func(c context.Context, _ int) (int, error) { ctx = c; return 0, nil })
	emit := func(int, error) error { return nil }
	if err := errors.Join(p.Push(t.Context(), 0, 1, emit), p.Drain(t.Context(), emit)); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Error("the context of a call that returned goes on")
	}
}

func TestBusy(t *testing.T) {
	for Busy() > 0 {
		time.Sleep(time.Millisecond)
	}
	release := make(chan struct{})
	for range 10 {
		Go(func() { <-release })
	}
	if got := Busy(); got != 10 {
		t.Errorf("got %d, want 10", got)
	}
	close(release)
}

func BenchmarkPipe(b *testing.B) {
	p := New(1<<10, func(_ context.Context, i int) (int, error) { return i, nil })
	emit := func(int, error) error { return nil }
	for b.Loop() {
		p.Push(context.Background(), 1, 1, emit)
	}
	p.Drain(context.Background(), emit)
}
