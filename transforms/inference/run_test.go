package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"

	"github.com/linnet-ml/linnet/transforms/internal/beamtest"
)

func TestMain(m *testing.M) { beamtest.Main(m) }

// lineLoader loads a linear model: Slope·x, and no answer for x in [400, 500). For a
// Slope of 0 it fails, for -1 it returns nothing, and for -2 it panics.
type lineLoader struct {
	Slope float64
	Name  string // makes tests' models different
}

var lineLoads, unique atomic.Int64

func (l lineLoader) Load(context.Context) (Handler[int, float64], error) {
	lineLoads.Add(1)
	switch l.Slope {
	case 0:
		return nil, errors.Join(errors.New("no model there"), errors.New("none here"))
	case -1:
		return nil, nil
	case -2:
		panic("broken")
	}
	return line(l), nil
}

type line lineLoader

func (l line) Run(_ context.Context, batch []int) ([]float64, error) {
	outs := make([]float64, len(batch))
	for i, x := range batch {
		if 400 <= x && x < 500 {
			return nil, fmt.Errorf("cannot do\n%d", x)
		}
		outs[i] = l.Slope * float64(x)
	}
	return outs, nil
}

// Numbers without a weight, and without a size.
const weightless, sizeless = -1, -2

func (line) Weight(x int) int64 {
	if x == weightless {
		panic("no weight")
	}
	return 1
}

func (line) Size(x int) int64 {
	if x == sizeless {
		panic("no size")
	}
	return 8
}
func (line) Close() error { return nil }

func init() {
	Register[int, float64, lineLoader]()
	Register[int, float64, heldLoader]()
	Register[int, float64, Loader[int, float64]]()
	Register[int, float64, lineLoader]() // harmless
	Register[int, int, gatedLoader]()
	beam.RegisterFunction(later)
	beam.RegisterFunction(behindGate)
	beam.RegisterDoFn(&keepFn{})
}

// later makes x its own event time.
func later(x int, emit func(beam.EventTime, int)) { emit(beam.EventTime(x), x) }

// kept are the results that keepFn saw, by the test's name. The workers of
// direct and prism are in this process.
var kept struct {
	sync.Mutex
	lines map[string][]string
}

type keepFn struct{ Name string }

func (f *keepFn) ProcessElement(t beam.EventTime, x int, y beam.Y) {
	kept.Lock()
	defer kept.Unlock()
	if kept.lines == nil {
		kept.lines = make(map[string][]string)
	}
	kept.lines[f.Name] = append(kept.lines[f.Name], fmt.Sprintf("%d %v at %d", x, y, t))
}

func TestRunInference(t *testing.T) {
	const n = 1000
	for _, runner := range []string{"direct", "prism"} {
		t.Run(runner, func(t *testing.T) {
			lineLoads.Store(0)
			items := make([]int, n)
			for i := range items {
				items[i] = i
			}
			loader := lineLoader{Slope: 0.5, Name: fmt.Sprint(t.Name(), unique.Add(1))}
			run := func() beam.PipelineResult {
				kept.lines = nil
				p, s := beam.NewPipelineWithRoot()
				col := beam.ParDo(s, later, beam.Reshuffle(s, beam.CreateList(s, items)))
				results, failed := RunInference[int, float64](s, loader, Options{MaxBatchSize: 100, Namespace: "test"}, col)
				beam.ParDo0(s, &keepFn{t.Name()}, results)
				beam.ParDo0(s, &keepFn{t.Name() + " failed"}, failed)
				res, err := beam.Run(t.Context(), runner, p)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			if got := metricsOf(run())["load_model_latency_milli_secs"].Count; got != 1 {
				t.Errorf("%d loads reported by the first run, want 1", got)
			}
			res := run() // by the same model
			if got := lineLoads.Load(); got != 1 {
				t.Errorf("%d loads, want 1", got)
			}
			results, failed := kept.lines[t.Name()], kept.lines[t.Name()+" failed"]
			if len(results)+len(failed) != n || len(failed) < 100 || len(failed) > 400 {
				t.Errorf("%d results and %d failed of %d", len(results), len(failed), n)
			}
			for _, x := range []int{0, 1, 399, 500, 999} { // may share a batch with one that fails
				want := fmt.Sprintf("%d %v at %d", x, 0.5*float64(x), x)
				bad := slices.ContainsFunc(failed, func(s string) bool { return strings.HasPrefix(s, fmt.Sprintf("%d cannot do 4", x)) })
				if !bad && !slices.Contains(results, want) {
					t.Errorf("no result %q", want)
				}
			}
			if !slices.ContainsFunc(failed, func(s string) bool {
				return strings.HasPrefix(s, "450 cannot do 4") && strings.HasSuffix(s, " at 450")
			}) {
				t.Error("450 did not fail")
			}

			got := metricsOf(res)
			good := int64(len(results))
			if got["num_inferences"].Sum != good || got["failed_batches_counter"].Sum == 0 {
				t.Errorf("metrics %v, want %d inferences", got, good)
			}
			if v := got["inference_request_batch_size"]; v.Sum != good || v.Max > 100 {
				t.Errorf("batch sizes %+v, want a sum of %d", v, good)
			}
			if v := got["inference_request_batch_byte_size"]; v.Sum != 8*good {
				t.Errorf("batch bytes %+v, want a sum of %d", v, 8*good)
			}
			if v := got["inference_batch_latency_micro_secs"]; v.Count != got["inference_request_batch_size"].Count {
				t.Errorf("latencies %+v", v)
			}
		})
	}
}

// metricsOf are those of namespace test; a counter has its value as Sum.
func metricsOf(res beam.PipelineResult) map[string]metrics.DistributionValue {
	got := map[string]metrics.DistributionValue{}
	all := res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Namespace() == "test" })
	for _, c := range all.Counters() {
		got[c.Name()] = metrics.DistributionValue{Sum: c.Result()}
	}
	for _, d := range all.Distributions() {
		got[d.Name()] = d.Result()
	}
	return got
}

