// Package pipelines tests the built programs on a real Flink, which
// scripts/check.d/flink starts.
package pipelines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
)

// bin is the folder of the built programs, flinkHome that of scripts/flink.
var bin, flinkHome string

// What scripts/check.d/flink sets.
var (
	kills    = flag.Int("kills", 5, "kill -9 at so many random moments")
	killSeed = flag.Uint64("kill_seed", 1, "of the moments")
)

func TestMain(m *testing.M) {
	runners.Define(flag.CommandLine)
	flag.Parse()
	runners.Init(1)
	bin, flinkHome = os.Getenv("LINNET_BIN"), os.Getenv("LINNET_FLINK_HOME")
	if bin == "" || flinkHome == "" {
		fmt.Println("skipped: no Flink; scripts/check.d/flink starts one")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	endpoint = "localhost:8099"
	rest     = "http://localhost:8081"
)

// environments are the flags with which workers of a program run.
func environments(t *testing.T, program string) map[string][]string {
	t.Helper()
	flags := func(kind, config string) []string {
		return []string{"--runner=flink", "--endpoint=" + endpoint, "--parallelism=2", "--environment_type=" + kind, "--environment_config=" + config}
	}
	return map[string][]string{
		"loopback": flags("LOOPBACK", ""),
		"process":  flags("PROCESS", fmt.Sprintf(`{"command":%q}`, filepath.Join(bin, program))),
		"external": flags("EXTERNAL", startPool(t, program)),
	}
}

// startPool starts a worker pool of a program until the test ends, and returns
// its address.
func startPool(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, program), "--worker_pool=localhost:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	lines.Scan()
	_, address, ok := strings.Cut(lines.Text(), "--environment_config=")
	if !ok || !strings.HasPrefix(address, "127.0.0.1:") {
		t.Fatalf("the pool says %q, want an address on loopback", lines.Text())
	}
	go func() {
		for lines.Scan() {
			t.Log(lines.Text())
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the pool ended with %v", err)
		}
		for _, w := range workers(t, program) {
			if w.parent == cmd.Process.Pid {
				t.Errorf("worker %d outlives its pool", w.id)
			}
		}
	})
	return address
}

// run runs a program to its end.
func run(t *testing.T, program string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	j := start(t, program, args...)
	return j.wait(t)
}

type job struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func start(t *testing.T, program string, args ...string) *job {
	t.Helper()
	j := &job{cmd: exec.Command(filepath.Join(bin, program), args...)}
	j.cmd.Dir = ".." // where the sample is
	j.cmd.Stdout, j.cmd.Stderr = &j.stdout, &j.stderr
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.cmd.Process.Kill() })
	return j
}

func (j *job) wait(t *testing.T) (stdout, stderr string, status int) {
	t.Helper()
	err := j.cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return j.stdout.String(), j.stderr.String(), j.cmd.ProcessState.ExitCode()
}

// must is run for a program that has to succeed.
func must(t *testing.T, program string, args ...string) string {
	t.Helper()
	stdout, stderr, status := run(t, program, args...)
	if status != 0 {
		t.Fatalf("%s %q: exit status %d: %s%s", program, args, status, stdout, stderr)
	}
	return stdout
}

type process struct{ id, parent int }

// workers are the processes that work for a program's jobs.
func workers(t *testing.T, program string) (all []process) {
	t.Helper()
	out, err := exec.Command("ps", "-axww", "-o", "pid=,ppid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != filepath.Join(bin, program) || !strings.Contains(line, "--provision_endpoint=") {
			continue
		}
		id, _ := strconv.Atoi(f[0])
		parent, _ := strconv.Atoi(f[1])
		all = append(all, process{id, parent})
	}
	return all
}

// noWorkers waits until no worker is left but those of before.
func noWorkers(t *testing.T, program string, before []process) {
	t.Helper()
	var left []process
	eventually(t, func() bool {
		left = slices.DeleteFunc(workers(t, program), func(p process) bool { return slices.Contains(before, p) })
		return len(left) == 0
	}, func() string { return fmt.Sprintf("workers are left: %v", left) })
}

func eventually(t *testing.T, ok func() bool, failure func() string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(failure())
		}
	}
}

