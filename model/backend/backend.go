// Package backend picks the device that scores: --device. It promises that
// auto always finds one and says in one line why it is not a GPU, and that cpu
// touches no driver.
package backend

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
)

// Devices that New knows.
const (
	CPU  = "cpu"
	Auto = "auto" // a GPU where one works, else the CPU
	CUDA = "cuda" // a GPU or an error
)

// ErrNoCUDA is why a build has no CUDA devices.
var ErrNoCUDA = errors.New("this build has no CUDA support")

// Check reports a device that New does not know. It needs no model, so that
// flags can be checked before anything is loaded.
func Check(device string) error {
	switch device {
	case CPU, Auto, CUDA:
		return nil
	}
	return fmt.Errorf("backend: device: %s; it must be cpu, auto or cuda", strconv.Quote(device))
}

// New makes the Scorer of device for w, which must not change while the Scorer
// is used. Where auto falls back on the CPU, reason is one line that says why;
// otherwise it is empty.
func New(device string, w *model.Weights) (s model.Scorer, reason string, err error) {
	if err := Check(device); err != nil {
		return nil, "", err
	}
	if device != CPU {
		s, err := newCUDA(w)
		if err == nil {
			return s, "", nil
		}
		if device == CUDA {
			return nil, "", fmt.Errorf("backend: device cuda: %w; use --device=cpu or --device=auto", err)
		}
		reason = fmt.Sprintf("device auto: %v; using the CPU", err)
	}
	onCPU, err := cpu.New(w)
	if err != nil {
		return nil, "", err
	}
	return onCPU, reason, nil
}
