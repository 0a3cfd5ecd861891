//go:build cuda && cgo

package gpuinit

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gorgonia.org/cu"
)

// A test of Init is a process of its own, since CUDA starts once a process: the
// test's program again, with the libraries of scripts/standin before the real
// ones. What it is to do and what came of it travel as JSON.
type (
	task struct {
		Options Options
		Twice   bool   // Init, Close, Init
		Late    bool   // Init, of which the context ends first, Init when CUDA came back
		Steal   bool   // and between the two another takes card 0
		Meet    string // folder, where Close waits for as many processes
		Number  int    // that have GPUs, were refused or wait
	}
	outcome struct {
		Devices []Device
		Err     string
		Kinds   []string
		Log     []string
	}
)

var kinds = map[string]error{"none": ErrNoDevice, "driver": ErrNoDriver, "old": ErrOldDriver, "broken": ErrBroken, "hangs": ErrHangs,
	"invisible": ErrInvisible, "capability": ErrCapability, "busy": ErrBusy, "memory": ErrMemory}

func TestMain(m *testing.M) {
	if text := os.Getenv("GPUINIT_TASK"); text != "" {
		var job task
		if err := json.Unmarshal([]byte(text), &job); err != nil {
			panic(err)
		}
		os.Setenv("TMPDIR", os.DevNull) // package runners moves it, too; leases stay
		if err := json.NewEncoder(os.Stdout).Encode(job.do()); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func (j task) do() (out outcome) {
	var mu sync.Mutex
	j.Options.Log = func(level int, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		out.Log = append(out.Log, fmt.Sprintf(format, args...))
		if strings.HasPrefix(format, "waiting for a GPU") {
			j.met()
		}
	}
	if j.Late {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/4)
		defer cancel()
		if _, err := Init(ctx, j.Options); !errors.Is(err, context.DeadlineExceeded) {
			panic(err)
		}
		time.Sleep(2 * time.Second)
	}
	if j.Steal {
		m, err := Probe(context.Background())
		if err != nil {
			panic(err)
		}
		if _, _, err := lease(context.Background(), leases, m.Devices[:1], j.Options, j.Options.Log); err != nil {
			panic(err)
		}
	}
	gpus, err := Init(context.Background(), j.Options)
	if err == nil && j.Twice {
		if err := gpus.Close(); err != nil {
			panic(err)
		}
		gpus, err = Init(context.Background(), j.Options)
	}
	j.met()
	if err != nil {
		out.Err = err.Error()
		for name, kind := range kinds {
			if errors.Is(err, kind) {
				out.Kinds = append(out.Kinds, name)
			}
		}
		return out
	}
	for i, d := range gpus.Devices {
		ctx, err := cu.Device(d.Ordinal).MakeContext(cu.SchedAuto)
		if err != nil {
			out.Err = Explain(err, &gpus.Devices[i]).Error()
			return out
		}
		id, err := cu.Device(d.Ordinal).UUID()
		if err != nil || !strings.HasSuffix(d.UUID, id.String()[1:]) { // GPU-… or MIG-…
			out.Err = fmt.Sprintf("device %d is %s, not %s (%v)", d.Ordinal, id, d.UUID, err)
		}
		ctx.Destroy()
	}
	out.Devices = gpus.Devices
	for len(j.met()) < j.Number {
		time.Sleep(10 * time.Millisecond)
	}
	if err := gpus.Close(); err != nil {
		out.Err = err.Error()
	}
	return out
}

// met says that this process is where it was to meet others, and who is.
func (j task) met() []os.DirEntry {
	if j.Number == 0 {
		return nil
	}
	if err := os.WriteFile(filepath.Join(j.Meet, strconv.Itoa(os.Getpid())), nil, 0o666); err != nil {
		panic(err)
	}
	there, err := os.ReadDir(j.Meet)
	if err != nil {
		panic(err)
	}
	return there
}

// standin is the folder of the libraries that stand in for the driver's.
var standin = sync.OnceValues(func() (string, error) {
	if _, err := exec.LookPath("g++"); err != nil {
		return "", errors.New("no g++ in PATH to build the driver that stands in")
	}
	out, err := exec.Command("../scripts/standin").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("no driver that stands in: scripts/standin: %w: %s", err, exit.Stderr)
	} else if err != nil {
		return "", fmt.Errorf("no driver that stands in: %w", err)
	}
	match := regexp.MustCompile(`(?m)^export LD_LIBRARY_PATH=(.*)$`).FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("scripts/standin printed %q", out)
	}
	return string(match[1]), nil
})

