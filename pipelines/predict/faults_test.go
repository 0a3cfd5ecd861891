package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms"
)

// What scripts/check.d/faults sets.
var (
	faultKills  = flag.Int("faults.kills", 2, "kill -9 at so many moments, on each runner")
	faultSeed   = flag.Uint64("faults.seed", 1, "of the moments")
	faultBinary = flag.String("faults.binary", "predict", "the built program to disturb")
	faultFiles  = flag.Int("faults.files", 20_000, "documents in one folder")
	faultLine   = flag.Int("faults.line", 1<<20, "bytes of a document that is one line")
)

// disturbed is a run that faults happen to: a folder of documents, the flags,
// and what an undisturbed run makes of them.
type disturbed struct {
	t      *testing.T
	in     string
	args   []string
	want   map[string]string // outputs
	record []string          // the manifest's lines, less time and place
	took   time.Duration     // the undisturbed run
}

func disturb(t *testing.T, in string, args ...string) *disturbed {
	d := &disturbed{t: t, in: in, args: append([]string{"--input=" + in}, args...)}
	out := filepath.Join(t.TempDir(), "undisturbed")
	begin := time.Now()
	d.run(out, 0)
	d.took = time.Since(begin)
	var err error
	if d.want, err = clitest.Outputs(out); err != nil || len(d.want) == 0 {
		t.Fatalf("%d outputs, %v", len(d.want), err)
	}
	d.record = manifest(t, out)
	return d
}

func (d *disturbed) command(out string, more ...string) *exec.Cmd {
	return exec.Command(*faultBinary, slices.Concat(d.args, []string{"--output=" + out}, more)...)
}

// run runs it and wants that exit status; an error must be one line. It returns
// what was said.
func (d *disturbed) run(out string, status int, more ...string) string {
	d.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := d.command(out, more...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != status {
		d.t.Fatalf("exit status %d (%v), want %d:\n%s%s", got, err, status, &stdout, &stderr)
	}
	told := 0
	for line := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(line, "linnet: ") {
			told++
		} else if !strings.HasPrefix(line, "labelling ") && !strings.Contains(line, "lines/s") {
			d.t.Errorf("standard error has the line %q", line)
		}
	}
	if status == 1 && told != 1 {
		d.t.Errorf("%d lines begin with linnet: in %s", told, &stderr)
	}
	return stdout.String() + stderr.String()
}

// whole holds every output in out to the undisturbed one's bytes, and every
// record to being whole and behind its outputs.
func (d *disturbed) whole(out string) (files int) {
	d.t.Helper()
	got, err := clitest.Outputs(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.t.Fatal(err)
	}
	for name, text := range got {
		if want, ok := d.want[name]; !ok || name != transforms.IndexFile && text != want {
			d.t.Errorf("%s has %d bytes, want %d, or the file absent", name, len(text), len(want))
		}
	}
	err = filepath.WalkDir(filepath.Join(out, transforms.DoneFolder), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var r transforms.Done
		if err := json.Unmarshal(data, &r); err != nil {
			d.t.Errorf("%s is no whole record: %v", path, err)
		}
		for _, o := range r.Outputs {
			if _, ok := got[filepath.FromSlash(o)]; !ok {
				d.t.Errorf("%s is done and its output %s absent", r.Document, o)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.t.Error(err)
	}
	return len(got)
}

// finish runs it again, undisturbed, and wants the undisturbed result.
func (d *disturbed) finish(out string) {
	d.t.Helper()
	d.run(out, 0)
	if err := difference(clitest.OutputsOf(d.t, out), d.want); err != nil {
		d.t.Errorf("after the next run: %v", err)
	}
	if got := manifest(d.t, out); !slices.Equal(got, d.record) {
		d.t.Errorf("after the next run the manifest has %d lines, want %d, or they differ", len(got), len(d.record))
	}
	if _, err := os.Stat(filepath.Join(out, transforms.TempFolder)); err == nil {
		d.t.Error("after the next run temporary files are left")
	}
}

// manifest is that of out, less what differs from run to run.
func manifest(t *testing.T, out string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, transforms.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var r transforms.Done
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %q: %v", transforms.ManifestFile, line, err)
		}
		r.Time, r.Input = time.Time{}, ""
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(again))
	}
	slices.Sort(lines)
	return lines
}

