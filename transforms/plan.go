package transforms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"

	"github.com/linnet-ml/linnet/transforms/inference"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Planned is what a run would do.
type Planned struct {
	Done      int64         // documents
	Rejected  int64         // documents that cannot be read, or not written over
	Documents int64         // to label
	Lines     int64         // of these
	Time      time.Duration // that reading all and labelling these takes on this machine
	Example   Rejection     // the first, if any
}

// Plan reads every document of set as Read would, and labels the first ones,
// until that has taken the time of limit, to tell how long reading and labelling all of
// them takes on the cores of this machine. All with an output that no record tells
// of are labelled, for that may be what a run would write. It writes nothing, and
// fails where Begin does.
func Plan(ctx context.Context, opts Options, set *input.Set, limit time.Duration) (*Planned, error) {
	m, err := LoadModel(ctx, opts)
	if err != nil {
		return nil, err
	}
	opts.unwritten = true
	read := &readFn{Options: opts}
	read.Setup()
	one := inference.NewEngine(scorerHandler{model: m}, inference.Options{MaxBatchSize: math.MaxInt, Concurrency: 1})
	try := &trial{predict: &predictFn{Options: opts, model: m, other: m.other(), queue: inference.NewQueue[job[Document]](one)}, write: &writeFn{Options: opts}, limit: limit}
	if err := try.write.Setup(); err != nil {
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
			r, err = opts.checkOutputs(ctx, st, d, again)
			return d, r, err
		}
	}
	read.stage.begin()
	plan := new(Planned)
	reject := func(_ beam.EventTime, r Rejection) {
		if plan.Rejected == 0 {
			plan.Example = r
		}
		plan.Rejected++
	}
	emit := func(t beam.EventTime, d *Document) {
		if d == done {
			plan.Done++
			return
		}
		if err != nil { // which Plan returns
			return
		}
		var r *Rejection
		if r, err = try.run(ctx, d); r != nil {
			reject(t, *r)
			return
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
	plan.Time = time.Since(begin) - try.took
	if try.lines > 0 {
		cores := float64(runtime.GOMAXPROCS(0))
		plan.Time += time.Duration(float64(try.took) * float64(plan.Lines) / float64(try.lines) / cores)
	}
	return plan, err
}

// trial labels documents of a Plan, and counts how many lines that were in what time.
type trial struct {
	predict *predictFn
	write   *writeFn // writes nothing
	limit   time.Duration

	lines int64
	took  time.Duration
}

// run labels d where there is time left, or an output that it may be, and rejects what a
// run would.
func (t *trial) run(ctx context.Context, d *Document) (*Rejection, error) {
	if r := t.predict.fits(d); r != nil {
		return r, nil
	}
	opts, m := &t.predict.Options, t.predict.model
	if err := opts.misplaced(string(d.Name)); err != nil && opts.Output != "" {
		return d.reject("write", err), nil
	}
	var outs []scored
	var err error
	if len(d.Rows) > 0 && (d.unrecorded || t.took < t.limit) {
		begin := time.Now()
		e := Example{Document: *d, InputSize: m.Config.InputSize}
		e.featurize(m.deferred(opts), 1)
		outs, err = t.score(ctx, t.predict.items(&e))
		t.took += time.Since(begin)
		t.lines += int64(len(d.Rows))
	}
	if err != nil || !d.unrecorded {
		return nil, err
	}
	l, err := t.predict.decode(d, outs)
	if err != nil {
		return nil, err
	}
	_, r, err := t.write.write(ctx, l)
	return r, err
}

// score scores a document's windows at once, or in halves where the device has no room.
func (t *trial) score(ctx context.Context, items []windowItem) (outs []scored, err error) {
	take := func(_ job[Document], o []scored, err error) error {
		outs = o
		return err
	}
	if err = t.predict.queue.Push(ctx, job[Document]{}, items, 0, take); err == nil {
		err = t.predict.queue.Drain(ctx, take)
	}
	return outs, err
}

// checkOutputs rejects d where its outputs cannot be written, as far as their places show;
// with again there may be a record of them.
func (o *Options) checkOutputs(ctx context.Context, st store.Store, d *Document, again bool) (*Rejection, error) {
	r, err := o.unnameable(ctx, st, d)
	if o.Force || r != nil || err != nil {
		return r, err
	}
	var before *Done
	if again {
		if before, r, err = o.checkOverwrite(ctx, st, d); r != nil || err != nil {
			return r, err
		}
	}
	d.unrecorded, err = o.unrecorded(ctx, string(d.Name), before)
	return nil, err
}

// unnameable rejects a document whose outputs, or whose record, gs:// or the local disk
// cannot call by their names, or the disk has folders in the place of. Their own folders
// need not be there yet, and Windows does not tell that from a file in their place.
func (o *Options) unnameable(ctx context.Context, st store.Store, d *Document) (*Rejection, error) {
	there, outs := string(o.Output), append(o.outputs(string(d.Name)), path.Join(DoneFolder, string(d.Name)+".json"))
	if store.Remote(there) {
		for _, out := range outs {
			if _, err := store.For(ctx, store.Join(there, out)); errors.Is(err, store.ErrName) {
				return d.reject("write", fmt.Errorf("%w; rename the document", err)), nil
			}
		}
		return nil, nil
	}
	for _, err := os.Stat(there); err != nil && there != filepath.Dir(there); _, err = os.Stat(there) {
		there = filepath.Dir(there)
	}
	for _, out := range outs {
		for i, file := range []string{store.Join(string(o.Output), out), store.Join(there, path.Base(out))} {
			if _, err := st.Stat(ctx, file); errors.Is(err, store.ErrName) || i == 0 && badName(err) && !errors.Is(err, store.ErrNotExist) {
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
