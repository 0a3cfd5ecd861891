package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// TestMain lets the test's own binary be the command predict, so that exit
// statuses are those of a built program.
func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"predict": main}) }

func TestScripts(t *testing.T) {
	setup := func(env *testscript.Env) error {
		bundled, err := filepath.Abs(filepath.Join("..", "..", "model", "bundled"))
		env.Setenv("MODEL", bundled)
		return errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, "latin.txt"), []byte("Chapeau \xe0 marge stri\xe9e, sp\xe4ter gl\xe4nzend\n"), 0o666))
	}
	clitest.Scripts(t, "labelling ", setup, map[string]clitest.Command{
		"sametree":  sameTree,
		"strip":     strip,
		"truncate":  truncate,
		"linecount": lineCount,
		"await":     await,
		"put":       put,
		"killall":   killAll,
	})
}

// sameTree compares two output folders, without records.
func sameTree(ts *testscript.TestScript, neg bool, args []string) {
	a, err := clitest.Outputs(ts.MkAbs(args[0]))
	ts.Check(err)
	b, err := clitest.Outputs(ts.MkAbs(args[1]))
	ts.Check(err)
	if len(a) == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
	if err := difference(a, b); (err != nil) != neg {
		ts.Fatalf("same: %t: %v", err == nil, err)
	}
}

// strip checks that a file without its markup is another: strip X.txt.ann X.txt.
func strip(ts *testscript.TestScript, neg bool, args []string) {
	if got, want := yedda.Parse([]byte(ts.ReadFile(args[0]))).Text, yedda.Parse([]byte(ts.ReadFile(args[1]))).Text; !bytes.Equal(got, want) {
		ts.Fatalf("%s without markup is %q, want %q", args[0], got, want)
	}
}

func truncate(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[1]), n))
}

func lineCount(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[1]), "\n"); got != want {
		ts.Fatalf("%s has %d lines, want %d", args[1], got, want)
	}
}

// await waits until a file is there and matches a pattern: await PATTERN FILE.
func await(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile(args[0])
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if data, err := os.ReadFile(ts.MkAbs(args[1])); err == nil && want.Match(data) {
			return
		}
	}
	ts.Fatalf("%s has no %s", args[1], args[0])
}

// put copies a file so that it is there whole at once, or a watch may take it while it
// is empty: put FROM TO.
func put(ts *testscript.TestScript, neg bool, args []string) {
	half := ts.MkAbs("half-written")
	ts.Check(errors.Join(os.WriteFile(half, []byte(ts.ReadFile(args[0])), 0o666), os.Rename(half, ts.MkAbs(args[1]))))
}

// killAll kills, by SIGKILL, what runs in the background, and waits for its end.
func killAll(ts *testscript.TestScript, neg bool, args []string) {
	for _, cmd := range ts.BackgroundCmds() {
		for cmd.Process.Kill() == nil { // until it is told that there is none
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func difference(a, b map[string]string) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d files and %d", len(a), len(b))
	}
	for name, text := range a {
		if b[name] != text {
			return fmt.Errorf("%s differs", name)
		}
	}
	return nil
}

// predict runs the command in a new process.
func predict(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// command is the test's binary as predict: testscript.Main put a link to it on
// the path.
func command(args ...string) *exec.Cmd { return exec.Command("predict", args...) }

// start starts cmd and returns when is says so; ended gets what Wait returns.
func start(t *testing.T, cmd *exec.Cmd, is func() bool) (stderr *bytes.Buffer, ended chan error) {
	t.Helper()
	stderr, ended = new(bytes.Buffer), make(chan error, 1)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	for !is() {
		select {
		case err := <-ended:
			if !is() {
				t.Fatalf("it ended too soon: %v: %s", err, stderr)
			}
			ended <- err
			return stderr, ended
		case <-time.After(time.Millisecond):
		}
	}
	return stderr, ended
}

// manyDocuments writes n documents of some thousand lines together.
func manyDocuments(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		text := strings.Repeat(fmt.Sprintf("Agaricus species%d sp. nov.\nPileus %d cm latus\n\n", i, i%9), 20+i%30)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.txt", i)), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLockLost has somebody remove the output folder in mid-run: the end is an error, and
// no count of documents that are no longer there.
func TestLockLost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs to remove a folder in use, and SIGINT")
	}
	in, out := manyDocuments(t, 2), filepath.Join(t.TempDir(), "out")
	cmd := command("--input="+in, "--output="+out, "--watch", "--watch_interval=100ms", "--runner=prism", "--verbosity=0")
	stderr, ended := start(t, cmd, func() bool {
		done, err := filepath.Glob(filepath.Join(out, transforms.DoneFolder, "*.json"))
		return err == nil && len(done) == 2
	})
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(os.Interrupt)
	<-ended
	if status := cmd.ProcessState.ExitCode(); status != 1 || !strings.HasPrefix(stderr.String(), "linnet: store: "+out+"/_lock: the lock was lost") || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit status %d, %q; want 1 and a line about the lock", status, stderr)
	}
}

