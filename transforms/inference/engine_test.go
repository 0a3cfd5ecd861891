package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"go.uber.org/goleak"
)

// fake doubles numbers; an item's weight is its value.
type fake struct {
	run           func(batch []int64) error // before the answer
	weigh         func()                    // before the answer
	closed        atomic.Bool
	running, most atomic.Int64 // batches at once
	ctx           context.Context

	mu      sync.Mutex
	batches [][]int64
}

func (f *fake) Run(ctx context.Context, batch []int64) ([]int64, error) {
	f.mu.Lock()
	f.most.Store(max(f.most.Load(), f.running.Add(1)))
	defer f.running.Add(-1)
	f.ctx = ctx
	f.batches = append(f.batches, slices.Clone(batch))
	f.mu.Unlock()
	if f.run != nil {
		if err := f.run(batch); err != nil {
			return nil, err
		}
	}
	outs := make([]int64, len(batch))
	for i, item := range batch {
		outs[i] = 2 * item
	}
	return outs, nil
}

func (f *fake) Weight(item int64) int64 {
	if f.weigh != nil {
		f.weigh()
	}
	if f.closed.Load() {
		panic("weight asked for after Close")
	}
	if item == math.MinInt64 {
		panic("no weight")
	}
	return item
}

func (f *fake) Close() error {
	f.closed.Store(true)
	if f.running.Load() > 0 {
		return errors.New("closed while a batch runs")
	}
	return nil
}

// sizes are those of the batches so far.
func (f *fake) sizes() (sizes []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		sizes = append(sizes, len(b))
	}
	return sizes
}

// sink checks that groups come whole and in order.
type sink struct {
	t    *testing.T
	next int
}

func (s *sink) emit(group []int64, outs []int64, err error) error {
	if err != nil {
		return err
	}
	for i := range group {
		if outs[i] != 2*group[i] {
			s.t.Errorf("group %d: got %v for %v", s.next, outs, group)
		}
	}
	s.next++
	return nil
}

func push[G any](t *testing.T, q *Queue[G, int64, int64], group G, items []int64, emit func(G, []int64, error) error) {
	t.Helper()
	if err := q.Push(t.Context(), group, items, 1, emit); err != nil {
		t.Fatal(err)
	}
}

func drain[G any](t *testing.T, q *Queue[G, int64, int64], emit func(G, []int64, error) error) {
	t.Helper()
	if err := q.Drain(t.Context(), emit); err != nil {
		t.Fatal(err)
	}
}

// holdPool keeps all workers busy until the returned function is called, so
// that nothing starts and what is pushed waits for full batches.
func holdPool() (release func()) {
	hold := make(chan struct{})
	for range runtime.GOMAXPROCS(0) {
		pipe.Go(func() { <-hold })
	}
	return sync.OnceFunc(func() { close(hold) })
}

// TestSubmitters drives one engine from eight goroutines with tiny limits.
func TestSubmitters(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, o := range []Options{
		{MaxBatchSize: 7, MaxInFlight: 10},
		{MaxBatchSize: 7, MaxInFlight: 0},
		{MaxBatchSize: 3, MaxBatchWeight: 50, MaxInFlight: 1000, Concurrency: 1},
		{MaxBatchSize: 16, BucketWeights: []int64{10, 30}, MaxInFlight: 100},
		{MaxInFlight: 1 << 30},
		{MaxBatchSize: 7, MaxInFlight: 10, Concurrency: 3, Waits: true},
	} {
		h := &fake{run: func([]int64) error { runtime.Gosched(); return nil }}
		e := NewEngine(h, o)
		var inFlight atomic.Int64
		var wait sync.WaitGroup
		for n := range 8 {
			wait.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(n)))
				q := NewQueue[[]int64](e)
				s := sink{t: t}
				groups := 0
				emit := func(group, outs []int64, err error) error {
					inFlight.Add(-int64(max(len(group), 1)))
					return s.emit(group, outs, err)
				}
				for bundle := range 5 {
					q.Reset()
					for range 40 {
						group := make([]int64, random.IntN(6))
						for i := range group {
							group[i] = random.Int64N(60)
						}
						if err := q.Push(t.Context(), group, group, int64(len(group)), emit); err != nil {
							t.Error(err)
							return
						}
						groups++
						if got, most := inFlight.Add(int64(max(len(group), 1))), o.MaxInFlight+8*6; got > most {
							t.Errorf("%+v: %d bytes in flight, want at most %d", o, got, most)
						}
					}
					if err := q.Drain(t.Context(), emit); err != nil {
						t.Error(err)
						return
					}
					if s.next != groups {
						t.Errorf("bundle %d: %d groups emitted, want %d", bundle, s.next, groups)
					}
				}
			})
		}
		wait.Wait()
		for _, batch := range h.batches {
			var weight int64
			for _, item := range batch {
				weight += item
			}
			if len(batch) > max(o.MaxBatchSize, 1) || (o.MaxBatchWeight > 0 && weight > o.MaxBatchWeight && len(batch) > 1) {
				t.Fatalf("%+v: batch %v", o, batch)
			}
		}
		if e.inFlight != 0 {
			t.Errorf("%+v: %d bytes in flight at the end", o, e.inFlight)
		}
		if most := h.most.Load(); o.Concurrency > 0 && most > int64(o.Concurrency) {
			t.Errorf("%+v: %d batches at once", o, most)
		}
		if err := e.Close(); err != nil || !h.closed.Load() {
			t.Errorf("Close: %v, handler closed: %v", err, h.closed.Load())
		}
	}
}

