package transforms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// exampleOf is what Featurize makes of text.
func exampleOf(name, text string, inputSize int) Example {
	d := Document{URI: []byte("/" + name), Name: []byte(name), Text: []byte(text)}
	d.Rows = yedda.Rows(d.Text)
	return Example{Document: d, InputSize: inputSize, Features: feature.Extract(d.Text, d.Rows, inputSize, 1)}
}

func manyLines(seed, n int) string {
	var b strings.Builder
	words := strings.Fields("Agaricus campestris sp. nov. Basidiospores 5–7 µm HOLOTYPE: Leiden, 1923. Key to the species. Pileus convex; stipe white")
	for i := range n {
		for j := range 3 + (i*seed)%7 {
			b.WriteString(words[(i*5+j*seed+seed)%len(words)])
			b.WriteByte(' ')
		}
		b.WriteByte('\n')
		if i%9 == 8 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestTogether compares windows of several documents, scored together, with the
// same ones scored alone.
func TestTogether(t *testing.T) {
	m := loadModel(t, Options{ModelURI: Path(testModel(t))})
	var items []windowItem
	for i, ws := range [][]model.ContextWindow{
		{{First: 0, Len: 20}, {First: 10, Len: 20}, {First: 35, Len: 5}}, {{First: 3, Len: 30}}, {{First: 30, Len: 10}, {First: 0, Len: 8}},
	} {
		e := exampleOf("x", manyLines(i+1, 40), m.Config.InputSize)
		src := newSource(&e, len(ws))
		for _, w := range ws {
			items = append(items, windowItem{src, w})
		}
	}
	h := scorerHandler{model: m}
	got, err := h.Run(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range items {
		alone, err := h.Run(t.Context(), items[i:i+1])
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "probabilities", got[i], alone[0])
		equal(t, "numbers", len(got[i].probs), 3*it.window.Len)
	}
}

func newPredictFn(t *testing.T, opts Options) *predictFn {
	t.Helper()
	f := &predictFn{Options: opts}
	if err := f.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// predictAll runs Predict over examples and returns what it labelled, by name.
func predictAll(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult, opts Options, examples []Example) (map[string]Labelled, beam.PipelineResult) {
	t.Helper()
	res := run(func(s beam.Scope) {
		labelled, rejected := Predict(s, opts, beam.CreateList(s, examples))
		collect(s, t.Name(), labelled)
		collect(s, t.Name()+" rejected", rejected)
	})
	if r := gather[Rejection](t.Name() + " rejected"); len(r) > 0 {
		t.Fatalf("rejected: %s: %s", r[0].URI, r[0].Reason)
	}
	out := map[string]Labelled{}
	for _, l := range gather[Labelled](t.Name()) {
		out[string(l.Name)] = l
	}
	return out, res
}

// TestSurveyed compares documents whose features are made window by window with
// the same ones whose features are there, and their coder with them.
func TestSurveyed(t *testing.T) {
	defer func(n int) { surveyRows = n }(surveyRows)
	uri := testModel(t)
	opts := Options{ModelURI: Path(uri), WindowSize: 50, PredictionStride: 30}
	var whole, long []Example
	for i, n := range []int{1, 60, 2500} {
		e := exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i+1, n), 256)
		whole = append(whole, e)
		e.Features = nil
		surveyRows = 1
		e.featurize(false, 2)
		if e.Survey == nil {
			t.Fatal("no Survey")
		}
		long = append(long, e)
	}
	onBoth(t, func(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult) {
		surveyRows = 1 << 16
		want, _ := predictAll(t, run, opts, whole)
		surveyRows = 1
		got, _ := predictAll(t, run, opts, long)
		equal(t, "labelled", got, want)
	})
}

// TestDeferred compares documents whose features are made when they are scored, for a
// batch alone or for several, on a Scorer that takes them one by one or all at once,
// with the same ones whose features are there. The longest is surveyed.
func TestDeferred(t *testing.T) {
	defer func(n int) { deferredLines = n }(deferredLines)
	deferredLines = 2400
	opts := Options{ModelURI: Path(testModel(t)), WindowSize: 50, PredictionStride: 30, InputSize: 256}
	m := loadModel(t, opts)
	scorer := m.scorer
	defer func() { m.scorer = scorer }()
	var docs []Document
	for i, n := range []int{1, 60, 2500, 30, 0, 2300, 200, 900} {
		docs = append(docs, exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i+1, n), 256).Document)
	}
	label := func(opts Options) map[string]Labelled {
		t.Helper()
		out := map[string]Labelled{}
		emit := func(_ beam.EventTime, l Labelled) { out[string(l.Name)] = l }
		reject := func(_ beam.EventTime, r Rejection) { t.Errorf("rejected: %s: %s", r.Name, r.Reason) }
		make, predict := &featurizeFn{Options: opts}, &predictFn{Options: opts}
		if err := cmp.Or(make.Setup(t.Context()), predict.Setup(t.Context())); err != nil {
			t.Fatal(err)
		}
		deferred := opts.Deferred || predict.model.Reason != "" // auto, without a GPU
		if make.deferred != deferred {
			t.Errorf("device %q, deferred %t: Featurize defers: %t", opts.Device, opts.Deferred, make.deferred)
		}
		predict.StartBundle(emit, reject)
		for _, d := range docs {
			e, _, err := make.featurize(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if made := e.Features != nil; made == deferred || (e.Survey != nil) != (deferred && len(d.Rows) > deferredLines) {
				t.Errorf("%d rows, deferred %t: features made: %t, surveyed: %t", len(d.Rows), deferred, made, e.Survey != nil)
			}
			if err := predict.ProcessElement(t.Context(), 0, *e, emit, reject); err != nil {
				t.Fatal(err)
			}
		}
		if err := predict.FinishBundle(t.Context(), emit, reject); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := label(opts)
	equal(t, "documents", len(want), len(docs))
	same := func(t *testing.T, what string, got map[string]Labelled) {
		t.Helper()
		equal(t, what+": documents", len(got), len(want))
		for name, l := range got {
			if w := want[name]; !slices.Equal(l.Probs, w.Probs) || !slices.Equal(l.Labels, w.Labels) || len(l.Labels) != len(l.Rows) {
				t.Errorf("%s: %s has other labels", what, name)
			}
		}
	}
	opts.Device = backend.Auto
	if auto, err := LoadModel(t.Context(), opts); err != nil {
		t.Fatal(err)
	} else if auto.Reason != "" {
		same(t, "auto", label(opts))
	} else {
		t.Log("auto took a GPU, whose probabilities have other bits")
	}
	opts.Device, opts.Deferred = "", true
	for _, s := range []model.MultiScorer{scorer, &recorder{MultiScorer: scorer}} {
		m.scorer = s
		for _, size := range []int{0, 2, 40} {
			opts.PredictionBatchSize = size
			same(t, fmt.Sprintf("%T, batches of %d windows", s, size), label(opts))
		}
	}
	m.scorer, opts.PredictionBatchSize = scorer, 0
	onBoth(t, func(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult) {
		run(func(s beam.Scope) {
			examples, _ := Featurize(s, opts, beam.CreateList(s, docs))
			labelled, _ := Predict(s, opts, examples)
			collect(s, t.Name(), labelled)
		})
		got := map[string]Labelled{}
		for _, l := range gather[Labelled](t.Name()) {
			got[string(l.Name)] = l
		}
		same(t, "pipeline", got)
	})
}

// TestPredict compares Predict with the model's own probabilities.
func TestPredict(t *testing.T) {
	uri := testModel(t)
	w, err := model.Load(os.DirFS(uri))
	if err != nil {
		t.Fatal(err)
	}
	scorer, err := cpu.New(w)
	if err != nil {
		t.Fatal(err)
	}
	var examples []Example
	for i, n := range []int{0, 1, 2, 30, 2500} {
		examples = append(examples, exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i+1, n), 256))
	}
	onBoth(t, func(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult) {
		for _, set := range []string{"", model.Full} {
			t.Run("label_set="+set, func(t *testing.T) {
				got, _ := predictAll(t, run, Options{ModelURI: Path(uri), LabelSet: set}, examples)
				equal(t, "documents", len(got), len(examples))
				first, classes, _ := w.Config.Head(set)
				for _, e := range examples {
					l := got[string(e.Name)]
					equal(t, "classes", l.Classes, classes)
					equal(t, "text", string(l.Text), string(e.Text))
					equal(t, "rows", l.Rows, e.Rows)
					b := *e.Features
					b.Windows = model.Windows(len(e.Rows), 0, 0)
					k := w.Config.NumOutputs()
					probs := make([]float32, len(e.Rows)*k)
					if err := scorer.Score(context.Background(), &b, probs); err != nil {
						t.Fatal(err)
					}
					for i := range e.Rows {
						want := probs[i*k+first:][:len(classes)]
						gotRow := l.Probs[i*len(classes):][:len(classes)]
						equal(t, "probabilities", gotRow, want)
						equal(t, "label", int(l.Labels[i]), argmax(want))
						if t.Failed() {
							t.Fatalf("%s, row %d", e.Name, i)
						}
					}
				}
			})
		}
	})
}

