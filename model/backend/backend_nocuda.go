//go:build !cuda || !cgo

package backend

import (
	"context"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

func newCUDA(ctx context.Context, o Options, _ *model.Weights) (model.MultiScorer, error) {
	_, err := gpuinit.Init(ctx, o.GPU)
	return nil, err
}
