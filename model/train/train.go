// Package train makes model.Weights from annotated documents: a bidirectional
// LSTM over the lines of context windows, built on gorgonia, with AdamW.
//
// It promises that a Config, its seed and the documents give the same weights,
// bit for bit, on one instruction set, however many cores work: a batch is cut
// into a fixed number of shards, each with its own graph and random numbers,
// and what they find is added in a fixed order.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/cuda"
	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/model/kernel"
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
	// GPUs take the steps, each a part of every batch; gpuinit.Init has started
	// CUDA on them. With none the CPU does. GPUMemory bounds what is taken of
	// each, in bytes; 0 is no bound.
	GPUs      []gpuinit.Device
	GPUMemory int64
	// Precision of a GPU's products: cuda.Float32, which "" stands for,
	// cuda.BFloat16 or cuda.Float16. Weights and sums are float32 in all.
	Precision string
	// EarlyStopping ends training after so many epochs without a better
	// macro-F1 on Validation, 0 never.
	EarlyStopping int
	// Best returns the weights of the epoch with the highest macro-F1 on
	// Validation (of equal ones, the lowest loss), as EarlyStopping does, not
	// those of the last one.
	Best bool
	// Init gives the weights to begin with, of the same sizes and classes.
	Init *model.Weights
	// Teachers, where there are any, are what is learnt: the mean of their
	// probabilities for the very lines that the step sees, words dropped and
	// all, instead of the labels (distillation, Hinton et al. 2015; the same
	// inputs and patience, Beyer et al. 2022). Class weights and focal labels
	// are the teachers' affair. They need the same features and classes, and
	// the CPU of one process, and predict as prediction does: the instruction
	// set (kernel.ISA) changes the last bits of what they say.
	Teachers []*model.Weights
	// Resume is where to go on, a State of a training with the same options;
	// nil begins anew.
	Resume *State
	// Checkpoint, where not nil, is given a State after each epoch, and after
	// each CheckpointSteps steps of it where that is above 0. Its error ends
	// the training.
	Checkpoint      func(ctx context.Context, s *State) error
	CheckpointSteps int
	// Round, where not nil, takes the steps: so many of the epoch at a time,
	// all of it where RoundSteps is 0, by Shares of Distributed workers.
	Round       func(ctx context.Context, r Round) error
	RoundSteps  int
	Distributed int
	// WorkerDevice is what they compute on, for the metadata.
	WorkerDevice string
	// Progress is called on Run's goroutine after each step or round, and
	// after each epoch with EpochEnd.
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
	Accuracy      float64       // of this epoch's lines so far, under dropout
	// Memory is what a GPU has in use, PeakMemory the most it had, in bytes; of
	// several the largest. Skipped are the steps whose gradient was not finite.
	Memory, PeakMemory int64
	Skipped            int
	// Part is how many windows a GPU takes at a time, 0 where it takes all.
	Part int
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
	t, err := newTrainer(&o)
	if err != nil {
		return nil, nil, err
	}
	defer t.close()
	validation, err := newCorpus("validation", o.Validation, &t.config)
	if err != nil {
		return nil, nil, err
	}
	test, err := newCorpus("test", o.Test, &t.config)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range []*corpus{validation, test} {
		if len(c.docs) > 0 && c.lines == 0 {
			return nil, nil, fmt.Errorf("train: no line of the %s documents has a label that is a class; give annotated documents", c.what)
		}
		for _, d := range c.docs {
			n := model.Covered(d.Features.NumLines(), t.config.WindowSize, t.config.PredictionStride)
			if n > model.MaxCovered/t.config.NumOutputs() {
				return nil, nil, fmt.Errorf("train: %s documents: one has %d lines in windows of %d, which take too much memory; choose a larger --prediction_stride", c.what, n, t.config.WindowSize)
			}
		}
	}
	t.identity.Validation = digest(o.Validation)
	if o.Resume != nil {
		if err := t.restore(o.Resume); err != nil {
			return nil, nil, err
		}
	}
	if err := t.run(ctx, &o, validation); err != nil {
		return nil, nil, err
	}
	if err := t.pull(); err != nil {
		return nil, nil, err
	}
	if (o.Best || o.EarlyStopping > 0) && t.position.Best > 0 {
		copy(t.net.flat, t.bestFlat)
		copy(t.table, t.bestTable)
	}
	w := t.weights()
	if err := w.Validate(); err != nil {
		return nil, nil, fmt.Errorf("train: training diverged, lower learning_rate: %w", err)
	}
	meta := &model.Metadata{
		Seed:       t.config.Seed,
		Teachers:   t.identity.Teachers,
		Epochs:     t.position.Epochs,
		BestEpoch:  t.position.Best,
		BatchSize:  t.config.BatchSize,
		Precision:  cmp.Or(t.identity.Precision, cuda.Float32),
		WorldSize:  max(1, o.Distributed, len(o.GPUs)),
		Skipped:    t.position.Skipped,
		Parameters: t.config.NumParameters(),
		Device:     t.position.Device,
		Split: model.Split{
			Train: names(o.Train), Validation: names(o.Validation), Test: names(o.Test),
			TrainLines: t.corpus.lines, ValidationLines: validation.lines, TestLines: test.lines,
		},
	}
	if t.gpus != nil {
		meta.GPUMemory, meta.GPUPeak = t.gpus.memory()
	}
	began := time.Now()
	for _, part := range []struct {
		corpus *corpus
		into   **model.Accuracy
	}{{t.corpus, &meta.Training}, {validation, &meta.Validation}, {test, &meta.Test}} {
		if len(part.corpus.docs) == 0 {
			continue
		}
		counts, loss, err := judge(ctx, w, part.corpus, t.workers)
		if err != nil {
			return nil, nil, err
		}
		*part.into = accuracy(counts, loss)
	}
	meta.Time = time.Now().UTC()
	meta.Seconds = t.position.Seconds + time.Since(began).Seconds()
	return w, meta, nil
}

