package store

import (
	"context"
	"errors"
)

func forGS(ctx context.Context, uri string) (Store, error) { return nil, errors.New("TODO") }
