package cli

import (
	"testing"

	"github.com/linnet-ml/linnet/gpuinit"
)

func TestCheckDevice(t *testing.T) {
	for _, c := range []struct {
		device       string
		size, stride int
		ok           bool
	}{
		{"cpu", -1, 0, true}, {"auto", 0, 0, true}, {"cpu", 80, 40, true}, {"cpu", 80, 80, true},
		{"cuda", -1, 0, gpuinit.Built() == nil}, {"gpu", -1, 0, false}, {"cpu", -2, 0, false}, {"cpu", 80, 81, false}, {"cpu", -1, 5, false}, {"cpu", 0, 5, false}, {"cpu", 80, -1, false},
	} {
		if err := CheckDevice(c.device, false, c.size, c.stride); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestChecks(t *testing.T) {
	for level, ok := range map[int]bool{-1: false, 0: true, 3: true, 4: false} {
		if err := CheckVerbosity(level); (err == nil) != ok {
			t.Errorf("--verbosity=%d: %v", level, err)
		}
	}
	for status, ok := range map[int]bool{-1: false, 0: true, 125: true, 126: false} {
		if err := CheckStatus(status); (err == nil) != ok {
			t.Errorf("--rejected_exit_status=%d: %v", status, err)
		}
	}
	for _, c := range []struct {
		precision, device string
		ok                bool
	}{
		{"", "cpu", true}, {"float32", "cpu", true}, {"float16", "cpu", false}, {"", "cuda", true},
		{"float16", "cuda", true}, {"float16", "auto", true}, {"float32", "auto", true}, {"bfloat16", "cuda", false},
	} {
		if err := CheckPrecision(c.precision, c.device); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