// TestBatchesFill shows that batches take items of all queues, full ones
// first, and that the rest goes when somebody waits.
func TestBatchesFill(t *testing.T) {
	tests := []struct {
		name    string
		options Options
		item    func(i int) int64
		want    []int // sizes of the batches
	}{
		{"size", Options{MaxBatchSize: 32}, func(int) int64 { return 1 }, []int{32, 32, 32, 4}},
		{"weight", Options{MaxBatchSize: 1000, MaxBatchWeight: 30}, func(int) int64 { return 1 }, []int{30, 30, 30, 10}},
		{"heavy items", Options{MaxBatchSize: 1000, MaxBatchWeight: 100}, func(i int) int64 { return []int64{40, 150}[i/98] },
			append(slices.Repeat([]int{2}, 49), 1, 1)},
		{"items that go alone", Options{MaxBatchSize: 1000, MaxBatchWeight: 100}, func(i int) int64 { return []int64{1, math.MaxInt64}[i/98] }, []int{98, 1, 1}},
		{"buckets", Options{MaxBatchSize: 32, BucketWeights: []int64{5}}, func(i int) int64 { return []int64{1, 9}[i%2] }, []int{32, 32, 32, 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			release := holdPool()
			defer release()
			test.options.MaxInFlight = 1 << 30
			h := &fake{}
			e := NewEngine(h, test.options)
			queues := make([]*Queue[[]int64, int64, int64], 4)
			sinks := make([]sink, 4)
			for i := range queues {
				queues[i], sinks[i].t = NewQueue[[]int64](e), t
			}
			for i := range 100 {
				item := []int64{test.item(i)}
				if err := queues[i%4].Push(t.Context(), item, item, 1, sinks[i%4].emit); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(h.sizes()); got != 0 {
				t.Fatalf("%d batches ran on a pool that was held", got)
			}
			release()
			for i := range queues {
				if err := queues[i].Drain(t.Context(), sinks[i].emit); err != nil {
					t.Fatal(err)
				}
			}
			got := h.sizes()
			slices.SortFunc(got, func(a, b int) int { return b - a })
			if !slices.Equal(got, test.want) {
				t.Errorf("batches of %v, want %v", got, test.want)
			}
			if test.name == "buckets" {
				mixed := 0 // of what was left, one may be
				for _, batch := range h.batches {
					if slices.Min(batch) != slices.Max(batch) {
						mixed++
					}
				}
				if mixed > 1 {
					t.Errorf("%d batches of two buckets: %v", mixed, h.batches)
				}
			}
			e.Close()
		})
	}
}

// A group with an item that cannot be weighed fails, and no other does.
func TestWeightPanics(t *testing.T) {
	e := NewEngine(&fake{}, Options{MaxBatchSize: 5, MaxInFlight: 1000})
	defer e.Close()
	q := NewQueue[string](e)
	got := map[string]string{}
	emit := func(name string, outs []int64, err error) error {
		got[name] = fmt.Sprint(outs, " ", err)
		return nil
	}
	for name, group := range map[string][]int64{"bad": {1, math.MinInt64, 2}, "good": {1, 2}} {
		push(t, q, name, group, emit)
	}
	drain(t, q, emit)
	if got["good"] != "[2 4] <nil>" || !strings.Contains(got["bad"], "inference: Weight: panic: no weight (engine_test.go:") {
		t.Errorf("got %q", got)
	}
}

// TestWhole shows that a group stays together up to WholeWeight, even above
// MaxBatchWeight, and is parted beyond it or where it is more than a batch.
func TestWhole(t *testing.T) {
	for name, test := range map[string]struct {
		whole int64
		size  int
		want  [][]int64
	}{
		"parted":    {0, 100, [][]int64{{9, 8, 7}, {6, 9, 8}, {7, 6}, {20, 1}, {15}}},
		"whole":     {36, 100, [][]int64{{9, 8, 7, 6}, {9, 8, 7, 6}, {20, 1, 15}}},
		"too heavy": {32, 100, [][]int64{{9, 8, 7, 6}, {9, 8, 7, 6}, {20, 1}, {15}}},
		"too many":  {36, 3, [][]int64{{9, 8, 7}, {6, 9, 8}, {7, 6}, {20, 1, 15}}},
	} {
		t.Run(name, func(t *testing.T) {
			release := holdPool()
			defer release()
			h := &fake{}
			e := NewEngine(h, Options{MaxBatchSize: test.size, MaxBatchWeight: 25, WholeWeight: test.whole, MaxInFlight: 1000})
			defer e.Close()
			q := NewQueue[[]int64](e)
			s := sink{t: t}
			for _, group := range [][]int64{{9, 8, 7, 6}, {9, 8, 7, 6}, {20, 1, 15}} {
				push(t, q, group, group, s.emit)
			}
			e.mu.Lock()
			e.formAll() // what is left
			e.start()
			e.mu.Unlock()
			release()
			drain(t, q, s.emit)
			slices.SortFunc(h.batches, func(a, b []int64) int { return slices.Compare(a, b) })
			slices.SortFunc(test.want, func(a, b []int64) int { return slices.Compare(a, b) })
			if fmt.Sprint(h.batches) != fmt.Sprint(test.want) {
				t.Errorf("batches %v, want %v", h.batches, test.want)
			}
		})
	}
}

// TestSpread shows that what comes while nothing runs is shared among the
// cores, in batches of some weight.
func TestSpread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for name, test := range map[string]struct {
		options Options
		items   int
		want    []int // sizes of the batches, largest first
	}{
		"no":          {Options{}, 6, []int{6}},
		"all cores":   {Options{SpreadWeight: 10}, 18, []int{5, 5, 5, 3}},
		"little":      {Options{SpreadWeight: 40}, 6, []int{4, 2}},
		"full":        {Options{SpreadWeight: 10, MaxBatchWeight: 20}, 12, []int{2, 2, 2, 2, 2, 2}},
		"one at once": {Options{SpreadWeight: 10, Concurrency: 1}, 8, []int{8}},
	} {
		t.Run(name, func(t *testing.T) {
			for pipe.Busy() > 0 {
				time.Sleep(time.Millisecond)
			}
			h := &fake{}
			test.options.MaxBatchSize, test.options.MaxInFlight = 100, 1000
			e := NewEngine(h, test.options)
			defer e.Close()
			q := NewQueue[[]int64](e)
			s := sink{t: t}
			group := slices.Repeat([]int64{10}, test.items)
			push(t, q, group, group, s.emit)
			drain(t, q, s.emit)
			got := h.sizes()
			slices.SortFunc(got, func(a, b int) int { return b - a })
			if !slices.Equal(got, test.want) {
				t.Errorf("batches of %v, want %v", got, test.want)
			}
		})
	}
}

