package transforms

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/transforms/inference"
	"github.com/linnet-ml/linnet/transforms/store"
)

// Model is a model as this process has loaded it, on its device.
type Model struct {
	Config *model.Config // with all heads; the scorer has that of the label set alone
	Hash   string
	Device string // where it runs and how, in words
	Reason string // why --device=auto took no GPU, in one line; otherwise empty

	key     string
	classes []string // of the head that it has on the device
	gpu     bool
	gpus    *gpuWatch // nil without GPUs
	scorer  model.MultiScorer
	bytes   int64
	loading time.Duration
}

// Now is Device as things stand: a GPU may be lost under way.
func (m *Model) Now() string {
	if m.gpu {
		return fmt.Sprint(m.scorer)
	}
	return m.Device
}

// deferred reports whether features are made where they are used: as o asks, or as auto
// fell back on the processor.
func (m *Model) deferred(o *Options) bool { return o.Deferred || m.Reason != "" }

// other is the class of lines that nobody can read, or "".
func (m *Model) other() string {
	if slices.Contains(m.classes, m.Config.OtherClass) {
		return m.Config.OtherClass
	}
	return ""
}

// Counters of Predict, in Namespace: lines by the device that scored them, and
// processes of --device=auto that went to the CPU, with one more counter for each
// reason.
const (
	LinesCPUCounter   = "lines_cpu"
	LinesCUDACounter  = "lines_cuda"
	FallenBackCounter = "workers_fallen_back"
	ReasonCounter     = "workers_fallen_back: " // and the reason
)

// countedFallbacks has the keys of this process's models that FallenBackCounter counted.
var countedFallbacks sync.Map

// count counts the lines of a document, by the devices that scored its windows, as
// Beam metrics of ctx. Where windows overlap, each has its share of the lines.
func (m *Model) count(ctx context.Context, lines int, windows []scored) {
	all, onGPU := 0, 0
	for i := range windows {
		n := len(windows[i].probs)
		all += n
		if windows[i].onGPU {
			onGPU += n
		}
	}
	if all > 0 {
		onGPU = int(int64(lines) * int64(onGPU) / int64(all))
	}
	if onGPU > 0 {
		beam.NewCounter(Namespace, LinesCUDACounter).Inc(ctx, int64(onGPU))
	}
	if onGPU < lines {
		beam.NewCounter(Namespace, LinesCPUCounter).Inc(ctx, int64(lines-onGPU))
	}
	reason := m.Reason
	if m.gpu && onGPU < lines {
		if now := m.Now(); strings.HasPrefix(now, backend.CPU) {
			reason = now
		}
	}
	if reason == "" {
		return
	}
	if _, counted := countedFallbacks.LoadOrStore(m.key, true); !counted {
		beam.NewCounter(Namespace, FallenBackCounter).Inc(ctx, 1)
		beam.NewCounter(Namespace, ReasonCounter+reason).Inc(ctx, 1)
	}
}

// models and engines are those of the process: Setup runs once a DoFn
// instance, and Teardown seldom.
var (
	models  inference.Shared[*Model]
	engines inference.Shared[*inference.Engine[windowItem, scored]]
)

// loads counts the models that this process loaded.
var loads atomic.Int64

// LoadModel is the model of ModelURI on Device, with the head of LabelSet alone,
// loaded once a process. A load that failed is tried again by the next call. Where
// the model has no such head, the error is model.ErrLabelSet.
func LoadModel(ctx context.Context, opts Options) (*Model, error) {
	device := cmp.Or(opts.Device, backend.CPU)
	key := fmt.Sprintf("%s %t %s %s %s", device, opts.Hybrid, opts.Precision, opts.LabelSet, opts.ModelURI)
	return models.Get(ctx, key, func(ctx context.Context) (*Model, error) {
		begin := time.Now()
		loads.Add(1)
		w, err := opts.loadWeights(ctx)
		if err != nil {
			return nil, err
		}
		head, err := w.Head(opts.LabelSet)
		if err != nil {
			return nil, err
		}
		m := &Model{Config: &w.Config, Hash: w.Hash(), key: key, classes: head.Config.Classes, bytes: int64(len(w.Table))}
		if m.scorer, m.Reason, err = backend.New(ctx, opts.backend(ctx), head); err != nil {
			return nil, err
		}
		if m.Reason != "" {
			logf(ctx, opts.Verbosity, 1, "%s", m.Reason)
		}
		m.Device = "cpu, " + kernel.Precision() + ", " + kernel.ISA()
		if on, ok := m.scorer.(interface {
			fmt.Stringer
			Devices() []gpuinit.Device
		}); ok {
			m.gpu, m.Device, m.gpus = true, on.String(), newGPUWatch(on.Devices())
		}
		m.loading = time.Since(begin)
		logf(ctx, opts.Verbosity, 2, "model %.12s of %s on %s, loaded in %v", m.Hash, opts.modelName(), m.Device, m.loading.Round(time.Millisecond))
		return m, nil
	})
}

