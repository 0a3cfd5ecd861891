package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
)

// fileLoader loads a factor from a file.
type fileLoader struct{ Pattern, Path string }

var (
	fileLoads  atomic.Int64
	fileCloses sync.Map // factor → chan struct{}
	fileHolds  sync.Map // factor → func() that its Load calls
)

func (l fileLoader) Watch() string { return l.Pattern }

func (l fileLoader) At(path string) fileLoader { return fileLoader{Pattern: l.Pattern, Path: path} }

func (l fileLoader) Load(context.Context) (Handler[int, float64], error) {
	fileLoads.Add(1)
	data, err := os.ReadFile(l.Path)
	if err != nil {
		return nil, err
	}
	var factor float64
	if err := json.Unmarshal(data, &factor); err != nil {
		return nil, err
	}
	if hold, ok := fileHolds.Load(factor); ok {
		hold.(func())()
	}
	return fileModel{factor}, nil
}

type fileModel struct{ factor float64 }

func (m fileModel) Run(_ context.Context, batch []int) ([]float64, error) {
	outs := make([]float64, len(batch))
	for i, x := range batch {
		outs[i] = m.factor * float64(x)
	}
	return outs, nil
}

func (fileModel) Weight(int) int64 { return 1 }

func (m fileModel) Close() error {
	if c, ok := fileCloses.Load(m.factor); ok {
		close(c.(chan struct{}))
	}
	return nil
}

func init() { Register[int, float64, fileLoader]() }

type fileFn = runFn[int, float64, fileLoader]

// writeAt writes a file below dir that was changed so many minutes after an hour ago.
func writeAt(t *testing.T, dir, name, content string, minute int) {
	t.Helper()
	path, at := filepath.Join(dir, name), time.Now().Add(time.Duration(minute-60)*time.Minute)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

// wantClosed waits for a model's Close.
func wantClosed(t *testing.T, closed chan struct{}, what string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatalf("%s was not closed", what)
	}
}

// One instance of the DoFn goes through bundles while models come and go;
// another holds a bundle open in the meantime.
func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	closed := map[float64]chan struct{}{}
	for _, f := range []float64{2, 3, 4} {
		closed[f] = make(chan struct{})
		fileCloses.Store(f, closed[f])
		defer fileCloses.Delete(f)
	}
	isClosed := func(f float64) bool {
		select {
		case <-closed[f]:
			return true
		default:
			return false
		}
	}
	ctx := t.Context()
	newFn := func() *fileFn {
		return &fileFn{Loader: fileLoader{Pattern: filepath.Join(dir, "*.json")}, Options: Options{Namespace: t.Name()}}
	}
	var got float64
	emit := func(_ beam.EventTime, _ int, y float64) { got = y }
	fail := func(_ beam.EventTime, x int, cause string) { t.Errorf("%d failed: %s", x, cause) }
	run := func(fn *fileFn, want float64) {
		t.Helper()
		if err := fn.StartBundle(ctx, emit, fail); err != nil {
			t.Fatal(err)
		}
		got = 0
		if err := errors.Join(fn.ProcessElement(ctx, 0, 10, emit, fail), fn.FinishBundle(ctx, emit, fail)); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}

	a, b := newFn(), newFn()
	if err := a.Setup(ctx); err == nil || !strings.Contains(err.Error(), "no model matches") {
		t.Errorf("without a model: %v", err)
	}
	latest := filepath.Join(dir, "latest.json")
	if err := os.Symlink("nowhere", latest); err != nil {
		t.Fatal(err)
	}
	if err := a.Setup(ctx); err == nil || !strings.Contains(err.Error(), "no model matches") || !strings.Contains(err.Error(), latest) {
		t.Errorf("with a link to nothing: %v, want its name", err)
	}
	if err := os.Remove(latest); err != nil {
		t.Fatal(err)
	}
	fileLoads.Store(0)
	writeAt(t, dir, "b.json", "2", 1)
	for _, fn := range []*fileFn{a, b} {
		if err := fn.Setup(ctx); err != nil {
			t.Fatal(err)
		}
	}
	run(a, 20)
	run(a, 20)
	run(b, 20)
	if n := fileLoads.Load(); n != 1 {
		t.Errorf("%d loads of one model", n)
	}

	// b is in a bundle when a newer model comes.
	if err := b.StartBundle(ctx, emit, fail); err != nil {
		t.Fatal(err)
	}
	writeAt(t, dir, "a.json", "3", 2)
	run(a, 30)
	run(a, 30)
	b.served.mu.Lock()
	if b.served.closed || b.served.bundles != 1 {
		t.Error("the old model was closed under a bundle")
	}
	b.served.mu.Unlock()
	if err := errors.Join(b.ProcessElement(ctx, 0, 10, emit, fail), b.FinishBundle(ctx, emit, fail)); err != nil {
		t.Fatal(err)
	}
	if got != 20 {
		t.Errorf("within a bundle the model changed: got %v, want 20", got)
	}
	wantClosed(t, closed[2], "the old model")
	run(b, 30)
	if n := fileLoads.Load(); n != 2 {
		t.Errorf("%d loads of two models", n)
	}

	// A model that is half there does not stop the work; the same file, whole, does it.
	writeAt(t, dir, "c.json", "", 3)
	run(a, 30)
	if isClosed(3) {
		t.Error("a model that works was closed")
	}
	writeAt(t, dir, "c.json", "4", 4)
	run(a, 40)
	run(b, 40)
	wantClosed(t, closed[3], "the old model")
	// The newest goes, and the one before, which was closed, comes back.
	closed[3] = make(chan struct{})
	fileCloses.Store(3., closed[3])
	if err := os.Remove(filepath.Join(dir, "c.json")); err != nil {
		t.Fatal(err)
	}
	run(a, 30)
	run(b, 30)
	wantClosed(t, closed[4], "the model that is gone")
	// A pattern that matches nothing any more does not stop the work either.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	run(a, 30)
	if isClosed(3) {
		t.Error("the last model was closed")
	}
}

