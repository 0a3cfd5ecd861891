package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms/averaging"
	"github.com/linnet-ml/linnet/transforms/input"
)

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
