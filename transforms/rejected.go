package transforms

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/store"
)

// WriteRejected is PCollection<Rejection>, of which each of the four transforms returned
// one, to no elements: it writes a record of each Rejection and counts it. The launcher
// merges the records (Merge).
// Above Options.MaxRejected it fails the run.
func WriteRejected(s beam.Scope, opts Options, rejected ...beam.PCollection) {
	s = s.Scope("linnet.WriteRejected")
	for _, r := range rejected {
		global("WriteRejected", r)
	}
	if len(rejected) == 0 {
		panic("transforms: WriteRejected: there is no PCollection; give it what the other transforms reject")
	}
	if opts.Output == "" {
		panic("transforms: WriteRejected: Options.Output is empty; name the folder to write to")
	}
	beam.ParDo0(s, &rejectFn{Options: opts}, beam.Flatten(s, rejected...))
}

type rejectFn struct {
	Options  Options
	progress *Progress
	stage    stage[Rejection, struct{}]
}

var rejectedCounter = beam.NewCounter(Namespace, "rejected")

// judgedFrom is the number of documents from which on a process judges the
// share of rejected ones.
const judgedFrom = 100

func (f *rejectFn) Setup() {
	f.progress = ProgressOf(f.Options.Run)
	f.stage = newStage("reject", f.progress, f.Options.inFlight()/4, f.write, pipe.NewIO)
}

func (f *rejectFn) StartBundle() { f.stage.begin() }

func (f *rejectFn) ProcessElement(ctx context.Context, t beam.EventTime, r Rejection) error {
	rejectedCounter.Inc(ctx, 1)
	n := f.progress.Rejected.Load()
	if !r.Again {
		n = f.progress.Rejected.Add(1)
	}
	f.progress.Note(fmt.Sprintf("%s: %s: %s", r.URI, r.Stage, r.Reason))
	logf(ctx, f.Options.Verbosity, 2, "%s: %s: %s", r.URI, r.Stage, r.Reason)
	if err := f.stage.push(ctx, t, r, int64(len(r.Reason)+len(r.URI)+len(r.Name)), ignore, nil); err != nil {
		return err
	}
	seen := max(f.progress.Seen(), f.progress.Tried.Load()) + f.progress.PassedOver.Load() // what is on its way counts as good
	if limit := max(f.Options.MaxRejected, 0); f.Options.MaxRejected != 0 && seen >= judgedFrom && float64(n)/float64(seen) > limit {
		// The error names the records, so they are written first.
		if err := f.stage.drain(ctx, ignore, nil); err != nil {
			return err
		}
		return f.progress.fail("reject", fmt.Errorf("%d of %d documents were rejected, more than --max_rejected=%g; mend what %s names, or raise that; the last: %s: %s",
			n, seen, limit, store.Join(string(f.Options.Output), RejectedFile), r.URI, r.Reason))
	}
	return nil
}

func (f *rejectFn) FinishBundle(ctx context.Context) error {
	return f.stage.drain(ctx, ignore, nil)
}

func (f *rejectFn) Teardown(ctx context.Context) { f.stage.end(ctx) }

func ignore(beam.EventTime, *struct{}) {}

func (f *rejectFn) write(ctx context.Context, r Rejection) (*struct{}, *Rejection, error) {
	o := &f.Options
	st, err := o.outputStore(ctx)
	if err != nil {
		return nil, nil, err
	}
	record := Reject{
		Document: string(r.Name), Bytes: base64Name(r.Name), Input: string(r.URI), InputBytes: base64Name(r.URI), Run: o.Run,
		Stage: r.Stage, Reason: r.Reason, InputSHA256: hex.EncodeToString(r.SHA256),
		Time: time.Now().UTC().Truncate(time.Millisecond),
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // a reason may hold a command
	if err := encoder.Encode(record); err != nil {
		return nil, nil, err
	}
	err = st.Write(ctx, o.rejectedPath(string(r.Name)), data.Bytes())
	if badName(err) { // it is too long, say; its hash never is
		err = st.Write(ctx, o.rejectedPath(hashed(string(r.Name))), data.Bytes())
	}
	return nil, nil, err
}

// Settle ends a run that read all of set: it deletes the records of rejections that
// earlier runs left and that no longer hold. The record of a document outside of set
// stays while the document is there, that of a folder or a link while it cannot be
// read. A nil set is for a run that did not try every document: it deletes only
// records, its own too, of inputs that are gone and of folders that can be read now.
func Settle(ctx context.Context, opts Options, set *input.Set) error {
	st, err := opts.outputStore(ctx)
	if err != nil {
		return err
	}
	type record struct{ uri, path string } // no uri: one to delete
	earlier := map[string][]string{}       // input → records
	records := pipe.NewIO(gatherBytes, func(ctx context.Context, r record) (record, error) {
		if r.uri != "" && stillBad(ctx, r.uri, set != nil) {
			return r, nil
		}
		return record{}, st.Delete(ctx, r.path)
	})
	defer records.Reset()
	keep := func(r record, err error) error {
		if r.uri != "" {
			earlier[r.uri] = append(earlier[r.uri], r.path)
		}
		return err
	}
	err = opts.records(ctx, st, RejectedFolder, func(path string, data []byte) error {
		var r Reject
		if json.Unmarshal(data, &r) != nil || set != nil && r.Run == opts.Run {
			return nil
		}
		return records.Push(ctx, record{nameOf(r.Input, r.InputBytes), path}, recordOverhead, keep)
	})
	if err == nil {
		err = records.Drain(ctx, keep)
	}
	if err != nil || len(earlier) == 0 || set == nil {
		return err
	}
	err = set.Walk(ctx, func(file input.File) error {
		for _, path := range earlier[file.URI] {
			if err := records.Push(ctx, record{path: path}, recordOverhead, keep); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, input.ErrNone) && !errors.Is(err, input.ErrTwins) { // since the run began
		return err
	}
	return records.Drain(ctx, keep)
}

// CountRejected counts the records of rejections that the run left.
func CountRejected(ctx context.Context, opts Options) (n int64, err error) {
	st, err := opts.outputStore(ctx)
	if err != nil {
		return 0, err
	}
	err = opts.records(ctx, st, RejectedFolder, func(_ string, data []byte) error {
		var r Reject
		if json.Unmarshal(data, &r) == nil && r.Run == opts.Run {
			n++
		}
		return nil
	})
	return n, err
}

// stillBad says that a rejected input is there, as far as can be told, and that it cannot
// be read where it is a folder or, where links were tried again, a link.
func stillBad(ctx context.Context, uri string, links bool) bool {
	st, err := store.For(ctx, uri)
	if err != nil {
		return true
	}
	o, err := st.Look(ctx, uri)
	switch {
	case errors.Is(err, store.ErrNotExist), errors.Is(o.Err, store.ErrFolder):
		return false
	case links && o.Link && (o.Err == nil || errors.Is(o.Err, store.ErrNotFile)):
		return input.Text(uri) // one that is no text was rejected for what it may have been
	}
	return true
}

func init() { beam.RegisterDoFn(&rejectFn{}) }