// documents writes n documents of lines each, from the sample's words.
func documents(t *testing.T, n, lines int) string {
	t.Helper()
	var words []string
	paths, err := filepath.Glob("../testdata/sample/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		words = append(words, strings.Split(string(clitest.ReadFile(t, path)), "\n")...)
	}
	random, dir := rand.New(rand.NewPCG(1, 2)), t.TempDir()
	for i := range n {
		var text bytes.Buffer
		for range lines {
			fmt.Fprintf(&text, "%s %d\n", words[random.IntN(len(words))], random.IntN(1e6))
		}
		path := filepath.Join(dir, strconv.Itoa(i%10), fmt.Sprintf("%04d.txt", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%q differs: %d bytes, want %d", name, len(got[name]), len(text))
			return
		}
	}
}

// done is when each document's record was written.
func done(t *testing.T, output string) map[string]time.Time {
	t.Helper()
	times := map[string]time.Time{}
	err := filepath.WalkDir(filepath.Join(output, transforms.DoneFolder), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			times[path] = info.ModTime()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return times
}

// TestPredict compares the outputs of Flink's workers with those of direct:
// bytes that are no UTF-8, in texts and in names, among them.
func TestPredict(t *testing.T) {
	in := documents(t, 20, 50)
	for name, text := range map[string]string{
		"plain.txt": "Agaricus \xff\xfe nov.\r\n\f\xc3\n\xef\xbf\xbd\n", "é \xe2\x80\x8b.txt": "Pileus 3–5 cm latus", "a\xff\xfeb.txt": "Boletus \x80 Fr.\n",
	} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--input=" + in, "--format=yedda,brat,jsonl,csv,tsv,treatments,html"}
	direct := filepath.Join(t.TempDir(), "direct")
	wantSays := must(t, "predict", append(args, "--output="+direct)...)
	want := clitest.OutputsOf(t, direct)
	before := workers(t, "predict")
	for name, flags := range environments(t, "predict") {
		t.Run(name, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "out")
			says := must(t, "predict", slices.Concat(args, flags, []string{"--output=" + output})...)
			same(t, clitest.OutputsOf(t, output), want)
			if got, want := counts(says), counts(wantSays); got != want {
				t.Errorf("it says\n%s\nwant\n%s", got, want)
			}
			noWorkers(t, "predict", before)
			if says := must(t, "predict", slices.Concat(args, flags, []string{"--output=" + output})...); !strings.Contains(says, "nothing to do, 23 documents done before") {
				t.Errorf("the second run says %s", says)
			}
		})
	}
}

// counts are a summary's lines of labels.
func counts(says string) (lines string) {
	for line := range strings.Lines(says) {
		if strings.HasSuffix(line, "%\n") {
			lines += line
		}
	}
	return lines
}

// TestEvaluate compares the report of Flink's workers with that of direct.
func TestEvaluate(t *testing.T) {
	args := []string{"--input=testdata/annotated"}
	report := func(t *testing.T, flags ...string) (string, map[string]any) {
		dir := filepath.Join(t.TempDir(), "report")
		says := must(t, "evaluate", slices.Concat(args, flags, []string{"--report=" + dir})...)
		var r map[string]any
		if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(dir, "report.json")), &r); err != nil {
			t.Fatal(err)
		}
		delete(r, "seconds")
		return regexp.MustCompile(`[0-9.]+ s`).ReplaceAllString(strings.ReplaceAll(says, dir, "DIR"), "S s"), r
	}
	wantSays, want := report(t)
	for name, flags := range environments(t, "evaluate") {
		t.Run(name, func(t *testing.T) {
			says, got := report(t, flags...)
			if says != wantSays {
				t.Errorf("it says\n%s\nwant\n%s", says, wantSays)
			}
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if !bytes.Equal(a, b) {
				t.Errorf("the report is %s\nwant %s", a, b)
			}
		})
	}
}

