//go:build !cuda || !cgo

package gpuinit

import "testing"

func TestPipeline(t *testing.T) {
	for program, want := range map[string]string{"bin/gpucheck": "gpucheck", "/x/profile.exe": "profile", "evaluate": "evaluate", "predict-cuda": "predict", "train": "train", "linnet": "predict"} {
		if got := pipeline([]string{program, "--device=cuda"}); got != want {
			t.Errorf("of %s: %s, want %s", program, got, want)
		}
	}
	if got := pipeline(nil); got != "predict" {
		t.Errorf("of nothing: %s", got)
	}
}
