// Package backend picks the device that scores: --device. It promises that
// auto always finds one and says in one line why it is not a GPU, and that cpu
// touches no driver.
package backend

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
)

// Devices that New knows.
const (
	CPU  = "cpu"
	Auto = "auto" // a GPU where one works, else the CPU
	CUDA = "cuda" // a GPU or an error
)

// Options of New.
type Options struct {
	Device    string          // CPU, Auto or CUDA
	GPU       gpuinit.Options // which GPUs
	Memory    int64           // bytes that the Scorer may take on each GPU; 0 for all that is free
	Precision string          // of a GPU's products: float16, which "" stands for, or float32
	Timeout   time.Duration   // of a batch on a GPU, before that counts as lost; 0 for 5 minutes
	Hybrid    bool            // with Auto: the CPU takes some of what GPUs have no time for
}

// Lanes is the number of batches that keep one GPU busy: one is copied while the
// others are computed.
const Lanes = 4

// New makes the Scorer of o.Device for w, which must not change while the Scorer
// is used. Where auto falls back on the CPU, reason is one line that says why;
// otherwise it is empty. Later, too, auto goes to the CPU when the GPUs are lost
// or have no room for a window, which it tells o.GPU.Log; with cuda these are
// the Scorer's errors. With cuda, New waits for a GPU that other processes hold.
func New(ctx context.Context, o Options, w *model.Weights) (s model.MultiScorer, reason string, err error) {
	if o.Device != CPU && o.Device != Auto && o.Device != CUDA {
		return nil, "", fmt.Errorf("backend: device: %q; it must be cpu, auto or cuda", o.Device)
	}
	if o.Device != CPU {
		o.GPU.Wait = o.Device == CUDA
		s, err := newCUDA(ctx, o, w)
		switch {
		case err == nil && o.Device == CUDA:
			return s, "", nil
		case err == nil:
			both := newWithFallback(s, w, o.GPU.Log)
			if o.Hybrid {
				both.split = &split{cores: runtime.GOMAXPROCS(0), full: Lanes * len(both.Devices()), now: time.Now}
			}
			return both, "", nil
		case o.Device == CUDA || ctx.Err() != nil:
			return nil, "", fmt.Errorf("backend: device %s: %w", o.Device, err)
		}
		reason = fmt.Sprintf("device auto: %v; using the CPU", err)
	}
	onCPU, err := cpu.New(w)
	if err != nil {
		return nil, "", err
	}
	return onCPU, reason, nil
}
