// Package gpuinit finds NVIDIA GPUs and prepares them for the device packages.
// This build has no CUDA support, so that it needs no driver, no toolkit and
// no cgo: Probe reports ErrNoDevice.
package gpuinit

import "errors"

// ErrNoDevice is what Probe returns where no GPU can be used.
var ErrNoDevice = errors.New("gpuinit: no usable GPU: this build has no CUDA support; run with --device=cpu")

// Device is a GPU that can be used.
type Device struct {
	Index  int
	Name   string
	Memory uint64 // bytes
}

// Probe lists the GPUs that this process can use. The error says why there
// are none and what to do; errors.Is(err, ErrNoDevice).
func Probe() ([]Device, error) { return nil, ErrNoDevice }
