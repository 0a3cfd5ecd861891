package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"

	"github.com/linnet-ml/linnet/transforms/store"
)

// Updater is a Loader of type L whose model changes while the pipeline runs.
// Each bundle begins with a look at the pattern: where another file is newest,
// or that file has changed, its model is loaded, once a process, and works from
// this bundle on. The one before is closed when the bundles that began with it
// have ended; an error of that is logged. A model that took another's place in a
// process is counted (model_updates_counter). One that cannot be loaded, or a
// pattern that cannot be listed, leaves the one before at work and is logged and
// counted (failed_model_updates_counter) at each look; a process's first model must load.
type Updater[L any] interface {
	// Watch is a path or pattern of files, local or on gs://, as package store
	// lists them. One whose name begins with a dot that Watch does not spell, such as
	// what a copy has not finished, is no model.
	Watch() string
	// At is the loader of the model in the newest of them.
	At(path string) L
}

// activeModel is the model that a process uses, of those that match one pattern.
type activeModel[I, O any] struct {
	look    int64 // number of the look that found it
	version string
	served  *served[I, O]
}

// current has the activeModel of each runFn.config with an Updater: DoFn instances come
// and go, and one may get no bundle for long.
var (
	currentMu sync.Mutex
	current   = map[string]any{}
	looks     atomic.Int64
)

// update turns to the newest model, or to the process's where that cannot be had.
func (f *runFn[I, O, L]) update(ctx context.Context, u Updater[L]) error {
	look := looks.Add(1)
	served, version, err := f.newest(ctx, u)
	now, ok := f.activate(ctx, activeModel[I, O]{look, version, served})
	switch {
	case err != nil && !ok:
		return err
	case err != nil:
		log.Errorf(ctx, "linnet: %v; the model before stays at work", err)
		beam.NewCounter(f.Options.namespace(), "failed_model_updates_counter").Inc(ctx, 1)
	case served == nil:
		return nil
	}
	if now.served == f.served {
		return nil
	}
	if f.served != nil {
		f.release()
	}
	f.served, f.version, f.queue = now.served, now.version, NewQueue[timed[I]](now.served.engine)
	return nil
}

// activate makes found the process's active model, if there is a model in it and no later
// look was faster. It returns the active model, and retires the other.
func (f *runFn[I, O, L]) activate(ctx context.Context, found activeModel[I, O]) (now activeModel[I, O], there bool) {
	currentMu.Lock()
	defer currentMu.Unlock()
	old, ok := current[f.config].(activeModel[I, O])
	if found.served == nil {
		return old, ok
	}
	now = found
	switch {
	case old.look > found.look:
		old, now = found, old
	case ok && old.served != found.served:
		beam.NewCounter(f.Options.namespace(), "model_updates_counter").Inc(ctx, 1)
	}
	current[f.config] = now
	if ok && old.served != now.served {
		if old.version != now.version {
			engines.Forget(f.config + old.version)
		}
		old.served.retire()
	}
	return now, true
}

// newest is the engine of the newest model, nil where that is at work already.
func (f *runFn[I, O, L]) newest(ctx context.Context, u Updater[L]) (*served[I, O], string, error) {
	pattern := u.Watch()
	st, err := store.For(ctx, pattern)
	if err != nil {
		return nil, "", err
	}
	var best store.Object
	var unreadable error
	err = st.List(ctx, pattern, func(o store.Object) error {
		if o.Err == nil && !o.Hidden && (best.Path == "" || o.Modified.After(best.Modified) || o.Modified.Equal(best.Modified) && o.Path > best.Path) {
			best = o
		}
		unreadable = cmp.Or(unreadable, o.Err)
		return nil
	})
	none := err == nil && best.Path == ""
	switch {
	case none && unreadable != nil:
		return nil, "", fmt.Errorf("inference: no model matches %s: %w", pattern, unreadable)
	case none || errors.Is(err, store.ErrNotExist):
		return nil, "", fmt.Errorf("inference: no model matches %s", pattern)
	case err != nil:
		return nil, "", fmt.Errorf("inference: the models at %s: %w", pattern, err)
	}
	version := fmt.Sprintf(" %s %s %d", best.Path, best.Modified.Format(time.RFC3339Nano), best.Size)
	if f.served != nil && version == f.version && !f.served.isRetired() {
		return nil, version, nil
	}
	served, err := f.load(ctx, u.At(best.Path), version)
	return served, version, err
}

func (f *runFn[I, O, L]) release() {
	if f.acquired {
		f.acquired = false
		f.served.release()
	}
}

// served is an engine and the bundles at work with it. A bundle that failed may
// hold it for ever: memory, but no harm.
type served[I, O any] struct {
	engine *Engine[I, O]

	mu      sync.Mutex
	bundles int
	retired bool // another model is newer: the last bundle closes this one
	closed  bool
}

// acquire keeps the engine open for a bundle, until release; false where it is closed
// already.
func (s *served[I, O]) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.bundles++
	}
	return !s.closed
}

func (s *served[I, O]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bundles--
	s.closeUnused()
}

func (s *served[I, O]) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.closeUnused()
}

func (s *served[I, O]) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

func (s *served[I, O]) closeUnused() {
	if s.retired && s.bundles == 0 && !s.closed {
		s.closed = true
		go func() { // it may wait for a Run that takes too long
			if err := s.engine.Close(); err != nil {
				log.Errorf(context.Background(), "linnet: inference: closing the model that another took the place of, whose memory may stay taken: %v", oneLine{err})
			}
		}()
	}
}
