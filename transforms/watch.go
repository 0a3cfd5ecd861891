package transforms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/sdf"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"

	"github.com/linnet-ml/linnet/transforms/input"
)

// Watch is an unbounded PCollection<[]byte>: the address of every document of
// set, those that come later included. A document is passed on when its size,
// time and who may read it have stood still for one interval, and again each time
// that they changed and stood still. Its event time is that of the look that took
// it, which within a worker does not go back with the clock, in the global window.
//
// What was passed on is remembered in the worker's memory, some 60 bytes a
// document. A worker that starts anew passes every document on again, and Read
// skips those that are done. A document that Read could not read because of a
// transient error, or for lack of a permission on gs://, is passed on again, after
// ever longer pauses, where Read runs in the same process. The runner must stream:
// direct does not.
//
// It goes on until Stop of ProgressOf(opts.Run) in its process, or until the job is
// cancelled. On a runner elsewhere set opts.Began, or it waits in its bundles, each a
// second. On prism in the process that is the context of beam.Run, which then fails,
// and which wants a cancel: at its deadline prism panics.
func Watch(s beam.Scope, opts Options, set *input.Set, interval time.Duration) beam.PCollection {
	s = s.Scope("linnet.Watch")
	if interval <= 0 {
		panic("transforms: Watch: the interval must be above 0")
	}
	fn := &watchFn{Run: opts.Run, Number: watchNumber.Add(1), Interval: interval, Waits: opts.Began == 0}
	return beam.Reshuffle(s, beam.ParDo(s, fn, beam.Create(s, encode("Watch", set))))
}

// watchFn is a splittable DoFn over an input.Set, as JSON. Its restriction
// counts the looks at the set; between two of them it hands back to the runner,
// which may write a checkpoint there.
type watchFn struct {
	Run      string
	Number   int64 // tells it from other watches of the run
	Interval time.Duration
	Waits    bool // here, not by handing back for a time: see ProcessElement
}

// looks is a restriction: looks number Next, Next+1, … below End.
type looks struct{ Next, End int64 }

func (*watchFn) CreateInitialRestriction([]byte) looks          { return looks{0, end} }
func (*watchFn) SplitRestriction(_ []byte, all looks) []looks   { return []looks{all} }
func (*watchFn) RestrictionSize([]byte, looks) float64          { return 1 }
func (*watchFn) CreateTracker(l looks) *lookTracker             { return &lookTracker{left: l} }
func (*watchFn) TruncateRestriction(*lookTracker, []byte) looks { return looks{} } // a drain is the end
func (*watchFn) CreateWatermarkEstimator() *lookMarks           { return new(lookMarks) }

// stopEvery is how often a watch in the process asks whether it is to stop.
const stopEvery = time.Second

func (f *watchFn) ProcessElement(ctx context.Context, marks *lookMarks, tracker *lookTracker, encoded []byte, emit func(beam.EventTime, []byte)) (sdf.ProcessContinuation, error) {
	p := ProgressOf(f.Run)
	w := f.watched()
	w.mu.Lock()
	defer w.mu.Unlock()
	// Event times have no more than milliseconds, and do not go back with the clock: what
	// comes behind the watermark is late, and a window after this may drop it.
	if now := time.Now().Truncate(time.Millisecond); now.After(w.at) {
		w.at = now
	}
	marks.update(w.at)
	if p.Stopped() {
		tracker.TryClaim(end)
		return sdf.StopProcessing(), nil
	}
	number := tracker.left.Next
	if !w.due(f.Interval) {
		pause := min(f.Interval, stopEvery)
		if f.Waits { // prism waits by the clock: where that was set back, it never comes again
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = 0
		}
		return sdf.ResumeProcessingIn(pause), nil
	}
	if !tracker.TryClaim(number) {
		return sdf.StopProcessing(), nil
	}
	set := new(input.Set)
	if err := json.Unmarshal(encoded, set); err != nil {
		return sdf.StopProcessing(), p.fail("watch", err)
	}
	t := mtime.FromTime(w.at)
	failed, err := w.look(ctx, set, number, f.Interval, func(file input.File) {
		if !p.Stopped() {
			emit(t, []byte(file.URI))
		}
	})
	if w.newFailure(failed) && err == nil {
		log.Warnf(ctx, "linnet: watch: %v", failed)
	}
	pause := f.Interval // not a second: Flink's runner (Beam before 2.76) keeps each for good
	if f.Waits {
		pause = 0
	}
	return sdf.ResumeProcessingIn(pause), p.fail("watch", err)
}

