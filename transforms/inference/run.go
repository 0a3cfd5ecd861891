package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/typex"

	"github.com/linnet-ml/linnet/transforms/internal/pipe"
)

// Loader is what RunInference needs of a model: a struct whose exported fields
// say which one (a folder, a device), since they travel to the workers as JSON.
// It may have a method Validate() error, called when the pipeline is built, and
// the methods of Updater: itself, since those of a pointer to it are not seen.
type Loader[I, O any] interface {
	// Load makes the model ready. It is called once a process for loaders with
	// equal fields and Options; an error fails the run, and so does no Handler. The
	// context may end with the pipeline, and the model does not: what that goes on
	// with, such as a process, has one of its own.
	Load(ctx context.Context) (Handler[I, O], error)
}

// RunInference is PCollection<I> to PCollection<KV<I, O>>: every item with what
// the model says of it; and PCollection<KV<I, string>>: every item whose batch
// failed, or that its ItemErrors names, with the cause on one line. Items are no KV.
// Elements keep their event times. The program calls Register with the same types in
// an init function.
//
// Results come out when their batch is done, so the items are in the global window,
// which is checked when the pipeline is built; window the results instead.
//
// The model stays loaded, for later pipelines too, until the process ends or an
// Updater takes another; the end of a pipeline, or its context's, ends no batch, but
// Options.Timeout does.
//
// A pipeline may have several. Of those with the same types and Namespace, Beam's direct
// runner keeps the metrics of one alone, for it knows a DoFn by its type: there give each
// a Namespace of its own, which loads a model for each. Prism and Flink keep them apart,
// where they have a model each: those with equal loaders and Options count each other's
// batches (Report).
//
// Where MaxInFlight is 0 it is 64 MiB, in which an item counts for 512 bytes more than
// its Size or, where the Handler has none, its Weight: items that are large, and weigh 1
// each, want a Size.
func RunInference[I, O any, L Loader[I, O]](s beam.Scope, loader L, options Options, items beam.PCollection) (results, failed beam.PCollection) {
	fn := &runFn[I, O, L]{Loader: loader, Options: options}
	if _, ok := registered.Load(reflect.TypeOf(fn)); !ok {
		panic(fmt.Sprintf("inference: RunInference: no worker would know its types; call inference.Register[%v, %v, %v]() in an init function",
			reflect.TypeFor[I](), reflect.TypeFor[O](), reflect.TypeFor[L]()))
	}
	if !items.IsValid() {
		panic("inference: RunInference: the items are no PCollection")
	}
	if items.WindowingStrategy().Fn.Kind != window.GlobalWindows {
		panic("inference: RunInference: the items must be in the global window; put beam.WindowInto(s, window.NewGlobalWindows(), items) before it, and window the results")
	}
	if typex.IsKV(items.Type()) || typex.IsCoGBK(items.Type()) {
		panic("inference: RunInference: the items are KVs, or groups of them; make each one struct, with the key beside the rest")
	}
	options.check()
	if v, ok := any(loader).(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			panic(fmt.Sprintf("inference: %T: %v", loader, err))
		}
	}
	data, err := json.Marshal(fn) // as the runner does, which says less
	if err != nil {
		panic(fmt.Sprintf("inference: %T travels as JSON: %v", loader, err))
	}
	if err := json.Unmarshal(data, new(runFn[I, O, L])); err != nil { // as workers do
		panic(fmt.Sprintf("inference: %T travels as JSON, and no worker could read it: %v; take concrete types for it and its fields", loader, err))
	}
	return beam.ParDo2(s.Scope("linnet.RunInference"), fn, items)
}

// Register makes RunInference known to workers for the types. I and O are known
// to Beam already, or are registered with it.
func Register[I, O any, L Loader[I, O]]() {
	fn := &runFn[I, O, L]{}
	if _, again := registered.LoadOrStore(reflect.TypeOf(fn), true); !again {
		beam.RegisterDoFn(fn)
	}
}

var registered sync.Map // types of DoFns

// engines are those of the process, by type, loader and options. Teardown is not
// called by all runners, so an engine lives as long as the process, or until an
// update takes its place.
var engines Shared[any]

type runFn[I, O any, L Loader[I, O]] struct {
	Loader  L
	Options Options

	config   string // what engines knows this DoFn by
	version  string // of the model where it is watched
	acquired bool   // served, for a bundle
	served   *served[I, O]
	queue    *Queue[timed[I], I, O]
}

