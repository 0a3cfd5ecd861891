// Package train makes model.Weights from annotated documents: a bidirectional
// LSTM over the lines of context windows, built on gorgonia, with AdamW.
//
// It promises that a Config, its seed and the documents give the same weights,
// bit for bit, on one instruction set, however many cores work: a batch is cut
// into a fixed number of shards, each with its own graph and random numbers,
// and what they find is added in a fixed order.
package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/model/kernel"

	// gorgonia's graphs hold Go pointers where the garbage collector does not
	// look, and refuse to run under a Go that it has not been told is safe.
	_ "go4.org/unsafe/assume-no-moving-gc"
)

// Document is one annotated document.
type Document struct {
	Name     string
	Features *model.Batch // a row a line; Windows is not read
	Labels   []string     // one a row; "" is outside every span: context, but no target
}

// Options say what to train, and on what.
type Options struct {
	// Config is the recipe; Run settles its classes (Classes). A WindowSize
	// above 0 is also the size of the windows in training, 80 otherwise.
	Config model.Config

	Train      []Document
	Validation []Document // judged after each epoch; may be empty
	Test       []Document // judged at the end; may be empty

	// Shards cut each batch; the result depends on it. 0 means 4.
	Shards int
	// Workers run the shards; the result does not depend on it. 0 means
	// GOMAXPROCS.
	Workers int
	// EarlyStopping ends training after so many epochs without a better
	// macro-F1 on Validation, and returns the best epoch's weights. 0 trains
	// all epochs and returns the last one's.
	EarlyStopping int
	// Init gives the weights to begin with, of the same sizes and classes.
	Init *model.Weights
	// Progress is called on Run's goroutine after each step, and after each
	// epoch with EpochEnd.
	Progress func(Progress)
}

// Progress is where training stands.
type Progress struct {
	Epoch, Epochs int // from 1
	Step, Steps   int // from 1; of all epochs
	EpochEnd      bool
	Loss          float64 // mean of this epoch's steps so far
	LearningRate  float64
	GradientNorm  float64       // of this step, before clipping
	LinesPerSec   float64       // trained, of this epoch
	Left          time.Duration // estimated
	// MacroF1 is that of the validation documents after the last whole epoch,
	// 0 before there is one.
	MacroF1 float64
}

const (
	defaultShards = 4
	defaultWindow = 80
)