// TestPredictOptions checks that window_size and prediction_stride change the
// probabilities, and that prediction_batch_size changes the batches alone.
func TestPredictOptions(t *testing.T) {
	uri := testModel(t)
	var examples []Example
	for i := range 40 {
		examples = append(examples, exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i+1, 40+i%3), 256))
	}
	base := Options{ModelURI: Path(uri), WindowSize: -1}
	want, res := predictAll(t, on(t, "direct"), base, examples)
	if n := counters(res, "BeamML_Go")["num_inferences"]; n != 40 {
		t.Errorf("%d windows were scored, want 40", n)
	}

	same := func(a, b map[string]Labelled) bool {
		for name, l := range a {
			for i, p := range l.Probs {
				if b[name].Probs[i] != p {
					return false
				}
			}
		}
		return true
	}
	for _, c := range []struct {
		name         string
		size, stride int
		same         bool
		windows      int64
	}{
		{"whole documents", 0, 0, true, 40},
		{"window_size", 20, 0, false, 40 * 3},
		{"prediction_stride", 20, 10, false, 40 * 4},
	} {
		opts := base
		opts.WindowSize, opts.PredictionStride = c.size, c.stride
		got, res := predictAll(t, on(t, "direct"), opts, examples)
		if same(got, want) != c.same {
			t.Errorf("%s: same probabilities: %t, want %t", c.name, !c.same, c.same)
		}
		n := counters(res, "BeamML_Go")["num_inferences"]
		if c.name == "whole documents" && n != c.windows || n < c.windows-40 || n > c.windows+40 {
			t.Errorf("%s: %d windows were scored, want about %d", c.name, n, c.windows)
		}
		if c.size > 0 {
			want = got // each must differ from the one before
		}
	}

	want, _ = predictAll(t, on(t, "direct"), base, examples)
	for _, size := range []int{1, 8} {
		opts := base
		opts.PredictionBatchSize = size
		got, res := predictAll(t, on(t, "direct"), opts, examples)
		if !same(got, want) {
			t.Errorf("prediction_batch_size=%d changes probabilities", size)
		}
		if d := distribution(res, "inference_request_batch_size"); d.Max > int64(size) || d.Sum != 40 {
			t.Errorf("prediction_batch_size=%d: the largest batch had %d windows, all %d; want at most %d and 40", size, d.Max, d.Sum, size)
		}
	}
}

