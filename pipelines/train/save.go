package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/store"
)

// notOurs refuses a folder where a model would be written over files that are no
// model's: a save writes the weights before them. Where the store cannot be asked,
// the write that follows says so.
func notOurs(ctx context.Context, to string) error {
	if there, err := store.Exists(ctx, store.Join(to, "weights.safetensors")); there || err != nil {
		return nil
	}
	names := []string{"config.json", "metadata.json"}
	if !store.Remote(to) { // where a save that was killed may have left it alone
		names = append(names, plotFile)
	}
	for _, name := range names {
		file := store.Join(to, name)
		if there, _ := store.Exists(ctx, file); there {
			return cli.Usagef("%s is there already, and no model's weights are beside it; choose another --model_out, or remove it", file)
		}
	}
	return nil
}

// sayModel tells of the model that lies in to, where there is one, and what is to
// become of it.
func sayModel(ctx context.Context, to, becomes string) {
	fsys, err := store.Sub(ctx, to)
	if err != nil {
		return
	}
	if _, err := fs.Stat(fsys, "config.json"); err != nil {
		return
	}
	of := ""
	if meta, err := model.LoadMetadata(fsys); err == nil {
		of = " of " + meta.Time.Local().Format(time.DateTime)
	}
	fmt.Fprintf(os.Stderr, "the model%s in %s %s\n", of, cli.Printable(to), becomes)
}

// plotFile shows how the training went.
const plotFile = "training.svg"

// save writes the model and its plot, to gs:// by way of a folder of its own.
func save(ctx context.Context, to string, w *model.Weights, meta *model.Metadata) error {
	st, err := store.For(ctx, to)
	if err != nil {
		return err
	}
	picture, err := plotEpochs(meta.Epochs)
	if err != nil {
		return err
	}
	if !store.Remote(to) {
		if err := model.Save(to, w, meta); err != nil {
			return store.WriteError(to, err)
		}
		return st.Write(context.WithoutCancel(ctx), store.Join(to, plotFile), picture) // an interrupt comes too late
	}
	dir, err := os.MkdirTemp("", "linnet-")
	if err != nil {
		return fmt.Errorf("train: no folder for temporary files: %w; set TMPDIR to a folder that can be written to", err)
	}
	defer os.RemoveAll(dir)
	if err := model.Save(dir, w, meta); err != nil {
		return store.WriteError(dir, err)
	}
	if err := st.Write(ctx, store.Join(to, plotFile), picture); err != nil {
		return err
	}
	// config.json goes first and comes last, as in model.Save. From here on an earlier
	// model is no more, so that an interrupt comes too late.
	ctx = context.WithoutCancel(ctx)
	const config = "config.json"
	if err := st.Delete(ctx, store.Join(to, config)); err != nil {
		return err
	}
	for _, name := range []string{"weights.safetensors", "metadata.json", config} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := st.Write(ctx, store.Join(to, name), data); err != nil {
			return err
		}
	}
	return nil
}
