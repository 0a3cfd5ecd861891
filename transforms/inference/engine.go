package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
)

// Engine batches the items of all queues of a process and runs them by one
// Handler. A full batch starts at once; the rest starts when the process has
// nothing else to do or when a queue waits for it. So batches fill across
// documents and DoFn instances, and nobody waits for an item that nobody will
// bring.
type Engine[I, O any] struct {
	handler Handler[I, O]
	options Options
	ctx     context.Context
	cancel  context.CancelFunc

	mu        sync.Mutex     // add, form, formAll, start and hasCapacity want it held
	maxSize   int            // of a batch; shrinks when memory runs out
	maxWeight int64          // 0 is no bound; shrinks likewise
	buckets   []bucket[I, O] // items that no batch has taken yet
	ready     [][]waiting[I, O]
	running   int // batches
	idle      *sync.Cond
	inFlight  int64 // bytes of all queues
	closed    bool
	stats     stats

	calls sync.WaitGroup // of Weight, and of Run under a Timeout

	close func() error // what Close does once
}

// waiting is an item on its way to a batch: number index of its group.
type waiting[I, O any] struct {
	item   I
	index  int
	weight int64
	group  *group[O]
}

// group is what one Push brought; its fields are the engine's until done.
type group[O any] struct {
	size      int64 // bytes
	outs      []O
	err       error // of the first item that failed
	unbatched int   // items that no batch has taken yet
	left      int   // items without a result
	dropped   bool  // nobody wants the results any more
	done      chan struct{}
}

// bucket holds waiting items of like weight.
type bucket[I, O any] struct {
	items  []waiting[I, O]
	weight int64
}

// NewEngine returns an Engine over handler, which it closes with its own Close.
func NewEngine[I, O any](handler Handler[I, O], options Options) *Engine[I, O] {
	if handler == nil {
		panic("inference: NewEngine without a Handler; load one first")
	}
	options.check()
	e := &Engine[I, O]{
		handler:   handler,
		options:   options,
		maxSize:   max(options.MaxBatchSize, 1),
		maxWeight: max(options.MaxBatchWeight, 0),
		buckets:   make([]bucket[I, O], len(options.BucketWeights)+1),
	}
	e.idle = sync.NewCond(&e.mu)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.stats.modelBytes, e.stats.loadTime = options.ModelBytes, options.LoadTime
	e.close = sync.OnceValue(e.end)
	return e
}

// Close cancels the context of batches, waits for those that run, fails what
// waits with ErrClosed, and closes the handler. Another Close waits for the first
// and returns its error.
func (e *Engine[I, O]) Close() error { return e.close() }

func (e *Engine[I, O]) end() error {
	e.cancel()
	e.mu.Lock()
	e.closed = true
	e.formAll()
	e.start() // and run fails them
	for e.running > 0 {
		e.idle.Wait()
	}
	e.mu.Unlock()
	e.calls.Wait()
	return pipe.Catch(e.handler.Close)
}

