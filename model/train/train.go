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
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/model"
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

	Train []Document
	// Crops are parts of Train as documents of their own, learnt from beside it:
	// classes, Split and scores are those of Train alone.
	Crops      []Document
	Validation []Document // judged after each epoch, see Best and Temperatures; may be empty
	Test       []Document // judged at the end; may be empty

	Machine // takes the steps, unless Round does
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
	// Temperatures are what the logits of each head are divided by in the end,
	// 1 where one is left out. nil fits them to Validation, where that has lines
	// enough.
	Temperatures []float64
	// Init gives the weights to begin with, of the same sizes and classes.
	Init *model.Weights
	// InitShare of Init and 1−InitShare of what it became in training are the
	// weights that are judged and returned: it forgets less than trained ones do
	// (WiSE-FT, Wortsman et al., "Robust fine-tuning of zero-shot models", 2022).
	InitShare float64
	// Teachers, where there are any, are what is learnt: the mean of their
	// probabilities for the very lines that the step sees, words dropped and
	// all, instead of the labels (distillation, Hinton et al. 2015; the same
	// inputs and patience, Beyer et al. 2022). Where one of them is Init, which
	// would have little to learn from itself so, it is what they say of the
	// documents whole (noisy student, Xie et al. 2020). Class weights and focal
	// labels are the teachers' affair. They need the same features and classes, and
	// the CPU of one process, and predict as prediction does: the instruction
	// set (kernel.ISA) changes the last bits of what they say.
	Teachers []*model.Weights
	// Resume is where to go on, a State of a training with the same options;
	// nil begins anew.
	Resume *State
	// Checkpoint, where not nil, is given a State, its to keep, after each epoch but
	// the last, after each Round, and after each CheckpointSteps steps where that is
	// above 0. Its error ends the training.
	Checkpoint      func(ctx context.Context, s *State) error
	CheckpointSteps int
	// Round, where not nil, takes the steps: so many of the epoch at a time,
	// all of it where RoundSteps is 0, by Shares of Distributed workers.
	Round       func(ctx context.Context, r Round) error
	RoundSteps  int
	Distributed int
	// WorkerDevice is what they compute on, for the metadata.
	WorkerDevice string
	// shards cut each batch; the result depends on it. 0 means 4; tests take others.
	shards int
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
	// Memory is what a GPU has in use, in bytes; of several the largest. Skipped
	// are the steps whose gradient was not finite.
	Memory  int64
	Skipped int
	// Part is how many windows a GPU takes at a time, 0 where it takes all.
	Part int
	// MacroF1 is that of the validation documents after the last whole epoch,
	// 0 before there is one.
	MacroF1 float64
	// ValidationLoss is the loss on them then: of equal macro-F1, the lower is the
	// better.
	ValidationLoss float64
}

const (
	defaultShards = 4
	defaultWindow = 80
)