// setUp is a DoFn instance that has the newest model of dir.
func setUp(t *testing.T, ctx context.Context, dir string) *fileFn {
	t.Helper()
	fn := &fileFn{Loader: fileLoader{Pattern: filepath.Join(dir, "*.json")}}
	if err := fn.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	return fn
}

// DoFn instances come and go, with their pipelines too, and some get no bundle for
// long: the model at work is the process's.
func TestUpdateAcrossInstances(t *testing.T) {
	dir := t.TempDir()
	closed := make(chan struct{})
	fileCloses.Store(5., closed)
	defer fileCloses.Delete(5.)
	ctx := metrics.SetPTransformID(metrics.SetBundleID(t.Context(), "bundle"), "transform")
	var got float64
	emit := func(_ beam.EventTime, _ int, y float64) { got = y }
	fail := func(_ beam.EventTime, x int, cause string) { t.Errorf("%d failed: %s", x, cause) }
	run := func(fn *fileFn, want float64) {
		t.Helper()
		err := fn.StartBundle(ctx, emit, fail)
		if err == nil {
			err = errors.Join(fn.ProcessElement(ctx, 0, 10, emit, fail), fn.FinishBundle(ctx, emit, fail))
		}
		if err != nil || got != want {
			t.Errorf("got %v and the error %v, want %v", got, err, want)
		}
	}
	writeAt(t, dir, "a.json", "5", 1)
	first, idle := setUp(t, ctx, dir), setUp(t, ctx, dir)
	run(first, 50)
	writeAt(t, dir, "b.json", "6", 2)
	run(setUp(t, ctx, dir), 60)
	wantClosed(t, closed, "the model of before another instance took the new one")
	writeAt(t, dir, "c.json", "", 3)
	run(idle, 60) // and not 50, which is closed
	run(setUp(t, ctx, dir), 60)
	run(first, 60)
	updates := int64(-1)
	err := metrics.Extractor{SumInt64: func(l metrics.Labels, n int64) {
		if l.Name() == "model_updates_counter" {
			updates = n
		}
	}}.ExtractFrom(metrics.GetStore(ctx))
	if updates != 1 || err != nil {
		t.Errorf("%d updates are counted, want that of the process: 1; error %v", updates, err)
	}
}

// A look that takes long, as its model loads, does not put it before what another
// instance found meanwhile.
func TestUpdateOvertaken(t *testing.T) {
	dir := t.TempDir()
	loading, goOn, slowClosed, fastClosed := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	fileHolds.Store(7., func() { close(loading); <-goOn })
	fileCloses.Store(7., slowClosed)
	fileCloses.Store(8., fastClosed)
	defer fileHolds.Delete(7.)
	defer fileCloses.Delete(7.)
	defer fileCloses.Delete(8.)
	loader := fileLoader{Pattern: filepath.Join(dir, "*.json")}
	slow, fast := &fileFn{Loader: loader}, &fileFn{Loader: loader}
	writeAt(t, dir, "a.json", "7", 1)
	setUp := make(chan error, 1)
	go func() { setUp <- slow.Setup(t.Context()) }()
	<-loading
	writeAt(t, dir, "b.json", "8", 2)
	err := fast.Setup(t.Context())
	close(goOn)
	if err := errors.Join(err, <-setUp); err != nil {
		t.Fatal(err)
	}
	if slow.served != fast.served {
		t.Error("the older model is at work")
	}
	select {
	case <-slowClosed:
	case <-fastClosed:
		t.Error("the newer model was closed")
	case <-time.After(time.Minute):
		t.Error("the older model was not closed")
	}
}

