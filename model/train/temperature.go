package train

import (
	"context"
	"fmt"
	"math"

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

// calibrated is the model with its temperatures, nil for those it was trained with.
func (t *trainer) calibrated(ctx context.Context, o *Options, validation *corpus) (w *model.Weights, temperatures []float64, err error) {
	w = t.weights()
	if err := w.Validate(); err != nil {
		return nil, nil, fmt.Errorf("train: training diverged, lower learning_rate: %w", err)
	}
	if temperatures = o.Temperatures; temperatures == nil && validation.lines > 0 {
		if temperatures, err = t.temperatures(ctx, w, validation); err != nil {
			return nil, nil, err
		}
	}
	if len(temperatures) == 0 {
		return w, nil, nil
	}
	t.cool(temperatures)
	return t.weights(), temperatures, nil
}

// temperatures are those of each head by which the labelled lines of c are most
// probable (Guo et al., "On Calibration of Modern Neural Networks", 2017): 1 for a head
// of which c has no line, and never less, as few lines, all of them right, would ask
// for 0.
func (t *trainer) temperatures(ctx context.Context, w *model.Weights, c *corpus) ([]float64, error) {
	c.leaveOther(&t.config)
	k, first, targets := t.config.NumOutputs(), 0, [][][]int{c.main, c.full}
	var temperatures []float64
	for h, size := range t.net.sizes.heads {
		// The log-odds of each class against the line's own, of each document.
		odds := make([][]float32, len(c.docs))
		err := score(ctx, w, c, t.workers, func(i int, probs []float32) error {
			for r, y := range targets[h][i] {
				if y < 0 {
					continue
				}
				p := probs[r*k+first:][:size]
				for _, q := range p {
					odds[i] = append(odds[i], float32(logarithm(q)-logarithm(p[y])))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		temperatures = append(temperatures, temperature(size, odds, t.workers))
		first += size
	}
	return temperatures, nil
}

// temperature is 1/β, in hundredths, for the β from 1/MaxTemperature to 1 that makes
// the sum of log Σ exp(β·odds) least, over rows of size odds each; it is convex in β.
func temperature(size int, odds [][]float32, workers int) float64 {
	slopes := make([]float64, len(odds))
	slope := func(beta float64) (sum float64) {
		parallel(workers, len(odds), func(i int) {
			slopes[i] = 0
			for x := odds[i]; len(x) > 0; x = x[size:] {
				var top, exps float64
				most := float64(x[0])
				for _, v := range x[1:size] {
					most = max(most, float64(v))
				}
				for _, v := range x[:size] {
					e := math.Exp(beta * (float64(v) - most))
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
	if slope(high) <= 0 {
		return 1
	}
	for range 24 {
		if middle := (low + high) / 2; slope(middle) > 0 {
			high = middle
		} else {
			low = middle
		}
	}
	return math.Round(100/high) / 100
}

// cool divides the logits of each head by its temperature.
func (t *trainer) cool(temperatures []float64) {
	k, first := t.config.NumOutputs(), 0
	for h, size := range t.net.sizes.heads[:min(len(temperatures), len(t.net.sizes.heads))] {
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
