package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/linnet-ml/linnet/model"
)

// anyDocuments are some documents of a few lines, none or one of them too.
func anyDocuments(t *rapid.T, what string, least int) (docs []Document) {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, what), 0))
	labels := []string{"Misc-exposition", "Nomenclature", "Description", "Key", ""}
	labels = labels[:rapid.IntRange(1, len(labels)).Draw(t, what+" labels")]
	scale := rapid.SampledFrom([]float64{1, 0, 1e6, 1e30}).Draw(t, what+" layout")
	for i, lines := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 40), rapid.IntRange(80, 120)), least, 4).Draw(t, what+" lines") {
		d := Document{Name: fmt.Sprintf("%s%d.txt", what, i), Features: &model.Batch{}}
		f, own := d.Features, labels[:1+rnd.IntN(len(labels))]
		for range lines {
			for range model.Groups {
				for range rnd.IntN(3) {
					f.IDs = append(f.IDs, uint32(rnd.IntN(anyInputs)))
				}
				f.GroupEnd, f.GroupScale = append(f.GroupEnd, uint32(len(f.IDs))), append(f.GroupScale, 1)
			}
			f.Layout = append(f.Layout, float32(scale*rnd.NormFloat64()))
			d.Labels = append(d.Labels, own[rnd.IntN(len(own))])
		}
		docs = append(docs, d)
	}
	return docs
}

const anyInputs = 50

// anyOptions are those of a training of a tiny network.
func anyOptions(t *rapid.T) Options {
	cfg := model.DefaultConfig()
	cfg.InputSize, cfg.EmbeddingSize, cfg.LayoutSize, cfg.HiddenSize, cfg.NumLayers = anyInputs, 2, 1, 2, rapid.IntRange(1, 2).Draw(t, "layers")
	cfg.Epochs, cfg.BatchSize = rapid.IntRange(1, 4).Draw(t, "epochs"), rapid.IntRange(1, 6).Draw(t, "batch size")
	cfg.WindowSize = rapid.SampledFrom([]int{0, 1, 5, 20, 300}).Draw(t, "window size")
	cfg.PredictionStride = rapid.IntRange(0, cfg.WindowSize).Draw(t, "stride")
	cfg.Dropout = rapid.SampledFrom([]float64{0, .4, .95}).Draw(t, "dropout")
	cfg.LearningRate = rapid.SampledFrom([]float64{.03, 1e-300, 10}).Draw(t, "learning rate")
	cfg.WeightDecay = rapid.SampledFrom([]float64{0, .01, 10}).Draw(t, "weight decay")
	cfg.ClassWeights = rapid.SampledFrom([]string{"none", "balanced", "Nomenclature=0,Description=3"}).Draw(t, "weights")
	cfg.FocalLabels = rapid.SampledFrom([]string{"", "Nomenclature"}).Draw(t, "focal")
	cfg.NumClasses = rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "classes")
	if rapid.IntRange(0, 3).Draw(t, "label map") == 0 {
		cfg.Classes, cfg.LabelMap = nil, map[string]string{"Key": "Nomenclature", "Description": "Description"}
	}
	o := Options{Config: cfg, Train: anyDocuments(t, "train", 1), CheckpointSteps: rapid.IntRange(0, 3).Draw(t, "checkpoint steps")}
	o.Crops = o.Train[:rapid.IntRange(0, 1).Draw(t, "crops")]
	if o.Validation = anyDocuments(t, "validation", 0); len(o.Validation) > 0 {
		o.Test = o.Validation[:1]
		o.Best, o.EarlyStopping = rapid.Bool().Draw(t, "best"), rapid.IntRange(0, 2).Draw(t, "early stopping")
	}
	before := Options{Config: cfg, Train: o.Train}
	before.Config.LearningRate, before.Config.WeightDecay = .03, 0
	some := rapid.SampledFrom([]string{"nothing", "init", "init", "teacher", "both"}).Draw(t, "begins with")
	if some != "nothing" {
		w, _, err := Run(t.Context(), before)
		if err != nil {
			t.Skipf("there is no model to begin with: %v", err)
		}
		if some != "teacher" {
			o.Init, o.InitShare = w, rapid.SampledFrom([]float64{0, .5}).Draw(t, "init share")
			o.Config.Classes, o.Config.FullClasses, o.Config.NumClasses = w.Config.Classes, w.Config.FullClasses, 0
			o.Config.LabelMap, o.Config.OtherClass = w.Config.LabelMap, w.Config.OtherClass
		}
		if some != "init" {
			o.Teachers = []*model.Weights{w}
			return o
		}
	}
	if o.Distributed = rapid.IntRange(0, min(3, cfg.BatchSize)).Draw(t, "workers"); o.Distributed > 0 {
		o.RoundSteps, o.Round = rapid.IntRange(0, 4).Draw(t, "round steps"), rounds(slices.Concat(o.Train, o.Crops))
	}
	return o
}

// anyFigures is what of a training's end does not depend on the clock.
func anyFigures(w *model.Weights, m *model.Metadata) string {
	epochs := slices.Clone(m.Epochs)
	for i := range epochs {
		epochs[i].Seconds, epochs[i].TrainingSeconds = 0, 0
	}
	s := fmt.Sprintln(fingerprint(w), epochs, m.BestEpoch, m.Temperatures, m.Split)
	for _, a := range []*model.Accuracy{m.Training, m.Validation, m.Test} {
		if a != nil {
			s += fmt.Sprintln(*a)
		}
	}
	return s
}

// TestRunAny stops trainings of any options at any step, or as a checkpoint is written,
// and goes on from the last that was, as often as chance has it. Each ends with the numbers
// of the undisturbed one, or with its error.
func TestRunAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		w, m, err := Run(t.Context(), o)
		if err != nil {
			if _, _, again := Run(t.Context(), o); again == nil || again.Error() != err.Error() || strings.Contains(err.Error(), "\n") {
				t.Fatalf("an error of one line, then %v: %v", again, err)
			}
			return
		}
		for _, e := range m.Epochs {
			if math.IsNaN(e.Loss) || e.Accuracy < 0 || e.Accuracy > 1 || e.Loss < 0 {
				t.Fatalf("epoch %+v", e)
			}
		}
		want := anyFigures(w, m)
		if o.Distributed == 1 {
			alone := o
			alone.Distributed, alone.RoundSteps, alone.Round = 0, 0, nil
			if w, m, err := Run(t.Context(), alone); err != nil || anyFigures(w, m) != want {
				t.Fatalf("without its one worker, error %v:\n%swith\n%s", err, anyFigures(w, m), want)
			}
		}
		var last []byte
		for {
			if last != nil {
				if o.Resume, err = DecodeState(last); err != nil {
					t.Fatal(err)
				}
			}
			o.Cores = rapid.IntRange(1, 2).Draw(t, "cores")
			stop, broken := rapid.IntRange(0, 40).Draw(t, "steps to go"), rapid.IntRange(0, 8).Draw(t, "checkpoints to go")
			ctx, cancel := context.WithCancelCause(t.Context())
			o.Progress = func(Progress) {
				if stop--; stop == 0 {
					cancel(errKilled)
				}
			}
			o.Checkpoint = func(_ context.Context, s *State) error {
				if broken--; broken == 0 {
					return errKilled
				}
				last = s.Encode()
				return nil
			}
			w, m, err := Run(ctx, o)
			cancel(nil)
			if err == nil {
				if got := anyFigures(w, m); got != want {
					t.Fatalf("interrupted:\n%swant\n%s", got, want)
				}
				return
			}
			if stop > 0 && broken > 0 || strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
		}
	})
}
