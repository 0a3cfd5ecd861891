// Command profile measures the model on this machine's CPU and GPU for some
// batch sizes: memory, time, lines a second. It then says how large a batch may
// be, which is fastest, and whether a GPU is worth its money.
//
//	profile --input=journals --batch_sizes=50,300 --report=report
//	profile --input=journals --device=cuda --cpu_hourly_cost=0.2 --gpu_hourly_cost=0.9 --plan_lines=1000000000 --plan_workers=20
//
// A sample is a context window of --window_size lines, all of one length so that
// batches of one size are alike. With --report it writes profile.tsv,
// profile.json and profile.html. Exit statuses: 0 done; 1 failed; 2 wrong use.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

func main() { cli.Main(run) }

// options are the flags of profile.
type options struct {
	input                             cli.Strings
	modelURI, device, batches, report string
	precision                         string
	windowSize, rounds, verbosity     int
	maxLines                          int64
	budget                            cli.Bytes
	cpuCost, gpuCost                  float64
	planLines                         int64
	planWorkers                       int
	cpuStartup, gpuStartup            time.Duration

	batchSizes                   []int
	givenCPUStart, givenGPUStart bool
}

func define(f *cli.Flags) *options {
	o := new(options)
	f.Var(&o.input, "input", "`files`, folders and patterns to score, separated by commas (\\, is a comma) or repeated")
	f.StringVar(&o.modelURI, "model_uri", "", "`folder` or gs://bucket/prefix of the model (default the bundled one)")
	f.StringVar(&o.device, "device", "cpu", "`cpu`, auto (a GPU too, where one works) or cuda (a GPU too, or an error)")
	f.StringVar(&o.precision, "precision", "", "of products on a GPU: `float16` (the default; sums in float32) or float32; the CPU's depends on LINNET_ISA")
	f.StringVar(&o.batches, "batch_sizes", "50,300", "`samples` in a batch, separated by commas, each measured")
	f.IntVar(&o.windowSize, "window_size", 50, "`lines` of a sample")
	f.IntVar(&o.rounds, "rounds", 5, "`times` that all samples are scored with each batch size; the median counts")
	f.Int64Var(&o.maxLines, "max_lines", 200_000, "`lines` of --input that are scored at most, the first ones; 0 for all")
	f.Var(&o.budget, "memory_budget", "`bytes` that a batch, the model and all else may take: of the GPU's memory, and of RAM without one (default all of the GPU's)")
	f.StringVar(&o.report, "report", "", "`folder` or gs://bucket/prefix to write profile.tsv, profile.json and profile.html to")
	f.Float64Var(&o.cpuCost, "cpu_hourly_cost", 0, "`cost` of an hour of this machine without its GPU, in any currency")
	f.Float64Var(&o.gpuCost, "gpu_hourly_cost", 0, "`cost` of an hour of this machine with its GPU")
	f.Int64Var(&o.planLines, "plan_lines", 0, "`lines` to plan for: hours, cost and saving")
	f.IntVar(&o.planWorkers, "plan_workers", 1, "`machines` such as this one to plan for")
	f.DurationVar(&o.cpuStartup, "cpu_startup", 0, "`time` until a worker without a GPU works (default as measured: loading the model)")
	f.DurationVar(&o.gpuStartup, "gpu_startup", 0, "`time` until a worker with a GPU works (default as measured: starting CUDA, loading the model)")
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors and results, 1 progress, 2 devices")
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("profile", "Measures the model's memory and speed by batch size, and what they cost.")
	o := define(f)
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	o.givenCPUStart, o.givenGPUStart = f.Given("cpu_startup"), f.Given("gpu_startup")
	if err := o.check(); err != nil {
		return err
	}
	if o.verbosity > 0 {
		fmt.Fprintf(os.Stderr, "profiling on %s …\n", cli.Printable(strings.Join(o.input, ", ")))
	}
	return o.profile(ctx)
}

// check finds wrong use.
func (o *options) check() error {
	o.input = input.Split(o.input...)
	for text := range strings.SplitSeq(o.batches, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 1<<20 {
			return cli.Usagef("--batch_sizes=%s: %q is none; a batch has 1 to 1,048,576 samples", o.batches, text)
		}
		o.batchSizes = append(o.batchSizes, n)
	}
	slices.Sort(o.batchSizes)
	o.batchSizes = slices.Compact(o.batchSizes)
	switch {
	case len(o.input) == 0:
		return cli.Usagef("no --input: name files, folders or patterns")
	case o.windowSize < 1:
		return cli.Usagef("--window_size=%d: it must be 1 or more, for samples of one length", o.windowSize)
	case o.rounds < 1:
		return cli.Usagef("--rounds=%d: it must be 1 or more", o.rounds)
	case o.maxLines < 0 || o.planLines < 0:
		return cli.Usagef("--max_lines and --plan_lines must be 0 or more")
	case o.maxLines > 0 && o.maxLines < int64(o.windowSize):
		return cli.Usagef("--max_lines=%d: one sample has %d lines (--window_size)", o.maxLines, o.windowSize)
	case o.planWorkers < 1:
		return cli.Usagef("--plan_workers=%d: it must be 1 or more", o.planWorkers)
	case !(o.cpuCost >= 0 && o.gpuCost >= 0 && max(o.cpuCost, o.gpuCost) <= 1e15): // no sum of them is an infinity
		return cli.Usagef("--cpu_hourly_cost and --gpu_hourly_cost must be from 0 to 1e15")
	case o.cpuStartup < 0 || o.gpuStartup < 0:
		return cli.Usagef("--cpu_startup and --gpu_startup must be 0 or more")
	}
	for _, f := range [][2]string{{"model_uri", o.modelURI}, {"report", o.report}} {
		if err := cli.CheckURI(f[0], f[1]); err != nil {
			return err
		}
	}
	return cmp.Or(cli.CheckVerbosity(o.verbosity), cli.CheckDevice(o.device, false, o.windowSize, 0), cli.CheckPrecision(o.precision, o.device))
}

