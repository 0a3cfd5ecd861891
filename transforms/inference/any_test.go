package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"pgregory.net/rapid"

	"github.com/linnet-ml/linnet/model"
)

// thing is an item of TestAny. What its Run does is what the first of its batch with
// a does says, after the time of the slowest.
type thing struct {
	ID     int
	Weight int64
	Takes  time.Duration
	Does   string
}

// anyModel runs things and remembers what comes of each.
type anyModel struct {
	options Options
	roomFor int   // items
	room    int64 // weight

	mu      sync.Mutex
	wrong   []string
	closing bool
	closed  bool
	running int
	halved  int64
	groups  map[int]int            // of a thing
	dropped map[int]time.Time      // by thing
	results map[int]error          // of the Run that settled a thing
	halves  map[int]int            // size of the batch, at most, after one that had no room
	bounds  map[time.Time][2]int64 // size and weight of later batches, at most
}

func (m *anyModel) failf(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

func sum(batch []thing) (weight int64) {
	for _, x := range batch {
		weight = plus(weight, max(x.Weight, 0))
	}
	return weight
}

func (m *anyModel) Run(ctx context.Context, batch []thing) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running++
	defer func() { m.running-- }()
	m.check(batch)
	n, weight := len(batch), sum(batch)
	if n > m.roomFor || weight > m.room {
		err := fmt.Errorf("%d of %d: %w", n, weight, model.ErrOutOfMemory)
		if n == 1 {
			m.results[batch[0].ID] = err
		} else {
			m.halved++
			bound := [2]int64{math.MaxInt64, weight/2 + weight%2}
			if m.options.MaxBatchWeight == 0 || weight < 2 {
				bound = [2]int64{int64(n+1) / 2, math.MaxInt64}
			}
			if old, ok := m.bounds[time.Now()]; ok {
				bound = [2]int64{min(bound[0], old[0]), min(bound[1], old[1])}
			}
			m.bounds[time.Now()] = bound
		}
		for _, x := range batch {
			m.halves[x.ID] = (n + 1) / 2
		}
		return nil, err
	}

	takes, does := time.Duration(0), ""
	outs, errs := make([]int, n), ItemErrors{}
	for i, x := range batch {
		takes = max(takes, x.Takes)
		if does == "" && x.Does != "item fails" {
			does = x.Does
		}
		outs[i] = answer(x)
		if x.Does == "item fails" {
			errs[i] = fmt.Errorf("thing %d fails", x.ID)
		}
	}
	var err error
	switch {
	case m.options.Timeout > 0 && takes > m.options.Timeout:
		err = ErrTimeout
	case does == "fails":
		err = fmt.Errorf("batch of %v fails", batch[0])
	case does == "panics":
		err = fmt.Errorf("batch of %v panics", batch[0])
	case does == "short":
		outs = outs[1:]
		err = fmt.Errorf("%d outputs", n-1)
	}
	for i, x := range batch {
		if _, again := m.results[x.ID]; again {
			m.failf("%v runs twice", x)
		}
		if m.results[x.ID] = err; err == nil {
			m.results[x.ID] = errs[i]
		}
	}
	m.mu.Unlock()
	time.Sleep(takes)
	m.mu.Lock()
	switch {
	case does == "panics":
		panic(err)
	case does == "fails":
		return nil, err
	case len(errs) > 0:
		return outs, fmt.Errorf("some: %w", errs)
	}
	return outs, nil
}

// check looks at a batch before it runs.
func (m *anyModel) check(batch []thing) {
	now, o := time.Now(), &m.options
	n, weight, whole := len(batch), sum(batch), o.WholeWeight
	maxSize, maxWeight := int64(max(o.MaxBatchSize, 1)), o.MaxBatchWeight
	for at, bound := range m.bounds {
		if at.Before(now) {
			maxSize = min(maxSize, bound[0])
			if bound[1] < math.MaxInt64 {
				maxWeight, whole = min(maxWeight, bound[1]), min(whole, bound[1])
			}
		}
	}
	if m.closed {
		m.failf("%v runs after Close", batch)
	}
	if o.Concurrency > 0 && o.Timeout == 0 && m.running > o.Concurrency {
		m.failf("%d batches run at once", m.running)
	}
	if n == 0 || int64(n) > maxSize {
		m.failf("a batch of %d, where %d is the most", n, maxSize)
	}
	one := !slices.ContainsFunc(batch, func(x thing) bool { return m.groups[x.ID] != m.groups[batch[0].ID] })
	if n > 1 && maxWeight > 0 && weight > maxWeight && !(one && weight <= whole) {
		m.failf("a batch %v that weighs %d, where %d is the most", batch, weight, maxWeight)
	}
	for _, x := range batch {
		if at, ok := m.dropped[x.ID]; ok && at.Before(now) {
			m.failf("%v runs, which nobody wants", x)
		}
		if half, ok := m.halves[x.ID]; ok && n > half {
			m.failf("a batch of %d after one that had no room for twice %d", n, half)
		}
	}
}

