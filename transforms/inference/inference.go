// Package inference runs models in Beam pipelines: Beam's RunInference for Go.
// It loads a model once a process (Shared), forms batches of items from all
// documents and all DoFn instances of the process (Engine), halves a batch that
// does not fit on the device, hands results back in order on the goroutine that
// Beam called (Queue), and counts under RunInference's names.
package inference

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
)

// Handler runs one model, loaded. Its methods are called by several goroutines
// at once. Where it has a method Size(I) int64, bytes of an item are counted
// by that and not by Weight; where it has ModelBytes() int64, that is the
// metric model_byte_size.
type Handler[I, O any] interface {
	// Run returns one output for each item of the batch, in order. What an item
	// gets must not depend on the others. An error that wraps
	// model.ErrOutOfMemory makes the engine try again with half of the batch;
	// an ItemErrors fails the items that it names, and any other all items of the
	// batch. The context ends with the engine and at Options.Timeout; it is no
	// bundle's, so Beam metrics that are counted with it are lost.
	Run(ctx context.Context, batch []I) ([]O, error)
	// Weight is what the item adds to a batch, in the unit of
	// Options.MaxBatchWeight: lines, tokens, bytes. It is at least 0.
	Weight(item I) int64
	// Close frees the model. No other method is called after it.
	Close() error
}

// Errors that an item may fail with, beside its handler's own.
var (
	ErrClosed  = errors.New("inference: engine is closed")        // Close found the item waiting
	ErrTimeout = errors.New("inference: the batch took too long") // longer than Options.Timeout
)

// ItemErrors is what Run returns where single items failed: their causes by
// index in the batch. The outputs of all others count. An index that is none of
// the batch fails all of it.
type ItemErrors map[int]error

// Error tells how many failed and the first one's cause.
func (e ItemErrors) Error() string {
	if len(e) == 0 {
		return "no item failed"
	}
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("%s failed, number %d: %v", english.Plural(len(e), "item", ""), first, e[first])
}

// Options bound an Engine.
type Options struct {
	// MaxBatchSize is the number of items that fill a batch; 0 is 1.
	MaxBatchSize int
	// MaxBatchWeight is the weight that a batch does not exceed, except with a
	// single item, or a single group by WholeWeight; 0 is no bound.
	MaxBatchWeight int64
	// WholeWeight keeps the items of one Push that together weigh no more than this, and
	// are no more than MaxBatchSize, in one batch, by the bucket of the first of them.
	// They are split all the same where cores or a queue wait for them, and where memory
	// runs out. 0 keeps none together.
	WholeWeight int64
	// BucketWeights are bounds, rising, that part items by weight (up to the
	// first bound, up to the second, …, above all): a batch that starts when it
	// is full has items, or whole groups, of one bucket. What waits for long is batched
	// without regard to buckets. None is one bucket.
	BucketWeights []int64
	// Concurrency is the number of batches that run at once; 0 is as many as
	// the process has cores to give. Each holds a worker of the process's pool.
	Concurrency int
	// Waits says that Run mostly waits for a device, so that a batch holds no
	// worker of the pool. Concurrency is above 0 then.
	Waits bool
	// SpreadWeight, where not 0, lets items that come while cores are free be
	// batched by fewer, down to this weight, so that all cores get some. It
	// counts only where Concurrency is 0.
	SpreadWeight int64
	// MaxInFlight is the number of bytes, over all queues, that were pushed and
	// not yet emitted. A queue that holds nothing may always push one group. With 0 it
	// holds no second one, so batches stay small; RunInference takes 64 MiB for it.
	MaxInFlight int64
	// Timeout bounds one Run, 0 is no bound. The items of a batch that takes
	// longer fail with ErrTimeout, whether or not Run heeds its context.
	Timeout time.Duration
	// Namespace is that of the metrics, BeamML_Go where it is empty.
	Namespace string
	// ModelBytes and LoadTime are reported once, with the first metrics.
	ModelBytes int64
	LoadTime   time.Duration

	groupBytes int64 // what a group counts for in flight beside its size
}

// check panics where options contradict each other: the engine would run any number of
// batches at once, or put items into a bucket of others.
func (o *Options) check() {
	if o.Waits && o.Concurrency <= 0 {
		panic("inference: Options.Waits without Concurrency; say how many batches may run at once")
	}
	if !slices.IsSorted(o.BucketWeights) {
		panic("inference: Options.BucketWeights do not rise; sort them")
	}
}
