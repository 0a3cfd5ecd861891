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
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"

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

// options are the flags of train.
type options struct {
	config                            model.Config
	input, validation, test, labelMap cli.Strings
	teachers                          cli.Strings
	modelOut, initModel, device, keep string
	comment                           string
	earlyStopping, checkpointSteps    int
	workers, roundSteps, cores, index int
	resume                            bool
	cropShare, initShare              float64
	verbosity                         int
	precision                         string
	worldSize                         int
	gpuMemory                         cli.Bytes
	batchSize                         batchSize
	temperatures                      temperatures

	restNamed bool                 // by --label_map, as *
	documents []averaging.Document // of --input, as read
	reader    averaging.Reader
}

// defaultInitShare was chosen on volumes of known and of new journals (DECISIONS.md).
const defaultInitShare = .5

// configFlags are the fields of model.Config that are flags, by the same name: what is
// printed, and taken from --init_model.
var configFlags = []string{"input_size", "embedding_size", "hidden_size", "num_layers", "num_classes", "dropout",
	"window_size", "prediction_stride", "prediction_batch_size", "batch_size", "epochs", "learning_rate",
	"weight_decay", "class_weights", "focal_labels", "seed"}

// temperatures is --temperature: numbers, or auto, which is none.
type temperatures []float64