// TestIdle shows that an item that comes alone is not kept waiting.
func TestIdle(t *testing.T) {
	for pipe.Busy() > 0 {
		time.Sleep(time.Millisecond)
	}
	h := &fake{}
	e := NewEngine(h, Options{MaxBatchSize: 100, MaxInFlight: 100})
	defer e.Close()
	q := NewQueue[[]int64](e)
	s := sink{t: t}
	push(t, q, []int64{1}, []int64{1}, s.emit)
	for begin := time.Now(); len(h.sizes()) == 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("nothing else runs, and the item was not started")
		}
	}
	q.Reset()
}

func TestOutOfMemory(t *testing.T) {
	noRoom := func(most int) func([]int64) error {
		return func(batch []int64) error {
			if len(batch) > most {
				return fmt.Errorf("device 0: %w", model.ErrOutOfMemory)
			}
			return nil
		}
	}
	push := func(t *testing.T, e *Engine[int64, int64], n int) error {
		release := holdPool()
		defer release()
		q := NewQueue[[]int64](e)
		s := sink{t: t}
		for range n {
			push(t, q, []int64{3}, []int64{3}, s.emit)
		}
		release()
		err := q.Drain(t.Context(), s.emit)
		if err == nil && s.next != n {
			t.Errorf("%d emitted, want %d", s.next, n)
		}
		return err
	}

	t.Run("size", func(t *testing.T) {
		h := &fake{run: noRoom(5)}
		e := NewEngine(h, Options{MaxBatchSize: 16, MaxInFlight: 1 << 20, Concurrency: 1})
		if err := push(t, e, 16); err != nil {
			t.Fatal(err)
		}
		if got, want := h.sizes(), []int{16, 8, 4, 4, 4, 4}; !slices.Equal(got, want) {
			t.Errorf("batches of %v, want %v", got, want)
		}
		if e.stats.halvings != 0 || e.maxSize != 4 { // Drain has reported them
			t.Errorf("halvings %d, size %d; want 0, 4", e.stats.halvings, e.maxSize)
		}
		h.batches = nil
		if err := push(t, e, 16); err != nil {
			t.Fatal(err)
		}
		if got, want := h.sizes(), []int{4, 4, 4, 4}; !slices.Equal(got, want) {
			t.Errorf("later batches of %v, want %v: the smaller size is remembered", got, want)
		}
		e.Close()
	})
	t.Run("made before", func(t *testing.T) { // batches that wait for the first one's end
		for _, o := range []Options{
			{MaxBatchSize: 16},
			{MaxBatchSize: 100, MaxBatchWeight: 48},
			{MaxBatchSize: 100, MaxBatchWeight: 48, WholeWeight: 48},
		} {
			h := &fake{run: noRoom(5)}
			o.MaxInFlight, o.Concurrency = 1<<20, 1
			e := NewEngine(h, o)
			if err := push(t, e, 64); err != nil {
				t.Fatal(err)
			}
			if got, want := h.sizes(), append([]int{16, 8}, slices.Repeat([]int{4}, 16)...); !slices.Equal(got, want) {
				t.Errorf("%+v: batches of %v, want %v", o, got, want)
			}
			e.Close()
		}
	})
	t.Run("weight", func(t *testing.T) {
		h := &fake{run: noRoom(5)}
		e := NewEngine(h, Options{MaxBatchSize: 100, MaxBatchWeight: 30, MaxInFlight: 1 << 20, Concurrency: 1})
		if err := push(t, e, 20); err != nil {
			t.Fatal(err)
		}
		if e.maxSize != 100 || e.maxWeight != 15 {
			t.Errorf("size %d, weight %d; want 100, 15", e.maxSize, e.maxWeight)
		}
		e.Close()
	})
	t.Run("one item", func(t *testing.T) {
		e := NewEngine(&fake{run: noRoom(0)}, Options{MaxBatchSize: 16, MaxInFlight: 1 << 20})
		if err := push(t, e, 16); !errors.Is(err, model.ErrOutOfMemory) {
			t.Errorf("got %v, want the handler's error", err)
		}
		e.Close()
	})
}

