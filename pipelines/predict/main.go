// Command predict labels every line of documents: it reads what --input names,
// writes annotated copies below --output, and skips what an earlier run did.
//
//	predict --input=journals --output=annotated
//	predict --input=journals --output=annotated --runner=prism --watch
//
// Exit statuses: 0 done; 1 failed, or all documents were rejected; 2 wrong use;
// --rejected_exit_status (3) done, but some documents were rejected.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
)

func main() { cli.Main(run) }

// options are the flags of predict.
type options struct {
	input, formats                        cli.Strings
	output, modelURI, labelSet, device    string
	precision                             string
	windowSize, stride, batchSize, sample int
	probabilities, force, plan, hybrid    bool
	retryRejected, watch, cancelOnExit    bool
	watchInterval, gpuTimeout             time.Duration
	maxRejected                           float64
	rejectedStatus, verbosity             int
	workersPerGPU                         int
	gpuMemoryLimit                        cli.Bytes
	maxDocumentBytes, memoryLimit         cli.Bytes
	byDefault                             bool // --input was not given: the sample
}

func define(f *cli.Flags) *options {
	o := &options{maxDocumentBytes: transforms.DefaultMaxDocumentBytes}
	f.Var(&o.input, "input", "`files`, folders and patterns to label, separated by commas (\\, is a comma) or repeated; a folder stands for every *.txt and *.txt.ann below it (default the sample in testdata)")
	f.StringVar(&o.output, "output", "annotated", "`folder` or gs://bucket/prefix to write to; what lies there is never an input")
	f.StringVar(&o.modelURI, "model_uri", "", "`folder` or gs://bucket/prefix of the model (default the bundled one)")
	f.StringVar(&o.labelSet, "label_set", "", "`collapsed` (Nomenclature, Description, Misc-exposition) or full (default the model's first)")
	f.StringVar(&o.device, "device", "cpu", "`cpu`, auto or cuda")
	f.BoolVar(&o.hybrid, "hybrid", false, "with --device=auto let the CPU, too, label lines, where the GPUs have more than they can do; which ones is a matter of time")
	f.Var(&o.gpuMemoryLimit, "gpu_memory_limit", "`bytes` that the program may take on each GPU, 0 for what it needs")
	f.DurationVar(&o.gpuTimeout, "gpu_timeout", 5*time.Minute, "`time` that a GPU may take over a batch, or to start, before it counts as lost; without it the driver may take 30s to start")
	f.IntVar(&o.workersPerGPU, "workers_per_gpu", 0, "how many `processes` may share a GPU, each taking one; 0 for one process, which takes every GPU on this machine, and one GPU a worker elsewhere")
	f.StringVar(&o.precision, "precision", "", "of products on a GPU: `float16` (the default; sums in float32) or float32; the CPU's depends on LINNET_ISA")
	f.IntVar(&o.windowSize, "window_size", -1, "`lines` of a context window; 0 for whole documents, -1 for the model's choice")
	f.IntVar(&o.stride, "prediction_stride", 0, "`lines` from one context window to the next; 0 for --window_size, so that none overlap")
	f.IntVar(&o.batchSize, "prediction_batch_size", 0, "context `windows` in a batch; 0 for the model's choice")
	f.Var(&o.formats, "format", "`formats` to write, separated by commas: "+strings.Join(transforms.Formats(), ", ")+" (default yedda)")
	f.BoolVar(&o.probabilities, "probabilities", false, "add every class's probability of each line to jsonl and csv")
	f.BoolVar(&o.force, "force", false, "label documents again that are done, and write over what somebody edited in the output folder")
	f.BoolVar(&o.plan, "plan", false, "only say what would be done and how long reading and labelling would take")
	f.IntVar(&o.sample, "sample", 0, "label `N` documents only, always the same ones; 0 for all")
	f.BoolVar(&o.retryRejected, "retry_rejected", false, "take only documents that an earlier run rejected")
	f.BoolVar(&o.watch, "watch", false, "go on until interrupted: label documents as they come and as they change (needs a runner that streams, such as prism)")
	f.DurationVar(&o.watchInterval, "watch_interval", 5*time.Second, "`time` between two looks at the input; a document is taken when it stood still for so long")
	f.Float64Var(&o.maxRejected, "max_rejected", 0.1, "`share` of rejected documents above which the run fails, from 100 documents on; where all are, it fails in any case, but with --watch")
	f.IntVar(&o.rejectedStatus, "rejected_exit_status", 3, "exit `status` when some documents were rejected")
	f.CancelOnExit(&o.cancelOnExit)
	f.Var(&o.maxDocumentBytes, "max_document_bytes", "largest document that is read, in `bytes`")
	f.Var(&o.memoryLimit, "memory_limit", "`bytes` of memory that the program aims to stay below (its own 70 MB come on top), 0 for three quarters of its container's limit, if it has one; documents in flight take a quarter of it at most, a larger one goes alone and takes 3 to 10 times its bytes, by --format")
	f.IntVar(&o.verbosity, "verbosity", 1, "`level` of detail: 0 errors, 1 progress and summary, 2 devices and Beam's log, 3 batches")
	return o
}

