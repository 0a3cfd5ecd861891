//go:build cuda && cgo

package backend

import (
	"context"
	"errors"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

// newCUDA makes the Scorer on the GPUs of this process.
func newCUDA(ctx context.Context, o Options, w *model.Weights) (model.Scorer, error) {
	gpus, err := gpuinit.Init(ctx, o.GPU)
	if err != nil {
		return nil, err
	}
	defer gpus.Close()
	return nil, errors.New("this version has no kernels for it yet")
}
