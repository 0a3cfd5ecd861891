package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// TestSaveFullDisk saves a model to a disk that it does not fit on: the error
// says where and what to do.
func TestSaveFullDisk(t *testing.T) {
	to := t.TempDir()
	if err := syscall.Mount("tmpfs", to, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs the right to mount a small disk: ", err)
	}
	defer syscall.Unmount(to, 0)
	cfg := modeltest.Config(1<<12, 64, model.DefaultConfig().LayoutSize, 5, 1, 3, 0)
	err := save(t.Context(), to, modeltest.Weights(cfg, 1), &model.Metadata{Epochs: make([]model.EpochStats, 1)})
	if want := to + ": no space left on device; free some space"; !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
