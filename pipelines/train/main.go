// Command train makes a model from annotated documents, in this process or, by
// --runner and --workers, as Beam pipelines.
//
//	train --input=corpus --validation=corpus/Vol119 --model_out=trained
//
// Where it stands lies in model_out/_training until the model is written, so
// that --resume goes on after a kill.
//
// Exit statuses: 0 done; 1 failed; 2 wrong use.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/averaging"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
)

func main() { cli.Main(run) }

func run(ctx context.Context) error {
	f := cli.NewFlags("train", "Trains a model on annotated documents.", runners.Flags...)
	runners.Define(f.FlagSet)
	o := define(f)
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	if done, err := runners.Boot(ctx); done {
		return err
	}
	if !f.Worker() {
		if err := o.check(f); err != nil {
			return err
		}
		if o.verbosity > 0 && !runners.DryRun() {
			fmt.Fprintf(os.Stderr, "training on %s …\n", cli.Printable(strings.Join(o.input, ", ")))
		}
	}
	if f.Worker() || o.workers > 0 && o.index < 0 {
		runners.Init(o.verbosity) // a worker stays in here
	}
	return o.train(ctx, f)
}

// train reads the documents, trains and saves.
func (o *options) train(ctx context.Context, f *cli.Flags) error {
	folder, err := input.Absolute(store.Join(o.modelOut, trainingFolder))
	if err != nil {
		return err
	}
	job := &averaging.Job{Folder: transforms.Path(folder), InputSize: o.config.InputSize, Cores: o.cores, Device: o.device, GPUMemory: int64(o.gpuMemory), Verbosity: o.verbosity}
	if o.workers > 0 && runners.DryRun() { // a round; all of them are alike
		_, err := runners.Run(ctx, job.Pipeline(o.workers, max(1, o.roundSteps)), transforms.Namespace, o.verbosity)
		return err
	}
	if o.index > 0 {
		if runs, err := job.Runs(ctx); err == nil && !runs && o.verbosity > 0 {
			fmt.Fprintf(os.Stderr, "no training runs in %s: worker %d waits for worker 0\n", cli.Printable(o.modelOut), o.index)
			sayModel(ctx, o.modelOut, "may be that of this very training, which is over then: end this worker")
		}
		return job.Attend(ctx, o.index)
	}
	if err := notOurs(ctx, o.modelOut); err != nil {
		return err
	}
	options := train.Options{
		Best: o.keep == "best", EarlyStopping: o.earlyStopping, Temperatures: o.temperatures, CheckpointSteps: o.checkpointSteps,
		Machine: train.Machine{Memory: int64(o.gpuMemory)}, Precision: precisions[o.precision],
	}
	if o.initModel != "" {
		options.InitShare = o.initShare
	}
	if options.Init, options.Teachers, err = o.loadModels(ctx, f); err != nil {
		return err
	}
	gpus, err := o.openGPUs(ctx) // before the documents are read: that may take a while
	if err != nil {
		return told(ctx, err)
	}
	if gpus != nil {
		defer gpus.Close()
		options.GPUs = gpus.Devices
	}
	parts, err := o.read(ctx)
	if err != nil {
		return told(ctx, err)
	}
	options.Train, options.Validation, options.Test = parts[0], parts[1], parts[2]
	unlock, err := lock(ctx, o.modelOut, folder)
	if err != nil {
		return err
	}
	defer unlock()
	for _, to := range []string{o.modelOut, folder} { // which may be another user's
		if err := store.Writable(ctx, to); err != nil {
			return told(ctx, err)
		}
	}
	if options.Config, err = train.Classes(parts[0], o.config, options.Init); err != nil {
		return err
	}
	if err := o.crop(ctx, &options); err != nil {
		return told(ctx, err)
	}
	at := checkpoint{path: store.Join(folder, checkpointFile)}
	if options.Resume, err = at.find(ctx, o.resume, o.verbosity); err != nil {
		return told(ctx, err)
	}
	options.Checkpoint = at.write
	if o.batchSize.auto {
		if err := o.largest(&options); errors.Is(err, train.ErrNoGPU) {
			return o.fallBack(ctx, err) // an error always, with --batch_size=auto
		} else if err != nil {
			return err
		}
	}
	if o.verbosity > 0 {
		warnDocuments(parts)
		o.warnLabels(parts, &options.Config)
		o.warnUnknown(parts, &options)
		o.say(&options.Config)
		sayModel(ctx, o.modelOut, "is replaced at the end")
	}
	if o.workers > 0 {
		o.distribute(job, &options)
	}
	bar := &progress{verbosity: o.verbosity, validated: len(parts[1]) > 0}
	options.Progress = bar.show
	w, meta, err := train.Run(ctx, options)
	if errors.Is(err, train.ErrNoGPU) {
		if err = o.fallBack(ctx, err); err == nil {
			gpus.Close()
			options.GPUs = nil
			w, meta, err = train.Run(ctx, options)
		}
	}
	bar.close()
	if errors.Is(err, train.ErrOther) && o.resume {
		return fmt.Errorf("--resume: %s: %w; give the flags and documents it was begun with to the same version of this program, or leave out --resume to begin anew", at.path, err)
	}
	if err != nil {
		return at.told(ctx, err)
	}
	meta.Data, meta.Commit, meta.CropShare = cmp.Or(o.comment, cli.Plural(int64(len(parts[0])), "document")), cli.Commit(), o.cropShare
	if o.restNamed && w.Config.OtherClass != "" { // for what tells of labels that nobody named
		labels := map[string]string{"*": w.Config.OtherClass}
		maps.Copy(labels, w.Config.LabelMap)
		w.Config.LabelMap = labels
	}
	if err := save(ctx, o.modelOut, w, meta); err != nil {
		return at.told(ctx, at.kept(err))
	}
	ctx = context.WithoutCancel(ctx) // the model is written
	if err := errors.Join(job.End(ctx), at.remove(ctx, folder)); err != nil {
		return fmt.Errorf("train: the model is written to %s, but what its training left stays: %w", o.modelOut, err)
	}
	if o.verbosity > 0 {
		o.summary(w, meta)
	}
	return nil
}