// TestFailures shows whom a failing batch concerns, and what is said.
func TestFailures(t *testing.T) {
	tests := []struct {
		name string
		run  func([]int64) error
		want string
	}{
		{"error", func([]int64) error { return errors.New("device is gone") }, "device is gone"},
		{"panic", func([]int64) error { panic("bug") }, "inference: batch of 4: panic: bug (engine_test.go:"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			release := holdPool()
			defer release()
			e := NewEngine(&fake{run: func(batch []int64) error {
				if slices.Contains(batch, 5) {
					return test.run(batch)
				}
				return nil
			}}, Options{MaxBatchSize: 4, MaxInFlight: 1 << 20})
			defer e.Close()
			q := NewQueue[int](e)
			var got []error
			emit := func(tag int, _ []int64, err error) error {
				if tag != len(got) {
					t.Errorf("group %d in place %d", tag, len(got))
				}
				got = append(got, err)
				return nil
			}
			for i := range 6 { // items 0 1 | 2 3 || 4 5 | 6 7 || 8 9 | 10 11
				push(t, q, i, []int64{int64(2 * i), int64(2*i + 1)}, emit)
			}
			release()
			drain(t, q, emit)
			for i, err := range got {
				bad := i == 2 || i == 3
				if bad != (err != nil) || bad && !strings.HasPrefix(err.Error(), test.want) {
					t.Errorf("group %d: error %v", i, err)
				}
			}
		})
	}
}

