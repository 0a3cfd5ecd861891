package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/eval"
)

// annotated makes documents that can be learnt: blocks of lines with one
// label, whose ids come from the label's own words and from common ones.
func annotated(n, inputSize int, seed uint64) (docs []Document) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	labels := []string{"Misc-exposition", "Nomenclature", "Description", "Figure", "Misc-exposition", "Key", ""}
	for i := range n {
		d := Document{Name: fmt.Sprintf("%d.txt", i), Features: &model.Batch{}}
		f := d.Features
		label := 0
		for range 30 + rnd.IntN(60) {
			if rnd.IntN(6) == 0 {
				label = rnd.IntN(len(labels))
			}
			for g := range model.Groups {
				words := rnd.IntN(5)
				for range words {
					word := 1000 + rnd.IntN(400)
					if rnd.IntN(3) == 0 {
						word = 20*label + rnd.IntN(20)
					}
					f.IDs = append(f.IDs, uint32((int64(word)*2654435761+int64(g))%int64(inputSize)))
				}
				f.GroupEnd = append(f.GroupEnd, uint32(len(f.IDs)))
				f.GroupScale = append(f.GroupScale, float32(1/math.Sqrt(float64(max(1, words)))))
			}
			for range 6 {
				f.Layout = append(f.Layout, float32(rnd.NormFloat64()*2+float64(label)))
			}
			d.Labels = append(d.Labels, labels[label])
		}
		docs = append(docs, d)
	}
	return docs
}

func smallConfig() model.Config {
	cfg := model.DefaultConfig()
	cfg.InputSize, cfg.EmbeddingSize, cfg.LayoutSize, cfg.HiddenSize = 1<<10, 8, 6, 8
	cfg.Epochs, cfg.BatchSize = 3, 6
	return cfg
}

func run(t testing.TB, o Options) (*model.Weights, *model.Metadata) {
	t.Helper()
	w, m, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return w, m
}

// refused wants Run's error in one line, with want.
func refused(t *testing.T, o Options, want string) {
	t.Helper()
	if _, _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with %q", err, want)
	}
}