// submit queues the items as one group of size bytes, which are reserved, and
// starts what is full.
func (e *Engine[I, O]) submit(items []I, size int64) *group[O] {
	g := &group[O]{
		size: size, outs: make([]O, len(items)),
		unbatched: len(items), left: len(items), done: make(chan struct{}),
	}
	if len(items) == 0 {
		close(g.done)
		return g
	}
	ws := make([]waiting[I, O], len(items))
	for i, item := range items {
		ws[i] = waiting[I, O]{item: item, index: i, group: g}
	}
	weight, err := e.weigh(ws)
	if err != nil {
		g.unbatched = 0
		e.finish(ws, nil, err, 0)
		return g
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	idle := e.running+len(e.ready) == 0 && pipe.Busy() == 0
	step := 1
	if weight <= e.options.WholeWeight && len(items) <= e.maxSize {
		step = len(items)
	}
	for len(ws) > 0 {
		e.add(ws[:step], !idle)
		ws = ws[step:]
	}
	if e.closed || idle {
		e.formAll()
	}
	e.start()
	return g
}

// weigh sets the weights of items and returns their sum.
func (e *Engine[I, O]) weigh(ws []waiting[I, O]) (sum int64, err error) {
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.calls.Add(1)
	}
	e.mu.Unlock()
	if closed {
		return 0, ErrClosed
	}
	defer e.calls.Done()
	err = pipe.Catch(func() error {
		for i := range ws {
			ws[i].weight = max(e.handler.Weight(ws[i].item), 0)
			sum = plus(sum, ws[i].weight)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("inference: Weight: %w", err)
	}
	return sum, err
}

// countFailed counts an item that failed before it could be pushed.
func (e *Engine[I, O]) countFailed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.batches = append(e.stats.batches, batchStat{items: 1})
}

// add puts items that stay together into the bucket of the first and, where form is
// set, moves a full batch on.
func (e *Engine[I, O]) add(ws []waiting[I, O], form bool) {
	weight := weightOf(ws)
	n, _ := slices.BinarySearch(e.options.BucketWeights, ws[0].weight)
	b := &e.buckets[n]
	if form && len(b.items) > 0 && (len(b.items)+len(ws) > e.maxSize || e.maxWeight > 0 && plus(b.weight, weight) > e.maxWeight) {
		e.form(b)
	}
	b.items = append(b.items, ws...)
	b.weight = plus(b.weight, weight)
	if form && (len(b.items) >= e.maxSize || (e.maxWeight > 0 && b.weight >= e.maxWeight)) {
		e.form(b)
	}
}

// form makes a batch of what the bucket holds.
func (e *Engine[I, O]) form(b *bucket[I, O]) {
	for _, w := range b.items {
		w.group.unbatched--
	}
	e.ready = append(e.ready, b.items)
	*b = bucket[I, O]{}
}

// formAll makes batches of all that waits, like weights together, and at least
// one a free core where SpreadWeight allows.
func (e *Engine[I, O]) formAll() {
	var all []waiting[I, O]
	for i := range e.buckets {
		all = append(all, e.buckets[i].items...)
		e.buckets[i] = bucket[I, O]{}
	}
	slices.SortStableFunc(all, func(a, b waiting[I, O]) int { return cmp.Compare(a.weight, b.weight) })
	spread := e.spread(all)
	var b bucket[I, O]
	for _, w := range all {
		full := len(b.items) >= e.maxSize || (e.maxWeight > 0 && plus(b.weight, w.weight) > e.maxWeight)
		if full && len(b.items) > 0 {
			e.form(&b)
		}
		b.items = append(b.items, w)
		b.weight = plus(b.weight, w.weight)
		if b.weight >= spread {
			e.form(&b)
		}
	}
	if len(b.items) > 0 {
		e.form(&b)
	}
}

// spread is the weight from which a batch is enough for one core.
func (e *Engine[I, O]) spread(all []waiting[I, O]) int64 {
	cores := int64(runtime.GOMAXPROCS(0) - pipe.Busy())
	if e.options.SpreadWeight <= 0 || e.options.Concurrency > 0 || cores <= 1 {
		return math.MaxInt64
	}
	return max(e.options.SpreadWeight, plus(weightOf(all), cores-1)/cores)
}

func weightOf[I, O any](ws []waiting[I, O]) (sum int64) {
	for _, w := range ws {
		sum = plus(sum, w.weight)
	}
	return sum
}

// plus adds weights, to MaxInt64 at most: an item may have that to go alone.
func plus(a, b int64) int64 { return min(a, math.MaxInt64-b) + b }

// wait returns when g is done. It starts what waits where g needs that, or
// where a core is free.
func (e *Engine[I, O]) wait(ctx context.Context, g *group[O]) error {
	if g.ready() {
		return nil
	}
	e.mu.Lock()
	if g.unbatched > 0 || e.hasCapacity() {
		e.formAll()
		e.start()
	}
	e.mu.Unlock()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drop forgets a group: its items that have not started never will.
func (e *Engine[I, O]) drop(g *group[O]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g.dropped = true
}

// start hands ready batches to the pool, or to goroutines of their own, as many
// as may run at once.
func (e *Engine[I, O]) start() {
	for len(e.ready) > 0 && (e.options.Concurrency <= 0 || e.running < e.options.Concurrency) {
		batch := e.ready[0]
		e.ready[0] = nil
		e.ready = e.ready[1:]
		e.running++
		run := pipe.Go
		if e.options.Waits {
			run = func(task func()) { go task() }
		}
		run(func() {
			e.run(batch)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.running--
			e.start()
			e.idle.Broadcast()
		})
	}
}

// hasCapacity reports whether a batch formed now would run at once.
func (e *Engine[I, O]) hasCapacity() bool {
	switch {
	case len(e.ready) > 0:
		return false
	case e.options.Concurrency > 0:
		return e.running < e.options.Concurrency
	}
	return pipe.Busy() < runtime.GOMAXPROCS(0)
}

// run runs a batch without the items that nobody wants any more, in halves
// where the device has no room for all of it, or had none for so much since the
// batch was made.
func (e *Engine[I, O]) run(batch []waiting[I, O]) {
	e.mu.Lock()
	batch = slices.DeleteFunc(batch, func(w waiting[I, O]) bool { return w.group.dropped })
	closed := e.closed
	large := len(batch) > e.maxSize || e.maxWeight > 0 && weightOf(batch) > max(e.maxWeight, e.options.WholeWeight)
	e.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	if closed {
		e.finish(batch, nil, ErrClosed, 0)
		return
	}
	if large && len(batch) > 1 {
		e.runHalves(batch)
		return
	}
	items := make([]I, len(batch))
	for i, w := range batch {
		items[i] = w.item
	}
	begin := time.Now()
	outs, err := e.handle(items)
	each, single := errors.AsType[ItemErrors](err)
	if len(outs) != len(items) && err == nil {
		err = fmt.Errorf("inference: %d outputs for a batch of %d: the handler's Run must return one an item", len(outs), len(items))
	} else if len(outs) != len(items) && single {
		err = fmt.Errorf("inference: %d outputs beside ItemErrors for a batch of %d: %v; the handler's Run must return one an item, failed ones too", len(outs), len(items), each)
	}
	for i, cause := range each {
		if i < 0 || i >= len(items) { // nobody knows which item it is
			err = fmt.Errorf("inference: ItemErrors of number %d in a batch of %d: %v; the handler's Run must count items from 0", i, len(items), cause)
		}
	}
	if errors.Is(err, model.ErrOutOfMemory) && len(batch) > 1 {
		e.shrink(batch)
		e.runHalves(batch)
		return
	}
	if _, ok := errors.AsType[*pipe.Panic](err); ok {
		err = fmt.Errorf("inference: batch of %d: %w", len(batch), err)
	}
	e.finish(batch, outs, err, time.Since(begin))
}

func (e *Engine[I, O]) runHalves(batch []waiting[I, O]) {
	half := (len(batch) + 1) / 2
	e.run(batch[:half])
	e.run(batch[half:])
}

// handle calls Run, for Options.Timeout at most. A Run that goes on after that
// keeps the handler open until it returns, but neither its batch nor its core.
func (e *Engine[I, O]) handle(items []I) (outs []O, err error) {
	if e.options.Timeout <= 0 {
		err = pipe.Catch(func() (err error) { outs, err = e.handler.Run(e.ctx, items); return err })
		return outs, err
	}
	ctx, cancel := context.WithTimeoutCause(e.ctx, e.options.Timeout, ErrTimeout)
	type answer struct {
		outs []O
		err  error
	}
	answers := make(chan answer, 1)
	e.calls.Go(func() {
		defer cancel()
		var a answer
		a.err = pipe.Catch(func() (err error) { a.outs, err = e.handler.Run(ctx, items); return err })
		answers <- a
	})
	select {
	case a := <-answers:
		outs, err = a.outs, a.err
	case <-ctx.Done():
		select {
		case a := <-answers: // just in time
			outs, err = a.outs, a.err
		default:
			err = context.Cause(ctx)
		}
	}
	if err != nil && context.Cause(ctx) == ErrTimeout {
		err = fmt.Errorf("%w: more than %v for a batch of %d", ErrTimeout, e.options.Timeout, len(items))
	}
	return outs, err
}

// shrink remembers that the batch was too large.
func (e *Engine[I, O]) shrink(batch []waiting[I, O]) {
	weight := weightOf(batch)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.halvings++
	if e.maxWeight > 0 && weight > 1 { // memory goes with the weight
		e.maxWeight = min(e.maxWeight, plus(weight, 1)/2)
		e.options.WholeWeight = min(e.options.WholeWeight, e.maxWeight)
	} else {
		e.maxSize = min(e.maxSize, (len(batch)+1)/2)
	}
}

// finish gives the items their results. The batch is in the stats before
// anyone can know that it is done, or the last would never be reported.
func (e *Engine[I, O]) finish(batch []waiting[I, O], outs []O, err error, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	each, single := errors.AsType[ItemErrors](err)
	cause := func(i int) error {
		if single {
			return each[i]
		}
		return err
	}
	b := newBatchStat(batch, took)
	for i := range batch {
		if cause(i) == nil {
			b.good++
		}
	}
	e.stats.batches = append(e.stats.batches, b)
	for i, w := range batch {
		g := w.group
		if err := cause(i); err == nil {
			g.outs[w.index] = outs[i]
		} else if g.err == nil {
			g.err = err
		}
		if g.left--; g.left == 0 {
			close(g.done)
		}
	}
}
