package train

import (
	"errors"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/gpuinit"
)

// TestUnlikeGPUs has GPUs whose parameters would drift apart.
func TestUnlikeGPUs(t *testing.T) {
	cards := []gpuinit.Device{{Index: 0, Name: "T4", Major: 7, Minor: 5}, {Index: 1, Name: "A100", Major: 8}}
	_, err := newGPUs(nil, &Machine{GPUs: cards}, 1, 1, 1)
	if !errors.Is(err, ErrNoGPU) || !strings.Contains(err.Error(), "GPU 0 (T4) has compute capability 7.5 and GPU 1 (A100) has 8.0") {
		t.Errorf("got %v", err)
	}
}
