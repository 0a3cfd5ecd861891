// Command train makes a model from annotated documents, on this machine.
//
//	train --input=corpus --validation=corpus/Vol119 --model_out=model
//
// Exit statuses: 0 done; 1 failed; 2 wrong use.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

func main() { cli.Main(run) }

// options are the flags of train.
type options struct {
	config                                       model.Config
	input, validation, test, labelMap            cli.Strings
	runner, modelOut, initModel, device, comment string
	earlyStopping, verbosity                     int
}

// later are flags of the design that this version does not have.
var later = []string{"resume", "mixed_precision", "worker_gpu", "worker_gpu_type", "worker_pool", "flink_rest"}

// configFlags are the fields of model.Config that are flags, by the same name.
var configFlags = []string{"input_size", "embedding_size", "hidden_size", "num_layers", "num_classes", "dropout",
	"window_size", "prediction_stride", "prediction_batch_size", "batch_size", "epochs", "learning_rate",
	"weight_decay", "class_weights", "focal_labels", "seed"}

func define(f *cli.Flags) *options {
	o := &options{config: model.DefaultConfig()}
	c := &o.config
	f.StringVar(&o.runner, "runner", "direct", "`direct`: training works in this process")
	f.Var(&o.input, "input", "annotated `files`, folders and patterns to train on, separated by commas or repeated;\nwhat --validation and --test name is left out")
	f.Var(&o.validation, "validation", "annotated `files`, folders and patterns, judged after each epoch")
	f.Var(&o.test, "test", "annotated `files`, folders and patterns, judged at the end")
	f.StringVar(&o.modelOut, "model_out", "", "`folder` or gs://bucket/prefix to write the model to")
	f.StringVar(&o.initModel, "init_model", "", "`folder` or gs://bucket/prefix of a model to begin with; flags not given are as it has them")
	f.StringVar(&o.comment, "description", "", "what the documents are, with source and licence, for the model's metadata")
	f.StringVar(&c.LabelSet, "label_set", model.Collapsed, "`collapsed` (Nomenclature, Description, Misc-exposition) or full (every label with 20 lines)")
	f.Var(&o.labelMap, "label_map", "`Label=Class` pairs, separated by commas or repeated, or a .json file with an object of them;\nwhat it does not name becomes Misc-exposition")
	f.IntVar(&c.InputSize, "input_size", c.InputSize, "`rows` of the embedding table")
	f.IntVar(&c.EmbeddingSize, "embedding_size", c.EmbeddingSize, "`numbers` a row")
	f.IntVar(&c.HiddenSize, "hidden_size", c.HiddenSize, "`units` of an LSTM in one direction")
	f.IntVar(&c.NumLayers, "num_layers", c.NumLayers, "bidirectional LSTM `layers`")
	c.NumClasses = 0
	f.IntVar(&c.NumClasses, "num_classes", 0, "keep the commonest `classes` only, the rest become Misc-exposition; 0 for all")
	f.Float64Var(&c.Dropout, "dropout", c.Dropout, "`share` of features and states dropped in training")
	f.IntVar(&c.WindowSize, "window_size", c.WindowSize, "`lines` of a context window, also in prediction; 0 for 80 in training, whole documents in prediction")
	f.IntVar(&c.PredictionStride, "prediction_stride", c.PredictionStride, "`lines` from one window to the next in prediction; 0 for --window_size")
	f.IntVar(&c.PredictionBatchSize, "prediction_batch_size", c.PredictionBatchSize, "`windows` in a batch in prediction; 0 by size of model")
	f.IntVar(&c.BatchSize, "batch_size", c.BatchSize, "`windows` in a training step")
	f.IntVar(&c.Epochs, "epochs", c.Epochs, "`times` that all documents are seen")
	f.Float64Var(&c.LearningRate, "learning_rate", c.LearningRate, "highest learning `rate`, after the warm-up")
	f.Float64Var(&c.WeightDecay, "weight_decay", c.WeightDecay, "`factor` of AdamW")
	f.StringVar(&c.ClassWeights, "class_weights", c.ClassWeights, "`none`, balanced, or Label=weight,… for the loss")
	f.StringVar(&c.FocalLabels, "focal_labels", c.FocalLabels, "`labels` trained with focal loss, separated by commas")
	f.Int64Var(&c.Seed, "seed", c.Seed, "`seed` of weights, order and dropout")
	f.IntVar(&o.earlyStopping, "early_stopping", 0, "stop after so many `epochs` without a better macro-F1 on --validation, and keep the best; 0 for never")
	f.StringVar(&o.device, "device", "cpu", "`cpu`")
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors, 1 progress and summary")
	f.Later(later...)
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("train", "Trains a model on annotated documents.")
	o := define(f)
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	cli.Verbosity = o.verbosity
	if err := o.check(f); err != nil {
		return err
	}
	if o.verbosity > 0 {
		fmt.Fprintf(os.Stderr, "training on %s …\n", strings.Join(o.input, ", "))
	}
	return o.train(ctx, f)
}