// The newest model goes while a bundle holds the one before: who never left that one takes
// the process back to it.
func TestUpdateBack(t *testing.T) {
	dir := t.TempDir()
	closed := make(chan struct{})
	fileCloses.Store(10., closed)
	defer fileCloses.Delete(10.)
	ctx := t.Context()
	emit := func(beam.EventTime, int, float64) {}
	fail := func(_ beam.EventTime, x int, cause string) { t.Errorf("%d failed: %s", x, cause) }
	writeAt(t, dir, "a.json", "9", 1)
	holding, idle := setUp(t, ctx, dir), setUp(t, ctx, dir)
	if err := holding.StartBundle(ctx, emit, fail); err != nil {
		t.Fatal(err)
	}
	writeAt(t, dir, "b.json", "10", 2)
	setUp(t, ctx, dir)
	if err := os.Remove(filepath.Join(dir, "b.json")); err != nil {
		t.Fatal(err)
	}
	if err := idle.StartBundle(ctx, emit, fail); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, closed, "the model that is gone")
	writeAt(t, dir, "c.json", "", 3)
	if fn := setUp(t, ctx, dir); fn.served != idle.served {
		t.Error("a model that does not load brings back the one that is gone")
	}
	if err := errors.Join(holding.FinishBundle(ctx, emit, fail), idle.FinishBundle(ctx, emit, fail)); err != nil {
		t.Error(err)
	}
}

// choosy fails odd items, and takes no answer for a long time from item 99.
type choosy struct{ hang chan struct{} }

func (c choosy) Run(ctx context.Context, batch []int64) ([]int64, error) {
	failed := ItemErrors{}
	for i, x := range batch {
		switch {
		case x == 99:
			<-c.hang // whatever ctx says
		case x%2 == 1:
			failed[i] = fmt.Errorf("%d is odd", x)
		}
	}
	if len(failed) > 0 {
		return batch, fmt.Errorf("choosy: %w", failed)
	}
	return batch, nil
}

func (choosy) Weight(int64) int64 { return 1 }
func (choosy) Close() error       { return nil }

// miscounting names an item that may not be there.
type miscounting struct {
	choosy
	bad int
}

func (m miscounting) Run(_ context.Context, batch []int64) ([]int64, error) {
	return batch, ItemErrors{m.bad: errors.New("bad")}
}

// mute fails its items and returns nothing for them.
type mute struct{ choosy }

func (mute) Run(context.Context, []int64) ([]int64, error) {
	return nil, ItemErrors{0: errors.New("bad")}
}

