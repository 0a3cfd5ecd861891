package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms/store"
)

// medium is a training of some seconds' tenths and 100 steps and more.
func medium(corpus, out string, more ...string) []string {
	args := []string{"--input=" + corpus, "--validation=" + filepath.Join(corpus, "4.txt.ann"), "--model_out=" + out, "--input_size=512",
		"--embedding_size=16", "--hidden_size=24", "--epochs=6", "--batch_size=2", "--window_size=10", "--seed=3", "--checkpoint_steps=1"}
	return append(args, more...)
}

// weightsOf runs train to its end and returns the file of its weights.
func weightsOf(t *testing.T, out string, args []string) (weights []byte, said string) {
	t.Helper()
	text, err := exec.Command("train", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("train %q: %v: %s", args, err, text)
	}
	weights = clitest.ReadFile(t, filepath.Join(out, "weights.safetensors"))
	if left, err := os.Stat(filepath.Join(out, trainingFolder)); err == nil {
		t.Errorf("%s is still there", left.Name())
	}
	return weights, string(text)
}

// killAt runs train and ends it by SIGKILL as soon as its checkpoint is at the
// point that is asked for. One that was through before this test looked again, as
// on a busy machine, has left no checkpoint and is run anew.
func killAt(t *testing.T, out string, args []string, point func(*train.State) bool) {
	t.Helper()
	path := filepath.Join(out, trainingFolder, checkpointFile)
	reached := func() bool {
		data, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		s, err := train.DecodeState(data)
		if err != nil {
			t.Fatalf("a checkpoint that is not whole: %v", err)
		}
		return point(s)
	}
	for range 20 {
		cmd := exec.Command("train", args...)
		if err := errors.Join(os.RemoveAll(out), cmd.Start()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("train failed before the point where it was to be killed: %v", err)
				}
				running = false
			case <-time.After(time.Millisecond):
				if reached() {
					cmd.Process.Kill()
					<-ended
					if _, err := os.Stat(path); err == nil {
						return
					}
					running = false
				}
			}
		}
	}
	t.Fatal("20 trainings ended before the point where they were to be killed")
}

// TestKilled kills trainings at three points and resumes them: the weights are
// those of one that was let alone, byte for byte.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	corpus := newCorpus(t)
	points := []struct {
		name string
		at   func(*train.State) bool
	}{
		{"inside the first epoch", func(s *train.State) bool { return s.Position.Epoch.Steps >= 5 }},
		{"behind the second epoch", func(s *train.State) bool { return s.Epochs() >= 2 }},
		{"inside the fourth epoch", func(s *train.State) bool { return s.Epochs() >= 3 && s.Position.Epoch.Steps >= 7 }},
	}
	for name, more := range map[string][]string{
		"in this process": nil,
		"early stopping":  {"--early_stopping=5", "--init_model=" + filepath.Join(t.TempDir(), "base")},
		"two workers":     {"--workers=2", "--round_steps=3", "--runner=direct"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "early") {
				weightsOf(t, strings.TrimPrefix(more[1], "--init_model="), medium(corpus, strings.TrimPrefix(more[1], "--init_model="), "--epochs=1"))
			}
			out := filepath.Join(t.TempDir(), "model")
			want, _ := weightsOf(t, out, medium(corpus, out, more...))
			for _, p := range points {
				out := filepath.Join(t.TempDir(), "model")
				args := medium(corpus, out, more...)
				killAt(t, out, args, p.at)
				got, said := weightsOf(t, out, append(args, "--resume"))
				if !bytes.Equal(got, want) {
					t.Errorf("killed %s and resumed: other weights", p.name)
				}
				if !strings.Contains(said, "--resume: the checkpoint is of step ") {
					t.Errorf("killed %s: the second run says %s", p.name, said)
				}
			}
		})
	}
}