// Run trains a model. The returned Metadata lacks only what Run cannot know:
// Data, Commit and CropShare.
func Run(ctx context.Context, o Options) (*model.Weights, *model.Metadata, error) {
	t, err := newTrainer(&o)
	if err != nil {
		return nil, nil, err
	}
	defer t.close()
	if err := fits("training", o.Train, &t.config); err != nil { // judged at the end
		return nil, nil, err
	}
	if slices.Contains(t.identity.Teachers, t.identity.Init) {
		if err := t.readWhole(ctx, o.Teachers); err != nil {
			return nil, nil, err
		}
	}
	validation, err := t.judged("validation", o.Validation)
	if err != nil {
		return nil, nil, err
	}
	test, err := t.judged("test", o.Test)
	if err != nil {
		return nil, nil, err
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
	t.towardsInit()
	w, temperatures, err := t.calibrated(ctx, &o, validation)
	if err != nil {
		return nil, nil, err
	}
	trained, err := newCorpus("training", o.Train, &t.config)
	if err != nil {
		return nil, nil, err
	}
	meta := t.metadata(&o)
	meta.Temperatures = temperatures
	meta.Split = model.Split{
		Train: names(o.Train), Validation: names(o.Validation), Test: names(o.Test),
		TrainLines: trained.lines, ValidationLines: validation.lines, TestLines: test.lines,
	}
	began := time.Now()
	for _, part := range []struct {
		corpus *corpus
		into   **model.Accuracy
	}{{trained, &meta.Training}, {validation, &meta.Validation}, {test, &meta.Test}} {
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

// judged makes documents ready that the model is judged by; there may be none.
func (t *trainer) judged(what string, docs []Document) (*corpus, error) {
	c, err := newCorpus(what, docs, &t.config)
	if err != nil {
		return nil, err
	}
	if len(docs) > 0 && c.lines == 0 {
		return nil, fmt.Errorf("train: no line of the %s documents has a label that is a class; give annotated documents", what)
	}
	return c, fits(what, docs, &t.config)
}

// fits tells of documents whose windows take too much memory for a model to score them.
func fits(what string, docs []Document, c *model.Config) error {
	for _, d := range docs {
		n := model.Covered(d.Features.NumLines(), c.WindowSize, c.PredictionStride)
		if n > model.MaxCovered/c.NumOutputs() {
			return fmt.Errorf("train: %s documents: one has %d lines in windows of %d, which take too much memory; choose a larger --prediction_stride", what, n, c.WindowSize)
		}
	}
	return nil
}

// metadata is what there is to tell of the training itself.
func (t *trainer) metadata(o *Options) *model.Metadata {
	meta := &model.Metadata{
		Seed:       t.config.Seed,
		Init:       t.identity.Init,
		InitShare:  t.identity.InitShare,
		Teachers:   t.identity.Teachers,
		Epochs:     t.position.Epochs,
		BestEpoch:  t.position.Best,
		BatchSize:  t.config.BatchSize,
		Precision:  t.precision(),
		WorldSize:  max(1, o.Distributed, len(o.GPUs)),
		RoundSteps: t.identity.RoundSteps,
		Skipped:    t.position.Skipped,
		Parameters: t.config.NumParameters(),
		Device:     t.position.Device,
	}
	if t.gpus != nil {
		meta.GPUMemory, meta.GPUPeak = t.gpus.memory()
	}
	return meta
}

// precision is that of the products.
func (t *trainer) precision() string { return cmp.Or(t.identity.Precision, cuda.Float32) }

// device says what takes the steps.
func (t *trainer) device(o *Options) string {
	shards := english.Plural(t.identity.Shards, "shard", "")
	switch {
	case t.gpus != nil:
		return describeGPUs(o.GPUs, t.precision()) + ", " + shards
	case o.Round == nil:
		return "cpu, " + kernel.ISA() + ", " + shards + ", " + english.Plural(t.workers, "thread", "")
	}
	on := "cpu, " + kernel.ISA() + ", " + shards
	if o.WorkerDevice != "" {
		on = o.WorkerDevice + ", " + t.precision()
	}
	return on + ", " + english.Plural(o.Distributed, "worker", "")
}

// run takes the steps that are left.
func (t *trainer) run(ctx context.Context, o *Options, validation *corpus) error {
	p := &t.position
	const then = "; then "
	if device := t.device(o); p.Device == "" {
		p.Device = device
	} else if !strings.HasSuffix(then+p.Device, then+device) {
		p.Device += then + device
	}
	start, resumed := time.Now(), p.Step
	show := func(epoch int, end bool) {
		if o.Progress == nil {
			return
		}
		s := t.progress(epoch)
		s.EpochEnd = end
		if taken := p.Step - resumed; taken > 0 {
			s.Left = time.Duration(float64(time.Since(start)) / float64(taken) * float64(t.steps-p.Step))
		}
		o.Progress(s)
	}
	first := 0 // step before the epoch
	for epoch := range t.config.Epochs {
		all := t.epoch(epoch)
		if epoch < len(p.Epochs) {
			first += len(all)
			continue
		}
		if o.EarlyStopping > 0 && p.Best > 0 && epoch-p.Best >= o.EarlyStopping {
			break
		}
		for p.Step-first < len(all) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("train: stopped at step %d: %w", p.Step, err)
			}
			began, before := time.Now(), p.Step
			if err := t.next(ctx, o, all[p.Step-first:]); err != nil {
				return err
			}
			p.Epoch.Seconds += time.Since(began).Seconds()
			p.Seconds += time.Since(began).Seconds()
			show(epoch, false)
			if every := o.CheckpointSteps; o.Round != nil || every > 0 && p.Step/every > before/every {
				if err := t.checkpoint(ctx, o); err != nil {
					return err
				}
			}
		}
		first += len(all)
		if err := t.endEpoch(ctx, o, validation); err != nil {
			return err
		}
		show(epoch, true)
		p.Epoch = epochSums{}
		if len(p.Epochs) < t.config.Epochs {
			if err := t.checkpoint(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// next takes the first of the batches that an epoch still has, or the first round
// of them.
func (t *trainer) next(ctx context.Context, o *Options, left [][]window) error {
	if o.Round == nil {
		return t.take(left[0], second(left))
	}
	steps := len(left)
	if o.RoundSteps > 0 {
		steps = min(steps, o.RoundSteps)
	}
	return t.round(ctx, o, steps)
}

// second is the second of the batches, nil where there is none.
func second(left [][]window) []window {
	if len(left) < 2 {
		return nil
	}
	return left[1]
}

// progress is where training stands in an epoch, from 0.
func (t *trainer) progress(epoch int) Progress {
	p, sums := &t.position, &t.position.Epoch
	s := Progress{Epoch: epoch + 1, Epochs: t.config.Epochs, Step: p.Step, Steps: t.steps,
		Loss: sums.loss(), LearningRate: t.learningRate(p.Step - 1), GradientNorm: t.norm,
		LinesPerSec: float64(sums.Rows) / sums.Seconds, Accuracy: sums.accuracy(), Skipped: p.Skipped}
	if t.gpus != nil {
		s.Memory, _ = t.gpus.memory()
		if t.gpus.most < math.MaxInt {
			s.Part = t.gpus.most
		}
	}
	if n := len(p.Epochs); n > 0 {
		s.MacroF1, s.ValidationLoss = p.Epochs[n-1].ValidationMacroF1, p.Epochs[n-1].ValidationLoss
	}
	return s
}

// checkpoint gives the state away, where somebody wants it.
func (t *trainer) checkpoint(ctx context.Context, o *Options) error {
	if o.Checkpoint == nil {
		return nil
	}
	if err := t.pull(); err != nil {
		return err
	}
	return o.Checkpoint(ctx, t.state())
}

// endEpoch judges the epoch whose steps are taken, and keeps its weights where it
// is the best.
func (t *trainer) endEpoch(ctx context.Context, o *Options, validation *corpus) error {
	began := time.Now()
	p, sums := &t.position, &t.position.Epoch
	stats := model.EpochStats{Loss: sums.loss(), LearningRate: t.learningRate(p.Step - 1),
		Accuracy: sums.accuracy(), TrainingSeconds: sums.Seconds, Lines: sums.Rows}
	if err := t.pull(); err != nil {
		return err
	}
	if len(o.Validation) > 0 {
		counts, loss, err := judge(ctx, t.averaged(), validation, t.workers)
		if err != nil {
			return err
		}
		r := counts.Report()
		stats.ValidationMacroF1, stats.ValidationAccuracy, stats.ValidationLoss = r.MacroF1, r.Accuracy, loss
		if (o.Best || o.EarlyStopping > 0) && (p.Best == 0 || better(&stats, &p.Epochs[p.Best-1])) {
			p.Best = len(p.Epochs) + 1
			t.bestFlat = append(t.bestFlat[:0], t.net.flat...)
			t.bestTable = append(t.bestTable[:0], t.table...)
		}
	}
	took := time.Since(began).Seconds()
	p.Seconds += took
	stats.Seconds = sums.Seconds + took
	p.Epochs = append(p.Epochs, stats)
	return nil
}

// better compares epochs by macro-F1 on validation, and equal ones by the loss.
func better(a, b *model.EpochStats) bool {
	return cmp.Or(cmp.Compare(a.ValidationMacroF1, b.ValidationMacroF1), cmp.Compare(b.ValidationLoss, a.ValidationLoss)) > 0
}

func names(docs []Document) (ns []string) {
	for _, d := range docs {
		ns = append(ns, d.Name)
	}
	return ns
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