// libraries is standin, or what is missing for it.
func libraries(t *testing.T) string {
	t.Helper()
	dir, err := standin()
	if err != nil {
		t.Skip(err)
	}
	return dir
}

// run does j on a machine that env makes up; locks is the folder of leases.
func run(t *testing.T, j task, locks string, env ...string) outcome {
	t.Helper()
	return runWith(t, j, append([]string{"LD_LIBRARY_PATH=" + libraries(t), "TMPDIR=" + locks}, env...)...)
}

func runWith(t *testing.T, j task, env ...string) outcome {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{"GPUINIT_TASK=" + string(text)}, env...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", env, err)
	}
	var out outcome
	if err := json.Unmarshal(stdout, &out); err != nil {
		t.Fatalf("%q: %v", stdout, err)
	}
	return out
}

// MarshalJSON leaves out what only a process of its own can have.
func (o Options) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"WorkersPerGPU": o.WorkersPerGPU, "Devices": o.Devices, "Wait": o.Wait, "Timeout": o.Timeout})
}

func TestInit(t *testing.T) {
	cases := map[string]struct {
		job   task
		env   []string
		uuids string // ends of the devices' UUIDs
		kind  string
		err   string
		log   string
	}{
		"one":             {env: []string{"STANDIN_DEVICES=1"}, uuids: "00/0", log: "1 GPU(s) available"},
		"eight":           {env: []string{"STANDIN_DEVICES=8"}, uuids: "00/0 01/1 02/2 03/3 04/4 05/5 06/6 07/7", log: "8 GPU(s) available"},
		"two of eight":    {job: task{Options: Options{Devices: 2}}, env: []string{"STANDIN_DEVICES=8"}, uuids: "00/0 01/1"},
		"visible":         {env: []string{"STANDIN_DEVICES=8", "CUDA_VISIBLE_DEVICES=6,3"}, uuids: "03/0 06/1", log: "GPU 0 Stand-in GPU is hidden"},
		"MIG":             {env: []string{"STANDIN_DEVICES=2", "STANDIN_MIG=3"}, uuids: "00/0"},
		"twice":           {job: task{Twice: true}, env: []string{"STANDIN_DEVICES=2"}, uuids: "00/0 01/1"},
		"none":            {env: []string{"STANDIN_DEVICES=0"}, kind: "none", err: "sees no GPU"},
		"no NVML":         {env: []string{"STANDIN_DEVICES=2", "STANDIN_FAIL=nvmlInit_v2:9"}, uuids: "00/0 01/1", log: "driver unknown (CUDA 12.4): 0 Stand-in GPU, 4.0 GiB, compute 8.0;"},
		"no module":       {env: []string{"STANDIN_FAIL=nvmlInit_v2:9,cuInit:100"}, kind: "driver", err: "modprobe nvidia"},
		"broken CUDA":     {env: []string{"STANDIN_FAIL=cuInit:999"}, kind: "broken", err: "CUDA 999"},
		"shared memory":   {env: []string{"STANDIN_DEVICES=1", "STANDIN_FAIL=nvmlDeviceGetMemoryInfo_v2:3"}, uuids: "00/0", log: "0 Stand-in GPU, memory unknown, compute 8.0"},
		"processes":       {env: []string{"STANDIN_PROCESSES=7:1073741824,8:1073741824"}, uuids: "00/0", log: "2 other process(es) hold 2.0 GiB"},
		"two versions":    {env: []string{"STANDIN_FAIL=cuInit:803"}, kind: "broken", err: "of two versions"},
		"no addresses":    {env: []string{"STANDIN_FAIL=cuInit:2"}, kind: "memory", err: "ulimit -v"},
		"no fabric":       {env: []string{"STANDIN_FAIL=cuInit:802"}, kind: "broken", err: "nvidia-fabricmanager"},
		"no room in MPS":  {env: []string{"STANDIN_FAIL=cuInit:808"}, kind: "busy", err: "MPS does not take this process (CUDA 808)"},
		"no NVML, twice":  {job: task{Twice: true}, env: []string{"STANDIN_DEVICES=2", "STANDIN_FAIL=nvmlInit_v2:9"}, uuids: "00/0 01/1", log: "driver unknown (CUDA 12.4)"},
		"no NVML, late":   {job: task{Late: true}, env: []string{"STANDIN_DEVICES=2", "STANDIN_FAIL=nvmlInit_v2:9", "STANDIN_HANG=cuInit:1"}, uuids: "00/0 01/1"},
		"late":            {job: task{Late: true}, env: []string{"STANDIN_DEVICES=2", "STANDIN_HANG=cuInit:1"}, uuids: "00/0 01/1"},
		"late, stolen":    {job: task{Late: true, Steal: true, Options: Options{Devices: 1}}, env: []string{"STANDIN_DEVICES=2", "STANDIN_HANG=cuInit:1"}, kind: "busy", err: "other workers hold the GPU "},
		"NVML hangs":      {job: task{Options: Options{Timeout: time.Second / 2}}, env: []string{"STANDIN_HANG=nvmlInit_v2"}, kind: "hangs", err: "does not answer (asking what GPUs there are, waited 500ms)"},
		"CUDA hangs":      {job: task{Options: Options{Timeout: 3 * time.Second}}, env: []string{"STANDIN_HANG=cuInit"}, kind: "hangs", err: "starting CUDA"},
		"impossible":      {env: []string{"STANDIN_FAIL=nvmlDeviceGetUUID:31337"}, kind: "broken", err: "NVML 31337"},
		"no context":      {env: []string{"STANDIN_FAIL=cuCtxCreate_v2:46"}, err: "busy or takes one process at a time"},
		"no memory":       {env: []string{"STANDIN_FAIL=cuCtxCreate_v2:2", "STANDIN_PROCESSES=7:1073741824"}, err: "out of memory (other processes hold 1.0 GiB)"},
		"CUDA sees fewer": {env: []string{"STANDIN_FAIL=cuDeviceGetCount:3"}, kind: "broken", err: "GPU 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := run(t, tc.job, t.TempDir(), tc.env...)
			if tc.err == "" && out.Err != "" || !strings.Contains(out.Err, tc.err) {
				t.Errorf("error %q, want %q", out.Err, tc.err)
			}
			if tc.kind != "" && !strings.Contains(strings.Join(out.Kinds, " "), tc.kind) {
				t.Errorf("kinds %v, want %v", out.Kinds, tc.kind)
			}
			var uuids []string
			for _, d := range out.Devices {
				uuids = append(uuids, fmt.Sprintf("%s/%d", d.UUID[10:12], d.Ordinal))
			}
			if got := strings.Join(uuids, " "); got != tc.uuids {
				t.Errorf("devices %q, want %q", got, tc.uuids)
			}
			if log := strings.Join(out.Log, "\n"); !strings.Contains(log, tc.log) {
				t.Errorf("log %q lacks %q", log, tc.log)
			}
		})
	}
}

