package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
)

// measured is one row: a batch size on a device. Memory is in bytes, of the
// process (RAM) and of the GPU, other processes there included.
type measured struct {
	Device    string `json:"device"` // cpu or cuda
	BatchSize int    `json:"batch_size"`
	AtOnce    int    `json:"batches_at_once"`
	Batches   int    `json:"batches"` // of all rounds
	Samples   int64  `json:"samples"`
	Lines     int64  `json:"lines"`

	RAMBefore int64 `json:"ram_before_bytes"`
	RAMModel  int64 `json:"ram_model_bytes"`
	RAMBatch  int64 `json:"ram_peak_of_a_batch_bytes"` // above RAMBefore, by batch
	RAMPeak   int64 `json:"ram_peak_bytes"`

	// -1 where the card does not tell.
	GPUBefore int64 `json:"gpu_before_bytes"` // before the model
	GPUModel  int64 `json:"gpu_model_bytes"`  // the context's too
	GPUBatch  int64 `json:"gpu_peak_of_a_batch_bytes"`
	GPUPeak   int64 `json:"gpu_peak_bytes"`

	Seconds      float64 `json:"seconds"`
	BatchSeconds float64 `json:"mean_batch_seconds"` // from its beginning to its end, with others beside it
	PerSecond    float64 `json:"lines_per_second"`   // median of the rounds
	Slowest      float64 `json:"lines_per_second_slowest"`
	Fastest      float64 `json:"lines_per_second_fastest"`
	PerCPUSecond float64 `json:"lines_per_cpu_second"`    // which other programs' load changes least
	Utilisation  float64 `json:"cpu_utilisation_percent"` // of all cores that Go uses
	GPUBusy      float64 `json:"gpu_utilisation_percent"` // -1 where the card does not tell
	Failed       string  `json:"failed,omitempty"`        // out of memory: nothing else counts

	RAMNoise int64           `json:"ram_noise_bytes"` // most less least of the rounds' peaks
	usages   []gpuinit.Usage // of the GPU
}

// spread is how far the rounds are apart, as a share of their median.
func (m *measured) spread() float64 {
	if m.PerSecond == 0 {
		return 0
	}
	return (m.Fastest - m.Slowest) / m.PerSecond
}

// batch is what one call scores.
type batch struct {
	parts []*model.Batch
	steps int
}

// cut makes batches of size windows of the documents, all of them once, at
// least least batches; the last one goes on at the beginning, so that all are
// full.
func cut(documents []*model.Batch, size, least int) []batch {
	type window struct {
		document int
		model.ContextWindow
	}
	var all []window
	for i, d := range documents {
		for _, w := range d.Windows {
			all = append(all, window{i, w})
		}
	}
	batches := make([]batch, max(least, (len(all)+size-1)/size))
	at := 0
	for i := range batches {
		b := &batches[i]
		var part *model.Batch
		last := -1
		for range size {
			w := all[at%len(all)]
			if w.document != last || at%len(all) == 0 { // the same windows again would share their lines
				of := *documents[w.document]
				of.Windows = nil
				part, last = &of, w.document
				b.parts = append(b.parts, part)
			}
			part.Windows = append(part.Windows, w.ContextWindow)
			b.steps += w.Len
			at++
		}
	}
	return batches
}

// device is a Scorer to measure and the memory that it took.
type device struct {
	kind                string
	scorer              model.MultiScorer
	gpus                []gpuinit.Device
	atOnce              int
	ramModel            int64
	gpuBefore, gpuModel int64
}

// gpuMemory is what is in use of the GPUs now, -1 where they do not tell.
func gpuMemory(gpus []gpuinit.Device) int64 {
	return mostMemory(gpuinit.NewMonitor(gpus, time.Hour, nil).Stop())
}

func mostMemory(usages []gpuinit.Usage) (n int64) {
	for _, u := range usages {
		if u.Memory.N == 0 {
			return -1
		}
		n += int64(u.Memory.Most)
	}
	return n
}

// peakOf samples f in the background until the function it returns is called,
// which tells the most that f was.
func peakOf(f func() int64, period time.Duration) (stop func() int64) {
	peak := f()
	over := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(period):
				peak = max(peak, f())
			}
		}
	})
	return func() int64 {
		close(over)
		done.Wait()
		return max(peak, f())
	}
}

