package inference

import (
	"context"
	"runtime"
)

// Queue is the way of one DoFn instance through an Engine. It takes groups of
// items, such as the windows of one document, and emits a group when all its
// items are done, in order of Push. T goes along with a group: the document.
// A Queue belongs to one goroutine at a time, and not to one of the pool.
type Queue[T, I, O any] struct {
	engine *Engine[I, O]
	queue  []queued[T, O] // pushed and not yet emitted, in order
}

type queued[T, O any] struct {
	tag   T
	group *group[O]
}

// NewQueue returns a Queue of e.
func NewQueue[T, I, O any](e *Engine[I, O]) *Queue[T, I, O] {
	q := &Queue[T, I, O]{engine: e}
	// Workers drop the DoFn instances of a bundle that failed and call nothing more
	// of them; what they had in flight would count for ever.
	runtime.SetFinalizer(q, (*Queue[T, I, O]).Reset)
	return q
}

// Push hands over a group of items, of size bytes together with its tag, and
// emits what is ready. While the engine holds MaxInFlight bytes, Push waits for
// the oldest group of this queue, never for another's, so queues cannot block
// each other. A group may be empty; it is emitted in its turn.
//
// outs has one output an item, in order; err is the error of one of the
// batches, and outs then lacks outputs. Emit is called on the caller's goroutine,
// and metrics are counted with ctx.
//
// Push fails with the error of emit, or the context's; then Reset comes next.
func (q *Queue[T, I, O]) Push(ctx context.Context, tag T, items []I, size int64, emit func(tag T, outs []O, err error) error) error {
	size = min(max(size, 1), 1<<50) // the sum of several is a number, too
	for !q.engine.reserve(size, len(q.queue) == 0) {
		if err := q.emitOldest(ctx, emit); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		q.engine.release(size)
		return err
	}
	q.queue = append(q.queue, queued[T, O]{tag, q.engine.submit(items, size)})
	for len(q.queue) > 0 && q.queue[0].group.ready() {
		if err := q.emitOldest(ctx, emit); err != nil {
			return err
		}
	}
	q.engine.Report(ctx)
	return nil
}

// Drain waits for all that was pushed and emits it. FinishBundle calls it.
func (q *Queue[T, I, O]) Drain(ctx context.Context, emit func(tag T, outs []O, err error) error) error {
	for len(q.queue) > 0 {
		if err := q.emitOldest(ctx, emit); err != nil {
			return err
		}
	}
	q.engine.Report(ctx)
	return nil
}

// Reset drops what was pushed and not emitted; batches that run come to their
// end without it. StartBundle calls it, since the bundle before may have failed.
func (q *Queue[T, I, O]) Reset() {
	for _, w := range q.queue {
		q.engine.drop(w.group)
		q.engine.release(w.group.size)
	}
	q.queue = nil
}

func (q *Queue[T, I, O]) emitOldest(ctx context.Context, emit func(tag T, outs []O, err error) error) error {
	w := q.queue[0]
	if err := q.engine.wait(ctx, w.group); err != nil {
		return err
	}
	q.queue[0] = queued[T, O]{}
	q.queue = q.queue[1:]
	q.engine.release(w.group.size)
	return emit(w.tag, w.group.outs, w.group.err)
}

func (g *group[O]) ready() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// reserve takes size bytes of MaxInFlight for a group where there are so many, or anyway.
func (e *Engine[I, O]) reserve(size int64, anyway bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	size += e.options.groupBytes
	if !anyway && e.inFlight+size > e.options.MaxInFlight {
		return false
	}
	e.inFlight += size
	return true
}

func (e *Engine[I, O]) release(size int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight -= size + e.options.groupBytes
}
