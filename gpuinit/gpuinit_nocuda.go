//go:build !cuda || !cgo

package gpuinit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var errNotBuilt = &Error{Kind: ErrNotBuilt, What: "this build has no CUDA", Remedy: `make one with: eval "$(scripts/cuda-env --header)" && go build -tags cuda -o bin/ ./pipelines/` + pipeline(os.Args)}

// pipeline is the name of the program, or predict where it is none that can have
// CUDA.
func pipeline(args []string) string {
	if len(args) > 0 {
		name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
		if slices.Contains([]string{"evaluate", "profile", "gpucheck", "train"}, name) {
			return name
		}
	}
	return "predict"
}

func built() error                                           { return errNotBuilt }
func probe(context.Context, time.Duration) (*Machine, error) { return nil, errNotBuilt }
func initialise(context.Context, Options) (*GPUs, error)     { return nil, errNotBuilt }
func hangs(string, time.Duration) error                      { return errNotBuilt }
func freeMemory(*Device) uint64                              { return 0 }
func explain(err error, _ *Device) error                     { return err }

func newMonitor([]Device, time.Duration, func() bool) *Monitor {
	m := &Monitor{over: make(chan struct{})}
	close(m.over)
	return m
}