func TestRunInferenceLoadFails(t *testing.T) {
	for slope, want := range map[float64]string{0: "no model there none here", -1: "neither a Handler nor an error came; return one", -2: "panic: broken (run_test.go:"} {
		for _, runner := range []string{"direct", "prism"} {
			p, s := beam.NewPipelineWithRoot()
			RunInference[int, float64](s, lineLoader{Slope: slope, Name: t.Name()}, Options{}, beam.Create(s, 1))
			_, err := beam.Run(t.Context(), runner, p)
			if err == nil || !strings.Contains(err.Error(), "inference: load inference.lineLoader: "+want) {
				t.Errorf("%s: got %v, want %q", runner, err, want)
			}
		}
	}
}

// An item that the handler cannot weigh or measure fails alone.
func TestRunInferenceItemPanics(t *testing.T) {
	for _, runner := range []string{"direct", "prism"} {
		kept.lines = nil
		p, s := beam.NewPipelineWithRoot()
		col := beam.ParDo(s, later, beam.Create(s, 1, weightless, 2, sizeless, 3))
		results, failed := RunInference[int, float64](s, lineLoader{Slope: 1, Name: t.Name()}, Options{MaxBatchSize: 5, Namespace: "test"}, col)
		beam.ParDo0(s, &keepFn{"results"}, results)
		beam.ParDo0(s, &keepFn{"failed"}, failed)
		res, err := beam.Run(t.Context(), runner, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := metricsOf(res)["failed_inferences_counter"].Sum; got != 2 {
			t.Errorf("%s: %d failures counted, want 2", runner, got)
		}
		if got, want := slices.Sorted(slices.Values(kept.lines["results"])), []string{"1 1 at 1", "2 2 at 2", "3 3 at 3"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", runner, got, want)
		}
		got := slices.Sorted(slices.Values(kept.lines["failed"]))
		if len(got) != 2 || !strings.HasPrefix(got[0], "-1 inference: Weight: panic: no weight (run_test.go:") ||
			!strings.HasPrefix(got[1], "-2 inference: the size of an item: panic: no size (run_test.go:") {
			t.Errorf("%s: failed: %q", runner, got)
		}
	}
}

type otherLoader struct{ lineLoader }

func TestRunInferenceWithoutRegister(t *testing.T) {
	got := beamtest.PanicOf(func(s beam.Scope) { RunInference[int, float64](s, otherLoader{}, Options{}, beam.Create(s, 1)) })
	const want = "call inference.Register[int, float64, inference.otherLoader]() in an init function"
	if !strings.HasPrefix(got, "inference: RunInference: ") || !strings.Contains(got, want) {
		t.Errorf("got the panic %q, want %q", got, want)
	}
}

// heldLoader has a loader that no worker could decode: of which type is it?
type heldLoader struct{ Loader[int, float64] }

// What a loader says of its model has to reach the workers.
func TestRunInferenceLoaderTravels(t *testing.T) {
	for want, build := range map[string]func(beam.Scope){
		"inference: inference.lineLoader travels as JSON: json: unsupported value: NaN": func(s beam.Scope) {
			RunInference[int, float64](s, lineLoader{Slope: math.NaN()}, Options{}, beam.Create(s, 1))
		},
		"inference: inference.heldLoader travels as JSON, and no worker could read it: json: cannot unmarshal ": func(s beam.Scope) {
			RunInference[int, float64](s, heldLoader{lineLoader{Slope: 1}}, Options{}, beam.Create(s, 1))
		},
		"inference: inference.lineLoader travels as JSON, and no worker could read it: json: cannot unmarshal ": func(s beam.Scope) {
			RunInference[int, float64, Loader[int, float64]](s, lineLoader{Slope: 1}, Options{}, beam.Create(s, 1))
		},
	} {
		if got := beamtest.PanicOf(build); !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("got the panic %q, want one line that begins %q", got, want)
		}
	}
}