// run takes the steps that are left.
func (t *trainer) run(ctx context.Context, o *Options, validation *corpus) error {
	p := &t.position
	workers := t.workers
	if o.Round != nil {
		workers = o.Distributed
	}
	device := fmt.Sprintf("cpu, %s, %d shards, %d workers", kernel.ISA(), t.identity.Shards, workers)
	if o.Round != nil && o.WorkerDevice != "" {
		device = fmt.Sprintf("%s, %s, %d workers", o.WorkerDevice, cmp.Or(t.identity.Precision, cuda.Float32), o.Distributed)
	}
	if t.gpus != nil {
		device = fmt.Sprintf("%s, %d shards", describeGPUs(o.GPUs, cmp.Or(t.identity.Precision, cuda.Float32)), t.identity.Shards)
	}
	const then = "; then "
	if p.Device == "" {
		p.Device = device
	} else if !strings.HasSuffix(then+p.Device, then+device) {
		p.Device += then + device
	}
	start, resumed := time.Now(), p.Step
	first := 0 // step before the epoch
	for epoch, ws := range t.epochs {
		all := batches(ws, t.config.BatchSize)
		if epoch < len(p.Epochs) {
			first += len(all)
			continue
		}
		if o.EarlyStopping > 0 && p.Best > 0 && epoch >= p.Best+o.EarlyStopping {
			break
		}
		show := func(end bool) {
			if o.Progress == nil {
				return
			}
			sums := &p.Epoch
			s := Progress{Epoch: epoch + 1, Epochs: t.config.Epochs, Step: p.Step, Steps: t.steps, EpochEnd: end,
				Loss: sums.Loss / float64(max(1, sums.Steps)), LearningRate: t.learningRate(p.Step - 1), GradientNorm: t.norm,
				LinesPerSec: float64(sums.Rows) / sums.Seconds, Accuracy: float64(sums.Right) / float64(max(1, sums.Lines)), Skipped: p.Skipped}
			if t.gpus != nil {
				s.Memory, s.PeakMemory = t.gpus.memory()
				if t.gpus.most < math.MaxInt {
					s.Part = t.gpus.most
				}
			}
			if n := len(p.Epochs); n > 0 {
				s.MacroF1 = p.Epochs[n-1].ValidationMacroF1
			}
			if taken := p.Step - resumed; taken > 0 {
				s.Left = time.Duration(float64(time.Since(start)) / float64(taken) * float64(t.steps-p.Step))
			}
			o.Progress(s)
		}
		for p.Step-first < len(all) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("train: stopped at step %d: %w", p.Step, err)
			}
			began := time.Now()
			before := p.Step
			if o.Round == nil {
				if err := t.take(all[p.Step-first]); err != nil {
					return err
				}
			} else {
				steps := len(all) - (p.Step - first)
				if o.RoundSteps > 0 {
					steps = min(steps, o.RoundSteps)
				}
				if err := t.round(ctx, o, steps); err != nil {
					return err
				}
			}
			p.Epoch.Seconds += time.Since(began).Seconds()
			p.Seconds += time.Since(began).Seconds()
			show(false)
			every := o.CheckpointSteps
			if o.Checkpoint != nil && (o.Round != nil || every > 0 && p.Step/every > before/every) {
				if err := t.pull(); err != nil {
					return err
				}
				if err := o.Checkpoint(ctx, t.state()); err != nil {
					return err
				}
			}
		}
		first += len(all)
		began := time.Now()
		sums := &p.Epoch
		stats := model.EpochStats{Loss: sums.Loss / float64(max(1, sums.Steps)), LearningRate: t.learningRate(p.Step - 1),
			Accuracy: float64(sums.Right) / float64(max(1, sums.Lines)), TrainingSeconds: sums.Seconds, Lines: sums.Rows}
		if err := t.pull(); err != nil {
			return err
		}
		if len(o.Validation) > 0 {
			counts, loss, err := judge(ctx, t.weights(), validation, t.workers)
			if err != nil {
				return err
			}
			r := counts.Report()
			stats.ValidationMacroF1, stats.ValidationAccuracy, stats.ValidationLoss = r.MacroF1, r.Accuracy, loss
			if (o.Best || o.EarlyStopping > 0) && (p.Best == 0 || better(&stats, &p.Epochs[p.Best-1])) {
				p.Best = epoch + 1
				t.bestFlat = append(t.bestFlat[:0], t.net.flat...)
				t.bestTable = append(t.bestTable[:0], t.table...)
			}
		}
		took := time.Since(began).Seconds()
		p.Seconds += took
		stats.Seconds = sums.Seconds + took
		p.Epochs = append(p.Epochs, stats)
		show(true)
		p.Epoch = epochSums{}
		if o.Checkpoint != nil && len(p.Epochs) < t.config.Epochs {
			if err := o.Checkpoint(ctx, t.state()); err != nil {
				return err
			}
		}
	}
	return nil
}

