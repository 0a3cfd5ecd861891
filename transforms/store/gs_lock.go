package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
)

// Lock makes an object that tells who holds the lock, and makes it anew every
// 30 s. Who finds one of more than 5 minutes, by storage's clock, takes it over.
func (g *gs) Lock(ctx context.Context, uri string) (func() error, error) {
	o, err := g.object(uri)
	if err != nil {
		return nil, err
	}
	l := &gsLock{gs: g, uri: uri, object: o, content: []byte(thisProcess() + "\n" + rand.Text() + "\n")}
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewal sync.WaitGroup
	renewal.Go(func() { l.renew(renewing) })
	return sync.OnceValue(func() error {
		stop()
		renewal.Wait()
		return l.release(context.WithoutCancel(ctx))
	}), nil
}

type gsLock struct {
	gs         *gs
	uri        string
	object     *storage.ObjectHandle
	content    []byte
	generation int64
	lost       error
}

func (l *gsLock) take(ctx context.Context) error {
	var generation int64 // to replace
	for range l.gs.attempts {
		made, err := l.gs.put(ctx, l.object, l.content, generation)
		if err == nil {
			l.generation = made
			return nil
		}
		if statusOf(err) != http.StatusPreconditionFailed {
			return errGS(l.uri, err)
		}
		now := dateOf(err)
		attrs, holder, err := l.look(ctx)
		switch {
		case errors.Is(err, storage.ErrObjectNotExist):
			generation = 0 // released in between
		case err != nil:
			return errGS(l.uri, err)
		case bytes.Equal(holder, l.content): // the answer was lost, not the request
			l.generation = attrs.Generation
			return nil
		case now.Sub(attrs.Updated) < l.gs.stale:
			name, _, _ := strings.Cut(string(holder), "\n")
			return fmt.Errorf("%w; after a kill it is free in %g minutes", lockedError(l.uri, name), l.gs.stale.Minutes())
		default:
			generation = attrs.Generation
		}
	}
	return lockedError(l.uri, "")
}

// dateOf is when storage refused a request, by its own clock: this machine's may be
// minutes off.
func dateOf(err error) time.Time {
	if e, ok := errors.AsType[*googleapi.Error](err); ok {
		if at, err := http.ParseTime(e.Header.Get("Date")); err == nil {
			return at
		}
	}
	return time.Now()
}

// look reads the lock and who holds it, of one generation.
func (l *gsLock) look(ctx context.Context) (*storage.ObjectAttrs, []byte, error) {
	attrs, err := l.object.Attrs(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := l.gs.open(ctx, l.object.Generation(attrs.Generation))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	holder, err := io.ReadAll(io.LimitReader(r, 1<<10))
	return attrs, holder, err
}

// renew renews the lock until the context ends or another has taken it.
func (l *gsLock) renew(ctx context.Context) {
	tick := time.NewTicker(l.gs.renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		made, err := l.gs.put(ctx, l.object, l.content, l.generation)
		if err == nil {
			l.generation = made
			continue
		}
		if statusOf(err) != http.StatusPreconditionFailed {
			continue // storage is away; the next tick tries again
		}
		attrs, holder, err := l.look(ctx)
		switch {
		case err == nil && bytes.Equal(holder, l.content):
			l.generation = attrs.Generation
		case err == nil || errors.Is(err, storage.ErrObjectNotExist):
			l.lost = lostError(l.uri)
			return
		}
	}
}

func (l *gsLock) release(ctx context.Context) error {
	if l.lost != nil {
		return l.lost
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := l.object.If(storage.Conditions{GenerationMatch: l.generation}).Delete(ctx)
	if statusOf(err) == http.StatusPreconditionFailed || errors.Is(err, storage.ErrObjectNotExist) {
		// Either another took it, or a renewal was stopped when it was done.
		attrs, holder, e := l.look(ctx)
		switch {
		case errors.Is(e, storage.ErrObjectNotExist):
			return nil // deleted, most likely by a request whose answer was lost
		case e != nil:
			return errGS(l.uri, e)
		case !bytes.Equal(holder, l.content):
			return lostError(l.uri)
		}
		if err = l.object.If(storage.Conditions{GenerationMatch: attrs.Generation}).Delete(ctx); errors.Is(err, storage.ErrObjectNotExist) {
			return nil
		}
	}
	return errGS(l.uri, err)
}

func lostError(uri string) error {
	return fmt.Errorf("store: %s: %w: another run took or removed it; see that no other run writes there, and run again, with --force if its flags were others", quote(uri), ErrLost)
}