// TestLease: four processes at once share two cards, and wait in turn where
// each card takes one.
func TestLease(t *testing.T) {
	cases := map[string]struct {
		options   Options
		processes int
		perCard   map[string]int // processes by card; the others find all busy
		waited    int
	}{
		"two a card":        {Options{WorkersPerGPU: 2, Devices: 1}, 4, map[string]int{"00": 2, "01": 2, "busy": 0}, 0},
		"one a card":        {Options{WorkersPerGPU: 1, Devices: 1}, 4, map[string]int{"00": 1, "01": 1, "busy": 2}, 0},
		"the first has all": {Options{}, 2, map[string]int{"00": 1, "01": 1, "busy": 1}, 0},
		"waiting":           {Options{WorkersPerGPU: 1, Devices: 1, Wait: true}, 4, map[string]int{"busy": 0}, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks, meet := t.TempDir(), t.TempDir()
			outs := make([]outcome, tc.processes)
			var all sync.WaitGroup
			for i := range outs {
				all.Go(func() {
					outs[i] = run(t, task{Options: tc.options, Meet: meet, Number: tc.processes}, locks, "STANDIN_DEVICES=2")
				})
			}
			all.Wait()
			got, waited := map[string]int{}, 0
			for _, out := range outs {
				if strings.Contains(strings.Join(out.Log, "\n"), "waiting for a GPU: other workers hold the 2 GPUs (--workers_per_gpu=1)") {
					waited++
				}
				for _, d := range out.Devices {
					got[d.UUID[10:12]]++
				}
				if len(out.Devices) == 0 {
					got["busy"]++
					if !strings.Contains(out.Err, "other workers hold") {
						t.Errorf("error %q", out.Err)
					}
				}
			}
			for card, n := range tc.perCard {
				if got[card] != n {
					t.Errorf("%s: %d, want %d", card, got[card], n)
				}
			}
			if waited != tc.waited {
				t.Errorf("%d waited, want %d", waited, tc.waited)
			}
			if rest, _ := filepath.Glob(filepath.Join(locks, "linnet-gpu", "*.lock")); len(rest) == 0 {
				t.Error("no locks in TMPDIR")
			}
		})
	}
}

