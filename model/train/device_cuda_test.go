//go:build cuda && cgo

package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cuda"
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
	return trainerOf(t, o)
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
			portable := trainerOf(t, Options{Config: s.config(), Train: stepDocuments()})
			s.numpySteps(t, portable)
			// The losses hardly tell: Adam's steps stay as they are where all gradients grow.
			if e := math.Abs(tr.norm-portable.norm) / portable.norm; !(e <= 1e-5) {
				t.Errorf("norm of the gradient %v, the portable trainer's %v", tr.norm, portable.norm)
			}
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
		batches        int // of 5 windows, in one
	}{
		{"one layer", 1, 7, .4, 1}, {"one unit", 1, 1, .4, 1}, {"two layers", 2, 7, .4, 1}, {"three layers", 3, 17, 0, 1}, {"40 units", 1, 40, .4, 1},
		{"many windows", 2, 7, .4, 14}, {"many windows of 33 units", 1, 33, .4, 14},
		{"steps one by one", 1, 97, .4, 1},
	} {
		t.Run(s.name, func(t *testing.T) {
			cfg := stepConfig()
			cfg.NumLayers, cfg.HiddenSize, cfg.Dropout, cfg.FocalLabels = s.layers, s.hidden, s.dropout, "Description"
			tr := onGPU(t, Options{Config: cfg, Train: stepDocuments(), shards: 1}, devices)
			rnd := rand.New(rand.NewPCG(3, 3))
			for i := range tr.table {
				tr.table[i] = float32(rnd.NormFloat64() / 2)
			}
			var batch []window
			for i := range s.batches {
				batch = append(batch, stepBatch(1+i)...)
			}
			tr.gpus.ahead = newPrepared(tr, tr.gpus.steps, 1, len(batch)) // more windows than an epoch has
			step := tr.gpus.get(tr, batch, 1)
			dense, rows, loss := gpuGradient(t, tr, step)

			// The same in float64: the sums of rows by the definition.
			net := newNetwork[float64](plain[float64]{}, networkSizes(&tr.config))
			for i, v := range tr.net.flat {
				net.flat[i] = float64(v)
			}
			trained, err := newGraph(trainerOf(t, Options{Config: cfg, Train: stepDocuments(), shards: 1}).net, tr.gpus.steps, len(batch))
			if err != nil {
				t.Fatal(err)
			}
			portable := &shard{inputs: trained.inputs, graph: trained}
			portable.fill(tr, batch, 1, 0, tr.rowWeights(batch))
			in := portable.inputs
			g, err := newGraph(net, in.steps, in.windows)
			if err != nil {
				t.Fatal(err)
			}
			copyInputs(g.inputs, in)
			d := cfg.EmbeddingSize
			addRow := func(id uint32, row []float64) {
				for _, u := range portable.used[id%tableParts] {
					if u.id == id {
						for j, v := range row {
							g.sum[int(u.row)*d+j] += float64(u.scale) * v
						}
					}
				}
			}
			clear(g.sum)
			for _, id := range step.slots {
				row := make([]float64, d)
				for j := range row {
					row[j] = float64(tr.table[int(id)*d+j])
				}
				addRow(id, row)
			}
			eval := func() float64 {
				net.pack()
				return lossOf(t, g)
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
				slot := rnd.IntN(len(step.slots))
				j := rnd.IntN(d)
				check("table", int(step.slots[slot])*d+j, float64(rows[slot*d+j]), largest(rows), func(by float64) {
					move := make([]float64, d)
					move[j] = by
					addRow(step.slots[slot], move)
				})
			}
			t.Logf("worst error %.1e of the array's largest", worst)
		})
	}
}