func run(ctx context.Context) error {
	f := cli.NewFlags("predict", "Labels every line of digitised taxonomic literature.", runners.Flags...)
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
		if err := runners.Check(); err != nil {
			return cli.Usagef("%w", err)
		}
		if o.verbosity > 0 && !o.plan && !runners.DryRun() {
			more := ""
			if o.watch {
				more = ", as it comes, until interrupted"
			}
			fmt.Fprintf(os.Stderr, "labelling %s into %s%s …\n", cli.Printable(o.what()), cli.Printable(o.output), more)
		}
	}
	runners.Init(o.verbosity) // a worker stays in here
	return o.label(ctx)
}

// check finds wrong use, and fills in what has to be looked for.
func (o *options) check(f *cli.Flags) error {
	name, err := runners.Name()
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if o.watch && !f.Given("max_rejected") {
		o.maxRejected = 1 // a stream does not end for it
	}
	switch {
	case o.labelSet != "" && o.labelSet != model.Collapsed && o.labelSet != model.Full:
		return cli.Usagef("--label_set=%s is none; it must be collapsed or full", o.labelSet)
	case o.hybrid && f.Given("device") && o.device != "auto":
		return cli.Usagef("--hybrid with --device=%s: it is for --device=auto", o.device)
	case o.gpuTimeout <= 0:
		return cli.Usagef("--gpu_timeout=%v: it must be above 0", o.gpuTimeout)
	case o.workersPerGPU < 0 || o.workersPerGPU > 1024: // each is a lock file of every GPU
		return cli.Usagef("--workers_per_gpu=%d: it must be from 0 to 1,024", o.workersPerGPU)
	case o.batchSize < 0:
		return cli.Usagef("--prediction_batch_size=%d: it must be 0 or more", o.batchSize)
	case o.sample < 0:
		return cli.Usagef("--sample=%d: it must be 0 or more", o.sample)
	case !(o.maxRejected >= 0 && o.maxRejected <= 1):
		return cli.Usagef("--max_rejected=%g: it must be from 0 to 1", o.maxRejected)
	case o.maxDocumentBytes == 0:
		return cli.Usagef("--max_document_bytes: it must be above 0")
	case o.memoryLimit > 0 && o.memoryLimit < 128<<20:
		return cli.Usagef("--memory_limit: it must be 128MiB or more")
	case o.output == "":
		return cli.Usagef("--output: name a folder to write to")
	case o.watchInterval <= 0:
		return cli.Usagef("--watch_interval=%v: it must be above 0", o.watchInterval)
	case o.watch && name == runners.Direct:
		return cli.Usagef("--watch: --runner=direct ends with its input; use --runner=prism in this process, or flink or dataflow")
	case o.watch && name == runners.Spark:
		return cli.Usagef("--watch: --runner=spark takes no work back, which a watch needs; run without it, as often as documents come, or use --runner=prism, flink or dataflow")
	case o.watch && (o.force || o.plan || o.retryRejected || o.sample > 0):
		return cli.Usagef("--watch goes with none of --force, --plan, --sample and --retry_rejected; leave it out")
	case o.force && o.retryRejected:
		return cli.Usagef("--force and --retry_rejected: what was rejected is not done anyway; leave one out")
	}
	if !f.Given("gpu_timeout") {
		o.gpuTimeout = 0 // a driver that hangs is told sooner
	}
	if (o.hybrid || runners.WorkerGPUs() > 0) && !f.Given("device") {
		o.device = "auto"
	}
	if err := cmp.Or(cli.CheckVerbosity(o.verbosity), cli.CheckStatus(o.rejectedStatus), cli.CheckDevice(o.device, runners.OtherBuild(), o.windowSize, o.stride), cli.CheckPrecision(o.precision, o.device)); err != nil {
		return err
	}
	o.formats = input.Split(o.formats...)
	if f.Given("format") && len(o.formats) == 0 {
		return cli.Usagef("--format is empty; name some of %s, or leave it out", strings.Join(transforms.Formats(), ", "))
	}
	for i, name := range o.formats {
		o.formats[i] = strings.TrimSpace(name)
		if !slices.Contains(transforms.Formats(), o.formats[i]) {
			return cli.Usagef("--format=%s is not in this version; there are %s", o.formats[i], strings.Join(transforms.Formats(), ", "))
		}
	}
	if o.probabilities && !slices.Contains(o.formats, "jsonl") && !slices.Contains(o.formats, "csv") {
		return cli.Usagef("--probabilities: they go into jsonl and csv; name one by --format, or leave it out")
	}
	o.input = input.Split(o.input...)
	if len(o.input) == 0 {
		if f.Given("input") {
			return cli.Usagef("--input is empty; name a file, a folder or a pattern")
		}
		sample, err := findSample()
		if err != nil {
			return err
		}
		o.input, o.byDefault = cli.Strings{sample}, true
	}
	return nil
}

func (o *options) what() string {
	if o.byDefault {
		return "the sample in " + o.input[0]
	}
	if len(o.input) > 3 {
		return fmt.Sprintf("%s and %d more", o.input[0], len(o.input)-1)
	}
	return strings.Join(o.input, ", ")
}

// findSample looks for the repository's sample, here and in the folders above.
func findSample() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	const sample = "testdata/sample"
	for here := dir; ; {
		path := filepath.Join(here, filepath.FromSlash(sample))
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if rel, err := filepath.Rel(dir, path); err == nil {
				path = rel
			}
			return path, nil
		}
		up := filepath.Dir(here)
		if up == here {
			return "", cli.Usagef("no --input: name a file, a folder or a pattern (the sample is found only inside the repository)")
		}
		here = up
	}
}
