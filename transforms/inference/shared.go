package inference

import (
	"context"
	"sync"

	"github.com/linnet-ml/linnet/transforms/internal/pipe"
)

// Shared holds what a process loads once, by key: a package-level variable, since Beam
// makes many DoFn instances and calls Setup of each, and Teardown of few. The
// zero Shared is ready.
type Shared[M any] struct {
	mu      sync.Mutex
	entries map[string]*entry[M]
}

type entry[M any] struct {
	loaded    chan struct{} // closed when model, err and cancelled are set
	model     M
	err       error
	cancelled bool // the loader's context ended: not the model's fault
}

// Get returns the model of key. The first caller loads it and the others wait.
// A load that fails, or panics, fails for all who wait and is then forgotten,
// so that a later Get tries again; where it failed because the loading caller
// was cancelled, one who waits takes over.
func (s *Shared[M]) Get(ctx context.Context, key string, load func(context.Context) (M, error)) (M, error) {
	for {
		s.mu.Lock()
		e := s.entries[key]
		if e == nil {
			if s.entries == nil {
				s.entries = make(map[string]*entry[M])
			}
			e = &entry[M]{loaded: make(chan struct{})}
			s.entries[key] = e
			s.mu.Unlock()

			e.err = pipe.Catch(func() (err error) { e.model, err = load(ctx); return err })
			if e.err != nil {
				e.cancelled = ctx.Err() != nil
				s.mu.Lock()
				delete(s.entries, key)
				s.mu.Unlock()
			}
			close(e.loaded)
			return e.model, e.err
		}
		s.mu.Unlock()

		select {
		case <-e.loaded:
			if !e.cancelled {
				return e.model, e.err
			}
		case <-ctx.Done():
			var none M
			return none, ctx.Err()
		}
	}
}

// Forget drops the model of key, so that the next Get loads it again, and
// returns it for the caller to close; false where none is loaded.
func (s *Shared[M]) Forget(key string) (M, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e != nil {
		select {
		case <-e.loaded:
			delete(s.entries, key)
			return e.model, true
		default: // still loading
		}
	}
	var none M
	return none, false
}
