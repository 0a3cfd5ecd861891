package pipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Pipe maps elements by a function, many at once and in order. It belongs to
// one goroutine at a time, as a DoFn instance does; any number of pipes work
// side by side.
type Pipe[I, O any] struct {
	f     func(context.Context, I) (O, error)
	limit int64
	pool  *pool

	queue    []*item[I, O] // pushed and not yet emitted, in order
	inFlight int64         // their sizes together
	pushed   int           // since New or Reset
}

type item[I, O any] struct {
	size   int64
	larger Larger // what f asked for, and in for another call; else 0
	in     I
	out    O
	err    error
	done   chan struct{} // closed when out and err are set
	cancel context.CancelFunc
}

// New returns a Pipe that runs f on the pool of cores with at most limit bytes
// in flight: pushed, and not yet emitted. One element larger than the limit
// passes alone.
func New[I, O any](limit int64, f func(context.Context, I) (O, error)) *Pipe[I, O] {
	return &Pipe[I, O]{f: f, limit: limit, pool: cpuPool}
}

// NewIO is New for an f that mostly waits for storage: up to 32 a core run at once in
// the process and none of them holds a core.
func NewIO[I, O any](limit int64, f func(context.Context, I) (O, error)) *Pipe[I, O] {
	return &Pipe[I, O]{f: f, limit: limit, pool: ioPool}
}

// Larger is the error of an f that needs more than its element counts, in bytes.
// Nothing of it is emitted; f is called again when there is room for so many,
// behind what was pushed meanwhile.
type Larger int64

func (l Larger) Error() string { return fmt.Sprintf("pipe: it takes %d bytes", int64(l)) }

// Push starts f(ctx, in), which counts size bytes, and emits what is ready. It
// waits for the oldest element, and emits it, as long as there is no room.
// Results are emitted in the order of Push (see Larger), on the caller's goroutine, an error
// of f with whatever f returned beside it. A panic of f is emitted as an error
// that wraps *Panic and tells the element's number; an f that must say more of
// its element calls Catch.
//
// Push fails with the error of emit, or the context's; then Reset comes next.
func (p *Pipe[I, O]) Push(ctx context.Context, in I, size int64, emit func(O, error) error) error {
	size = max(size, 1) // or the number of empty elements would have no bound
	for len(p.queue) > 0 && p.inFlight+size > p.limit {
		if err := p.emitOldest(ctx, emit); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.start(ctx, in, size)
	for len(p.queue) > 0 && p.queue[0].ready() {
		if err := p.emitOldest(ctx, emit); err != nil {
			return err
		}
	}
	return nil
}

// Drain waits for all that was pushed and emits it. FinishBundle calls it.
func (p *Pipe[I, O]) Drain(ctx context.Context, emit func(O, error) error) error {
	for len(p.queue) > 0 {
		if err := p.emitOldest(ctx, emit); err != nil {
			return err
		}
	}
	return nil
}

// Reset drops what was pushed and not emitted: it cancels the contexts, and
// waits for those calls of f that have begun. StartBundle calls it, since the
// bundle before may have failed.
func (p *Pipe[I, O]) Reset() {
	for _, it := range slices.Backward(p.queue) { // or the end of one would begin the next
		it.cancel()
	}
	for _, it := range p.queue {
		<-it.done
	}
	p.queue, p.inFlight, p.pushed = nil, 0, 0
}

func (p *Pipe[I, O]) start(ctx context.Context, in I, size int64) {
	ctx, cancel := context.WithCancel(ctx)
	it := &item[I, O]{size: size, done: make(chan struct{}), cancel: cancel}
	number := p.pushed
	p.pushed++
	p.inFlight += size
	p.queue = append(p.queue, it)
	p.pool.submit(func() {
		defer close(it.done)
		defer cancel()
		if it.err = ctx.Err(); it.err != nil {
			return
		}
		caught := Catch(func() error { it.out, it.err = p.f(ctx, in); return nil })
		if caught != nil {
			it.err = fmt.Errorf("pipe: element %d: %w", number, caught)
		}
		if larger, ok := errors.AsType[Larger](it.err); ok {
			it.larger, it.in = larger, in
		}
	})
}

func (it *item[I, O]) ready() bool {
	select {
	case <-it.done:
		return true
	default:
		return false
	}
}

func (p *Pipe[I, O]) emitOldest(ctx context.Context, emit func(O, error) error) error {
	it := p.queue[0]
	if !it.ready() {
		select {
		case <-it.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.queue[0] = nil
	p.queue = p.queue[1:]
	p.inFlight -= it.size
	if it.larger > 0 {
		return p.Push(ctx, it.in, int64(it.larger), emit)
	}
	return emit(it.out, it.err)
}