func (o *options) profile(ctx context.Context) error {
	settle()
	began, ram := time.Now(), cli.Memory()
	w, err := o.weights(ctx)
	if err != nil {
		return err
	}
	reading := time.Since(began)
	settle()
	r := &report{reading: reading, ramWeights: max(0, cli.Memory()-ram), Time: time.Now().UTC().Truncate(time.Second), Model: cmp.Or(o.modelURI, "bundled"), ModelHash: w.Hash(), Input: o.input,
		Machine: fmt.Sprintf("%s, %s, %s/%s, %s", cli.Plural(int64(runtime.GOMAXPROCS(0)), "core"), kernel.ISA(), runtime.GOOS, runtime.GOARCH, runtime.Version()), WindowSize: o.windowSize, Rounds: o.rounds}
	documents, err := o.read(ctx, r, w.Config.InputSize)
	if err != nil {
		return err
	}
	if o.report != "" {
		if err := cmp.Or(cli.CheckReport(ctx, "profile", o.report, reportFiles), store.Writable(ctx, o.report)); err != nil {
			return err
		}
	}
	kinds := []string{backend.CPU}
	if o.device != backend.CPU {
		kinds = append(kinds, backend.CUDA)
	}
	for _, kind := range kinds {
		if err := o.measure(ctx, r, kind, w, documents); err != nil {
			return err
		}
	}
	o.advise(r)
	var unwritten error
	if o.report != "" { // before the table: a pipe that is closed, as by head, ends the program there
		unwritten = r.write(ctx, o.report)
	}
	return cmp.Or(r.table(os.Stdout), unwritten)
}

func (o *options) weights(ctx context.Context) (*model.Weights, error) {
	if o.modelURI == "" {
		return bundled.Weights()
	}
	uri, err := input.Absolute(o.modelURI)
	if err != nil {
		return nil, err
	}
	return cli.LoadModel(ctx, "model_uri", uri)
}

// read reads the documents, up to --max_lines, as features with windows of
// --window_size lines; what is left at a document's end is not used.
func (o *options) read(ctx context.Context, r *report, inputSize int) ([]*model.Batch, error) {
	set, err := input.New(o.input, "", false)
	if err != nil {
		return nil, cli.Usagef("%w", err)
	}
	if err := cli.Walk(ctx, set, o.verbosity == 0, func() error {
		return set.Walk(ctx, func(input.File) error { return nil })
	}); err != nil {
		return nil, err
	}
	var documents []*model.Batch
	unread, firstUnread := int64(0), error(nil)
	short := false // a document was read and is no sample
	enough := errors.New("enough")
	err = set.Walk(ctx, func(file input.File) error {
		data, err := []byte(nil), file.Err
		if err == nil {
			data, err = store.Read(ctx, file.URI, 64<<20)
		}
		var parsed *yedda.Document
		if err == nil {
			if parsed, _, err = input.Parse(ctx, file.URI, data, false, 0); err != nil {
				err = fmt.Errorf("%s: %w", file.URI, err)
			}
		}
		if err != nil {
			unread++
			firstUnread = cmp.Or(firstUnread, err)
			return context.Cause(ctx)
		}
		rows := yedda.Rows(parsed.Text)
		if left := o.maxLines - r.Lines; o.maxLines > 0 && int64(len(rows)) > left {
			rows = rows[:left]
		}
		n := len(rows) / o.windowSize
		if n > 0 {
			b := feature.Extract(parsed.Text, rows, inputSize, runtime.GOMAXPROCS(0))
			for i := range n {
				b.Windows = append(b.Windows, model.ContextWindow{First: i * o.windowSize, Len: o.windowSize})
			}
			documents = append(documents, b)
			r.Documents++
			r.Lines += int64(n * o.windowSize)
		} else {
			short = true
		}
		if o.maxLines > 0 && r.Lines+int64(o.windowSize) > o.maxLines {
			return enough
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, enough):
		return nil, err
	case unread > 0 && r.Lines == 0 && !short:
		return nil, fmt.Errorf("nothing to measure: %w", firstUnread)
	case r.Lines == 0:
		return nil, fmt.Errorf("no document of %s has %s (--window_size); lower it, or name longer documents", strings.Join(o.input, ", "), cli.Plural(int64(o.windowSize), "line"))
	case unread > 0:
		cli.Warnf("%s passed over, such as %v", cli.Plural(unread, "document"), firstUnread)
	}
	return documents, nil
}
