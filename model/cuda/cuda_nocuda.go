//go:build !cuda || !cgo

package cuda

import (
	"context"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

// Scorer is that of builds with CUDA.
type Scorer struct{ model.MultiScorer }

// New reports that this build has no CUDA.
func New(*model.Weights, Options) (*Scorer, error) {
	_, err := gpuinit.Init(context.Background(), gpuinit.Options{})
	return nil, err
}
