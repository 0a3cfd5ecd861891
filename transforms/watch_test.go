package transforms

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"pgregory.net/rapid"

	"github.com/linnet-ml/linnet/transforms/input"
)

// TestWatchLooks follows the looks at a folder one by one: what each of them
// takes. An interval of 0 lets a file stand still between any two looks.
func TestWatchLooks(t *testing.T) {
	dir := write(t, map[string]string{"a.txt": "one\n"})
	set := newSet(t, []string{dir}, "")
	w := newWatched()
	at := func(number int64, interval time.Duration, want ...string) {
		t.Helper()
		var got []string
		failed, err := w.look(t.Context(), set, number, interval, func(f input.File) { got = append(got, f.Name) })
		if failed != nil || err != nil {
			t.Fatal(failed, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("look %d takes %q, want %q", number, got, want)
		}
	}
	put := func(name, text string, second int64) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(second, 0)); err != nil {
			t.Fatal(err)
		}
	}
	at(0, 0) // never at first sight
	at(1, time.Hour)
	at(2, 0, "a.txt")
	at(3, 0)
	put("b.txt", "half", 1)
	at(4, 0)
	put("b.txt", "half written", 1) // the size differs
	at(5, 0)
	put("b.txt", "half-written", 2) // the time differs
	at(6, 0)
	at(7, 0, "b.txt")
	put("a.txt", "two\n", 3)
	at(8, 0)
	at(9, 0, "a.txt")
	if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	at(10, 0)
	equal(t, "files remembered", len(w.files), 1)
	put("a.txt", "two\n", 3) // the very one, back again
	at(11, 0)
	at(12, 0, "a.txt")

	// The runner goes back to look 9, whose outputs are lost: a.txt, which look
	// 12 took, is taken again, and b.txt, which look 7 took, is not.
	at(9, 0, "a.txt")
	at(10, 0)
	if err := os.Chmod(filepath.Join(dir, "b.txt"), 0o400); err != nil { // it could not be read, say
		t.Fatal(err)
	}
	at(11, 0)
	at(12, 0, "b.txt")
}

// TestWatchWaits has a watch in the process wait between two looks on its own, after it
// handed back what a look took: prism would wait by the clock, and for ever once that is
// set back. On other runners it has them wait, and wakes once for each look: Flink's keeps
// something of every time that it hands back.
func TestWatchWaits(t *testing.T) {
	for name, waits := range map[string]bool{"here": true, "elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := newSet(t, []string{write(t, map[string]string{"a.txt": "one\n"})}, "")
				f := &watchFn{Run: t.Name(), Interval: 2 * time.Second, Waits: waits}
				defer watches.Delete([2]any{f.Run, f.Number})
				tracker, taken, begin := f.CreateTracker(looks{0, end}), 0, time.Now()
				for range 10 {
					before, was := time.Now(), taken
					next, err := f.ProcessElement(t.Context(), new(lookMarks), tracker, encode("Watch", set), func(beam.EventTime, []byte) { taken++ })
					if err != nil {
						t.Fatal(err)
					}
					waited, left := time.Since(before), next.ResumeDelay()
					if left > 0 == waits || waits && waited > stopEvery || !waits && (waited > 0 || left != f.Interval) || taken > was && waited > 0 {
						t.Errorf("it waited %v and leaves %v to the runner; it took %d", waited, left, taken-was)
					}
					time.Sleep(left)
				}
				equal(t, "documents taken", taken, 1)
				if !waits {
					equal(t, "looks in 10 calls", tracker.left.Next, int64(10))
				}
				if took := time.Since(begin); took < 5*time.Second {
					t.Errorf("10 calls in %v", took)
				}
			})
		})
	}
}

