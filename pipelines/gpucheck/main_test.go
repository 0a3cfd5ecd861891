package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/store"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"gpucheck": main}) }

func TestScripts(t *testing.T) {
	output := bucket(t)
	setup := func(env *testscript.Env) error {
		env.Setenv("BUCKET", output)
		env.Setenv("STORAGE_EMULATOR_HOST", os.Getenv("STORAGE_EMULATOR_HOST"))
		return nil
	}
	clitest.Scripts(t, "asking ", setup, nil)
}

// TestGolden holds golden.json to the case of the repository's goldens.
func TestGolden(t *testing.T) {
	got := golden()
	for _, want := range modeltest.Goldens(t) {
		if want.Name == got.Name {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if string(a) != string(b) {
				t.Error("golden.json is not the case of testdata/goldens/model.json")
			}
			return
		}
	}
	t.Errorf("no golden is called %q", got.Name)
}

func TestCompareSums(t *testing.T) {
	_, a, b := operands()
	want := product(a, b)
	right := make([]float32, len(want))
	for i, v := range want {
		right[i] = float32(v)
		if float64(right[i]) != v {
			t.Fatalf("number %d, %g, is none of float32", i, v)
		}
	}
	wrong := slices.Clone(right)
	wrong[len(wrong)-1] += 1. / 512
	cases := map[string]struct {
		sum     float32
		product []float32
		off     float64
		wrong   bool
	}{
		"right":         {15, right, 0, false},
		"sum":           {14, right, 1, true},
		"last number":   {15, wrong, 0, true},
		"too far":       {15, wrong, 1. / 513, true},
		"not too far":   {15, wrong, 1. / 512, false},
		"short product": {15, right[1:], 1, true},
	}
	for name, tc := range cases {
		if err := compareSums(tc.sum, tc.product, want, tc.off); errors.Is(err, errWrong) != tc.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckLSTM has a model with one weight changed fail.
func TestCheckLSTM(t *testing.T) {
	for name, change := range map[string]func(*model.Weights){
		"right": func(*model.Weights) {},
		"wrong": func(w *model.Weights) { w.OutputBias[0] += .01 },
	} {
		w, _ := golden().Model()
		change(w)
		s, err := cpu.New(w)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkLSTM(s, 2e-3); errors.Is(err, errWrong) != (name == "wrong") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckCPU finds every instruction set of this machine right, whatever its
// products round.
func TestCheckCPU(t *testing.T) {
	for _, isa := range kernel.ISAs() {
		restore, _ := kernel.SwitchISA(isa)
		if err := checkCPU(&device{}); err != nil {
			t.Errorf("%s: %v", isa, err)
		}
		restore()
	}
}

// bucket is a gs:// prefix on a server of this test.
func bucket(t *testing.T) string {
	t.Helper()
	server := clitest.Storage(t, "b")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	return "gs://b/checks"
}

// TestAnswer has two processes, as two folders' names of one place stand for
// them, wait for each other, and a third that never comes.
func TestAnswer(t *testing.T) {
	for name, output := range map[string]func(*testing.T) string{"disk": (*testing.T).TempDir, "gs": bucket} {
		t.Run(name, func(t *testing.T) {
			folder := store.Join(output(t), "answers")
			fn := func(workers int) *checkFn {
				return &checkFn{Folder: transforms.Path(folder), Workers: workers, Timeout: 3 * time.Second, Device: "cpu"}
			}
			errs := make(chan error)
			for range 2 {
				go func() {
					_, err := fn(2).answer(t.Context())
					errs <- err
				}()
			}
			for range 2 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			answers, err := read(t.Context(), folder)
			if err != nil || len(answers) != 2 {
				t.Fatalf("%d answers, %v; want 2", len(answers), err)
			}
			if answers[0].ID == answers[1].ID {
				t.Error("two answers with one name")
			}
			remove(t.Context(), folder)
			if left, err := read(t.Context(), folder); len(left) > 0 || err == nil {
				t.Errorf("%d answers are there still: %v", len(left), err)
			}
			id, err := fn(3).answer(t.Context()) // waits in vain
			if err != nil {
				t.Fatal(err)
			}
			if answers, err = read(t.Context(), folder); err != nil || len(answers) != 1 || answers[0].ID != id {
				t.Fatalf("%d answers, %v; want 1", len(answers), err)
			}
			o := &options{workers: 3, timeout: 3 * time.Second}
			if err := o.judge(answers); err == nil || !strings.Contains(err.Error(), "1 of 3 worker processes answered within 3s") {
				t.Errorf("judge() = %v", err)
			}
		})
	}
}

// TestAskAgain has a process that could not write its answer, or stopped waiting for the
// others, be asked again when the bundle is tried again; it counts once.
func TestAskAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "output")
	if err := os.WriteFile(dir, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "answers")
	fn := &checkFn{Folder: transforms.Path(folder), Workers: 2, Timeout: time.Second, Device: "cpu"}
	if err := fn.ProcessElement(t.Context(), 0); err == nil {
		t.Fatal("an answer below a file was written")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := fn.ProcessElement(stopped, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want %v", err, context.Canceled)
	}
	if err := fn.ProcessElement(t.Context(), 0); err != nil {
		t.Errorf("a retry: %v", err)
	}
	if answers, err := read(t.Context(), folder); err != nil || len(answers) != 1 {
		t.Errorf("%d answers, %v; want 1", len(answers), err)
	}
}

// TestReadUnlisted has an answer that the listing of its folder could not look at,
// as on a network disk that fails for a moment: that is told, and not what a second
// look says.
func TestReadUnlisted(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.json"), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nothing", filepath.Join(folder, "b.json")); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	if _, err := read(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "b.json: link to nothing") {
		t.Errorf("got %v, want what the listing says", err)
	}
}

// TestCurrent leaves out the answers of an attempt that failed.
func TestCurrent(t *testing.T) {
	ids := func(counters map[string]int64) string {
		var ids []string
		for _, a := range current([]answer{{ID: "A"}, {ID: "B"}, {ID: "C"}}, counters) {
			ids = append(ids, a.ID)
		}
		return strings.Join(ids, " ")
	}
	if got := ids(map[string]int64{answered + "B": 3, answered + "C": 1, "A": 1}); got != "B C" {
		t.Errorf("of B and C: %s", got)
	}
	if got := ids(map[string]int64{"other": 1}); got != "A B C" {
		t.Errorf("without counters: %s", got)
	}
}

func TestJudge(t *testing.T) {
	onCPU := device{Kind: "cpu", Name: "2 cores"}
	gpu := device{Kind: "cuda", Name: "A", First: 1}
	bad, old := gpu, gpu
	bad.Error, bad.Failed = "wrong arithmetic: the sum of 0 to 5 is 7, not 15", true
	old.Error = "too old"
	cases := map[string]struct {
		device  string
		answers []answer
		want    string // in the error; "" for none
		each    string // --worker_gpu
	}{
		"CPU is enough":      {"auto", []answer{{Devices: []device{onCPU}, NoGPU: "none"}}, "", "0"},
		"GPU wanted":         {"cuda", []answer{{Devices: []device{onCPU, gpu}}, {PID: 7, Host: "h", Devices: []device{onCPU}, NoGPU: "no driver"}}, "process 7 on h has no GPU that works: no driver", "0"},
		"GPU there":          {"cuda", []answer{{Devices: []device{onCPU, old, gpu}}}, "", "0"},
		"GPU too old":        {"cuda", []answer{{Devices: []device{onCPU, old}}}, "too old", "0"},
		"old one, unneeded":  {"auto", []answer{{Devices: []device{onCPU, old}}}, "", "0"},
		"wrong":              {"auto", []answer{{Devices: []device{onCPU, bad}}}, "GPU 0 A: wrong arithmetic", "0"},
		"worker_gpu":         {"auto", []answer{{Devices: []device{onCPU, gpu}}, {PID: 7, Host: "h", Devices: []device{onCPU}, NoGPU: "no driver"}}, "process 7 on h has no GPU that works: no driver", "1"},
		"worker_gpu, one":    {"auto", []answer{{Devices: []device{onCPU, gpu}}}, "", "1"},
		"worker_gpu, a few":  {"auto", []answer{{PID: 7, Host: "h", Devices: []device{onCPU, gpu, gpu, old}}}, "process 7 on h has 2 of 4 GPUs (--worker_gpu): too old", "4"},
		"worker_gpu, hidden": {"auto", []answer{{PID: 7, Host: "h", Devices: []device{onCPU, gpu}}}, "1 of 2 GPUs (--worker_gpu): the driver shows no other", "2"},
	}
	flags := flag.NewFlagSet("", flag.PanicOnError)
	flags.String("runner", "", "")
	runners.Define(flags)
	defer flags.Set("worker_gpu", "0")
	for name, tc := range cases {
		flags.Set("worker_gpu", tc.each)
		err := (&options{device: tc.device, workers: 1}).judge(tc.answers)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
