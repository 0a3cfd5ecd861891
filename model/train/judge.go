package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/eval"
)

// parallel calls f(0) … f(n−1) on the workers.
func (t *trainer) parallel(n int, f func(i int)) { parallel(t.workers, n, f) }

func parallel(workers, n int, f func(i int)) {
	workers = min(workers, n)
	if workers <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// judge scores the documents of c with w on the CPU, in the windows that
// prediction takes: the counts of the main head, and the mean cross-entropy of
// its labelled lines.
func judge(ctx context.Context, w *model.Weights, c *corpus, workers int) (*eval.Counts, float64, error) {
	scorer, err := cpu.New(w)
	if err != nil {
		return nil, 0, fmt.Errorf("train: %s documents: training diverged, lower learning_rate: %w", c.what, err)
	}
	defer scorer.Close()
	cfg := &w.Config
	k, classes := cfg.NumOutputs(), len(cfg.Classes)
	counts := make([]*eval.Counts, len(c.docs))
	losses := make([]float64, len(c.docs))
	errs := make([]error, len(c.docs))
	parallel(workers, len(c.docs), func(i int) {
		counts[i] = eval.NewCounts(cfg.Classes)
		b := *c.docs[i].Features
		b.Windows = model.Windows(b.NumLines(), cfg.WindowSize, cfg.PredictionStride)
		probs := make([]float32, b.NumSteps()*k)
		if errs[i] = scorer.Score(ctx, &b, probs); errs[i] != nil {
			return
		}
		parts := make([][]float32, len(b.Windows))
		at := 0
		for j, window := range b.Windows {
			parts[j] = probs[at : at+window.Len*k]
			at += window.Len * k
		}
		probs = model.Average(b.NumLines(), b.Windows, parts, k)
		for r, y := range c.main[i] {
			p := probs[r*k:][:classes]
			if y >= 0 {
				if p[y] != p[y] {
					errs[i] = fmt.Errorf("line %d: a probability is NaN, of weights too large to reckon with; lower learning_rate, or begin with another model", r+1)
					return
				}
				counts[i].Add(y, slices.Index(p, slices.Max(p)), 1)
				losses[i] -= math.Log(max(1e-30, float64(p[y])))
			}
		}
	})
	all := eval.NewCounts(cfg.Classes)
	var loss float64
	for i := range c.docs {
		if errs[i] != nil {
			return nil, 0, fmt.Errorf("train: %s document %s: %w", c.what, c.docs[i].Name, errs[i])
		}
		all.Merge(counts[i])
		loss += losses[i]
	}
	return all, loss / float64(max(1, c.lines)), nil
}