// TestGS has workers read from, and write to, buckets, with a model of a third:
// it is fetched once a worker.
func TestGS(t *testing.T) {
	server := clitest.Storage(t, "out")
	var fetched atomic.Int64
	host := clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("alt") == "media" && strings.Contains(r.URL.Path, "weights.safetensors") {
			fetched.Add(1)
		}
		server.HTTPHandler().ServeHTTP(w, r)
	}))
	t.Setenv("STORAGE_EMULATOR_HOST", host)
	in := documents(t, 50, 20)
	clitest.PutFS(t, server, "in", "docs", os.DirFS(in))
	clitest.PutFS(t, server, "models", "m", bundled.FS())
	direct := filepath.Join(t.TempDir(), "direct")
	must(t, "predict", "--input="+in, "--output="+direct)

	config := fmt.Sprintf(`--environment_config={"command":%q,"env":{"STORAGE_EMULATOR_HOST":%q}}`, filepath.Join(bin, "predict"), host)
	must(t, "predict", append(environments(t, "predict")["process"], config, "--input=gs://in/docs/**/*.txt", "--output=gs://out/labelled", "--model_uri=gs://models/m")...)
	objects, err := clitest.Objects(server, "out", "labelled/")
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(objects, func(name, _ string) bool { return strings.HasPrefix(name, "_") }) // records
	same(t, objects, clitest.OutputsOf(t, direct))
	var overview struct{ TaskManagers int64 }
	get(t, "/overview", &overview)
	if n := fetched.Load(); n < 2 || n > 1+overview.TaskManagers {
		t.Errorf("the model was fetched %d times by the launcher and a worker on each of %d TaskManagers", n, overview.TaskManagers)
	}
}

// TestKill kills a worker, and a TaskManager, in mid-job with SIGKILL: the
// result is whole, and what was finished before is not done again.
func TestKill(t *testing.T) {
	in := documents(t, 400, 1000)
	direct := filepath.Join(t.TempDir(), "direct")
	must(t, "predict", "--input="+in, "--output="+direct)
	want := clitest.OutputsOf(t, direct)
	env := environments(t, "predict")
	victims := map[string]struct {
		flags  []string
		victim func(process) int
	}{
		"worker of a TaskManager": {env["process"], func(p process) int { return p.id }},
		"worker of a pool":        {env["external"], func(p process) int { return p.id }},
		"TaskManager":             {env["process"], func(p process) int { return p.parent }},
	}
	taskManagers(t) // one to spare
	idle := workers(t, "predict")
	for _, name := range slices.Sorted(maps.Keys(victims)) {
		v := victims[name]
		t.Run(name, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "out")
			j := start(t, "predict", append(v.flags, "--input="+in, "--output="+output)...)
			var before map[string]time.Time
			eventually(t, func() bool { before = done(t, output); return len(before) >= 20 }, func() string { return "no documents are labelled" })
			if len(before) == 400 {
				t.Fatal("the job was over before the kill; give it more documents")
			}
			killed := slices.DeleteFunc(workers(t, "predict"), func(p process) bool { return slices.Contains(idle, p) })
			if len(killed) == 0 {
				t.Fatal("no worker")
			}
			if err := syscall.Kill(v.victim(killed[0]), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, status := j.wait(t)
			if status != 0 {
				t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
			}
			same(t, clitest.OutputsOf(t, output), want)
			after := done(t, output)
			for path, time := range before {
				if !after[path].Equal(time) {
					t.Fatalf("%s was done again", path)
				}
			}
			if !strings.Contains(stdout, "done before and skipped") {
				t.Errorf("nothing was skipped: %s", stdout)
			}
			noWorkers(t, "predict", idle)
		})
	}
}