type short struct{ fake }

func (s *short) Run(ctx context.Context, batch []int64) ([]int64, error) { return nil, nil }

func TestTooFewOutputs(t *testing.T) {
	e := NewEngine(&short{}, Options{MaxInFlight: 1})
	defer e.Close()
	q := NewQueue[int](e)
	emit := func(_ int, _ []int64, err error) error { return err }
	err := errors.Join(q.Push(t.Context(), 0, []int64{1}, 1, emit), q.Drain(t.Context(), emit))
	if err == nil || !strings.Contains(err.Error(), "0 outputs for a batch of 1") {
		t.Errorf("got %v, want an error that counts", err)
	}
}

// TestReset leaves a bundle in the middle: its items never run, and the next
// bundle's results are its own.
func TestReset(t *testing.T) {
	release := holdPool()
	defer release()
	h := &fake{}
	e := NewEngine(h, Options{MaxBatchSize: 4, MaxInFlight: 1 << 20})
	defer e.Close()
	q := NewQueue[[]int64](e)
	s := sink{t: t}
	for range 10 {
		push(t, q, []int64{1}, []int64{1}, s.emit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := q.Drain(ctx, s.emit); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the context's error", err)
	}
	q.Reset()
	if e.inFlight != 0 {
		t.Errorf("%d bytes in flight after Reset", e.inFlight)
	}
	push(t, q, []int64{2}, []int64{2}, s.emit)
	release()
	drain(t, q, s.emit)
	if s.next != 1 {
		t.Errorf("%d groups emitted, want 1", s.next)
	}
	for _, batch := range h.batches {
		if slices.Contains(batch, 1) {
			t.Errorf("batch %v has items that nobody waits for", batch)
		}
	}
}

func TestClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	release := holdPool()
	defer release()
	h := &fake{}
	e := NewEngine(h, Options{MaxBatchSize: 3, MaxInFlight: 1 << 20, Concurrency: 1})
	q := NewQueue[[]int64](e)
	s := sink{t: t}
	for range 10 {
		push(t, q, []int64{1}, []int64{1}, s.emit)
	}
	go func() { // no batch runs before Close is there
		for closed := false; !closed; time.Sleep(time.Millisecond) {
			e.mu.Lock()
			closed = e.closed
			e.mu.Unlock()
		}
		release()
	}()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Drain(t.Context(), s.emit); !errors.Is(err, ErrClosed) {
		t.Errorf("Drain after Close: got %v, want ErrClosed", err)
	}
	q.Reset()
	if err := errors.Join(q.Push(t.Context(), []int64{1}, []int64{1}, 1, s.emit), q.Drain(t.Context(), s.emit)); !errors.Is(err, ErrClosed) {
		t.Errorf("Push after Close: got %v, want ErrClosed", err)
	}
	if len(h.batches) != 0 || !h.closed.Load() {
		t.Errorf("%d batches ran; handler closed: %v", len(h.batches), h.closed.Load())
	}
	if err := e.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestCloseWaits closes an engine, twice at once, while a batch runs, which its
// context ends.
func TestCloseWaits(t *testing.T) {
	h := &fake{}
	begun := make(chan struct{})
	h.run = func([]int64) error {
		h.mu.Lock()
		ctx := h.ctx
		h.mu.Unlock()
		close(begun)
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond)
		return ctx.Err()
	}
	e := NewEngine(h, Options{MaxInFlight: 1})
	q := NewQueue[int](e)
	push(t, q, 0, []int64{1}, nil)
	<-begun
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if err := e.Close(); err != nil || !h.closed.Load() {
				t.Errorf("Close: %v, handler closed: %v", err, h.closed.Load())
			}
		})
	}
	both.Wait()
	q.Reset()
}

