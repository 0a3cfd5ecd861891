//go:build cuda && cgo

package transforms

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/kernel"
)

// documentsForGPU are documents and what the CPU says of them, by name. For the rest
// of the test it multiplies in float32: made-up weights have classes that are nearly
// as probable.
func documentsForGPU(t *testing.T) ([]Example, map[string]Labelled) {
	t.Helper()
	for _, isa := range []string{"avx512", "avx2", "neon"} { // generic has no other
		if restore, ok := kernel.SwitchISA(isa); ok {
			t.Cleanup(restore)
			break
		}
	}
	var examples []Example
	for i := range 12 {
		examples = append(examples, exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i+1, 20+9*i), 256))
	}
	want, _ := predictAll(t, on(t, "direct"), Options{ModelURI: Path(testModel(t)), WindowSize: 20}, examples)
	return examples, want
}

func needGPU(t *testing.T) {
	t.Helper()
	g, err := gpuinit.Init(context.Background(), gpuinit.Options{})
	if err != nil {
		if os.Getenv("LINNET_GPU") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	g.Close()
}

// TestHalving runs out of the GPU's memory: batches are halved, which is
// counted, and the probabilities keep their bits.
func TestHalving(t *testing.T) {
	needGPU(t)
	examples, onCPU := documentsForGPU(t)
	opts := Options{Device: backend.CUDA, Precision: "float32", ModelURI: Path(testModel(t)), WindowSize: 20, GPUMemory: 200 << 10}
	got, res := predictAll(t, on(t, "direct"), opts, examples)
	if n := counters(res, "BeamML_Go")["batch_halvings_counter"]; n < 1 || n > 8 {
		t.Errorf("%d halvings, want some and few: the size that fits is remembered", n)
	}
	opts.ModelURI, opts.GPUMemory = Path(testModel(t)), 0 // another folder, or the Scorer would be the same
	want, res := predictAll(t, on(t, "direct"), opts, examples)
	if n := counters(res, "BeamML_Go")["batch_halvings_counter"]; n != 0 {
		t.Errorf("%d halvings with memory to spare, want none", n)
	}
	equal(t, "documents", len(got), len(onCPU))
	for name, l := range onCPU {
		equal(t, name+": labels", want[name].Labels, l.Labels)
		equal(t, name+": probabilities", got[name].Probs, want[name].Probs)
	}
}

// TestStartHangs has a driver that never starts: how long it is waited for is said.
func TestStartHangs(t *testing.T) {
	const in = "LINNET_IN_TEST"
	if os.Getenv(in) == "" {
		if os.Getenv("STANDIN_KERNELS") == "" {
			t.Skip(`no driver that stands in: eval "$(scripts/standin)" makes one`)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestStartHangs$", "-test.v")
		cmd.Env = append(os.Environ(), in+"=1", "STANDIN_HANG=nvmlInit_v2", "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestStartHangs") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	m := loadModel(t, Options{Device: backend.Auto, ModelURI: Path(testModel(t)), GPUTimeout: time.Second})
	if !strings.Contains(m.Reason, "(asking what GPUs there are, waited 1s)") {
		t.Errorf("reason %q, want a second's wait", m.Reason)
	}
}

// TestLost loses the GPU in the middle of a document: auto labels everything,
// once, and cuda fails the run.
func TestLost(t *testing.T) {
	const in = "LINNET_IN_TEST"
	if os.Getenv(in) == "" {
		if os.Getenv("STANDIN_KERNELS") == "" {
			t.Skip(`no driver that stands in: eval "$(scripts/standin)" makes one`)
		}
		for _, device := range []string{backend.Auto, backend.CUDA} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLost$", "-test.v")
			inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") }) // gpuinit's, of this process
			cmd.Env = append(inherited, in+"="+device, "LINNET_GPU=required", "STANDIN_DEVICES=1", "STANDIN_LOSE=60", "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestLost") {
				t.Errorf("device %s: %v\n%s", device, err, out)
			}
		}
		return
	}
	needGPU(t)
	examples, want := documentsForGPU(t)
	opts := Options{Device: os.Getenv(in), Precision: "float32", ModelURI: Path(testModel(t)), WindowSize: 20, PredictionBatchSize: 3, Run: t.Name()}
	if opts.Device == backend.CUDA {
		_, err := runOn("direct", func(s beam.Scope) { Predict(s, opts, beam.CreateList(s, examples)) })
		if err == nil || !strings.Contains(err.Error(), "device lost") {
			t.Errorf("got %v, want an error about the lost device", err)
		}
		return
	}
	seen := 0
	got, _ := predictAll(t, func(build func(beam.Scope)) beam.PipelineResult {
		res := on(t, "direct")(build)
		if b, ok := collected.Load(t.Name()); ok {
			seen = len(b.(*bag).elements)
		}
		return res
	}, opts, examples)
	equal(t, "documents, repeated ones too", seen, len(examples))
	for name, l := range want {
		equal(t, name+": labels", got[name].Labels, l.Labels)
	}
	m := loadModel(t, opts)
	if text := m.Now(); text != "cpu, after the GPU was lost" {
		t.Errorf("scored by %q, want the CPU at last", text)
	}
}