// backend are the options of the device.
func (o *Options) backend(ctx context.Context) backend.Options {
	return backend.Options{
		Device:    cmp.Or(o.Device, backend.CPU),
		Memory:    o.GPUMemory,
		Precision: o.Precision,
		Hybrid:    o.Hybrid,
		Timeout:   o.GPUTimeout,
		GPU: gpuinit.Options{WorkersPerGPU: o.WorkersPerGPU, Devices: o.GPUs, Timeout: o.GPUTimeout, Log: func(level int, format string, args ...any) {
			switch {
			case level > o.Verbosity:
			case level == 1:
				log.Warnf(ctx, "linnet: "+format, args...)
			default:
				log.Infof(ctx, "linnet: "+format, args...)
			}
		}},
	}
}

func (o *Options) modelName() string { return cmp.Or(string(o.ModelURI), "the program") }

func (o *Options) loadWeights(ctx context.Context) (*model.Weights, error) {
	if o.ModelURI == "" {
		return bundled.Weights()
	}
	fsys, err := store.Sub(ctx, string(o.ModelURI))
	if err != nil {
		return nil, fmt.Errorf("--model_uri: no model there: %w; name a folder as train writes it", err)
	}
	w, err := model.Load(fsys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ModelURI, err)
	}
	return w, nil
}

// engine batches windows for the model.
func (m *Model) engine(ctx context.Context, o *Options) (*inference.Engine[windowItem, scored], error) {
	batching := inference.Options{
		MaxBatchSize:   o.PredictionBatchSize,
		MaxBatchWeight: batchLines,
		WholeWeight:    int64(deferredLines),
		BucketWeights:  []int64{32, 64, 128, 256, 512, 1024},
		SpreadWeight:   model.LongWindow,
		MaxInFlight:    o.inPredict(m.deferred(o)),
		ModelBytes:     m.bytes,
		LoadTime:       m.loading,
	}
	if o.PredictionBatchSize <= 0 {
		batching.MaxBatchSize = m.Config.WindowsPerBatch()
		if m.gpu {
			batching.MaxBatchSize *= 8
		}
	}
	if m.gpu {
		batching.Waits, batching.WholeWeight, batching.SpreadWeight = true, 0, 0
		if m.Config.HiddenSize > 128 { // a launch for each step, or much to load for one
			batching.MaxBatchWeight *= 2
		}
		lanes, cores := (backend.Lanes+1)*len(m.gpus.devices), runtime.GOMAXPROCS(0)
		batching.Concurrency = max(lanes, cores) // the cores' number, too, for the CPU when the GPUs are lost
		if o.Hybrid {
			batching.Concurrency = lanes + cores
		}
	}
	key := fmt.Sprintf("%d %d %s", batching.MaxBatchSize, batching.MaxInFlight, m.key)
	return engines.Get(ctx, key, func(context.Context) (*inference.Engine[windowItem, scored], error) {
		return inference.NewEngine(scorerHandler{m, o.Verbosity}, batching), nil
	})
}

// batchLines bounds a batch of more than one document. Matrix tiles want many windows
// at once; still larger batches are no faster on a processor, and leave cores without
// work where few documents are in flight. A GPU, which is done with that in a
// millisecond or two, waits for the features of more, whose memory is most of a run's; it
// takes twice that of a large model.
const batchLines = 16 << 10
