package transforms

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/beamtest"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// labelledOf is text with labels, in turn, on its rows.
func labelledOf(name, text string, classes ...string) Labelled {
	d := Document{URI: []byte("/" + name), Name: []byte(name), Text: []byte(text)}
	d.Rows = yedda.Rows(d.Text)
	l := Labelled{Document: d, Classes: classes}
	for i := range d.Rows {
		l.Labels = append(l.Labels, uint16(i%len(classes)))
		for k := range classes {
			p := float32(0)
			if k == i%len(classes) {
				p = 1
			}
			l.Probs = append(l.Probs, p)
		}
	}
	return l
}

func writeAll(t *testing.T, opts Options, docs ...Labelled) beam.PipelineResult {
	t.Helper()
	return on(t, "direct")(func(s beam.Scope) {
		_, rejected := Write(s, opts, beam.CreateList(s, docs))
		WriteRejected(s, opts, rejected)
	})
}

func newWriter(t *testing.T, opts Options) *writeFn {
	t.Helper()
	w := &writeFn{Options: opts}
	if err := w.Setup(); err != nil {
		t.Fatal(err)
	}
	return w
}

// A line that nobody can read joins the spans of its neighbours where they
// have its label, and stays outside where it has none. It is a line of the record,
// as of the review page, in either case.
func TestWriteUnreadable(t *testing.T) {
	for other, want := range map[string]string{
		"Other": "[@one\n\ufffd\ufffd\n\xff#Other*]\n[@two#Key*]\n[@\ufffd#Other*]\n",
		"":      "[@one#Other*]\n\ufffd\ufffd\n\xff\n[@two#Key*]\n\ufffd\n",
	} {
		out := t.TempDir()
		l := labelledOf("a.txt", "one\n\ufffd\ufffd\n\xff\ntwo\n\ufffd\n", "Other", "Key")
		l.Other = other
		writeAll(t, Options{Output: Path(out)}, l)
		equal(t, "output with Other="+other, read(t, out, "a.txt.ann"), want)
		var d Done
		if err := json.Unmarshal([]byte(read(t, out, "_done/a.txt.json")), &d); err != nil {
			t.Fatal(err)
		}
		labels := map[string]int64{"Other": 1, "Key": 1}
		if other != "" {
			labels["Other"] = 4
		}
		equal(t, "lines of the record with Other="+other, d.Lines, 5)
		equal(t, "labels of the record with Other="+other, d.Labels, labels)
	}
}

func TestWrite(t *testing.T) {
	out := t.TempDir()
	opts := Options{Output: Path(out), ModelHash: "m", Settings: "s", Versions: "v", Formats: Formats(), Probabilities: true}
	text := "Agaricus nov.\r\nhabitat\n\n\xff\xfe in [@ pratis"
	res := writeAll(t, opts, labelledOf("sub/a.txt", text, "Nomenclature", "Description"))
	annotated := read(t, out, "sub", "a.txt.ann")
	equal(t, "text of the output", string(yedda.Parse([]byte(annotated)).Text), text)
	if !strings.HasPrefix(annotated, "[@Agaricus nov.#Nomenclature*]\r\n[@habitat#Description*]\n\n[@") {
		t.Errorf("the output begins %q", annotated)
	}
	for file, want := range map[string]string{
		"brat/sub/a.txt": text, "brat/sub/a.ann": "T1\tNomenclature 0 13\tAgaricus nov.\n",
		"sub/a.txt.jsonl": `"uri":"sub/a.txt"`, "sub/a.txt.csv": "1.000000", "sub/a.txt.tsv": "Nomenclature",
		"sub/a.txt.treatments.jsonl": `"name":"Agaricus nov."`,
		"html/sub/a.txt.html":        "<title>sub/a.txt</title>",
	} {
		if got := read(t, out, filepath.FromSlash(file)); !strings.Contains(got, want) {
			t.Errorf("%s is %q, want %q in it", file, got, want)
		}
	}
	var r Done
	if err := json.Unmarshal([]byte(read(t, out, DoneFolder, "sub", "a.txt.json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Time.IsZero() {
		t.Error("the record has no time")
	}
	for i, sum := range r.CRC32C {
		equal(t, "sum of "+r.Outputs[i], sum, crc32.Checksum([]byte(read(t, out, filepath.FromSlash(r.Outputs[i]))), crc32.MakeTable(crc32.Castagnoli)))
	}
	equal(t, "sums", len(r.CRC32C), len(r.Outputs))
	r.CRC32C, r.Time = nil, Done{}.Time
	equal(t, "record", r, Done{
		Document: "sub/a.txt", Input: "/sub/a.txt", InputSHA256: strings.Repeat("0", 64), Model: "m", Settings: "s", Versions: "v",
		Outputs: []string{"sub/a.txt.ann", "brat/sub/a.txt", "brat/sub/a.ann", "sub/a.txt.jsonl", "sub/a.txt.csv", "sub/a.txt.tsv", "sub/a.txt.treatments.jsonl", "html/sub/a.txt.html"},
		Lines:   3, Labels: map[string]int64{"Nomenclature": 2, "Description": 1},
	})
	equal(t, "counters", counters(res, Namespace), map[string]int64{"documents": 1, "lines": 3, "label_Nomenclature": 2, "label_Description": 1})
}

// TestWriteProbabilities checks that they stand where they are wanted only.
func TestWriteProbabilities(t *testing.T) {
	for _, with := range []bool{false, true} {
		out := t.TempDir()
		opts := Options{Output: Path(out), Formats: []string{"csv", "jsonl"}, Probabilities: with}
		writeAll(t, opts, labelledOf("a.txt", "x\ny\n", "Key", "Table"))
		csv, jsonl := read(t, out, "a.txt.csv"), read(t, out, "a.txt.jsonl")
		if got := strings.Contains(csv, "text,Key,Table"); got != with {
			t.Errorf("probabilities in csv: %t, want %t:\n%s", got, with, csv)
		}
		if got := strings.Contains(jsonl, "probabilities"); got != with {
			t.Errorf("probabilities in jsonl: %t, want %t:\n%s", got, with, jsonl)
		}
		if _, err := os.Stat(filepath.Join(out, "a.txt.ann")); err == nil {
			t.Error("YEDDA is written, too")
		}
	}
}

// TestSettle has records of an earlier run's rejections and one of this run's.
func TestSettle(t *testing.T) {
	in, out := write(t, map[string]string{"set/a.txt": "x", "set/b.md": "x", "set/folder/c.txt": "x", "other/d\xff.txt": "x"}), t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(in, "other", "link.txt")); err != nil {
		t.Skip(err)
	}
	before := map[string]bool{ // input → stays
		"set/a.txt": false, "set/gone.txt": false, "set/folder": false, "other/gone.txt": false, "set/a.txt/x.txt": false,
		"set/b.md": true, "other/d\xff.txt": true, "other/link.txt": true,
	}
	reject := func(run string, names ...string) {
		var docs []Rejection
		for _, name := range names {
			docs = append(docs, Rejection{URI: []byte(filepath.Join(in, filepath.FromSlash(name))), Name: []byte(strings.ReplaceAll(name, "/", " "))})
		}
		on(t, "direct")(func(s beam.Scope) {
			WriteRejected(s, Options{Output: Path(out), Run: run}, beam.CreateList(s, docs))
		})
	}
	reject("before", slices.Collect(maps.Keys(before))...)
	reject("now", "set/now.txt")
	set := newSet(t, []string{filepath.Join(in, "set")}, out)
	if err := Settle(t.Context(), Options{Output: Path(out), Run: "now"}, set); err != nil {
		t.Fatal(err)
	}
	before["set/now.txt"] = true
	for name, want := range before {
		_, err := os.Stat(filepath.Join(out, RejectedFolder, strings.ReplaceAll(name, "/", " ")+".json"))
		if got := err == nil; got != want {
			t.Errorf("the record of %q stays: %t, want %t", name, got, want)
		}
	}
	// Where not all was tried, those of what is gone go, this run's too, and of a
	// folder. A link to a document is one.
	if err := os.Symlink("b.md", filepath.Join(in, "set", "link.md")); err != nil {
		t.Fatal(err)
	}
	reject("now", "set/b.md", "set/link.md", "set/folder")
	if err := Settle(t.Context(), Options{Output: Path(out), Run: "now"}, nil); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(out, RejectedFolder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	equal(t, "records", left, []string{"other d\xff.txt.json", "other link.txt.json", "set b.md.json", "set link.md.json"})
}

// atOnce serves gs:// with next, where each request that is slow takes a while, until
// two are there at once: whether any were, it tells.
func atOnce(t *testing.T, next http.Handler, slow func(*http.Request) bool) (two *atomic.Bool) {
	var running atomic.Int64
	two = new(atomic.Bool)
	until := time.Now().Add(time.Minute)
	serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow(r) {
			if running.Add(1) > 1 {
				two.Store(true)
			}
			defer running.Add(-1)
			for !two.Load() && time.Now().Before(until) {
				time.Sleep(time.Millisecond)
			}
		}
		next.ServeHTTP(w, r)
	}))
	return two
}