// better compares epochs by macro-F1 on validation, and equal ones by the loss.
func better(a, b *model.EpochStats) bool {
	return cmp.Or(cmp.Compare(a.ValidationMacroF1, b.ValidationMacroF1), cmp.Compare(b.ValidationLoss, a.ValidationLoss)) > 0
}

// take takes a step on a batch and counts it. A worker's share of a batch may be
// empty: it has no loss.
func (t *trainer) take(batch []window) error {
	loss, err := t.train(batch)
	if err != nil {
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	p := &t.position
	p.Epoch.Steps++
	p.Epoch.Loss += loss
	p.Epoch.Right += t.right
	for _, w := range batch {
		p.Epoch.Rows += w.len
		for _, y := range t.corpus.main[w.doc][w.first : w.first+w.len] {
			if y >= 0 && t.columnWeights[y] > 0 { // of the others none counts as right
				p.Epoch.Lines++
			}
		}
	}
	return nil
}

// learningRate is that of a step.
func (t *trainer) learningRate(step int) float64 {
	return t.config.LearningRate * schedule(step, t.steps)
}

func names(docs []Document) (ns []string) {
	for _, d := range docs {
		ns = append(ns, d.Name)
	}
	return ns
}

func batches(ws []window, size int) [][]window {
	return slices.Collect(slices.Chunk(ws, size))
}

func accuracy(c *eval.Counts, loss float64) *model.Accuracy {
	r := c.Report()
	a := &model.Accuracy{Loss: loss, Accuracy: r.Accuracy, MacroF1: r.MacroF1, F1: map[string]float64{}}
	for _, cl := range r.Classes {
		if cl.Gold > 0 {
			a.F1[cl.Class] = cl.F1
		}
	}
	return a
}

// trainer is the state of training.
type trainer struct {
	identity      identity
	position      position
	config        model.Config
	corpus        *corpus
	columnWeights []float64  // of the heads' columns in the loss
	epochs        [][]window // the windows of each epoch, in order
	workers       int        // cores
	worker        int        // which one this is, of identity.Workers

	net  *network[float32]
	grad []float32 // of net.flat
	m, v []float32 // moments of net.flat

	layoutMean, layoutInvStd []float32

	table          []float32 // [input_size, D]
	tableM, tableV []float32
	slot           []int32 // [input_size], for tablePart.collect
	parts          [tableParts]tablePart

	bestFlat, bestTable []float32 // weights of the best epoch, once there is one

	teachers []*cpu.Scorer // nil without any

	gpus   *gpus // take the steps; nil where the CPU does
	shards []*shard
	right  int     // lines of the last step whose main head was right
	steps  int     // of the whole training
	norm   float64 // of the last step's gradient
}

func newTrainer(o *Options) (*trainer, error) {
	if len(o.Train) == 0 {
		return nil, errors.New("train: no documents to train on")
	}
	cfg, err := Classes(o.Train, o.Config, o.Init)
	if err != nil {
		return nil, err
	}
	if o.Init != nil {
		if err := sameSizes(&o.Init.Config, &cfg); err != nil {
			return nil, err
		}
	}
	shards := o.Shards
	if shards <= 0 {
		shards = defaultShards
	}
	t := &trainer{config: cfg, identity: identity{
		Config: cfg, Train: digest(o.Train), Shards: min(shards, cfg.BatchSize),
		Best: o.Best, EarlyStopping: o.EarlyStopping,
	}}
	if o.Precision != cuda.Float32 {
		t.identity.Precision = o.Precision
	}
	machine := Machine{Cores: o.Workers, GPUs: o.GPUs, Memory: o.GPUMemory}
	if n := len(o.GPUs); n > cfg.BatchSize {
		return nil, fmt.Errorf("train: %d GPUs: there must be at most batch_size, %d", n, cfg.BatchSize)
	}
	if o.Round != nil {
		if o.Distributed < 1 || o.Distributed > cfg.BatchSize {
			return nil, fmt.Errorf("train: %d workers: there must be from 1 to batch_size, %d", o.Distributed, cfg.BatchSize)
		}
		t.identity.Workers, t.identity.RoundSteps = o.Distributed, o.RoundSteps
		machine.GPUs = nil // the workers take the steps
	}
	if o.Init != nil {
		t.identity.Init = o.Init.Hash()
	}
	if err := t.engage(o); err != nil {
		return nil, err
	}
	if err := t.prepare(o.Train, &machine); err != nil {
		return nil, err
	}
	if o.Init != nil {
		t.setWeights(o.Init)
	}
	return t, nil
}

// prepare makes all that a trainer of t.identity needs to train on docs.
func (t *trainer) prepare(docs []Document, m *Machine) (err error) {
	cfg := &t.config
	t.workers = m.Cores
	if t.workers <= 0 {
		t.workers = runtime.GOMAXPROCS(0)
	}
	if t.corpus, err = newCorpus("training", docs, cfg); err != nil {
		return err
	}
	if t.corpus.lines == 0 {
		return errors.New("train: no line of the training documents has a label; give annotated documents")
	}
	if t.columnWeights, err = t.corpus.columnWeights(cfg); err != nil {
		return err
	}
	for i := range t.columnWeights {
		if t.teachers != nil {
			t.columnWeights[i] = 1 // the teachers know of the weights
		}
	}
	size := cfg.WindowSize
	if size == 0 {
		size = defaultWindow
	}
	largest := 0 // batch
	for epoch := range cfg.Epochs {
		ws := t.corpus.windows(size, cfg.Seed, epoch)
		largest = max(largest, min(len(ws), cfg.BatchSize))
		t.epochs = append(t.epochs, ws)
		t.steps += len(batches(ws, cfg.BatchSize))
	}
	longest := 0
	for _, main := range t.corpus.main {
		longest = max(longest, len(main))
	}
	t.newWeights()
	// A worker's share of a batch goes through as many shards as it is of all.
	world := max(1, t.identity.Workers)
	share := (largest + world - 1) / world
	shards := max(1, t.identity.Shards/world)
	steps, windows := min(size, longest), (share+shards-1)/shards
	if len(m.GPUs) > 0 {
		for range shards {
			t.shards = append(t.shards, &shard{inputs: newInputs[float32](&t.net.sizes, steps, windows)})
		}
		t.gpus, err = newGPUs(t, m, steps)
		return err
	}
	for range shards {
		g, err := newGraph(t.net, steps, windows)
		if err != nil {
			return err
		}
		t.shards = append(t.shards, &shard{inputs: g.inputs, graph: g})
	}
	return nil
}

// close gives the GPUs back.
func (t *trainer) close() {
	if t.gpus != nil {
		t.gpus.close()
		t.gpus = nil
	}
	for _, teacher := range t.teachers {
		teacher.Close()
	}
	t.teachers = nil
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

	n := len(t.shards)
	fill := func(i int) {
		t.shards[i].fill(t, batch[len(batch)*i/n:len(batch)*(i+1)/n], t.position.Step, t.worker*n+i, rowWeight)
	}
	if t.gpus != nil {
		t.parallel(n, fill)
		return t.gpus.step(t)
	}
	t.parallel(len(t.net.matrices), func(i int) { t.net.matrices[i].pack() })
	t.parallel(n, func(i int) {
		s := t.shards[i]
		fill(i)
		if t.teachers != nil {
			if s.err = s.teach(t); s.err != nil {
				return
			}
		}
		s.loss, s.err = s.graph.run()
	})
	t.right = 0
	for _, s := range t.shards {
		if s.err != nil {
			return 0, s.err
		}
		loss += float64(s.loss)
		t.right += s.graph.right
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("train: step %d: the loss is %v; lower learning_rate", t.position.Step+1, loss)
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
		copy(grad, t.shards[0].graph.gradient(i-tableParts))
		for _, s := range t.shards[1:] {
			for j, g := range s.graph.gradient(i - tableParts) {
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
	rate := newRate(t.learningRate(t.position.Step), t.config.WeightDecay, t.norm, t.position.Step)
	t.parallel(len(norms), func(i int) {
		if i < tableParts {
			t.parts[i].update(&rate, d, t.table, t.tableM, t.tableV)
			return
		}
		p := &params[i-tableParts]
		decay := rate.decay
		if len(p.shape) < 2 {
			decay = 0
		}
		rate.update(p.data, t.grad[p.at:], t.m[p.at:], t.v[p.at:], decay, epsilon)
	})
	t.position.Step++
	return loss, nil
}