func (t *temperatures) String() string {
	if len(*t) == 0 {
		return "auto"
	}
	var numbers []string
	for _, v := range *t {
		numbers = append(numbers, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return strings.Join(numbers, ",")
}

func (t *temperatures) Set(s string) error {
	if *t = nil; s == "auto" {
		return nil
	}
	if strings.Count(s, ",") > 1 {
		return errors.New("a model has two sets of labels at most; give two numbers")
	}
	for v := range strings.SplitSeq(s, ",") {
		number, err := strconv.ParseFloat(v, 64)
		if err != nil || !(number >= train.MinTemperature && number <= train.MaxTemperature) {
			return fmt.Errorf("%q is no number from %g to %g, and not auto", v, train.MinTemperature, train.MaxTemperature)
		}
		*t = append(*t, number)
	}
	return nil
}

// flagValues are the values of configFlags that make c, one for each.
func flagValues(c *model.Config) []string {
	text, err := json.Marshal(c)
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(text, &fields) != nil {
		panic("train: a config that is no JSON")
	}
	values := make([]string, len(configFlags))
	for i, name := range configFlags {
		values[i] = string(fields[name])
		if unquoted, err := strconv.Unquote(values[i]); err == nil {
			values[i] = unquoted
		}
	}
	return values
}

func define(f *cli.Flags) *options {
	o := &options{config: model.DefaultConfig()}
	c := &o.config
	f.Var(&o.input, "input", "annotated `files`, folders and patterns to train on, separated by commas (\\, is a comma) or repeated; what --validation and --test name is left out, with a warning")
	f.Var(&o.validation, "validation", "annotated `files`, folders and patterns, judged after each epoch, by which --keep and --temperature go")
	f.Var(&o.test, "test", "annotated `files`, folders and patterns, judged once, at the end")
	f.StringVar(&o.modelOut, "model_out", "", "`folder` or gs://bucket/prefix to write the model to")
	f.StringVar(&o.initModel, "init_model", "", "`folder` or gs://bucket/prefix of a model to begin with, or bundled; flags not given are as it has them")
	f.Float64Var(&o.initShare, "init_share", defaultInitShare, "`share` of --init_model in the weights in the end, the rest being what training made of it: the model forgets less; 0 for the trained weights alone, which is better where there is much to learn from, as whole volumes")
	f.Var(&o.teachers, "teachers", "`folders` or gs://bucket/prefixes of models, or bundled, separated by commas or repeated: what they say on average is learnt instead of the labels; they need the same classes and --input_size, and twice the --epochs are worth it")
	f.StringVar(&o.comment, "description", "", "what the documents are, with source and licence, for the model's metadata")
	f.StringVar(&c.LabelSet, "label_set", model.Collapsed, "`collapsed` (Nomenclature, Description, Misc-exposition) or full (every label with 20 lines)")
	f.Var(&o.labelMap, "label_map", "`Label=Class` pairs, separated by commas or repeated, or a .json file with an object of them; what it does not name, and --label_set=full does not keep, becomes what it has for *, or Misc-exposition")
	f.IntVar(&c.InputSize, "input_size", c.InputSize, "`rows` of the embedding table")
	f.IntVar(&c.EmbeddingSize, "embedding_size", c.EmbeddingSize, "`numbers` a row")
	f.IntVar(&c.HiddenSize, "hidden_size", c.HiddenSize, "`units` of an LSTM in one direction")
	f.IntVar(&c.NumLayers, "num_layers", c.NumLayers, "bidirectional LSTM `layers`")
	c.NumClasses = 0
	f.IntVar(&c.NumClasses, "num_classes", 0, "keep the commonest `classes` only, the rest become what --label_map has for *, or Misc-exposition; 0 for all")
	f.Float64Var(&c.Dropout, "dropout", c.Dropout, "`share` of features and states dropped in training")
	f.IntVar(&c.WindowSize, "window_size", c.WindowSize, "`lines` of a context window, also in prediction; 0 for 80 in training, whole documents in prediction")
	f.IntVar(&c.PredictionStride, "prediction_stride", c.PredictionStride, "`lines` from one window to the next in prediction; 0 for --window_size")
	f.IntVar(&c.PredictionBatchSize, "prediction_batch_size", c.PredictionBatchSize, "`windows` in a batch in prediction; 0 by size of model")
	o.batchSize.n = &c.BatchSize
	f.Var(&o.batchSize, "batch_size", "`windows` in a training step; auto for as many as fit on the GPUs at once")
	f.IntVar(&c.Epochs, "epochs", c.Epochs, "`times` that all documents are seen")
	f.Float64Var(&c.LearningRate, "learning_rate", c.LearningRate, "highest learning `rate`, after the warm-up")
	f.Float64Var(&c.WeightDecay, "weight_decay", c.WeightDecay, "`factor` of AdamW")
	f.StringVar(&c.ClassWeights, "class_weights", c.ClassWeights, "`none`, balanced, or Label=weight,… for the loss")
	f.StringVar(&c.FocalLabels, "focal_labels", c.FocalLabels, "`labels` trained with focal loss, separated by commas")
	f.Int64Var(&c.Seed, "seed", c.Seed, "`seed` of weights, order and dropout")
	f.Float64Var(&o.cropShare, "crop_share", 0.45, "`share` of the lines that is learnt from once more in parts that are documents of their own, so that any class may stand first in one, and that are set anew: lines of another length, capitals, a scanner's mistakes, names without their citation; 0 for none")
	f.IntVar(&o.earlyStopping, "early_stopping", 0, "stop after so many `epochs` without a better macro-F1 on --validation, or an equal one with a lower loss; 0 for never")
	f.StringVar(&o.keep, "keep", "best", "`best` keeps the epoch with the highest macro-F1 on --validation, of equal ones that with the lowest loss; last the last one")
	f.Var(&o.temperatures, "temperature", "what the logits are divided by in the end, so that probabilities are no surer than right: a `number`, two with a comma where the full set is learnt beside another (1 where left out), or auto for what --validation asks for (1 without)")
	f.BoolVar(&o.resume, "resume", false, "go on from the checkpoint in --model_out, where there is one; all other flags as before")
	f.IntVar(&o.checkpointSteps, "checkpoint_steps", 200, "`steps` from one checkpoint to the next, beside that of each epoch; 0 for these alone")
	f.IntVar(&o.workers, "workers", 0, "`workers` that share each batch as a Beam pipeline a round, their weights averaged after it; 0 trains in this process, or by one worker with a --runner given")
	f.IntVar(&o.index, "worker_index", -1, "this process is `worker` 0 to --workers−1 of a training without a runner: all are started with the same flags, meet in --model_out, and worker 0 leads and writes the model; -1 for a runner")
	f.IntVar(&o.roundSteps, "round_steps", 0, "`steps` of a round of --workers; 0 for an epoch")
	f.IntVar(&o.cores, "worker_cores", 0, "`cores` that each of --workers uses; 0 for all of its machine")
	f.StringVar(&o.device, "device", "cpu", "`cpu`, cuda (an NVIDIA GPU, or an error) or auto (a GPU where one works); of each of --workers too")
	f.StringVar(&o.precision, "mixed_precision", "off", "`precision` of a GPU's products: off (float32), bf16 or fp16; weights and sums stay float32")
	f.IntVar(&o.worldSize, "world_size", 1, "`GPUs` of this machine that share each batch")
	f.Var(&o.gpuMemory, "gpu_memory_limit", "`bytes` that the program may take on each GPU, 0 for what it needs")
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors, 1 progress and summary, 2 devices and a line each 50 batches")
	return o
}

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

// check finds wrong use.
func (o *options) check(f *cli.Flags) error {
	o.input, o.validation, o.test, o.teachers = input.Split(o.input...), input.Split(o.validation...), input.Split(o.test...), input.Split(o.teachers...)
	if o.workers == 0 && f.Given("runner") {
		o.workers = 1
	}
	switch {
	case o.workers < 0:
		return cli.Usagef("--workers=%d: it must be 0 or more", o.workers)
	case o.index < -1 || o.index >= 0 && (o.index >= o.workers || f.Given("runner")):
		return cli.Usagef("--worker_index=%d: it must be less than --workers, %d, and goes without --runner", o.index, o.workers)
	case o.workers == 0 && (o.roundSteps != 0 || o.cores != 0):
		return cli.Usagef("--round_steps and --worker_cores are for --workers; name how many")
	case o.roundSteps < 0 || o.cores < 0 || o.checkpointSteps < 0:
		return cli.Usagef("--round_steps, --worker_cores and --checkpoint_steps must be 0 or more")
	case f.Given("teachers") && len(o.teachers) == 0:
		return cli.Usagef("--teachers is empty; name folders of models, or leave it out")
	case len(o.teachers) > 0 && (o.workers > 0 || o.device != backend.CPU):
		return cli.Usagef("--teachers with --runner, --workers or --device: one process learns from them, on its CPU; leave these out")
	case len(o.teachers) > 0 && (f.Given("class_weights") || f.Given("focal_labels")):
		return cli.Usagef("--teachers with --class_weights or --focal_labels: the labels are not learnt from; give them to the training of the teachers")
	case *jobopts.Async:
		return cli.Usagef("--async: a training waits for its end, and each round for that of the one before; leave it out")
	case o.keep != "best" && o.keep != "last":
		return cli.Usagef("--keep=%s is none; it must be best or last", o.keep)
	case o.keep == "last" && o.earlyStopping > 0:
		return cli.Usagef("--keep=last and --early_stopping: the last epochs are the ones that got no better; leave one out")
	case len(o.input) == 0:
		return cli.Usagef("no --input: name annotated files, folders or patterns")
	case o.modelOut == "":
		return cli.Usagef("no --model_out: name the folder that the model is written to")
	case !(o.cropShare >= 0 && o.cropShare <= 1):
		return cli.Usagef("--crop_share=%g: it must be from 0 to 1", o.cropShare)
	case f.Given("init_share") && o.initModel == "":
		return cli.Usagef("--init_share is a share of --init_model; name that, or leave it out")
	case !(o.initShare >= 0 && o.initShare < 1):
		return cli.Usagef("--init_share=%g: it must be from 0 to less than 1", o.initShare)
	case o.earlyStopping < 0:
		return cli.Usagef("--early_stopping=%d: it must be 0 or more", o.earlyStopping)
	case o.earlyStopping > 0 && len(o.validation) == 0:
		return cli.Usagef("--early_stopping needs --validation")
	case f.Given("validation") && len(o.validation) == 0:
		return cli.Usagef("--validation is empty; name annotated files, folders or patterns, or leave it out")
	case f.Given("test") && len(o.test) == 0:
		return cli.Usagef("--test is empty; name annotated files, folders or patterns, or leave it out")
	case o.config.NumClasses < 0 || o.config.NumClasses == 1:
		return cli.Usagef("--num_classes=%d: it must be 2 or more, or 0 for all", o.config.NumClasses)
	}
	if err := runners.Check(); err != nil {
		return cli.Usagef("%w", err)
	}
	if err := o.checkDevice(f); err != nil {
		return err
	}
	if !runners.DryRun() {
		folders := [][2]string{{"model_out", o.modelOut}, {"init_model", o.initModel}}
		for _, name := range o.teachers {
			folders = append(folders, [2]string{"teachers", name})
		}
		for _, f := range folders {
			if err := cli.CheckURI(f[0], f[1]); err != nil {
				return err
			}
		}
	}
	if err := runners.CheckPaths(append(slices.Concat(o.input, o.validation, o.test), o.modelOut)...); err != nil {
		return cli.Usagef("%w", err)
	}
	if err := cli.CheckVerbosity(o.verbosity); err != nil {
		return err
	}
	if o.initModel == "" {
		return o.checkConfig()
	}
	return nil
}

// checkConfig settles the label map and judges the config as far as it can be
// before the documents are read: their labels are not known yet.
func (o *options) checkConfig() error {
	c := &o.config
	if len(o.labelMap) > 0 {
		labels, err := parseLabelMap(o.labelMap)
		if err != nil {
			return err
		}
		if other, ok := labels["*"]; ok {
			c.OtherClass, o.restNamed = other, true
			delete(labels, "*")
		}
		if len(labels) == 0 && c.LabelSet != model.Full {
			return cli.Usagef("--label_map names no label but *, which would be the only class; name others")
		}
		c.LabelMap, c.Classes = labels, nil
	}
	stand := *c
	if c.LabelSet == model.Full || len(stand.Classes) == 0 {
		stand.Classes = slices.Compact(slices.Sorted(maps.Values(stand.LabelMap)))
		if !slices.Contains(stand.Classes, stand.OtherClass) {
			stand.Classes = append(stand.Classes, stand.OtherClass)
		}
		stand.ClassWeights, stand.FocalLabels = "none", "" // may be of the full set
	}
	stand.NumClasses = len(stand.Classes)
	if err := stand.Validate(); err != nil {
		return cli.Usagef("%w", err)
	}
	return nil
}

// parseLabelMap reads --label_map.
func parseLabelMap(values []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, v := range input.Split(values...) {
		some := map[string]string{}
		if strings.HasSuffix(v, ".json") {
			if err := cli.CheckURI("label_map", v); err != nil {
				return nil, err
			}
			data, err := store.Read(context.Background(), v, 0)
			switch {
			case errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrNotFile):
				return nil, cli.Usagef("--label_map: %w", err)
			case err != nil: // that it cannot be read is no wrong use
				return nil, fmt.Errorf("--label_map: %w", err)
			}
			if err := addLabels(some, data); err != nil {
				return nil, cli.Usagef("--label_map: %s: %w; it must hold one object of \"Label\": \"Class\"", v, err)
			}
		} else {
			label, class, ok := strings.Cut(v, "=")
			if !ok {
				return nil, cli.Usagef("--label_map: %q is no Label=Class", v)
			}
			some[strings.TrimSpace(label)] = strings.TrimSpace(class)
		}
		for _, label := range slices.Sorted(maps.Keys(some)) {
			if class, ok := labels[label]; ok && class != some[label] {
				return nil, cli.Usagef("--label_map: %q is both %q and %q; leave one of them out", label, class, some[label])
			}
		}
		maps.Copy(labels, some)
	}
	if len(labels) == 0 {
		return nil, cli.Usagef("--label_map is empty; name Label=Class pairs, or leave it out")
	}
	return labels, nil
}

// addLabels adds the object of "Label": "Class" that a file holds to labels.
func addLabels(labels map[string]string, file []byte) error {
	var object map[string]any
	file = bytes.TrimPrefix(file, []byte("\ufeff")) // as editors save it
	err := json.Unmarshal(file, &object)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other || err == nil && object == nil {
		return errors.New("it is no object")
	}
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(file)) // object has the last of what stands there twice
	_, _ = dec.Token()
	for dec.More() {
		label, _ := dec.Token()
		value, _ := dec.Token()
		class, ok := value.(string)
		if !ok {
			return fmt.Errorf("what %q stands for is no string", label)
		}
		name := label.(string)
		if other, ok := labels[name]; ok && other != class {
			return fmt.Errorf("%q is both %q and %q", label, other, class)
		}
		labels[name] = class
	}
	return nil
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
	if !f.Given("label_set") && !f.Given("label_map") {
		c.LabelSet, c.Classes, c.LabelMap, c.OtherClass = w.Config.LabelSet, w.Config.Classes, maps.Clone(w.Config.LabelMap), w.Config.OtherClass
		o.restNamed = c.LabelMap["*"] != ""
		delete(c.LabelMap, "*")
	}
	if c.LabelSet != model.Full {
		c.FullClasses = w.Config.FullClasses
	}
	return w, o.checkConfig()
}
