package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/input"
)

// say prints the configuration as flags.
func (o *options) say(c *model.Config) {
	var b strings.Builder
	for i, value := range flagValues(c) {
		if value != "" {
			fmt.Fprintf(&b, " --%s=%s", configFlags[i], value)
		}
	}
	fmt.Fprintf(&b, " --label_set=%s --crop_share=%g --keep=%s --early_stopping=%d --temperature=%s --workers=%d --round_steps=%d --device=%s --mixed_precision=%s --world_size=%d",
		c.LabelSet, o.cropShare, o.keep, o.earlyStopping, &o.temperatures, o.workers, o.roundSteps, o.device, o.precision, o.worldSize)
	for _, list := range []struct {
		flag   string
		values []string
	}{{"input", o.input}, {"validation", o.validation}, {"test", o.test}, {"teachers", o.teachers}, {"label_map", input.Split(o.labelMap...)}} {
		for i, v := range list.values {
			sep := ","
			if i == 0 {
				sep = " --" + list.flag + "="
			}
			b.WriteString(sep + strings.ReplaceAll(v, ",", `\,`))
		}
	}
	if o.initModel != "" {
		fmt.Fprintf(&b, " --init_share=%g --init_model=%s", o.initShare, o.initModel)
	}
	fmt.Fprintf(os.Stderr, "configuration:%s\n", cli.Printable(b.String()))
	fmt.Fprintf(os.Stderr, "classes: %s; %s parameters\n", strings.Join(c.Classes, ", "), cli.Count(int64(c.NumParameters())))
}

// progress shows how training goes: a bar, a line an epoch, and at verbosity 2
// one each 50 batches.
type progress struct {
	bar       *cli.Bar
	verbosity int
	validated bool
	part      int // windows of a part of a batch, once memory ran out
}

func (p *progress) show(s train.Progress) {
	if p.bar == nil {
		p.bar = cli.NewBar(int64(s.Steps), p.verbosity)
	}
	speed, left := cli.Count(int64(s.LinesPerSec)), s.Left.Round(time.Second)
	f1, gpu := "", ""
	if s.Memory > 0 {
		gpu = fmt.Sprintf(", GPU memory %s", humanize.IBytes(uint64(s.Memory)))
	}
	if s.Part != p.part {
		p.part = s.Part
		p.bar.Line(fmt.Sprintf("GPU memory is short: a batch goes through it in parts of %s", cli.Plural(int64(s.Part), "window")))
	}
	if s.EpochEnd {
		if p.validated {
			f1 = fmt.Sprintf(", dev macro-F1 %.4f, dev loss %.4f", s.MacroF1, s.ValidationLoss)
		}
		if s.Skipped > 0 {
			gpu += fmt.Sprintf(", %s skipped", cli.Plural(int64(s.Skipped), "step"))
		}
		p.bar.Line(fmt.Sprintf("epoch %d/%d, loss %.4f, accuracy %.4f, learning rate %.5f, %s lines/s%s%s, %s left",
			s.Epoch, s.Epochs, s.Loss, s.Accuracy, s.LearningRate, speed, f1, gpu, left))
		return
	}
	const batches = 50
	if p.verbosity >= 2 && s.Step%batches == 0 {
		p.bar.Line(fmt.Sprintf("step %d/%d, epoch %d/%d, loss %.4f, accuracy %.4f, learning rate %.5f, gradient %.3f, %s lines/s%s",
			s.Step, s.Steps, s.Epoch, s.Epochs, s.Loss, s.Accuracy, s.LearningRate, s.GradientNorm, speed, gpu))
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

func (o *options) summary(w *model.Weights, meta *model.Metadata) {
	last := meta.Epochs[len(meta.Epochs)-1]
	fmt.Printf("%s: %s parameters, hash %.12s, %s in %s, loss %.4f\n", cli.Printable(o.modelOut),
		cli.Count(int64(meta.Parameters)), w.Hash(), cli.Plural(int64(len(meta.Epochs)), "epoch"), time.Duration(meta.Seconds*float64(time.Second)).Round(time.Second), last.Loss)
	fmt.Printf("%s parameters in all, %s of them trained; on %s, %s", cli.Count(int64(meta.Parameters+len(w.LayoutMean)+len(w.LayoutInvStd))),
		cli.Count(int64(meta.Parameters)), meta.Device, meta.Precision)
	if o.workers == 0 {
		fmt.Printf(", world size %d", meta.WorldSize)
	}
	if meta.GPUMemory > 0 {
		fmt.Printf("; GPU memory %s allocated, %s at most", humanize.IBytes(uint64(meta.GPUMemory)), humanize.IBytes(uint64(meta.GPUPeak)))
	}
	if meta.Skipped > 0 {
		fmt.Printf("; %s skipped", cli.Plural(int64(meta.Skipped), "step"))
	}
	fmt.Println()
	if meta.BestEpoch > 0 {
		fmt.Printf("epoch %d is kept, the best on --validation\n", meta.BestEpoch)
	}
	if t := temperatures(meta.Temperatures); t != nil {
		found := ""
		if o.temperatures == nil {
			found = ", the temperatures that --validation asks for"
		}
		fmt.Printf("logits are divided by %s%s\n", &t, found)
	}
	for _, part := range []struct {
		name string
		a    *model.Accuracy
	}{{"training", meta.Training}, {"validation", meta.Validation}, {"test", meta.Test}} {
		if part.a == nil {
			continue
		}
		fmt.Printf("%s: macro-F1 %.4f, accuracy %.4f, loss %.4f", part.name, part.a.MacroF1, part.a.Accuracy, part.a.Loss)
		for _, class := range w.Config.Classes {
			if f1, ok := part.a.F1[class]; ok {
				fmt.Printf(", %s %.4f", class, f1)
			}
		}
		fmt.Println()
	}
}
