package averaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/transforms"
)

var errDied = errors.New("died")

// process is a leader or a worker, as a goroutine.
type process struct {
	worker int
	stop   context.CancelFunc
	over   chan error
}

// TestRendezvousAny has workers come, late and twice, and die, leaders die at any point, by
// themselves as a round is over too, and begin anew with another seed, the storage fail for
// a while and strange shares lie about, as chance has it. Once all is quiet, the training
// ends with the weights of Shares that were called by hand, everyone goes, and nothing is
// left behind.
func TestRendezvousAny(t *testing.T) {
	pollInterval, roundTimeout = 200*time.Microsecond, 5*time.Second
	defer func() { roundTimeout = time.Hour }()
	list, docs := corpus(t)
	list, docs = list[:1], docs[:1]
	seeded := func(workers int, seed int64) train.Options {
		o := options(docs)
		o.Config.Seed, o.Config.Epochs, o.Distributed, o.RoundSteps = seed, 2, workers, 1
		return o
	}
	wants := map[string]string{}
	want := func(workers int, seed int64) string {
		key := fmt.Sprint(workers, seed)
		if wants[key] == "" {
			wants[key] = ofShares(t, docs, seeded(workers, seed))
		}
		return wants[key]
	}
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		dir, folder := filepath.Join(root, "training"), filepath.Join(root, "folder")
		if err := errors.Join(os.Mkdir(dir, 0o777), os.MkdirAll(filepath.Join(folder, "full"), 0o777)); err != nil {
			t.Fatal(err)
		}
		job := func() *Job { return &Job{Folder: transforms.Path(dir), InputSize: 256, Cores: 1} }
		workers, seed := rapid.IntRange(1, 3).Draw(t, "workers"), int64(1)
		all, end := context.WithCancel(t.Context())
		defer end()
		start := func(worker int, f func(ctx context.Context) error) *process {
			ctx, stop := context.WithCancel(all)
			p := &process{worker, stop, make(chan error, 1)}
			go func() { p.over <- f(ctx) }()
			return p
		}

		var checkpoint []byte // of the leader before
		var ended atomic.Bool
		quiet := make(chan struct{}) // nobody is stopped any more
		hash := ""
		lead := func(dies int) *process {
			o, from := seeded(workers, seed), checkpoint
			return start(0, func(ctx context.Context) (err error) {
				if from != nil {
					if o.Resume, err = train.DecodeState(from); err != nil {
						return err
					}
				}
				o.Checkpoint = func(_ context.Context, s *train.State) error {
					if dies--; dies == 0 { // first
						return errDied
					}
					checkpoint = s.Encode()
					return nil
				}
				j, begun := job(), false
				o.Round = func(ctx context.Context, r train.Round) error {
					if !begun {
						if err := j.Begin(ctx, list, docs); err != nil {
							return err
						}
						begun = true
					}
					return j.Lead(ctx, r)
				}
				w, _, err := train.Run(ctx, o)
				if err != nil {
					return err
				}
				select {
				case <-quiet:
				case <-ctx.Done():
					return ctx.Err()
				}
				hash = w.Hash()
				ended.Store(true)
				return j.End(ctx)
			})
		}
		attend := func(worker int) *process {
			return start(worker, func(ctx context.Context) error { return job().Attend(ctx, worker) })
		}
		// over is what became of a process.
		over := func(p *process, err error, stopped bool) {
			switch {
			case stopped && errors.Is(err, context.Canceled):
			case err != nil && strings.Contains(err.Error(), filepath.Join(dir, roundFile)+": "): // broken
			case err == nil && ended.Load():
			case p.worker == 0 && errors.Is(err, errDied):
			default:
				t.Fatalf("worker %d, stopped %v, ends with %v", p.worker, stopped, err)
			}
		}
		running := []*process{}
		stop := func(worker int) {
			for i, p := range running {
				if p.worker == worker {
					p.stop()
					over(p, <-p.over, true)
					running = slices.Delete(running, i, i+1)
					return
				}
			}
		}
		number := func(worker int) (n int) {
			for _, p := range running {
				if p.worker == worker {
					n++
				}
			}
			return n
		}
		sweep := func() { // of those that ended by themselves
			running = slices.DeleteFunc(running, func(p *process) bool {
				select {
				case err := <-p.over:
					over(p, err, false)
					return true
				default:
					return false
				}
			})
		}
		come := func(worker, dies int) {
			switch {
			case worker > 0 && number(worker) < 2:
				running = append(running, attend(worker))
			case worker == 0 && number(0) == 0:
				running = append(running, lead(dies))
			}
		}
		pause := func() {
			time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 500, 3000, 20000}).Draw(t, "µs")) * time.Microsecond)
		}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			sweep()
			worker := rapid.IntRange(0, workers-1).Draw(t, "worker")
			switch rapid.SampledFrom([]string{"come", "come", "all come", "stop", "anew", "break", "share"}).Draw(t, "step") {
			case "come":
				come(worker, rapid.IntRange(0, 3).Draw(t, "dies"))
			case "all come":
				for worker := range workers {
					if number(worker) == 0 {
						come(worker, 0)
					}
				}
			case "stop":
				stop(worker)
			case "anew":
				stop(0)
				seed, checkpoint = 3-seed, nil
			case "break":
				if path := filepath.Join(dir, roundFile); os.Rename(folder, path) == nil { // no file is there
					pause()
					if err := os.Rename(path, folder); err != nil {
						t.Fatal(err)
					}
				}
			case "share":
				path := filepath.Join(dir, fmt.Sprintf(sharePrefix+"2-%d-STRANGER.state", worker))
				if err := os.WriteFile(path, nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			pause()
		}
		close(quiet)
		for until := time.Now().Add(time.Minute); !ended.Load() || number(0) > 0; time.Sleep(pollInterval) {
			sweep()
			for worker := range workers {
				if number(worker) == 0 && !ended.Load() {
					come(worker, 0)
				}
			}
			if time.Now().After(until) {
				t.Fatal("no end after a minute")
			}
		}
		for range 1000 {
			time.Sleep(5 * pollInterval)
			if sweep(); len(running) == 0 {
				break
			}
			time.Sleep(50 * pollInterval)
			j := job() // a training for those that came as the folder was empty already
			if err := j.Begin(all, list, docs); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * pollInterval)
			if err := j.End(all); err != nil {
				t.Fatal(err)
			}
		}
		if len(running) > 0 {
			t.Fatalf("worker %d does not go", running[0].worker)
		}
		if hash != want(workers, seed) {
			t.Fatalf("%d workers: other weights than by hand", workers)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Fatalf("left behind: %v %v", left, err)
		}
	})
}
