package transforms

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"pgregory.net/rapid"

	"github.com/linnet-ml/linnet/transforms/inference"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// TestAgainAny has run after run into one output folder, as chance has it: documents come,
// change, go bad and go, a curator edits, empties, deletes and adds files, records are lost,
// each run has other flags, and some end in the middle. After each run the folder holds
// what a model says that knows nothing of records but what a run that came to its end was
// to write, and whose file it is.
func TestAgainAny(t *testing.T) {
	var faults atomic.Int64 // requests to gs:// until it fails
	faults.Store(math.MaxInt64)
	server := fakeGS(t)
	serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := faults.Add(-1)
		if left == 0 { // it is done all the same, and nobody is told
			server.HTTPHandler().ServeHTTP(httptest.NewRecorder(), r)
		}
		if left <= 0 {
			http.Error(w, "no more", http.StatusBadRequest)
			return
		}
		server.HTTPHandler().ServeHTTP(w, r)
	}))
	models := []Path{Path(testModel(t)), Path(testModelOf(t, 8))}
	buckets, labelled := 0, map[string]map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		w := &world{T: t, root: root, out: filepath.Join(root, "out"), models: models, faults: &faults, labelled: labelled,
			inputs: map[string]string{}, files: map[string]string{}, done: map[string]label{}, rejected: map[string]string{}}
		if rapid.IntRange(0, 3).Draw(t, "gs") == 0 {
			buckets++
			bucket := fmt.Sprint("out", buckets)
			server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
			w.out = "gs://" + bucket + "/x"
		}
		w.last.ModelURI, w.last.LabelSet, w.last.Base = models[0], "full", Path(filepath.Join(root, "in"))
		for i, name := range againNames {
			w.input(filepath.Join(root, "in", name), "", againTexts[i])
		}
		for range rapid.IntRange(8, 16).Draw(t, "steps") {
			w.step()
		}
		w.run(false)
	})
}

// dying is a context that ends when it was asked so often.
type dying struct {
	context.Context
	left *atomic.Int64
}