var watchNumber atomic.Int64

// watched is what a process remembers of the files that a Watch of a run watches.
//
// It may outlive the bundle that it served: a bundle fails, or a whole job goes
// back to a checkpoint, and the process goes on. So it keeps which look took a
// file: where look n comes once more, the runner has what the looks before n
// emitted, and nothing of n and later ones.
type watched struct {
	mu          sync.Mutex
	begin       time.Time
	at          time.Time     // the event time
	ended       time.Duration // when the last look did, since begin; times are monotonic
	failed      int           // looks in a row
	lastFailure string        // of the previous look: what was wrong
	seed        maphash.Seed
	files       map[uint64]sighting // by the hash of the address
	number      int64               // of the last look, -1 before
	looks       int64               // of this process: it goes back with no job
	lastGood    int64               // the last of these that did not fail
	leaveOut    [][]byte            // folders of other runs' outputs that came since
	unread      unread
}

type sighting struct {
	fingerprint uint64        // hash of size, time and access
	since       time.Duration // when the file was first seen so
	taken       int64         // the number of the look that passed it on so, or never
	look        int64         // the last of the process's looks that saw it so
}

const never = math.MaxInt64

var watches sync.Map // Options.Run and number of the Watch → *watched

func (f *watchFn) watched() *watched {
	w, _ := watches.LoadOrStore([2]any{f.Run, f.Number}, newWatched())
	return w.(*watched)
}

func newWatched() *watched {
	return &watched{begin: time.Now(), ended: -1, number: -1, seed: maphash.MakeSeed(), files: map[uint64]sighting{}, unread: unread{tries: map[string]int{}}}
}

// unread is what a watch is to pass on again.
type unread struct {
	mu    sync.Mutex // not watched's: a look holds that while what it passes on may be read
	uris  []string
	tries map[string]int // in vain, of files as they are
}

// watchAgain has the watches of a run in this process pass a document on once more. It
// reports whether one did so before, with the file as it is.
func watchAgain(run, uri string) (before bool) {
	watches.Range(func(key, value any) bool {
		if key.([2]any)[0] == any(run) {
			u := &value.(*watched).unread
			u.mu.Lock()
			defer u.mu.Unlock()
			u.uris = append(u.uris, uri)
			u.tries[uri]++
			before = before || u.tries[uri] > 1
		}
		return true
	})
	return before
}

// maxPause is the longest pause between two tries of a document that cannot be read.
const maxPause = 10 * time.Minute

// again takes note of the documents that could not be read: each stands still for a
// second, two, four and so on more before it is passed on again.
func (w *watched) again() {
	w.unread.mu.Lock()
	defer w.unread.mu.Unlock()
	for _, uri := range w.unread.uris {
		key, tries := maphash.String(w.seed, uri), w.unread.tries[uri] // none: it changed since
		if s, known := w.files[key]; known && tries > 0 {
			s.since, s.taken = time.Since(w.begin)+min(time.Second<<min(tries-1, 20), maxPause), never
			w.files[key] = s
		}
	}
	w.unread.uris = nil
}

// back takes note that the runner has nothing of what look number and later ones took.
func (w *watched) back(number int64) {
	for key, s := range w.files {
		if s.taken >= number {
			s.taken = never
			w.files[key] = s
		}
	}
}

// forget begins anew with a file that changed.
func (u *unread) forget(uri string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.tries, uri)
}

// due reports whether an interval has gone by since the last look.
func (w *watched) due(interval time.Duration) bool {
	return w.ended < 0 || time.Since(w.begin)-w.ended >= interval
}

// newFailure reports whether something is wrong that was not at the previous look: a
// watch may go on for days, and is to log it once.
func (w *watched) newFailure(failed error) bool {
	before := w.lastFailure
	w.lastFailure = ""
	if failed != nil {
		w.lastFailure = failed.Error()
	}
	return w.lastFailure != "" && w.lastFailure != before
}

