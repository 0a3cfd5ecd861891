package transforms

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Planned is what a run would do.
type Planned struct {
	Done      int64 // documents
	Rejected  int64 // documents that cannot be read, or not written over
	Documents int64 // to label
	Lines     int64 // of these
	Time      time.Duration
	Example   Rejection // the first, if any
}

// Plan reads every document of set as Read would, and labels the first ones,
// for at most the time of trial, to tell how long reading and labelling all of
// them takes on the cores of this machine. All with an output that no record tells
// of are labelled, for that may be what a run would write. It writes nothing, and
// fails where Begin does.
func Plan(ctx context.Context, opts Options, set *input.Set, trial time.Duration) (*Planned, error) {
	m, err := LoadModel(ctx, opts)
	if err != nil {
		return nil, err
	}
	read := &readFn{Options: opts}
	read.Setup()
	write := &writeFn{Options: opts}
	write.Options.unwritten = true
	if err := write.Setup(); err != nil {
		return nil, err
	}
	if opts.Output != "" {
		if err := opts.Check(ctx, set); err != nil {
			return nil, err
		}
		st, err := opts.outputStore(ctx)
		if err != nil {
			return nil, err
		}
		again, err := HasRecords(ctx, string(opts.Output), DoneFolder)
		if err != nil {
			return nil, err
		}
		read.stage.do = func(ctx context.Context, w *wanted) (*Document, *Rejection, error) {
			d, r, err := read.read(ctx, w)
			if d == nil || d == done {
				return d, r, err
			}
			r, err = opts.unnameable(ctx, st, d)
			if opts.Force || r != nil || err != nil {
				return d, r, err
			}
			var before *Done
			if again {
				if before, r, err = opts.checkOverwrite(ctx, st, d); r != nil || err != nil {
					return d, r, err
				}
			}
			d.unrecorded, err = opts.unrecorded(ctx, string(d.Name), before)
			return d, nil, err
		}
	}
	read.stage.begin()
	predict := &predictFn{Options: opts, model: m, other: m.other()}
	plan := new(Planned)
	var tried int64 // lines
	var took time.Duration
	reject := func(_ beam.EventTime, r Rejection) {
		if plan.Rejected == 0 {
			plan.Example = r
		}
		plan.Rejected++
	}
	emit := func(_ beam.EventTime, d *Document) {
		if d == done {
			plan.Done++
			return
		}
		if r := predict.fits(d); r != nil {
			reject(mtime.ZeroTimestamp, *r)
			return
		}
		if e := opts.misplaced(string(d.Name)); e != nil && opts.Output != "" {
			reject(mtime.ZeroTimestamp, *d.reject("write", e))
			return
		}
		var outs []scored
		if err == nil && len(d.Rows) > 0 && (d.unrecorded || took < trial) {
			trying := time.Now()
			e := Example{Document: *d, InputSize: m.Config.InputSize}
			e.featurize(m.deferred(&opts), 1)
			outs, err = scorerHandler{model: m}.Run(ctx, predict.items(&e))
			took += time.Since(trying)
			tried += int64(len(d.Rows))
		}
		if d.unrecorded && err == nil { // it may be what the run would write
			var r *Rejection
			var l Labelled
			if l, err = predict.decode(d, outs); err == nil {
				_, r, err = write.write(ctx, l)
			}
			if r != nil {
				reject(mtime.ZeroTimestamp, *r)
				return
			}
		}
		plan.Documents++
		plan.Lines += int64(len(yedda.Inked(d.Text, d.Rows)))
	}
	begin := time.Now()
	walked := set.Walk(ctx, func(f input.File) error {
		w := &wanted{[]byte(f.URI), max(f.Size, 1)}
		if e := read.stage.push(ctx, mtime.ZeroTimestamp, w, w.size, emit, reject); e != nil {
			return e
		}
		return err
	})
	if walked != nil {
		return nil, walked
	}
	if e := read.stage.drain(ctx, emit, reject); e != nil {
		return nil, e
	}
	plan.Time = time.Since(begin) - took
	if tried > 0 {
		cores := float64(runtime.GOMAXPROCS(0))
		plan.Time += time.Duration(float64(took) * float64(plan.Lines) / float64(tried) / cores)
	}
	return plan, err
}

// unnameable rejects a document whose outputs, or whose record, the local disk cannot
// call by their names, or has folders in the place of. Their own folders need not be
// there yet.
func (o *Options) unnameable(ctx context.Context, st store.Store, d *Document) (*Rejection, error) {
	there := string(o.Output)
	if store.Remote(there) {
		return nil, nil
	}
	for _, err := os.Stat(there); err != nil && there != filepath.Dir(there); _, err = os.Stat(there) {
		there = filepath.Dir(there)
	}
	for _, out := range append(o.outputs(string(d.Name)), path.Join(DoneFolder, string(d.Name)+".json")) {
		for i, file := range []string{store.Join(string(o.Output), out), store.Join(there, path.Base(out))} {
			if _, err := st.Stat(ctx, file); errors.Is(err, store.ErrName) || i == 0 && badName(err) {
				return d.reject("write", fmt.Errorf("%w; rename the document", err)), ctx.Err()
			}
		}
	}
	return nil, ctx.Err()
}

// unrecorded reports whether one of a document's outputs is there, and r, the record of
// it if there is one, does not tell of that.
func (o *Options) unrecorded(ctx context.Context, name string, r *Done) (bool, error) {
	var sums map[string]uint32
	if r != nil {
		sums = r.sums()
	}
	for _, out := range o.outputs(name) {
		if _, ok := sums[inJSON(out)]; ok {
			continue
		}
		there, err := exists(ctx, store.Join(string(o.Output), out))
		switch {
		case there, errors.Is(err, store.ErrNotFile):
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}