// TestWatchClock has the clock set back by an hour: neither the watermark nor a document's
// event time goes back.
func TestWatchClock(t *testing.T) {
	set := newSet(t, []string{write(t, map[string]string{"a.txt": "one\n"})}, "")
	f := &watchFn{Run: t.Name(), Interval: 1}
	defer watches.Delete([2]any{f.Run, f.Number})
	before := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	f.watched().at = before
	tracker, marks, times := f.CreateTracker(looks{0, end}), new(lookMarks), []time.Time(nil)
	for range 3 {
		if _, err := f.ProcessElement(t.Context(), marks, tracker, encode("Watch", set), func(at beam.EventTime, _ []byte) { times = append(times, at.ToTime()) }); err != nil {
			t.Fatal(err)
		}
		if at := marks.CurrentWatermark(); at.Before(before) {
			t.Errorf("the watermark goes back from %v to %v", before, at)
		}
	}
	if len(times) != 1 || times[0].Before(before) {
		t.Errorf("event times %v after %v", times, before)
	}
}

// TestWatchAgain has a document that could not be read passed on again, ever later as
// long as it stays as it is.
func TestWatchAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := write(t, map[string]string{"a.txt": "one\n", "b.txt": "two\n"})
		set := newSet(t, []string{dir}, "")
		w, other := newWatched(), newWatched()
		for run, w := range map[string]*watched{t.Name(): w, t.Name() + " other": other} {
			watches.Store([2]any{run, int64(1)}, w)
			defer watches.Delete([2]any{run, int64(1)})
		}
		const interval = time.Millisecond
		number := int64(0)
		after := func(wait time.Duration, want ...string) {
			t.Helper()
			time.Sleep(wait)
			var got []string
			if failed, err := w.look(t.Context(), set, number, interval, func(f input.File) { got = append(got, f.Name) }); failed != nil || err != nil {
				t.Fatal(failed, err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("look %d takes %q, want %q", number, got, want)
			}
			number++
		}
		fail := func(before bool) {
			t.Helper()
			equal(t, "failed before", watchAgain(t.Name(), filepath.Join(dir, "a.txt")), before)
		}
		after(0)
		after(interval, "a.txt", "b.txt")
		fail(false)
		after(0)
		after(time.Second+interval, "a.txt")
		fail(true)
		after(0)
		after(time.Second + interval)
		after(time.Second, "a.txt")
		for range 40 {
			fail(true)
			after(0)
			after(maxPause+interval, "a.txt")
		}
		put(t, filepath.Join(dir, "a.txt"), "other\n")
		after(0)
		after(interval, "a.txt")
		fail(false)
		after(0)
		after(time.Second+interval, "a.txt")
		fail(true)
		if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		equal(t, "pauses remembered", len(w.unread.tries), 0)
		equal(t, "of another run", len(other.unread.uris), 0)
	})
}

// TestWatchAgainChanged has a look under way learn that a document could not be read, which
// it then finds changed: the next look begins anew with it.
func TestWatchAgainChanged(t *testing.T) {
	dir := write(t, map[string]string{"a.txt": "one\n", "b.txt": "two\n"})
	set := newSet(t, []string{dir}, "")
	w := newWatched()
	key := [2]any{t.Name(), int64(1)}
	watches.Store(key, w)
	defer watches.Delete(key)
	var got []string
	for number := range int64(4) {
		failed, err := w.look(t.Context(), set, number, 0, func(f input.File) {
			got = append(got, fmt.Sprint(number, " ", f.Name))
			if f.Name == "a.txt" {
				watchAgain(t.Name(), filepath.Join(dir, "b.txt"))
				put(t, filepath.Join(dir, "b.txt"), "other\n")
			}
		})
		if failed != nil || err != nil {
			t.Fatal(failed, err)
		}
	}
	equal(t, "taken", strings.Join(got, ", "), "1 a.txt, 2 b.txt")
}