// TestCheckAsOthersBegin has another run begin in a new output folder, and write there,
// between two questions about it: what it wrote is no stranger's.
func TestCheckAsOthersBegin(t *testing.T) {
	server := fakeGS(t)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "out"})
	begins := false
	serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if begins && strings.Contains(r.URL.Query().Get("prefix"), RejectedFolder) { // asked for after the manifest
			for _, name := range []string{"x/" + ManifestFile, "x/n1.txt.ann"} {
				server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "out", Name: name}})
			}
		}
		server.HTTPHandler().ServeHTTP(w, r)
	}))
	in := write(t, map[string]string{"n1.txt": "a"})
	set := newSet(t, []string{in}, "gs://out/x")
	opts := Options{Base: Path(in), Output: "gs://out/x"}
	server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "out", Name: "x/n1.txt.ann"}})
	if err := opts.Check(t.Context(), set); !errors.Is(err, ErrForeign) {
		t.Errorf("with a file of somebody's: got %v, want %v", err, ErrForeign)
	}
	begins = true
	if err := opts.Check(t.Context(), set); err != nil {
		t.Error(err)
	}
}

// TestCheckAsOthersEnd has other runs end, which remove their folder of temporary files
// each, as the output folder is looked at.
func TestCheckAsOthersEnd(t *testing.T) {
	in, out := write(t, map[string]string{"n1.txt": "a"}), t.TempDir()
	set := newSet(t, []string{in}, out)
	opts := Options{Base: Path(in), Output: Path(out)}
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	others.Go(func() {
		for temp := filepath.Join(out, TempFolder); ctx.Err() == nil; {
			os.Mkdir(temp, 0o777)
			os.Remove(temp)
		}
	})
	for range 3000 {
		if err := opts.Check(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSettleAtOnce has rejected documents of gs://, where each question takes a
// while: several are asked at once.
func TestSettleAtOnce(t *testing.T) {
	none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"code":404}}`, http.StatusNotFound)
	})
	two := atOnce(t, none, func(*http.Request) bool { return true })
	records := map[string]string{}
	for i := range 4 {
		records[fmt.Sprintf("%s/%d.txt.json", RejectedFolder, i)] = fmt.Sprintf(`{"input":"gs://in/%d.txt","run":"before"}`, i)
	}
	out := write(t, records)
	if err := Settle(t.Context(), Options{Output: Path(out), Run: "now"}, nil); err != nil {
		t.Fatal(err)
	}
	if has, err := HasRecords(t.Context(), out, RejectedFolder); has || err != nil {
		t.Errorf("records of documents that are gone are left: %t, %v", has, err)
	}
	if !two.Load() {
		t.Error("one document after another was asked for")
	}
}

// TestPlanTime has a document that is tried three times: a plan's time has that of
// reading, which is most of it where documents are small or far away.
func TestPlanTime(t *testing.T) {
	in := write(t, map[string]string{"a.txt": "x"})
	if err := os.Symlink("nowhere", filepath.Join(in, "link.txt")); err != nil {
		t.Skip(err)
	}
	set := newSet(t, []string{in}, "")
	const pause = 300 * time.Millisecond
	plan, err := Plan(t.Context(), Options{ModelURI: Path(testModel(t)), Base: Path(in), Pause: pause}, set, time.Second)
	if err != nil || plan.Rejected != 1 || plan.Time < pause {
		t.Errorf("got %+v, %v; want one rejected and at least %v", plan, err, pause)
	}
}

// TestOutputsAtOnce has an output folder on gs://: what stands in the place of
// outputs is asked for several documents at once, by Begin and by Plan.
func TestOutputsAtOnce(t *testing.T) {
	for name, f := range map[string]func(Options, *input.Set) error{
		"Begin": func(opts Options, set *input.Set) error { return opts.Begin(t.Context(), set) },
		"Plan": func(opts Options, set *input.Set) error {
			plan, err := Plan(t.Context(), opts, set, 0)
			if err == nil && (plan.Documents != 3 || plan.Rejected != 1 || !strings.Contains(plan.Example.Reason, "the place of those of gs://out/other.txt")) {
				err = fmt.Errorf("got %+v", plan)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakeGS(t)
			for file, content := range map[string]string{"other.txt": "x", "x/other.txt": "", "x/_done/0.txt.json": `{"input":"gs://out/other.txt"}`} {
				if name == "Plan" || !strings.Contains(file, DoneFolder) {
					server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "out", Name: file}, Content: []byte(content)})
				}
			}
			var asked sync.Map // whether a document is done is asked at once anyway
			two := atOnce(t, server.HTTPHandler(), func(r *http.Request) bool {
				if name == "Begin" {
					return strings.HasSuffix(r.URL.Path, ".txt.ann")
				}
				_, again := asked.LoadOrStore(r.URL.Path, true)
				return again && strings.HasSuffix(r.URL.Path, ".txt.json")
			})
			in := write(t, map[string]string{"0.txt": "a", "1.txt": "b", "2.txt": "c", "3.txt": "d"})
			set := newSet(t, []string{in}, "gs://out/x")
			defer ForgetProgress(t.Name())
			if err := f(Options{ModelURI: Path(testModel(t)), Base: Path(in), Output: "gs://out/x", Run: t.Name()}, set); err != nil {
				t.Fatal(err)
			}
			if !two.Load() {
				t.Error("one document after another was asked for")
			}
		})
	}
}

// TestPlanOfLongNames has names that are too long for an output, and for a record: what
// the plan rejects the run does. The output folder is not there yet.
func TestPlanOfLongNames(t *testing.T) {
	n := strings.Repeat("n", 240)
	in := write(t, map[string]string{n + ".txt": "x", n + "nnnnnn.txt": "x", n + "nnnnnnn.txt": "x", "sub/" + n + "nnnnnnnnnn.txt": "x"})
	set := newSet(t, []string{in}, "")
	opts := Options{ModelURI: Path(testModel(t)), InputSize: 256, Base: Path(in), Output: Path(filepath.Join(t.TempDir(), "new", "out")), Run: t.Name()}
	defer ForgetProgress(opts.Run)
	plan, err := Plan(t.Context(), opts, set, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(string(opts.Output)); err == nil {
		t.Error("the plan wrote something")
	}
	uris := urisOf(t, set)
	res := on(t, "direct")(func(s beam.Scope) { labelAll(s, opts, uris) })
	got := counters(res, Namespace)
	equal(t, "rejected", [2]int64{plan.Rejected, got["rejected"]}, [2]int64{2, 2})
	equal(t, "documents", [2]int64{plan.Documents, got["documents"]}, [2]int64{2, 2})
	if !strings.Contains(plan.Example.Reason, "file name too long; rename the document") {
		t.Errorf("got %q", plan.Example.Reason)
	}
}

// TestPlanOfNamesForGS has names that gs:// cannot hold: what the plan rejects the run does.
func TestPlanOfNamesForGS(t *testing.T) {
	server := fakeGS(t)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "out"})
	serveGS(t, server.HTTPHandler())
	in := write(t, map[string]string{"a.txt": "x"})
	if err := os.WriteFile(filepath.Join(in, "b\xff.txt"), []byte("x"), 0o666); err != nil {
		t.Skipf("this disk holds no such name: %v", err)
	}
	set := newSet(t, []string{in}, "")
	opts := Options{ModelURI: Path(testModel(t)), InputSize: 256, Base: Path(in), Output: "gs://out/x", Run: t.Name()}
	defer ForgetProgress(opts.Run)
	plan, err := Plan(t.Context(), opts, set, 0)
	if err != nil {
		t.Fatal(err)
	}
	uris := urisOf(t, set)
	res := on(t, "direct")(func(s beam.Scope) { labelAll(s, opts, uris) })
	got := counters(res, Namespace)
	equal(t, "rejected", [2]int64{plan.Rejected, got["rejected"]}, [2]int64{1, 1})
	equal(t, "documents", [2]int64{plan.Documents, got["documents"]}, [2]int64{1, 1})
	if !strings.Contains(plan.Example.Reason, "without line ends; rename the document") {
		t.Errorf("got %q", plan.Example.Reason)
	}
}

// TestPlanOfStrangers has an output folder with files that no record tells of, one of
// them what a run that was killed wrote, and a folder: what the plan rejects the run does.
func TestPlanOfStrangers(t *testing.T) {
	in := write(t, map[string]string{"a.txt": "Agaricus\n", "b.txt": "Boletus\n", "c.txt": "Clavaria\n", "d/d.txt": "\n", "e.txt": "Entoloma\n", "f.txt": "Fomes\n"})
	set := newSet(t, []string{in}, "")
	uris := urisOf(t, set)
	out := t.TempDir()
	opts := Options{ModelURI: Path(testModel(t)), InputSize: 256, Base: Path(in), Output: Path(out), Again: true, Run: t.Name()}
	defer ForgetProgress(opts.Run)
	on(t, "direct")(func(s beam.Scope) { labelAll(s, opts, uris) })
	for _, gone := range []string{"_done/a.txt.json", "_done/b.txt.json", "_done/d/d.txt.json", "_done/e.txt.json", "e.txt.ann", "_done/f.txt.json"} {
		if err := os.Remove(filepath.Join(out, gone)); err != nil {
			t.Fatal(err)
		}
	}
	for _, mine := range []string{"b.txt.ann", "c.txt.csv", "d/d.txt.ann", "f.txt.ann"} {
		put(t, filepath.Join(out, mine), "mine")
	}
	if err := os.Chmod(filepath.Join(out, "f.txt.ann"), 0); err != nil { // which root reads all the same
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(out, "e.txt.ann"), 0o777); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(out, ManifestFile), "")
	rejection := filepath.Join(out, RejectedFolder, "c.txt.json") // of a document that is done
	if err := os.Mkdir(filepath.Dir(rejection), 0o777); err != nil {
		t.Fatal(err)
	}
	put(t, rejection, "{}")
	opts.Rejections = true
	if plan, err := Plan(t.Context(), opts, set, 0); err != nil || plan.Done != 1 {
		t.Errorf("got %+v, %v, want one done", plan, err)
	}
	if _, err := os.Stat(rejection); err != nil {
		t.Errorf("the plan deleted something: %v", err)
	}
	opts.Settings, opts.Formats = "others", []string{"yedda", "csv"}
	planned := opts
	planned.Again = false // which Plan finds out
	plan, err := Plan(t.Context(), planned, set, 0)
	if err != nil {
		t.Fatal(err)
	}
	res := on(t, "direct")(func(s beam.Scope) { labelAll(s, opts, uris) })
	got := counters(res, Namespace)
	equal(t, "rejected", [2]int64{plan.Rejected, got["rejected"]}, [2]int64{5, 5})
	equal(t, "documents", [2]int64{plan.Documents, got["documents"]}, [2]int64{1, 1})
}

// TestWriteRejects has a label that YEDDA cannot hold: the document is rejected
// for YEDDA, its other formats are written, and it is not done.
func TestWriteRejects(t *testing.T) {
	out := t.TempDir()
	opts := Options{Output: Path(out), Formats: []string{"yedda", "csv"}}
	long := strings.Repeat("n", 300) + ".txt"
	res := writeAll(t, opts, labelledOf("bad.txt", "x #Key*]\n", "no label"), labelledOf(long, "x\n", "Key"), labelledOf("good.txt", "x\n", "Key"))
	equal(t, "documents", counters(res, Namespace)["documents"], int64(1))
	equal(t, "rejected", counters(res, Namespace)["rejected"], int64(2))
	read(t, out, "bad.txt.csv")
	for _, file := range []string{"bad.txt.ann", DoneFolder + "/bad.txt.json"} {
		if _, err := os.Stat(filepath.Join(out, file)); err == nil {
			t.Errorf("%s is there", file)
		}
	}
	if err := Merge(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(read(t, out, RejectedFile)), "\n")
	equal(t, "records of rejections", len(lines), 2)
	reasons := map[string]string{}
	for _, line := range lines {
		var r Reject
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		reasons[r.Document] = r.Stage + ": " + r.Reason
	}
	for name, want := range map[string]string{"bad.txt": `write: label "no label" is none of YEDDA`, long: "write: "} {
		if !strings.HasPrefix(reasons[name], want) || !strings.Contains(reasons[name], "rename") {
			t.Errorf("%.10s is rejected with %q, want %q and what to rename", name, reasons[name], want)
		}
	}
	if want := "its other formats are written and no record tells of them, so that other labels take --force"; !strings.HasSuffix(reasons["bad.txt"], want) {
		t.Errorf("bad.txt is rejected with %q, want %q behind it", reasons["bad.txt"], want)
	}
	equal(t, "manifest", strings.Count(read(t, out, ManifestFile), "\n"), 1)
	if _, err := os.Stat(filepath.Join(out, TempFolder)); err == nil {
		t.Errorf("%s is still there", TempFolder)
	}
	// With the class renamed, and with YEDDA alone, which has no other formats.
	for _, force := range []bool{false, true} {
		opts.Force = force
		res = writeAll(t, opts, labelledOf("bad.txt", "x #Key*]\n", "no-label"))
		equal(t, "rejected with the class renamed", counters(res, Namespace)["rejected"] == 0, force)
	}
	alone := t.TempDir()
	writeAll(t, Options{Output: Path(alone)}, labelledOf("bad.txt", "x\n", "no label"))
	if err := Merge(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
	if record := read(t, alone, RejectedFile); !strings.Contains(record, `choose another --format"`) {
		t.Errorf("alone it is rejected with %s", record)
	}
}