// Results that come out while another item is at hand, or at a bundle's end, would
// get that one's windows; of KVs Beam says that main inputs are missing.
func TestRunInferenceItems(t *testing.T) {
	for want, items := range map[string]func(beam.Scope) beam.PCollection{
		"global window": func(s beam.Scope) beam.PCollection {
			return beam.WindowInto(s, window.NewFixedWindows(time.Second), beam.Create(s, 1))
		},
		"KV":             func(s beam.Scope) beam.PCollection { return beam.AddFixedKey(s, beam.Create(s, 1)) },
		"groups":         func(s beam.Scope) beam.PCollection { return beam.GroupByKey(s, beam.AddFixedKey(s, beam.Create(s, 1))) },
		"no PCollection": func(beam.Scope) beam.PCollection { return beam.PCollection{} },
	} {
		got := beamtest.PanicOf(func(s beam.Scope) {
			RunInference[int, float64](s, lineLoader{Slope: 1, Name: t.Name()}, Options{}, items(s))
		})
		if !strings.HasPrefix(got, "inference: RunInference: ") || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("got the panic %q, want one line about %s", got, want)
		}
	}
}

// Options that contradict each other are told when the pipeline is built, and by
// whoever has an Engine without one.
func TestOptions(t *testing.T) {
	for want, options := range map[string]Options{
		"Waits without Concurrency": {Waits: true},
		"BucketWeights do not rise": {BucketWeights: []int64{10, 30, 20}},
	} {
		for name, f := range map[string]func(beam.Scope){
			"RunInference": func(s beam.Scope) {
				RunInference[int, float64](s, lineLoader{Slope: 1, Name: t.Name()}, options, beam.Create(s, 1))
			},
			"NewEngine": func(beam.Scope) { NewEngine(&fake{}, options) },
		} {
			if got := beamtest.PanicOf(f); !strings.HasPrefix(got, "inference: Options.") || !strings.Contains(got, want) {
				t.Errorf("%s: got the panic %q, want one of %s", name, got, want)
			}
		}
	}
}

// gated is a model that answers when its gate is open.
type gatedLoader struct{ Name string }

var gates sync.Map // gatedLoader.Name → chan struct{}

func (l gatedLoader) Load(context.Context) (Handler[int, int], error) {
	gate, _ := gates.Load(l.Name)
	return gated{gate.(chan struct{})}, nil
}

type gated struct{ gate chan struct{} }

func (g gated) Run(_ context.Context, batch []int) ([]int, error) { <-g.gate; return batch, nil }
func (gated) Weight(int) int64                                    { return 1 }
func (gated) Close() error                                        { return nil }

// Items that weigh 1 each take the memory that MaxInFlight says, not hundreds of bytes
// for each byte of it.
func TestRunInferenceMemory(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	gate, name := make(chan struct{}), t.TempDir() // another at each run, for the engine stays
	gates.Store(name, gate)
	fn := &runFn[int, int, gatedLoader]{Loader: gatedLoader{name}, Options: Options{MaxBatchSize: 64, Concurrency: 1, Waits: true}}
	if err := fn.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	emitted := 0
	emit := func(beam.EventTime, int, int) { emitted++ }
	fail := func(_ beam.EventTime, _ int, cause string) { t.Error(cause) }
	if err := fn.StartBundle(t.Context(), emit, fail); err != nil {
		t.Fatal(err)
	}
	const items = 50000
	before := heap()
	for i := range items {
		if err := fn.ProcessElement(t.Context(), 0, i, emit, fail); err != nil {
			t.Fatal(err)
		}
	}
	took, counted := heap()-before, fn.served.engine.inFlight
	if took > 2*counted || counted > 5*took {
		t.Errorf("%d items count for %d bytes and take %d", items, counted, took)
	}
	close(gate)
	if err := fn.FinishBundle(t.Context(), emit, fail); err != nil || emitted != items {
		t.Errorf("%d items emitted, %v", emitted, err)
	}
	if got := fn.served.engine.inFlight; got != 0 {
		t.Errorf("%d bytes in flight at the end", got)
	}
}

const behind = 20000

// behindGate emits items, and opens the gate of that name when it has.
func behindGate(name string, emit func(int)) {
	for i := range behind {
		emit(i)
	}
	gate, _ := gates.Load(name)
	close(gate.(chan struct{}))
}

// All batches that end while the bundle does are counted, however many there are.
func TestRunInferenceCounts(t *testing.T) {
	name := t.TempDir()
	gates.Store(name, make(chan struct{}))
	p, s := beam.NewPipelineWithRoot()
	items := beam.ParDo(s, behindGate, beam.Create(s, name))
	RunInference[int, int](s, gatedLoader{name}, Options{Concurrency: 1, Waits: true, Namespace: "test"}, items)
	res, err := beam.Run(t.Context(), "direct", p)
	if err != nil {
		t.Fatal(err)
	}
	got := metricsOf(res)
	if got["num_inferences"].Sum != behind || got["inference_request_batch_size"].Sum != behind {
		t.Errorf("%d inferences, batches of %+v; want %d of both", got["num_inferences"].Sum, got["inference_request_batch_size"], behind)
	}
}
