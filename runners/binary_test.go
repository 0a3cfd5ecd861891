package runners

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestWorkerBinary(t *testing.T) {
	for env, empty := range map[string]bool{"process": true, "EXTERNAL": true, "loopback": false} {
		set(t, map[string]string{"environment_type": env, "worker_binary": ""})
		if err := workerBinary(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		binary := flag.Lookup("worker_binary").Value.String()
		info, err := os.Stat(binary)
		if empty != (err == nil) || err == nil && info.Size() > 0 {
			t.Errorf("%s: worker binary %q: %v", env, binary, err)
		}
		set(t, map[string]string{"worker_binary": "/mine"})
		if err := workerBinary(t.Context(), "/none"); err != nil || flag.Lookup("worker_binary").Value.String() != "/mine" {
			t.Errorf("%s: --worker_binary is not kept: %v", env, err)
		}
	}
}

// TestBuildWorker starts what containers get of a program that is linked with libraries.
func TestBuildWorker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "worker")
	if err := buildWorker(t.Context(), file, "github.com/linnet-ml/linnet/examples/linear"); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		if out, err := exec.Command(file, "--help").CombinedOutput(); !strings.Contains(string(out), "-input") {
			t.Errorf("the worker is no program: %v, %s", err, out)
		}
	}
	const library, none = "github.com/linnet-ml/linnet/model", "example.org/none"
	for pkg, want := range map[string]string{library: "(it is no program)", none: "(no required module provides package " + none} {
		err := buildWorker(t.Context(), file, pkg)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "go build -o worker "+pkg+", and add --worker_binary=worker") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", pkg, err, want)
		}
	}
}
