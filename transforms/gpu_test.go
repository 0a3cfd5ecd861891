package transforms

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"

	"github.com/linnet-ml/linnet/gpuinit"
)

// gpuFn counts, for each report, what two made-up cards said since the one
// before.
type gpuFn struct{}

func init() { beam.RegisterDoFn(&gpuFn{}) }

func sampled(values ...float64) (v gpuinit.Value) {
	var u gpuinit.Usage
	for _, x := range values {
		u.Add(&gpuinit.Usage{Power: gpuinit.Value{N: 1, Mean: x, Least: x, Most: x}})
	}
	return u.Power
}

func (f *gpuFn) ProcessElement(ctx context.Context, report int) {
	if report == 0 {
		countCards(ctx, []gpuinit.Device{{Name: "A"}, {Name: "A"}})
	}
	countGPUs(ctx, [][]gpuinit.Usage{
		{{Memory: sampled(1<<30, 3<<30), Utilisation: sampled(10, 20), Power: sampled(100.5, 90, 80.25, 85, 99.999), XIDs: []uint64{79}, Slowdowns: []string{"heat"}, Energy: sampled(0, 2.5)},
			{Memory: sampled(7 << 30), Utilisation: sampled(50)}},
		{{}, {}}, // nothing new
		{{Memory: sampled(5 << 30), Utilisation: sampled(99), XIDs: []uint64{79, 13}, Slowdowns: []string{"heat", "brake"}, Energy: sampled(1.25)},
			{Memory: sampled(5 << 30), Utilisation: sampled(100)}},
	}[report])
}

// TestGPUUsage takes what NVML says of some cards through Beam's metrics.
func TestGPUUsage(t *testing.T) {
	onBoth(t, func(t *testing.T, run func(build func(s beam.Scope)) beam.PipelineResult) {
		res := run(func(s beam.Scope) { beam.ParDo0(s, &gpuFn{}, beam.CreateList(s, []int{0, 1, 2})) })
		q := res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Namespace() == Namespace })
		distributions := map[string]metrics.DistributionValue{}
		for _, d := range q.Distributions() {
			distributions[d.Name()] = d.Result()
		}
		u, ok := GPUUsage(counters(res, Namespace), distributions)
		if !ok || u.Name != "GPUs (2 A)" {
			t.Errorf("%q, %v", u.Name, ok)
		}
		equal(t, "memory", u.Memory, gpuinit.Value{N: 5, Mean: 4.2 * (1 << 30), Least: 1 << 30, Most: 7 << 30})
		equal(t, "utilisation", u.Utilisation, gpuinit.Value{N: 5, Mean: 55.8, Least: 10, Most: 100})
		equal(t, "power", u.Power, gpuinit.Value{N: 5, Mean: 91.1498, Least: 80.25, Most: 100.5})
		equal(t, "energy", u.Energy.Sum(), 3.75)
		equal(t, "temperature", u.Temperature, gpuinit.Value{})
		equal(t, "XIDs and slowdowns", fmt.Sprint(u.XIDs, u.Slowdowns), "[13 79 79] [brake heat]")
		got := map[string]int64{}
		for _, g := range q.Gauges() {
			got[g.Name()] = g.Result().Value
		}
		equal(t, "gauges", got, map[string]int64{GPUMemoryGauge: 10 << 30, GPUUtilisationGauge: 100}) // 99.5, rounded
	})
	if _, ok := GPUUsage(map[string]int64{"lines": 3}, nil); ok {
		t.Error("GPUs without GPUs")
	}
}
