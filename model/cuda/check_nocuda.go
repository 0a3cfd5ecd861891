//go:build !cuda || !cgo

package cuda

import (
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
)

// Check reports that this build has no CUDA.
func Check(gpuinit.Device, []float32, []float32, []float32, int, int, int, time.Duration) (*Checked, error) {
	return nil, gpuinit.Built()
}