// recorder is a Scorer that keeps the number of windows of each batch.
type recorder struct {
	model.MultiScorer
	mu    sync.Mutex
	sizes []int
}

func (r *recorder) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	n := 0
	for _, b := range batches {
		n += len(b.Windows)
	}
	r.mu.Lock()
	r.sizes = append(r.sizes, n)
	r.mu.Unlock()
	return r.MultiScorer.ScoreAll(ctx, batches, probs)
}

// TestBatchesFillAcrossDocuments checks that documents of one window each do
// not make batches of one where there is enough to do: prediction_batch_size
// windows of like length go together, whichever bundle brought them.
func TestBatchesFillAcrossDocuments(t *testing.T) {
	for _, size := range []int{1, 8, 16} {
		opts := Options{ModelURI: Path(testModel(t)), PredictionBatchSize: size}
		m := loadModel(t, opts)
		r := &recorder{MultiScorer: m.scorer}
		m.scorer = r
		bundles := []*predictFn{{Options: opts}, {Options: opts}}
		emitted := 0
		emit := func(beam.EventTime, Labelled) { emitted++ }
		for _, f := range bundles {
			if err := f.Setup(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.StartBundle(emit, nil)
		}
		// All cores are busy until every document is there.
		release := make(chan struct{})
		for range runtime.GOMAXPROCS(0) {
			pipe.Go(func() { <-release })
		}
		for i := range 64 {
			e := exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i+1, 40), 256)
			if err := bundles[i%2].ProcessElement(t.Context(), 0, e, emit, nil); err != nil {
				t.Fatal(err)
			}
		}
		close(release)
		for _, f := range bundles {
			if err := f.FinishBundle(t.Context(), emit, nil); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "documents", emitted, 64)
		equal(t, "batches", r.sizes, slices.Repeat([]int{size}, 64/size))
	}
}

