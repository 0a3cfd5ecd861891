package store

import (
	"context"
	"errors"
	"io/fs"
)

type local struct{ tempDir string }

var errTODO = errors.New("store: not yet")

func (l local) List(ctx context.Context, uri string, fn func(Object) error) error { return errTODO }
func (l local) Read(ctx context.Context, uri string, limit int64) ([]byte, error) {
	return nil, errTODO
}
func (l local) Write(ctx context.Context, uri string, data []byte) error   { return errTODO }
func (l local) Delete(ctx context.Context, uri string) error               { return errTODO }
func (l local) Lock(ctx context.Context, uri string) (func() error, error) { return nil, errTODO }
func (l local) sub(ctx context.Context, uri string) (fs.FS, error)         { return nil, errTODO }

func forGS(ctx context.Context, uri string) (Store, error) { return nil, errTODO }