// TestLeaseOfTheDead: a process that is killed leaves nothing behind.
func TestLeaseOfTheDead(t *testing.T) {
	dir := t.TempDir()
	devices := []Device{{UUID: "GPU-1"}, {UUID: "GPU-2"}}
	logf := func(int, string, ...any) {}
	first, release, err := lease(t.Context(), dir, devices, Options{}, logf)
	if err != nil || len(first) != 2 {
		t.Fatal(first, err)
	}
	if _, _, err := lease(t.Context(), dir, devices, Options{}, logf); !errors.Is(err, ErrBusy) {
		t.Fatalf("error %v, want %v", err, ErrBusy)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	if _, _, err := lease(ctx, dir, devices, Options{Wait: true}, logf); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want that of the context", err)
	}
	if err := release(); err != nil { // as the kernel does for a process that ends
		t.Fatal(err)
	}
	second, release, err := lease(t.Context(), dir, devices[:1], Options{}, logf)
	if err != nil || len(second) != 1 {
		t.Fatal(second, err)
	}
	defer release()
	third, release3, err := lease(t.Context(), dir, devices, Options{Devices: 1, WorkersPerGPU: 2}, logf)
	if err != nil || len(third) != 1 || third[0].UUID != "GPU-2" {
		t.Fatalf("%v, %v, want the card that nobody has", third, err)
	}
	defer release3()
}

// TestLeaseFolder: whoever makes the folder of leases opens it to other users. One that is
// there keeps its mode, as what a stranger's link in /tmp leads to.
func TestLeaseFolder(t *testing.T) {
	theirs := t.TempDir()
	if err := os.Chmod(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(theirs, link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]os.FileMode{
		filepath.Join(t.TempDir(), "a", "b"): os.ModeDir | os.ModeSticky | 0o777,
		link:                                 os.ModeDir | 0o700,
	} {
		_, release, err := lease(t.Context(), dir, []Device{{UUID: "GPU-1"}}, Options{}, func(int, string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if info, err := os.Stat(dir); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", dir, info.Mode(), err, want)
		}
	}
}

// TestLeaseFiles: users with other umasks can take turns, and a lock that cannot be opened
// leaves none of the others taken.
func TestLeaseFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "locks")
	devices, logf := []Device{{UUID: "GPU-1"}}, func(int, string, ...any) {}
	_, release, err := lease(t.Context(), dir, devices, Options{WorkersPerGPU: 2}, logf)
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v, want three files", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: mode %v, %v, want 0644", f.Name(), info.Mode(), err)
		}
	}
	second := filepath.Join(dir, "GPU-1.1.lock")
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), second); err != nil {
		t.Fatal(err)
	}
	if _, _, err := lease(t.Context(), dir, devices, Options{WorkersPerGPU: 2}, logf); err == nil || errors.Is(err, ErrBusy) {
		t.Fatalf("error %v, want that of the link", err)
	}
	_, release, err = lease(t.Context(), dir, devices, Options{}, logf)
	if err != nil {
		t.Fatalf("the first slot: %v", err)
	}
	release()
}