// maxFailedLooks is how many looks in a row may fail before the run does.
const maxFailedLooks = 10

// look lists the set once and takes what has stood still. Where the listing
// fails, as storage does at times, failed says why and the next look goes on;
// err is for the run.
func (w *watched) look(ctx context.Context, set *input.Set, number int64, interval time.Duration, take func(input.File)) (failed, err error) {
	begin := time.Since(w.begin)
	var passedOver error
	if number <= w.number {
		w.back(number)
	}
	w.number = number
	w.looks++
	w.again()
	set.Not = append(set.Not, w.leaveOut...)
	failed = set.WalkOn(ctx, func(file input.File) error {
		key := maphash.String(w.seed, file.URI)
		fingerprint := maphash.Comparable(w.seed, [5]int64{file.Size, file.Modified.UnixNano(), int64(file.Access[0]), int64(file.Access[1]), int64(file.Access[2])})
		s, known := w.files[key]
		if !known || s.fingerprint != fingerprint {
			s = sighting{fingerprint: fingerprint, since: time.Since(w.begin), taken: never}
			w.unread.forget(file.URI)
		}
		// Only a look that did not fail is sure to have seen all that LeaveOut tells by.
		if s.taken == never && begin-s.since >= interval && s.look <= w.lastGood {
			s.taken = number
			take(file)
		}
		s.look = w.looks
		w.files[key] = s
		return nil
	}, func(err error) { passedOver = err })
	w.ended = time.Since(w.begin)
	if failed != nil {
		w.failed++
		if ctx.Err() != nil || w.failed >= maxFailedLooks {
			return nil, failed
		}
		return fmt.Errorf("%w; looking again in %v", failed, interval), nil
	}
	w.failed = 0
	w.lastGood = w.looks
	maps.DeleteFunc(w.files, func(_ uint64, s sighting) bool { return s.look != w.looks })
	w.unread.mu.Lock()
	maps.DeleteFunc(w.unread.tries, func(uri string, _ int) bool {
		_, known := w.files[maphash.String(w.seed, uri)]
		return !known
	})
	w.unread.mu.Unlock()
	// A run's manifest comes before its outputs, and nothing is taken at first sight.
	known := len(set.Not)
	if other := set.LeaveOut(); other != "" { // once: twins are told of again
		w.leaveOut = append(w.leaveOut, set.Not[known:]...)
		passedOver = errors.New(other)
	}
	return passedOver, nil
}

// lookTracker tracks looks. It is split where the DoFn hands back, and nowhere
// else: two watches of one set would do everything twice.
type lookTracker struct {
	mu   sync.Mutex
	left looks // not claimed yet
}

// end is the position that a watch claims to stop.
const end = int64(math.MaxInt64)

func (t *lookTracker) TryClaim(position any) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	number := position.(int64)
	if number >= t.left.End {
		t.left.Next = t.left.End
		return false
	}
	t.left.Next = number + 1
	return true
}

func (t *lookTracker) TrySplit(fraction float64) (primary, residual any, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fraction > 0 || t.left.Next >= t.left.End {
		return t.left, nil, nil
	}
	rest := t.left
	t.left.End = t.left.Next
	return t.left, rest, nil
}

func (t *lookTracker) GetError() error { return nil }

func (t *lookTracker) GetProgress() (done, remaining float64) { return 0, 1 }

func (t *lookTracker) IsDone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left.Next >= t.left.End
}

func (t *lookTracker) GetRestriction() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left
}

// IsBounded implements sdf.BoundableRTracker.
func (t *lookTracker) IsBounded() bool { return false }

// lookMarks is an sdf.WatermarkEstimator, the time of the last look. Unlike Beam's own it may
// be asked while a look sets it, as a runner that splits does.
type lookMarks struct {
	mu sync.Mutex
	at time.Time
}

func (m *lookMarks) CurrentWatermark() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *lookMarks) update(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = at
}

func init() {
	beam.RegisterDoFn(&watchFn{})
	beam.RegisterType(reflect.TypeFor[looks]())
}
