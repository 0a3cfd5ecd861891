package transforms

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/beamtest"
)

func TestMain(m *testing.M) { beamtest.Main(m) }

// testModel writes a small model of made-up numbers and returns its folder. It
// has both label sets, and enough in its recurrent weights that a window's
// bounds show in the probabilities.
func testModel(t testing.TB) string { return testModelOf(t, 7) }

// testModelOf is testModel of other numbers for each seed.
func testModelOf(t testing.TB, seed uint32) string {
	t.Helper()
	c := model.DefaultConfig()
	c.InputSize, c.EmbeddingSize, c.HiddenSize = 256, 8, 5
	c.FullClasses = []string{"Description", "Key", "Misc-exposition", "Nomenclature"}
	dir := t.TempDir()
	if err := model.Save(dir, modeltest.Weights(c, seed), &model.Metadata{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// write writes files, by their paths below a new folder, which it returns.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, path, text)
	}
	return dir
}

// newSet is input.New for text.
func newSet(t *testing.T, args []string, output string) *input.Set {
	t.Helper()
	set, err := input.New(args, output, false)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// urisOf are the addresses of a set's documents.
func urisOf(t *testing.T, set *input.Set) (uris [][]byte) {
	t.Helper()
	if err := set.Walk(t.Context(), func(f input.File) error { uris = append(uris, []byte(f.URI)); return nil }); err != nil {
		t.Fatal(err)
	}
	return uris
}

// fakeGS has objects as Cloud Storage does, and serveGS has a handler, its or one around
// that, answer to gs://.
func fakeGS(t *testing.T) *fakestorage.Server {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func serveGS(t *testing.T, handler http.Handler) {
	t.Helper()
	listener := httptest.NewServer(handler)
	t.Cleanup(listener.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(listener.URL, "http://"))
}

func loadModel(t *testing.T, opts Options) *Model {
	t.Helper()
	m, err := LoadModel(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// collected are the elements that collect saw, by key. The workers of prism
// and direct are in this process.
var collected sync.Map

type collectFn struct{ Key string }

func (f *collectFn) ProcessElement(_ context.Context, t beam.EventTime, x beam.X) {
	got, _ := collected.LoadOrStore(f.Key, new(bag))
	b := got.(*bag)
	b.Lock()
	defer b.Unlock()
	b.elements, b.times = append(b.elements, x), append(b.times, t)
}

type bag struct {
	sync.Mutex
	elements []any
	times    []beam.EventTime
}

func init() { beam.RegisterDoFn(&collectFn{}) }

// collect keeps the elements of c for gather.
func collect(s beam.Scope, key string, c beam.PCollection) {
	beam.ParDo0(s, &collectFn{key}, c)
}

// gather returns the elements that collect kept under key, and forgets them.
func gather[T any](key string) []T {
	got, ok := collected.LoadAndDelete(key)
	if !ok {
		return nil
	}
	var out []T
	for _, x := range got.(*bag).elements {
		out = append(out, x.(T))
	}
	return out
}

// onBoth runs a test on prism and on direct.
func onBoth(t *testing.T, f func(t *testing.T, run func(build func(s beam.Scope)) beam.PipelineResult)) {
	for _, runner := range []string{"direct", "prism"} {
		t.Run(runner, func(t *testing.T) { f(t, on(t, runner)) })
	}
}

// on runs pipelines on one of them, and ends the test where one fails.
func on(t *testing.T, runner string) func(build func(s beam.Scope)) beam.PipelineResult {
	return func(build func(s beam.Scope)) beam.PipelineResult {
		t.Helper()
		res, err := runOn(runner, build)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
}

func runOn(runner string, build func(s beam.Scope)) (beam.PipelineResult, error) {
	p, s := beam.NewPipelineWithRoot()
	build(s)
	return beam.Run(context.Background(), runner, p)
}

// counters are those of namespace.
func counters(res beam.PipelineResult, namespace string) map[string]int64 {
	out := map[string]int64{}
	q := res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Namespace() == namespace })
	for _, c := range q.Counters() {
		out[c.Name()] += c.Result()
	}
	return out
}

// distribution is one of inference's, all transforms together.
func distribution(res beam.PipelineResult, name string) metrics.DistributionValue {
	var out metrics.DistributionValue
	q := res.Metrics().Query(func(r metrics.SingleResult) bool { return r.Name() == name })
	for _, d := range q.Distributions() {
		v := d.Result()
		out.Max = max(out.Max, v.Max)
		out.Count += v.Count
		out.Sum += v.Sum
	}
	return out
}

func paths(dir string, names ...string) [][]byte {
	var out [][]byte
	for _, name := range names {
		out = append(out, []byte(filepath.Join(dir, name)))
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
	}
}
