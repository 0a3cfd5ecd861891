package inference

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"pgregory.net/rapid"
)

// anyFileLoader loads numbers from files. A file without one is half written.
type anyFileLoader struct{ Pattern, Path string }

// anyFiles has the models of each pattern, *[]*anyFile.
var anyFiles sync.Map

func (l anyFileLoader) Watch() string { return l.Pattern }

func (l anyFileLoader) At(path string) anyFileLoader { return anyFileLoader{l.Pattern, path} }

func (l anyFileLoader) Load(context.Context) (Handler[int, int], error) {
	data, err := os.ReadFile(l.Path)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(n*7%5) * time.Millisecond) // others look meanwhile
	files, _ := anyFiles.Load(l.Pattern)
	return files.(*loaded).add(n), nil
}

// loaded are the models of a pattern that were loaded.
type loaded struct {
	mu    sync.Mutex
	files []*anyFile
}

func (l *loaded) add(n int) *anyFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &anyFile{all: l, n: n}
	l.files = append(l.files, f)
	return f
}

// open are those that were not closed.
func (l *loaded) open() (numbers []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if !f.closed {
			numbers = append(numbers, f.n)
		}
	}
	return numbers
}

type anyFile struct {
	all    *loaded
	n      int
	closed bool
}

func (f *anyFile) Run(_ context.Context, batch []int) ([]int, error) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	if f.closed {
		return nil, errors.New("a model runs that is closed")
	}
	outs := make([]int, len(batch))
	for i := range batch {
		outs[i] = f.n
	}
	return outs, nil
}

func fileOf(s *served[int, int]) *anyFile { return s.engine.handler.(*anyFile) }

// atWork is the process's model, or nil.
func atWork(pattern string) *anyFile {
	currentMu.Lock()
	defer currentMu.Unlock()
	for config, m := range current {
		if strings.Contains(config, strconv.Quote(pattern)) {
			return fileOf(m.(activeModel[int, int]).served)
		}
	}
	return nil
}

func (*anyFile) Weight(int) int64 { return 1 }

func (f *anyFile) Close() error {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.closed = true
	return nil
}

