package transforms

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/mtime"
	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// readAll runs Read on a runner over the files of a folder.
func readAll(s beam.Scope, opts Options, key string, uris [][]byte) {
	docs, rejected := Read(s, opts, beam.CreateList(s, uris))
	collect(s, key, docs)
	collect(s, key+" rejected", rejected)
}

func TestRead(t *testing.T) {
	dir := write(t, map[string]string{
		"a.txt":            "Agaricus \xff nov.\r\nhabitat",
		"sub/b.txt.ann":    "[@Agaricus nov.#Nomenclature*]\nopen [@ and stray#Key*]",
		"brat.ann":         "T1\tKey 0 3\tabc\n",
		"large.txt":        strings.Repeat("x", 101),
		"sub/empty.txt":    "",
		"no markup.txt":    "plain [@x#Key*]",
		"sub/unclosed.ann": "[@ never closed",
		"latin é.txt":      "\xe0 \xe9 \xe4 \xf6 Agaricus novus",
		"latin.txt.ann":    "[@\xe0 \xe9 \xe4 \xf6#Key*] Agaricus novus",
		"koi8.txt":         "\xf7\xc9\xc4",
		"koi8 2.txt":       "\xf7\xc9\xc4 \xdb\xcc\xd1\xd0\xcb\xc1",
	})
	names := []string{"koi8.txt", "koi8 2.txt", "latin é.txt", "latin.txt.ann", "a.txt", "sub/b.txt.ann", "brat.ann", "large.txt", "sub/empty.txt", "no markup.txt", "sub/unclosed.ann", "missing.txt", "sub"}
	opts := Options{Base: Path(dir), MaxDocumentBytes: 100, Pause: time.Millisecond}
	onBoth(t, func(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult) {
		res := run(func(s beam.Scope) { readAll(s, opts, t.Name(), paths(dir, names...)) })
		got := map[string]Document{}
		for _, d := range gather[Document](t.Name()) {
			got[string(d.Name)] = d
			if want := filepath.Join(dir, filepath.FromSlash(string(d.Name))); !strings.HasPrefix(string(d.URI), want) {
				t.Errorf("URI %s, want %s", d.URI, want)
			}
		}
		texts := map[string]string{}
		for name, d := range got {
			texts[name] = string(d.Text)
		}
		equal(t, "texts", texts, map[string]string{
			"a.txt": "Agaricus \xff nov.\r\nhabitat", "sub/b.txt": "Agaricus nov.\nopen  and stray",
			"sub/empty.txt": "", "no markup.txt": "plain [@x#Key*]", "sub/unclosed": " never closed",
			"latin é.txt": "\xe0 \xe9 \xe4 \xf6 Agaricus novus", "latin.txt": "\xe0 \xe9 \xe4 \xf6 Agaricus novus",
			"koi8.txt": "\xf7\xc9\xc4", "koi8 2.txt": "\xf7\xc9\xc4 \xdb\xcc\xd1\xd0\xcb\xc1",
		})
		equal(t, "spans", got["sub/b.txt"].Spans, []yedda.Span{{Start: 0, End: 13, Label: "Nomenclature"}, {Start: 19, End: 29, Label: "Key"}})
		equal(t, "rows", got["a.txt"].Rows, []yedda.Line{{Start: 0, End: 16}, {Start: 17, End: 24}})
		equal(t, "warnings", counters(res, Namespace)["warnings"], int64(1))
		equal(t, "foreign", counters(res, Namespace)["foreign"], int64(2))
		named := 0
		for name := range counters(res, Namespace) {
			if uri, ok := strings.CutPrefix(name, ForeignCounter+ForeignExample); ok {
				named++
				equal(t, "foreign", slices.Contains([]string{url.PathEscape(filepath.Join(dir, "latin é.txt")), url.PathEscape(filepath.Join(dir, "latin.txt.ann"))}, uri), true)
			}
		}
		equal(t, "named", named > 0, true)
		equal(t, "foreign script", counters(res, Namespace)["foreign_script"], int64(1))
		equal(t, "its name", counters(res, Namespace)["foreign_script: "+url.PathEscape(filepath.Join(dir, "koi8 2.txt"))], int64(1))

		reasons := map[string]string{}
		for _, r := range gather[Rejection](t.Name() + " rejected") {
			reasons[string(r.Name)] = r.Stage + ": " + r.Reason
		}
		for name, want := range map[string]string{"brat": "brat standoff", "large.txt": "--max_document_bytes", "missing.txt": "no such file", "sub": "is a folder, not a file: it could not be listed when its documents were looked for, or took a file's place; run again"} {
			if !strings.HasPrefix(reasons[name], "read: ") || !strings.Contains(reasons[name], want) {
				t.Errorf("%s is rejected with %q, want it to tell of %q", name, reasons[name], want)
			}
		}
		equal(t, "rejected", len(reasons), 4)
	})
}

