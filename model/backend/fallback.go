package backend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
)

// withFallback is a Scorer on GPUs that falls back on the CPU, for auto: a call that
// the GPUs cannot serve is scored there, all of it, and the caller sees no error but
// model.ErrOutOfMemory for several windows, half of which may fit. With a split
// the CPU takes some of the other calls too.
type withFallback struct {
	model.MultiScorer
	fallback func() (*cpu.Scorer, error)
	split    *split // nil where the CPU only serves as the fallback
	log      func(level int, format string, args ...any)
	lost     atomic.Bool
	small    sync.Once // one line on windows that do not fit
}

func newWithFallback(s model.MultiScorer, w *model.Weights, log func(level int, format string, args ...any)) *withFallback {
	if log == nil {
		log = func(int, string, ...any) {}
	}
	return &withFallback{MultiScorer: s, log: log, fallback: sync.OnceValues(func() (*cpu.Scorer, error) { return cpu.New(w) })}
}

// Score implements model.Scorer.
func (s *withFallback) Score(ctx context.Context, b *model.Batch, probs []float32) error {
	return s.ScoreAll(ctx, []*model.Batch{b}, probs)
}

// ScoreAll implements model.MultiScorer.
func (s *withFallback) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	_, err := s.ScoreOn(ctx, batches, probs)
	return err
}

// ScoreOn is ScoreAll, and says whether the batches were scored on a GPU.
func (s *withFallback) ScoreOn(ctx context.Context, batches []*model.Batch, probs []float32) (onGPU bool, err error) {
	var lines int // for the split
	var begin time.Time
	if !s.lost.Load() {
		onGPU = true
		if s.split != nil {
			for _, b := range batches {
				lines += b.NumSteps()
			}
			onGPU = !s.split.onCPU(lines)
			begin = s.split.now()
			defer func() { s.split.done(lines, !onGPU, begin, err != nil) }()
		}
		if onGPU {
			err := s.MultiScorer.ScoreAll(ctx, batches, probs)
			switch {
			case errors.Is(err, model.ErrDeviceLost):
				if !s.lost.Swap(true) {
					s.log(1, "device auto: %v; using the CPU from here on", err)
				}
			case errors.Is(err, model.ErrOutOfMemory) && windows(batches) <= 1:
				// No half of it can be tried. The GPU goes on with the others.
				s.small.Do(func() { s.log(1, "device auto: %v; using the CPU for windows that large", err) })
			default:
				return true, err
			}
			if s.split != nil {
				s.split.toCPU(lines)
				begin = s.split.now()
			}
		}
	}
	onCPU, err := s.fallback()
	if err != nil {
		return false, err
	}
	return false, onCPU.ScoreAll(ctx, batches, probs)
}

// Devices are the GPUs.
func (s *withFallback) Devices() []gpuinit.Device {
	if on, ok := s.MultiScorer.(interface{ Devices() []gpuinit.Device }); ok {
		return on.Devices()
	}
	return nil
}

// String says where the Scorer computes.
func (s *withFallback) String() string {
	if s.lost.Load() {
		return "cpu, after the GPU was lost"
	}
	if s.split != nil {
		return fmt.Sprintf("%v, and cpu", s.MultiScorer)
	}
	return fmt.Sprint(s.MultiScorer)
}

func windows(batches []*model.Batch) (n int) {
	for _, b := range batches {
		for _, w := range b.Windows {
			n += min(w.Len, 1)
		}
	}
	return n
}