// holder is a Scorer that keeps batches of so many lines waiting.
type holder struct {
	model.MultiScorer
	lines int
	until chan struct{}
}

func (h *holder) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	if len(batches) == 1 && batches[0].NumSteps() == h.lines {
		<-h.until
	}
	return h.MultiScorer.ScoreAll(ctx, batches, probs)
}

// failing is a Scorer that fails batches of so many lines.
type failing struct {
	model.MultiScorer
	lines int
}

func (f failing) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	if batches[0].NumSteps() == f.lines {
		return errors.New("the device is gone")
	}
	return f.MultiScorer.ScoreAll(ctx, batches, probs)
}

// cramped is a Scorer of a device that has room for one window at a time.
type cramped struct{ model.MultiScorer }

func (c cramped) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	if len(batches) > 1 || len(batches[0].Windows) > 1 {
		return model.ErrOutOfMemory
	}
	return c.MultiScorer.ScoreAll(ctx, batches, probs)
}

// TestPlanHalves has a document of several windows, for which the device has no room at
// once: a run labels it all the same, and so the plan must not fail.
func TestPlanHalves(t *testing.T) {
	in := write(t, map[string]string{"a.txt": strings.Repeat("Agaricus\n", 3000)})
	opts := Options{ModelURI: Path(testModel(t)), Base: Path(in), Run: t.Name()}
	defer ForgetProgress(opts.Run)
	m := loadModel(t, opts)
	m.scorer = cramped{m.scorer}
	plan, err := Plan(t.Context(), opts, newSet(t, []string{in}, ""), time.Minute)
	if err != nil || plan.Lines != 3000 {
		t.Errorf("got %+v, %v; want 3000 lines", plan, err)
	}
}

// TestPredictFails has a batch that fails: so does the bundle, and no document comes
// out without its labels.
func TestPredictFails(t *testing.T) {
	opts := Options{ModelURI: Path(testModel(t)), PredictionBatchSize: 1, Run: t.Name()}
	defer ForgetProgress(t.Name())
	m := loadModel(t, opts)
	m.scorer = failing{m.scorer, 30}
	f := newPredictFn(t, opts)
	var names []string
	emit := func(_ beam.EventTime, l Labelled) {
		names = append(names, string(l.Name))
		equal(t, "labels", len(l.Labels), len(l.Rows))
	}
	f.StartBundle(emit, nil)
	var err error
	for i, lines := range []int{20, 30, 20} {
		err = f.ProcessElement(t.Context(), 0, exampleOf(fmt.Sprintf("%d.txt", i), manyLines(i, lines), 256), emit, nil)
		if err != nil {
			break
		}
	}
	if err == nil {
		err = f.FinishBundle(t.Context(), emit, nil)
	}
	if err == nil || !strings.Contains(err.Error(), "linnet: predict: /1.txt: the device is gone") {
		t.Errorf("got %v, want the device's error about 1.txt", err)
	}
	equal(t, "documents", names, []string{"0.txt"})
}

// TestFeaturesGo shows that a document which is scored, and waits for the one
// before it to be emitted, does not hold its features any more.
func TestFeaturesGo(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	opts := Options{ModelURI: Path(testModel(t)), PredictionBatchSize: 1}
	m := loadModel(t, opts)
	h := &holder{m.scorer, 40, make(chan struct{})}
	m.scorer = h
	f := newPredictFn(t, opts)
	var names []string
	emit := func(_ beam.EventTime, l Labelled) { names = append(names, string(l.Name)) }
	f.StartBundle(emit, nil)
	gone := make(chan struct{})
	push := func(name string, rows int, cleanup func(int)) {
		e := exampleOf(name, manyLines(1, rows), 256)
		runtime.AddCleanup(e.Features, cleanup, 0)
		if err := f.ProcessElement(t.Context(), 0, e, emit, nil); err != nil {
			t.Fatal(err)
		}
	}
	push("held.txt", 40, func(int) {})
	push("scored.txt", 30, func(int) { close(gone) })
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		select {
		case <-gone:
		default:
			if time.Now().Before(end) {
				continue
			}
			t.Error("the features of a scored document are still there")
		}
		break
	}
	equal(t, "emitted before the first was scored", len(names), 0)
	close(h.until)
	if err := f.FinishBundle(t.Context(), emit, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, "emitted", names, []string{"held.txt", "scored.txt"})
}

