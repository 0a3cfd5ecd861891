package train

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

// The temperature of made-up probabilities is that which a search through all
// hundredths finds, by the definition of the loss.
func TestTemperature(t *testing.T) {
	for seed, c := range []struct {
		classes, lines int
		sharp          float64 // what the true logits are multiplied with
		least, most    float64
	}{{3, 500, 1.6, 1.2, 2.2}, {24, 300, 3, 2.2, 4}, {2, 400, .5, 1, 1}, {3, 200, 100, MaxTemperature, MaxTemperature}} {
		rnd := rand.New(rand.NewPCG(uint64(seed), 0))
		logits, own := make([][]float64, c.lines), make([]int, c.lines)
		odds := make([][]float32, 7)
		for i := range logits {
			x, sum := make([]float64, c.classes), 0.
			for j := range x {
				x[j] = 2 * rnd.NormFloat64()
				sum += math.Exp(x[j])
			}
			for u := rnd.Float64() * sum; own[i] < c.classes-1; own[i]++ { // as probable as its logit says
				if u -= math.Exp(x[own[i]]); u < 0 {
					break
				}
			}
			for j := range x {
				x[j] *= c.sharp
			}
			for j := range x {
				odds[i%7] = append(odds[i%7], float32(x[j]-x[own[i]]))
			}
			logits[i] = x
		}
		best, least := 0., math.Inf(1)
		for hundredths := 100; hundredths <= 100*MaxTemperature; hundredths++ {
			at, loss := float64(hundredths)/100, 0.
			for i, x := range logits {
				top, sum := slices.Max(x)/at, 0.
				for _, v := range x {
					sum += math.Exp(v/at - top)
				}
				loss += top + math.Log(sum) - x[own[i]]/at
			}
			if loss < least {
				best, least = at, loss
			}
		}
		got := fitTemperature(c.classes, odds, 2)
		if math.Abs(got-best) > .0101 || got < c.least || got > c.most {
			t.Errorf("case %d: %g, the search finds %g", seed, got, best)
		}
	}
	// Of few lines, all of them labelled by mistake, nothing is learnt.
	for lines, want := range map[int]float64{0: 1, enoughLines - 1: 1, enoughLines: MaxTemperature} {
		if got := fitTemperature(3, [][]float32{nil, slices.Repeat([]float32{0, 9, -1}, lines)}, 1); got != want {
			t.Errorf("%d lines labelled by mistake: %g, want %g", lines, got, want)
		}
	}
}

// A model too sure of itself comes out with probabilities that its validation
// documents find best, and with the labels that it has without.
func TestRunCalibrates(t *testing.T) {
	cfg := smallConfig()
	cfg.Epochs, cfg.Dropout, cfg.WindowSize, cfg.LearningRate = 40, 0, 10, .03
	o := Options{Config: cfg, Train: annotated(6, cfg.InputSize, 1), Validation: annotated(8, cfg.InputSize, 2), Temperatures: []float64{}}
	sure, before := run(t, o)
	o.Temperatures = nil
	calm, after := run(t, o)
	found := after.Temperatures
	if len(found) != 2 || found[0] < 1.2 || found[1] < 1.2 {
		t.Fatalf("temperatures %v of a model that learnt six documents by heart", found)
	}
	if before.Temperatures != nil || after.Validation.Loss >= .95*before.Validation.Loss {
		t.Errorf("the loss on validation is %g with temperatures %v, %g without", after.Validation.Loss, found, before.Validation.Loss)
	}
	if math.Abs(after.Validation.Accuracy-before.Validation.Accuracy) > .01 { // matrices are rounded again
		t.Errorf("accuracy %g, %g without", after.Validation.Accuracy, before.Validation.Accuracy)
	}
	for h := range found { // warmer and colder are both worse
		for _, by := range []float64{.9, 1.1} {
			o.Temperatures = slices.Clone(found)
			o.Temperatures[h] *= by
			other, _ := run(t, o)
			if a, b := headLoss(t, o.Validation, calm, h), headLoss(t, o.Validation, other, h); a >= b {
				t.Errorf("head %d: loss %g at temperature %g, %g at %g", h, a, found[h], b, o.Temperatures[h])
			}
		}
	}
	o.Temperatures = []float64{2}
	half, _ := run(t, o)
	k, classes := half.Config.NumOutputs(), len(half.Config.Classes)
	for i, v := range slices.Concat(sure.OutputWeights, sure.OutputBias) {
		if i%k < classes {
			v /= 2
		}
		if got := slices.Concat(half.OutputWeights, half.OutputBias)[i]; got != v {
			t.Fatalf("number %d of the output is %g, not %g, at a temperature of 2 for one head", i, got, v)
		}
	}
	half.OutputWeights, half.OutputBias = sure.OutputWeights, sure.OutputBias
	if fingerprint(half) != fingerprint(sure) {
		t.Error("a temperature changes more than the output")
	}
}

// What the second head knows under other names is no fault of its.
func TestTemperatureOfSecondHead(t *testing.T) {
	cfg := smallConfig()
	cfg.Dropout, cfg.LearningRate = 0, .03
	three, two := annotated(8, cfg.InputSize, 2), annotated(8, cfg.InputSize, 2)
	for i := range three {
		for r, l := range three[i].Labels {
			if l != "" && l != "Nomenclature" && l != "Description" {
				three[i].Labels[r], two[i].Labels[r] = "Misc-exposition", ""
			}
		}
	}
	o := Options{Config: cfg, Train: annotated(20, cfg.InputSize, 1)}
	o.Validation = three
	_, ofThree := run(t, o)
	o.Validation = two
	_, ofTwo := run(t, o)
	if a, b := ofThree.Temperatures, ofTwo.Temperatures; len(a) != 2 || a[1] != b[1] || a[0] == b[0] {
		t.Errorf("temperatures %v by documents of three labels, %v without the third", a, b)
	}
}

// A model with one head has one temperature, the highest where all of Validation is
// labelled by mistake.
func TestTemperatureOfOneHead(t *testing.T) {
	cfg := smallConfig()
	cfg.LabelSet, cfg.Dropout, cfg.LearningRate = model.Full, 0, .03
	wrong := annotated(8, cfg.InputSize, 2)
	other := map[string]string{"Misc-exposition": "Nomenclature", "Nomenclature": "Figure", "Figure": "Misc-exposition"}
	for _, d := range wrong {
		for r, l := range d.Labels {
			d.Labels[r] = other[l]
		}
	}
	w, meta := run(t, Options{Config: cfg, Train: annotated(20, cfg.InputSize, 1), Validation: wrong})
	if len(w.Config.FullClasses) != 0 || len(meta.Temperatures) != 1 || meta.Temperatures[0] != MaxTemperature {
		t.Errorf("temperatures %v with classes %v and %v", meta.Temperatures, w.Config.Classes, w.Config.FullClasses)
	}
}

// headLoss is the mean cross-entropy of one head's labelled lines.
func headLoss(t *testing.T, docs []Document, w *model.Weights, head int) float64 {
	t.Helper()
	c, err := newCorpus("validation", docs, &w.Config)
	if err != nil {
		t.Fatal(err)
	}
	k, classes, loss, lines := w.Config.NumOutputs(), len(w.Config.Classes), 0., 0
	err = score(context.Background(), w, c, 1, func(i int, probs []float32) error {
		targets, first := c.main[i], 0
		if head == 1 {
			targets, first = c.full[i], classes
		}
		for r, y := range targets {
			if y >= 0 {
				loss -= math.Log(float64(probs[r*k+first+y]))
				lines++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return loss / float64(lines)
}
