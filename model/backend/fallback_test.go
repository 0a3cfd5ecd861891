package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// failing is a Scorer on a device that fails when it is told to, in the middle
// of writing its probabilities.
type failing struct {
	model.MultiScorer
	err   error
	calls int
}

func (f *failing) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	f.calls++
	if f.err != nil {
		for i := range probs[:len(probs)/2] {
			probs[i] = -1
		}
		return f.err
	}
	return f.MultiScorer.ScoreAll(ctx, batches, probs)
}

func TestFallback(t *testing.T) {
	w := modeltest.Weights(modeltest.Config(20, 4, 3, 5, 1, 3, 0), 1)
	one := modeltest.Batch(w.Config, 1, 9, []model.ContextWindow{{}, {Len: 9}})
	two := modeltest.Batch(w.Config, 1, 9, []model.ContextWindow{{Len: 4}, {First: 4, Len: 5}})
	onCPU, err := cpu.New(w)
	if err != nil {
		t.Fatal(err)
	}
	lost := fmt.Errorf("GPU 0: %w", model.ErrDeviceLost)
	full := fmt.Errorf("GPU 0: %w", model.ErrOutOfMemory)
	other := fmt.Errorf("GPU 0: a bug")
	cases := map[string]struct {
		batch *model.Batch
		err   error
		want  error
		calls int    // of the GPU, for two calls of Score
		log   string // said once
	}{
		"works":               {two, nil, nil, 2, ""},
		"lost":                {two, lost, nil, 1, "device auto: GPU 0: model: device lost; using the CPU from here on\n"},
		"one window too many": {one, full, nil, 2, "device auto: GPU 0: model: out of memory; using the CPU for windows that large\n"},
		"halves may fit":      {two, full, full, 2, ""},
		"another error":       {two, other, other, 2, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			gpu := &failing{MultiScorer: onCPU, err: tc.err}
			s := newWithFallback(gpu, w, func(level int, format string, args ...any) {
				if level == 1 {
					fmt.Fprintf(&log, format+"\n", args...)
				}
			})
			want := make([]float32, tc.batch.NumSteps()*3)
			if err := onCPU.Score(t.Context(), tc.batch, want); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got := make([]float32, len(want))
				if err := s.Score(t.Context(), tc.batch, got); err != tc.want {
					t.Fatalf("Score() = %v, want %v", err, tc.want)
				}
				if tc.want == nil && !slices.Equal(got, want) {
					t.Errorf("probabilities %v, want %v", got, want)
				}
			}
			if gpu.calls != tc.calls {
				t.Errorf("%d calls of the GPU, want %d", gpu.calls, tc.calls)
			}
			if log.String() != tc.log {
				t.Errorf("log %q, want %q", log.String(), tc.log)
			}
		})
	}
}