// taskManagers starts one more TaskManager.
func taskManagers(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("../scripts/flink", "tm").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestTaskManager starts a TaskManager while Flink still counts one that was just
// killed.
func TestTaskManager(t *testing.T) {
	if err := syscall.Kill(runningTaskManagers(t)[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	taskManagers(t)
}

// TestRandomKills kills the launcher, a worker or a TaskManager with SIGKILL, in
// turn at a moment spread over the run and at a number of documents done, now and
// then several times before a run may finish.
// Every output is whole or absent, and in the end the bytes are an undisturbed
// run's.
func TestRandomKills(t *testing.T) {
	const total = 600
	args := []string{"--input=" + documents(t, total, 150), "--format=yedda,csv,jsonl"}
	direct := filepath.Join(t.TempDir(), "direct")
	must(t, "predict", append(args, "--output="+direct)...)
	want := clitest.OutputsOf(t, direct)
	args = append(args, environments(t, "predict")["process"]...)
	idle := workers(t, "predict")
	begin := time.Now()
	must(t, "predict", append(args, "--output="+filepath.Join(t.TempDir(), "undisturbed"))...)
	took := time.Since(begin)

	r := rand.New(rand.NewPCG(*killSeed, 0))
	output, hit, partial := filepath.Join(t.TempDir(), "0"), map[string]int{}, 0
	for kill := range *kills {
		victim := []string{"launcher", "worker", "TaskManager"}[kill%3]
		moment := time.Duration(r.Float64() * 1.1 * float64(took))
		if victim == "TaskManager" {
			spareTaskManager(t)
		}
		j := start(t, "predict", slices.Concat(args, []string{"--output=" + output})...)
		if kill%2 == 0 && victim != "worker" { // of which there is none before
			time.Sleep(moment)
		} else {
			before := len(done(t, output))
			n := before + int(r.Float64()*float64(total-before))
			eventually(t, func() bool { return len(done(t, output)) >= n }, func() string { return fmt.Sprintf("%d documents are not reached", n) })
		}
		id := 0
		switch victim {
		case "launcher":
			id = j.cmd.Process.Pid
		case "worker":
			if all := slices.DeleteFunc(workers(t, "predict"), func(p process) bool { return slices.Contains(idle, p) }); len(all) > 0 {
				id = all[r.IntN(len(all))].id
			}
		case "TaskManager":
			all := runningTaskManagers(t)
			id = all[r.IntN(len(all))]
		}
		// None before the job begins and after it ends; what is gone since is over too.
		if id != 0 && syscall.Kill(id, syscall.SIGKILL) == nil {
			hit[victim]++
		}
		if n := whole(t, output, want); 0 < n && n < len(want) {
			partial++
		}
		stdout, stderr, status := j.wait(t)
		if status != 0 && (victim != "launcher" || status != -1) {
			t.Errorf("exit status %d: %s%s", status, stdout, stderr)
		}
		whole(t, output, want)
		if t.Failed() {
			t.Fatalf("kill %d, of the %s after %v of %v, seed %d", kill, victim, moment, took, *killSeed)
		}
		if r.IntN(2) == 0 || kill == *kills-1 { // beside a job whose launcher is gone, too
			must(t, "predict", slices.Concat(args, []string{"--output=" + output})...)
			same(t, clitest.OutputsOf(t, output), want)
			eventually(t, func() bool { return running(t) == 0 }, func() string { return "a job does not end" })
			same(t, clitest.OutputsOf(t, output), want)
			whole(t, output, want)
			output = filepath.Join(t.TempDir(), strconv.Itoa(kill+1))
		}
	}
	noWorkers(t, "predict", idle)
	t.Logf("%d kills within %v, seed %d: %v there and killed; %d with some outputs there and some not", *kills, took.Round(time.Millisecond), *killSeed, hit, partial)
}

// whole wants every output whole or absent, and behind every record its outputs;
// it returns how many there are.
func whole(t *testing.T, output string, want map[string]string) int {
	t.Helper()
	records := done(t, output)
	if _, err := os.Stat(output); errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	got := clitest.OutputsOf(t, output)
	for name, text := range got {
		if text != want[name] {
			t.Errorf("%q has %d bytes, want %d, or the file absent", name, len(text), len(want[name]))
		}
	}
	for path := range records {
		var r transforms.Done
		if err := json.Unmarshal(clitest.ReadFile(t, path), &r); err != nil {
			t.Errorf("%s is no whole record: %v", path, err)
		}
		for _, o := range r.Outputs {
			if _, ok := got[filepath.FromSlash(o)]; !ok {
				t.Errorf("%s is done and its output %s absent", r.Document, o)
			}
		}
	}
	return len(got)
}

// runningTaskManagers are the processes of those that scripts/flink started.
func runningTaskManagers(t *testing.T) (ids []int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(flinkHome, "run", "taskmanager-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if id, err := strconv.Atoi(strings.TrimSpace(string(clitest.ReadFile(t, path)))); err == nil && syscall.Kill(id, 0) == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// spareTaskManager waits until Flink has forgotten those that were killed, and
// sees to it that there are two.
func spareTaskManager(t *testing.T) {
	t.Helper()
	var overview struct{ TaskManagers int }
	eventually(t, func() bool {
		get(t, "/overview", &overview)
		return overview.TaskManagers == len(runningTaskManagers(t))
	}, func() string {
		return fmt.Sprintf("Flink has %d TaskManagers, want those that run", overview.TaskManagers)
	})
	if overview.TaskManagers < 2 {
		taskManagers(t)
	}
}

// TestGPUCheck has a worker on each of two or more TaskManagers answer, and
// waits in vain for one more.
func TestGPUCheck(t *testing.T) {
	var overview struct {
		TaskManagers int
		SlotsTotal   int `json:"slots-total"`
	}
	spareTaskManager(t)
	eventually(t, func() bool {
		get(t, "/overview", &overview)
		return overview.TaskManagers >= 2
	}, func() string { return "no second TaskManager" })
	before, n := workers(t, "gpucheck"), overview.TaskManagers
	flags := append(environments(t, "gpucheck")["process"], "--device=cpu", "--json",
		fmt.Sprintf("--parallelism=%d", overview.SlotsTotal), "--output="+t.TempDir())
	type report struct {
		Answered  int
		Error     string
		Processes []struct {
			Host string
			PID  int
		}
	}
	answers := func(stdout string) (r report) {
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("%v: %s", err, stdout)
		}
		distinct := map[int]bool{}
		for _, p := range r.Processes {
			distinct[p.PID] = true
		}
		if r.Answered != n || len(distinct) != n {
			t.Errorf("%d answers of %d processes on %d TaskManagers", r.Answered, len(distinct), n)
		}
		return r
	}
	begin := time.Now()
	r := answers(must(t, "gpucheck", append(flags, fmt.Sprintf("--workers=%d", n))...))
	took := time.Since(begin).Round(time.Second) // a slow machine has longer below
	if r.Error != "" {
		t.Errorf("it fails: %s", r.Error)
	}
	within := max(10*time.Second, 3*took)
	stdout, stderr, status := run(t, "gpucheck", append(flags, fmt.Sprintf("--workers=%d", n+1), fmt.Sprintf("--timeout=%v", within))...)
	want := fmt.Sprintf("linnet: gpucheck: %d of %d worker processes answered within %v", n, n+1, within)
	if status != 1 || !strings.HasPrefix(lastLine(stderr), want) {
		t.Errorf("exit status %d: %s, want 1: %s", status, stderr, want)
	}
	answers(stdout)

	// A worker that is killed while they wait has the job tried again; those of
	// before count no more.
	within = max(15*time.Second, 5*took)
	j := start(t, "gpucheck", append(flags, fmt.Sprintf("--workers=%d", n+1), fmt.Sprintf("--timeout=%v", within))...)
	var there []process
	eventually(t, func() bool {
		there = slices.DeleteFunc(workers(t, "gpucheck"), func(p process) bool { return slices.Contains(before, p) })
		return len(there) == n
	}, func() string { return fmt.Sprintf("workers: %v", there) })
	time.Sleep(time.Second) // until they answered
	if err := syscall.Kill(there[0].id, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status = j.wait(t)
	if want := fmt.Sprintf("linnet: gpucheck: %d of %d worker processes answered within %v", n, n+1, within); status != 1 || !strings.HasPrefix(lastLine(stderr), want) {
		t.Errorf("with one killed: exit status %d: %s, want 1: %s", status, stderr, want)
	}
	answers(stdout)
	noWorkers(t, "gpucheck", before)
}

// TestInterrupt ends a job with ctrl-C and finishes it by a second run.
func TestInterrupt(t *testing.T) {
	in, output, before := documents(t, 400, 2500), filepath.Join(t.TempDir(), "out"), workers(t, "predict")
	for name, flags := range environments(t, "predict") {
		t.Run(name, func(t *testing.T) {
			output := output + name
			j := start(t, "predict", append(flags, "--input="+in, "--output="+output)...)
			eventually(t, func() bool { return len(done(t, output)) > 0 }, func() string { return "no documents are labelled" })
			j.cmd.Process.Signal(os.Interrupt)
			stdout, stderr, status := j.wait(t)
			if status != 1 || !strings.Contains(stderr, "linnet: interrupted: job ") {
				t.Errorf("exit status %d: %s%s", status, stdout, stderr)
			}
			noWorkers(t, "predict", before)
			eventually(t, func() bool { return running(t) == 0 }, func() string { return "the job still runs" })
			labelled := len(done(t, output))
			if labelled == 400 {
				t.Error("all documents are labelled after the interrupt")
			}
			stdout = must(t, "predict", append(flags, "--input="+in, "--output="+output)...)
			if want := cli.Plural(int64(labelled), "document") + " done before"; !strings.Contains(stdout, want) {
				t.Errorf("the next run says %s, want %s", stdout, want)
			}
		})
	}
}

// TestTerminate ends launchers with SIGTERM: the job goes on to its end, and with
// --cancel_on_exit it is cancelled.
func TestTerminate(t *testing.T) {
	in, before := documents(t, 400, 1000), workers(t, "predict")
	direct := filepath.Join(t.TempDir(), "direct")
	must(t, "predict", "--input="+in, "--output="+direct)
	want := clitest.OutputsOf(t, direct)
	flags := append(environments(t, "predict")["process"], "--input="+in)
	terminate := func(t *testing.T, output string, more ...string) (string, int) {
		j := start(t, "predict", slices.Concat(flags, more, []string{"--output=" + output})...)
		eventually(t, func() bool { return len(done(t, output)) > 0 }, func() string { return "no documents are labelled" })
		j.cmd.Process.Signal(syscall.SIGTERM)
		begin := time.Now()
		stdout, stderr, status := j.wait(t)
		took := time.Since(begin)
		t.Logf("it took the launcher %v to end, with %d of 400 documents done", took.Round(time.Millisecond), len(done(t, output)))
		if status != 1 || stdout != "" {
			t.Errorf("exit status %d: %s%s", status, stdout, stderr)
		}
		if took > 30*time.Second { // 10, and a busy machine
			t.Errorf("it took the launcher %v to end", took)
		}
		return lastLine(stderr), len(done(t, output))
	}
	t.Run("leaves the job", func(t *testing.T) {
		output := filepath.Join(t.TempDir(), "out")
		said, labelled := terminate(t, output)
		if !strings.HasPrefix(said, "linnet: interrupted by SIGTERM: the job goes on without this program") {
			t.Errorf("it says %s", said)
		}
		if labelled == 400 {
			t.Fatal("the job was over before the signal; give it more documents")
		}
		eventually(t, func() bool { return running(t) == 0 }, func() string { return "the job does not end" })
		noWorkers(t, "predict", before)
		same(t, clitest.OutputsOf(t, output), want)
		if n := len(done(t, output)); n != 400 {
			t.Errorf("%d documents are done, want all", n)
		}
		if says := must(t, "predict", append(flags, "--output="+output)...); !strings.Contains(says, "nothing to do, 400 documents done before") {
			t.Errorf("the next run says %s", says)
		}
	})
	t.Run("cancels it", func(t *testing.T) {
		output := filepath.Join(t.TempDir(), "out")
		said, _ := terminate(t, output, "--cancel_on_exit")
		if !strings.HasPrefix(said, "linnet: interrupted by SIGTERM: job ") || !strings.Contains(said, " is cancelled") {
			t.Errorf("it says %s", said)
		}
		eventually(t, func() bool { return running(t) == 0 }, func() string { return "the job still runs" })
		noWorkers(t, "predict", before)
		if n := len(done(t, output)); n == 400 {
			t.Error("all documents are labelled after the job was cancelled")
		}
		must(t, "predict", append(flags, "--output="+output)...)
		same(t, clitest.OutputsOf(t, output), want)
	})
	t.Run("leaves a watch", func(t *testing.T) {
		output := filepath.Join(t.TempDir(), "out")
		said, _ := terminate(t, output, "--watch", "--watch_interval=1s")
		if !strings.HasPrefix(said, "linnet: interrupted by SIGTERM: the job goes on without this program") || !strings.Contains(said, "it watches until") {
			t.Errorf("it says %s", said)
		}
		if running(t) != 1 {
			t.Error("the watch does not go on")
		}
		cancelAll(t)
		eventually(t, func() bool { return running(t) == 0 }, func() string { return "the watch does not end" })
		noWorkers(t, "predict", before)
	})
	t.Run("universal cancels it at ctrl-C", func(t *testing.T) { // and not in the job server alone
		output := filepath.Join(t.TempDir(), "out")
		j := start(t, "predict", append(flags, "--runner=universal", "--output="+output)...)
		eventually(t, func() bool { return len(done(t, output)) > 0 }, func() string { return "no documents are labelled" })
		j.cmd.Process.Signal(os.Interrupt)
		if _, stderr, status := j.wait(t); status != 1 || !strings.Contains(lastLine(stderr), " is cancelled") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
		eventually(t, func() bool { return running(t) == 0 }, func() string { return "the job still runs" })
		if n := len(done(t, output)); n == 400 {
			t.Error("all documents are labelled after the job was cancelled")
		}
	})
	for _, c := range []struct {
		name, says string
		signal     os.Signal
		more       []string
		goesOn     bool
	}{
		{"evaluate leaves the job", "linnet: interrupted by SIGTERM: the job goes on without this program", syscall.SIGTERM, nil, true},
		{"evaluate cancels it", "linnet: interrupted by SIGTERM: job ", syscall.SIGTERM, []string{"--cancel_on_exit"}, false},
		{"evaluate cancels it with a report", "linnet: interrupted by SIGTERM: job ", syscall.SIGTERM, []string{"--report=" + filepath.Join(t.TempDir(), "report")}, false},
		{"evaluate cancels it at ctrl-C", "linnet: interrupted: job ", os.Interrupt, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := start(t, "evaluate", slices.Concat(environments(t, "evaluate")["process"], c.more, []string{"--input=" + annotated(t, 400)})...)
			eventually(t, func() bool { return len(workers(t, "evaluate")) > 0 && running(t) == 1 }, func() string { return "no job" })
			ended := endedJobs(t)
			j.cmd.Process.Signal(c.signal)
			stdout, stderr, status := j.wait(t)
			if said := lastLine(stderr); status != 1 || !strings.HasPrefix(said, c.says) {
				t.Errorf("exit status %d: %s%s", status, stdout, stderr)
			}
			eventually(t, func() bool { return running(t) == 0 }, func() string { return "the job still runs" })
			after, want := endedJobs(t), "CANCELED"
			if c.goesOn {
				want = "FINISHED"
			}
			if after[want] != ended[want]+1 {
				t.Errorf("jobs ended %v before and %v after, want one more %s", ended, after, want)
			}
			noWorkers(t, "evaluate", nil)
		})
	}
}

// annotated copies the annotated sample so often.
func annotated(t *testing.T, copies int) string {
	t.Helper()
	dir := t.TempDir()
	paths, err := filepath.Glob("../testdata/annotated/*.ann")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d annotated files, %v", len(paths), err)
	}
	for _, path := range paths {
		data := clitest.ReadFile(t, path)
		for i := range copies {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d-%s", i, filepath.Base(path))), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// endedJobs counts Flink's jobs by how they ended.
func endedJobs(t *testing.T) map[string]int {
	t.Helper()
	var all struct{ Jobs []struct{ State string } }
	get(t, "/jobs/overview", &all)
	ended := map[string]int{}
	for _, j := range all.Jobs {
		ended[j.State]++
	}
	return ended
}

// running is the number of Flink's jobs that are not over.
func running(t *testing.T) (n int) {
	t.Helper()
	var all struct{ Jobs []struct{ State string } }
	get(t, "/jobs/overview", &all)
	for _, j := range all.Jobs {
		if !slices.Contains([]string{"FINISHED", "CANCELED", "FAILED"}, j.State) {
			n++
		}
	}
	return n
}

// cancelAll asks Flink to cancel all jobs.
func cancelAll(t *testing.T) {
	t.Helper()
	var all struct {
		Jobs []struct{ JID string }
	}
	get(t, "/jobs/overview", &all)
	for _, j := range all.Jobs {
		req, err := http.NewRequest(http.MethodPatch, rest+"/jobs/"+j.JID+"?mode=cancel", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

// get asks Flink's REST interface.
func get(t *testing.T, path string, into any) {
	t.Helper()
	resp, err := http.Get(rest + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// TestFails wants the reason in what the launcher writes.
func TestFails(t *testing.T) {
	few, many := documents(t, 5, 2), documents(t, 120, 2)
	for name, flags := range environments(t, "predict") {
		t.Run(name, func(t *testing.T) {
			for _, in := range []string{few, many} { // rejected one by one; the job fails
				stdout, stderr, status := run(t, "predict", append(flags, "--max_document_bytes=3", "--input="+in, "--output="+filepath.Join(t.TempDir(), "out"))...)
				if last := lastLine(stderr); status != 1 || !strings.HasPrefix(last, "linnet: ") || !strings.Contains(last, "the limit is 3") {
					t.Errorf("exit status %d: %s%s", status, stdout, stderr)
				}
			}
		})
	}
	t.Run("evaluate", func(t *testing.T) {
		_, stderr, status := run(t, "evaluate", append(environments(t, "evaluate")["process"], "--input=testdata/annotated", "--predictions="+few)...)
		if last := lastLine(stderr); status != 1 || !strings.Contains(last, "no such file") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
	})
}

// TestForgets has the job server keep nothing of jobs but the last ten: it serves
// for weeks, and kept the options of each.
func TestForgets(t *testing.T) {
	flags := environments(t, "evaluate")["external"]
	for range 20 {
		must(t, "evaluate", append(flags, "--input=testdata/annotated")...)
	}
	id := strings.TrimSpace(string(clitest.ReadFile(t, filepath.Join(flinkHome, "run", "jobserver"))))
	objects, err := exec.Command("jcmd", id, "GC.class_histogram").Output()
	if err != nil {
		t.Fatal(err)
	}
	kept := regexp.MustCompile(`(\d+) +\d+ +org\.apache\.beam\.sdk\.options\.ProxyInvocationHandler\s`).FindSubmatch(objects)
	if kept == nil {
		t.Fatalf("no options among the job server's objects:\n%.500s", objects)
	}
	if n, err := strconv.Atoi(string(kept[1])); err != nil || n > 15 {
		t.Errorf("the job server has the options of %s jobs, want those of its last ten", kept[1])
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestAsync only submits the job.
func TestAsync(t *testing.T) {
	output, before := filepath.Join(t.TempDir(), "out"), workers(t, "predict")
	stdout, stderr, status := run(t, "predict", append(environments(t, "predict")["process"], "--async", "--output="+output)...)
	job := regexp.MustCompile(`(?m)^Submitted job: (\S+)$`).FindStringSubmatch(stderr)
	if status != 0 || job == nil || strings.TrimSpace(stdout) != fmt.Sprintf("job %s is submitted; it writes to %s", job[1], output) {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	eventually(t, func() bool { return len(done(t, output)) == 5 }, func() string { return "the job does not end" })
	eventually(t, func() bool { return running(t) == 0 }, func() string { return "the job does not end" })
	noWorkers(t, "predict", before)
}

// carried are the elements that came through a Reshuffle; the workers of
// loopback are in this process.
var carried = make(chan string, 100)

func keepBytes(b []byte) { carried <- string(b) }

func keepDocument(d transforms.Document) {
	carried <- strings.Join([]string{string(d.URI), string(d.Name), string(d.Text)}, "|")
}

func init() {
	beam.RegisterFunction(keepBytes)
	beam.RegisterFunction(keepDocument)
}

// TestReshuffle sends what is no UTF-8 through Flink, where Java decodes it if
// it can.
func TestReshuffle(t *testing.T) {
	for name, value := range map[string]string{"runner": "flink", "endpoint": endpoint, "environment_type": "LOOPBACK"} {
		before := flag.Lookup(name).Value.String()
		flag.Set(name, value)
		defer flag.Set(name, before)
	}
	p, s := beam.NewPipelineWithRoot()
	path, text := "a\xff\xfeb.txt", "\xef\xbf\xbd\x00\xc3 \xe2\x28 \f\r\n"
	beam.ParDo0(s, keepBytes, beam.Reshuffle(s, beam.Create(s, []byte(path), []byte(text))))
	d := transforms.Document{URI: []byte(path), Name: []byte("sub/" + path), Text: []byte(text)}
	beam.ParDo0(s, keepDocument, beam.Reshuffle(s, beam.Create(s, d)))
	if _, err := runners.Run(context.Background(), p, "test", 1); err != nil {
		t.Fatal(err)
	}
	close(carried)
	got := slices.Sorted(func(yield func(string) bool) {
		for c := range carried {
			if !yield(c) {
				return
			}
		}
	})
	want := []string{path, text, path + "|sub/" + path + "|" + text}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
