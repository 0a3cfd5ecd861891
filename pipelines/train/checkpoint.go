package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/store"
)

// The folder below --model_out that is there while a training runs, and the
// file in it that says where it stands.
const (
	trainingFolder = "_training"
	checkpointFile = "checkpoint.state"
)

// checkpoint is where a training's State is kept.
type checkpoint struct {
	path    string
	written bool
}

// lock fails where another process trains into a local folder, to; folder is that of
// the training below it. Where the disk knows no locks, and on gs://, where one would
// keep a killed training from going on for minutes, there is none.
func lock(ctx context.Context, to, folder string) (unlock func(), err error) {
	if store.Remote(to) {
		return func() {}, nil
	}
	st, err := store.For(ctx, to)
	if err != nil {
		return nil, err
	}
	_, before := os.Lstat(to) // a link to nothing is there, too
	file := store.Join(folder, transforms.LockFile)
	free, err := st.Lock(ctx, file)
	if errors.Is(err, store.ErrLocked) {
		return nil, err
	}
	return func() {
		os.Remove(file) // before another can have locked it
		if free != nil {
			free()
		}
		if runtime.GOOS == "windows" { // which removes no file that anyone has open
			os.Remove(file)
		}
		if info, err := os.Lstat(folder); err == nil && info.IsDir() { // no link or file of somebody's
			os.Remove(folder) // where it is empty
		}
		if before != nil {
			os.Remove(to) // the same
		}
	}, nil
}

// find reads the checkpoint, for --resume; nil where there is none.
func (c *checkpoint) find(ctx context.Context, resume bool, verbosity int) (*train.State, error) {
	if !resume {
		if there, _ := store.Exists(ctx, c.path); there && verbosity > 0 {
			cli.Warnf("%s is of an earlier training, which --resume would go on with; this one begins anew", c.path)
		}
		return nil, nil
	}
	data, err := store.Read(ctx, c.path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if verbosity > 0 {
			fmt.Fprintf(os.Stderr, "--resume: no checkpoint at %s; training from the beginning\n", cli.Printable(c.path))
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := train.DecodeState(data)
	if err != nil {
		return nil, fmt.Errorf("--resume: %s: %w; leave out --resume to begin anew", c.path, err)
	}
	if verbosity > 0 {
		fmt.Fprintf(os.Stderr, "--resume: the checkpoint is of step %d, after %s\n", s.Step(), cli.Plural(int64(s.Epochs()), "whole epoch"))
	}
	c.written = true
	return s, nil
}

func (c *checkpoint) write(ctx context.Context, s *train.State) error {
	if err := store.Write(ctx, c.path, s.Encode()); err != nil {
		return c.kept(err)
	}
	c.written = true
	return nil
}

// kept is err, of what ended a training that can go on, with how where there is a
// checkpoint.
func (c *checkpoint) kept(err error) error {
	if !c.written {
		return err
	}
	return fmt.Errorf("%w; the same command with --resume goes on from %s", err, c.path)
}

// remove removes the checkpoint and, locally, what a kill left half written beside it.
// What else lies there is somebody's; the lock goes with the folder once nobody trains.
func (c *checkpoint) remove(ctx context.Context, folder string) error {
	err := store.Delete(ctx, c.path)
	if store.Remote(folder) {
		return err
	}
	left, e := os.ReadDir(folder)
	if errors.Is(e, fs.ErrNotExist) {
		return err
	}
	for _, entry := range left {
		if store.Temporary(entry.Name()) {
			e = errors.Join(e, os.Remove(filepath.Join(folder, entry.Name())))
		}
	}
	return errors.Join(err, e)
}

// told is err, with what an interrupted training left behind.
func (c *checkpoint) told(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
		return c.kept(told(ctx, err))
	}
	return told(ctx, err)
}

// told is err, or the interrupt where that was its cause; with a job that could
// not be cancelled, both.
func told(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, runners.ErrNotCancelled):
		return fmt.Errorf("%w; no model was written", err)
	case errors.Is(context.Cause(ctx), cli.ErrInterrupted):
		return fmt.Errorf("%w: no model was written", cli.ErrInterrupted)
	}
	return err
}