// TestReadTries makes a file that is there from the third try on, by a clock
// that goes on only while the reader pauses. Without options there are three
// tries, the third after 300 ms.
func TestReadTries(t *testing.T) {
	for _, c := range []struct {
		tries        int
		pause, after time.Duration
		want         error
	}{
		{0, 200 * time.Millisecond, 500 * time.Millisecond, nil},
		{1, 200 * time.Millisecond, 500 * time.Millisecond, fs.ErrNotExist},
		{2, 200 * time.Millisecond, 500 * time.Millisecond, fs.ErrNotExist},
		{3, 200 * time.Millisecond, 500 * time.Millisecond, nil},
		{0, 0, 250 * time.Millisecond, nil},
		{0, 0, 350 * time.Millisecond, fs.ErrNotExist},
	} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "late.txt")
			time.AfterFunc(c.after, func() { os.WriteFile(file, []byte("x"), 0o666) })
			f := &readFn{Options: Options{Tries: c.tries, Pause: c.pause}}
			data, err := f.readWithRetries(t.Context(), file, 0)
			if !errors.Is(err, c.want) || err == nil && string(data) != "x" {
				t.Errorf("%d tries, pauses from %v: got %q, %v, want %v", c.tries, c.pause, data, err, c.want)
			}
		})
	}
}

// TestReadLarge reads from gs://, where nobody knows beforehand how large a document
// is, or how large one that is stored as gzip: no more are held than have room.
func TestReadLarge(t *testing.T) {
	const size, count = 1 << 20, 6
	server := fakeGS(t)
	serveGS(t, server.HTTPHandler())
	text := bytes.Repeat([]byte("Agaricus nov.\n"), size/14)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(text)
	z.Close()
	for _, encoding := range []string{"", "gzip"} {
		for i := range count {
			o := fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "in", Name: fmt.Sprintf("%s%d.txt", encoding, i)}, Content: text}
			if encoding != "" {
				o.ContentEncoding, o.Content = encoding, packed.Bytes()
			}
			server.CreateObject(o)
		}
		f := &readFn{Options: Options{Run: t.Name(), InFlight: 2 * size * textShare, MaxDocumentBytes: 2 * size}}
		defer ForgetProgress(t.Name())
		f.Setup()
		var held, most atomic.Int64
		f.stage.do = func(ctx context.Context, w *wanted) (*Document, *Rejection, error) {
			d, r, err := f.read(ctx, w)
			if d != nil {
				n := held.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
			}
			return d, r, err
		}
		emitted := 0
		emit := func(_ beam.EventTime, d Document) {
			if !bytes.Equal(d.Text, text) {
				t.Errorf("%s: %d bytes, want %d", d.URI, len(d.Text), len(text))
			}
			emitted++
			held.Add(-1)
		}
		reject := func(_ beam.EventTime, r Rejection) { t.Error(r.Reason) }
		f.StartBundle(emit, reject)
		for i := range count {
			if err := f.ProcessElement(t.Context(), mtime.ZeroTimestamp, fmt.Appendf(nil, "gs://in/%s%d.txt", encoding, i), emit, reject); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.FinishBundle(t.Context(), emit, reject); err != nil {
			t.Fatal(err)
		}
		if emitted != count || most.Load() > 2 {
			t.Errorf("%q: %d documents, at most %d at once; want %d, 2", encoding, emitted, most.Load(), count)
		}
	}
}