func answer(x thing) int { return 7 * x.ID }

func (m *anyModel) Weight(x thing) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.failf("%v is weighed after Close", x)
	}
	if x.Does == "weightless" {
		panic("no weight")
	}
	return x.Weight
}

func (m *anyModel) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.running > 0 {
		m.failf("closed again %t, with %d batches at work", m.closed, m.running)
	}
	m.closed = true
	return nil
}

// settled tells what is wrong with what a group got.
func (m *anyModel) settled(group []thing, outs []int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	good, belongs := true, false
	for i, x := range group {
		want, ran := m.results[x.ID]
		if !ran {
			want = ErrClosed
			if x.Does == "weightless" && !errors.Is(err, ErrClosed) {
				want = errors.New("inference: Weight: panic: no weight")
			}
		}
		switch {
		case want == nil && err == nil && outs[i] != answer(x):
			m.failf("%v got %d", x, outs[i])
		case want != nil:
			good = false
			belongs = belongs || err != nil && (errors.Is(err, want) || strings.Contains(err.Error(), want.Error()))
		}
	}
	cut := m.closing && m.options.Timeout > 0 && errors.Is(err, context.Canceled)
	if good && err != nil && !cut || !good && !belongs && !cut {
		m.failf("%v got %v and the error %v, all good: %t", group, outs, err, good)
	}
	if errors.Is(err, ErrClosed) && !m.closing {
		m.failf("%v got %v before Close", group, err)
	}
}

// step is one of a queue's: Push of a group, or Drain, by a context that ends, or by an emit
// that fails, or with a Reset, after some time.
type step struct {
	Do    string
	Group []thing
	Size  int64
	After time.Duration
	Ends  time.Duration
}

var errEmit = errors.New("emit fails")

// follow takes the steps on a queue of its own. Groups come in order, whole.
func (m *anyModel) follow(bundle context.Context, e *Engine[thing, int], steps []step, alone bool) {
	q := NewQueue[int](e)
	var pushed []step // and not emitted
	first := 0        // tag of the first of them
	fails := false
	emit := func(tag int, outs []int, err error) error {
		if tag != first || len(pushed) == 0 {
			m.mu.Lock()
			m.failf("group %d, want %d of %d", tag, first, len(pushed))
			m.mu.Unlock()
			return nil
		}
		m.settled(pushed[0].Group, outs, err)
		first, pushed = first+1, pushed[1:]
		if fails {
			return errEmit
		}
		return nil
	}
	for _, s := range steps {
		time.Sleep(s.After)
		ctx, cancel := context.WithCancel(bundle)
		if s.Ends != 0 {
			ctx, cancel = context.WithTimeout(bundle, s.Ends)
		}
		fails = s.Do == "fail"
		var err error
		if s.Do == "push" || s.Do == "fail" {
			pushed = append(pushed, s)
			err = q.Push(ctx, first+len(pushed)-1, s.Group, s.Size, emit)
		} else {
			err = q.Drain(ctx, emit)
		}
		m.mu.Lock()
		inFlight := int64(0)
		for _, p := range pushed {
			inFlight = plus(inFlight, max(p.Size, 1))
		}
		switch {
		case alone && err == nil && len(pushed) > 1 && inFlight > m.options.MaxInFlight:
			m.failf("%d bytes are in flight", inFlight)
		case err == nil && s.Do == "drain" && len(pushed) > 0:
			m.failf("Drain left %d groups", len(pushed))
		case err != nil && !(fails && err == errEmit) && !(s.Ends != 0 && errors.Is(err, context.DeadlineExceeded)):
			m.failf("%s: %v", s.Do, err)
		}
		m.mu.Unlock()
		cancel()
		if err != nil || s.Do == "reset" {
			q.Reset()
			m.mu.Lock()
			for _, p := range pushed {
				for _, x := range p.Group {
					m.dropped[x.ID] = time.Now()
				}
			}
			m.mu.Unlock()
			first, pushed = first+len(pushed), nil
		}
	}
	q.Reset()
}

// counted compares the metrics of bundles with what came of the things.
func (m *anyModel) counted(bundles []context.Context) {
	got, want := map[string]int64{}, map[string]int64{"batch_halvings_counter": m.halved}
	for _, err := range m.results {
		if err == nil {
			want["num_inferences"]++
		}
	}
	for _, ctx := range bundles {
		x := metrics.Extractor{SumInt64: func(l metrics.Labels, n int64) { got[l.Name()] += n }}
		if err := x.ExtractFrom(metrics.GetStore(ctx)); err != nil {
			m.failf("metrics: %v", err)
		}
	}
	for _, name := range []string{"num_inferences", "batch_halvings_counter"} {
		if got[name] != want[name] {
			m.failf("%s is %d, want %d", name, got[name], want[name])
		}
	}
}