// TestWriteLabelsOfBrat rejects a label that brat would read as another and an
// offset.
func TestWriteLabelsOfBrat(t *testing.T) {
	out := t.TempDir()
	res := writeAll(t, Options{Output: Path(out), Formats: []string{"brat", "tsv"}}, labelledOf("a.txt", "x\n", "no label"), labelledOf("b.txt", "x\n", "Écologie"))
	equal(t, "rejected", counters(res, Namespace)["rejected"], int64(1))
	equal(t, "brat", read(t, out, "brat/b.ann"), "T1\tÉcologie 0 1\tx\n")
	read(t, out, "a.txt.tsv")
	if _, err := os.Stat(filepath.Join(out, "brat/a.ann")); err == nil {
		t.Error("brat/a.ann is there")
	}
}

// byHand are the rows of twoRows as another program may make them, and what they are
// rejected for.
var byHand = []struct {
	name string
	rows []yedda.Line
	want string
}{
	{"none", nil, ""},
	{"behind", []yedda.Line{{Start: 0, End: 17}, {Start: 19, End: 100}}, "row 2 is from byte 19 to 100"},
	{"before", []yedda.Line{{Start: -1, End: 15}}, "row 1 is from byte -1 to 15"},
	{"back", []yedda.Line{{Start: 15, End: 1}}, "row 1 is from byte 15 to 1"},
	{"over", []yedda.Line{{Start: 0, End: 17}, {Start: 14, End: 20}}, "row 2 is from byte 14 to 20"},
	{"begins late", []yedda.Line{{Start: 1, End: 17}, {Start: 19, End: 37}}, "row 1, from byte 1 to 17, is no line that can be read"},
	{"ends early", []yedda.Line{{Start: 0, End: 17}, {Start: 19, End: 30}}, "row 2, from byte 19 to 30, is no line that can be read"},
	{"two lines", []yedda.Line{{Start: 0, End: 37}}, "row 1, from byte 0 to 37, is no line that can be read"},
	{"blank", []yedda.Line{{Start: 0, End: 17}, {Start: 18, End: 18}}, "row 2, from byte 18 to 18, is no line that can be read"},
	{"turned", []yedda.Line{{Start: 19, End: 37}, {Start: 0, End: 15}}, "row 2 is from byte 0 to 15"},
	{"first left out", []yedda.Line{{Start: 19, End: 37}}, "a line ahead of row 1, behind byte 0, has no row"},
	{"last left out", []yedda.Line{{Start: 0, End: 17}}, "a line behind the last row, behind byte 17, has no row"},
}