// distribute hands the rounds of the training t to workers.
func (o *options) distribute(job *averaging.Job, t *train.Options) {
	job.InputSize = t.Config.InputSize
	t.Distributed, t.RoundSteps = o.workers, o.roundSteps
	if o.device == backend.CUDA {
		t.WorkerDevice = "cuda"
	}
	round := job.Lead
	if o.index < 0 {
		round = func(ctx context.Context, r train.Round) error {
			return job.Round(ctx, r, func(p *beam.Pipeline) error {
				_, err := runners.Run(ctx, p, transforms.Namespace, o.verbosity)
				if errors.Is(err, runners.ErrNotCancelled) {
					return err
				}
				return cmp.Or(context.Cause(ctx), err)
			})
		}
	}
	begun := false
	t.Round = func(ctx context.Context, r train.Round) error {
		if !begun { // only now: a training that is refused before would leave workers waiting
			if err := job.Begin(ctx, o.documents, slices.Concat(t.Train, t.Crops)); err != nil {
				return err
			}
			begun = true
		}
		return round(ctx, r)
	}
}

// loadModels loads --init_model and --teachers, where they are given.
func (o *options) loadModels(ctx context.Context, f *cli.Flags) (init *model.Weights, teachers []*model.Weights, err error) {
	if o.initModel != "" {
		if init, err = o.loadInit(ctx, f); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range o.teachers {
		w, err := loadModel(ctx, "teachers", name)
		if err != nil {
			return nil, nil, told(ctx, err)
		}
		teachers = append(teachers, w)
	}
	if len(teachers) > 0 { // --init_model may have brought some
		o.config.ClassWeights, o.config.FocalLabels = "none", ""
	}
	return init, teachers, nil
}

// loadModel loads the model that a flag names.
func loadModel(ctx context.Context, flag, name string) (*model.Weights, error) {
	if name == "bundled" {
		return model.Load(bundled.FS())
	}
	return cli.LoadModel(ctx, flag, name)
}

// loadInit loads --init_model; what no flag says is as that model has it.
func (o *options) loadInit(ctx context.Context, f *cli.Flags) (*model.Weights, error) {
	w, err := loadModel(ctx, "init_model", o.initModel)
	if err != nil {
		return nil, err
	}
	for i, value := range flagValues(&w.Config) {
		name := configFlags[i]
		if f.Given(name) || name == "num_classes" {
			continue
		}
		if err := f.Set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", o.initModel, name, err)
		}
	}
	c := &o.config
	if !f.Given("label_map") && (!f.Given("label_set") || c.LabelSet == w.Config.LabelSet) {
		c.LabelSet, c.Classes, c.LabelMap, c.OtherClass = w.Config.LabelSet, w.Config.Classes, maps.Clone(w.Config.LabelMap), w.Config.OtherClass
		o.restNamed = c.LabelMap["*"] != ""
		delete(c.LabelMap, "*")
	}
	if c.LabelSet != model.Full {
		c.FullClasses = w.Config.FullClasses
	}
	return w, cmp.Or(o.checkConfig(), o.checkShares())
}
