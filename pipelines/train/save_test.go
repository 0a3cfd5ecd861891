package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
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

// An interrupt in a bucket, once an earlier model's config.json is gone, leaves the new
// model whole.
func TestSaveInterruptedOnGS(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	server := clitest.Storage(t, "out")
	clitest.Put(server, "out", "model/config.json", []byte("earlier"))
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			cancel(cli.ErrInterrupted)
		}
		server.HTTPHandler().ServeHTTP(w, r)
	})))
	cfg := modeltest.Config(16, 4, model.DefaultConfig().LayoutSize, 4, 1, 3, 0)
	if err := save(ctx, "gs://out/model", modeltest.Weights(cfg, 1), &model.Metadata{Epochs: make([]model.EpochStats, 1)}); err != nil {
		t.Error(err)
	}
	objects, err := clitest.Objects(server, "out", "model/")
	if err != nil || ctx.Err() == nil || len(objects) != 4 || objects["config.json"] == "earlier" {
		t.Errorf("got %d objects, %v, interrupted %v; want the four of a model", len(objects), err, ctx.Err())
	}
}
