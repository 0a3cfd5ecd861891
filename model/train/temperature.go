package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/model"
)

// Temperatures lie between these. Documents that a model labels no better than a die
// would ask for infinity.
const (
	MinTemperature = .1
	MaxTemperature = 10.
)

// checkTemperatures tells of those that are none, or of no head.
func checkTemperatures(temperatures []float64, cfg *model.Config) error {
	if heads := len(networkSizes(cfg).heads); len(temperatures) > heads {
		return fmt.Errorf("train: %d temperatures: the model has %s of classes; give one for each", len(temperatures), english.Plural(heads, "set", ""))
	}
	for _, v := range temperatures {
		if !(v >= MinTemperature && v <= MaxTemperature) {
			return fmt.Errorf("train: temperature %g: it must be from %g to %g", v, MinTemperature, MaxTemperature)
		}
	}
	return nil
}

// calibrated is the model and the temperatures that its logits are divided by, nil where
// all of them are 1.
func (t *trainer) calibrated(ctx context.Context, o *Options, validation *corpus) (w *model.Weights, temperatures []float64, err error) {
	w = t.weights()
	if err := w.Validate(); err != nil {
		return nil, nil, fmt.Errorf("train: training diverged, lower learning_rate: %w", err)
	}
	if temperatures = o.Temperatures; temperatures == nil && validation.lines > 0 {
		if temperatures, err = t.fitTemperatures(ctx, w, validation); err != nil {
			return nil, nil, err
		}
	}
	if !slices.ContainsFunc(temperatures, func(v float64) bool { return v != 1 }) {
		return w, nil, nil
	}
	t.divideLogits(temperatures)
	return t.weights(), temperatures, nil
}

// enoughLines is the number of a head's labelled lines from which on they are asked for
// a temperature: one line, labelled by mistake, would ask for the highest.
const enoughLines = 100

// fitTemperatures finds those of each head by which the labelled lines of c are most
// probable (Guo et al., "On Calibration of Modern Neural Networks", 2017), but never
// less than 1: few lines, all of them right, would ask for 0. It leaves targets out of
// c (leaveOther).
func (t *trainer) fitTemperatures(ctx context.Context, w *model.Weights, c *corpus) ([]float64, error) {
	c.leaveOther(&t.config)
	heads, k := t.net.sizes.heads, t.config.NumOutputs()
	// The log-odds of each class against the line's own, of each head and document.
	odds := make([][][]float32, len(heads))
	for h := range odds {
		odds[h] = make([][]float32, len(c.docs))
	}
	err := score(ctx, w, c, t.workers, func(i int, probs []float32) error {
		first := 0
		for h, targets := range [][]int{c.main[i], c.full[i]}[:len(heads)] {
			for r, y := range targets {
				if y < 0 {
					continue
				}
				p := probs[r*k+first:][:heads[h]]
				for _, q := range p {
					odds[h][i] = append(odds[h][i], float32(logarithm(q)-logarithm(p[y])))
				}
			}
			first += heads[h]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var temperatures []float64
	for h, size := range heads {
		temperatures = append(temperatures, fitTemperature(size, odds[h], t.workers))
	}
	return temperatures, nil
}

// fitTemperature finds 1/β, in hundredths, for the β from 1/MaxTemperature to 1 that makes
// the sum of log Σ exp(β·odds) least, over rows of size odds each; it is convex in β.
func fitTemperature(size int, odds [][]float32, workers int) float64 {
	rows := 0
	for _, x := range odds {
		rows += len(x) / size
	}
	if rows < enoughLines {
		return 1
	}
	slopes := make([]float64, len(odds))
	slope := func(beta float64) (sum float64) {
		parallel(workers, len(odds), func(i int) {
			slopes[i] = 0
			for x := odds[i]; len(x) > 0; x = x[size:] {
				most := slices.Max(x[:size])
				var top, exps float64
				for _, v := range x[:size] {
					e := math.Exp(beta * float64(v-most))
					top += e * float64(v)
					exps += e
				}
				slopes[i] += top / exps
			}
		})
		for _, s := range slopes {
			sum += s
		}
		return sum
	}
	low, high := 1/MaxTemperature, 1.
	for range 24 {
		if middle := (low + high) / 2; slope(middle) > 0 {
			high = middle
		} else {
			low = middle
		}
	}
	return math.Round(100/high) / 100
}

// divideLogits divides the logits of each head by its temperature.
func (t *trainer) divideLogits(temperatures []float64) {
	k, first := t.config.NumOutputs(), 0
	for h, size := range t.net.sizes.heads[:len(temperatures)] {
		for _, x := range [][]float32{t.net.outStates.data, t.net.outLine.data, t.net.outputsBias} {
			for ; len(x) > 0; x = x[k:] {
				for i := range x[first:][:size] {
					x[first+i] = float32(float64(x[first+i]) / temperatures[h])
				}
			}
		}
		first += size
	}
}