// settle gives back what the garbage collector holds.
func settle() {
	runtime.GC()
	debug.FreeOSMemory()
}

// shortest is how long a round goes on, if need be over the same batches: clocks of
// Windows, of CPU time above all, move in steps of up to 16 ms.
const shortest = 50 * time.Millisecond

// measure scores the documents in batches of size windows, rounds times.
func (d *device) measure(ctx context.Context, documents []*model.Batch, outputs, size, rounds int) (measured, error) {
	m := measured{Device: d.kind, BatchSize: size, AtOnce: d.atOnce, RAMModel: d.ramModel, GPUBefore: d.gpuBefore, GPUModel: d.gpuModel, GPUBusy: -1}
	batches := cut(documents, size, d.atOnce)
	settle()
	m.RAMBefore = cli.Memory()
	monitor := gpuinit.NewMonitor(d.gpus, 10*time.Millisecond, nil)
	var speeds, peaks []float64
	var cpu, batchTime time.Duration
	var failed error
	for i := range rounds + 1 { // the first warms caches and is not timed
		settle()
		stop := peakOf(cli.Memory, 2*time.Millisecond)
		began, begin := cli.CPUTime(), time.Now()
		took, err := d.round(ctx, batches, outputs)
		again := 1
		for ; err == nil && i > 0 && time.Since(begin) < shortest; again++ {
			var more time.Duration
			more, err = d.round(ctx, batches, outputs)
			took += more
		}
		wall := time.Since(begin)
		used := cli.CPUTime() - began
		peaks = append(peaks, float64(stop()))
		if err != nil {
			failed = err
			break
		}
		if i == 0 {
			continue
		}
		cpu += used
		var lines int64
		for _, b := range batches {
			lines += int64(again * b.steps)
		}
		m.Batches += again * len(batches)
		m.Samples += int64(again * len(batches) * size)
		m.Lines += lines
		m.Seconds += wall.Seconds()
		batchTime += took
		speeds = append(speeds, float64(lines)/wall.Seconds())
	}
	m.usages = monitor.Stop()
	if failed != nil {
		if errors.Is(failed, model.ErrOutOfMemory) {
			m.Failed = failed.Error()
			return m, nil
		}
		return m, fmt.Errorf("%s, batches of %d: %w", d.kind, size, failed)
	}
	m.RAMPeak = int64(slices.Max(peaks))
	m.RAMNoise = int64(slices.Max(peaks) - slices.Min(peaks))
	m.RAMBatch = max(0, m.RAMPeak-m.RAMBefore) / int64(d.atOnce)
	m.GPUPeak, m.GPUBatch = mostMemory(m.usages), -1
	for _, u := range m.usages {
		if u.Utilisation.N > 0 {
			m.GPUBusy = max(m.GPUBusy, 0) + u.Utilisation.Mean/float64(len(m.usages))
		}
	}
	if m.GPUPeak >= 0 && d.gpuModel >= 0 {
		m.GPUBatch = max(0, m.GPUPeak-d.gpuBefore-d.gpuModel) / int64(d.atOnce)
	}
	slices.Sort(speeds)
	m.Slowest, m.Fastest = speeds[0], speeds[len(speeds)-1]
	m.PerSecond = (speeds[(len(speeds)-1)/2] + speeds[len(speeds)/2]) / 2
	m.BatchSeconds = batchTime.Seconds() / float64(m.Batches)
	if cpu > 0 {
		m.PerCPUSecond = float64(m.Lines) / cpu.Seconds()
	}
	m.Utilisation = 100 * cpu.Seconds() / m.Seconds / float64(runtime.GOMAXPROCS(0))
	return m, nil
}

