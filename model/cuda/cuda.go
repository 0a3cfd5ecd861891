// Package cuda scores lines on NVIDIA GPUs: the forward pass of model.Weights
// in kernels of its own (kernels.cu), launched through gorgonia.org/cu. It is in
// builds with -tags cuda; in others New says so.
//
// A line's table rows are summed on the device, so that ids travel and not
// vectors. Matrices are multiplied by tensor cores, in float16 with float32
// sums, or in float32. Recurrent weights stay in registers where they fit, for
// all steps of 16 or 32 windows a block in one launch; where they do not, each
// step is a launch. The probabilities of a window have the same bits whatever else is in
// its batch, on GPUs of one compute capability and one precision.
//
// The kernels' PTX is committed and embedded; scripts/ptx makes it. Tests run
// that PTX on the CPU, translated (gpuinit/standin), behind a driver that stands in.
package cuda

import (
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
)

// Precisions of the products.
const (
	Float16 = "float16" // tensor cores, sums in float32
	Float32 = "float32"
)

// Options of New.
type Options struct {
	// Devices to use, all at once; gpuinit.Init has started CUDA on them.
	Devices []gpuinit.Device
	// Precision is Float16, which "" stands for, or Float32. Weights that are
	// out of float16's range make it Float32.
	Precision string
	// MemoryLimit bounds the memory that is taken of each device, in bytes; 0
	// is no bound. Memory is taken as batches need it and kept until Close.
	MemoryLimit int64
	// Timeout is how long a device may take to start, or to be done with a batch,
	// before it counts as lost; 0 is 5 minutes.
	Timeout time.Duration
	// Log takes a line, of level 1, for each device that is not used or lost while
	// others are left; nil drops them.
	Log func(level int, format string, args ...any)
}