// TestUpdateAny has models come, go, change and be half written while instances of the DoFn
// go through bundles, side by side. A bundle has the newest model of its begin, to its end,
// or where that cannot be loaded the one before; one model is open and those of the bundles.
func TestUpdateAny(t *testing.T) {
	log.SetLogger(&log.Standard{Level: log.SevFatal})
	defer log.SetLogger(&log.Standard{Level: log.SevWarn})
	type instance struct {
		fn   *runFn[int, int, anyFileLoader]
		with int // model of the bundle, 0 is none
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		all := new(loaded)
		pattern := filepath.Join(dir, "*")
		anyFiles.Store(pattern, all)
		defer anyFiles.Delete(pattern)
		type change struct {
			Do       string
			Instance int
			Name     string
			After    []int // ms until each instance starts, and a model comes and goes
		}
		changes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) change {
			return change{
				Do:       rapid.SampledFrom([]string{"start", "start", "start", "start", "finish", "fail", "start all", "race", "new", "write", "write", "half", "remove"}).Draw(rt, "do"),
				Instance: rapid.IntRange(0, 2).Draw(rt, "instance"),
				Name:     rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"),
				After:    rapid.SliceOfN(rapid.IntRange(0, 4), 5, 5).Draw(rt, "after"),
			}
		}), 1, 60).Draw(rt, "changes")

		var wrong error
		failf := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
		synctest.Test(t, func(*testing.T) {
			ctx := context.Background()
			fail := func(_ beam.EventTime, x int, cause string) { failf("%d failed: %s", x, cause) }
			emit := func(_ beam.EventTime, with, got int) {
				if got != with {
					failf("model %d answers, want %d", got, with)
				}
			}
			instances := make([]instance, 3)
			type file struct{ number, at int } // number 0 is half written
			files := map[string]file{}
			number, now := 0, 0
			look := func() { // what is at work then
				newest := file{}
				for _, f := range files {
					if f.at > newest.at {
						newest = f
					}
				}
				if newest.number > 0 {
					now = newest.number
				}
			}
			write := func(name string, whole bool) {
				number++
				f, content := file{0, number}, ""
				if whole {
					f.number, content = number, fmt.Sprint(number)
				}
				path, at := filepath.Join(dir, "."+name), time.Unix(int64(number), 0)
				if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chtimes(path, at, at), os.Rename(path, filepath.Join(dir, name))); err != nil {
					failf("%v", err)
				}
				files[name] = f
			}
			remove := func(name string) {
				os.Remove(filepath.Join(dir, name))
				delete(files, name)
			}
			finish := func(in *instance) {
				if in.with > 0 {
					if err := errors.Join(in.fn.ProcessElement(ctx, 0, in.with, emit, fail), in.fn.FinishBundle(ctx, emit, fail)); err != nil {
						failf("a bundle with model %d: %v", in.with, err)
					}
					in.with = 0
				}
			}
			for step, c := range changes {
				in := &instances[c.Instance]
				switch c.Do {
				case "new":
					if in.with > 0 {
						continue // a bundle that is lost holds its model for ever
					}
					in.fn = nil
				case "write", "half":
					write(c.Name, c.Do == "write")
				case "remove":
					remove(c.Name)
				case "start", "start all", "race": // with a model that comes
					var wait sync.WaitGroup
					var started []*instance
					for i := range instances {
						if c.Do != "start" || i == c.Instance {
							started = append(started, &instances[i])
							finish(&instances[i])
						}
					}
					look()
					errs := make([]error, len(started))
					for i, in := range started {
						wait.Go(func() {
							if c.Do == "race" {
								time.Sleep(time.Duration(c.After[i]) * time.Millisecond)
							}
							if in.fn == nil {
								in.fn = &runFn[int, int, anyFileLoader]{Loader: anyFileLoader{Pattern: pattern}}
								errs[i] = in.fn.Setup(ctx)
							}
							if errs[i] == nil {
								errs[i] = in.fn.StartBundle(ctx, emit, fail)
							}
						})
					}
					may := map[int]bool{now: true}
					if c.Do == "race" {
						time.Sleep(time.Duration(c.After[3]) * time.Millisecond)
						write(c.Name, true)
						if c.After[4] > 0 {
							time.Sleep(time.Duration(c.After[4]) * time.Millisecond)
							remove(c.Name)
						}
						for n := range number + 1 {
							may[n] = true
						}
					}
					wait.Wait()
					for i, in := range started {
						if errs[i] != nil {
							if in.fn = nil; now > 0 && c.Do != "race" {
								failf("%d %s: %v", step, c.Do, errs[i])
							}
							continue
						}
						if in.with = fileOf(in.fn.served).n; !may[in.with] {
							failf("%d %s: model %d is at work, want %d", step, c.Do, in.with, now)
						}
					}
					if f := atWork(pattern); f != nil && may[f.n] {
						now = f.n
					} else if c.Do == "race" {
						now = 0
					}
				case "finish":
					finish(in)
				case "fail": // Beam calls StartBundle next
					if in.with > 0 {
						look()
						if err := in.fn.StartBundle(ctx, emit, fail); err != nil {
							failf("start after a failure: %v", err)
						}
						in.with = now
					}
				}
				synctest.Wait() // for what is closed
				want := map[*anyFile]bool{}
				if f := atWork(pattern); f != nil {
					if want[f] = true; f.n != now {
						failf("%d %s: model %d is the process's, want %d", step, c.Do, f.n, now)
					}
				}
				for _, in := range instances {
					if in.with > 0 {
						want[fileOf(in.fn.served)] = true
					}
				}
				if open := all.open(); len(open) != len(want) {
					failf("%d %s: models %v are open, want %d", step, c.Do, open, len(want))
				}
			}
			for i := range instances {
				finish(&instances[i])
			}
		})
		if wrong != nil {
			rt.Fatal(wrong)
		}
	})
}
