package gpuinit

import (
	"strings"
	"testing"
)

func TestUsageAdvice(t *testing.T) {
	for mean, want := range map[float64]string{49.9: "raise --prediction_batch_size", 50: "", 95: "", 95.1: "more GPUs"} {
		u := Usage{Device: Device{Index: 3, Name: "A"}, Utilisation: Value{N: 1, Mean: mean}}
		got := u.Advice()
		if (got == "") != (want == "") || !strings.Contains(got, want) || want != "" && !strings.HasPrefix(got, "GPU 3 A worked ") {
			t.Errorf("at %g %%: %q, want %q", mean, got, want)
		}
	}
	if got := (&Usage{}).Advice(); got != "" {
		t.Errorf("without utilisation: %q", got)
	}
}

func TestUsageValue(t *testing.T) {
	var v Value
	for _, x := range []float64{4, -1, 6} {
		v.add(x)
	}
	if v != (Value{3, 3, -1, 6}) {
		t.Errorf("%+v", v)
	}
}
