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

// judge scores the documents of c with w: the counts of the main head, and the mean
// cross-entropy of its labelled lines.
func judge(ctx context.Context, w *model.Weights, c *corpus, workers int) (*eval.Counts, float64, error) {
	cfg := &w.Config
	k, classes := cfg.NumOutputs(), len(cfg.Classes)
	counts := make([]*eval.Counts, len(c.docs))
	losses := make([]float64, len(c.docs))
	err := score(ctx, w, c, workers, func(i int, probs []float32) error {
		counts[i] = eval.NewCounts(cfg.Classes)
		for r, y := range c.main[i] {
			p := probs[r*k:][:classes]
			if y >= 0 {
				if p[y] != p[y] {
					return fmt.Errorf("line %d: a probability is NaN, of weights too large to reckon with; lower learning_rate, or begin with another model", r+1)
				}
				counts[i].Add(y, slices.Index(p, slices.Max(p)), 1)
				losses[i] -= logarithm(p[y])
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	all := eval.NewCounts(cfg.Classes)
	var loss float64
	for i := range c.docs {
		all.Merge(counts[i])
		loss += losses[i]
	}
	return all, loss / float64(max(1, c.lines)), nil
}

// logarithm is that of a probability, and of 0 that of a very small one.
func logarithm(p float32) float64 { return math.Log(max(1e-30, float64(p))) }

// score computes the probabilities [rows, K] of each document of c with w on the
// CPU, in the windows that prediction takes. It calls each with a document's index,
// from several goroutines at once; its error is one about that document.
func score(ctx context.Context, w *model.Weights, c *corpus, workers int, each func(i int, probs []float32) error) error {
	scorer, err := cpu.New(w)
	if err != nil {
		return fmt.Errorf("train: %s documents: training diverged, lower learning_rate: %w", c.what, err)
	}
	defer scorer.Close()
	return scoreBy(ctx, scorer, &w.Config, c, workers, each)
}

// scoreBy is score by the scorer of a model with the given Config.
func scoreBy(ctx context.Context, scorer *cpu.Scorer, cfg *model.Config, c *corpus, workers int, each func(i int, probs []float32) error) error {
	k := cfg.NumOutputs()
	errs := make([]error, len(c.docs))
	parallel(workers, len(c.docs), func(i int) {
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
		errs[i] = each(i, model.Average(b.NumLines(), b.Windows, parts, k))
	})
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("train: %s document %s: %w", c.what, c.docs[i].Name, err)
		}
	}
	return nil
}
