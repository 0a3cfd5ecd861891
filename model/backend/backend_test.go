//go:build !cuda || !cgo

package backend

import (
	"context"
	"errors"
	"testing"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
)

func TestNew(t *testing.T) {
	valid := modeltest.Weights(modeltest.Config(20, 4, 3, 5, 1, 3, 0), 1)
	invalid := *valid
	invalid.OutputBias = nil
	noGPU := `gpuinit: this build has no CUDA; make one with: eval "$(scripts/cuda-env --header)" && go build -tags cuda -o bin/ ./pipelines/predict`
	cases := map[string]struct {
		device      string
		w           *model.Weights
		reason, err string
	}{
		"cpu":     {CPU, valid, "", ""},
		"auto":    {Auto, valid, "device auto: " + noGPU + "; using the CPU", ""},
		"cuda":    {CUDA, valid, "", "backend: device cuda: " + noGPU},
		"unknown": {"tpu", valid, "", `backend: device: "tpu"; it must be cpu, auto or cuda`},
		"empty":   {"", valid, "", `backend: device: ""; it must be cpu, auto or cuda`},
		"invalid": {CPU, &invalid, "", "model: output.bias: 0 numbers; the config asks for 3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, reason, err := New(t.Context(), Options{Device: tc.device}, tc.w)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err || s != nil {
					t.Fatalf("New() = %v, error %v, want no Scorer and %q", s, err, tc.err)
				}
				if got, want := errors.Is(err, gpuinit.ErrNotBuilt), tc.device == CUDA; got != want {
					t.Errorf("errors.Is(err, gpuinit.ErrNotBuilt) = %v, want %v", got, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if reason != tc.reason {
				t.Errorf("reason = %q, want %q", reason, tc.reason)
			}
			b := modeltest.Batch(tc.w.Config, 1, 2, []model.ContextWindow{{Len: 2}})
			if err := s.Score(context.Background(), b, make([]float32, 6)); err != nil {
				t.Error(err)
			}
		})
	}
}