// TestWatchAny has files come, change and go, documents fail, listings fail, other runs
// write, and the runner go back, between looks and during one, as chance has it. Whatever
// came, a document is taken once as it is, unless it failed since or the look that took it
// was gone back on; and once all is quiet, everything has been taken.
func TestWatchAny(t *testing.T) {
	run := t.Name()
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		dir, away := filepath.Join(root, "in"), filepath.Join(root, "away")
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(errors.Join(os.Mkdir(dir, 0o777), os.Mkdir(away, 0o777)))
		encoded, err := input.New([]string{dir, away}, "", false)
		must(err)
		w := newWatched()
		key := [2]any{run, int64(1)}
		watches.Store(key, w)
		defer watches.Delete(key)

		names := []string{"a.txt", "b.txt", "c.txt"}
		there := map[string]bool{}
		taken := map[string]int64{} // of those that were taken as they are, the look
		version, others, number := int64(0), 0, int64(0)
		change := func(what string) {
			name := rapid.SampledFrom(names).Draw(t, "name")
			path := filepath.Join(dir, name)
			switch _, known := taken[name]; {
			case what == "put":
				version++
				there[name] = true
				delete(taken, name)
				must(os.WriteFile(path, nil, 0o666))
				must(os.Chtimes(path, time.Time{}, time.Unix(version, 0)))
			case what == "remove" && there[name]:
				delete(there, name)
				delete(taken, name)
				must(os.Remove(path))
			case what == "fail" && known:
				delete(taken, name)
				watchAgain(run, path)
			case what == "other":
				others++
				old := filepath.Join(dir, fmt.Sprint("old", others))
				must(os.Mkdir(old, 0o777))
				must(os.WriteFile(filepath.Join(old, "_manifest.jsonl"), nil, 0o666)) // before its outputs
				must(os.WriteFile(filepath.Join(old, name), nil, 0o666))
			}
		}
		changes := rapid.SampledFrom([]string{"put", "put", "remove", "fail", "fail", "other", "none"})
		look := func(during bool) {
			set := *encoded
			_, err := w.look(t.Context(), &set, number, 0, func(f input.File) {
				name := strings.TrimPrefix(f.Name, "in/")
				if !slices.Contains(names, name) || !there[name] && !during {
					t.Fatalf("look %d takes %s, which is no document", number, name)
				}
				if look, before := taken[name]; before {
					t.Fatalf("look %d takes %s, as look %d did", number, name, look)
				}
				taken[name] = number
				if during {
					change(changes.Draw(t, "during"))
				}
			})
			must(err)
			number++
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"look", "look", "change", "change", "failing look", "back", "wait"}).Draw(t, "step") {
			case "look":
				look(true)
			case "failing look":
				must(os.Remove(away))
				look(true)
				must(os.Mkdir(away, 0o777))
			case "change":
				change(changes.Draw(t, "change"))
			case "back":
				number = rapid.Int64Range(0, number).Draw(t, "to")
				for name, look := range taken {
					if look >= number {
						delete(taken, name)
					}
				}
			case "wait":
				w.begin = w.begin.Add(-time.Minute)
			}
		}
		for range 3 {
			look(false)
			w.begin = w.begin.Add(-2 * maxPause)
		}
		for name := range there {
			if _, ok := taken[name]; !ok {
				t.Fatalf("%s is never taken", name)
			}
		}
	})
}

// TestForgetWatches wants a run that is over to leave nothing of its watches, and nothing of
// another's gone.
func TestForgetWatches(t *testing.T) {
	(&watchFn{Run: t.Name(), Number: 1}).watched()
	other := &watchFn{Run: t.Name() + " other", Number: 1}
	goesOn := other.watched()
	defer ForgetProgress(other.Run)
	ForgetProgress(t.Name())
	if _, left := watches.Load([2]any{t.Name(), int64(1)}); left {
		t.Error("what the watch remembers is still there")
	}
	equal(t, "the other is the one of before", other.watched() == goesOn, true)
}