// check finds wrong use.
func (o *options) check(f *cli.Flags) error {
	o.input, o.validation, o.test = splitAll(o.input), splitAll(o.validation), splitAll(o.test)
	switch {
	case !strings.EqualFold(o.runner, "direct") && !strings.EqualFold(o.runner, "DirectRunner"):
		return cli.Usagef("--runner=%s: this version trains on one machine; use --runner=direct", o.runner)
	case len(o.input) == 0:
		return cli.Usagef("no --input: name annotated files, folders or patterns")
	case o.modelOut == "":
		return cli.Usagef("no --model_out: name the folder that the model is written to")
	case o.device != "cpu" && o.device != "auto":
		return cli.Usagef("--device=%s is not in this version; use --device=cpu", o.device)
	case o.earlyStopping < 0:
		return cli.Usagef("--early_stopping=%d: it must be 0 or more", o.earlyStopping)
	case o.earlyStopping > 0 && len(o.validation) == 0:
		return cli.Usagef("--early_stopping needs --validation")
	case f.Given("validation") && len(o.validation) == 0:
		return cli.Usagef("--validation is empty; name annotated files, folders or patterns, or leave it out")
	case f.Given("test") && len(o.test) == 0:
		return cli.Usagef("--test is empty; name annotated files, folders or patterns, or leave it out")
	case f.Given("num_classes") && o.config.NumClasses < 1:
		return cli.Usagef("--num_classes=%d: it must be 1 or more", o.config.NumClasses)
	}
	if _, err := store.For(context.Background(), o.modelOut); err != nil {
		return cli.Usagef("--model_out: %w", err)
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
		c.LabelMap, c.Classes = labels, nil
	}
	stand := *c
	if c.LabelSet == model.Full {
		stand.Classes, stand.ClassWeights, stand.FocalLabels = []string{stand.OtherClass}, "none", ""
	} else if len(stand.Classes) == 0 {
		stand.Classes = slices.Compact(slices.Sorted(maps.Values(stand.LabelMap)))
		if !slices.Contains(stand.Classes, stand.OtherClass) {
			stand.Classes = append(stand.Classes, stand.OtherClass)
		}
		stand.FocalLabels = "" // may be of the full set
		if stand.ClassWeights != "balanced" {
			stand.ClassWeights = "none"
		}
	}
	stand.NumClasses = len(stand.Classes)
	if err := stand.Validate(); err != nil {
		return cli.Usagef("%w", err)
	}
	return nil
}

func splitAll(values []string) (out cli.Strings) {
	for _, v := range values {
		out = append(out, input.Split(v)...)
	}
	return out
}

// parseLabelMap reads --label_map.
func parseLabelMap(values []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, v := range splitAll(values) {
		if strings.HasSuffix(v, ".json") {
			data, err := os.ReadFile(v)
			if err != nil {
				return nil, cli.Usagef("--label_map: %w", err)
			}
			if err := json.Unmarshal(data, &labels); err != nil {
				return nil, cli.Usagef("--label_map: %s: %w; it must hold one object of \"Label\": \"Class\"", v, err)
			}
			continue
		}
		label, class, ok := strings.Cut(v, "=")
		if !ok {
			return nil, cli.Usagef("--label_map: %q is no Label=Class", v)
		}
		labels[strings.TrimSpace(label)] = strings.TrimSpace(class)
	}
	return labels, nil
}

