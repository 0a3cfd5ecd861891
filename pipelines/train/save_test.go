package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
)

// An interrupt while the model is being written leaves it whole, plot and all, and
// is not told as one that left none.
func TestSaveInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.ErrInterrupted)
	to := t.TempDir()
	cfg := modeltest.Config(16, 4, model.DefaultConfig().LayoutSize, 4, 1, 3, 0)
	err := save(ctx, to, modeltest.Weights(cfg, 1), &model.Metadata{Epochs: make([]model.EpochStats, 1)})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"config.json", plotFile} {
		if _, err := os.Stat(filepath.Join(to, name)); err != nil {
			t.Error(err)
		}
	}
}
