//go:build cuda && cgo

package train

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/linnet-ml/linnet/gpuinit"
)

// These tests run on a GPU, or on the driver that stands in for one
// (scripts/standin), whichever libcuda.so.1 is found.

var allGPUs = sync.OnceValues(func() (*gpuinit.GPUs, error) {
	return gpuinit.Init(context.Background(), gpuinit.Options{})
})

func devices(t testing.TB) []gpuinit.Device {
	t.Helper()
	gpus, err := allGPUs()
	if err != nil {
		if os.Getenv("LINNET_GPU") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return gpus.Devices
}

// onGPU makes a trainer for the devices.
func onGPU(t testing.TB, o Options, devices []gpuinit.Device) *trainer {
	t.Helper()
	o.GPUs = devices
	tr, err := newTrainer(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	return tr
}

// Ten steps on a GPU against numpy in float64.
func TestGPUTenStepsAgainstNumpy(t *testing.T) {
	devices := devices(t)[:1]
	for _, s := range readSteps(t, "testdata/steps.json") {
		if s.HiddenSize*s.NumLayers > 192 {
			continue // minutes, where kernels run on the CPU
		}
		t.Run(s.String(), func(t *testing.T) {
			tr := onGPU(t, Options{Config: s.config(), Train: stepDocuments()}, devices)
			got, _ := s.numpySteps(t, tr)
			s.compare(t, got, 3e-5)
		})
	}
}

// Ten steps on a GPU, with dropout, against those recorded of the portable
// trainer.
func TestGPUTenStepsRecorded(t *testing.T) {
	devices := devices(t)[:1]
	for _, s := range readSteps(t, "testdata/losses.json") {
		if s.HiddenSize*s.NumLayers > 96 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			s.compare(t, s.recordedSteps(t, onGPU(t, s.options(), devices)), 1e-4)
		})
	}
}

// Gradients of a GPU against central differences of the loss in float64: of
// every array of parameters, and of rows of the table.
func TestGPUGradient(t *testing.T) {
	devices := devices(t)[:1]
	for _, s := range []struct {
		name           string
		layers, hidden int
		dropout        float64
	}{{"one layer", 1, 7, .4}, {"one unit", 1, 1, .4}, {"two layers", 2, 7, .4}, {"three layers", 3, 17, 0}, {"40 units", 1, 40, .4}} {
		t.Run(s.name, func(t *testing.T) {
			cfg := stepConfig()
			cfg.NumLayers, cfg.HiddenSize, cfg.Dropout, cfg.FocalLabels = s.layers, s.hidden, s.dropout, "Description"
			tr := onGPU(t, Options{Config: cfg, Train: stepDocuments(), Shards: 1}, devices)
			rnd := rand.New(rand.NewPCG(3, 3))
			for i := range tr.table {
				tr.table[i] = float32(rnd.NormFloat64() / 2)
			}
			tr.shards[0].fill(tr, stepBatch(1), 1, 0, [2]float64{.1, .04})
			dense, rows, loss := gpuGradient(t, tr)

			// The same in float64: the sums of rows by the definition.
			net := newNetwork[float64](plain[float64]{}, networkSizes(&tr.config))
			for i, v := range tr.net.flat {
				net.flat[i] = float64(v)
			}
			in := tr.shards[0].inputs
			g, err := newGraph(net, in.steps, in.windows)
			if err != nil {
				t.Fatal(err)
			}
			copyInputs(g.inputs, in)
			d := cfg.EmbeddingSize
			addRow := func(id uint32, row []float64) {
				for _, u := range tr.shards[0].used[id%tableParts] {
					if u.id == id {
						for j, v := range row {
							g.sum[int(u.row)*d+j] += float64(u.scale) * v
						}
					}
				}
			}
			clear(g.sum)
			for _, id := range tr.gpus.slots {
				row := make([]float64, d)
				for j := range row {
					row[j] = float64(tr.table[int(id)*d+j])
				}
				addRow(id, row)
			}
			eval := func() float64 {
				net.pack()
				loss, err := g.run()
				if err != nil {
					t.Fatal(err)
				}
				return loss
			}
			if want := eval(); math.Abs(loss-want) > 1e-5*want {
				t.Errorf("loss %v, want %v", loss, want)
			}
			const e = 1e-5
			worst := 0.
			check := func(name string, i int, got, largest float64, move func(by float64)) {
				move(e)
				above := eval()
				move(-2 * e)
				below := eval()
				move(e)
				want := (above - below) / (2 * e)
				worst = max(worst, math.Abs(got-want)/largest)
				if !(math.Abs(got-want) <= 1e-4*largest) {
					t.Errorf("%s[%d]: got %g, want %g", name, i, got, want)
				}
			}
			largest := func(x []float32) (m float64) {
				for _, v := range x {
					m = max(m, math.Abs(float64(v)))
				}
				return m
			}
			for _, p := range net.parameters {
				grad := dense[p.at : p.at+len(p.data)]
				for range 6 {
					i := rnd.IntN(len(p.data))
					check(p.name, i, float64(grad[i]), largest(grad), func(by float64) { p.data[i] += by })
				}
			}
			for range 10 {
				slot := rnd.IntN(len(tr.gpus.slots))
				j := rnd.IntN(d)
				check("table", int(tr.gpus.slots[slot])*d+j, float64(rows[slot*d+j]), largest(rows), func(by float64) {
					move := make([]float64, d)
					move[j] = by
					addRow(tr.gpus.slots[slot], move)
				})
			}
			t.Logf("worst error %.1e of the array's largest", worst)
		})
	}
}

// gpuGradient is what the first GPU finds for what the shards were filled with.
func gpuGradient(t *testing.T, tr *trainer) (dense, rows []float32, loss float64) {
	t.Helper()
	g := tr.gpus
	if err := g.push(tr); err != nil {
		t.Fatal(err)
	}
	g.number(tr)
	var places []place
	for i, s := range tr.shards {
		for j, n := range s.lens {
			places = append(places, place{i, j, n})
		}
	}
	if err := g.accumulate(tr, 0, g.trainers[0], places, 1); err != nil {
		t.Fatal(err)
	}
	dense, rows, err := g.trainers[0].Gradient()
	if err != nil {
		t.Fatal(err)
	}
	u := updateOf(tr, 1)
	u.Step, u.Decay = 0, 0 // moves nothing
	s, err := g.trainers[0].Finish(&u)
	if err != nil {
		t.Fatal(err)
	}
	return dense, rows, float64(s.Loss)
}