// TestReadHopeless has what another try cannot mend: it is not waited for.
func TestReadHopeless(t *testing.T) {
	dir := write(t, map[string]string{"large.txt": strings.Repeat("x", 101), "folder.txt/x": ""})
	f := &readFn{Options: Options{Pause: time.Hour}}
	for _, name := range []string{"large.txt", "folder.txt", strings.Repeat("n", 300) + ".txt", "nul\x00.txt"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := f.readWithRetries(ctx, filepath.Join(dir, name), 100); err == nil || ctx.Err() != nil {
			t.Errorf("%.20q: got %v, want an error at once", name, err)
		}
		cancel()
	}
}

// TestReadBrat names the annotation of a pair: the document is called by its text.
func TestReadBrat(t *testing.T) {
	dir := write(t, map[string]string{"sub/a.txt": "abc", "sub/a.ann": "T1\tKey 0 3\tabc\n"})
	on(t, "direct")(func(s beam.Scope) {
		readAll(s, Options{Base: Path(dir), Annotated: true}, t.Name(), paths(dir, "sub/a.ann"))
	})
	docs := gather[Document](t.Name())
	equal(t, "documents", len(docs), 1)
	equal(t, "name", string(docs[0].Name), "sub/a.txt")
	equal(t, "spans", docs[0].Spans, []yedda.Span{{Start: 0, End: 3, Label: "Key"}})
}

// TestRetryOfLongName has a document whose record cannot be called by its name, which
// the store takes for the document alone: it is found and tried again.
func TestRetryOfLongName(t *testing.T) {
	in, out := write(t, map[string]string{strings.Repeat("n", 250) + ".a": "x"}), t.TempDir()
	opts := Options{Base: Path(in), Output: Path(out)}
	uri := paths(in, strings.Repeat("n", 250)+".a")
	d := Document{URI: uri[0], Name: uri[0][len(in)+1:]}
	on(t, "direct")(func(s beam.Scope) {
		WriteRejected(s, opts, beam.CreateList(s, []Rejection{*d.reject("read", fs.ErrPermission)}))
	})
	opts.RetryRejected = true
	on(t, "direct")(func(s beam.Scope) { readAll(s, opts, t.Name(), uri) })
	equal(t, "documents", len(gather[Document](t.Name())), 1)
}

// TestRetryOfFolder has folders that could not be listed, the input itself among them:
// their documents are tried again.
func TestRetryOfFolder(t *testing.T) {
	in := write(t, map[string]string{"v/1/a.txt": "x", "v/1/b.txt": "x", "v/2/c.txt": "x"})
	for folder, want := range map[string]int{"v/1": 2, "v": 3, "": 3, "v/1/a": 0} {
		opts := Options{Base: Path(in), Output: Path(t.TempDir())}
		uri := filepath.Join(in, folder)
		d := Document{URI: []byte(uri), Name: []byte(input.Name(in, uri))}
		on(t, "direct")(func(s beam.Scope) {
			WriteRejected(s, opts, beam.CreateList(s, []Rejection{*d.reject("read", fs.ErrPermission)}))
		})
		opts.RetryRejected = true
		on(t, "direct")(func(s beam.Scope) {
			readAll(s, opts, t.Name()+folder, paths(in, "v/1/a.txt", "v/1/b.txt", "v/2/c.txt"))
		})
		equal(t, "documents of "+folder, len(gather[Document](t.Name()+folder)), want)
	}
}