// TestResumeRefuses resumes with other flags, other documents and a damaged
// checkpoint.
func TestResumeRefuses(t *testing.T) {
	corpus := newCorpus(t)
	out := filepath.Join(t.TempDir(), "model")
	args := medium(corpus, out)
	killAt(t, out, args, func(s *train.State) bool { return s.Step() > 3 })
	refused := func(what, want string, more ...string) {
		t.Helper()
		text, err := exec.Command("train", append(append(args, "--resume", "--verbosity=0"), more...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(text), want) || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s: %v: %s; want one line with %q", what, err, text, want)
		}
	}
	refused("another rate", "learning_rate was 0.005, not 0.001; give the flags and documents it was begun with to the same version of this program, or", "--learning_rate=0.001")
	if text, err := exec.Command("train", append(args, "--resume", "--learning_rate=0.001")...).CombinedOutput(); err == nil || strings.Contains(string(text), "going on") {
		t.Errorf("another rate: %v: it goes on: %s", err, text)
	}
	refused("another patience", "early_stopping was 0, not 2", "--early_stopping=2")
	refused("another epoch kept", "keep was best, not last", "--keep=last")
	refused("another number of workers", "workers were 0, not 2", "--workers=2")
	refused("another label set", `label_set was "collapsed", not "full"`, "--label_set=full")
	refused("another label map", `label_map was none, not {"Description":"Shell"}`, "--label_map=Description=Shell")
	refused("fewer classes", "the classes are others, by num_classes or the training documents", "--num_classes=2")
	refused("fewer documents", "training documents are others", "--test="+filepath.Join(corpus, "2.txt.ann"))
	path := filepath.Join(out, trainingFolder, checkpointFile)
	data := clitest.ReadFile(t, path)
	if err := os.WriteFile(path, data[:len(data)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	refused("half a checkpoint", "no whole checkpoint")
	// Without --resume it begins anew, and says so; with it and no checkpoint
	// as well.
	if _, said := weightsOf(t, out, args); !strings.Contains(said, "is of an earlier training") {
		t.Errorf("a new training says %s", said)
	}
	if _, said := weightsOf(t, out, append(args, "--resume")); !strings.Contains(said, "no checkpoint") {
		t.Errorf("nothing to resume: it says %s", said)
	}
}

// TestLockOne has many take the lock and give it back, which removes it: no two of them
// have it at once.
func TestLockOne(t *testing.T) {
	to := filepath.Join(t.TempDir(), "model")
	var taken, holding, twice atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for until := time.Now().Add(time.Second); time.Now().Before(until); {
				unlock, err := lock(t.Context(), to, filepath.Join(to, trainingFolder))
				if err != nil {
					continue
				}
				taken.Add(1)
				twice.Add(holding.Add(1) - 1)
				time.Sleep(200 * time.Microsecond)
				holding.Add(-1)
				unlock()
			}
		})
	}
	wait.Wait()
	if taken.Load() < 8 || twice.Load() > 0 {
		t.Errorf("taken %d times, %d of them beside another", taken.Load(), twice.Load())
	}
}

// TestLock has two trainings into one folder: the second one is refused, before the first
// is done and never after, and what it would have made is not there.
func TestLock(t *testing.T) {
	corpus := newCorpus(t)
	out := filepath.Join(t.TempDir(), "new", "model")
	unlock := locked(t, out, filepath.Join(out, trainingFolder))
	args := medium(corpus, out, "--epochs=1", "--verbosity=0")
	text, err := exec.Command("train", args...).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "_training/_lock: locked by another run (process "+strconv.Itoa(os.Getpid())) || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%v: %s; want one line that tells who has the folder", err, text)
	}
	at := checkpoint{path: filepath.Join(out, trainingFolder, checkpointFile)}
	if err := errors.Join(os.WriteFile(at.path, nil, 0o666), at.remove(t.Context(), filepath.Dir(at.path))); err != nil {
		t.Fatal(err)
	}
	if _, err := lock(t.Context(), out, filepath.Dir(at.path)); !errors.Is(err, store.ErrLocked) {
		t.Errorf("after the checkpoint is removed: got %v, want %v", err, store.ErrLocked)
	}
	unlock()
	if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	weightsOf(t, out, medium(corpus, out, "--epochs=1"))
	if left, err := filepath.Glob(filepath.Join(out, "_*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestRunners trains by workers on each runner of this machine: one worker
// gives the weights of a training without any, two give equal ones on both
// runners, and so they do with all files in buckets.
func TestRunners(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	corpus := newCorpus(t)
	trained := func(more ...string) []byte {
		out := filepath.Join(t.TempDir(), "model")
		w, _ := weightsOf(t, out, medium(corpus, out, append(more, "--epochs=3")...))
		return w
	}
	alone := trained()
	for _, runner := range []string{"direct", "prism"} {
		if !bytes.Equal(trained("--runner="+runner), alone) {
			t.Errorf("one worker on %s: other weights than without", runner)
		}
	}
	two := trained("--runner=direct", "--workers=2", "--round_steps=4")
	if bytes.Equal(two, alone) {
		t.Error("two workers: the weights of one")
	}
	if !bytes.Equal(trained("--runner=prism", "--workers=2", "--round_steps=4", "--worker_cores=1"), two) {
		t.Error("two workers: other weights on prism than on direct")
	}

	server := clitest.Storage(t)
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	clitest.PutFS(t, server, "in", "docs", os.DirFS(corpus))
	// A share that a killed leader left.
	clitest.Put(server, "out", "model/"+trainingFolder+"/share-9-0-TLT6HWZJ.state", nil)
	args := medium("gs://in/docs", "gs://out/model", "--epochs=3", "--runner=prism", "--workers=2", "--round_steps=4", "--validation=gs://in/docs/4.txt.ann")
	args[1] = args[0] // a local file
	if text, err := exec.Command("train", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	objects, err := clitest.Objects(server, "out", "model/")
	if err != nil {
		t.Fatal(err)
	}
	if objects["weights.safetensors"] != string(two) {
		t.Error("two workers with files in buckets: other weights")
	}
	if got, want := slices.Sorted(maps.Keys(objects)), []string{"config.json", "metadata.json", "training.svg", "weights.safetensors"}; !slices.Equal(got, want) {
		t.Errorf("the bucket holds %s, want %s", got, want)
	}
}