// TestKill kills the program with SIGKILL at moments spread over its run, now
// and then several times before a run may finish.
func TestKill(t *testing.T) {
	in := manyDocuments(t, 400)
	for i, runner := range []string{"direct", "prism"} {
		t.Run(runner, func(t *testing.T) {
			d := disturb(t, in, "--runner="+runner, "--format=yedda,csv,jsonl", "--memory_limit=128MiB")
			r := rand.New(rand.NewPCG(*faultSeed, uint64(i)))
			out, partial := filepath.Join(t.TempDir(), "0"), 0
			for kill := range *faultKills {
				moment := time.Duration(r.Float64() * 1.1 * float64(d.took))
				cmd := d.command(out)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(moment)
				cmd.Process.Kill()
				cmd.Wait()
				files := d.whole(out)
				if files > 0 && files < len(d.want) {
					partial++
				}
				if t.Failed() {
					t.Fatalf("kill %d, after %v of %v, seed %d", kill, moment, d.took, *faultSeed)
				}
				if r.IntN(2) == 0 || kill == *faultKills-1 {
					d.finish(out)
					out = filepath.Join(t.TempDir(), fmt.Sprint(kill+1))
				}
			}
			t.Logf("%d kills within %v, %d with some outputs there and some not", *faultKills, d.took, partial)
		})
	}
}

// TestKillAgain kills runs that label a folder again under other settings: the
// next one finds no output of which it does not know that a run wrote it.
func TestKillAgain(t *testing.T) {
	in := manyDocuments(t, 400)
	d := disturb(t, in, "--format=yedda,csv", "--label_set=full", "--memory_limit=128MiB")
	r := rand.New(rand.NewPCG(*faultSeed, 9))
	for range max(1, *faultKills/4) {
		out := filepath.Join(t.TempDir(), "out")
		d.run(out, 0, "--label_set=collapsed")
		for range 3 {
			cmd := d.command(out)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(r.Float64() * float64(d.took)))
			cmd.Process.Kill()
			cmd.Wait()
		}
		d.finish(out)
	}
}