// train reads the documents, trains and saves.
func (o *options) train(ctx context.Context, f *cli.Flags) error {
	var weights *model.Weights
	if o.initModel != "" {
		var err error
		if weights, err = o.loadInit(ctx, f); err != nil {
			return err
		}
	}
	parts, err := o.read(ctx)
	if err != nil {
		return told(ctx, err)
	}
	if err := writable(ctx, o.modelOut); err != nil {
		return told(ctx, err)
	}
	options := train.Options{
		Config: o.config, Train: parts[0], Validation: parts[1], Test: parts[2],
		EarlyStopping: o.earlyStopping, Init: weights,
	}
	bar := newProgress(o.verbosity == 0, len(parts[1]) > 0)
	options.Progress = bar.show
	w, meta, err := train.Run(ctx, options)
	bar.close()
	if err != nil {
		return told(ctx, err)
	}
	meta.Data, meta.Commit = o.comment, commit()
	if meta.Data == "" {
		meta.Data = fmt.Sprintf("%d documents", len(parts[0]))
	}
	if err := save(ctx, o.modelOut, w, meta); err != nil {
		return told(ctx, err)
	}
	if o.verbosity > 0 {
		o.summary(w, meta)
	}
	return nil
}

// told is err, or the interrupt where that was its cause.
func told(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), cli.ErrInterrupted) {
		return fmt.Errorf("%w: no model was written", cli.ErrInterrupted)
	}
	return err
}

// loadInit loads --init_model; what no flag says is as that model has it.
func (o *options) loadInit(ctx context.Context, f *cli.Flags) (*model.Weights, error) {
	fsys, err := store.Sub(ctx, o.initModel)
	if err != nil {
		return nil, fmt.Errorf("--init_model: no model there: %w", err)
	}
	w, err := model.Load(fsys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.initModel, err)
	}
	text, err := json.Marshal(&w.Config)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	for _, name := range configFlags {
		if given[name] || name == "num_classes" {
			continue
		}
		value := string(fields[name])
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		if err := f.Set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", o.initModel, name, err)
		}
	}
	c := &o.config
	if !given["label_set"] && !given["label_map"] {
		c.LabelSet, c.Classes, c.LabelMap, c.OtherClass = w.Config.LabelSet, w.Config.Classes, w.Config.LabelMap, w.Config.OtherClass
	}
	if c.LabelSet != model.Full {
		c.FullClasses = w.Config.FullClasses
	}
	return w, o.checkConfig()
}

// read reads the documents of --input, --validation and --test, in that order.
// A document that cannot be read ends the program: a model trained on the rest
// would be another one.
func (o *options) read(ctx context.Context) (parts [3][]train.Document, err error) {
	args := [3]cli.Strings{o.input, o.validation, o.test}
	all, err := input.New(slices.Concat(args[:]...), "", true)
	if err != nil {
		return parts, cli.Usagef("%w", err)
	}
	taken := map[string]bool{} // by validation and test
	for i := len(parts) - 1; i >= 0; i-- {
		if len(args[i]) == 0 {
			continue
		}
		set, err := input.New(args[i], "", true)
		if err != nil {
			return parts, cli.Usagef("%w", err)
		}
		var files []input.File
		listed := 0
		err = set.Walk(ctx, func(file input.File) error {
			listed++
			if !taken[file.URI] {
				files = append(files, file)
			}
			taken[file.URI] = true
			return nil
		})
		if errors.Is(err, input.ErrNone) || errors.Is(err, input.ErrTwins) {
			return parts, cli.Usagef("%w", err)
		}
		if err != nil {
			return parts, err
		}
		what := [3]string{"--input", "--validation", "--test"}[i]
		others := [3]string{"--validation or --test", "--test"}[i]
		if listed > 0 && len(files) == 0 {
			return parts, cli.Usagef("%s: all that it names is in %s too, so nothing is left; name other documents", what, others)
		}
		labelled := 0
		for _, file := range files {
			d, err := o.document(ctx, file.URI, all.Name(file.URI))
			if err != nil {
				return parts, err
			}
			for _, l := range d.Labels {
				if l != "" {
					labelled++
				}
			}
			parts[i] = append(parts[i], d)
		}
		if labelled == 0 {
			return parts, fmt.Errorf("%s has no annotated line; name files with YEDDA annotation (*.txt.ann)", what)
		}
		if o.verbosity > 0 {
			fmt.Fprintf(os.Stderr, "%s: %s, %s with a label\n", what, cli.Plural(int64(len(files)), "document"), cli.Plural(int64(labelled), "line"))
		}
	}
	return parts, nil
}

