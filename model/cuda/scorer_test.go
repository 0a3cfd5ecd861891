//go:build cuda && cgo

package cuda

import (
	"context"
	"sync"
	"testing"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// half is what float16 products may differ from the goldens, in probability.
const halfTolerance = 2e-3

// gpus are those of the process, or those that stand in for them.
var gpus = sync.OnceValues(func() (*gpuinit.GPUs, error) {
	return gpuinit.Init(context.Background(), gpuinit.Options{})
})

func devices(t testing.TB) []gpuinit.Device {
	t.Helper()
	gpus, err := gpus()
	if err != nil {
		t.Skip(err)
	}
	return gpus.Devices
}

func TestFloat32(t *testing.T) {
	devices := devices(t)
	modeltest.Run(t, func(w *model.Weights) (model.Scorer, error) {
		return New(w, Options{Devices: devices, Precision: Float32})
	})
}

func TestFloat16(t *testing.T) {
	devices := devices(t)
	modeltest.RunWithin(t, halfTolerance, func(w *model.Weights) (model.Scorer, error) {
		return New(w, Options{Devices: devices})
	})
}