// TestNoDriver: without libraries Init fails in one line and the process lives.
func TestNoDriver(t *testing.T) {
	if err := libnvml.Open(); err == nil {
		t.Skip("this machine has a driver")
	}
	for _, env := range []string{"A=1", "LD_BIND_NOW=1"} {
		out := runWith(t, task{}, env, "TMPDIR="+t.TempDir())
		if !strings.Contains(out.Err, "no NVIDIA driver") || strings.Contains(out.Err, "\n") || !strings.Contains(out.Err, "--device=cpu") {
			t.Errorf("%s: error %q", env, out.Err)
		}
	}
}

// TestNoCUDA: a container may be given NVML and no libcuda.
func TestNoCUDA(t *testing.T) {
	all, dir := libraries(t), t.TempDir()
	if err := os.Symlink(filepath.Join(all, "libnvidia-ml.so.1"), filepath.Join(dir, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), nil, 0o666); err != nil { // before the machine's own
		t.Fatal(err)
	}
	out := runWith(t, task{}, "LD_LIBRARY_PATH="+dir, "TMPDIR="+t.TempDir())
	if !strings.Contains(out.Err, "comes without CUDA: ") || !strings.Contains(out.Err, "NVIDIA_DRIVER_CAPABILITIES=") || strings.Contains(out.Err, "\n") {
		t.Errorf("error %q", out.Err)
	}
}

// TestSymbols: the program asks the loader for nothing of the driver.
func TestSymbols(t *testing.T) {
	file, err := elf.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	imported, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	driver := regexp.MustCompile(`^(cu|nvml)[A-Z]`)
	for _, s := range imported {
		if s.Section == elf.SHN_UNDEF && driver.MatchString(s.Name) {
			t.Errorf("%s is asked of the loader; run go generate ./gpuinit", s.Name)
		}
	}
	libs, err := file.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range libs {
		if strings.Contains(lib, "cuda") || strings.Contains(lib, "nvidia") {
			t.Errorf("linked with %s", lib)
		}
	}
}

// number is an error of CUDA's that package cu has no name for.
type number int

func (n number) Error() string { return fmt.Sprint("CUDA ", int(n)) }

func TestExplain(t *testing.T) {
	d := &Device{Index: 3, Name: "T4", Major: 7, Minor: 5, Processes: []Process{{7, 2 << 30}}}
	for _, tc := range []struct {
		err  error
		kind error
		text string
	}{
		{cu.OutOfMemory, ErrMemory, "GPU 3 T4 is out of memory (other processes hold 2.0 GiB); end what holds its memory (nvidia-smi lists it), or use --device=cpu"},
		{fmt.Errorf("opening: %w", cu.InvalidDevice), ErrBusy, "nvidia-smi -i 3"},
		{cu.NoBinaryForGpu, ErrCapability, "7.5"},
		{cu.InvalidPtx, ErrOldDriver, "install driver 410"},
		{number(jitDisabled), ErrBroken, "unset CUDA_DISABLE_PTX_JIT"},
		{number(809), ErrBusy, "MPS does not take this process's work on GPU 3 T4 (CUDA 809)"}, // of a context
		{number(810), ErrBusy, "echo quit | nvidia-cuda-mps-control"},                          // of any call: the server ended its clients
		{cu.LaunchFailed, ErrBroken, "Xid"},
		{errors.New("other"), ErrBroken, "other"},
	} {
		err := Explain(tc.err, d)
		if !errors.Is(err, tc.kind) || !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("Explain(%v) = %v, want %v and %q", tc.err, err, tc.kind, tc.text)
		}
		if again := Explain(fmt.Errorf("x: %w", err), d); !errors.Is(again, tc.kind) {
			t.Errorf("explained twice: %v", again)
		}
	}
}