// round scores all batches, d.atOnce at a time, and returns the time of all
// calls together.
func (d *device) round(ctx context.Context, batches []batch, outputs int) (time.Duration, error) {
	var next, took atomic.Int64
	var group errgroup.Group
	for range d.atOnce {
		group.Go(func() error {
			var probs []float32
			for {
				at := int(next.Add(1)) - 1
				if at >= len(batches) || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				b := &batches[at]
				probs = slices.Grow(probs[:0], b.steps*outputs)[:b.steps*outputs]
				begin := time.Now()
				if err := d.scorer.ScoreAll(ctx, b.parts, probs); err != nil {
					next.Store(int64(len(batches)))
					return cmp.Or(context.Cause(ctx), err)
				}
				took.Add(int64(time.Since(begin)))
			}
		})
	}
	err := group.Wait() // the others' errors say the same
	return time.Duration(took.Load()), err
}

// measure measures all batch sizes on the CPU or on one GPU.
func (o *options) measure(ctx context.Context, r *report, kind string, w *model.Weights, documents []*model.Batch) error {
	d := &device{kind: kind, atOnce: runtime.GOMAXPROCS(0)}
	if kind == backend.CUDA {
		d.atOnce = backend.Lanes
	}
	settle()
	begin, ram := time.Now(), cli.Memory()
	gpu := gpuinit.Options{Devices: 1, Log: func(level int, format string, args ...any) {
		if level <= o.verbosity {
			fmt.Fprintf(os.Stderr, "linnet: "+format+"\n", args...)
		}
	}}
	var starting time.Duration
	if kind == backend.CUDA {
		gpu.Wait = o.device == backend.CUDA
		gpus, err := gpuinit.Init(ctx, gpu)
		if err != nil {
			return o.without(ctx, r, kind, fmt.Errorf("device cuda: %w", err))
		}
		defer gpus.Close()
		starting = time.Since(begin)
		d.gpus = gpus.Devices
		r.GPU = gpus.Devices[0].String()
		d.gpuBefore = gpuMemory(d.gpus)
	}
	head, err := w.Head("") // as predict has it
	if err != nil {
		return err
	}
	begin = time.Now()
	s, _, err := backend.New(ctx, backend.Options{Device: kind, GPU: gpu, Precision: o.precision}, head)
	if err != nil {
		return o.without(ctx, r, kind, err)
	}
	defer s.Close()
	loading := r.reading + starting + time.Since(begin)
	settle()
	d.scorer = s
	takes := cli.Memory()
	d.ramModel = r.ramWeights + max(0, takes-ram)
	if kind == backend.CUDA {
		if d.gpuModel = gpuMemory(d.gpus); d.gpuBefore < 0 || d.gpuModel < 0 {
			d.gpuModel, takes = -1, 0
		} else {
			d.gpuModel = max(0, d.gpuModel-d.gpuBefore)
			takes = d.gpuBefore + d.gpuModel
		}
		r.GPUStartup = loading.Seconds()
		if on, ok := s.(interface{ Precision() string }); ok {
			r.Precision = on.Precision()
		}
	} else {
		r.CPUStartup = loading.Seconds()
	}
	if judged := kind == backend.CUDA || o.device == backend.CPU; judged && o.budget > 0 && int64(o.budget) < takes {
		return fmt.Errorf("--memory_budget=%s is smaller than what is in use once the model is loaded, %s; take a larger budget or a smaller model", bytes(float64(o.budget)), bytes(float64(takes)))
	}
	for _, size := range o.batchSizes {
		if o.verbosity > 0 {
			fmt.Fprintf(os.Stderr, "profiling %s, batches of %s …\n", kind, cli.Plural(int64(size), "sample"))
		}
		m, err := d.measure(ctx, documents, head.Config.NumOutputs(), size, o.rounds)
		if err != nil {
			return o.without(ctx, r, kind, err)
		}
		r.Rows = append(r.Rows, m)
		if m.Failed != "" {
			break // larger ones have no room either
		}
		r.gpuUsage = m.usages // of the largest batch
	}
	return nil
}

// without goes on without the GPU where that is what failed and --device=auto
// allows it.
func (o *options) without(ctx context.Context, r *report, kind string, err error) error {
	if kind != backend.CUDA || o.device != backend.Auto || ctx.Err() != nil {
		return err
	}
	r.NoGPU = err.Error()
	r.Rows, r.GPU, r.Precision, r.GPUStartup, r.gpuUsage = r.rows(backend.CPU), "", "", 0, nil
	return nil
}