// waitingBytes is what an item takes while it waits, beside its own bytes.
const waitingBytes = 512

type timed[I any] struct {
	time beam.EventTime
	item I
}

func (f *runFn[I, O, L]) Setup(ctx context.Context) error {
	config, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("inference: %T: %w", f.Loader, err)
	}
	f.config = fmt.Sprintf("%T %s", f, config)
	if u, ok := any(f.Loader).(Updater[L]); ok {
		return f.update(ctx, u)
	}
	f.served, err = f.load(ctx, f.Loader, "")
	if err != nil {
		return err
	}
	f.queue = NewQueue[timed[I]](f.served.engine)
	return nil
}

// load is the engine of a loader and a version, loaded once a process.
func (f *runFn[I, O, L]) load(ctx context.Context, loader L, version string) (*served[I, O], error) {
	got, err := engines.Get(ctx, f.config+version, func(ctx context.Context) (any, error) {
		begin := time.Now()
		var handler Handler[I, O]
		err := pipe.Catch(func() (err error) { handler, err = loader.Load(ctx); return err })
		if err == nil && handler == nil {
			err = errors.New("neither a Handler nor an error came; return one")
		}
		if err != nil {
			return nil, fmt.Errorf("inference: load %T: %w", loader, oneLine{err})
		}
		options := f.Options
		if options.MaxInFlight == 0 { // items may weigh 1 each, and take more while they wait
			options.MaxInFlight, options.groupBytes = 64<<20, waitingBytes
		}
		if m, ok := handler.(interface{ ModelBytes() int64 }); ok {
			options.ModelBytes = m.ModelBytes()
		}
		options.LoadTime = time.Since(begin)
		return &served[I, O]{engine: NewEngine(handler, options)}, nil
	})
	if err != nil {
		return nil, err
	}
	return got.(*served[I, O]), nil
}

func (f *runFn[I, O, L]) StartBundle(ctx context.Context, emit func(beam.EventTime, I, O), fail func(beam.EventTime, I, string)) error {
	f.queue.Reset()
	u, ok := any(f.Loader).(Updater[L])
	if !ok {
		return nil
	}
	for range 3 { // between the look and the hold another instance may have moved on
		if err := f.update(ctx, u); err != nil {
			return err
		}
		if f.acquired = f.acquired || f.served.acquire(); f.acquired {
			return nil
		}
	}
	return fmt.Errorf("inference: %T: its models come faster than bundles begin", f.Loader)
}

func (f *runFn[I, O, L]) ProcessElement(ctx context.Context, t beam.EventTime, item I, emit func(beam.EventTime, I, O), fail func(beam.EventTime, I, string)) error {
	measure := f.served.engine.handler.Weight
	if sizer, ok := f.served.engine.handler.(interface{ Size(I) int64 }); ok {
		measure = sizer.Size
	}
	size := int64(0)
	if err := pipe.Catch(func() error { size = measure(item); return nil }); err != nil {
		f.served.engine.countFailed()
		fail(t, item, fmt.Sprintf("inference: the size of an item: %v", oneLine{err}))
		return nil
	}
	return f.queue.Push(ctx, timed[I]{t, item}, []I{item}, size, f.emitter(emit, fail))
}

func (f *runFn[I, O, L]) FinishBundle(ctx context.Context, emit func(beam.EventTime, I, O), fail func(beam.EventTime, I, string)) error {
	err := f.queue.Drain(ctx, f.emitter(emit, fail))
	f.release()
	return err
}

func (f *runFn[I, O, L]) emitter(emit func(beam.EventTime, I, O), fail func(beam.EventTime, I, string)) func(timed[I], []O, error) error {
	return func(t timed[I], outs []O, err error) error {
		if err != nil {
			fail(t.time, t.item, oneLine{err}.Error())
			return nil
		}
		emit(t.time, t.item, outs[0])
		return nil
	}
}

// oneLine is an error of somebody else's on one line, since a runner's error is cut
// to a line, too, and that would be any of its lines.
type oneLine struct{ error }

func (e oneLine) Error() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(e.error.Error(), "\uFFFD")), " ")
}

func (e oneLine) Unwrap() error { return e.error }