// Run trains a model. The returned Metadata lacks only what Run cannot know:
// Data and Commit.
func Run(ctx context.Context, o Options) (*model.Weights, *model.Metadata, error) {
	start := time.Now()
	t, err := newTrainer(&o)
	if err != nil {
		return nil, nil, err
	}
	validation, err := newCorpus("validation", o.Validation, &t.config)
	if err != nil {
		return nil, nil, err
	}
	test, err := newCorpus("test", o.Test, &t.config)
	if err != nil {
		return nil, nil, err
	}
	meta := &model.Metadata{
		Seed:       t.config.Seed,
		Parameters: t.config.NumParameters(),
		Device:     fmt.Sprintf("cpu, %s, %d shards, %d workers", kernel.ISA(), len(t.shards), t.workers),
		Split: model.Split{
			Train: names(o.Train), Validation: names(o.Validation), Test: names(o.Test),
			TrainLines: t.corpus.lines, ValidationLines: validation.lines, TestLines: test.lines,
		},
	}

	var best *model.Weights
	var bestF1, lastF1 float64
	bestEpoch := -1
	for epoch := range t.config.Epochs {
		began := time.Now()
		ws := t.epochs[epoch]
		var sum float64
		lines := 0
		p := Progress{Epoch: epoch + 1, Epochs: t.config.Epochs, Steps: t.steps, MacroF1: lastF1}
		for i, batch := range batches(ws, t.config.BatchSize) {
			if err := ctx.Err(); err != nil {
				return nil, nil, fmt.Errorf("train: stopped at step %d: %w", t.step, err)
			}
			loss, err := t.train(batch)
			if err != nil {
				return nil, nil, err
			}
			sum += loss
			for _, w := range batch {
				lines += w.len
			}
			p.Step, p.Loss = t.step, sum/float64(i+1)
			p.LearningRate, p.GradientNorm = t.rate.learningRate, t.norm
			p.LinesPerSec = float64(lines) / time.Since(began).Seconds()
			p.Left = time.Duration(float64(time.Since(start)) / float64(t.step) * float64(t.steps-t.step))
			if o.Progress != nil {
				o.Progress(p)
			}
		}
		stats := model.EpochStats{Loss: p.Loss, LearningRate: p.LearningRate}
		if len(o.Validation) > 0 {
			w := t.weights()
			counts, loss, err := judge(ctx, w, validation, t.workers)
			if err != nil {
				return nil, nil, err
			}
			lastF1 = counts.Report().MacroF1
			p.MacroF1, stats.ValidationMacroF1, stats.ValidationLoss = lastF1, lastF1, loss
			if o.EarlyStopping > 0 && (bestEpoch < 0 || lastF1 > bestF1) {
				best, bestF1, bestEpoch = w, lastF1, epoch
			}
		}
		stats.Seconds = time.Since(began).Seconds()
		meta.Epochs = append(meta.Epochs, stats)
		p.EpochEnd = true
		if o.Progress != nil {
			o.Progress(p)
		}
		if bestEpoch >= 0 && epoch-bestEpoch >= o.EarlyStopping {
			break
		}
	}
	if best == nil {
		best = t.weights()
	}
	if err := best.Validate(); err != nil {
		return nil, nil, fmt.Errorf("train: training diverged, lower learning_rate: %w", err)
	}
	for _, part := range []struct {
		corpus *corpus
		into   **model.Accuracy
	}{{validation, &meta.Validation}, {test, &meta.Test}} {
		if len(part.corpus.docs) == 0 {
			continue
		}
		counts, _, err := judge(ctx, best, part.corpus, t.workers)
		if err != nil {
			return nil, nil, err
		}
		*part.into = accuracy(counts)
	}
	meta.Time = time.Now().UTC()
	meta.Seconds = time.Since(start).Seconds()
	return best, meta, nil
}

func names(docs []Document) (ns []string) {
	for _, d := range docs {
		ns = append(ns, d.Name)
	}
	return ns
}

func batches(ws []window, size int) (bs [][]window) {
	for len(ws) > 0 {
		n := min(size, len(ws))
		bs = append(bs, ws[:n])
		ws = ws[n:]
	}
	return bs
}

func accuracy(c *eval.Counts) *model.Accuracy {
	r := c.Report()
	a := &model.Accuracy{Accuracy: r.Accuracy, MacroF1: r.MacroF1, F1: map[string]float64{}}
	for _, cl := range r.Classes {
		if cl.Gold > 0 {
			a.F1[cl.Class] = cl.F1
		}
	}
	return a
}

// trainer is the state of training.
type trainer struct {
	config        model.Config
	corpus        *corpus
	columnWeights []float64  // of the heads' columns in the loss
	epochs        [][]window // the windows of each epoch, in order
	workers       int

	net  *network[float32]
	grad []float32 // of net.flat
	m, v []float32 // moments of net.flat

	layoutMean, layoutInvStd []float32

	table          []float32 // [input_size, D]
	tableM, tableV []float32
	slot           []int32 // [input_size], for tablePart.collect
	parts          [tableParts]tablePart

	shards      []*shard
	step, steps int
	rate        rate    // of the last step
	norm        float64 // of the last step's gradient
}

