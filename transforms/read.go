package transforms

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Read is PCollection<[]byte> of addresses to PCollection<Document>, and the
// Rejections of what could not be read.
//
// A document is read whole. One whose name ends in .ann is YEDDA, and its
// markup becomes spans; all others are text as it stands, or with
// Options.Annotated that of a pair of brat's. With Options.Output,
// a document whose record says that the same bytes were labelled by the same
// model under the same settings is passed over, unless Options.Force. Which model
// and settings these are, Options.ModelHash and Options.Settings alone say: where
// they stay empty, another ModelURI or LabelSet makes nothing stale. What this run has
// written counts, too, when a runner tries a bundle again (see the package comment).
func Read(s beam.Scope, opts Options, paths beam.PCollection) (docs, rejected beam.PCollection) {
	s = s.Scope("linnet.Read")
	global("Read", paths)
	return beam.ParDo2(s, &readFn{Options: opts}, paths)
}

// wanted is a document to read, and the bytes that it counts for.
type wanted struct {
	uri  []byte
	size int64
}

type readFn struct {
	Options  Options
	stage    stage[*wanted, Document]
	progress *Progress
	named    map[string]bool // by a counter: a foreign document
	folders  sync.Map        // name → whether it was rejected, under Options.RetryRejected
}

var (
	skippedCounter  = beam.NewCounter(Namespace, "skipped")
	warningsCounter = beam.NewCounter(Namespace, "warnings")
)

// Counters of Read, in Namespace: documents that input.Foreign finds, of Latin letters
// and of others, with one more counter for the first of each DoFn instance.
const (
	ForeignCounter       = "foreign"
	ForeignScriptCounter = "foreign_script"
	ForeignExample       = ": " // behind either, and then its URI, escaped by url.PathEscape
)

func (f *readFn) Setup() {
	environment := os.Getenv("GOMEMLIMIT") != "" || debug.SetMemoryLimit(-1) != math.MaxInt64 // it may be off
	if limit := f.Options.memoryLimit(); limit > 0 && (f.Options.MemoryLimit > 0 || !environment) {
		debug.SetMemoryLimit(limit)
	}
	f.progress = ProgressOf(f.Options.Run)
	f.named = map[string]bool{}
	f.stage = newStage("read", f.progress, f.Options.inFlight()/textShare, f.read, pipe.NewIO)
}

func (f *readFn) StartBundle(emit func(beam.EventTime, Document), reject func(beam.EventTime, Rejection)) {
	f.stage.begin()
}

func (f *readFn) ProcessElement(ctx context.Context, t beam.EventTime, uri []byte, emit func(beam.EventTime, Document), reject func(beam.EventTime, Rejection)) error {
	w := &wanted{bytes.Clone(uri), f.size(string(uri))}
	return f.stage.push(ctx, t, w, w.size, f.emitter(ctx, emit), f.rejecter(reject))
}

func (f *readFn) FinishBundle(ctx context.Context, emit func(beam.EventTime, Document), reject func(beam.EventTime, Rejection)) error {
	return f.stage.drain(ctx, f.emitter(ctx, emit), f.rejecter(reject))
}

// textShare is how much less a document is in flight as text than with its
// features: Read holds about as many documents as the stages behind it.
const textShare = 8

// size is what a document counts for while it is in flight: its bytes where a
// look at the file tells them, and otherwise a guess, which read puts right.
func (f *readFn) size(uri string) int64 {
	const unknown, least = 256 << 10, 4 << 10
	info, err := os.Stat(uri) // fails at once for gs://
	if err != nil {
		return unknown
	}
	return max(least, min(info.Size(), f.Options.maxDocumentBytes()))
}

func (f *readFn) emitter(ctx context.Context, emit func(beam.EventTime, Document)) func(beam.EventTime, *Document) {
	return func(t beam.EventTime, d *Document) {
		f.progress.Tried.Add(1)
		if d == done {
			skippedCounter.Inc(ctx, 1)
			f.progress.Skipped.Add(1)
			return
		}
		f.progress.Bytes.Add(int64(len(d.Text)))
		warningsCounter.Inc(ctx, int64(d.Warnings))
		if d.foreign != "" {
			beam.NewCounter(Namespace, d.foreign).Inc(ctx, 1)
			if !f.named[d.foreign] {
				f.named[d.foreign] = true
				beam.NewCounter(Namespace, d.foreign+ForeignExample+url.PathEscape(string(d.URI))).Inc(ctx, 1)
			}
		}
		emit(t, *d)
	}
}

func (f *readFn) rejecter(reject func(beam.EventTime, Rejection)) func(beam.EventTime, Rejection) {
	return func(t beam.EventTime, r Rejection) {
		f.progress.Tried.Add(1)
		reject(t, r)
	}
}

// done stands for a document that was labelled before.
var done = new(Document)