// TestRetryInFolder has a folder that is handed on as it cannot be listed now: who knows
// whether a document there was rejected. New documents are passed over.
func TestRetryInFolder(t *testing.T) {
	in := write(t, map[string]string{"v/a.txt": "x", "new.txt": "x"})
	opts := Options{Base: Path(in), Output: Path(t.TempDir()), RetryRejected: true}
	on(t, "direct")(func(s beam.Scope) { readAll(s, opts, t.Name(), paths(in, "v", "new.txt")) })
	equal(t, "documents", len(gather[Document](t.Name())), 0)
	rejected := gather[Rejection](t.Name() + " rejected")
	equal(t, "rejected", len(rejected), 1)
	equal(t, "name", string(rejected[0].Name), "v")
}

func TestReadDone(t *testing.T) {
	model := testModel(t)
	m := loadModel(t, Options{ModelURI: Path(model)})
	cases := map[string]struct {
		between func(t *testing.T, in, out string, o *Options) // the two runs
		again   bool
	}{
		"unchanged":      {func(t *testing.T, in, out string, o *Options) {}, false},
		"other versions": {func(t *testing.T, in, out string, o *Options) { o.Versions = "gpu" }, false},
		"other batches":  {func(t *testing.T, in, out string, o *Options) { o.PredictionBatchSize = 1 }, false},
		"force":          {func(t *testing.T, in, out string, o *Options) { o.Force = true }, true},
		"other settings": {func(t *testing.T, in, out string, o *Options) { o.Settings = "label_set=full" }, true},
		"other model":    {func(t *testing.T, in, out string, o *Options) { o.ModelURI = Path(testModel(t)); o.ModelHash = "" }, true},
		"output is gone": {func(t *testing.T, in, out string, o *Options) { os.Remove(filepath.Join(out, "a.txt.ann")) }, true},
		"output is edited": {func(t *testing.T, in, out string, o *Options) {
			os.WriteFile(filepath.Join(out, "a.txt.ann"), []byte("[@x#Key*]"), 0o666)
		}, false},
		"output lost its bytes": {func(t *testing.T, in, out string, o *Options) { os.Truncate(filepath.Join(out, "a.txt.ann"), 0) }, true},
		"document changed": {func(t *testing.T, in, out string, o *Options) {
			os.WriteFile(filepath.Join(in, "a.txt"), []byte("y"), 0o666)
		}, true},
		"record cut short": {func(t *testing.T, in, out string, o *Options) {
			os.Truncate(filepath.Join(out, DoneFolder, "a.txt.json"), 20)
		}, true},
		"another format":    {func(t *testing.T, in, out string, o *Options) { o.Formats = []string{"jsonl"} }, true},
		"only the rejected": {func(t *testing.T, in, out string, o *Options) { o.RetryRejected, o.Settings = true, "other" }, false},
		"it was rejected": {func(t *testing.T, in, out string, o *Options) {
			o.RetryRejected, o.Settings = true, "other"
			os.MkdirAll(filepath.Join(out, RejectedFolder), 0o777)
			os.WriteFile(filepath.Join(out, RejectedFolder, "a.txt.json"), nil, 0o666)
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in, out := write(t, map[string]string{"a.txt": "x"}), t.TempDir()
			opts := Options{Base: Path(in), Output: Path(out), ModelURI: Path(model), ModelHash: m.Hash, InputSize: m.Config.InputSize}
			label := func() map[string]int64 {
				res := on(t, "direct")(func(s beam.Scope) { labelAll(s, opts, paths(in, "a.txt")) })
				return counters(res, Namespace)
			}
			if got := label()["documents"]; got != 1 {
				t.Fatalf("the first run labelled %d documents", got)
			}
			c.between(t, in, out, &opts)
			opts.Run = t.Name()
			defer ForgetProgress(opts.Run)
			got := label()
			if again := got["documents"] == 1; again != c.again {
				t.Errorf("labelled again: %t, want %t", again, c.again)
			}
			if skipped := got["skipped"] == 1; skipped == c.again && !opts.RetryRejected {
				t.Errorf("skipped: %t, want %t", skipped, !c.again)
			}
			if over := ProgressOf(opts.Run).PassedOver.Load() == 1; over != (opts.RetryRejected && !c.again) {
				t.Errorf("passed over: %t, want %t", over, !over)
			}
		})
	}
}