// TestInterrupt sends SIGINT or SIGTERM in mid-run: one line, exit status 1, and
// the next run goes on to the result of an undisturbed one.
func TestInterrupt(t *testing.T) {
	const all = 5000 // so that some are left when the signal comes
	in := manyDocuments(t, all)
	fresh := filepath.Join(t.TempDir(), "fresh")
	if _, stderr, status := predict(t, "--input="+in, "--output="+fresh); status != 0 {
		t.Fatal(stderr)
	}
	want := clitest.OutputsOf(t, fresh)
	for _, c := range []struct {
		runner string
		signal os.Signal
		says   string
	}{{"direct", os.Interrupt, "interrupted: "}, {"prism", os.Interrupt, "interrupted: "}, {"direct", syscall.SIGTERM, "interrupted by SIGTERM: "}} {
		t.Run(c.runner+" "+c.signal.String(), func(t *testing.T) {
			var out string
			var args []string
			var cmd *exec.Cmd
			var errs *bytes.Buffer
			var begin time.Time
			var err error
			for range 20 { // where it was through before the signal came, as on a busy machine
				out = filepath.Join(t.TempDir(), "out")
				args = []string{"--runner=" + c.runner, "--input=" + in, "--output=" + out, "--memory_limit=128MiB"} // little in flight
				cmd = command(args...)
				var ended chan error
				errs, ended = start(t, cmd, func() bool { // until the first document is done
					_, err := os.Stat(filepath.Join(out, transforms.DoneFolder))
					return err == nil
				})
				begin = time.Now()
				if err := cmd.Process.Signal(c.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
				if err = <-ended; err != nil && len(clitest.OutputsOf(t, out)) < all {
					break
				}
			}
			if cmd.ProcessState.ExitCode() != 1 {
				t.Fatalf("exit status %d, %v: %s", cmd.ProcessState.ExitCode(), err, errs)
			}
			if took := time.Since(begin); took > 30*time.Second { // 10, and a busy machine
				t.Errorf("it took %v to end", took)
			}
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			if len(lines) != 2 || !strings.Contains(lines[1], "linnet: "+c.says) || !strings.Contains(lines[1], "labelled and kept") {
				t.Errorf("standard error has %q, want one line about the interrupt after the first words", lines)
			}
			if _, err := os.Stat(filepath.Join(out, transforms.TempFolder)); err == nil {
				t.Error("temporary files are left")
			}
			kept := clitest.OutputsOf(t, out)
			if len(kept) == 0 || len(kept) == all {
				t.Errorf("%d of %d documents were done", len(kept), all)
			}
			stdout, stderr, status := predict(t, args...)
			if status != 0 || !strings.Contains(stdout, cli.Plural(int64(len(kept)), "document")+" done before") {
				t.Fatalf("the next run: exit status %d\n%s%s", status, stdout, stderr)
			}
			if err := difference(clitest.OutputsOf(t, out), want); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFirstWords waits for the first words on the screen, which come within a
// second of the start: of three starts, for another program may hold one up. A
// machine that is slow for --help, some hundredths of a second, has longer.
func TestFirstWords(t *testing.T) {
	in := manyDocuments(t, 1)
	soonest, help := time.Hour, time.Hour
	for range 3 {
		begin := time.Now()
		if err := command("--help").Run(); err != nil {
			t.Fatal(err)
		}
		help = min(help, time.Since(begin))
		cmd := command("--input="+in, "--output="+filepath.Join(t.TempDir(), "out"))
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(stderr).ReadString('\n')
		soonest = min(soonest, time.Since(begin))
		if !strings.HasPrefix(line, "labelling ") {
			t.Errorf("the first words are %q", line)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if soonest > max(time.Second, 20*help) {
		t.Errorf("the first words came after %v, --help was through after %v", soonest, help)
	}
}

// TestLocked has another run in the output folder.
func TestLocked(t *testing.T) {
	in, out := manyDocuments(t, 1), t.TempDir()
	st, err := store.For(context.Background(), out)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := st.Lock(context.Background(), store.Join(out, transforms.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, status := predict(t, "--input="+in, "--output="+out, "--verbosity=0")
	if status != 1 || !strings.HasPrefix(stderr, "linnet: ") || !strings.Contains(stderr, "locked by another run") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit status %d, %q; want 1 and one line about the lock", status, stderr)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := predict(t, "--input="+in, "--output="+out); status != 0 {
		t.Errorf("after the lock is gone: exit status %d, %s", status, stderr)
	}
}

// TestNamesOfAnyBytes labels files whose names are not UTF-8, or hold commas
// and newlines; none of them reaches a terminal as it is.
func TestNamesOfAnyBytes(t *testing.T) {
	names := []string{"\xff\xfe.txt", "a, b.txt", "new\nline.txt", "[x]*.txt", "ü.txt"}
	in := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(in, name), []byte("Agaricus \xff\n"), 0o666); err != nil {
			t.Skip(err)
		}
	}
	for _, runner := range []string{"direct", "prism"} {
		out := filepath.Join(t.TempDir(), "out")
		stdout, stderr, status := predict(t, "--runner="+runner, "--input="+in, "--output="+out)
		if status != 0 {
			t.Fatalf("%s: exit status %d: %s%s", runner, status, stdout, stderr)
		}
		got := clitest.OutputsOf(t, out)
		for _, name := range names {
			if string(yedda.Parse([]byte(got[name+".ann"])).Text) != "Agaricus \xff\n" {
				t.Errorf("%s: %q is %q", runner, name, got[name+".ann"])
			}
		}
		if stdout, _, _ := predict(t, "--runner="+runner, "--input="+in, "--output="+out); !strings.Contains(stdout, "5 documents done before") {
			t.Errorf("%s: the second run says %s", runner, stdout)
		}
	}
	odd := filepath.Join(in, "\xff\xfe.txt") + "," + filepath.Join(in, "new\nline.txt")
	for _, more := range []string{"--plan", "--force", "--verbosity=1"} {
		stdout, stderr, _ := predict(t, "--input="+odd, "--output="+filepath.Join(in, "\x1b[31m\xff"), more)
		for line := range strings.Lines(stdout + stderr) {
			if line = strings.TrimSuffix(line, "\n"); line != cli.Printable(line) {
				t.Errorf("%s: a terminal gets %q", more, line)
			}
		}
	}
}

// TestModelWindows checks that a model's own window_size and prediction_stride
// are what --window_size and --prediction_stride are, and change the result.
func TestModelWindows(t *testing.T) {
	in := manyDocuments(t, 3)
	label := func(args ...string) map[string]string {
		out := filepath.Join(t.TempDir(), "out")
		args = append([]string{"--input=" + in, "--output=" + out, "--format=csv", "--probabilities"}, args...)
		if _, stderr, status := predict(t, args...); status != 0 {
			t.Fatal(stderr)
		}
		return clitest.OutputsOf(t, out)
	}
	w, err := bundled.Weights()
	if err != nil {
		t.Fatal(err)
	}
	seen := []map[string]string{label()}
	for _, c := range []struct{ size, stride int }{{20, 0}, {20, 5}, {30, 5}} {
		changed := *w
		changed.Config.WindowSize, changed.Config.PredictionStride = c.size, c.stride
		dir := t.TempDir()
		if err := model.Save(dir, &changed, nil); err != nil {
			t.Fatal(err)
		}
		got := label("--model_uri=" + dir)
		if err := difference(got, label(fmt.Sprintf("--window_size=%d", c.size), fmt.Sprintf("--prediction_stride=%d", c.stride))); err != nil {
			t.Errorf("%+v: the model's and the flags' windows: %v", c, err)
		}
		for i, other := range seen {
			if difference(got, other) == nil {
				t.Errorf("%+v gives the same probabilities as windows %d before", c, i)
			}
		}
		seen = append(seen, got)
	}
}

// TestCorpus labels every file of the corpus, markup taken out and markup in,
// on direct and on prism: the same bytes, and each gives its input back.
func TestCorpus(t *testing.T) {
	corpus := os.Getenv("LINNET_CORPUS")
	if corpus == "" {
		corpus = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	if _, err := os.Stat(corpus); err != nil {
		t.Skipf("no corpus of annotated journals: %v; set LINNET_CORPUS", err)
	}
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	in := t.TempDir()
	raw := map[string]string{}
	err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".txt.ann") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(corpus, strings.TrimSuffix(path, ".ann"))
		if err != nil {
			return err
		}
		raw[rel] = string(yedda.Parse(data).Text)
		to := filepath.Join(in, rel)
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o777), os.WriteFile(to, []byte(raw[rel]), 0o666))
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) == 0 {
		t.Fatalf("no *.txt.ann in %s", corpus)
	}
	var first map[string]string
	for _, c := range []struct{ runner, input string }{{"direct", in}, {"prism", in}, {"direct", corpus}} {
		out := filepath.Join(t.TempDir(), "out")
		stdout, stderr, status := predict(t, "--runner="+c.runner, "--input="+c.input, "--output="+out)
		if status != 0 {
			t.Fatalf("%s: exit status %d: %s%s", c.runner, status, stdout, stderr)
		}
		got := clitest.OutputsOf(t, out)
		if len(got) != len(raw) {
			t.Errorf("%s: %d outputs of %d files", c.runner, len(got), len(raw))
		}
		for name, text := range raw {
			if string(yedda.Parse([]byte(got[name+".ann"])).Text) != text {
				t.Errorf("%s: %s does not come back", c.runner, name)
			}
		}
		if first == nil {
			first = got
		}
		if err := difference(got, first); err != nil {
			t.Errorf("%s of %s: %v", c.runner, filepath.Base(c.input), err)
		}
	}
}

// TestJudge has shares of rejected documents at and beside --max_rejected.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		limit            float64
		rejected, others int64
		over             int64 // passed over by --retry_rejected
		status           int
	}{
		{0.1, 0, 100, 0, 0}, {0.1, 10, 90, 0, 3}, {0.1, 11, 89, 0, 1}, {0.29, 29, 71, 0, 3}, {0.29, 30, 70, 0, 1}, {0, 1, 99, 0, 1}, {1, 99, 1, 0, 3},
		{0.1, 50, 49, 0, 3}, {1, 5, 0, 0, 1}, // in small runs all
		{0.1, 100, 0, 900, 3}, {0.1, 100, 0, 899, 1}, {0.1, 5, 0, 1, 3},
	} {
		o := options{maxRejected: c.limit, rejectedStatus: 3, verbosity: 1, retryRejected: c.over > 0}
		err := o.judge(map[string]int64{"documents": c.others, "rejected": c.rejected}, c.rejected+c.others+c.over, "")
		if got := cli.Report(io.Discard, err); got != c.status {
			t.Errorf("%d of %d rejected, at most %g allowed: exit status %d, want %d", c.rejected, c.rejected+c.others, c.limit, got, c.status)
		}
	}
}

// TestNoRejection has a run that may reject nothing end where others end.
func TestNoRejection(t *testing.T) {
	in := t.TempDir()
	for i := range 120 {
		if err := os.WriteFile(filepath.Join(in, fmt.Sprintf("%03d.txt", i)), []byte("%PDF-1.4\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []string{"0", "0.001"} {
		_, stderr, status := predict(t, "--input="+in, "--output="+filepath.Join(t.TempDir(), "out"), "--max_rejected="+limit)
		if want := "100 of 100 documents were rejected, more than --max_rejected=" + limit + ";"; status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit status %d, want 1 and %q: %s", status, want, stderr)
		}
	}
}

// TestSummary has what each counter is told as, without the line of times and memory.
func TestSummary(t *testing.T) {
	full := model.DefaultConfig()
	full.FullClasses = []string{"Abstract", "Author", "Key", "Notes", "Section-header", "Table"}
	for _, c := range []struct {
		name, labelSet string
		watch          bool
		counters       map[string]int64
		want           string
	}{
		{"all at once", "", false, map[string]int64{
			"documents": 1, "lines": 2000, "skipped": 2, "warnings": 1, "rejected": 3, "label_Nomenclature": 1, "label_Description": 1999,
			"lines_cuda": 1500, "lines_cpu": 500, "workers_fallen_back": 2, "workers_fallen_back: no driver": 1, "workers_fallen_back: lost\n": 1,
			"foreign": 2, "foreign: %2Fin%2Fb%FF.txt": 1, "foreign: %2Fin%2Fa%2520b%0A.txt": 1, "foreign_script": 1, "foreign_script: %2Fin%2F0.txt": 1,
		}, `out: 1 document, 2,000 lines labelled in 4s (500 lines/s)
  Nomenclature               1   0.1 %
  Description            1,999 100.0 %
  Misc-exposition            0   0.0 %
2 documents done before and skipped (--force labels them again)
1 place of broken markup in the inputs (--force --verbosity=3 says where)
2 documents not in UTF-8, most likely in Windows-1252 or Latin-1, whose letters beyond ASCII the model does not see (--force --verbosity=3 says which); convert each with: iconv -f WINDOWS-1252 -t UTF-8 '/in/a%20b'$'\n''.txt' > '/in/a%20b'$'\n''.txt.new' && mv '/in/a%20b'$'\n''.txt.new' '/in/a%20b'$'\n''.txt'
1 document in an 8-bit or multi-byte encoding that is not UTF-8, whose letters beyond ASCII the model does not see (--force --verbosity=3 says which); convert each with: iconv -f ENCODING -t UTF-8 '/in/0.txt' > '/in/0.txt.new' && mv '/in/0.txt.new' '/in/0.txt'
1,500 lines on GPUs, 500 on CPUs
2 workers fell back to the CPU: lost\x0a; no driver
3 documents rejected; out/_rejected.jsonl says why
`},
		{"labels that occur", model.Full, false, map[string]int64{"documents": 1, "lines": 4, "label_Key": 1, "label_Section-header": 3},
			"out: 1 document, 4 lines labelled in 4s (1 lines/s)\n  Key                       1  25.0 %\n  Section-header            3  75.0 %\n"},
		{"no line", "", false, map[string]int64{"documents": 1}, "out: 1 document, 0 lines labelled in 4s\n"},
		{"less than a line a second", "", false, map[string]int64{"documents": 1, "lines": 3, "skipped": 9, "label_Description": 3},
			"out: 1 document, 3 lines labelled in 4s\n  Nomenclature               0   0.0 %\n  Description                3 100.0 %\n  Misc-exposition            0   0.0 %\n9 documents done before and skipped (--force labels them again)\n"},
		{"a watch, which waits most of the time", model.Full, true, map[string]int64{"documents": 1, "lines": 40, "label_Key": 40},
			"out: 1 document, 40 lines labelled in 4s\n  Key                      40 100.0 %\n"},
		{"nothing to do", "", false, map[string]int64{"skipped": 1}, "out: nothing to do, 1 document done before (--force labels them again)\n"},
		{"rejections alone", "", false, map[string]int64{"skipped": 1, "rejected": 1},
			"out: 0 documents, 0 lines labelled in 4s\n1 document done before and skipped (--force labels them again)\n1 document rejected; out/_rejected.jsonl says why\n"},
	} {
		var b bytes.Buffer
		o := options{output: "out", labelSet: c.labelSet, watch: c.watch}
		o.summary(&b, &full, &runners.Result{Counters: c.counters}, transforms.ProgressOf(t.Name()), 4*time.Second)
		if got := regexp.MustCompile(`(?m)^reading .*\n`).ReplaceAllString(b.String(), ""); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}

// TestFirstRejected has the records that workers elsewhere left, and earlier runs.
func TestFirstRejected(t *testing.T) {
	output := t.TempDir()
	for _, c := range []struct{ records, want string }{
		{`{"input":"before.txt"}` + "\n" + `{"input":"in/a.txt","stage":"read","reason":"no","run":"this"}` + "\n" + `{"input":"in/b.txt","run":"this"}` + "\n", "in/a.txt: read: no"},
		{`{"input":"before.txt","run":"before"}` + "\n", ""},
		{"", ""},
	} {
		if err := os.WriteFile(filepath.Join(output, transforms.RejectedFile), []byte(c.records), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := firstRejected(t.Context(), output, "this"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestPace has a run that goes on: what was done before goes by in a minute.
func TestPace(t *testing.T) {
	begin := time.Now()
	p := pace{older: mark{at: begin}, newer: mark{at: begin}}
	const total = 1_000_000
	for _, c := range []struct {
		seconds, seen int64
		least, most   time.Duration
	}{
		{1, 10_000, 99 * time.Second, 99 * time.Second},
		{60, 600_000, 40 * time.Second, 40 * time.Second},
		{66, 606_000, 43 * time.Second, 394 * time.Second}, // from here on 1,000 a second
		{72, 612_000, 388 * time.Second, 388 * time.Second},
		{100, 612_000, 16 * time.Minute, 60 * time.Minute}, // a large one
		{101, total, 0, 0},
	} {
		left := p.left(begin.Add(time.Duration(c.seconds)*time.Second), c.seen, total)
		if left < c.least || left > c.most {
			t.Errorf("after %d s, %d documents: %v left, want %v to %v", c.seconds, c.seen, left, c.least, c.most)
		}
	}
}

// TestSoFar has what stands beside the bar: documents, lines a second, rejected ones,
// the time left and the device, which a watch's text leaves out.
func TestSoFar(t *testing.T) {
	p := transforms.ProgressOf(t.Name())
	defer transforms.ForgetProgress(t.Name())
	begin := time.Now().Add(-1000 * time.Second) // some seconds more are no matter
	for _, c := range []struct {
		watch               bool
		device              string
		seen, lines, failed int64
		want                string
	}{
		{device: "cpu, float32, avx512", want: `^0 of 8 documents, 0 lines/s, on cpu$`},
		{device: "cuda, float16, GPU 0 NVIDIA H200", seen: 4, lines: 500_000, failed: 1, want: `^4 of 8 documents, (49\d|500) lines/s, 1 rejected, 16m4\ds left, on cuda$`},
		{device: "cpu, after the GPU was lost", seen: 8, lines: 500_000, want: `^8 of 8 documents, (49\d|500) lines/s, 0s left, on cpu$`},
		{watch: true, device: "cpu, float32, avx512", seen: 8, lines: 500_000, want: `^0 documents, 500,000 lines; watching$`},
	} {
		p.Skipped.Store(c.seen - c.failed)
		p.Lines.Store(c.lines)
		p.Rejected.Store(c.failed)
		seen, text := (&options{watch: c.watch}).sofar(p, &pace{older: mark{at: begin}, newer: mark{at: begin}}, c.device, 8, begin)
		if !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("%q does not match %s", text, c.want)
		}
		if seen != c.seen {
			t.Errorf("%d seen, want %d", seen, c.seen)
		}
	}
}

// TestBegan has the output's disk keep another time than this machine: a run began when
// its lock was taken, by the disk's clock, also where a run that was killed left one.
func TestBegan(t *testing.T) {
	output := t.TempDir()
	st, err := store.For(t.Context(), output)
	if err != nil {
		t.Fatal(err)
	}
	lock, old := filepath.Join(output, transforms.LockFile), time.Unix(1e9, 0)
	if err := errors.Join(os.WriteFile(lock, []byte("process 1"), 0o666), os.Chtimes(lock, old, old)); err != nil {
		t.Fatal(err)
	}
	unlock, err := st.Lock(t.Context(), store.Join(output, transforms.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if got, err := began(t.Context(), st, output); got < time.Now().Add(-time.Minute).UnixNano() || err != nil {
		t.Errorf("a lock of before has %d, %v", got, err)
	}
	for at, want := range map[time.Time]int64{time.Unix(2e9, 0): 2e18, time.Unix(1e9, 0): 1e18, time.Unix(0, 0): 1} {
		if err := os.Chtimes(lock, at, at); err != nil {
			t.Fatal(err)
		}
		if got, err := began(t.Context(), st, output); got != want || err != nil {
			t.Errorf("%v: %d, %v; want %d", at, got, err, want)
		}
	}
}

// TestReached wants an error where workers elsewhere wrote into another folder
// of that name, for some or for all documents.
func TestReached(t *testing.T) {
	for name, value := range map[string]string{"runner": "flink", "endpoint": "localhost:1", "environment_type": "PROCESS"} {
		f := flag.Lookup(name)
		defer f.Value.Set(f.Value.String())
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	defer func(before time.Duration) { late = before }(late)
	late = 0
	output := t.TempDir()
	if err := os.MkdirAll(filepath.Join(output, transforms.DoneFolder, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.txt.json", "sub/b.txt.json"} {
		if err := os.WriteFile(filepath.Join(output, transforms.DoneFolder, filepath.FromSlash(name)), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		output           string
		labelled, before int64
		ok               bool
	}{
		{output, 1, 1, true}, {output, 1, 0, true}, {output, 2, 1, false}, {output, 0, 3, false},
		{filepath.Join(output, "none"), 1, 0, false}, {filepath.Join(output, "none"), 0, 0, true},
	} {
		err := new(options).reached(t.Context(), c.output, map[string]int64{"documents": c.labelled, "skipped": c.before})
		if (err == nil) != c.ok {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestLeft wants it said of a watch elsewhere that SIGTERM ends this program alone.
func TestLeft(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.ErrTerminated)
	opts := transforms.Options{Output: transforms.Path(t.TempDir())}
	_, err := (&options{watch: true, output: string(opts.Output)}).finish(ctx, opts, nil, nil, cli.ErrLeft)
	if !errors.Is(err, cli.ErrLeft) || !strings.Contains(err.Error(), "it watches until") {
		t.Errorf("got %v", err)
	}
}

// TestGPUsOfAWorker has a worker on Dataflow, which is one process, take all the
// GPUs that its machine is given; elsewhere other processes take the others.
func TestGPUsOfAWorker(t *testing.T) {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	flags.String("runner", "", "")
	runners.Define(flags)
	defer flags.Set("worker_gpu", "0")
	defer flag.Set("runner", flag.Lookup("runner").Value.String())
	for _, c := range []struct {
		runner, gpus string
		want         int
	}{{"direct", "0", 0}, {"flink", "0", 1}, {"dataflow", "0", 1}, {"dataflow", "1", 1}, {"dataflow", "4", 4}} {
		flag.Set("runner", c.runner)
		flags.Set("worker_gpu", c.gpus)
		opts, err := (&options{output: "gs://b/out"}).transformOptions()
		if err != nil || opts.GPUs != c.want {
			t.Errorf("--runner=%s --worker_gpu=%s: %d GPUs a process, %v; want %d", c.runner, c.gpus, opts.GPUs, err, c.want)
		}
	}
}
