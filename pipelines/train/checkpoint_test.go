package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
)

// An interrupt says what it left: no model, a checkpoint, and a job that could
// not be cancelled.
func TestTold(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.ErrInterrupted)
	left := fmt.Errorf("%w: job 1 %w", cli.ErrInterrupted, runners.ErrNotCancelled)
	for _, c := range []struct {
		written bool
		err     error
		want    string
	}{
		{false, context.Canceled, "interrupted: no model was written"},
		{true, context.Canceled, "interrupted: no model was written; the same command with --resume goes on from x"},
		{false, left, "interrupted: job 1 cannot be cancelled; no model was written"},
		{true, left, "interrupted: job 1 cannot be cancelled; no model was written; the same command with --resume goes on from x"},
	} {
		at := checkpoint{path: "x", written: c.written}
		if got := at.told(ctx, c.err); got.Error() != c.want {
			t.Errorf("got %v, want %s", got, c.want)
		}
	}
}

// A checkpoint that cannot be written says that the one before it is kept: to run the
// command again without --resume would begin anew.
func TestCheckpointKept(t *testing.T) {
	at := checkpoint{path: filepath.Join(t.TempDir(), checkpointFile)}
	fails := func() string {
		file := at.path
		at.path = filepath.Join(file, "below") // a file is in its way
		defer func() { at.path = file }()
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		err := at.write(t.Context(), new(train.State))
		if err == nil {
			t.Fatal("written below a file")
		}
		return err.Error()
	}
	const kept = "; the same command with --resume goes on from "
	if got := fails(); strings.Contains(got, kept) {
		t.Errorf("the first: got %s", got)
	}
	if err := at.write(t.Context(), new(train.State)); err != nil {
		t.Fatal(err)
	}
	if got := fails(); !strings.Contains(got, kept) {
		t.Errorf("the second: got %s, want%s…", got, kept)
	}
}

// locked is lock, which must not fail.
func locked(t *testing.T, to, folder string) (unlock func()) {
	t.Helper()
	unlock, err := lock(t.Context(), to, folder)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

// A link to a disk that is not there now stays when the training fails; a folder
// that the training made goes, and a link to another for its checkpoints stays.
func TestLockLeaves(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "disk"), link); err != nil {
		t.Skip("needs links: ", err)
	}
	for _, c := range []struct {
		to   string
		stay bool
	}{{link, true}, {filepath.Join(dir, "new"), false}} {
		locked(t, c.to, filepath.Join(c.to, trainingFolder))()
		if _, err := os.Lstat(c.to); (err == nil) != c.stay {
			t.Errorf("%s: got %v", c.to, err)
		}
	}
	folder := filepath.Join(dir, trainingFolder)
	if err := os.Symlink(t.TempDir(), folder); err != nil {
		t.Fatal(err)
	}
	locked(t, dir, folder)()
	if _, err := os.Lstat(folder); err != nil {
		t.Errorf("a link to where the checkpoints go: got %v", err)
	}
}

// The end of a training removes what it and its kills left in its folder, and
// nothing of anybody else's that lies there.
func TestRemoveLeaves(t *testing.T) {
	to := t.TempDir()
	folder := filepath.Join(to, trainingFolder)
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{checkpointFile, ".half.tmp", "n1.txt.ann"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	unlock := locked(t, to, folder)
	at := checkpoint{path: filepath.Join(folder, checkpointFile)}
	if err := at.remove(t.Context(), folder); err != nil {
		t.Error(err)
	}
	unlock()
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 1 || left[0].Name() != "n1.txt.ann" {
		t.Errorf("got %v, %v, want n1.txt.ann alone", left, err)
	}
}
