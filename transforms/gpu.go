package transforms

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"

	"github.com/linnet-ml/linnet/gpuinit"
)

// Metrics of the GPUs that Predict uses, in Namespace, by NVML while it has a
// bundle in hand: gauges of a process since it last set them, and what GPUUsage reads.
const (
	GPUMemoryGauge      = "gpu_memory_bytes"        // in use of the process's GPUs, by all processes
	GPUUtilisationGauge = "gpu_utilization_percent" // mean of the process's GPUs

	nvmlValue    = "nvml_"           // and a Quantity's name: a distribution of its samples
	nvmlGPUs     = "nvml_gpus: "     // and a card's name: how many of them, over all processes
	nvmlXID      = "nvml_xid: "      // and an error's number: how often
	nvmlSlowdown = "nvml_slowdown: " // and a reason: devices and reports that had it
)

const (
	gpuPeriod = 250 * time.Millisecond // of samples; some of NVML's questions take 20 ms
	gpuRecent = 100 * time.Millisecond // a bundle that ends so soon after a sample takes none
)

// gpuWatch samples the GPUs of a process while it has bundles in hand. The nil
// gpuWatch, of a process without GPUs, does nothing.
type gpuWatch struct {
	devices []gpuinit.Device
	monitor func() *gpuinit.Monitor // made by the first bundle
	bundles atomic.Int64
	named   sync.Once
}

func newGPUWatch(devices []gpuinit.Device) *gpuWatch {
	w := &gpuWatch{devices: devices}
	w.monitor = sync.OnceValue(func() *gpuinit.Monitor {
		return gpuinit.NewMonitor(devices, gpuPeriod, func() bool { return w.bundles.Load() > 0 })
	})
	return w
}

// begin is for StartBundle.
func (w *gpuWatch) begin() {
	if w != nil {
		w.bundles.Add(1)
		w.monitor()
	}
}

// end is for FinishBundle. A bundle that fails has none, and counts as in hand
// from then on.
func (w *gpuWatch) end(ctx context.Context) {
	if w != nil {
		w.monitor().Sample(gpuRecent)
		w.bundles.Add(-1)
		w.report(ctx)
	}
}

// report counts what was sampled since the last report as Beam metrics of ctx.
func (w *gpuWatch) report(ctx context.Context) {
	if w == nil {
		return
	}
	w.named.Do(func() { countCards(ctx, w.devices) })
	countGPUs(ctx, w.monitor().Take())
}

// countCards counts the devices of this process, by name.
func countCards(ctx context.Context, devices []gpuinit.Device) {
	for _, d := range devices {
		beam.NewCounter(Namespace, nvmlGPUs+d.Name).Inc(ctx, 1)
	}
}

// countGPUs counts usages, one a GPU of this process, as Beam metrics of ctx.
func countGPUs(ctx context.Context, usages []gpuinit.Usage) {
	var all gpuinit.Usage
	var memory, utilisation float64
	for _, u := range usages {
		all.Add(&u)
		memory, utilisation = memory+u.Memory.Mean, utilisation+u.Utilisation.Mean/float64(len(usages))
		for _, x := range u.XIDs {
			beam.NewCounter(Namespace, nvmlXID+strconv.FormatUint(x, 10)).Inc(ctx, 1)
		}
		for _, why := range u.Slowdowns {
			beam.NewCounter(Namespace, nvmlSlowdown+why).Inc(ctx, 1)
		}
	}
	if all.Memory.N > 0 {
		beam.NewGauge(Namespace, GPUMemoryGauge).Set(ctx, int64(memory))
	}
	if all.Utilisation.N > 0 {
		beam.NewGauge(Namespace, GPUUtilisationGauge).Set(ctx, int64(math.Round(utilisation)))
	}
	for _, q := range all.Quantities() {
		updateDistribution(ctx, nvmlValue+q.Name, q.Value, q.Scale)
	}
}

// updateDistribution adds the samples of v to a Beam distribution, which keeps only
// their number, sum, minimum and maximum. The samples themselves are gone, so it adds
// as many made-up ones with v's Least and Most, and with its sum as nearly as whole
// numbers allow.
func updateDistribution(ctx context.Context, name string, v *gpuinit.Value, scale float64) {
	if v.N == 0 {
		return
	}
	d := beam.NewDistribution(Namespace, name)
	unit := func(x float64) int64 { return int64(math.Round(x * scale)) }
	least, most, sum := unit(v.Least), unit(v.Most), unit(v.Sum())
	if v.N == 1 {
		d.Update(ctx, most)
		return
	}
	d.Update(ctx, least)
	d.Update(ctx, most)
	sum -= least + most
	for left := int64(v.N - 2); left > 0; left-- {
		next := min(max(sum/left, least), most)
		d.Update(ctx, next)
		sum -= next
	}
}

// GPUUsage is what NVML said of the GPUs of a run, of all workers together, from
// its metrics in Namespace; ok is false where there were none.
func GPUUsage(counters map[string]int64, distributions map[string]metrics.DistributionValue) (u gpuinit.Usage, ok bool) {
	var cards []string
	for name, n := range counters {
		if card, is := strings.CutPrefix(name, nvmlGPUs); is {
			cards = append(cards, fmt.Sprintf("%d %s", n, card))
		} else if why, is := strings.CutPrefix(name, nvmlSlowdown); is {
			u.Slowdowns = append(u.Slowdowns, why)
		} else if number, is := strings.CutPrefix(name, nvmlXID); is {
			x, _ := strconv.ParseUint(number, 10, 64)
			for range min(n, 100) {
				u.XIDs = append(u.XIDs, x)
			}
		}
	}
	slices.Sort(cards)
	slices.Sort(u.Slowdowns)
	slices.Sort(u.XIDs)
	u.Name = "GPUs (" + strings.Join(cards, ", ") + ")"
	for _, q := range u.Quantities() {
		if d := distributions[nvmlValue+q.Name]; d.Count > 0 {
			*q.Value = gpuinit.Value{N: int(d.Count), Mean: float64(d.Sum) / float64(d.Count) / q.Scale, Least: float64(d.Min) / q.Scale, Most: float64(d.Max) / q.Scale}
			u.Samples = max(u.Samples, int(d.Count))
		}
	}
	return u, len(cards) > 0
}
