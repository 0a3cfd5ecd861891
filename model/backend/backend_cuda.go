//go:build cuda && cgo

package backend

import (
	"cmp"
	"context"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cuda"
)

// newCUDA makes the Scorer on the GPUs of this process.
func newCUDA(ctx context.Context, o Options, w *model.Weights) (model.MultiScorer, error) {
	gpus, err := gpuinit.Init(ctx, o.GPU)
	if err != nil {
		return nil, err
	}
	s, err := cuda.New(w, cuda.Options{Devices: gpus.Devices, Precision: o.Precision, MemoryLimit: o.Memory, Timeout: o.Timeout, Log: o.GPU.Log})
	if err != nil {
		gpus.Close()
		return nil, err
	}
	return &onGPUs{s, gpus}, nil
}

// onGPUs holds the GPUs for as long as it is used.
type onGPUs struct {
	*cuda.Scorer
	gpus *gpuinit.GPUs
}

// Devices are the GPUs.
func (s *onGPUs) Devices() []gpuinit.Device { return s.gpus.Devices }

func (s *onGPUs) Close() error { return cmp.Or(s.Scorer.Close(), s.gpus.Close()) }
