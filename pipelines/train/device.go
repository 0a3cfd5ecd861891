package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/cuda"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/runners"
)

// precisions are what --mixed_precision takes.
var precisions = map[string]string{"off": "", "bf16": cuda.BFloat16, "fp16": cuda.Float16}

// batchSize is --batch_size: a number, or auto, which is 0 until it is known.
type batchSize struct {
	n    *int
	auto bool
}

func (b *batchSize) String() string {
	if b.n == nil {
		return ""
	}
	return strconv.Itoa(*b.n)
}

func (b *batchSize) Set(s string) error {
	if b.auto = s == "auto"; b.auto {
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is no number, and not auto", s)
	}
	*b.n = n
	return nil
}

// checkDevice finds wrong use of the flags of GPUs.
func (o *options) checkDevice(f *cli.Flags) error {
	if err := cli.CheckDeviceName(o.device); err != nil {
		return err
	}
	if runners.WorkerGPUs() > 0 && !f.Given("device") {
		o.device = backend.CUDA
	}
	_, known := precisions[o.precision]
	onCPU := o.device == backend.CPU
	switch {
	case !known:
		return cli.Usagef("--mixed_precision=%s is none; it must be off, bf16 or fp16", o.precision)
	case onCPU && o.precision != "off":
		return cli.Usagef("--mixed_precision=%s needs a GPU; add --device=cuda", o.precision)
	case onCPU && o.batchSize.auto:
		return cli.Usagef("--batch_size=auto needs a GPU; add --device=cuda, or name a number")
	case onCPU && f.Given("world_size"):
		return cli.Usagef("--world_size is how many GPUs train; add --device=cuda, or share the training out by --workers")
	case o.worldSize < 1:
		return cli.Usagef("--world_size=%d: it must be 1 or more", o.worldSize)
	case o.workers > 0 && o.device == backend.Auto:
		return cli.Usagef("--device=auto with --workers: their weights are averaged, so all need the same; say cpu or cuda")
	case o.workers > 0 && o.worldSize > 1:
		return cli.Usagef("--world_size=%d with --workers: each worker takes one GPU; leave --world_size out", o.worldSize)
	case o.workers > 0 && o.batchSize.auto:
		return cli.Usagef("--batch_size=auto with --workers: this program sees none of their GPUs; name a number")
	case runners.WorkerGPUs() > 1:
		return cli.Usagef("--worker_gpu=%d: each worker trains on one GPU; give each one, and more by --workers", runners.WorkerGPUs())
	}
	if o.initModel == "" { // which may have another batch_size
		if err := o.checkShares(); err != nil {
			return err
		}
	}
	if o.device == backend.CUDA && !runners.OtherBuild() && gpuinit.Built() != nil {
		return cli.Usagef("--device=cuda: %w", gpuinit.Built())
	}
	return nil
}

// checkShares finds more workers or GPUs than a batch has windows.
func (o *options) checkShares() error {
	switch n := o.config.BatchSize; {
	case o.workers > max(1, n):
		return cli.Usagef("--workers=%d: each needs a window of every batch, and --batch_size is %d", o.workers, n)
	case !o.batchSize.auto && o.worldSize > max(1, n):
		return cli.Usagef("--world_size=%d: each GPU needs a window of every batch, and --batch_size is %d", o.worldSize, n)
	}
	return nil
}

// openGPUs takes the GPUs that the steps are computed on; none with
// --device=cpu, and with auto where none can be used.
func (o *options) openGPUs(ctx context.Context) (*gpuinit.GPUs, error) {
	if o.device == backend.CPU || o.workers > 0 {
		return nil, nil
	}
	gpus, err := gpuinit.Init(ctx, gpuinit.Options{Devices: o.worldSize, Wait: o.device == backend.CUDA, Log: func(level int, format string, args ...any) {
		if level <= o.verbosity {
			fmt.Fprintf(os.Stderr, format+"\n", args...)
		}
	}})
	if err == nil && len(gpus.Devices) < o.worldSize {
		err = fmt.Errorf("--world_size=%d: this process can use %d of this machine's %s at a time; lower it, or free the others", o.worldSize, len(gpus.Devices), cli.Plural(int64(len(gpus.Machine.Devices)), "GPU"))
		gpus.Close()
	}
	if err == nil {
		return gpus, nil
	}
	return nil, o.fallBack(ctx, err)
}

// fallBack says that the CPU trains, where --device=auto allows it; otherwise err
// is the answer.
func (o *options) fallBack(ctx context.Context, err error) error {
	switch {
	case o.device != backend.Auto || ctx.Err() != nil:
		return err
	case o.precision != "off" || o.batchSize.auto || o.worldSize > 1:
		return fmt.Errorf("device auto: %w; without a GPU leave out --mixed_precision, --world_size and --batch_size=auto", err)
	}
	fmt.Fprintf(os.Stderr, "linnet: device auto: %v; using the CPU\n", err)
	return nil
}

// largest settles --batch_size=auto: a training that goes on keeps the batch that
// it was begun with, whatever fits now.
func (o *options) largest(t *train.Options) error {
	if t.Resume != nil {
		t.Config.BatchSize = t.Resume.BatchSize()
		return nil
	}
	n, epoch, err := train.LargestBatch(*t)
	if err != nil {
		return err
	}
	t.Config.BatchSize = n
	if o.verbosity > 0 {
		steps := (epoch + n - 1) / n
		fmt.Fprintf(os.Stderr, "--batch_size=auto: room for %s; an epoch is %s\n", cli.Plural(int64(n), "window"), cli.Plural(int64(steps), "step"))
		if steps < 20 {
			cli.Warnf("--batch_size=%d leaves few steps to learn in; raise --epochs or name a smaller one", n)
		}
	}
	return nil
}