// TestWatchReadsAgain watches what cannot be read, though nothing is wrong with its name,
// kind or permission.
func TestWatchReadsAgain(t *testing.T) {
	const broken = "/proc/self/mem" // reading its beginning is an I/O error
	if _, err := os.ReadFile(broken); !errors.Is(err, syscall.EIO) {
		t.Skipf("no file whose reading fails: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(broken, filepath.Join(dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	progress, ended := watchFolder(t, dir, 50*time.Millisecond)
	for until := time.Now().Add(2 * time.Minute); progress.Tried.Load() < 2 && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
	}
	progress.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	got := gather[Rejection](t.Name() + " rejected")
	if len(got) < 2 {
		t.Fatalf("rejected: %v; want it twice", got)
	}
	for i, r := range got { // WriteRejected counts the first alone
		equal(t, fmt.Sprintf("rejection %d is one again", i), r.Again, i > 0)
	}
}

// TestWatchMayReadLater has an object that may be listed and, after a while, be read:
// nothing that a listing tells has changed.
func TestWatchMayReadLater(t *testing.T) {
	server := fakeGS(t)
	server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "in", Name: "docs/a.txt"}, Content: []byte("text\n")})
	var refused atomic.Bool
	serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("alt") == "media" && !refused.Swap(true) {
			http.Error(w, `{"error":{"code":403}}`, http.StatusForbidden)
			return
		}
		server.HTTPHandler().ServeHTTP(w, r)
	}))
	progress, ended := watchFolder(t, "gs://in/docs", 50*time.Millisecond)
	for until := time.Now().Add(2 * time.Minute); progress.Tried.Load() < 2 && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
	}
	progress.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	equal(t, "rejected", len(gather[Rejection](t.Name()+" rejected")), 1)
	equal(t, "read", fmt.Sprintf("%q", gather[[]byte](t.Name())), `["text\n"]`)
}

// TestWatchLeavesOut has another run write its output below the input: nothing of it is
// taken, though a look failed meanwhile, and it is told once, though there are twins.
func TestWatchLeavesOut(t *testing.T) {
	dir, away := write(t, map[string]string{"a.txt": "one\n", "x.md": "", "x.md.ann": ""}), t.TempDir()
	encoded := newSet(t, []string{dir, dir + "/*.md", dir + "/*.ann", away}, "")
	w := newWatched()
	for number, want := range []struct{ takes, told string }{
		{told: "two inputs, one output"}, {"a.txt x.md", "two inputs, one output"}, {told: "no document in"},
		{told: "output of an earlier run"}, {told: "two inputs, one output"},
	} {
		var err error
		switch number {
		case 2: // a disk is away for a moment
			for _, name := range []string{"old/_manifest.jsonl", "old/a.txt.ann", "old/brat/a.txt", "old/_done/a.txt.json"} {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
					t.Fatal(err)
				}
			}
			err = os.Remove(away)
		case 3:
			err = os.Mkdir(away, 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
		set := *encoded // each look has it anew
		var takes []string
		failed, err := w.look(t.Context(), &set, int64(number), 0, func(f input.File) { takes = append(takes, filepath.Base(f.Name)) })
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("look %d takes", number), strings.Join(takes, " "), want.takes)
		if failed == nil || !strings.Contains(failed.Error(), want.told) {
			t.Errorf("look %d: %v, want %q", number, failed, want.told)
		}
	}
}