// read reads one document. Where its record says so it returns done; where the
// run is to stop, or another run's rejections are wanted, nothing at all. One that
// is larger than it counts for is left for when there is room.
func (f *readFn) read(ctx context.Context, w *wanted) (*Document, *Rejection, error) {
	o, uri := &f.Options, string(w.uri)
	if f.progress.Stopped() {
		return nil, nil, nil
	}
	d := &Document{URI: w.uri, Name: []byte(input.Name(string(o.Base), uri))}
	if o.Output != "" && o.RetryRejected {
		was, err := f.wasRejected(ctx, uri, string(d.Name))
		if err != nil {
			return nil, nil, err
		}
		if !was {
			f.progress.PassedOver.Add(1)
			return nil, nil, nil
		}
	}
	limit := o.maxDocumentBytes()
	data, err := f.readWithRetries(ctx, uri, min(w.size, limit))
	if large, ok := errors.AsType[*store.TooLarge](err); ok && w.size < limit {
		w.size = limit
		if large.Size >= 0 {
			w.size = min(large.Size, limit)
		}
		return nil, nil, pipe.Larger(w.size)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		r := d.reject("read", advise(err))
		r.SHA256 = nil
		if transient(err) || store.Remote(uri) && errors.Is(err, fs.ErrPermission) { // there a listing does not tell who may read
			r.Again = watchAgain(o.Run, uri)
		}
		return nil, r, nil
	}
	d.SHA256 = sha256.Sum256(data)
	if o.Output != "" && !o.Force {
		was, err := o.isDone(ctx, d)
		if err != nil {
			return nil, nil, err
		}
		if was {
			return done, nil, nil
		}
	}
	return f.parse(ctx, d, data)
}

// parse makes d of data, which was read for it.
func (f *readFn) parse(ctx context.Context, d *Document, data []byte) (*Document, *Rejection, error) {
	o, uri := &f.Options, string(d.URI)
	parsed, at, err := input.Parse(ctx, uri, data, o.Annotated, o.maxDocumentBytes())
	d.Name = []byte(input.Name(string(o.Base), at))
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, d.reject("read", advise(err)), nil
	}
	d.Text, d.Spans, d.Warnings = parsed.Text, parsed.Spans, parsed.NumWarnings
	for _, w := range parsed.Warnings {
		logf(ctx, o.Verbosity, 3, "%s:%d: %s", uri, w.Line, w.What)
	}
	if foreign, latin := input.Foreign(d.Text); foreign {
		if d.foreign = ForeignScriptCounter; latin {
			d.foreign = ForeignCounter
		}
		logf(ctx, o.Verbosity, 3, "%s: most characters beyond ASCII are no UTF-8", uri)
	}
	d.Rows = yedda.Rows(d.Text)
	return d, nil, nil
}

// wasRejected reports whether there is a record of the document's rejection, or of that
// of a folder above it, which could not be listed, or whether it is itself such a folder,
// or a link to what may be one, whose documents may have been rejected.
func (f *readFn) wasRejected(ctx context.Context, uri, name string) (bool, error) {
	o := &f.Options
	was, err := o.wasRejected(ctx, name)
	if was || err != nil || store.Remote(string(o.Base)) { // whose folders are names alone
		return was, err
	}
	for dir := name; dir != ""; {
		if dir = path.Dir(dir); dir == "." {
			dir = ""
		}
		folder := cmp.Or(dir, input.Name(string(o.Base), string(o.Base)))
		known, ok := f.folders.Load(folder)
		if !ok {
			if known, err = o.wasRejected(ctx, folder); err != nil {
				return false, err
			}
			f.folders.Store(folder, known)
		}
		if known.(bool) {
			return true, nil
		}
	}
	info, err := os.Stat(uri)
	return err == nil && info.IsDir() || err != nil && !errors.Is(err, fs.ErrNotExist), nil
}

// readWithRetries reads a document of at most limit bytes, and tries again after a
// pause unless the error is permanent.
func (f *readFn) readWithRetries(ctx context.Context, uri string, limit int64) (data []byte, err error) {
	tries, pause := cmp.Or(max(f.Options.Tries, 0), 3), cmp.Or(max(f.Options.Pause, 0), 100*time.Millisecond)
	st, err := store.For(ctx, uri)
	if err != nil {
		return nil, err
	}
	for try := range tries {
		if try > 0 {
			select {
			case <-time.After(pause << (try - 1)):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		data, err = st.Read(ctx, uri, limit)
		if err == nil || permanent(err) || ctx.Err() != nil {
			break
		}
	}
	return data, err
}

// permanent reports whether another try cannot help.
func permanent(err error) bool {
	return errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrName) || errors.Is(err, store.ErrNotFile) || errors.Is(err, fs.ErrPermission)
}

// transient reports whether an error may be gone later, without a change of the document
// that a watch would see.
func transient(err error) bool {
	return !permanent(err) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrChanged)
}

// advise adds what to do about a document that cannot be read.
func advise(err error) error {
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return fmt.Errorf("%w; raise --max_document_bytes or split the document", err)
	case errors.Is(err, store.ErrName):
		return fmt.Errorf("%w; rename it, or move it to a folder of a shorter path", err)
	case errors.Is(err, store.ErrFolder): // a listing hands on one that it could not read
		return fmt.Errorf("%w: it could not be listed when its documents were looked for, or took a file's place; run again", err)
	case errors.Is(err, store.ErrNotFile):
		return fmt.Errorf("%w; name regular files, or leave it out", err)
	case errors.Is(err, store.ErrChanged):
		return fmt.Errorf("%w; run again with --retry_rejected when it is complete", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; it went away, or it is a link to nothing", err)
	}
	return err
}

func init() { beam.RegisterDoFn(&readFn{}) }
