package main

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// TestMain lets the test's own binary be the command evaluate.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"evaluate": main}) }

func TestScripts(t *testing.T) {
	server := clitest.Storage(t, "lab")
	host := clitest.Serve(t, server.HTTPHandler())
	setup := func(env *testscript.Env) error {
		env.Setenv("STORAGE_EMULATOR_HOST", host)
		return testdata(env)
	}
	clitest.Scripts(t, "evaluating ", setup, map[string]clitest.Command{
		"golden": golden, "alike": alike, "page": wellFormed,
		"objects": func(ts *testscript.TestScript, neg bool, args []string) { objects(ts, server, args) },
	})
}

// objects wants the bucket to hold these objects and no others, and writes each
// into the script's folder.
func objects(ts *testscript.TestScript, server *fakestorage.Server, want []string) {
	contents, err := clitest.Objects(server, "lab", "")
	ts.Check(err)
	for name, content := range contents {
		ts.Check(os.WriteFile(ts.MkAbs(path.Base(name)), []byte(content), 0o666))
	}
	if got := slices.Sorted(maps.Keys(contents)); !slices.Equal(got, want) {
		ts.Fatalf("the bucket holds %q, want %q", got, want)
	}
}

// TestGPUWorkers has a model use the GPUs that Dataflow's workers were given, unless
// a flag says otherwise.
func TestGPUWorkers(t *testing.T) {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	flags.String("runner", "", "")
	runners.Define(flags)
	defer flags.Set("worker_gpu", "0")
	for _, c := range []struct{ gpus, flag, want string }{
		{"0", "--model_uri=bundled", "cpu"}, {"1", "--model_uri=bundled", "auto"}, {"1", "--device=cpu", "cpu"}, {"1", "--predictions=labelled", "cpu"},
	} {
		flags.Set("worker_gpu", c.gpus)
		f := &cli.Flags{FlagSet: flag.NewFlagSet("evaluate", flag.PanicOnError)}
		o := define(f)
		f.FlagSet.Parse([]string{"--input=gold", c.flag})
		if err := o.check(f); err != nil || o.device != c.want {
			t.Errorf("%s, --worker_gpu=%s: device %s, %v; want %s", c.flag, c.gpus, o.device, err, c.want)
		}
	}
}

// TestGPUsOfAWorker leaves the other GPUs of a machine to its other workers, but on
// Dataflow, where a worker is one process.
func TestGPUsOfAWorker(t *testing.T) {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	flags.String("runner", "", "")
	runners.Define(flags)
	defer flags.Set("worker_gpu", "0")
	defer flag.Set("runner", flag.Lookup("runner").Value.String())
	for _, c := range []struct {
		runner, gpus string
		want         int
	}{{"direct", "0", 0}, {"flink", "0", 1}, {"dataflow", "4", 4}} {
		flag.Set("runner", c.runner)
		flags.Set("worker_gpu", c.gpus)
		if got := (&options{}).transformOptions("gs://b", time.Time{}).GPUs; got != c.want {
			t.Errorf("--runner=%s --worker_gpu=%s: %d GPUs a process, want %d", c.runner, c.gpus, got, c.want)
		}
	}
}

// TestClass has gold labels judged as what the model was trained on, in either
// label set, and a model's own classes left as they are.
func TestClass(t *testing.T) {
	swapped, full, two := model.DefaultConfig(), model.DefaultConfig(), model.DefaultConfig()
	swapped.LabelMap = map[string]string{"Nomenclature": "Description", "Description": "Nomenclature"}
	full.LabelSet, full.Classes = model.Full, []string{"Key", "Misc-exposition"}
	full.LabelMap = map[string]string{"Table": "Key"}
	two.FullClasses = []string{"Key", "Table"}
	alone := model.DefaultConfig()
	alone.OtherClass = ""
	for _, c := range []struct {
		name                string
		score               scoreFn
		label, class, given string
	}{
		{"a map that swaps", scoreFn{Config: swapped, LabelSet: model.Collapsed}, "Description", "Nomenclature", "Description"},
		{"a full head with a map", scoreFn{Config: full, LabelSet: model.Full}, "Table", "Key", "Table"},
		{"a label that the full head has not", scoreFn{Config: full, LabelSet: model.Full}, "Figure", "Misc-exposition", "Figure"},
		{"a second head", scoreFn{Config: two, LabelSet: model.Full}, "Figure", "Figure", "Figure"},
		{"no class for the rest", scoreFn{Config: alone, LabelSet: model.Collapsed}, "Figure", "", "Figure"},
		{"three labels", scoreFn{Config: two, LabelSet: model.Collapsed}, "Figure", "Misc-exposition", "Figure"},
		{"files", scoreFn{Config: model.DefaultConfig(), LabelSet: model.Collapsed, Predictions: "x"}, "Figure", "Misc-exposition", "Misc-exposition"},
		{"files of the full set", scoreFn{Config: model.DefaultConfig(), LabelSet: model.Full, Predictions: "x"}, "Figure", "Figure", "Figure"},
	} {
		if class, given := c.score.class(c.label), c.score.given(c.label); class != c.class || given != c.given {
			t.Errorf("%s: %s is judged as %s, predicted as %s; want %s and %s", c.name, c.label, class, given, c.class, c.given)
		}
	}
}