// TestSetupLoadsOnce races many instances of the DoFn for one model.
func TestSetupLoadsOnce(t *testing.T) {
	uri := testModel(t)
	before := loads.Load()
	var wg sync.WaitGroup
	fns := make([]*predictFn, 50)
	for i := range fns {
		fns[i] = &predictFn{Options: Options{ModelURI: Path(uri)}}
		wg.Go(func() {
			if err := fns[i].Setup(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := loads.Load() - before; n != 1 {
		t.Errorf("the model was loaded %d times, want once", n)
	}
	for _, f := range fns {
		if f.model != fns[0].model {
			t.Error("two instances have two models")
		}
	}
}

func TestPredictRefuses(t *testing.T) {
	uri := testModel(t)
	example := []Example{exampleOf("a.txt", "x\n", 256)}
	cases := map[string]struct {
		opts     Options
		examples []Example
		want     string
	}{
		"no model":        {Options{ModelURI: "/nonexistent"}, example, "/nonexistent"},
		"another model":   {Options{ModelURI: Path(uri), ModelHash: "0"}, example, "not the one that the run began with"},
		"another program": {Options{ModelHash: "0"}, example, "let workers run the launcher's version"},
		"label set":       {Options{ModelURI: Path(uri), LabelSet: "small"}, example, "label_set"},
		"input size":      {Options{ModelURI: Path(uri)}, []Example{exampleOf("a.txt", "x\n", 128)}, "InputSize"},
		"stride":          {Options{ModelURI: Path(uri), WindowSize: 3, PredictionStride: 4}, example, "prediction_stride"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.opts.Run = t.Name()
			defer ForgetProgress(t.Name())
			_, err := runOn("direct", func(s beam.Scope) { Predict(s, c.opts, beam.CreateList(s, c.examples)) })
			if err == nil || !strings.Contains(err.Error(), "linnet: predict: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %q", err, c.want)
			}
			if e := ProgressOf(t.Name()).Err(); e == nil || strings.Contains(e.Error(), "\n") {
				t.Errorf("Progress has the error %q, want one line", e)
			}
		})
	}
}

// TestPredictByHand has examples, as another program may make them, whose features
// are not those of their rows, where each label would stand on another line, or none
// that a model takes, which would fail the batch and be told of another document.
func TestPredictByHand(t *testing.T) {
	f := newPredictFn(t, Options{ModelURI: Path(testModel(t)), Run: t.Name()})
	defer ForgetProgress(t.Name())
	labelled, probs, rejected := map[string]bool{}, map[string][]float32{}, map[string]string{}
	emit := func(_ beam.EventTime, l Labelled) {
		labelled[string(l.Name)], probs[string(l.Name)] = l.check() == nil, l.Probs
	}
	reject := func(_ beam.EventTime, r Rejection) { rejected[string(r.Name)] = r.Reason }
	f.StartBundle(emit, reject)
	more, fewer, none, right := exampleOf("more", "a\nb\n", 256), exampleOf("fewer", "a\nb\n", 256), exampleOf("none", "a\n", 256), exampleOf("right", "a\nb\n", 256)
	more.Features = exampleOf("", "a\nb\nc\n", 256).Features
	fewer.Features = exampleOf("", "a\n", 256).Features
	none.Features = nil
	wild := none
	wild.Name, wild.Rows = []byte("wild"), []yedda.Line{{Start: 0, End: 9}}
	bare := Example{Document: Document{Name: []byte("bare"), Text: right.Text}, InputSize: 256}
	altered := func(name string, change func(b *model.Batch)) Example {
		e := exampleOf(name, "a\nb\n", 256)
		b := new(model.Batch)
		b.AppendLines(e.Features, 0, 2)
		change(b)
		e.Features = b
		return e
	}
	id := altered("id", func(b *model.Batch) { b.IDs[1] = 256 })
	ends := altered("ends", func(b *model.Batch) { b.GroupEnd[3] = 1 << 20 })
	layout := altered("layout", func(b *model.Batch) { b.Layout = b.Layout[1:] })
	nan := altered("nan", func(b *model.Batch) { b.Layout[0] = float32(math.NaN()) })
	windows := altered("windows", func(b *model.Batch) { b.Windows = []model.ContextWindow{{First: 1, Len: 9}} })
	surveyed := func(name, text string, inputSize int) Example { // by a Survey of another text or table
		e := exampleOf(name, "a\nb\n", 256)
		e.Features, e.Survey = nil, feature.NewSurvey([]byte(text), yedda.Rows([]byte(text)), inputSize, 1)
		return e
	}
	table, other := surveyed("table", "a\nb\n", 1<<20), surveyed("other", "c\n", 256)
	both := exampleOf("both", "a\nb\n", 256)
	both.Survey = other.Survey
	for _, e := range []Example{more, fewer, none, wild, bare, right, id, ends, layout, nan, windows, table, other, both} {
		if err := f.ProcessElement(t.Context(), 0, e, emit, reject); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.FinishBundle(t.Context(), emit, reject); err != nil {
		t.Fatal(err)
	}
	equal(t, "labelled", labelled, map[string]bool{"none": true, "bare": true, "right": true, "windows": true, "table": true, "other": true, "both": true})
	for _, name := range []string{"table", "other", "both"} {
		equal(t, name+": probabilities", probs[name], probs["right"])
	}
	for name, want := range map[string]string{
		"more": "not one line of features a row", "fewer": "not one line of features a row", "wild": "row 1 is from byte 0 to 9, of 2 bytes",
		"id": "id 256, but input_size is 256", "ends": "line 1: a group of ids ends at 1048576", "layout": "101 layout numbers for 2 lines", "nan": "layout number 1 is NaN",
	} {
		if !strings.Contains(rejected[name], want) {
			t.Errorf("%s is rejected with %q", name, rejected[name])
		}
	}
}

// TestPredictOther has a model whose class of what nobody can read is one of the
// collapsed labels alone: no line may be given a label that is not of its set.
func TestPredictOther(t *testing.T) {
	w, err := model.Load(os.DirFS(testModel(t)))
	if err != nil {
		t.Fatal(err)
	}
	other := w.Config.OtherClass
	w.Config.FullClasses[slices.Index(w.Config.FullClasses, other)] = "Ecology"
	dir := t.TempDir()
	if err := model.Save(dir, w, nil); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{"": other, model.Full: ""} {
		got, _ := predictAll(t, on(t, "direct"), Options{ModelURI: Path(dir), LabelSet: set}, []Example{exampleOf("a.txt", "one\n\ufffd\n", 256)})
		l := got["a.txt"]
		if _, labels := l.Inked(); len(labels) != 2 || labels[1] != want {
			t.Errorf("label_set=%s: labels %q, want %q for the line that nobody can read", set, labels, want)
		}
	}
}

// TestModelFromAnywhere has models that load, and whose numbers would end in
// labels without a meaning or take all memory.
func TestModelFromAnywhere(t *testing.T) {
	change := func(edit func(w *model.Weights)) Options {
		w, err := model.Load(os.DirFS(testModel(t)))
		if err != nil {
			t.Fatal(err)
		}
		edit(w)
		dir := t.TempDir()
		if err := model.Save(dir, w, &model.Metadata{}); err != nil {
			t.Fatal(err)
		}
		return Options{ModelURI: Path(dir), WindowSize: -1, Run: t.Name()}
	}
	defer ForgetProgress(t.Name())

	opts := change(func(w *model.Weights) {
		for i := range w.OutputWeights {
			w.OutputWeights[i] = 3e38 * float32(1-2*(i%2))
		}
	})
	_, err := runOn("direct", func(s beam.Scope) {
		Predict(s, opts, beam.CreateList(s, []Example{exampleOf("a.txt", manyLines(1, 30), 256)}))
	})
	if err == nil || !strings.Contains(err.Error(), "/a.txt: the model at "+string(opts.ModelURI)+" gives NaN where a probability should be") {
		t.Errorf("numbers too large to reckon with: got %v", err)
	}

	opts = change(func(w *model.Weights) { w.Config.WindowSize, w.Config.PredictionStride = 20_000, 1 })
	f := newPredictFn(t, opts)
	for rows, fits := range map[int]bool{20_000: true, 24_000: true, 40_000: false, 1 << 25: false} {
		r := f.fits(&Document{Rows: make([]yedda.Line, rows)})
		if (r == nil) != fits || !fits && !strings.Contains(r.Reason, "choose a larger --prediction_stride") {
			t.Errorf("%d rows in windows of 20,000, one apart: got %v, want it to fit: %t", rows, r, fits)
		}
	}
}