// TestAny drives an engine from several queues with any options, items, memory, failures,
// contexts that end and a Close, by a clock that no machine disturbs. Each group gets what
// is its own, once and in order; limits hold, after a batch that had no room tighter ones;
// nothing waits for ever, or is left behind.
func TestAny(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		some := func(name string, values ...int64) int64 { return rapid.SampledFrom(values).Draw(rt, name) }
		ms := func(name string, values ...int64) time.Duration {
			return time.Duration(some(name, values...)) * time.Millisecond
		}
		o := Options{
			MaxBatchSize:   int(some("size", 0, 1, 2, 3, 4, 7, 16)),
			MaxBatchWeight: some("weight", 0, 0, 1, 5, 20, 60),
			WholeWeight:    some("whole", 0, 0, 10, 30, 100),
			SpreadWeight:   some("spread", 0, 0, 5),
			BucketWeights:  [][]int64{nil, nil, {3}, {0, 5, 5, 12}}[some("buckets", 0, 1, 2, 3)],
			Concurrency:    int(some("concurrency", 0, 0, 1, 1, 2, 3)),
			MaxInFlight:    some("in flight", 0, 5, 20, 100, 1<<40),
			Timeout:        ms("timeout", 0, 0, 10),
		}
		o.Waits = o.Concurrency > 0 && rapid.Bool().Draw(rt, "waits")
		m := &anyModel{
			options: o,
			roomFor: int(some("room for", 0, 1, 2, 5, 100, 100, 100)),
			room:    some("room", 3, 10, math.MaxInt64, math.MaxInt64),
			groups:  map[int]int{}, dropped: map[int]time.Time{}, results: map[int]error{}, halves: map[int]int{},
			bounds: map[time.Time][2]int64{},
		}
		ids, groups := 0, 0
		thingOf := rapid.Custom(func(rt *rapid.T) thing {
			return thing{
				Weight: rapid.SampledFrom([]int64{-1, 0, 1, 1, 2, 3, 4, 7, 9, 25, math.MaxInt64}).Draw(rt, "weighs"),
				Takes:  time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 3, 7, 15}).Draw(rt, "takes")) * time.Millisecond,
				Does: rapid.SampledFrom([]string{"", "", "", "", "", "", "", "", "", "", "", "", "item fails", "fails", "panics", "short", "weightless"}).
					Draw(rt, "does"),
			}
		})
		queues := make([][]step, some("queues", 1, 1, 2, 3))
		for i := range queues {
			for range rapid.IntRange(1, 20).Draw(rt, "steps") {
				s := step{
					Do:    rapid.SampledFrom([]string{"push", "push", "push", "push", "push", "drain", "reset", "fail"}).Draw(rt, "do"),
					After: ms("after", 0, 0, 0, 1, 4),
					Ends:  ms("ends", 0, 0, 0, 0, 0, 2, 9, -1),
				}
				if s.Do == "push" || s.Do == "fail" {
					s.Group = rapid.SliceOfN(thingOf, 0, 5).Draw(rt, "group")
					s.Size = some("bytes", -1, 0, 1, 4, 9, 30, math.MaxInt64)
					for i := range s.Group {
						s.Group[i].ID = ids
						m.groups[ids] = groups
						ids++
					}
					groups++
				}
				queues[i] = append(queues[i], s)
			}
			queues[i] = append(queues[i], step{Do: "drain"})
		}
		closeAt := time.Duration(-1)
		if rapid.Bool().Draw(rt, "closes early") {
			closeAt = ms("closes", 0, 1, 3, 6, 12, 30)
		}
		synctest.Test(t, func(*testing.T) {
			e := NewEngine(m, o)
			bundles := make([]context.Context, len(queues))
			var wait sync.WaitGroup
			for i, steps := range queues {
				bundles[i] = metrics.SetPTransformID(metrics.SetBundleID(context.Background(), "bundle"), "transform")
				wait.Go(func() { m.follow(bundles[i], e, steps, len(queues) == 1) })
			}
			if closeAt < 0 {
				wait.Wait()
			}
			time.Sleep(closeAt)
			m.mu.Lock()
			m.closing = true
			m.mu.Unlock()
			if err := e.Close(); err != nil || !m.closed {
				m.failf("Close: %v, closed: %t", err, m.closed)
			}
			wait.Wait()
			if e.inFlight != 0 {
				m.failf("%d bytes are in flight at the end", e.inFlight)
			}
			if e.Report(bundles[0]); o.Timeout == 0 { // or Close may end a Run before its time
				m.counted(bundles)
			}
		})
		if len(m.wrong) > 0 {
			rt.Fatal(strings.Join(m.wrong, "\n"))
		}
	})
}