// trainerOf is a trainer that is closed with the test.
func trainerOf(t testing.TB, o Options) *trainer {
	t.Helper()
	tr, err := newTrainer(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	return tr
}

// fingerprint is of the numbers of w, not of its config.
func fingerprint(w *model.Weights) string {
	b, err := binary.Append(nil, binary.LittleEndian, numbers(w))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// One seed gives one model, whatever the number of workers and whether or not
// anyone watches.
func TestRunIsRepeatable(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(12, cfg.InputSize, 1)
	o := Options{Config: cfg, Train: docs, Machine: Machine{Cores: 1}}
	first, _ := run(t, o)
	want := fingerprint(first)
	for _, workers := range []int{1, 2, 3, 7} {
		o.Cores = workers
		if got, _ := run(t, o); fingerprint(got) != want {
			t.Errorf("%d workers give other weights than 1", workers)
		}
	}
	o.Validation, o.Temperatures, o.Progress = annotated(2, cfg.InputSize, 2), []float64{}, func(Progress) {}
	if got, _ := run(t, o); fingerprint(got) != want {
		t.Error("validation or progress changes the weights")
	}
	o.Config.Seed++
	if got, _ := run(t, o); fingerprint(got) == want {
		t.Error("another seed gives the same weights")
	}
}

// Every flag of training changes what training comes to: the loss of its last
// epoch, which is computed before the last weights are, and the weights.
func TestConfigChangesTraining(t *testing.T) {
	last := func(cfg model.Config) (string, float64) {
		docs := annotated(12, cfg.InputSize, 1)
		w, m := run(t, Options{Config: cfg, Train: docs})
		return fingerprint(w), m.Epochs[len(m.Epochs)-1].Loss
	}
	print, loss := last(smallConfig())
	for _, c := range []struct {
		name   string
		change func(*model.Config)
	}{
		{"input_size", func(c *model.Config) { c.InputSize = 1 << 6 }},
		{"embedding_size", func(c *model.Config) { c.EmbeddingSize = 9 }},
		{"hidden_size", func(c *model.Config) { c.HiddenSize = 9 }},
		{"num_layers", func(c *model.Config) { c.NumLayers = 2 }},
		{"num_classes", func(c *model.Config) { c.NumClasses = 2 }},
		{"dropout", func(c *model.Config) { c.Dropout = .2 }},
		{"batch_size", func(c *model.Config) { c.BatchSize = 5 }},
		{"epochs", func(c *model.Config) { c.Epochs = 4 }},
		{"learning_rate", func(c *model.Config) { c.LearningRate = 4e-3 }},
		{"weight_decay", func(c *model.Config) { c.WeightDecay = .1 }},
		{"class_weights balanced", func(c *model.Config) { c.ClassWeights = "balanced" }},
		{"class_weights named", func(c *model.Config) { c.ClassWeights = "Description=2" }},
		{"focal_labels", func(c *model.Config) { c.FocalLabels = "Description" }},
		{"seed", func(c *model.Config) { c.Seed = 2 }},
		{"window_size", func(c *model.Config) { c.WindowSize = 20 }},
		{"label_set", func(c *model.Config) { c.LabelSet, c.NumClasses = model.Full, 0 }},
		{"label_map", func(c *model.Config) { c.LabelMap = map[string]string{"Key": "Description"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := smallConfig()
			c.change(&cfg)
			gotPrint, gotLoss := last(cfg)
			if gotPrint == print {
				t.Error("the same weights")
			}
			if gotLoss == loss {
				t.Errorf("the same loss, %v", loss)
			}
		})
	}
}

// Training learns what can be learnt, and says so.
func TestRunLearns(t *testing.T) {
	cfg := smallConfig()
	cfg.Epochs, cfg.WindowSize, cfg.LearningRate = 16, 10, .02
	var seen []Progress
	o := Options{Config: cfg, Train: annotated(40, cfg.InputSize, 1), Crops: annotated(2, cfg.InputSize, 4), Validation: annotated(6, cfg.InputSize, 2),
		Test: annotated(5, cfg.InputSize, 3), Temperatures: []float64{}, Progress: func(p Progress) { seen = append(seen, p) }}
	w, m := run(t, o)
	if m.Validation.MacroF1 < .8 || m.Test.MacroF1 < .8 {
		t.Errorf("macro-F1: %.3f on validation, %.3f on test; want .8", m.Validation.MacroF1, m.Test.MacroF1)
	}
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
	if n := len(m.Epochs); n != 16 || m.Epochs[15].Loss >= m.Epochs[0].Loss/2 ||
		m.Epochs[15].ValidationLoss >= m.Epochs[0].ValidationLoss || m.Epochs[15].ValidationMacroF1 != m.Validation.MacroF1 {
		t.Errorf("epochs: %+v", m.Epochs)
	}
	if m.Parameters != w.Config.NumParameters() || len(m.Split.Train) != 40 || m.Split.TrainLines == 0 || m.Seconds <= 0 ||
		m.Time.IsZero() || !strings.HasPrefix(m.Device, "cpu, ") || m.Seed != cfg.Seed {
		t.Errorf("metadata: %+v", m)
	}
	lines := func(docs []Document) (n int) {
		for _, d := range docs {
			for _, l := range d.Labels {
				if l != "" {
					n++
				}
			}
		}
		return n
	}
	if got, want := [3]int{m.Split.TrainLines, m.Split.ValidationLines, m.Split.TestLines}, [3]int{lines(o.Train), lines(o.Validation), lines(o.Test)}; got != want {
		t.Errorf("lines: %v, want %v", got, want)
	}
	var seconds float64
	for _, e := range m.Epochs {
		seconds += e.Seconds
	}
	if m.Seconds < seconds {
		t.Errorf("%v s in all, %v s in the epochs", m.Seconds, seconds)
	}
	if e, v := m.Epochs[15], m.Validation; e.ValidationAccuracy != v.Accuracy || e.ValidationLoss != v.Loss || math.Abs(e.LearningRate/cfg.LearningRate-lastRate) > 1e-9 {
		t.Errorf("last epoch %+v, validation %+v", e, v)
	}
	if got := m.Validation.F1; len(got) != 3 || got["Nomenclature"] == 0 {
		t.Errorf("F1 by class: %v", got)
	}
	end := seen[len(seen)-1]
	if !end.EpochEnd || end.Epoch != 16 || end.Step != end.Steps || end.MacroF1 != m.Validation.MacroF1 || end.ValidationLoss != m.Validation.Loss || end.Left != 0 ||
		end.LinesPerSec <= 0 || end.GradientNorm <= 0 || math.Abs(end.LearningRate/cfg.LearningRate-lastRate) > 1e-9 {
		t.Errorf("last progress: %+v", end)
	}
	steps := 0
	for _, p := range seen {
		if !p.EpochEnd {
			steps++
		}
		if p.Step < steps || p.Loss <= 0 {
			t.Fatalf("progress %+v after %d steps", p, steps)
		}
	}
	if steps != end.Steps {
		t.Errorf("progress of %d steps, want %d", steps, end.Steps)
	}
}

// Of epochs with an equal macro-F1 the one with the lower loss is the better.
func TestBetter(t *testing.T) {
	epoch := func(f1, loss float64) *model.EpochStats {
		return &model.EpochStats{ValidationMacroF1: f1, ValidationLoss: loss}
	}
	for _, c := range []struct {
		a, b *model.EpochStats
		want bool
	}{
		{epoch(.6, 9), epoch(.5, 1), true}, {epoch(.5, 1), epoch(.6, 9), false}, {epoch(.5, 1), epoch(.5, 2), true},
		{epoch(.5, 2), epoch(.5, 1), false}, {epoch(.5, 1), epoch(.5, 1), false},
	} {
		if got := better(c.a, c.b); got != c.want {
			t.Errorf("%+v is better than %+v: %t, want %t", *c.a, *c.b, got, c.want)
		}
	}
}

// A class that no line has is none that is scored.
func TestScoredClasses(t *testing.T) {
	c := eval.NewCounts([]string{"A", "B"})
	c.Add(0, 0, 1)
	c.Add(0, 1, 1)
	if got := fmt.Sprint(accuracy(c, 3).F1); got != fmt.Sprint(map[string]float64{"A": 2. / 3}) {
		t.Errorf("got %s", got)
	}
}

// Early stopping ends the run and gives the weights of the best epoch.
func TestEarlyStopping(t *testing.T) {
	cfg := smallConfig()
	cfg.Epochs = 30
	cfg.LearningRate = .05
	o := Options{Config: cfg, Train: annotated(10, cfg.InputSize, 1), Validation: annotated(2, cfg.InputSize, 2), EarlyStopping: 2}
	_, m := run(t, o)
	best, f1 := 0, 0.
	for i, e := range m.Epochs {
		if e.ValidationMacroF1 > f1 {
			best, f1 = i, e.ValidationMacroF1
		}
	}
	if len(m.Epochs) == 30 || len(m.Epochs) != best+1+2 {
		t.Errorf("%d epochs, the best of them number %d", len(m.Epochs), best+1)
	}
	if m.Validation.MacroF1 != f1 {
		t.Errorf("weights with macro-F1 %v, the best epoch had %v", m.Validation.MacroF1, f1)
	}
	o.EarlyStopping, o.Config.Epochs = math.MaxInt, 4
	if _, m := run(t, o); len(m.Epochs) != 4 {
		t.Errorf("%d epochs, though it never is so many without a better one", len(m.Epochs))
	}
	o.EarlyStopping = 0
	if _, m := run(t, o); m.Validation.MacroF1 != m.Epochs[3].ValidationMacroF1 {
		t.Errorf("weights with macro-F1 %v, the last epoch had %v", m.Validation.MacroF1, m.Epochs[3].ValidationMacroF1)
	}
}

// A model to begin with is where training begins: with next to no learning
// rate it comes back.
func TestInit(t *testing.T) {
	cfg := smallConfig()
	cfg.NumLayers = 2
	docs := annotated(10, cfg.InputSize, 1)
	w, _ := run(t, Options{Config: cfg, Train: docs})
	o := Options{Config: cfg, Train: annotated(10, cfg.InputSize, 3), Init: w}
	o.Config.LearningRate, o.Config.Epochs, o.Config.Seed = 1e-12, 1, 9
	got, _ := run(t, o)
	a, b := numbers(got), numbers(w)
	for i := range a {
		if math.Abs(float64(a[i]-b[i])) > 1e-6 {
			t.Fatalf("number %d became %v at learning rate 1e-12, was %v", i, a[i], b[i])
		}
	}
	o.Config.HiddenSize = 9
	refused(t, o, "init_model: its hidden_size is 8, not 9")
	o.Config.HiddenSize = 8
	for name, size := range map[string]func(*model.Config) *int{
		"feature_version": func(c *model.Config) *int { return &c.FeatureVersion }, "input_size": func(c *model.Config) *int { return &c.InputSize },
		"embedding_size": func(c *model.Config) *int { return &c.EmbeddingSize }, "layout_size": func(c *model.Config) *int { return &c.LayoutSize },
		"hidden_size": func(c *model.Config) *int { return &c.HiddenSize }, "num_layers": func(c *model.Config) *int { return &c.NumLayers },
	} {
		other, with := *w, o
		*size(&other.Config)++
		with.Init = &other
		refused(t, with, "init_model: its "+name+" is")
	}
	o.Config.NumClasses = 2
	refused(t, o, "its classes have Nomenclature besides")
}

// Weights with a share of Init lie between it and those of the same training without
// one, and are what the epochs are judged by.
func TestInitShare(t *testing.T) {
	o := resumable()
	o.Init, _ = run(t, Options{Config: o.Config, Train: o.Train[:6]})
	o.Config.FullClasses, o.Temperatures, o.Best = o.Init.Config.FullClasses, []float64{1}, false
	alone, _ := run(t, o)
	o.InitShare = .25
	w, m := run(t, o)
	biases := func(w *model.Weights) []float32 { // which are not rounded
		return slices.Concat(w.LayoutBias, w.OutputBias, w.Layers[0].Forward.Bias, w.Layers[0].Backward.Bias)
	}
	for _, c := range []struct {
		of       func(*model.Weights) []float32
		rounding float64
	}{{numbers, .02}, {biases, 1e-6}} {
		a, b, got := c.of(o.Init), c.of(alone), c.of(w)
		moved := 0
		for i := range got {
			if want := a[i]/4 + 3*b[i]/4; math.Abs(float64(got[i]-want)) > c.rounding {
				t.Fatalf("number %d is %v, want %v of %v and %v", i, got[i], want, a[i], b[i])
			}
			if math.Abs(float64(a[i]-b[i])) > 10*c.rounding {
				moved++
			}
		}
		if moved < 50 {
			t.Errorf("%d of %d numbers moved", moved, len(got))
		}
	}
	o.Temperatures = []float64{2, 2}
	w, _ = run(t, o) // the mean's logits are divided, not those of what is averaged
	for i, got := range w.OutputBias {
		if want := (o.Init.OutputBias[i]/4 + 3*alone.OutputBias[i]/4) / 2; math.Abs(float64(got-want)) > 1e-6 {
			t.Errorf("divided by 2, bias %d is %v, want %v", i, got, want)
		}
	}
	o.Best, o.Temperatures = true, []float64{1}
	_, best := run(t, o)
	for m, epoch := range map[*model.Metadata]int{m: len(m.Epochs), best: best.BestEpoch} {
		if e := m.Epochs[epoch-1]; m.InitShare != .25 || m.Validation.MacroF1 != e.ValidationMacroF1 || m.Validation.Loss != e.ValidationLoss {
			t.Errorf("init_share %v, macro-F1 %v and loss %v, epoch %d had %v and %v", m.InitShare, m.Validation.MacroF1, m.Validation.Loss, epoch, e.ValidationMacroF1, e.ValidationLoss)
		}
	}
	for share, init := range map[float64]*model.Weights{-.1: w, 1: w, math.NaN(): w, .5: nil} {
		o.InitShare, o.Init = share, init
		refused(t, o, "init_share")
	}
}

// A model of one head, or of the full set, goes on with documents that have
// more labels, or fewer, of 20 lines.
func TestInitKeepsClasses(t *testing.T) {
	many, few := annotated(10, 1<<10, 1), annotated(1, 1<<10, 3)
	for _, c := range []struct {
		set        string
		first, now []Document
	}{{model.Full, many, few}, {model.Collapsed, few, many}} {
		o := Options{Config: smallConfig(), Train: c.first}
		o.Config.LabelSet, o.Config.NumClasses, o.Config.Epochs = c.set, 0, 1
		w, _ := run(t, o)
		if c.set == model.Collapsed && len(w.Config.FullClasses) > 0 {
			t.Fatalf("a second head: %v", w.Config.FullClasses)
		}
		o.Train, o.Init = c.now, w
		if got, _ := run(t, o); !slices.Equal(columns(&got.Config), columns(&w.Config)) {
			t.Errorf("%s: classes %v, want %v", c.set, columns(&got.Config), columns(&w.Config))
		}
	}
}

// Documents of the main head's labels alone, as corrections of pages with three labels
// are, do not teach the second head that all else is the class of the rest.
func TestInitSecondHead(t *testing.T) {
	o := Options{Config: smallConfig(), Train: annotated(10, 1<<10, 1)}
	o.Config.Epochs = 1
	w, _ := run(t, o)
	docs := annotated(8, 1<<10, 3)
	for i := range docs[:4] {
		docs[i].Name = "three " + docs[i].Name
		for r, l := range docs[i].Labels {
			if l == "Figure" || l == "Key" {
				docs[i].Labels[r] = w.Config.OtherClass
			}
		}
	}
	part := docs[7]
	part.Labels = slices.Repeat([]string{w.Config.OtherClass}, len(part.Labels))
	o.Train, o.Crops = docs, []Document{part}
	for name, c := range map[string]struct {
		init     *model.Weights
		teachers []*model.Weights
	}{"goes on": {init: w}, "begins": {}, "learns from teachers": {init: w, teachers: []*model.Weights{w}}} {
		o.Init, o.Teachers = c.init, c.teachers
		tr := trainerOf(t, o)
		for i, d := range tr.corpus.docs {
			for r, l := range d.Labels {
				want := tr.config.FullClass(l)
				if l == "" || l == tr.config.OtherClass && strings.HasPrefix(d.Name, "three") && c.init != nil && c.teachers == nil {
					want = -1
				}
				if got := tr.corpus.full[i][r]; got != want {
					t.Fatalf("%s: line %d of %s, %q: the second head's target is %d, want %d", name, r, d.Name, l, got, want)
				}
			}
		}
	}
}

// Classes are those of the model to begin with only where nothing asks for others.
func TestClassesOfInit(t *testing.T) {
	lines := func(labels ...string) []Document {
		return labelled(slices.Repeat(labels, MinLines)...)
	}
	init, err := Classes(lines("Nomenclature", "Description", "Figure"), model.DefaultConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*model.Config){
		"":            func(*model.Config) {},
		"label_set":   func(c *model.Config) { c.LabelSet, c.NumClasses = model.Full, 0 },
		"other_class": func(c *model.Config) { c.OtherClass = "Description" },
		"label_map":   func(c *model.Config) { c.LabelMap = map[string]string{"Figure": "Description"} },
		"num_classes": func(c *model.Config) { c.NumClasses = 2 },
		"classes":     func(c *model.Config) { c.Classes = []string{"Description", "Misc-exposition", "Nomenclature"} },
	} {
		cfg := model.DefaultConfig()
		change(&cfg)
		got, err := Classes(lines("Nomenclature", "Description"), cfg, &model.Weights{Config: init})
		if err != nil || slices.Contains(got.FullClasses, "Figure") != (name == "") {
			t.Errorf("another %s: second head of %v, %v", name, got.FullClasses, err)
		}
	}
}

// numbers are all numbers of w, one after the other.
func numbers(w *model.Weights) (all []float32) {
	d := w.Config.EmbeddingSize
	for i, q := range w.Table {
		all = append(all, float32(q)*w.TableScale[i/d])
	}
	all = slices.Concat(all, w.LayoutMean, w.LayoutInvStd, w.LayoutWeights, w.LayoutBias, w.OutputWeights, w.OutputBias)
	for _, l := range w.Layers {
		for _, d := range []model.Direction{l.Forward, l.Backward} {
			all = slices.Concat(all, d.InputWeights, d.RecurrentWeights, d.Bias)
		}
	}
	return all
}

// The graph that trains and the scorer that predicts are one network: with a
// table that 8 bits hold exactly, the loss of a batch is the scorer's mean
// cross-entropy.
func TestTrainerAndScorerAgree(t *testing.T) {
	for layers := 1; layers <= 3; layers++ {
		cfg := smallConfig()
		cfg.Dropout, cfg.NumLayers, cfg.WindowSize = 0, layers, 200
		docs := annotated(6, cfg.InputSize, 4)
		w, _ := run(t, Options{Config: cfg, Train: docs})
		tr := trainerOf(t, Options{Config: cfg, Train: docs, Init: w})
		judged := *w
		judged.Config.WindowSize = 0
		_, want, err := judge(context.Background(), &judged, tr.corpus, 1)
		if err != nil {
			t.Fatal(err)
		}
		for c := len(cfg.Classes); c < tr.config.NumOutputs(); c++ {
			tr.columnWeights[c] = 0 // judge looks at the main head
		}
		var whole []window
		for d := range docs {
			whole = append(whole, window{d, 0, len(docs[d].Labels)})
		}
		got, err := tr.train(whole, nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-want) > 1e-5*want {
			t.Errorf("%d layers: trainer's loss %v, scorer's %v", layers, got, want)
		}
	}
}

// A model whose numbers are finite, and too large to reckon with, or are none.
func TestJudgeNaN(t *testing.T) {
	o := Options{Config: smallConfig(), Train: annotated(3, 1<<10, 1)}
	w, _ := run(t, o)
	tr := trainerOf(t, o)
	for i := range w.OutputWeights {
		w.OutputWeights[i] = 3e38
	}
	if _, _, err := judge(t.Context(), w, tr.corpus, 2); err == nil || !strings.Contains(err.Error(), "train: training document 0.txt: line ") {
		t.Errorf("got %v, want an error that tells the line", err)
	}
	w.OutputWeights[0] = float32(math.NaN())
	if _, _, err := judge(t.Context(), w, tr.corpus, 2); err == nil || !strings.HasPrefix(err.Error(), "train: training documents: training diverged, lower learning_rate: ") {
		t.Errorf("got %v, want an error that tells what to do", err)
	}
}

func TestRunErrors(t *testing.T) {
	docs := annotated(3, 1<<10, 1)
	unlabelled := annotated(1, 1<<10, 1)
	clear(unlabelled[0].Labels)
	short := annotated(1, 1<<10, 1)
	short[0].Labels = short[0].Labels[1:]
	damaged := func(damage func(f *model.Batch)) []Document {
		d := annotated(1, 1<<10, 1)
		damage(d[0].Features)
		return d
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no documents", func(o *Options) { o.Train = nil }, "train: no documents"},
		{"no labels", func(o *Options) { o.Train = unlabelled }, "train: no line of the training documents has a label that is a class"},
		{"labels and lines", func(o *Options) { o.Train = short }, "training document 0.txt: "},
		{"training without features", func(o *Options) { o.Train = []Document{{Name: "0.txt"}} }, "training document 0.txt: no Features"},
		{"crops without features", func(o *Options) { o.Crops = []Document{{Name: "0.txt"}} }, "training document 0.txt: no Features"},
		{"test without features", func(o *Options) { o.Test = []Document{{Name: "0.txt"}} }, "test document 0.txt: no Features"},
		{"validation", func(o *Options) { o.Validation = short }, "validation document 0.txt: "},
		{"validation without a class", func(o *Options) { o.Validation = unlabelled }, "no line of the validation documents"},
		{"test without a class", func(o *Options) { o.Test = unlabelled }, "no line of the test documents"},
		{"input_size", func(o *Options) { o.Config.InputSize = 100 }, "but input_size is 100"},
		{"layout_size", func(o *Options) { o.Config.LayoutSize = 7 }, "layout numbers"},
		{"groups beyond the ids", func(o *Options) {
			o.Train = damaged(func(f *model.Batch) { f.GroupEnd[9] = 1 << 20 })
		}, "training document 0.txt: line 3: a group of ids ends at 1048576"},
		{"groups backwards", func(o *Options) {
			o.Validation = damaged(func(f *model.Batch) { f.GroupEnd[9] = 0 })
		}, "validation document 0.txt: line 3: a group of ids ends at 0"},
		{"scales of groups", func(o *Options) {
			o.Train = damaged(func(f *model.Batch) { f.GroupScale = f.GroupScale[:7] })
		}, "7 scales of groups"},
		{"a scale that is no number", func(o *Options) {
			o.Train = damaged(func(f *model.Batch) { f.GroupScale[4] = float32(math.NaN()) })
		}, "line 2: the scale of a group is NaN"},
		{"layout that is no number", func(o *Options) {
			o.Test = damaged(func(f *model.Batch) { f.Layout[7] = float32(math.Inf(1)) })
		}, "test document 0.txt: line 2: layout number 2 is +Inf"},
		{"hidden_size", func(o *Options) { o.Config.HiddenSize = 0 }, "hidden_size"},
		{"class_weights", func(o *Options) { o.Config.ClassWeights = "Nobody=2" }, "class_weights"},
		{"focal_labels", func(o *Options) { o.Config.FocalLabels = "Nobody" }, "focal_labels"},
		{"learning_rate", func(o *Options) { o.Config.LearningRate = -1 }, "learning_rate"},
		{"a temperature of 0", func(o *Options) { o.Temperatures = []float64{0} }, "temperature 0: it must be"},
		{"a temperature that is no number", func(o *Options) { o.Temperatures = []float64{1, math.NaN()} }, "temperature NaN"},
		{"temperatures without a head", func(o *Options) { o.Temperatures = []float64{1, 1, 1} }, "3 temperatures: the model has 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Config: smallConfig(), Train: docs}
			c.change(&o)
			refused(t, o, c.want)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	steps := 0
	_, _, err := Run(ctx, Options{Config: smallConfig(), Train: docs, Progress: func(p Progress) {
		if steps++; steps == 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || steps != 2 {
		t.Errorf("cancelled after 2 steps: %v after %d", err, steps)
	}
	ctx, cancel = context.WithCancel(context.Background())
	_, _, err = Run(ctx, Options{Config: smallConfig(), Train: docs, Progress: func(p Progress) {
		if p.EpochEnd && p.Epoch == p.Epochs {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "train: training document 0.txt: ") {
		t.Errorf("cancelled before the training documents are judged: %v", err)
	}
}

// A document to train on whose windows are too many to judge it is told of before a
// step is taken, not by want of memory behind the last one.
func TestRunFits(t *testing.T) {
	o := Options{Config: smallConfig(), Train: annotated(3, 1<<10, 1)}
	o.Config.WindowSize, o.Config.PredictionStride = 12000, 1
	const rows = 24000
	layout := o.Config.LayoutSize
	o.Train = append(o.Train, Document{Name: "long.txt", Labels: make([]string, rows), Features: &model.Batch{
		GroupEnd: make([]uint32, rows*model.Groups), GroupScale: make([]float32, rows*model.Groups), Layout: make([]float32, rows*layout)}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // before the first step
	_, _, err := Run(ctx, o)
	if want := "train: training documents: one has 144012000 lines in windows of 12000"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLargestBatchWithoutGPU(t *testing.T) {
	if _, _, err := LargestBatch(Options{Config: smallConfig(), Train: annotated(3, 1<<10, 1)}); !errors.Is(err, ErrNoGPU) {
		t.Errorf("got %v, want ErrNoGPU", err)
	}
}

func labelled(labels ...string) []Document {
	return []Document{{Labels: labels}}
}

func TestClasses(t *testing.T) {
	var docs []Document
	for l, n := range map[string]int{"Nomenclature": 30, "Description": 50, "Figure": 40, "Misc-exposition": 25, "Rare": 19, "": 99, "2nd": 60} {
		docs = append(docs, labelled(slices.Repeat([]string{l}, n)...)...)
	}
	all := []string{"Description", "Figure", "Misc-exposition", "Nomenclature"}
	for _, c := range []struct {
		name   string
		change func(*model.Config)
		main   string
		full   string
		labels string // classes of Nomenclature, Description, Figure, Rare
	}{
		{"default", func(c *model.Config) {}, "Nomenclature Description Misc-exposition", strings.Join(all, " "), "0 1 2 2"},
		{"two classes", func(c *model.Config) { c.NumClasses = 2 }, "Description Misc-exposition", strings.Join(all, " "), "1 0 1 1"},
		{"more than there are", func(c *model.Config) { c.NumClasses = 9 }, "Nomenclature Description Misc-exposition", strings.Join(all, " "), "0 1 2 2"},
		{"named second head", func(c *model.Config) { c.FullClasses = []string{"Figure", "Rare"} }, "Nomenclature Description Misc-exposition", "Figure Rare", "0 1 2 2"},
		{"full", func(c *model.Config) { c.LabelSet, c.NumClasses = model.Full, 0 }, strings.Join(all, " "), "", "3 0 1 2"},
		{"three of full", func(c *model.Config) { c.LabelSet = model.Full }, "Description Figure Misc-exposition", "", "2 0 1 2"},
		{"map of full", func(c *model.Config) {
			c.LabelSet, c.NumClasses = model.Full, 0
			c.LabelMap = map[string]string{"Figure": "Plate", "Rare": "Description"}
		}, "Description Misc-exposition Nomenclature Plate", "", "2 0 3 0"},
		{"map of full to few lines", func(c *model.Config) {
			c.LabelSet, c.NumClasses = model.Full, 0
			c.LabelMap = map[string]string{"Rare": "Rarest"}
		}, strings.Join(all, " ") + " Rarest", "", "3 0 1 4"},
		{"map", func(c *model.Config) {
			c.Classes, c.NumClasses = nil, 0
			c.LabelMap = map[string]string{"Figure": "Plate", "Rare": "Description"}
		}, "Description Plate Misc-exposition", strings.Join(all, " "), "2 0 1 0"},
		{"map folded", func(c *model.Config) {
			c.Classes, c.NumClasses = nil, 2
			c.LabelMap = map[string]string{"Figure": "Plate", "Rare": "Description"}
		}, "Description Misc-exposition", strings.Join(all, " "), "1 0 1 0"},
		{"map of all labels folded", func(c *model.Config) {
			c.Classes, c.NumClasses = nil, 2
			c.LabelMap = map[string]string{"Nomenclature": "Name", "Description": "Text", "Figure": "Plate", "Rare": "Plate", "2nd": "Plate", "Misc-exposition": "Misc-exposition"}
		}, "Misc-exposition Plate", strings.Join(all, " "), "0 0 1 1"},
		{"map of what brat alone can write", func(c *model.Config) {
			c.LabelSet, c.NumClasses = model.Full, 0
			c.LabelMap = map[string]string{"2nd": "Second"}
		}, strings.Join(all, " ") + " Second", "", "3 0 1 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := model.DefaultConfig()
			c.change(&cfg)
			got, err := Classes(docs, cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s := strings.Join(got.Classes, " "); s != c.main || got.NumClasses != len(got.Classes) {
				t.Errorf("classes: got %s, want %s", s, c.main)
			}
			if s := strings.Join(got.FullClasses, " "); s != c.full {
				t.Errorf("full classes: got %s, want %s", s, c.full)
			}
			s := fmt.Sprint(got.Class("Nomenclature"), got.Class("Description"), got.Class("Figure"), got.Class("Rare"))
			if s != c.labels {
				t.Errorf("classes of labels: got %s, want %s", s, c.labels)
			}
		})
	}
	cfg := model.DefaultConfig()
	cfg.NumClasses, cfg.OtherClass = 2, ""
	if _, err := Classes(docs, cfg, nil); err == nil || !strings.Contains(err.Error(), "num_classes") {
		t.Errorf("nothing to fold into: %v", err)
	}
	for name, change := range map[string]func(*model.Config){
		"no label with enough lines":  func(c *model.Config) { c.LabelSet = model.Full },
		"one class kept":              func(c *model.Config) { c.NumClasses = 1 },
		"all labels mapped to one":    func(c *model.Config) { c.Classes, c.LabelMap = nil, map[string]string{"Rare": c.OtherClass} },
		"all labels mapped, no other": func(c *model.Config) { c.Classes, c.LabelMap = nil, map[string]string{"Rare": "Rarest"} },
	} {
		cfg := model.DefaultConfig()
		change(&cfg)
		if _, err := Classes(labelled("Rare"), cfg, nil); err == nil || !strings.Contains(err.Error(), "the only class") {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg = model.DefaultConfig()
	cfg.LabelSet, cfg.OtherClass = model.Full, ""
	if _, err := Classes(labelled("Rare"), cfg, nil); err == nil || !strings.Contains(err.Error(), "20 lines") {
		t.Errorf("no label with enough lines: %v", err)
	}
}

func TestColumnWeights(t *testing.T) {
	cfg := model.DefaultConfig()
	docs := labelled("Nomenclature", "Description", "Description", "Description", "", "Figure", "Description", "Figure", "Figure")
	docs[0].Features = &model.Batch{GroupEnd: make([]uint32, 9*model.Groups), GroupScale: make([]float32, 9*model.Groups), Layout: make([]float32, 9*cfg.LayoutSize)}
	cfg.Classes = append(cfg.Classes, "Key") // no line has it
	cfg.FullClasses = []string{"Figure", "Description"}
	for _, c := range []struct{ weights, want string }{
		{"none", "[1 1 1 1 1 1]"},
		{"Figure=3,Description=0.5", "[1 0.5 1 1 3 0.5]"},
		// 8 lines, 3 classes with 1, 4 and 3 lines: 8/(3·1), 8/(3·4), 8/(3·3).
		{"balanced", fmt.Sprint([]float64{8. / 3, 8. / 12, 8. / 9, 1, 1, 1})},
	} {
		cfg.ClassWeights = c.weights
		corpus, err := newCorpus("", docs, &cfg)
		if err != nil {
			t.Fatal(err)
		}
		w, err := corpus.columnWeights(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(w); got != c.want {
			t.Errorf("%s: got %s, want %s", c.weights, got, c.want)
		}
	}
}

// Windows of an epoch hold every labelled line once, and differ between epochs.
func TestWindows(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(9, cfg.InputSize, 5)
	for r := range docs[3].Labels {
		if r >= 10 {
			docs[3].Labels[r] = ""
		}
	}
	c, err := newCorpus("", docs, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for epoch := range 4 {
		seen := map[[2]int]int{}
		ws := c.windows(16, 1, epoch)
		for _, w := range ws {
			if w.len < 1 || w.len > 16 {
				t.Fatalf("window %+v", w)
			}
			for r := range w.len {
				seen[[2]int{w.doc, w.first + r}]++
			}
			if w.doc == 3 && w.first >= 10 {
				t.Errorf("window %+v has no label", w)
			}
		}
		for d := range docs {
			for r, l := range docs[d].Labels {
				if n := seen[[2]int{d, r}]; n > 1 || n == 0 && l != "" {
					t.Errorf("epoch %d: row %d of document %d stands in %d windows", epoch, r, d, n)
				}
			}
		}
		if s := fmt.Sprint(ws); s == before {
			t.Errorf("epoch %d has the windows of the one before", epoch)
		} else {
			before = s
		}
	}
	if a, b := c.windows(16, 1, 0), c.windows(16, 1, 0); !slices.Equal(a, b) {
		t.Error("one seed, two orders")
	}
}

// Lines of a class that weighs nothing are none that the accuracy of an epoch is
// about.
func TestAccuracyWithoutWeight(t *testing.T) {
	cfg := smallConfig()
	cfg.ClassWeights, cfg.Epochs, cfg.Dropout = "Misc-exposition=0", 30, 0
	_, meta := run(t, Options{Config: cfg, Train: annotated(10, cfg.InputSize, 3)})
	if last := meta.Epochs[len(meta.Epochs)-1]; last.Accuracy < .9 || last.Accuracy > 1 {
		t.Errorf("accuracy %.3f of the lines that are learnt", last.Accuracy)
	}
}

// Epochs that early stopping may leave out take no memory.
func TestMemoryOfEpochs(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		for range 2 { // what pools hold goes in the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	cfg := smallConfig()
	cfg.Epochs, cfg.WindowSize = 10_000, 5
	before := heap()
	tr := trainerOf(t, Options{Config: cfg, Train: annotated(5, cfg.InputSize, 3)})
	if after := heap(); after > before+4<<20 {
		t.Errorf("a training of %d steps holds %d bytes", tr.steps, after-before)
	}
	runtime.KeepAlive(tr)
}

// A batch larger than an epoch takes the memory of the epoch.
func TestBatchAboveEpoch(t *testing.T) {
	cfg := smallConfig()
	cfg.BatchSize = 4096
	tr := trainerOf(t, Options{Config: cfg, Train: annotated(5, cfg.InputSize, 3)})
	most := 0
	for epoch := range cfg.Epochs {
		most = max(most, len(tr.epoch(epoch)[0])) // the only one
	}
	n := len(tr.shards)
	if got, want := tr.shards[0].windows, (most+n-1)/n; got != want {
		t.Errorf("a shard has room for %d windows, want %d of %d", got, want, most)
	}
	if _, err := tr.train(tr.epoch(0)[0], nil); err != nil {
		t.Error(err)
	}
}

// A batch without the longest windows is computed without their padding, which adds
// nothing to what is learnt.
func TestPaddingOfShortWindows(t *testing.T) {
	cfg := smallConfig()
	cfg.WindowSize, cfg.Dropout = 1000, 0
	docs := annotated(20, cfg.InputSize, 3)
	long := Document{Name: "long.txt", Features: &model.Batch{}} // all of them in one
	for _, d := range docs {
		f := long.Features
		for _, end := range d.Features.GroupEnd {
			f.GroupEnd = append(f.GroupEnd, uint32(len(f.IDs))+end)
		}
		f.IDs = append(f.IDs, d.Features.IDs...)
		f.GroupScale = append(f.GroupScale, d.Features.GroupScale...)
		f.Layout = append(f.Layout, d.Features.Layout...)
		long.Labels = append(long.Labels, d.Labels...)
	}
	o := Options{Config: cfg, Train: append(docs, long), shards: 1}
	tr, padded := trainerOf(t, o), trainerOf(t, o)
	most := min(cfg.WindowSize, len(long.Labels))
	s := padded.shards[0]
	g, err := newGraph(padded.net, most, s.windows)
	if err != nil {
		t.Fatal(err)
	}
	s.graphs = map[int]*graph[float32]{80: g, 320: g, most: g}
	for i, c := range []struct {
		batch []window
		want  int // steps
	}{
		{[]window{{0, 0, 30}, {1, 0, 25}}, 80},
		{[]window{{2, 0, 30}, {20, 100, 80}}, 80},
		{[]window{{3, 0, 30}, {20, 200, 81}}, 320},
		{[]window{{20, 0, most}}, most},
		{[]window{{4, 0, 20}, {20, 5, 75}}, 80},
	} {
		got, err := tr.train(c.batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := padded.train(c.batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		if steps := tr.shards[0].steps; steps != c.want {
			t.Errorf("batch %d: %d steps are computed, want %d", i, steps, c.want)
		}
		if padded.shards[0].steps != most || math.Abs(got-want) > 1e-4*want { // float32 sums
			t.Errorf("batch %d: loss %v, padded to %d steps %v", i, got, padded.shards[0].steps, want)
		}
	}
}

// TestJudgeInWindows judges a model of overlapping windows as prediction labels
// with it: each window by itself, its lines weighed by their place in it.
func TestJudgeInWindows(t *testing.T) {
	cfg := smallConfig()
	cfg.WindowSize, cfg.PredictionStride = 12, 5
	docs := annotated(4, cfg.InputSize, 3)
	docs = append(docs, Document{Name: "empty.txt", Features: &model.Batch{}})
	w, meta := run(t, Options{Config: cfg, Train: docs})
	scorer, err := cpu.New(w)
	if err != nil {
		t.Fatal(err)
	}
	defer scorer.Close()
	k, classes := w.Config.NumOutputs(), len(w.Config.Classes)
	var want float64
	right, lines := 0, 0
	for _, d := range docs {
		rows := len(d.Labels)
		sum, weights := make([]float64, rows*classes), make([]float64, rows)
		for first := 0; rows > 0; first += 5 {
			first = min(first, max(0, rows-12))
			n := min(12, rows-first)
			b := *d.Features
			b.Windows = []model.ContextWindow{{First: first, Len: n}}
			probs := make([]float32, n*k)
			if err := scorer.Score(t.Context(), &b, probs); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				weight := float64(min(i+1, n-i))
				weights[first+i] += weight
				for c := range classes {
					sum[(first+i)*classes+c] += weight * float64(probs[i*k+c])
				}
			}
			if first+n == rows {
				break
			}
		}
		for r, l := range d.Labels {
			y := w.Config.Class(l)
			if y < 0 {
				continue
			}
			p := sum[r*classes:][:classes]
			lines++
			want -= math.Log(p[y] / weights[r])
			if p[y] == slices.Max(p) {
				right++
			}
		}
	}
	want /= float64(lines)
	if got := meta.Training; math.Abs(got.Loss-want) > 1e-6*want || got.Accuracy != float64(right)/float64(lines) {
		t.Errorf("loss %v and accuracy %v, want %v and %v", got.Loss, got.Accuracy, want, float64(right)/float64(lines))
	}
}

// Cross-entropy and focal loss by hand: logits ln 1, ln 2, ln 5 have
// probabilities 1/8, 2/8, 5/8.
func TestCrossEntropy(t *testing.T) {
	logits := []float64{0, math.Log(2), math.Log(5)}
	p := make([]float64, 3)
	loss, slope := crossEntropy(p, logits, 1, false)
	if math.Abs(loss-math.Log(4)) > 1e-12 || slope != 1 || math.Abs(p[2]-5./8) > 1e-12 {
		t.Errorf("cross-entropy: %v, slope %v, p %v", loss, slope, p)
	}
	loss, slope = crossEntropy(p, logits, 1, true)
	if want := 9. / 16 * math.Log(4); math.Abs(loss-want) > 1e-12 {
		t.Errorf("focal loss: got %v, want %v", loss, want)
	}
	if want := 9./16 + 2*.25*.75*math.Log(4); math.Abs(slope-want) > 1e-12 {
		t.Errorf("focal slope: got %v, want %v", slope, want)
	}
}

func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		step, steps int
		want        float64
	}{
		{0, 1000, 1. / 101},
		{99, 1000, 100. / 101},
		{100, 1000, 1},
		{999, 1000, .02},
		{100 + 899/2, 1000, .51},
		{0, 1, 1},
		{0, 8, 1. / 3},
		{2, 8, 1},
		{7, 8, .02},
	} {
		if got := schedule(c.step, c.steps); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("schedule(%d, %d): got %v, want %v", c.step, c.steps, got, c.want)
		}
	}
}

// Weights whose gradient is 0 move by the decay alone, those of the table not at all.
func TestDecay(t *testing.T) {
	a := newStep(.5, .25, 0, 0)
	w, zero := []float32{1, -2}, make([]float32, 2)
	a.Update(w, zero, make([]float32, 2), make([]float32, 2))
	if w[0] != 1-.125 || w[1] != -2+.25 {
		t.Errorf("weights 1 and -2 become %v at a decay of 1/8", w)
	}
	table := []float32{5, 6, 1, -2}
	(&tablePart{ids: []uint32{1}, grad: zero}).update(a, 2, table, make([]float32, 4), make([]float32, 4))
	if !slices.Equal(table, []float32{5, 6, 1, -2}) {
		t.Errorf("the table becomes %v", table)
	}
}

// Dropout drops its share and keeps the mean.
func TestDropout(t *testing.T) {
	b := &bits{source: *rand.NewPCG(1, 2)}
	mask := make([]float32, 200000)
	for _, p := range []float64{0, .05, .4, .9} {
		b.dropout(mask, p)
		zeros, sum := 0, 0.
		for _, m := range mask {
			if m == 0 {
				zeros++
			}
			sum += float64(m)
		}
		n := float64(len(mask))
		if share := float64(zeros) / n; math.Abs(share-p) > .005 {
			t.Errorf("dropout %v drops %v", p, share)
		}
		if math.Abs(sum/n-1) > .03 {
			t.Errorf("dropout %v: mean %v", p, sum/n)
		}
	}
}

// Some windows hide the layout of all their rows; the others show it, but for
// the rows that are dropped whole.
func TestLayoutDropout(t *testing.T) {
	for _, p := range []float64{0, .4} {
		cfg := smallConfig()
		cfg.Dropout = p
		tr := trainerOf(t, Options{Config: cfg, Train: annotated(9, cfg.InputSize, 5), shards: 1})
		s, ws := tr.shards[0], []window{{0, 0, 25}, {3, 5, 25}, {1, 0, 25}}
		hidden, n := 0, 0
		for step := range 1000 {
			s.fill(tr, ws, step, 0, [2]float64{1, 1})
			for i, w := range ws {
				shown := 0
				for r := range w.len {
					row := s.layout[(r*s.windows+i)*cfg.LayoutSize:][:cfg.LayoutSize]
					if slices.Max(row) > 0 || slices.Min(row) < 0 {
						shown++
					}
				}
				n++
				switch {
				case shown == 0:
					hidden++
				case shown < 15:
					t.Fatalf("dropout %v: a window shows %d of its %d rows", p, shown, w.len)
				}
			}
		}
		if got, want := float64(hidden)/float64(n), layoutDropout*p; math.Abs(got-want) > .03 {
			t.Errorf("dropout %v: %.3f of the windows hide their layout, want %.3f", p, got, want)
		}
	}
}

func TestOrthogonal(t *testing.T) {
	const n, ld = 40, 50
	q := make([]float32, n*ld)
	orthogonal(rand.New(rand.NewPCG(3, 4)), q, n, ld)
	for i := range n {
		for j := range n {
			var dot, want float64
			for k := range n {
				dot += float64(q[i*ld+k]) * float64(q[j*ld+k])
			}
			if i == j {
				want = 1
			}
			if math.Abs(dot-want) > 1e-6 {
				t.Fatalf("rows %d and %d: product %v", i, j, dot)
			}
		}
		if slices.ContainsFunc(q[i*ld+n:(i+1)*ld], func(v float32) bool { return v != 0 }) {
			t.Fatalf("row %d is too long", i)
		}
	}
}

func TestLayoutStatistics(t *testing.T) {
	docs := []Document{
		{Features: &model.Batch{Layout: []float32{1, 7, 0, 3, 7, 1e-8}}},
		{Features: &model.Batch{Layout: []float32{5, 7, 0}}},
	}
	mean, inv := layoutStatistics(docs, 3)
	if fmt.Sprint(mean[:2]) != "[3 7]" || math.Abs(float64(inv[0])-math.Sqrt(3./8)) > 1e-6 || inv[1] != 0 || inv[2] != 0 {
		t.Errorf("mean %v, 1/deviation %v", mean, inv)
	}
}