func (d dying) Err() error {
	if d.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// world is an output folder with what is to be in it.
type world struct {
	*rapid.T
	root, out string
	models    []Path
	faults    *atomic.Int64
	runs      int
	last      Options

	labelled map[string]map[string]string // what was asked → outputs

	inputs   map[string]string // URI → content
	begun    bool              // a run began in the folder
	files    map[string]string // path below out → content
	done     map[string]label  // name → the last labelling, where its record is left
	rejected map[string]string // name → URI of the row
}

// label is how a document was labelled.
type label struct {
	uri, content, model, settings string
	outputs                       []string
	sums                          map[string]string // all outputs that runs wrote → content
}

func (w *world) must(err error) {
	if err != nil {
		w.Helper()
		w.Fatal(err)
	}
}

var againNames = []string{"a.txt", "sub/b.txt"}

var againTexts = []string{
	"Agaricus nov.\nhabitat in silvis\n", "Boletus [@ x #Key*] y\r\n\r\nz", "", "\n\n", "\ufffd\n\xff\nFomes\n", "[@Agaricus#Nomenclature*]\nhabitat\n",
	"\xff\xfea\x00b\x00", strings.Repeat("too large\n", 100), // rejected
}

const againLimit = 500

func (w *world) step() {
	switch rapid.SampledFrom([]string{"input", "user", "user", "lose", "run", "run", "run", "run", "crash"}).Draw(w.T, "step") {
	case "input":
		in, name := rapid.SampledFrom([]string{"in", "in", "in", "other"}).Draw(w.T, "in"), rapid.SampledFrom(againNames).Draw(w.T, "name")
		w.input(filepath.Join(w.root, in, name), rapid.SampledFrom([]string{"", "", "", ".ann", "gone"}).Draw(w.T, "as"), rapid.SampledFrom(againTexts).Draw(w.T, "text"))
	case "user":
		paths := []string{"a.txt.ann", "a.txt.csv", "brat/a.ann", "html/a.txt.html", "sub/b.txt.tsv", IndexFile}
		if len(w.files) > 0 && rapid.Bool().Draw(w.T, "there") {
			paths = slices.Sorted(maps.Keys(w.files))
		}
		path := rapid.SampledFrom(paths).Draw(w.T, "path")
		_, there := w.files[path]
		switch what := rapid.SampledFrom([]string{"edit", "edit", "delete", "empty"}).Draw(w.T, "what"); {
		case what == "delete":
			delete(w.files, path)
			w.must(store.Delete(w.Context(), store.Join(w.out, path)))
		case what == "empty" && there:
			w.put(path, "")
		case what == "edit":
			w.put(path, fmt.Sprint("mine, ", len(w.files)+w.runs))
		}
	case "lose":
		if names := slices.Sorted(maps.Keys(w.done)); len(names) > 0 {
			name := rapid.SampledFrom(names).Draw(w.T, "record")
			delete(w.done, name)
			w.must(store.Write(w.Context(), store.Join(w.out, DoneFolder, name+".json"), []byte(rapid.SampledFrom([]string{"", "null", `{"document":"a`}).Draw(w.T, "left"))))
		}
	case "run":
		w.run(false)
	case "crash":
		w.run(true)
	}
}

// input puts a document at path, as another kind of file than before, or none.
func (w *world) input(path, as, text string) {
	for _, uri := range []string{path, path + ".ann"} {
		delete(w.inputs, uri)
		w.must(os.RemoveAll(uri))
	}
	if as == "gone" {
		return
	}
	w.inputs[path+as] = text
	w.must(os.MkdirAll(filepath.Dir(path), 0o777))
	w.must(os.WriteFile(path+as, []byte(text), 0o666))
}

func (w *world) put(path, text string) {
	w.files[path] = text
	w.must(store.Write(w.Context(), store.Join(w.out, path), []byte(text)))
}

// options are a run's flags, now and then those of the run before. One that is to crash has
// something to do.
func (w *world) options(crash bool) Options {
	w.runs++
	o := w.last
	switch rapid.SampledFrom([]string{"the same", "the same", "model", "labels", "formats", "formats", "input"}).Draw(w.T, "other") {
	case "model":
		o.ModelURI = rapid.SampledFrom(w.models).Draw(w.T, "model")
	case "labels":
		o.LabelSet = rapid.SampledFrom([]string{"collapsed", "full"}).Draw(w.T, "labels")
	case "formats":
		o.Formats = rapid.SampledFrom([][]string{nil, {"csv"}, {"yedda", "tsv"}, {"yedda", "brat", "csv"}, {"yedda", "html", "csv"}}).Draw(w.T, "formats")
	case "input":
		o.Base = Path(filepath.Join(w.root, rapid.SampledFrom([]string{"in", "in", "other"}).Draw(w.T, "in")))
	}
	if crash {
		o.LabelSet = map[string]string{"collapsed": "full", "full": "collapsed"}[o.LabelSet]
	}
	o.Settings = fmt.Sprint(o.LabelSet, o.Formats)
	o.Force = rapid.IntRange(0, 5).Draw(w.T, "force") == 0
	o.RetryRejected = !crash && rapid.IntRange(0, 5).Draw(w.T, "retry") == 0
	o.Output, o.MaxDocumentBytes, o.Tries = Path(w.out), againLimit, 1
	m, err := LoadModel(w.Context(), o)
	w.must(err)
	o.ModelHash, o.InputSize = m.Hash, m.Config.InputSize
	w.last = o
	return o
}

// expected is what a run is to make of a document.
type expected struct {
	did  string // pass, skip, label or reject
	why  string // part of the reason
	uri  string
	text map[string]string // outputs
}

func (w *world) expect(o Options) map[string]expected {
	wants := map[string]expected{}
	for uri, content := range w.inputs {
		if name, in := strings.CutPrefix(filepath.ToSlash(uri), filepath.ToSlash(string(o.Base))+"/"); in {
			name = strings.TrimSuffix(name, ".ann")
			want := w.expectOne(o, name, uri, content)
			want.uri = uri
			wants[name] = want
		}
	}
	return wants
}

func (w *world) expectOne(o Options, name, uri, content string) expected {
	if _, was := w.rejected[name]; o.RetryRejected && !was {
		return expected{did: "pass"}
	}
	if len(content) > againLimit {
		return expected{did: "reject", why: "too large"}
	}
	before := w.done[name]
	known := before.content == content && before.model == o.ModelHash && before.settings == o.Settings && strings.HasSuffix(before.uri, ".ann") == strings.HasSuffix(uri, ".ann")
	for _, path := range o.outputs(name) {
		text, there := w.files[path]
		known = known && there && (text != "" || before.sums[path] == "")
	}
	switch {
	case known && !o.Force:
		return expected{did: "skip"}
	case strings.HasPrefix(content, "\xff\xfe"):
		return expected{did: "reject", why: "UTF-16"}
	}
	want := expected{did: "label", text: w.label(o, name, uri, content)}
	if o.Force {
		return want
	}
	if _, there := w.inputs[before.uri]; there && strings.TrimSuffix(before.uri, ".ann") != strings.TrimSuffix(uri, ".ann") && before.content != content {
		return expected{did: "reject", why: "its outputs would take the place of those of " + before.uri, text: want.text}
	}
	for path, new := range want.text {
		text, there := w.files[path]
		switch sum, ours := before.sums[path]; {
		case there && ours && text != "" && text != sum:
			return expected{did: "reject", why: "was edited since it was written", text: want.text}
		case there && !ours && !strings.HasPrefix(new, text):
			want.did, want.why = "reject", "is there already"
		}
	}
	return want
}

// label is what a document's outputs are to be.
func (w *world) label(o Options, name, uri, content string) map[string]string {
	key := fmt.Sprintf("%q", []string{name, filepath.Ext(uri), content, o.ModelHash, o.Settings})
	if w.labelled[key] != nil {
		return w.labelled[key]
	}
	d, _, err := (&readFn{Options: o}).parse(w.Context(), &Document{URI: []byte(uri), Name: []byte(name)}, []byte(content))
	w.must(err)
	l := w.predict(o, d)
	lines, labels := l.Inked()
	chosen, err := o.formats()
	w.must(err)
	outputs := map[string]string{}
	for _, format := range chosen {
		files, err := format.encode(&l, yedda.SpansOf(l.Text, lines, labels), false)
		w.must(err)
		for i, out := range format.outputs {
			outputs[out.Of(name)] = string(files[i])
		}
		if format.name == "yedda" && !bytes.Equal(yedda.Parse(files[0]).Text, d.Text) {
			w.Fatalf("%q comes back as another text", content)
		}
	}
	w.labelled[key] = outputs
	return outputs
}

// predict is what Predict makes of a document.
func (w *world) predict(o Options, d *Document) Labelled {
	m, err := LoadModel(w.Context(), o)
	w.must(err)
	one := inference.NewEngine(scorerHandler{model: m}, inference.Options{MaxBatchSize: math.MaxInt, Concurrency: 1})
	try := &trial{predict: &predictFn{Options: o, model: m, other: m.other(), queue: inference.NewQueue[job[Document]](one)}}
	var outs []scored
	if len(d.Rows) > 0 {
		e := Example{Document: *d, InputSize: m.Config.InputSize}
		e.featurize(m.deferred(&o), 1)
		outs, err = try.score(w.Context(), try.predict.items(&e))
		w.must(err)
	}
	l, err := try.predict.decode(d, outs)
	w.must(err)
	return l
}

// run has a run of its own flags, which ends in the middle where it is to crash.
func (w *world) run(crash bool) {
	o := w.options(crash)
	set, err := input.New([]string{string(o.Base)}, w.out, false)
	w.must(err)
	set.Outputs, set.Records = o.Outputs(), Records
	wants := w.expect(o)
	if len(wants) == 0 {
		return
	}
	mine := w.files[IndexFile]
	foreign := !o.Force && mine != "" && slices.Contains(o.Formats, "html")
	for name := range wants {
		foreign = foreign || !o.Force && !w.begun && slices.ContainsFunc(o.outputs(name), func(path string) bool { _, there := w.files[path]; return there })
	}
	if !crash {
		w.plan(o, set, wants, foreign)
	}
	ctx, before := w.Context(), w.folder(DoneFolder)
	if crash {
		left := 8*rapid.Int64Range(0, 9).Draw(w.T, "until") + rapid.Int64Range(0, 7).Draw(w.T, "and")
		if store.Remote(w.out) {
			w.faults.Store(left)
		} else {
			ctx = dying{ctx, new(atomic.Int64)}
			ctx.(dying).left.Store(left)
		}
	}
	defer w.faults.Store(math.MaxInt64)
	got, err := w.launch(ctx, o, set)
	w.faults.Store(math.MaxInt64)
	switch {
	case foreign && !crash:
		if !errors.Is(err, ErrForeign) {
			w.Fatalf("run %d: got %v, want %v", w.runs, err, ErrForeign)
		}
	case err != nil && !crash:
		w.Fatalf("run %d: %v", w.runs, err)
	case err != nil:
		w.crashed(o, wants, before)
	default:
		w.ended(o, wants, got)
	}
	if disk := w.disk(); !maps.Equal(disk, w.files) {
		w.Fatalf("run %d: the folder has\n%q, want\n%q", w.runs, disk, w.files)
	}
}

// plan has Plan tell what the run does.
func (w *world) plan(o Options, set *input.Set, wants map[string]expected, foreign bool) {
	o.Run = fmt.Sprint(w.out, " plan ", w.runs)
	defer ForgetProgress(o.Run)
	want := map[string]int64{}
	for _, x := range wants {
		want[x.did]++
	}
	got, err := Plan(w.Context(), o, set, 0)
	if foreign {
		if !errors.Is(err, ErrForeign) {
			w.Fatalf("plan of run %d: got %v, want %v", w.runs, err, ErrForeign)
		}
		return
	}
	w.must(err)
	if got.Done != want["skip"] || got.Rejected != want["reject"] || got.Documents != want["label"] {
		w.Fatalf("run %d is planned as %+v, want %v", w.runs, *got, want)
	}
	if disk := w.disk(); !maps.Equal(disk, w.files) {
		w.Fatalf("the plan of run %d wrote something", w.runs)
	}
}

// launch does what predict's launcher and its pipeline do, one document after the other.
func (w *world) launch(ctx context.Context, o Options, set *input.Set) (map[string]string, error) {
	o.Run = fmt.Sprint(w.out, " ", w.runs)
	defer ForgetProgress(o.Run)
	if err := cmp.Or(o.Check(ctx, set), o.Begin(ctx, set)); err != nil {
		return nil, err
	}
	var err error
	if o.Again, err = HasRecords(ctx, w.out, DoneFolder); err != nil {
		return nil, err
	}
	if o.Rejections, err = HasRecords(ctx, w.out, RejectedFolder); err != nil {
		return nil, err
	}
	reading, writing, rejecting := &readFn{Options: o}, &writeFn{Options: o}, &rejectFn{Options: o}
	reading.Setup()
	w.must(writing.Setup())
	rejecting.Setup()
	got := map[string]string{}
	err = set.Walk(ctx, func(f input.File) error {
		d, r, err := reading.read(ctx, &wanted{[]byte(f.URI), againLimit})
		if err != nil {
			return err
		}
		switch {
		case d == done:
			got[f.Name] = "skip"
		case d != nil:
			got[f.Name] = "label"
			if _, r, err = writing.write(ctx, w.predict(o, d)); err != nil {
				return err
			}
		case r == nil:
			got[f.Name] = "pass"
		}
		if r != nil {
			got[f.Name] = "reject"
			_, _, err = rejecting.write(ctx, *r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	settled := set
	if o.RetryRejected {
		settled = nil
	}
	if o.Rejections {
		err = Settle(ctx, o, settled)
	}
	return got, cmp.Or(err, Merge(ctx, w.out))
}

// ended holds a run that came to its end to what was expected.
func (w *world) ended(o Options, wants map[string]expected, got map[string]string) {
	w.begun = true
	disk := w.disk()
	for name, want := range wants {
		if got[name] != want.did {
			w.Fatalf("run %d: %s: got %s, want %s %s", w.runs, name, got[name], want.did, want.why)
		}
		switch want.did {
		case "skip":
			delete(w.rejected, name)
		case "reject":
			w.rejected[name] = want.uri
			for path, text := range want.text { // an empty one was replaced by what went again
				if old, there := w.files[path]; there && strings.HasPrefix(text, old) && len(old) < len(text) {
					if _, there := disk[path]; !there {
						delete(w.files, path)
					}
				}
			}
		case "label":
			delete(w.rejected, name)
			w.write(o, name, want)
		}
	}
	for name, uri := range w.rejected { // those that are over
		_, there := w.inputs[uri]
		if want := wants[name]; !there || !o.RetryRejected && want.uri == uri && want.did != "reject" {
			delete(w.rejected, name)
		}
	}
	w.records(wants)
	index := slices.ContainsFunc(slices.Collect(maps.Values(w.done)), func(l label) bool {
		return slices.ContainsFunc(l.outputs, func(path string) bool { return strings.HasPrefix(path, "html/") })
	})
	mine, there := w.files[IndexFile]
	if there && (o.Force && slices.Contains(o.Formats, "html") || mine == "") {
		delete(w.files, IndexFile)
		there = false
	}
	if is := w.has(IndexFile); is != (index || there) {
		w.Fatalf("run %d: an index is there: %t, want %t", w.runs, is, index)
	}
}

// write notes that a document was labelled.
func (w *world) write(o Options, name string, want expected) {
	sums := map[string]string{}
	maps.Copy(sums, w.done[name].sums)
	maps.Copy(sums, want.text)
	maps.Copy(w.files, want.text)
	w.done[name] = label{want.uri, w.inputs[want.uri], o.ModelHash, o.Settings, o.outputs(name), sums}
}

// records holds the records, and the two files of them, to what was expected.
func (w *world) records(wants map[string]expected) {
	done, rejected, files := map[string]string{}, map[string]string{}, w.folder("")
	for line := range strings.Lines(files[ManifestFile]) {
		var r Done
		w.must(json.Unmarshal([]byte(line), &r))
		done[r.Document] = r.InputSHA256 + r.Model + r.Settings
	}
	for line := range strings.Lines(files[RejectedFile]) {
		var r Reject
		w.must(json.Unmarshal([]byte(line), &r))
		rejected[r.Document] = r.Input
		if want, ok := wants[r.Document]; ok && want.did == "reject" && !strings.Contains(r.Reason, want.why) {
			w.Fatalf("run %d: %s is rejected with %q, want %q", w.runs, r.Document, r.Reason, want.why)
		}
	}
	want := map[string]string{}
	for name, l := range w.done {
		want[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(l.content))) + l.model + l.settings
	}
	if !maps.Equal(done, want) {
		w.Fatalf("run %d: the manifest has %q, want %q", w.runs, done, want)
	}
	if !maps.Equal(rejected, w.rejected) {
		w.Fatalf("run %d: rejected are %q, want %q", w.runs, rejected, w.rejected)
	}
}

// crashed takes the folder as a run left it that ended in the middle: a curator's files are
// as they were, others as they were, gone or as they should be, and no record tells of
// what is not there. Before are the records before it.
func (w *world) crashed(o Options, wants map[string]expected, before map[string]string) {
	disk, records := w.disk(), w.folder(DoneFolder)
	w.begun = w.begun || len(records) > 0 || w.has(ManifestFile)
	for name, want := range wants {
		l, record := w.done[name], records[name]
		fresh := record != before[name] && record != ""
		for _, path := range o.outputs(name) {
			old, was := w.files[path]
			now, is := disk[path]
			_, known := l.sums[path]
			switch {
			case fresh && now != want.text[path], is && now != old && now != want.text[path]:
				w.Fatalf("run %d ended at once: %s is %q, want %q", w.runs, path, now, want.text[path])
			case !o.Force && strings.HasPrefix(old, "mine") && (now != old || fresh):
				w.Fatalf("run %d ended at once: %s was %q and is %q", w.runs, path, old, now)
			case record != "" && !fresh && known && is && now != old:
				w.Fatalf("run %d ended at once: %s was written again, and its record stands", w.runs, path)
			case record == "" && before[name] != "" && is && was && known && now != want.text[path]:
				w.Fatalf("run %d ended at once: %s is left of an earlier run, without a record", w.runs, path)
			}
		}
		if fresh {
			w.write(o, name, want)
		} else if record == "" {
			delete(w.done, name)
		}
	}
	w.files = disk
	w.rejected = map[string]string{}
	for name, text := range w.folder(RejectedFolder) {
		var r Reject
		w.must(json.Unmarshal([]byte(text), &r))
		w.rejected[name] = r.Input
	}
}

func (w *world) has(path string) bool {
	there, err := store.Exists(w.Context(), store.Join(w.out, path))
	w.must(err)
	return there
}

// disk are the files of documents and curators.
func (w *world) disk() map[string]string {
	files := w.folder("")
	maps.DeleteFunc(files, func(path, text string) bool {
		return strings.HasPrefix(path, "_") || path == IndexFile && strings.Contains(text, indexTitle)
	})
	return files
}

// folder are the contents of a folder's files by their paths, of records by names.
func (w *world) folder(name string) map[string]string {
	folder, files := w.out, map[string]string{}
	if name != "" {
		folder = store.Join(folder, name)
	}
	w.must(listBelow(w.Context(), folder, func(obj store.Object) error {
		if store.Temporary(obj.Path) {
			w.Fatalf("run %d left %s", w.runs, obj.Path)
		}
		data, err := store.Read(w.Context(), obj.Path, 0)
		path := filepath.ToSlash(strings.TrimPrefix(obj.Path, folder)[1:])
		if name != "" {
			path = strings.TrimSuffix(path, ".json")
		}
		files[path] = string(data)
		return err
	}))
	return files
}