// TestWatchLeavesOutWhenBack has the runner go back to an earlier look, which fails: what
// came with it is another run's output, as no look that went well has told yet.
func TestWatchLeavesOutWhenBack(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	encoded := newSet(t, []string{dir, away}, "")
	w := newWatched()
	for _, number := range []int64{9, 2, 3, 4, 5} {
		switch number {
		case 2:
			for _, name := range []string{"old/_manifest.jsonl", "old/brat/a.txt"} {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(away); err != nil {
				t.Fatal(err)
			}
		case 3:
			if err := os.Mkdir(away, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		set := *encoded // each look has it anew
		if _, err := w.look(t.Context(), &set, number, 0, func(f input.File) { t.Errorf("look %d takes %s", number, f.Name) }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchGoesOn checks what a watch survives: no file, twins, and a listing
// that fails now and then, but not always.
func TestWatchGoesOn(t *testing.T) {
	dir := t.TempDir()
	set := newSet(t, []string{dir + "/*.md", dir + "/*.ann"}, "")
	w := newWatched()
	none := func(input.File) { t.Error("takes something") }
	if failed, err := w.look(t.Context(), set, 0, 0, none); failed != nil || err != nil {
		t.Fatalf("an empty folder: %v, %v", failed, err)
	}
	for _, name := range []string{"x.md", "x.md.ann", "y.md"} {
		put(t, filepath.Join(dir, name), "")
	}
	var got []string
	for number := range int64(2) {
		failed, err := w.look(t.Context(), set, number, 0, func(f input.File) { got = append(got, f.URI[len(dir)+1:]) })
		if !errors.Is(failed, input.ErrTwins) || err != nil {
			t.Fatalf("twins: %v, %v", failed, err)
		}
	}
	if want := []string{"x.md", "y.md"}; !slices.Equal(got, want) {
		t.Errorf("takes %q, want %q", got, want)
	}

	set.Args = [][]byte{[]byte(dir + "/gone")}
	for i := range maxFailedLooks {
		failed, err := w.look(t.Context(), set, 2, 0, none)
		if last := i == maxFailedLooks-1; (err != nil) != last || (failed != nil) == last {
			t.Fatalf("failure %d: %v, %v", i+1, failed, err)
		}
	}

	// Failures count in a row: over days there are more than the watch's patience.
	w = newWatched()
	ignore := func(input.File) {}
	for i := range 2 * maxFailedLooks {
		set.Args = [][]byte{[]byte(dir + "/gone")}
		if failed, err := w.look(t.Context(), set, 2, 0, ignore); failed == nil || err != nil {
			t.Fatalf("failure %d, each after a look that went well: %v, %v", i+1, failed, err)
		}
		set.Args = [][]byte{[]byte(dir)}
		if _, err := w.look(t.Context(), set, 2, 0, ignore); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLookTracker checks the splits: only where the DoFn hands back, and all of
// the rest then.
func TestLookTracker(t *testing.T) {
	tracker := (*watchFn)(nil).CreateTracker(looks{3, end})
	if !tracker.TryClaim(int64(3)) || tracker.IsDone() {
		t.Fatal("look 3 cannot be claimed, or is all")
	}
	if _, residual, err := tracker.TrySplit(0.5); residual != nil || err != nil {
		t.Errorf("split in the middle: %v, %v", residual, err)
	}
	primary, residual, err := tracker.TrySplit(0)
	if primary != (looks{4, 4}) || residual != (looks{4, end}) || err != nil || !tracker.IsDone() {
		t.Errorf("handing back: %v and %v, %v", primary, residual, err)
	}
	tracker = (*watchFn)(nil).CreateTracker(residual.(looks))
	if tracker.TryClaim(end) || !tracker.IsDone() {
		t.Error("claiming the end does not end")
	}
}

// TestWatch watches a folder on prism, from before it has its files until it is
// told to stop: each document comes once, a changed one twice.
func TestWatch(t *testing.T) {
	const interval = 60 * time.Millisecond
	dir := write(t, map[string]string{"first.txt": "one\n", "\xff.txt": "no UTF-8\n", "other.md": "x"})
	progress, ended := watchFolder(t, dir, interval)
	seen := func() []string {
		got, ok := collected.Load(t.Name())
		if !ok {
			return nil
		}
		b := got.(*bag)
		b.Lock()
		defer b.Unlock()
		var texts []string
		for i, x := range b.elements {
			texts = append(texts, string(x.([]byte)))
			if age := time.Since(b.times[i].ToTime()); age < 0 || age > time.Hour {
				t.Errorf("%q has the event time %v", x, b.times[i].ToTime())
			}
		}
		slices.Sort(texts)
		return texts
	}
	wait := func(want ...string) {
		t.Helper()
		for until := time.Now().Add(2 * time.Minute); !slices.Equal(seen(), want); time.Sleep(interval / 4) {
			select {
			case err := <-ended:
				t.Fatalf("it ended: %v", err)
			default:
			}
			if time.Now().After(until) {
				t.Fatalf("got %q, want %q", seen(), want)
			}
		}
	}
	wait("no UTF-8\n", "one\n")

	put := func(name, text string) { // whole at once, or the watch might take it while it is empty
		t.Helper()
		if err := os.Rename(filepath.Join(write(t, map[string]string{name: text}), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("late.txt", "late\n")
	wait("late\n", "no UTF-8\n", "one\n")
	put("first.txt", "two\n")
	wait("late\n", "no UTF-8\n", "one\n", "two\n")

	progress.Stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not stop")
	}
	equal(t, "all documents", len(gather[[]byte](t.Name())), 4)
	equal(t, "rejected", len(gather[Rejection](t.Name()+" rejected")), 0)
}

// watchFolder watches a folder on prism until its Progress is told to stop, and collects
// what it reads by the test's name.
func watchFolder(t *testing.T, dir string, interval time.Duration) (*Progress, <-chan error) {
	t.Helper()
	set := newSet(t, []string{dir}, "")
	opts := Options{Run: t.Name(), Base: Path(set.Base)}
	progress := ProgressOf(opts.Run)
	t.Cleanup(func() { ForgetProgress(opts.Run) })
	ended := make(chan error, 1)
	go func() {
		_, err := runOn("prism", func(s beam.Scope) {
			docs, rejected := Read(s, opts, Watch(s, opts, set, interval))
			collect(s, t.Name(), beam.ParDo(s, textOf, docs))
			collect(s, t.Name()+" rejected", rejected)
		})
		ended <- err
	}()
	return progress, ended
}

func textOf(_ context.Context, t beam.EventTime, d Document) (beam.EventTime, []byte) {
	return t, d.Text
}

func init() { beam.RegisterFunction(textOf) }

// TestWatchesApart has three watches in one pipeline, two of them of one folder:
// each passes its documents on, and each of them once.
func TestWatchesApart(t *testing.T) {
	defer ForgetProgress(t.Name())
	folders := []string{write(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n"}), write(t, map[string]string{"c.txt": "c\n"})}
	folders = append(folders, folders[1])
	key := func(i int) string { return fmt.Sprint(t.Name(), i) }
	ended := make(chan error, 1)
	go func() {
		_, err := runOn("prism", func(s beam.Scope) {
			for i, dir := range folders {
				set, err := input.New([]string{dir}, "", false)
				if err != nil {
					t.Error(err)
				}
				collect(s, key(i), Watch(s, Options{Run: t.Name()}, set, 200*time.Millisecond))
			}
		})
		ended <- err
	}()
	missing := func() bool {
		for i := range folders {
			if _, ok := collected.Load(key(i)); !ok {
				return true
			}
		}
		return false
	}
	for until := time.Now().Add(2 * time.Minute); missing() && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second) // some looks more
	ProgressOf(t.Name()).Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i, want := range [][]string{{"a.txt", "b.txt"}, {"c.txt"}, {"c.txt"}} {
		var got []string
		for _, path := range gather[[]byte](key(i)) {
			got = append(got, filepath.Base(string(path)))
		}
		slices.Sort(got)
		equal(t, fmt.Sprint("watch ", i), got, want)
	}
}

// Runners that split ask for the watermark while a look sets it (with -race).
func TestLookMarks(t *testing.T) {
	m := new(lookMarks)
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range 1000 {
			m.update(time.UnixMilli(int64(i)))
		}
	})
	last := time.Time{}
	for range 1000 {
		at := m.CurrentWatermark()
		if at.Before(last) {
			t.Errorf("the watermark goes back from %v to %v", last, at)
		}
		last = at
	}
	wait.Wait()
	if at := m.CurrentWatermark(); at != time.UnixMilli(999) {
		t.Errorf("%v at last", at)
	}
}
