package backend

import "github.com/linnet-ml/linnet/model"

func newCUDA(*model.Weights) (model.Scorer, error) { return nil, ErrNoCUDA }