func newTrainer(o *Options) (*trainer, error) {
	if len(o.Train) == 0 {
		return nil, errors.New("train: no documents to train on")
	}
	cfg, err := Classes(o.Train, o.Config)
	if err != nil {
		return nil, err
	}
	if o.Init != nil {
		if err := sameSizes(&o.Init.Config, &cfg); err != nil {
			return nil, err
		}
	}
	t := &trainer{config: cfg, workers: o.Workers}
	if t.workers <= 0 {
		t.workers = runtime.GOMAXPROCS(0)
	}
	if t.corpus, err = newCorpus("training", o.Train, &cfg); err != nil {
		return nil, err
	}
	if t.corpus.lines == 0 {
		return nil, errors.New("train: no line of the training documents has a label; give annotated documents")
	}
	if t.columnWeights, err = t.corpus.columnWeights(&cfg); err != nil {
		return nil, err
	}
	size := cfg.WindowSize
	if size == 0 {
		size = defaultWindow
	}
	for epoch := range cfg.Epochs {
		ws := t.corpus.windows(size, cfg.Seed, epoch)
		t.epochs = append(t.epochs, ws)
		t.steps += (len(ws) + cfg.BatchSize - 1) / cfg.BatchSize
	}
	longest := 0
	for _, main := range t.corpus.main {
		longest = max(longest, len(main))
	}
	t.newWeights()
	if o.Init != nil {
		t.setWeights(o.Init)
	}

	shards := o.Shards
	if shards <= 0 {
		shards = defaultShards
	}
	shards = min(shards, cfg.BatchSize)
	for range shards {
		g, err := newGraph(t.net, min(size, longest), (cfg.BatchSize+shards-1)/shards)
		if err != nil {
			return nil, err
		}
		t.shards = append(t.shards, &shard{graph: g})
	}
	return t, nil
}

// train takes one step on a batch and returns its loss.
func (t *trainer) train(batch []window) (loss float64, err error) {
	// Each head's loss is a mean over the batch's lines that it has a target
	// for.
	var labelled [2]int
	for _, w := range batch {
		for r := w.first; r < w.first+w.len; r++ {
			if t.corpus.main[w.doc][r] >= 0 {
				labelled[0]++
			}
			if t.corpus.full[w.doc][r] >= 0 {
				labelled[1]++
			}
		}
	}
	rowWeight := [2]float64{1 / float64(max(1, labelled[0])), secondHead / float64(max(1, labelled[1]))}

	t.parallel(len(t.net.matrices), func(i int) { t.net.matrices[i].pack() })
	n := len(t.shards)
	t.parallel(n, func(i int) {
		s := t.shards[i]
		s.fill(t, batch[len(batch)*i/n:len(batch)*(i+1)/n], t.step, i, rowWeight)
		s.loss, s.err = s.run()
	})
	for _, s := range t.shards {
		if s.err != nil {
			return 0, s.err
		}
		loss += float64(s.loss)
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("train: step %d: the loss is %v; lower learning_rate", t.step+1, loss)
	}

	params := t.net.parameters
	d := t.config.EmbeddingSize
	norms := make([]float64, len(params)+tableParts)
	t.parallel(len(norms), func(i int) {
		if i < tableParts { // the longest first
			t.parts[i].collect(i, d, t.shards, t.slot)
			norms[i] = squares(t.parts[i].grad)
			return
		}
		p := &params[i-tableParts]
		grad := t.grad[p.at:][:len(p.data)]
		copy(grad, t.shards[0].gradient(i-tableParts))
		for _, s := range t.shards[1:] {
			for j, g := range s.gradient(i - tableParts) {
				grad[j] += g
			}
		}
		norms[i] = squares(grad)
	})
	var sum float64
	for _, s := range norms {
		sum += s
	}
	t.norm = math.Sqrt(sum)
	t.rate = newRate(t.config.LearningRate*schedule(t.step, t.steps), t.config.WeightDecay, t.norm, t.step)
	t.parallel(len(norms), func(i int) {
		if i < tableParts {
			t.parts[i].update(&t.rate, d, t.table, t.tableM, t.tableV)
			return
		}
		p := &params[i-tableParts]
		decay := t.rate.decay
		if len(p.shape) < 2 {
			decay = 0
		}
		t.rate.update(p.data, t.grad[p.at:], t.m[p.at:], t.v[p.at:], decay)
	})
	t.step++
	return loss, nil
}
