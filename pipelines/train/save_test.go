package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms/store"
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

// A model for a bucket that finds no temporary folder says what to do; that --resume
// saves it says kept, where there is a checkpoint.
func TestSaveWithoutTemporaryFolder(t *testing.T) {
	server := clitest.Storage(t, "out")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	for _, name := range []string{"TMPDIR", "TMP"} { // the second is Windows'
		t.Setenv(name, filepath.Join(t.TempDir(), "nowhere"))
	}
	cfg := modeltest.Config(16, 4, model.DefaultConfig().LayoutSize, 4, 1, 3, 0)
	err := save(t.Context(), "gs://out/model", modeltest.Weights(cfg, 1), &model.Metadata{Epochs: make([]model.EpochStats, 1)})
	if err == nil || !strings.HasSuffix(err.Error(), "; set TMPDIR to a folder that can be written to") {
		t.Errorf("got %v", err)
	}
}

// TestLateWorker starts a worker of a training that is over: it says at once what it
// waits for, and that the model is there.
func TestLateWorker(t *testing.T) {
	out := t.TempDir()
	args := medium(newCorpus(t), out)
	weightsOf(t, out, append(args, "--epochs=1"))
	cmd := exec.Command("train", append(args, "--workers=2", "--worker_index=1", "--resume")...)
	said, err := cmd.StderrPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	want := []string{"no training runs in " + out + ": worker 1 waits for worker 0", "the model of ", " in " + out + " may be that of this very training, which is over then: end this worker"}
	text := ""
	for lines := bufio.NewScanner(said); lines.Scan(); {
		text += lines.Text() + "\n"
		if !slices.ContainsFunc(want, func(s string) bool { return !strings.Contains(text, s) }) {
			return
		}
	}
	t.Errorf("it says %q, want %q", text, want)
}

// TestSaveRefused saves a second model to a bucket that refuses its weights: no
// half of both is left that loads, and the next save makes it whole.
func TestSaveRefused(t *testing.T) {
	server := clitest.Storage(t, "out")
	refuse := ""
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse != "" && strings.HasPrefix(r.URL.Path, "/upload/") && strings.HasSuffix(r.URL.Query().Get("name"), refuse) {
			http.Error(w, "refused", http.StatusForbidden)
			return
		}
		server.HTTPHandler().ServeHTTP(w, r)
	})))

	const to = "gs://out/model"
	load := func() (*model.Weights, error) {
		fsys, err := store.Sub(t.Context(), to)
		if err != nil {
			return nil, err
		}
		return model.Load(fsys)
	}
	meta := &model.Metadata{Epochs: make([]model.EpochStats, 2)}
	cfg := modeltest.Config(64, 4, model.DefaultConfig().LayoutSize, 5, 1, 3, 0)
	if err := save(t.Context(), to, modeltest.Weights(cfg, 1), meta); err != nil {
		t.Fatal(err)
	}
	cfg.Classes = []string{cfg.Classes[1], cfg.Classes[0], cfg.Classes[2]}
	second := modeltest.Weights(cfg, 2)
	refuse = "weights.safetensors"
	if err := save(t.Context(), to, second, meta); err == nil {
		t.Fatal("saved, though the weights were refused")
	}
	if w, err := load(); err == nil {
		t.Errorf("a model of classes %v loads, though its weights were refused", w.Config.Classes)
	}
	refuse = ""
	if err := save(t.Context(), to, second, meta); err != nil {
		t.Fatal(err)
	}
	if w, err := load(); err != nil || w.Hash() != second.Hash() {
		t.Errorf("saved once more: %v; want the second model", err)
	}
}
