package transforms

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/store"
)

// ErrForeign says that an output folder holds what no run wrote.
var ErrForeign = errors.New("no run of predict wrote it")

// Begin makes the output folder one of predict's, by a manifest. It changes nothing
// and fails where something lies in the place of a run's own folders and files;
// and with ErrForeign where the folder was none of predict's yet and has a file in
// the place of an output of set, or an index.html of somebody's that of review
// pages, unless Options.Force: that may be somebody's own annotation.
func (o *Options) Begin(ctx context.Context, set *input.Set) error {
	begun, err := o.begun(ctx, set)
	if err != nil || begun && !o.Force {
		return err
	}
	st, err := o.outputStore(ctx)
	if err != nil {
		return err
	}
	if o.Force && slices.Contains(o.Formats, "html") { // writeIndex would leave somebody's
		err = st.Delete(ctx, store.Join(string(o.Output), IndexFile))
	}
	if begun || err != nil {
		return err
	}
	return st.Write(ctx, store.Join(string(o.Output), ManifestFile), nil)
}

// Check fails where Begin does, and writes nothing.
func (o *Options) Check(ctx context.Context, set *input.Set) error {
	_, err := o.begun(ctx, set)
	return store.FolderError(err)
}

// begun reports whether the output folder has a manifest, and fails where Begin does.
func (o *Options) begun(ctx context.Context, set *input.Set) (bool, error) {
	if err := o.checkPlaces(ctx); err != nil {
		return false, err
	}
	if err := o.checkIndex(ctx); err != nil {
		return false, err
	}
	begun, err := exists(ctx, store.Join(string(o.Output), ManifestFile))
	if begun || err != nil && !noRecord(err) {
		return begun, err
	}
	for _, folder := range []string{DoneFolder, RejectedFolder} { // of a run that never came to its manifest
		if found, err := HasRecords(ctx, string(o.Output), folder); found || err != nil {
			return false, err
		}
	}
	if o.Force {
		return false, nil
	}
	foreign := o.foreign(ctx, set)
	if errors.Is(foreign, ErrForeign) { // unless a run that began meanwhile wrote it
		if begun, err := exists(ctx, store.Join(string(o.Output), ManifestFile)); begun || err != nil {
			return begun, err
		}
	}
	return false, foreign
}

// checkPlaces says which of the run's own folders in Options.Output is none, and
// which of its files is a folder: every document, or the end of the run, would fail.
func (o *Options) checkPlaces(ctx context.Context) error {
	if store.Remote(string(o.Output)) { // a name may be both
		return nil
	}
	st, err := o.outputStore(ctx)
	if err != nil {
		return err
	}
	folders := []string{DoneFolder, RejectedFolder, TempFolder}
	for _, out := range o.Outputs() {
		if out.Folder != "" {
			folders = append(folders, out.Folder)
		}
	}
	files := []string{ManifestFile, RejectedFile}
	if slices.Contains(o.Formats, "html") {
		files = append(files, IndexFile)
	}
	for i, name := range slices.Concat(folders, files) {
		path := store.Join(string(o.Output), name)
		there, err := st.Look(ctx, path)
		folder := errors.Is(there.Err, store.ErrFolder)
		file := there.Err == nil || errors.Is(there.Err, store.ErrNotFile) || there.Link && errors.Is(there.Err, store.ErrNotExist) // a link to nothing; a folder may go meanwhile
		switch {
		case err != nil: // it is not there
		case i < len(folders) && file && !folder:
			return fmt.Errorf("transforms: %s: is no folder; move it away, or choose another --output", path)
		case i >= len(folders) && folder:
			return fmt.Errorf("%w; move it away", there.Err)
		}
	}
	return nil
}

// checkIndex fails with ErrForeign where the index of review pages would be written
// over somebody's page.
func (o *Options) checkIndex(ctx context.Context) error {
	if o.Force || !slices.Contains(o.Formats, "html") {
		return nil
	}
	st, err := o.outputStore(ctx)
	if err != nil {
		return err
	}
	there, ours, err := o.standingIndex(ctx, st)
	if there && !ours {
		return o.foreignError(IndexFile, "move it away")
	}
	return err
}

func (o *Options) foreignError(out, remedy string) error {
	return fmt.Errorf("%s is there already, and %w; %s, or take --force to write over it", store.Join(string(o.Output), out), ErrForeign, remedy)
}

// foreign fails with ErrForeign where there is a file in the place of an output of
// set.
func (o *Options) foreign(ctx context.Context, set *input.Set) error {
	free := func(ctx context.Context, out string) (_ struct{}, err error) {
		there, err := exists(ctx, store.Join(string(o.Output), out))
		if there {
			err = o.foreignError(out, "choose another --output")
		}
		return struct{}{}, err
	}
	found, err := anyBelow(ctx, string(o.Output), func(path string) bool { return !reserved(input.Name(string(o.Output), path)) })
	if !found || err != nil {
		return err // nil almost always, and no document needs to be asked for
	}
	asked := pipe.NewIO(gatherBytes, free)
	defer asked.Reset()
	pass := func(_ struct{}, err error) error { return err }
	err = set.WalkOn(ctx, func(f input.File) error {
		for _, out := range o.outputs(f.Name) {
			if err := asked.Push(ctx, out, recordOverhead, pass); err != nil {
				return err
			}
		}
		return nil
	}, func(error) {})
	if err != nil {
		return err
	}
	return asked.Drain(ctx, pass)
}