func (o *options) document(ctx context.Context, uri, name string) (train.Document, error) {
	st, err := store.For(ctx, uri)
	if err != nil {
		return train.Document{}, err
	}
	data, err := st.Read(ctx, uri, 0)
	if err != nil {
		return train.Document{}, err
	}
	parsed, _, err := input.Parse(ctx, uri, data, true, 0)
	if err != nil {
		return train.Document{}, fmt.Errorf("%s: %w", uri, err)
	}
	rows := yedda.Rows(parsed.Text)
	return train.Document{
		Name:     name,
		Features: feature.Extract(parsed.Text, rows, o.config.InputSize, runtime.GOMAXPROCS(0)),
		Labels:   parsed.LineLabels(rows),
	}, nil
}

// writable finds out before the training whether a local model can be written
// after it. It leaves nothing but folders above.
func writable(ctx context.Context, to string) error {
	st, err := store.For(ctx, to)
	if err != nil || strings.Contains(to, "://") {
		return err
	}
	_, there := os.Stat(to)
	probe := store.Join(to, ".linnet")
	if err := st.Write(ctx, probe, nil); err != nil {
		return err
	}
	if err := st.Delete(ctx, probe); err != nil || there == nil {
		return err
	}
	return st.Delete(ctx, to)
}

// save writes the model, to gs:// by way of a folder of its own.
func save(ctx context.Context, to string, w *model.Weights, meta *model.Metadata) error {
	if !strings.Contains(to, "://") {
		return model.Save(to, w, meta)
	}
	st, err := store.For(ctx, to)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "linnet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := model.Save(dir, w, meta); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := st.Write(ctx, store.Join(to, e.Name()), data); err != nil {
			return err
		}
	}
	return nil
}

// commit is that of the sources this program was built from, if it knows.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func (o *options) summary(w *model.Weights, meta *model.Metadata) {
	last := meta.Epochs[len(meta.Epochs)-1]
	fmt.Printf("%s: %s parameters, hash %.12s, %s in %s, loss %.4f\n", o.modelOut,
		cli.Count(int64(meta.Parameters)), w.Hash(), cli.Plural(int64(len(meta.Epochs)), "epoch"), time.Duration(meta.Seconds*float64(time.Second)).Round(time.Second), last.Loss)
	for _, part := range []struct {
		name string
		a    *model.Accuracy
	}{{"validation", meta.Validation}, {"test", meta.Test}} {
		if part.a == nil {
			continue
		}
		fmt.Printf("%s: macro-F1 %.4f, accuracy %.4f", part.name, part.a.MacroF1, part.a.Accuracy)
		for _, class := range w.Config.Classes {
			if f1, ok := part.a.F1[class]; ok {
				fmt.Printf(", %s %.4f", class, f1)
			}
		}
		fmt.Println()
	}
}

// progress shows how training goes: a bar, and a line an epoch.
type progress struct {
	bar       *cli.Bar
	silent    bool
	validated bool
}

func newProgress(silent, validated bool) *progress {
	return &progress{silent: silent, validated: validated}
}

func (p *progress) show(s train.Progress) {
	if p.bar == nil {
		p.bar = cli.NewBar(int64(s.Steps), p.silent)
	}
	speed, left := cli.Count(int64(s.LinesPerSec)), s.Left.Round(time.Second)
	f1 := ""
	if s.EpochEnd {
		if p.validated {
			f1 = fmt.Sprintf(", dev macro-F1 %.4f", s.MacroF1)
		}
		p.bar.Line(fmt.Sprintf("epoch %d/%d, loss %.4f, learning rate %.5f, %s lines/s%s, %s left",
			s.Epoch, s.Epochs, s.Loss, s.LearningRate, speed, f1, left))
		return
	}
	if p.validated && s.MacroF1 > 0 { // of the epoch before
		f1 = fmt.Sprintf(" F1 %.3f", s.MacroF1)
	}
	p.bar.Set(int64(s.Step), fmt.Sprintf("epoch %d/%d loss %.3f rate %.4f %s lines/s%s %s left",
		s.Epoch, s.Epochs, s.Loss, s.LearningRate, speed, f1, left))
}

func (p *progress) close() {
	if p.bar != nil {
		p.bar.Close()
	}
}
