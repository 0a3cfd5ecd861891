package inference

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestSharedLoadsOnce(t *testing.T) {
	var s Shared[*int]
	var loads atomic.Int64
	var wait sync.WaitGroup
	models := make([]*int, 20)
	for i := range models {
		wait.Go(func() {
			var err error
			models[i], err = s.Get(t.Context(), "a", func(context.Context) (*int, error) {
				loads.Add(1)
				time.Sleep(5 * time.Millisecond)
				return new(int), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if got := loads.Load(); got != 1 {
		t.Errorf("%d loads, want 1", got)
	}
	for _, m := range models {
		if m == nil || m != models[0] {
			t.Fatal("callers got different models")
		}
	}
	other, err := s.Get(t.Context(), "b", func(context.Context) (*int, error) { return new(int), nil })
	if err != nil || other == models[0] {
		t.Errorf("another key: %v, same model: %v", err, other == models[0])
	}
	if m, ok := s.Forget("a"); !ok || m != models[0] {
		t.Errorf("Forget returned %v, %v", m, ok)
	}
	if m, err := s.Get(t.Context(), "a", func(context.Context) (*int, error) { return new(int), nil }); err != nil || m == models[0] {
		t.Errorf("after Forget: %v, old model: %v", err, m == models[0])
	}
	if _, ok := s.Forget("none"); ok {
		t.Error("Forget found what was never loaded")
	}
}

func TestSharedForgetsFailure(t *testing.T) {
	var s Shared[int]
	want := errors.New("no such file")
	if _, err := s.Get(t.Context(), "a", func(context.Context) (int, error) { return 0, want }); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if _, err := s.Get(t.Context(), "a", func(context.Context) (int, error) { panic("bug") }); err == nil || !strings.HasPrefix(err.Error(), "panic: bug") {
		t.Errorf("got %v, want the panic", err)
	}
	if got, err := s.Get(t.Context(), "a", func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("got %v, %v, want 7: a failure is forgotten", got, err)
	}
}

// TestSharedWithoutHandler makes an Engine of nothing.
func TestSharedWithoutHandler(t *testing.T) {
	var s Shared[*Engine[int64, int64]]
	_, err := s.Get(t.Context(), "a", func(context.Context) (*Engine[int64, int64], error) {
		return NewEngine[int64, int64](nil, Options{}), nil
	})
	if want := "panic: inference: NewEngine without a Handler; load one first"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestSharedCancelledLoader cancels who loads; one who waits loads instead.
func TestSharedCancelledLoader(t *testing.T) {
	var s Shared[int]
	ctx, cancel := context.WithCancel(t.Context())
	loading := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := s.Get(ctx, "a", func(ctx context.Context) (int, error) {
			close(loading)
			<-ctx.Done()
			time.Sleep(5 * time.Millisecond) // the others wait by now
			return 0, ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled loader got %v", err)
		}
	})
	<-loading
	for range 5 {
		wait.Go(func() {
			got, err := s.Get(t.Context(), "a", func(context.Context) (int, error) { return 7, nil })
			if got != 7 || err != nil {
				t.Errorf("got %v, %v, want 7", got, err)
			}
		})
	}
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := s.Get(short, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who waits with a short context got %v", err)
	}
	cancel()
	wait.Wait()
}