// TestTwoRuns starts two runs into one folder at once: one stops with a line,
// the other is undisturbed.
func TestTwoRuns(t *testing.T) {
	d := disturb(t, manyDocuments(t, 2000)) // or one could be through before the other begins
	for _, runner := range []string{"direct", "prism"} {
		out := filepath.Join(t.TempDir(), "out")
		var errs [2]bytes.Buffer
		var cmds [2]*exec.Cmd
		for i := range cmds {
			cmds[i] = d.command(out, "--verbosity=0", "--runner="+runner, "--force")
			cmds[i].Stderr = &errs[i]
			if err := cmds[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		status := [2]int{}
		for i := range cmds {
			cmds[i].Wait()
			status[i] = cmds[i].ProcessState.ExitCode()
		}
		if status[0] > status[1] {
			status[0], status[1], errs[0], errs[1] = status[1], status[0], errs[1], errs[0]
		}
		said := errs[1].String()
		if status != [2]int{0, 1} || errs[0].Len() > 0 || strings.Count(said, "\n") != 1 || !strings.Contains(said, "locked by another run") || !strings.Contains(said, "wait for its end") {
			t.Errorf("exit statuses %v, %s%s; want 0 without a word, and 1 with a line about the lock", status, &errs[0], said)
		}
		d.whole(out)
		d.finish(out)
	}
}

// TestDamagedRecords has in the place of a record, a lock or a manifest what
// should not be there.
func TestDamagedRecords(t *testing.T) {
	d := disturb(t, manyDocuments(t, 5), "--format=yedda,html")
	content := func(text string) func(path string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o666) }
	}
	folder := func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o777) }
	link := func(path string) error { return os.Symlink("nowhere", path) }
	damages := map[string]func(path string) error{
		"empty": content(""), "zeros": content("\x00\x00\x00\x00"), "cut": content(`{"document":"0001.txt","inp`),
		"null": content("null"), "array": content("[1]"), "text": content("done"), "types": content(`{"lines":"many","time":0}`),
		"huge": content(strings.Repeat("x", 2<<20)), "two": content("{}\n{}\n"), "folder": folder, "dangling link": link, "pipe": pipeAt,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			d := *d
			d.t = t
			for _, c := range []struct {
				file string
				says map[string]string // of damages that stop a run: what it says
			}{
				{transforms.DoneFolder + "/0001.txt.json", map[string]string{"folder": ""}},
				{transforms.RejectedFolder + "/0001.txt.json", nil},
				{transforms.ManifestFile, map[string]string{"folder": transforms.ManifestFile + ": is a folder"}},
				{transforms.RejectedFile, map[string]string{"folder": transforms.RejectedFile}},
				{transforms.IndexFile, map[string]string{"folder": transforms.IndexFile + ": is a folder"}},
				{transforms.LockFile, map[string]string{"folder": transforms.LockFile + ": is a folder", "pipe": transforms.LockFile + ": is a pipe", "dangling link": transforms.LockFile + ": is a link"}},
			} {
				out := filepath.Join(t.TempDir(), "out")
				d.run(out, 0)
				path := filepath.Join(out, filepath.FromSlash(c.file))
				if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o777)); err != nil {
					t.Fatal(err)
				}
				if err := damage(path); err != nil {
					t.Skip(err)
				}
				says, stops := c.says[name]
				if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 && c.file == transforms.IndexFile {
					if said := d.run(out, 2); !strings.Contains(said, "index.html is there already, and no run of predict wrote it; move it away") {
						t.Errorf("%s: %s", c.file, said)
					}
					stops = true
				} else if stops && says == "" { // a document's own record: it is rejected, the rest is not
					if said := d.run(out, 3); !strings.Contains(said, "1 document rejected") {
						t.Errorf("%s: %s", c.file, said)
					}
				} else if stops {
					if said := d.run(out, 1); !strings.Contains(said, says) {
						t.Errorf("%s: got %s, want %q", c.file, said, says)
					}
				}
				if stops {
					if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
				d.finish(out)
			}
		})
	}
}

// TestChangingInput changes, removes and makes documents anew while they are
// read. What a run makes of them may be of before or after, and the next one's
// is that of the folder as it stands.
func TestChangingInput(t *testing.T) {
	for _, runner := range []string{"direct", "prism"} {
		in, out := manyDocuments(t, 100), filepath.Join(t.TempDir(), "out")
		args := []string{"--runner=" + runner, "--input=" + in, "--output=" + out, "--memory_limit=128MiB", "--max_rejected=1"}
		var over atomic.Bool
		var wait sync.WaitGroup
		wait.Go(func() {
			r := rand.New(rand.NewPCG(*faultSeed, 7))
			for !over.Load() {
				path := filepath.Join(in, fmt.Sprintf("%04d.txt", r.IntN(100)))
				switch r.IntN(3) {
				case 0:
					os.Remove(path)
				case 1:
					os.WriteFile(path, []byte("Boletus edulis Bull.\n"), 0o666)
				case 2:
					if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o666); err == nil {
						f.WriteString(strings.Repeat("Pileus 5 cm latus\n", 1+r.IntN(2000)))
						f.Close()
					}
				}
			}
		})
		for range 2 {
			_, stderr, status := predict(t, args...)
			if status != 0 && status != 3 {
				t.Errorf("%s: exit status %d: %s", runner, status, stderr)
			}
		}
		over.Store(true)
		wait.Wait()
		d := disturb(t, in, args[0], "--max_rejected=1")
		// Outputs of documents that went away stay.
		if _, stderr, status := predict(t, args...); status != 0 {
			t.Fatalf("%s: the next run: exit status %d: %s", runner, status, stderr)
		}
		got := clitest.OutputsOf(t, out)
		for name, want := range d.want {
			if got[name] != want {
				t.Errorf("%s: %s differs from the undisturbed run's", runner, name)
			}
		}
	}
}

