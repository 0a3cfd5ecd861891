package inference

import (
	"cmp"
	"context"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
)

// stats is what happened since the last Report.
type stats struct {
	batches    []batchStat
	halvings   int64
	modelBytes int64 // reported once
	loadTime   time.Duration
}

// batchStat is one batch: items, those that the model ran, bytes, and the time
// of Run.
type batchStat struct {
	items, good, bytes int64
	took               time.Duration
}

// newBatchStat describes a batch; an item has an equal share of its group's bytes.
func newBatchStat[I, O any](batch []waiting[I, O], took time.Duration) batchStat {
	b := batchStat{items: int64(len(batch)), took: took}
	for _, w := range batch {
		b.bytes += w.group.size / int64(len(w.group.outs))
	}
	return b
}

// Report counts what happened since the last Report as Beam metrics of ctx,
// which is that of a DoFn's method; elsewhere it is lost. Queue calls it.
// Batches serve many bundles, so who reports a batch is not who pushed it; the
// sums over a pipeline are right, where its runner keeps them (see RunInference) and no
// other pipeline of the process has the model at work.
//
//	num_inferences                      items that a model ran
//	failed_batches_counter              batches of which no item was run
//	failed_inferences_counter           items that failed
//	batch_halvings_counter              batches tried again as halves
//	inference_request_batch_size        items of a batch
//	inference_request_batch_byte_size   bytes of a batch
//	inference_batch_latency_micro_secs  time of Run
//	model_byte_size, load_model_latency_milli_secs
func (e *Engine[I, O]) Report(ctx context.Context) {
	e.mu.Lock()
	s := e.stats
	e.stats = stats{}
	e.mu.Unlock()
	if len(s.batches) == 0 && s.halvings == 0 && s.modelBytes == 0 && s.loadTime == 0 {
		return
	}
	ns := e.options.namespace()
	var inferences, failed, failedItems int64
	for _, b := range s.batches {
		failedItems += b.items - b.good
		if b.good == 0 {
			failed++
			continue
		}
		inferences += b.good
		beam.NewDistribution(ns, "inference_request_batch_size").Update(ctx, b.items)
		beam.NewDistribution(ns, "inference_request_batch_byte_size").Update(ctx, b.bytes)
		beam.NewDistribution(ns, "inference_batch_latency_micro_secs").Update(ctx, b.took.Microseconds())
	}
	inc := func(name string, n int64) {
		if n > 0 {
			beam.NewCounter(ns, name).Inc(ctx, n)
		}
	}
	inc("num_inferences", inferences)
	inc("failed_batches_counter", failed)
	inc("failed_inferences_counter", failedItems)
	inc("batch_halvings_counter", s.halvings)
	if s.modelBytes > 0 {
		beam.NewDistribution(ns, "model_byte_size").Update(ctx, s.modelBytes)
	}
	if s.loadTime > 0 {
		beam.NewDistribution(ns, "load_model_latency_milli_secs").Update(ctx, s.loadTime.Milliseconds())
	}
}

func (o *Options) namespace() string { return cmp.Or(o.Namespace, "BeamML_Go") }