// labelAll is all four transforms and the records of rejections.
func labelAll(s beam.Scope, opts Options, uris [][]byte) {
	docs, r1 := Read(s, opts, beam.CreateList(s, uris))
	examples, r2 := Featurize(s, opts, docs)
	labelled, r3 := Predict(s, opts, examples)
	_, r4 := Write(s, opts, labelled)
	WriteRejected(s, opts, r1, r2, r3, r4)
}

// TestReadStops checks that nothing is read once a run is to stop.
func TestReadStops(t *testing.T) {
	dir := write(t, map[string]string{"a.txt": "x"})
	ProgressOf(t.Name()).Stop()
	defer ForgetProgress(t.Name())
	on(t, "direct")(func(s beam.Scope) { readAll(s, Options{Run: t.Name()}, t.Name(), paths(dir, "a.txt")) })
	if n := len(gather[Document](t.Name())); n != 0 {
		t.Errorf("%d documents were read", n)
	}
}

// stampFn gives an address the time in its name, in seconds.
type stampFn struct{}

func (stampFn) ProcessElement(uri []byte, emit func(beam.EventTime, []byte)) {
	name := filepath.Base(string(uri))
	emit(mtime.FromMilliseconds(1000*int64(name[0]-'0')), uri)
}

func init() { beam.RegisterDoFn(&stampFn{}) }

// TestEventTimes checks that every transform emits a document with its own
// time, whichever later element made it come out.
func TestEventTimes(t *testing.T) {
	files := map[string]string{}
	var names []string
	for i := '1'; i <= '9'; i++ {
		name := string(i) + ".txt"
		files[name] = strings.Repeat("Agaricus nov.\n", 400*int('9'-i+1))
		names = append(names, name)
	}
	dir := write(t, files)
	opts := Options{Base: Path(dir), ModelURI: Path(testModel(t)), InputSize: 256}
	onBoth(t, func(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult) {
		opts := opts
		opts.Output = Path(t.TempDir())
		run(func(s beam.Scope) {
			uris := beam.ParDo(s, &stampFn{}, beam.CreateList(s, paths(dir, names...)))
			docs, _ := Read(s, opts, uris)
			collect(s, t.Name()+"docs", docs)
			examples, _ := Featurize(s, opts, docs)
			collect(s, t.Name()+"examples", examples)
			labelled, _ := Predict(s, opts, examples)
			collect(s, t.Name()+"labelled", labelled)
			written, _ := Write(s, opts, labelled)
			collect(s, t.Name()+"written", written)
		})
		for _, what := range []string{"docs", "examples", "labelled", "written"} {
			got, ok := collected.LoadAndDelete(t.Name() + what)
			if !ok {
				t.Fatalf("no %s", what)
			}
			b := got.(*bag)
			equal(t, what, len(b.elements), len(names))
			for i, x := range b.elements {
				name := ""
				switch x := x.(type) {
				case Document:
					name = string(x.Name)
				case Example:
					name = string(x.Name)
				case Labelled:
					name = string(x.Name)
				case []byte:
					name = string(x)
				}
				if want := int64(name[0]-'0') * 1000; b.times[i].Milliseconds() != want {
					t.Errorf("%s of %s has the time %d ms, want %d", what, name, b.times[i].Milliseconds(), want)
				}
			}
		}
	})
}