// weather is a proxy before a storage server that is slow, answers with
// errors, cuts answers short and drops connections.
type weather struct {
	next   http.Handler
	mu     sync.Mutex
	random *rand.Rand
	share  atomic.Int64 // of requests that something happens to, in percent
	writes atomic.Int64 // that may still succeed, where it is not negative
	n      atomic.Int64 // requests that something happened to

	row map[string]int // of them, for one thing, since the last that nothing happened to
}

func (w *weather) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	wanted := req.Method + " " + req.URL.Path + " " + req.URL.Query().Get("name")
	w.mu.Lock()
	bad, kind, pause := w.random.Int64N(100) < w.share.Load(), w.random.IntN(4), time.Duration(w.random.IntN(20))*time.Millisecond
	if w.row[wanted]++; !bad || w.row[wanted] == 6 { // the program's last try
		bad, w.row[wanted] = false, 0
	}
	w.mu.Unlock()
	if req.Method != http.MethodGet && w.writes.Load() >= 0 && w.writes.Add(-1) < 0 {
		w.writes.Store(0)
		bad, kind = true, 0
	}
	time.Sleep(pause)
	if !bad {
		w.next.ServeHTTP(rw, req)
		return
	}
	w.n.Add(1)
	switch kind {
	case 0: // nothing was done
		io.Copy(io.Discard, req.Body)
		http.Error(rw, "the storage is away", http.StatusServiceUnavailable)
	case 1: // all was done, and nobody is told
		w.next.ServeHTTP(httptest.NewRecorder(), req)
		http.Error(rw, "the storage is away", http.StatusBadGateway)
	case 2: // the connection ends in the answer
		recorder := httptest.NewRecorder()
		w.next.ServeHTTP(recorder, req)
		if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			body := recorder.Body.Bytes()
			fmt.Fprintf(conn, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", recorder.Code, len(body)+1, body[:len(body)/2])
			conn.Close()
		}
	case 3: // or before it
		if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			conn.Close()
		}
	}
}

// TestStuckStorage has storage that does not answer: SIGTERM ends the program
// after 9 s all the same, and a second ctrl-C at once. The bounds leave room for
// a busy machine.
func TestStuckStorage(t *testing.T) {
	server := clitest.Storage(t, "out")
	var writes atomic.Int64
	over := make(chan struct{})
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && writes.Add(1) > 10 {
			<-over
		}
		server.HTTPHandler().ServeHTTP(w, req)
	})))
	t.Cleanup(func() { close(over) })
	in := manyDocuments(t, 20)
	for i, c := range []struct {
		signal os.Signal
		says   string
		within time.Duration
	}{
		{syscall.SIGTERM, "linnet: interrupted by SIGTERM, and not through after 9s; what is done is kept, run again to go on, train with --resume", 30 * time.Second},
		{os.Interrupt, "linnet: interrupted twice, ended at once", 8 * time.Second},
	} {
		writes.Store(0)
		cmd := exec.Command(*faultBinary, "--input="+in, fmt.Sprintf("--output=gs://out/%d", i), "--verbosity=0")
		stderr, ended := start(t, cmd, func() bool { return writes.Load() > 10 })
		begin := time.Now()
		cmd.Process.Signal(c.signal)
		for running := true; running; {
			select {
			case <-ended:
				running = false
			case <-time.After(300 * time.Millisecond):
				if c.signal == os.Interrupt { // a program that is held up may take the second for the first
					cmd.Process.Signal(c.signal)
				}
			}
		}
		if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.HasPrefix(strings.TrimSpace(stderr.String()), c.says) || strings.Count(strings.TrimSpace(stderr.String()), "\n") > 0 {
			t.Errorf("%v: exit status %d, %q; want 1 and %q", c.signal, got, stderr, c.says)
		}
		took := time.Since(begin)
		t.Logf("%v: ended after %v", c.signal, took.Round(100*time.Millisecond))
		if took > c.within {
			t.Errorf("%v: it took %v to end, want at most %v", c.signal, took, c.within)
		}
	}
}

