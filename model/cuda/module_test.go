//go:build cuda && cgo

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOnly takes every kernel of every PTX file out alone, all of them, and every
// second, which ptxas accepts where scripts/cuda-env has it.
func TestOnly(t *testing.T) {
	entries := regexp.MustCompile(`\.entry (\w+)\(`)
	for name, ptx := range map[string]string{"kernels_70": ptx70, "kernels_80": ptx80, "kernels_90": ptx90, "train_70": trainPTX70, "train_80": trainPTX80} {
		t.Run(name, func(t *testing.T) {
			all, second := map[string]bool{}, map[string]bool{}
			for i, m := range entries.FindAllStringSubmatch(ptx, -1) {
				all[m[1]] = true
				if i%2 == 1 {
					second[m[1]] = true
				}
				one := only(ptx, map[string]bool{m[1]: true})
				if got := entries.FindAllStringSubmatch(one, -1); len(got) != 1 || got[0][1] != m[1] {
					t.Fatalf("%s: got %v", m[1], got)
				}
				if strings.Count(one, "\n}\n") != 1 || !strings.Contains(one, ".version") {
					t.Errorf("%s: more than it, or less", m[1])
				}
			}
			if len(all) < 10 || only(ptx, all) != ptx {
				t.Errorf("the %d kernels are not the file", len(all))
			}
			home := os.Getenv("LINNET_CUDA")
			if home == "" {
				t.Skip(`no ptxas: eval "$(scripts/cuda-env)" brings one`)
			}
			part := filepath.Join(t.TempDir(), "part.ptx")
			if err := os.WriteFile(part, []byte(only(ptx, second)), 0o666); err != nil {
				t.Fatal(err)
			}
			ptxas := exec.Command(filepath.Join(home, "nvidia/cuda_nvcc/bin/ptxas"), "-arch=sm_"+name[len(name)-2:], "-o", part+".cubin", part)
			if out, err := ptxas.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
