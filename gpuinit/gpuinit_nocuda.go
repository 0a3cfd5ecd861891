//go:build !cuda || !cgo

package gpuinit

import (
	"context"
	"time"
)

var errNotBuilt = &Error{Kind: ErrNotBuilt, What: "this build has no CUDA", Remedy: `make one with: eval "$(scripts/cuda-env)" && go build -tags cuda -o bin/ ./pipelines/predict`}

func built() error                                           { return errNotBuilt }
func probe(context.Context, time.Duration) (*Machine, error) { return nil, errNotBuilt }
func initialise(context.Context, Options) (*GPUs, error)     { return nil, errNotBuilt }
func explain(err error, _ *Device) error                     { return err }

func newMonitor([]Device, time.Duration, func() bool) *Monitor {
	m := &Monitor{over: make(chan struct{})}
	close(m.over)
	return m
}