// TestStorageWeather reads from and writes to slow and failing storage.
func TestStorageWeather(t *testing.T) {
	server := clitest.Storage(t, "out")
	to := &url.URL{Scheme: "http", Host: clitest.Serve(t, server.HTTPHandler())}
	w := &weather{next: httputil.NewSingleHostReverseProxy(to), random: rand.New(rand.NewPCG(*faultSeed, 9)), row: map[string]int{}}
	w.writes.Store(-1)
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, w))
	in := manyDocuments(t, 60)
	clitest.PutFS(t, server, "in", "docs", os.DirFS(in))
	d := disturb(t, in)
	check := func(prefix string, all bool) {
		t.Helper()
		objects, err := clitest.Objects(server, "out", prefix+"/")
		if err != nil {
			t.Fatal(err)
		}
		outputs := 0
		for name, content := range objects {
			if strings.HasPrefix(name, "_") {
				continue
			}
			outputs++
			if content != d.want[name] {
				t.Errorf("%s/%s differs", prefix, name)
			}
		}
		if all && outputs != len(d.want) {
			t.Errorf("%s has %d outputs, want %d", prefix, outputs, len(d.want))
		}
	}
	for _, runner := range []string{"direct", "prism"} {
		args := []string{"--runner=" + runner, "--input=gs://in/docs", "--output=gs://out/" + runner}
		w.share.Store(15)
		if stdout, stderr, status := predict(t, args...); status != 0 {
			t.Errorf("%s: exit status %d: %s%s", runner, status, stdout, stderr)
		}
		check(runner, true)
		w.share.Store(0)
	}
	if n := w.n.Load(); n < 5 {
		t.Errorf("only %d requests were disturbed", n)
	}
	t.Logf("%d requests were disturbed", w.n.Load())

	// Storage that takes nothing any more, from the first write on and in the
	// middle: one line, and later all of it.
	for _, writes := range []int64{0, 30} {
		prefix := fmt.Sprintf("later%d", writes)
		args := []string{"--input=gs://in/docs", "--output=gs://out/" + prefix}
		w.writes.Store(writes)
		begin := time.Now()
		_, stderr, status := predict(t, append(args, "--verbosity=0")...)
		if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "linnet: ") || !strings.Contains(stderr, "gs://out/"+prefix+"/") {
			t.Errorf("exit status %d, %q; want 1 and one line that names the place", status, stderr)
		}
		t.Logf("after %d writes it gave up in %v: %s", writes, time.Since(begin).Round(time.Second), stderr)
		check(prefix, false)
		w.writes.Store(-1)
		// The lock could not be removed; it is free when it was not renewed for 5
		// minutes.
		req, err := http.NewRequest(http.MethodDelete, to.String()+"/storage/v1/b/out/o/"+url.PathEscape(prefix+"/"+transforms.LockFile), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err != nil {
			t.Fatal(err)
		} else {
			resp.Body.Close()
		}
		if _, stderr, status := predict(t, args...); status != 0 {
			t.Errorf("the next run: exit status %d: %s", status, stderr)
		}
		check(prefix, true)
	}
}