func TestItemErrors(t *testing.T) {
	e := NewEngine(choosy{}, Options{MaxBatchSize: 4, MaxInFlight: 100})
	release := holdPool()
	q := NewQueue[int64](e)
	got := map[int64]string{}
	emit := func(x int64, outs []int64, err error) error {
		got[x] = fmt.Sprint(outs, err)
		return nil
	}
	for x := range int64(4) {
		push(t, q, x, []int64{x}, emit)
	}
	release()
	drain(t, q, emit)
	want := map[int64]string{0: "[0] <nil>", 1: "[0] 1 is odd", 2: "[2] <nil>", 3: "[0] 3 is odd"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for want, h := range map[string]Handler[int64, int64]{
		"ItemErrors of number -1 in a batch of 1: bad":                                 miscounting{bad: -1},
		"ItemErrors of number 1 in a batch of 1: bad":                                  miscounting{bad: 1}, // it counts from 1, say
		"0 outputs beside ItemErrors for a batch of 1: 1 item failed, number 0: bad; ": mute{},
	} {
		e := NewEngine(h, Options{MaxInFlight: 1})
		defer e.Close()
		q := NewQueue[int64](e)
		emit := func(_ int64, _ []int64, err error) error { return err }
		err := errors.Join(q.Push(t.Context(), 0, []int64{1}, 1, emit), q.Drain(t.Context(), emit))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if err := (ItemErrors{7: errors.New("b")}).Error(); err != "1 item failed, number 7: b" {
		t.Errorf("an ItemErrors of one says %q", err)
	}
	if err := (ItemErrors{7: errors.New("b"), 2: errors.New("a")}).Error(); err != "2 items failed, number 2: a" {
		t.Errorf("an ItemErrors says %q", err)
	}
}

// A Run that never ends fails its batch in time and leaves its core. The others
// have time enough on a machine that is busy.
func TestTimeout(t *testing.T) {
	h := choosy{make(chan struct{})}
	e := NewEngine(h, Options{MaxInFlight: 100, Timeout: 2 * time.Second, Concurrency: 1})
	q := NewQueue[int64](e)
	got := map[int64]error{}
	emit := func(x int64, outs []int64, err error) error { got[x] = err; return nil }
	for _, x := range []int64{2, 99, 4, 3} {
		push(t, q, x, []int64{x}, emit)
	}
	drain(t, q, emit)
	if got[2] != nil || got[4] != nil || got[3] == nil || errors.Is(got[3], ErrTimeout) || !errors.Is(got[99], ErrTimeout) {
		t.Errorf("got %v", got)
	}
	if want := "inference: the batch took too long: more than 2s for a batch of 1"; fmt.Sprint(got[99]) != want {
		t.Errorf("got %v, want %s", got[99], want)
	}
	done := make(chan error)
	go func() { done <- e.Close() }()
	select {
	case <-done:
		t.Error("Close did not wait for a Run")
	case <-time.After(20 * time.Millisecond):
	}
	close(h.hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// stuckLoader's models do not close: the error says which file it was, or they panic.
type stuckLoader struct{ Pattern, Path string }

func (l stuckLoader) Watch() string                                      { return l.Pattern }
func (l stuckLoader) At(path string) stuckLoader                         { return stuckLoader{l.Pattern, path} }
func (l stuckLoader) Load(context.Context) (Handler[int, string], error) { return stuck(l), nil }

type stuck stuckLoader

func (s stuck) Run(_ context.Context, batch []int) ([]string, error) {
	outs := make([]string, len(batch))
	for i := range outs {
		outs[i] = filepath.Base(s.Path)
	}
	return outs, nil
}

func (stuck) Weight(int) int64 { return 1 }

func (s stuck) Close() error {
	if filepath.Base(s.Path) == "1" {
		panic("no\nclose")
	}
	return fmt.Errorf("%s does not\nclose", filepath.Base(s.Path))
}

func init() { Register[int, string, stuckLoader]() }

// lines is a logger that keeps what Beam logs.
type lines chan string

func (l lines) Log(_ context.Context, _ log.Severity, _ int, text string) { l <- text }

// A model that does not close neither ends the program nor goes without a word.
func TestUpdateOfModelThatDoesNotClose(t *testing.T) {
	logged := make(lines, 100)
	log.SetLogger(logged)
	defer log.SetLogger(&log.Standard{Level: log.SevWarn})
	dir := t.TempDir()
	fn := &runFn[int, string, stuckLoader]{Loader: stuckLoader{Pattern: filepath.Join(dir, "*")}}
	for i, want := range []string{"", "panic: no close", "2 does not close"} {
		name := fmt.Sprint(i + 1)
		writeAt(t, dir, name, "", i)
		var got string
		emit := func(_ beam.EventTime, _ int, y string) { got = y }
		fail := func(_ beam.EventTime, _ int, cause string) { t.Error(cause) }
		if i == 0 {
			if err := fn.Setup(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := fn.StartBundle(t.Context(), emit, fail); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fn.ProcessElement(t.Context(), 0, 1, emit, fail), fn.FinishBundle(t.Context(), emit, fail)); err != nil {
			t.Fatal(err)
		}
		if got != name {
			t.Errorf("model %q answers, want %q", got, name)
		}
		if want == "" {
			continue
		}
		select {
		case text := <-logged:
			if !strings.HasPrefix(text, "linnet: inference: ") || !strings.Contains(text, want) || strings.Contains(text, "\n") {
				t.Errorf("logged %q, want one line with %q", text, want)
			}
		case <-time.After(time.Minute):
			t.Errorf("nothing is logged, want %q", want)
		}
	}
}

// What begins with a dot is no model, as a copy makes it before it renames, or macOS
// beside a file, unless the pattern spells the dot.
func TestUpdateHidden(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"m.json", "._m.json", ".m.json.tmp", ".git/m.json"} {
		writeAt(t, dir, name, fmt.Sprint(i+1), i)
	}
	for pattern, want := range map[string]string{
		dir: "m.json", dir + "/": "m.json", filepath.Join(dir, "*"): "m.json", filepath.Join(dir, "*.json"): "m.json",
		filepath.Join(dir, "**"): "m.json", filepath.Join(dir, "._*"): "._m.json", filepath.Join(dir, ".m.json.tmp"): ".m.json.tmp",
	} {
		fn := &fileFn{}
		_, version, err := fn.newest(t.Context(), fileLoader{Pattern: pattern})
		if err != nil || !strings.HasPrefix(version, " "+filepath.Join(dir, want)+" ") {
			t.Errorf("%s: the newest is %q, %v, want %s", pattern, version, err, want)
		}
	}
}