// TestUnlabelled has documents of which the first line, the last or none has a label:
// of the last alone it is told that it has none.
func TestUnlabelled(t *testing.T) {
	text := []byte("one\ntwo\n")
	for _, c := range []struct {
		name  string
		spans []yedda.Span
		want  bool
	}{
		{"first", []yedda.Span{{Start: 0, End: 3, Label: "Key"}}, false},
		{"last", []yedda.Span{{Start: 4, End: 7, Label: "Key"}}, false},
		{"none", nil, true},
	} {
		f := &scoreFn{Run: t.Name() + c.name, Config: model.DefaultConfig(), LabelSet: model.Collapsed}
		j := judged{doc: &transforms.Document{Name: []byte(c.name), Text: text, Spans: c.spans}, lines: yedda.Rows(text), predicted: []string{"", ""}}
		if err := f.judge(t.Context(), &j); err != nil {
			t.Fatal(err)
		}
		if _, told := firstOdd.Load([3]string{f.Run, oddPrefix, ""}); told != c.want {
			t.Errorf("%s: told to be without a label: %t, want %t", c.name, told, c.want)
		}
	}
}

// TestSpansOfOutputs has texts with blank lines and form feeds anywhere: the spans that
// are counted are those that predict writes of the same labels.
func TestSpansOfOutputs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces, classes := []string{"a", "b c", "\f", "\n", "\n", "\r\n", " ", "\xff", "\u2028"}, []string{"", "A", "B"}
	for range 2000 {
		var text []byte
		for range rnd.IntN(16) {
			text = append(text, pieces[rnd.IntN(len(pieces))]...)
		}
		j := judged{doc: &transforms.Document{Text: text}, lines: yedda.Inked(text, yedda.Rows(text))}
		var judged []string // the predicted ones of lines with gold
		for i := range j.lines {
			j.gold, j.predicted = append(j.gold, classes[rnd.IntN(3)]), append(j.predicted, classes[rnd.IntN(3)])
			judged = append(judged, j.predicted[i])
			if j.gold[i] == "" {
				judged[i] = ""
			}
		}
		gold, predicted := yedda.SpansOf(text, j.lines, j.gold), yedda.SpansOf(text, j.lines, judged)
		want, got := map[string][3]int64{}, map[string][3]int64{} // by label, spans of gold, predicted and both
		for _, s := range gold {
			n := want[s.Label]
			n[0]++
			if slices.Contains(predicted, s) {
				n[2]++
			}
			want[s.Label] = n
		}
		for _, s := range predicted {
			n := want[s.Label]
			n[1]++
			want[s.Label] = n
		}
		var p part
		j.spans(&p)
		for i, class := range p.Classes {
			if n := [3]int64{p.Spans.Gold[i], p.Spans.Predicted[i], p.Spans.Exact[i]}; n != [3]int64{} {
				got[class] = n
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%q, gold %q, predicted %q: got %v, want %v", text, j.gold, j.predicted, got, want)
		}
	}
}

// TestCompareNames has documents whose names differ in what a report does not show: each
// is compared with itself.
func TestCompareNames(t *testing.T) {
	m := newMerger([]string{"A", "B"})
	for name, predicted := range map[string]string{"a\xff": "A", "a\xfe": "B", "a\t": "A", "a ": "B"} {
		m.add(&part{Name: []byte(name), Lines: []pair{{"A", predicted, 10}}, Spans: eval.NewSpans(nil)})
	}
	d := m.details()
	if err := d.compare("before", &earlierReport{Each: d.Each}); err != nil {
		t.Fatal(err)
	}
	if c := d.Baseline; c.Documents != 4 || c.LeftOut != 0 || c.Intervals.Accuracy != (eval.Interval{}) {
		t.Errorf("against itself: got %s", c)
	}
}

// TestGather has labels and other counters with every character of the pairs'
// names.
func TestGather(t *testing.T) {
	counters := map[string]int64{
		transforms.ReasonCounter + "no GPU; run scripts/cuda-env or https://x/y": 1, reasonCounter + "/in/a.txt: no": 1, "a/b": 9, pairPrefix: 9, pairPrefix + "%/x": 9,
		"judged": 2, transforms.LabelCounter + "Foo/Bar": 9,
	}
	want := map[[2]string]int64{{"Foo/Bar", "Key"}: 3, {"Foo", "Bar/Key"}: 4, {"Key", ""}: 1, {"100 %", "é\xff"}: 2}
	lines := int64(0)
	for pair, n := range want {
		counters[nameCounter(pairPrefix, pair)] = n
		lines += n
		if got, ok := namesOf(pairPrefix, nameCounter(pairPrefix, pair)); !ok || got != pair {
			t.Errorf("%q comes back as %q, %t", pair, got, ok)
		}
	}
	report := gather(counters, &scoreFn{Config: model.Config{Classes: []string{"Key"}}})
	var names []string
	for _, c := range report.Classes {
		names = append(names, c.Class)
	}
	slices.Sort(names)
	if want := []string{"100 %", "Bar/Key", "Foo", "Foo/Bar", "Key", "é\xff"}; !slices.Equal(names, want) || report.Lines != lines {
		t.Errorf("%d lines of %q, want %d of %q", report.Lines, names, lines, want)
	}
}