// TestCloseWaitsForWeight closes an engine while an item is weighed.
func TestCloseWaitsForWeight(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	h := &fake{}
	e := NewEngine(h, Options{MaxInFlight: 1})
	closed := make(chan error, 1)
	h.weigh = func() {
		go func() { closed <- e.Close() }()
		select {
		case err := <-closed:
			closed <- err
		case <-time.After(50 * time.Millisecond):
		}
	}
	q := NewQueue[int](e)
	if err := q.Push(t.Context(), 0, []int64{1}, 1, func(_ int, _ []int64, err error) error { return err }); err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("Push during Close: %v", err)
	}
	if err := q.Drain(t.Context(), func(_ int, _ []int64, err error) error { return err }); err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("Drain during Close: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if len(h.batches) > 0 {
		t.Errorf("%d batches ran", len(h.batches))
	}
}

// TestWaitLeavesOthers waits for a batch that runs: what others have brought
// goes on waiting for a full batch as long as the device is busy.
func TestWaitLeavesOthers(t *testing.T) {
	hold := make(chan struct{})
	h := &fake{run: func([]int64) error { <-hold; return nil }}
	e := NewEngine(h, Options{MaxBatchSize: 2, MaxInFlight: 100, Concurrency: 1})
	q, other := NewQueue[[]int64](e), NewQueue[[]int64](e)
	s, rest := sink{t: t}, sink{t: t}
	push := func(q *Queue[[]int64, int64, int64], s *sink, items ...int64) {
		t.Helper()
		push(t, q, items, items, s.emit)
	}
	push(q, &s, 1, 2)
	push(other, &rest, 3)
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := q.Drain(t.Context(), s.emit); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(10 * time.Millisecond) // it waits by now
	push(other, &rest, 4)
	close(hold)
	wait.Wait()
	if err := other.Drain(t.Context(), rest.emit); err != nil {
		t.Fatal(err)
	}
	if got := h.sizes(); !slices.Equal(got, []int{2, 2}) {
		t.Errorf("batches of %v, want two full ones", got)
	}
}

// TestForgotten loses a queue in the middle of a bundle, as workers do with the DoFn
// instances of a bundle that failed elsewhere: they call nothing more of it.
func TestForgotten(t *testing.T) {
	release := holdPool()
	defer release()
	h := &fake{}
	e := NewEngine(h, Options{MaxBatchSize: 4, MaxInFlight: 10})
	if err := NewQueue[int](e).Push(t.Context(), 0, []int64{1}, 10, nil); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !e.reserve(10, false); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what the queue held stays in flight")
		}
		runtime.GC()
	}
	release()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if len(h.batches) > 0 {
		t.Errorf("batches %v ran that nobody waits for", h.batches)
	}
}

// TestMaxInFlight pushes up to the limit and one byte beyond.
func TestMaxInFlight(t *testing.T) {
	release := holdPool()
	defer release()
	e := NewEngine(&fake{}, Options{MaxBatchSize: 100, MaxInFlight: 10})
	q, other := NewQueue[int](e), NewQueue[int](e)
	const soon = 10 * time.Millisecond
	push := func(q *Queue[int, int64, int64], size int64, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return q.Push(ctx, 0, []int64{1}, size, nil)
	}
	if err := errors.Join(push(q, 6, time.Minute), push(q, 4, time.Minute)); err != nil {
		t.Errorf("up to the limit: %v", err)
	}
	if err := push(q, 1, soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond the limit: %v, want to wait", err)
	}
	if err := push(other, math.MaxInt64, time.Minute); err != nil {
		t.Errorf("another queue's first group: %v, want no wait for others", err)
	}
	if err := push(other, 1, soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another queue's second group: %v, want to wait", err)
	}
	q.Reset()
	other.Reset()
}

func BenchmarkQueue(b *testing.B) {
	e := NewEngine(&nothing{}, Options{MaxBatchSize: 128, MaxInFlight: 1 << 12})
	q := NewQueue[int](e)
	emit := func(int, []int64, error) error { return nil }
	items := make([]int64, 2)
	for b.Loop() {
		q.Push(context.Background(), 0, items, 1, emit)
	}
	q.Drain(context.Background(), emit)
}

type nothing struct{}

func (nothing) Run(_ context.Context, batch []int64) ([]int64, error) { return batch, nil }
func (nothing) Weight(int64) int64                                    { return 1 }
func (nothing) Close() error                                          { return nil }
