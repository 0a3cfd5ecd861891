//go:build !cuda || !cgo

package cuda

import (
	"context"

	"github.com/linnet-ml/linnet/gpuinit"
)

// Trainer is that of builds with CUDA.
type Trainer struct{}

// NewTrainer reports that this build has no CUDA.
func NewTrainer(gpuinit.Device, Network, string, int64) (*Trainer, error) {
	_, err := gpuinit.Init(context.Background(), gpuinit.Options{})
	return nil, err
}

// The methods are those of builds with CUDA.

func (*Trainer) Put(*Parameters) error               { panic("cuda: no trainer") }
func (*Trainer) Get(*Parameters) error               { panic("cuda: no trainer") }
func (*Trainer) Fit(_, _, _, _ int) error            { panic("cuda: no trainer") }
func (*Trainer) Begin([]uint32) error                { panic("cuda: no trainer") }
func (*Trainer) Add(*Windows, float32) error         { panic("cuda: no trainer") }
func (*Trainer) Gradient() (_, _ []float32, _ error) { panic("cuda: no trainer") }
func (*Trainer) SetGradient(_, _ []float32) error    { panic("cuda: no trainer") }
func (*Trainer) Finish(*Update) (*Stats, error)      { panic("cuda: no trainer") }
func (*Trainer) Memory() (used, peak int64)          { panic("cuda: no trainer") }
func (*Trainer) Close()                              { panic("cuda: no trainer") }