// handed are elements that no coder has seen, which would make the rows again.
var handed struct {
	docs     []Document
	labelled []Labelled
}

func handDocuments(_ []byte, emit func(Document)) {
	for _, d := range handed.docs {
		emit(d)
	}
}

func handLabelled(_ []byte, emit func(Labelled)) {
	for _, l := range handed.labelled {
		emit(l)
	}
}

func init() {
	beam.RegisterFunction(handDocuments)
	beam.RegisterFunction(handLabelled)
}

// TestByHand has documents and labels that another program made, or made others of.
func TestByHand(t *testing.T) {
	text := twoRows
	decoded := func(text string) Document { // its rows are made as Read makes them
		d, err := decodeDocument(encodeDocument(testDocument(text)))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	long := decoded(strings.Repeat("Agaricus\n", 25000)) // its features are made on all cores
	long.Rows[20000].End = 1 << 30
	docs := []Document{long}
	var labelled []Labelled
	wants := map[string]string{"": "row 20001 is from byte 180000 to 1073741824"}
	add := func(name string, l Labelled, want string) {
		l.Name = []byte(name)
		labelled, wants[name] = append(labelled, l), want
	}
	for _, c := range byHand {
		d := testDocument(text)
		d.Name, d.Rows = []byte(c.name), c.rows
		docs = append(docs, d)
		add(c.name, Labelled{Document: d, Classes: []string{"Key"}, Labels: make([]uint16, 2)}, c.want)
	}
	cut, broken := decoded(text), decoded(text)
	cut.Name, cut.Text = []byte("cut"), cut.Text[:20]
	broken.Name, broken.Text[3] = []byte("broken"), '\n'
	for want, d := range map[string]Document{"row 2 is from byte 19 to 37, of 20 bytes": cut, "row 1, from byte 0 to 17, is no line that can be read": broken} {
		docs = append(docs, d)
		add(string(d.Name), Labelled{Document: d, Classes: []string{"Key"}, Labels: make([]uint16, 2)}, want)
	}
	docs[0].Name = nil
	l := Labelled{Document: testDocument(text), Classes: []string{"Key", "Notes"}, Labels: []uint16{0, 1}}
	add("right", l, "")
	l.Labels = l.Labels[:1]
	add("few", l, "1 labels for 2 rows")
	l.Labels = []uint16{0, 1, 1}
	add("many", l, "3 labels for 2 rows")
	l.Labels = []uint16{0, 2}
	add("high", l, "label 2 of 2 classes")
	l.Labels, l.Probs = []uint16{0, 1}, []float32{1, 0, 1}
	add("probabilities", l, "3 probabilities for 2 rows of 2 classes")

	check := func(stage string, good []string, rejected []Rejection, all int) {
		t.Helper()
		for _, r := range rejected {
			want := wants[string(r.Name)]
			if want == "" || r.Stage != stage || !strings.HasPrefix(r.Reason, want) {
				t.Errorf("%q is rejected by %s: %q, want %q", r.Name, r.Stage, r.Reason, want)
			}
		}
		for _, name := range good {
			if wants[name] != "" {
				t.Errorf("%s: %q is not rejected", stage, name)
			}
		}
		equal(t, stage+": documents", len(good)+len(rejected), all)
	}
	out := t.TempDir()
	handed.docs, handed.labelled = docs, labelled
	_, err := runOn("direct", func(s beam.Scope) {
		examples, rejected := Featurize(s, Options{InputSize: 300}, beam.ParDo(s, handDocuments, beam.Impulse(s)))
		collect(s, "examples", examples)
		collect(s, "not featurized", rejected)
		written, rejected := Write(s, Options{Output: Path(out), Formats: Formats(), Probabilities: true}, beam.ParDo(s, handLabelled, beam.Impulse(s)))
		collect(s, "written", written)
		collect(s, "not written", rejected)
	})
	if err != nil {
		t.Fatal(err)
	}
	var good []string
	for _, e := range gather[Example]("examples") {
		good = append(good, string(e.Name))
		equal(t, string(e.Name)+": rows", e.Rows, yedda.Rows(e.Text))
		equal(t, string(e.Name)+": lines", e.Features.NumLines(), len(e.Rows))
	}
	check("featurize", good, gather[Rejection]("not featurized"), len(docs))
	good = nil
	for _, name := range gather[[]byte]("written") {
		good = append(good, string(name))
	}
	check("write", good, gather[Rejection]("not written"), len(labelled))
	equal(t, "none.ann", read(t, out, "none.ann"), "[@Agaricus \xff\xfe nov.#Key*]\r\n\n\f[@habitat in pratis#Key*]")
}

// TestClassesOfOneName has labels that another program maps to fewer.
func TestClassesOfOneName(t *testing.T) {
	out := t.TempDir()
	l := labelledOf("a.txt", "x\ny\nz\n", "Key", "Notes", "Key")
	l.Probs = nil
	writeAll(t, Options{Output: Path(out)}, l)
	var r Done
	if err := json.Unmarshal([]byte(read(t, out, DoneFolder+"/a.txt.json")), &r); err != nil {
		t.Fatal(err)
	}
	equal(t, "labels", r.Labels, map[string]int64{"Key": 2, "Notes": 1})
	l.Probs = []float32{.6, .2, .2, .1, .8, .1, .2, .3, .5}
	res := writeAll(t, Options{Output: Path(t.TempDir())}, l)
	equal(t, "rejected", counters(res, Namespace)["rejected"], int64(1))
}

func TestCountDone(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if n, newest, err := CountDone(t.Context(), out, time.Time{}); n != 0 || !newest.IsZero() || err != nil {
		t.Errorf("before anything was done: %d, %v, %v", n, newest, err)
	}
	writeAll(t, Options{Output: Path(out)}, labelledOf("a.txt", "x\n", "Key"), labelledOf("sub/b.txt", "x\n", "Key"))
	n, newest, err := CountDone(t.Context(), out, time.Time{})
	if n != 2 || newest.IsZero() || err != nil {
		t.Errorf("got %d, %v, %v, want 2", n, newest, err)
	}
	later := newest.Add(time.Second)
	if err := os.Chtimes(filepath.Join(out, DoneFolder, "sub", "b.txt.json"), later, later); err != nil {
		t.Fatal(err)
	}
	if n, _, err := CountDone(t.Context(), out, newest); n != 1 || err != nil {
		t.Errorf("got %d newer records, %v, want 1", n, err)
	}
}

// TestWriteStaysInside has documents of another pipeline whose names lead out of
// the output folder.
func TestWriteStaysInside(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	opts := Options{Output: Path(out), Formats: Formats()}
	names := []string{"../a.txt", "sub/../../b.txt", "/c.txt", "..", "", "../../../../../../../../" + dir + "/d.txt"}
	docs := []Labelled{labelledOf("good.txt", "x\n", "Key")}
	for _, name := range names {
		docs = append(docs, labelledOf(name, "x\n", "Key"))
	}
	res := writeAll(t, opts, docs...)
	equal(t, "counters", counters(res, Namespace)["rejected"], int64(len(names)))
	if err := Merge(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	equal(t, "rejected", strings.Count(read(t, out, RejectedFile), "its output would not lie in the output folder"), len(names))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the output folder lie %v, %v", entries, err)
	}
}

// TestRegather has the records of a watch gathered where they changed, and not where they
// are those of before: of 100,000 documents they are 55 MB to write.
func TestRegather(t *testing.T) {
	out := write(t, map[string]string{DoneFolder + "/a.txt.json": "{}", RejectedFolder + "/b.txt.json": "{}"})
	last := uint64(0)
	gathers := func(what string, want bool) {
		t.Helper()
		put(t, filepath.Join(out, ManifestFile), "as it was")
		var err error
		if last, err = Regather(t.Context(), out, last); err != nil {
			t.Fatal(err)
		}
		equal(t, what, read(t, out, ManifestFile) != "as it was", want)
	}
	record := filepath.Join(out, DoneFolder, "a.txt.json")
	gathers("at first", true)
	gathers("nothing new", false)
	put(t, filepath.Join(out, DoneFolder, "c.txt.json"), "{}")
	gathers("one more", true)
	if err := os.Chtimes(record, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	gathers("one of an older time", true)
	if err := os.Remove(filepath.Join(out, RejectedFolder, "b.txt.json")); err != nil {
		t.Fatal(err)
	}
	gathers("a rejection less", true)
	gathers("nothing new again", false)

	put(t, record, "{ }")
	path := filepath.Join(out, RejectedFile)
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o777); err != nil {
		t.Fatal(err)
	}
	if now, err := Regather(t.Context(), out, last); err == nil || now != last {
		t.Errorf("where a folder is in the way: %d, %v, want %d and an error", now, err, last)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	gathers("after the failure", true)
}

// TestRejectionGoes checks that a record of rejection goes when its document
// is done after all.
func TestRejectionGoes(t *testing.T) {
	out := write(t, map[string]string{RejectedFolder + "/a.txt.json": "{}", RejectedFolder + "/b.txt.json": "{}"})
	if has, err := HasRecords(t.Context(), out, RejectedFolder); err != nil || !has {
		t.Fatalf("HasRecords: %t, %v", has, err)
	}
	writeAll(t, Options{Output: Path(out), Rejections: true}, labelledOf("a.txt", "x\n", "Key"))
	if err := Merge(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	equal(t, "rejected", read(t, out, RejectedFile), "{}\n")
	if has, err := HasRecords(t.Context(), t.TempDir(), RejectedFolder); err != nil || has {
		t.Errorf("HasRecords of an empty folder: %t, %v", has, err)
	}
}

// TestWriteFails has an output folder that cannot be made: the bundle fails.
func TestWriteFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if err := os.Symlink(out, out); err != nil { // a loop
		t.Skip(err)
	}
	_, err := runOn("direct", func(s beam.Scope) {
		Write(s, Options{Output: Path(out)}, beam.CreateList(s, []Labelled{labelledOf("a.txt", "x\n", "Key")}))
	})
	if err == nil || !strings.Contains(err.Error(), "linnet: write: store: ") {
		t.Errorf("got %v, want an error of write", err)
	}
}

// TestWriteFailsOfOutput has an output that cannot be written though its record could:
// there must be no record of it.
func TestWriteFailsOfOutput(t *testing.T) {
	out := t.TempDir()
	if err := os.Symlink("sub", filepath.Join(out, "sub")); err != nil { // a loop
		t.Skipf("no symbolic links here: %v", err)
	}
	w := newWriter(t, Options{Output: Path(out), Run: t.Name()})
	defer ForgetProgress(t.Name())
	if o, r, err := w.write(t.Context(), labelledOf("sub/a.txt", "x\n", "Key")); err == nil {
		t.Errorf("got %v, %v, want an error", o, r)
	}
	if _, err := os.Stat(filepath.Join(out, DoneFolder, "sub", "a.txt.json")); err == nil {
		t.Error("there is a record")
	}
}

// TestMergeCleans has what a run that was killed left in the folder of temporary
// files, and what somebody put there: the first goes, the second stays.
func TestMergeCleans(t *testing.T) {
	theirs := []string{".notes", "notes.tmp", "notes.txt"}
	out := write(t, map[string]string{TempFolder + "/.notes": "", TempFolder + "/notes.tmp": "", TempFolder + "/notes.txt": ""})
	st, err := store.WithTemp(t.Context(), out, filepath.Join(out, TempFolder))
	if err != nil {
		t.Fatal(err)
	}
	var temporary []string
	err = st.Create(t.Context(), filepath.Join(out, "x"), func(io.Writer) error { // here it is killed
		temporary, err = filepath.Glob(filepath.Join(out, TempFolder, ".*.tmp"))
		for _, file := range temporary {
			err = errors.Join(err, os.Link(file, filepath.Join(filepath.Dir(file), ".copy"+filepath.Base(file))))
		}
		return err
	})
	if err != nil || len(temporary) != 1 {
		t.Fatal(temporary, err)
	}
	if err := Merge(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(out, TempFolder))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	equal(t, "left", left, theirs)
}

// TestMergeFails has a folder where a file of the records should be.
func TestMergeFails(t *testing.T) {
	for _, name := range []string{ManifestFile, RejectedFile} {
		out := write(t, map[string]string{RejectedFolder + "/b.txt.json": "{}", name + "/x": ""})
		writeAll(t, Options{Output: Path(out), Formats: []string{"html"}}, labelledOf("a.txt", "x\n", "Key"))
		if err := Merge(t.Context(), out); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error about %s", err, name)
		}
	}
	for _, name := range []string{DoneFolder, RejectedFolder} { // with a folder that cannot be listed, as a network disk may have
		out := write(t, map[string]string{DoneFolder + "/a.txt.json": "{}", RejectedFolder + "/b.txt.json": "{}"})
		unlisted := filepath.Join(out, name, "sub")
		if err := os.Symlink("sub", unlisted); err != nil { // a loop
			t.Skip("no symbolic links here: ", err)
		}
		if err := Merge(t.Context(), out); err == nil || !strings.Contains(err.Error(), unlisted) {
			t.Errorf("got %v, want an error about %s", err, unlisted)
		}
	}
}

func TestMaxRejected(t *testing.T) {
	var rejections []Rejection
	for i := range 120 {
		rejections = append(rejections, Rejection{URI: []byte("/x"), Name: fmt.Appendf(nil, "%d", i), Stage: "read", Reason: "a > b && c"})
	}
	for _, c := range []struct {
		limit float64
		n     int
		tried int64 // as Read counts them
		over  int64 // passed over
		fails bool
	}{{0.1, 120, 0, 0, true}, {0.1, 99, 0, 0, false}, {0, 120, 0, 0, false}, {-1, 120, 0, 0, true}, {-1, 1, 98, 0, false}, {1, 120, 0, 0, false}, {0.29, 29, 100, 0, false}, {0.07, 7, 100, 0, false}, {0.1, 120, 120, 1080, false}} {
		opts := Options{Run: fmt.Sprint(t.Name(), c), Output: Path(t.TempDir()), MaxRejected: c.limit}
		ProgressOf(opts.Run).Tried.Store(c.tried)
		ProgressOf(opts.Run).PassedOver.Store(c.over)
		_, err := runOn("direct", func(s beam.Scope) { WriteRejected(s, opts, beam.CreateList(s, rejections[:c.n])) })
		ForgetProgress(opts.Run)
		if fails := err != nil; fails != c.fails {
			t.Errorf("%d rejected, at most %g allowed: failed %t, want %t (%v)", c.n, c.limit, fails, c.fails, err)
		}
		if c.fails && !strings.Contains(err.Error(), fmt.Sprintf("100 of 100 documents were rejected, more than --max_rejected=%g; mend what ", max(c.limit, 0))+store.Join(string(opts.Output), RejectedFile)+" names, or raise that; the last: /x: a > b && c") {
			t.Errorf("got %v", err)
		}
		if c.fails { // and lists what it names
			if list, err := os.ReadDir(filepath.Join(string(opts.Output), RejectedFolder)); err != nil || len(list) != 100 {
				t.Errorf("%d records of 100 rejections: %v", len(list), err)
			}
			continue
		}
		if record := read(t, string(opts.Output), RejectedFolder+"/0.json"); !strings.Contains(record, `"reason":"a > b && c"`) { // as it is copied
			t.Errorf("the record is %s", record)
		}
	}
}

// TestWindowsAreGlobal checks that every transform refuses fixed windows when
// the pipeline is built.
func TestWindowsAreGlobal(t *testing.T) {
	opts := Options{Output: "out"}
	for name, c := range map[string]struct {
		elements any
		apply    func(s beam.Scope, c beam.PCollection)
	}{
		"Read":      {[][]byte{nil}, func(s beam.Scope, c beam.PCollection) { Read(s, opts, c) }},
		"Featurize": {[]Document{{}}, func(s beam.Scope, c beam.PCollection) { Featurize(s, opts, c) }},
		"Predict":   {[]Example{{InputSize: 1}}, func(s beam.Scope, c beam.PCollection) { Predict(s, opts, c) }},
		"Write":     {[]Labelled{{}}, func(s beam.Scope, c beam.PCollection) { Write(s, opts, c) }},
	} {
		t.Run(name, func(t *testing.T) {
			got := beamtest.PanicOf(func(s beam.Scope) {
				c.apply(s, beam.WindowInto(s, window.NewFixedWindows(1000), beam.CreateList(s, c.elements)))
			})
			if !strings.HasPrefix(got, "transforms: "+name+": ") || !strings.Contains(got, "global window") || strings.Contains(got, "\n") {
				t.Errorf("got the panic %q, want one line about the global window", got)
			}
		})
	}
}

// Without a PCollection Beam says "no input pcollections", and not where.
func TestWriteRejectedOfNothing(t *testing.T) {
	got := beamtest.PanicOf(func(s beam.Scope) { WriteRejected(s, Options{Output: "out"}) })
	if !strings.HasPrefix(got, "transforms: WriteRejected: there is no PCollection; ") {
		t.Errorf("got the panic %q, want one that names WriteRejected", got)
	}
}

// An InputSize that no table has is refused when the pipeline is built.
func TestFeaturizeRefuses(t *testing.T) {
	got := beamtest.PanicOf(func(s beam.Scope) { Featurize(s, Options{InputSize: -1}, beam.CreateList(s, []Document{{}})) })
	if !strings.HasPrefix(got, "transforms: Featurize: Options.InputSize is -1; ") {
		t.Errorf("got the panic %q, want one that names InputSize", got)
	}
}

func TestFeaturize(t *testing.T) {
	d := testDocument(twoRows)
	onBoth(t, func(t *testing.T, run func(func(beam.Scope)) beam.PipelineResult) {
		run(func(s beam.Scope) {
			examples, _ := Featurize(s, Options{InputSize: 300}, beam.CreateList(s, []Document{d}))
			collect(s, t.Name(), examples)
		})
		got := gather[Example](t.Name())
		want := Example{Document: d, InputSize: 300, Features: feature.Extract(d.Text, d.Rows, 300, 1)}
		want.made = want.Features
		equal(t, "examples", got, []Example{want})
	})
}

// Documents that somebody's own pipeline read have no SHA256: that is none that two share.
func TestStandingWithoutHash(t *testing.T) {
	in, out := write(t, map[string]string{"1/a.txt": "x", "2/a.txt": "y"}), t.TempDir()
	for _, again := range []bool{false, true} {
		for i, want := range []string{"", "its outputs would take the place of those of " + filepath.Join(in, "1/a.txt"), ""} {
			folder := []string{"1", "2", "1"}[i]
			l := labelledOf("a.txt", map[string]string{"1": "x", "2": "y"}[folder], "Key")
			l.URI = []byte(filepath.Join(in, folder, "a.txt"))
			_, r, err := newWriter(t, Options{Output: Path(out), Again: again}).write(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			if (r == nil) != (want == "") || r != nil && !strings.HasPrefix(r.Reason, want) {
				t.Errorf("again %t, %s: rejected with %v, want %q", again, l.URI, r, want)
			}
			if got := read(t, out, "a.txt.ann"); got != "[@x#Key*]" {
				t.Errorf("again %t, %s: the output is %q, want the first one's", again, l.URI, got)
			}
		}
	}
}

// TestStanding labels a document again after something happened to its outputs or
// to itself: what a curator wrote and what is another document's stays.
func TestStanding(t *testing.T) {
	edit := func(file string) func(in, out string, o *Options) {
		return func(in, out string, o *Options) {
			os.WriteFile(filepath.Join(out, filepath.FromSlash(file)), []byte("edited"), 0o666)
		}
	}
	other := func(text string, gone bool) func(in, out string, o *Options) {
		return func(in, out string, o *Options) {
			elsewhere := write(t, map[string]string{"a.txt": text})
			o.Base = Path(elsewhere)
			if gone {
				os.Remove(filepath.Join(in, "a.txt"))
			}
		}
	}
	for name, c := range map[string]struct {
		between func(in, out string, o *Options)
		want    string // of the reason why it is rejected
	}{
		"nothing":                {func(in, out string, o *Options) {}, ""},
		"an edit":                {edit("a.txt.ann"), "a.txt.ann was edited since it was written"},
		"an edit of brat's":      {edit("brat/a.ann"), "brat/a.ann was edited"},
		"an edit, and force":     {func(in, out string, o *Options) { edit("a.txt.ann")(in, out, o); o.Force = true }, ""},
		"an edit of no output":   {edit("a.txt.csv"), ""},
		"an edit of another's":   {edit("brat/b.ann"), ""},
		"edited and moved away":  {func(in, out string, o *Options) { os.Remove(filepath.Join(out, "a.txt.ann")) }, ""},
		"emptied by a power cut": {func(in, out string, o *Options) { os.Truncate(filepath.Join(out, "a.txt.ann"), 0) }, ""},
		"an edit, without record": {func(in, out string, o *Options) {
			edit("a.txt.ann")(in, out, o)
			os.RemoveAll(filepath.Join(out, DoneFolder))
		}, "a.txt.ann: is there already, and no record says that predict wrote it (one that was killed may have, of another version, "},
		"one's own, where a format is new": {func(in, out string, o *Options) { edit("a.txt.tsv")(in, out, o); o.Formats = []string{"yedda", "tsv"} }, "a.txt.tsv: is there already"},
		"a format is new":                  {func(in, out string, o *Options) { o.Formats = []string{"yedda", "tsv"} }, ""},
		"killed in the act": {func(in, out string, o *Options) {
			st, err := o.outputStore(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := o.deleteOutputs(t.Context(), st, "a.txt", &Done{Outputs: []string{"a.txt.ann", "brat/a.txt", "brat/a.ann"}, CRC32C: make([]uint32, 3)}); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"an empty file, without record": {func(in, out string, o *Options) {
			os.Truncate(filepath.Join(out, "a.txt.ann"), 0)
			os.RemoveAll(filepath.Join(out, DoneFolder))
		}, ""},
		"an edit, without record, and force": {func(in, out string, o *Options) {
			edit("a.txt.ann")(in, out, o)
			os.RemoveAll(filepath.Join(out, DoneFolder))
			o.Force = true
		}, ""},
		"of an earlier try of a bundle": {func(in, out string, o *Options) {
			o.Began = time.Now().Add(-time.Second).UnixNano()
			edit("a.txt.ann")(in, out, o)
			os.RemoveAll(filepath.Join(out, DoneFolder))
		}, ""},
		"older than all tries of a bundle": {func(in, out string, o *Options) {
			edit("a.txt.ann")(in, out, o)
			os.RemoveAll(filepath.Join(out, DoneFolder))
			o.Began = time.Now().Add(time.Second).UnixNano()
		}, "a.txt.ann: is there already"},
		"an edit of what only runs before wrote": {func(in, out string, o *Options) { edit("a.txt.csv")(in, out, o); o.Formats = []string{"yedda", "csv"} }, "a.txt.csv was edited"},
		"what only runs before wrote":            {func(in, out string, o *Options) { o.Formats = []string{"yedda", "csv"} }, ""},
		"another document":                       {other("y", false), "its outputs would take the place of those of "},
		"another \xe9":                           {other("y", false), "its outputs would take the place of those of "},
		"another, where none can look": {func(in, out string, o *Options) {
			other("y", false)(in, out, o)
			if err := errors.Join(os.RemoveAll(in), os.Symlink(in, in)); err != nil {
				t.Fatal(err)
			}
		}, "a.txt: too many levels of symbolic links); choose another --output"},
		"the same, changed, by a link": {func(in, out string, o *Options) {
			if err := errors.Join(os.WriteFile(filepath.Join(in, "a.txt"), []byte("y"), 0o666), os.Symlink(in, out+" of it")); err != nil {
				t.Fatal(err)
			}
			o.Base = Path(out + " of it")
		}, ""},
		"another, gone":    {other("y", true), ""},
		"the same, moved":  {other("x", true), ""},
		"the same, copied": {other("x", false), ""},
	} {
		t.Run(name, func(t *testing.T) {
			// The folder's name may be no UTF-8.
			in, out := filepath.Join(write(t, map[string]string{name + "/a.txt": "x"}), name), t.TempDir()
			opts := Options{Base: Path(in), Output: Path(out), Settings: "before"}
			label := func() (reason string) {
				data, err := os.ReadFile(filepath.Join(string(opts.Base), "a.txt"))
				if err != nil {
					t.Fatal(err)
				}
				l := labelledOf("a.txt", string(data), "Key")
				l.URI, l.SHA256 = []byte(filepath.Join(string(opts.Base), "a.txt")), sha256.Sum256(data)
				w := newWriter(t, opts)
				_, r, err := w.write(t.Context(), l)
				if err != nil {
					t.Fatal(err)
				}
				if r != nil {
					reason = r.Reason
				}
				return reason
			}
			opts.Formats = []string{"csv"}
			if r := label(); r != "" {
				t.Fatalf("the first run rejects it: %s", r)
			}
			for range 2 {
				opts.Formats, opts.Again = []string{"yedda", "brat"}, true
				if r := label(); r != "" {
					t.Fatalf("the next run rejects it: %s", r)
				}
			}
			c.between(in, out, &opts)
			before, _ := os.ReadFile(filepath.Join(out, "a.txt.ann"))
			opts.Again, opts.Settings = true, "after"
			r := label()
			if (r == "") != (c.want == "") || !strings.Contains(r, c.want) {
				t.Fatalf("rejected with %q, want %q", r, c.want)
			}
			after := read(t, out, "a.txt.ann")
			if c.want != "" && after != string(before) {
				t.Errorf("it was written over: %q, was %q", after, before)
			}
			if c.want == "" && !strings.Contains(after, "#Key*]") {
				t.Errorf("it was not written: %q", after)
			}
		})
	}
}

// TestStandingWithoutSums has a record that names an output and no checksum of it: none
// can tell whether it was edited, so it stays.
func TestStandingWithoutSums(t *testing.T) {
	out := write(t, map[string]string{"a.txt.ann": "old", DoneFolder + "/a.txt.json": `{"input":"/a.txt","outputs":["a.txt.ann"]}`})
	w := newWriter(t, Options{Output: Path(out), Again: true, Run: t.Name()})
	defer ForgetProgress(t.Name())
	if _, r, err := w.write(t.Context(), labelledOf("a.txt", "x\n", "Key")); r == nil || !strings.Contains(r.Reason, "is there already") || err != nil {
		t.Fatal(r, err)
	}
	equal(t, "output", read(t, out, "a.txt.ann"), "old")
}

// TestStandingBytes has a name that JSON cannot hold.
func TestStandingBytes(t *testing.T) {
	const name = "a\xff.txt"
	out := t.TempDir()
	w := newWriter(t, Options{Output: Path(out), Again: true})
	for _, want := range []string{"", "was edited"} {
		_, r, err := w.write(t.Context(), labelledOf(name, "x", "Key"))
		if err != nil {
			t.Skipf("this disk holds no such name: %v", err)
		}
		if (r == nil) != (want == "") || r != nil && !strings.Contains(r.Reason, want) {
			t.Fatalf("rejected: %+v, want %q", r, want)
		}
		put(t, filepath.Join(out, name+".ann"), "edited")
	}
}

// TestWriteStops has a run stop that has documents waiting for their writing: nothing of
// them is written, and the next run labels them.
func TestWriteStops(t *testing.T) {
	out := t.TempDir()
	l := labelledOf("a.txt", "one\n", "Other")
	w := newWriter(t, Options{Output: Path(out), Run: t.Name()})
	defer ForgetProgress(t.Name())
	ProgressOf(t.Name()).Stop()
	o, r, err := w.write(t.Context(), l)
	if o != nil || r != nil || err != nil {
		t.Errorf("stopped: got %v, %v, %v; want nothing", o, r, err)
	}
	entries, err := os.ReadDir(out)
	if len(entries) != 0 || err != nil {
		t.Errorf("stopped: the output folder has %v, %v; want nothing", entries, err)
	}
}