// gpuGradient is what the first GPU finds for a step.
func gpuGradient(t *testing.T, tr *trainer, step *prepared) (dense, rows []float32, loss float64) {
	t.Helper()
	g := tr.gpus
	if err := g.push(tr); err != nil {
		t.Fatal(err)
	}
	step.pack(tr, 1, g.most)
	if err := step.accumulate(0, g.trainers[0], 1); err != nil {
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

func gpuOptions(precision string) Options {
	cfg := smallConfig()
	cfg.WindowSize, cfg.Epochs = 10, 2
	return Options{Config: cfg, Train: annotated(4, cfg.InputSize, 1), Precision: precision}
}

// losses are those of so many steps of a training.
func losses(t *testing.T, tr *trainer, n int) (all []float64) {
	t.Helper()
	for epoch := range tr.config.Epochs {
		for left := tr.epoch(epoch); len(left) > 0; left = left[1:] {
			if len(all) == n {
				return all
			}
			if err := tr.take(left[0], second(left)); err != nil {
				t.Fatal(err)
			}
			all = append(all, tr.position.Epoch.Loss)
		}
	}
	return all
}

// near holds got to want within a relative tolerance.
func near(t *testing.T, got, want []float64, tolerance float64) {
	t.Helper()
	worst := 0.
	for i := range want {
		worst = max(worst, math.Abs(got[i]-want[i])/want[i])
	}
	if t.Logf("worst relative error %.1e", worst); !(worst <= tolerance) {
		t.Errorf("losses %v, want %v", got, want)
	}
}

// A batch that goes through a GPU in parts, or through several GPUs, is the same
// batch; sums in another order are worth up to 1e-6.
func TestGPUParts(t *testing.T) {
	devices := devices(t)
	whole := onGPU(t, gpuOptions(""), devices[:1])
	least, _ := whole.gpus.memory()
	want := losses(t, whole, 4)
	t.Run("limit", func(t *testing.T) {
		o := gpuOptions("")
		o.Memory = least + 40<<10
		tr := onGPU(t, o, devices[:1])
		near(t, losses(t, tr, 4), want, 1e-6)
		if used, peak := tr.gpus.memory(); tr.gpus.most >= o.Config.BatchSize || used > peak || peak > o.Memory {
			t.Errorf("parts of %d windows, %d bytes used of %d", tr.gpus.most, peak, o.Memory)
		}
	})
	t.Run("shapes", func(t *testing.T) { // what one part needed is no bar to another
		o := gpuOptions("")
		o.Memory = least + 40<<10
		most := func(fit func(one *cuda.Trainer, n int) error) (n int) { // that there is room for
			tr := onGPU(t, o, devices[:1])
			defer tr.close()
			for n = 1; fit(tr.gpus.trainers[0], n+1) == nil; n++ {
			}
			return n
		}
		windows := most(func(one *cuda.Trainer, n int) error { return one.Fit(10, n, 1, 1) })
		uses := most(func(one *cuda.Trainer, n int) error { return one.Fit(1, 1, n, 1) })
		tr := onGPU(t, o, devices[:1])
		defer tr.close()
		one := tr.gpus.trainers[0]
		if err := cmp.Or(one.Fit(10, windows, 1, 1), one.Fit(1, 1, uses, 1), one.Fit(10, windows, 1, 1)); err != nil {
			t.Errorf("%d windows, %d uses and %d windows: %v", windows, uses, windows, err)
		}
	})
	t.Run("rows", func(t *testing.T) { // nor is it to the rows of a later step
		o := gpuOptions("")
		o.Memory = least + 40<<10
		ids := make([]uint32, o.Config.InputSize)
		for i := range ids {
			ids[i] = uint32(i)
		}
		// That there is room for in a first step.
		rows := sort.Search(len(ids), func(n int) bool {
			tr := onGPU(t, o, devices[:1])
			defer tr.close()
			return tr.gpus.trainers[0].Begin(ids[:n+1]) != nil
		})
		one := onGPU(t, o, devices[:1]).gpus.trainers[0]
		if err := one.Begin(ids[:1]); err != nil {
			t.Fatal(err)
		}
		windows := 1
		for one.Fit(10, windows, 1, 1) == nil {
			windows++
		}
		if err := cmp.Or(one.Fit(10, windows-1, 1, 1), one.Begin(ids[:rows])); err != nil {
			t.Errorf("%d windows, then %d rows: %v", windows-1, rows, err)
		}
	})
	t.Run("no room", func(t *testing.T) {
		o := gpuOptions("")
		o.Memory = least
		o.GPUs = devices[:1]
		if _, _, err := Run(context.Background(), o); !errors.Is(err, model.ErrOutOfMemory) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a window that does not fit: %v", err)
		}
		o.Memory = 1
		refused(t, o, " of CUDA, and gpu_memory_limit is 1 B; lower")
	})
	t.Run("no kernel has room", func(t *testing.T) { // a grid's second dimension ends at 65,535 blocks
		one := onGPU(t, gpuOptions(""), devices[:1]).gpus.trainers[0]
		for _, part := range []struct {
			steps, windows int
			err            string
		}{{5, 13107 * 64, "4194240"}, {1, 65535 * 16, "1048560"}} {
			if err := one.Fit(part.steps, part.windows+1, 1, 1); !errors.Is(err, model.ErrOutOfMemory) || !strings.HasSuffix(err.Error(), "a kernel has room for "+part.err) {
				t.Errorf("%d windows of %d lines: %v", part.windows+1, part.steps, err)
			}
		}
	})
	t.Run("windows of a line", func(t *testing.T) { // no state comes after another
		o := gpuOptions("")
		o.Config.WindowSize = 1
		near(t, losses(t, onGPU(t, o, devices[:1]), 4), losses(t, trainerOf(t, o), 4), 1e-5)
	})
	t.Run("auto", func(t *testing.T) {
		o := gpuOptions("")
		o.GPUs = devices[:1]
		all, epoch, err := LargestBatch(o)
		if err != nil || all != epoch || epoch < 10 {
			t.Errorf("%d windows of %d fit, %v; want all", all, epoch, err)
		}
		o.Memory = least + 100<<10
		some, _, err := LargestBatch(o)
		if err != nil || some < 1 || some >= all {
			t.Errorf("%d windows fit in 100 KiB, %v; want fewer than %d", some, err, all)
		}
		for room := int64(60 << 10); room <= 240<<10; room += 20 << 10 { // it goes whole, with the table's rows beside it
			o.Memory = least + room
			some, _, err := LargestBatch(o)
			if err != nil {
				t.Fatal(err)
			}
			o := o
			o.Config.BatchSize = some
			tr := onGPU(t, o, devices[:1])
			losses(t, tr, 4)
			if part := tr.gpus.most; part < some {
				t.Errorf("%d windows fit in %d bytes, but went in parts of %d", some, room, part)
			}
			tr.close()
		}
		for room := int64(0); room <= 40<<10; room += 1 << 10 {
			o.Memory = least + room
			if some, _, err := LargestBatch(o); err == nil && some < 1 || err != nil && !errors.Is(err, model.ErrOutOfMemory) {
				t.Errorf("%d windows fit in %d bytes, %v; want one or more, or %v", some, room, err, model.ErrOutOfMemory)
			}
		}
	})
	t.Run("ahead", func(t *testing.T) { // what is made ahead is what is made in time, and a wrong guess is dropped
		steps := func(batches, next []int) (losses []float64) {
			tr := onGPU(t, gpuOptions(""), devices[:1])
			all := append(tr.epoch(0), nil)
			for i, b := range batches {
				if err := tr.take(all[b], all[next[i]]); err != nil {
					t.Fatal(err)
				}
				losses = append(losses, tr.position.Epoch.Loss)
			}
			return losses
		}
		none := len(whole.epoch(0))
		batches := []int{0, 1, 0, 2, 3}
		want := steps(batches, []int{none, none, none, none, none})
		for _, next := range [][]int{{1, 0, 2, 3, none}, {1, 1, none, 3, 3}} {
			if got := steps(batches, next); !slices.Equal(got, want) {
				t.Errorf("with %v expected next: losses %v, want %v", next, got, want)
			}
		}
	})
	t.Run("cards", func(t *testing.T) {
		if len(devices) < 2 {
			t.Skip("this needs two GPUs")
		}
		tr := onGPU(t, gpuOptions(""), devices[:2])
		got := losses(t, tr, 4)
		near(t, got, want, 1e-6)
		if again := losses(t, onGPU(t, gpuOptions(""), devices[:2]), 4); !slices.Equal(again, got) {
			t.Errorf("losses %v, and once more %v", got, again)
		}
		// Both cards have one model.
		if err := tr.pull(); err != nil {
			t.Fatal(err)
		}
		flat, table := slices.Clone(tr.net.flat), slices.Clone(tr.table)
		if err := tr.gpus.trainers[1].Get(tr.parameters()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(flat, tr.net.flat) || !slices.Equal(table, tr.table) {
			t.Error("the second card has other weights")
		}
	})
}

// Products in 16 bits change the loss by what they round. A gradient that is not
// finite moves nothing, is counted and lowers the scale.
func TestGPUMixedPrecision(t *testing.T) {
	devices := devices(t)[:1]
	want := losses(t, onGPU(t, gpuOptions(""), devices), 8)
	for precision, tolerance := range map[string]float64{cuda.Float16: 2e-3, cuda.BFloat16: 1e-2} {
		t.Run(precision, func(t *testing.T) {
			if precision == cuda.BFloat16 && devices[0].Major < 8 {
				o := gpuOptions(precision)
				o.GPUs = devices
				if _, err := newTrainer(&o); err == nil || !strings.Contains(err.Error(), "bf16 needs 8.0") {
					t.Errorf("bf16: %v", err)
				}
				return
			}
			got := losses(t, onGPU(t, gpuOptions(precision), devices), 8)
			near(t, got, want, tolerance)
			if slices.Equal(got, want) {
				t.Error("the losses are those of float32")
			}
		})
	}
	t.Run("overflow", func(t *testing.T) {
		o := gpuOptions(cuda.Float16)
		o.Config.Epochs = 8
		tr := onGPU(t, o, devices)
		const first = 1 << 24
		tr.position.LossScale = first
		flat := slices.Clone(tr.net.flat)
		losses(t, tr, 1)
		if err := tr.pull(); err != nil {
			t.Fatal(err)
		}
		if p := &tr.position; p.Skipped != 1 || p.LossScale != first/2 || p.Step != 1 || !slices.Equal(tr.net.flat, flat) {
			t.Errorf("after a step at scale %v: %d skipped, scale %v", float64(first), p.Skipped, p.LossScale)
		}
		losses(t, tr, 24)
		if err := tr.pull(); err != nil {
			t.Fatal(err)
		}
		if p := &tr.position; p.Skipped < 2 || p.Skipped > 20 || p.LossScale != first/math.Pow(2, float64(p.Skipped)) || slices.Equal(tr.net.flat, flat) {
			t.Errorf("after 25 steps: %d skipped, scale %v", p.Skipped, p.LossScale)
		}
	})
}

// A training that goes on from a checkpoint, in the middle of an epoch or at its
// last step, comes to the same weights, its loss scale and skipped steps included.
func TestGPUResume(t *testing.T) {
	devices := devices(t)[:1]
	o := gpuOptions(cuda.Float16)
	o.GPUs, o.CheckpointSteps = devices, 1
	last := epochLengths(t, gpuOptions(""))[0]
	checkpoints := map[string][]byte{}
	o.Checkpoint = func(_ context.Context, s *State) error {
		switch {
		case s.Epochs() == 1 && s.Position.Epoch.Steps == 2:
			checkpoints["inside the second epoch"] = s.Encode()
		case s.Epochs() == 0 && s.Position.Epoch.Steps == last:
			checkpoints["at the last step of the first epoch"] = s.Encode()
		}
		return nil
	}
	w, meta := run(t, o)
	if !strings.HasPrefix(meta.Device, "cuda, float16, GPU 0") || meta.Precision != cuda.Float16 || meta.WorldSize != 1 || meta.GPUPeak < meta.GPUMemory || meta.GPUMemory == 0 {
		t.Errorf("metadata: %+v", meta)
	}
	o.Checkpoint = nil
	for _, name := range []string{"inside the second epoch", "at the last step of the first epoch"} {
		if again, _ := resume(t, o, checkpoints[name]); fingerprint(again) != fingerprint(w) {
			t.Errorf("%s: other weights after a resume", name)
		}
	}
	o.Resume = decoded(t, checkpoints["inside the second epoch"])
	o.Precision = ""
	if _, _, err := Run(context.Background(), o); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "mixed_precision was float16, not off") {
		t.Errorf("a resume in another precision: %v", err)
	}
}

// BenchmarkGPUStep is BenchmarkStep on a GPU, copies and the host's part
// included, and with larger batches. scripts/bench.d/gpu/torch_train.py measures
// PyTorch on the same sizes.
func BenchmarkGPUStep(b *testing.B) {
	devices := devices(b)[:1]
	for _, precision := range []string{cuda.Float32, cuda.Float16, cuda.BFloat16} {
		for _, windows := range []int{12, 48, 192} {
			b.Run(fmt.Sprintf("%s/batch%d", precision, windows), func(b *testing.B) {
				if precision == cuda.BFloat16 && devices[0].Major < 8 {
					b.Skip("bf16 needs compute capability 8.0")
				}
				cfg, doc := benchmarkDocument(windows)
				benchmarkStep(b, onGPU(b, Options{Config: cfg, Train: []Document{doc}, Precision: precision}, devices))
			})
		}
	}
}
