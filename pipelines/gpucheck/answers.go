package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/store"
)

// pipeline deals elements out over all workers: so many more than there are
// workers that a runner which does so by chance misses none.
func pipeline(s beam.Scope, fn *checkFn) {
	numbers := make([]int, max(64, 32*fn.Workers))
	for i := range numbers {
		numbers[i] = i
	}
	beam.ParDo0(s, fn, beam.Reshuffle(s, beam.CreateList(s, numbers)))
}

// checkFn has its process checked once and holds every element until enough
// processes have answered.
type checkFn struct {
	Folder  transforms.Path // of the run's answers
	Workers int
	Timeout time.Duration // of waiting for the others
	Device  string
}

// asked are the checks of this process, by folder: *func() (string, error).
var asked sync.Map

func (f *checkFn) ProcessElement(ctx context.Context, _ int) error {
	ask := sync.OnceValues(func() (string, error) { return f.answer(ctx) })
	once, _ := asked.LoadOrStore(f.Folder, &ask)
	id, err := (*once.(*func() (string, error)))()
	if err != nil {
		asked.CompareAndDelete(f.Folder, once) // a retry asks again
		return fmt.Errorf("linnet: gpucheck: %w", err)
	}
	beam.NewCounter(namespace, answered+id).Inc(ctx, 1)
	return nil
}

// answer checks this process, writes what it found and waits for the others. It
// returns the answer's ID.
func (f *checkFn) answer(ctx context.Context) (string, error) {
	a := lookAround(ctx, f.Device, max(8, f.Workers))
	data, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	st, err := store.For(ctx, string(f.Folder))
	if err != nil {
		return "", err
	}
	file := store.Join(string(f.Folder), a.ID+".json")
	if err := store.FolderError(st.Write(ctx, file, data)); err != nil {
		return "", err
	}
	if err := f.wait(ctx, st); err != nil {
		_ = st.Delete(context.WithoutCancel(ctx), file) // or a retry would take it for another process's
		return "", err
	}
	return a.ID, nil
}

// wait waits for the answers of the others, until Timeout.
func (f *checkFn) wait(ctx context.Context, st store.Store) error {
	if f.Workers <= 1 {
		return nil
	}
	for until := time.Now().Add(f.Timeout); ; {
		there := 0
		err := st.List(ctx, string(f.Folder), func(o store.Object) error {
			if o.Err == nil { // a folder that could not be listed is looked at again
				there++
			}
			return nil
		})
		if err != nil {
			return err
		}
		if there >= f.Workers || !time.Now().Before(until) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// read reads the answers in folder, sorted by host and process.
func read(ctx context.Context, folder string) ([]answer, error) {
	st, err := store.For(ctx, folder)
	if err != nil {
		return nil, err
	}
	var answers []answer
	err = st.List(ctx, folder, func(o store.Object) error {
		if o.Err != nil {
			return o.Err
		}
		data, err := st.Read(ctx, o.Path, 1<<20)
		if err != nil {
			return err
		}
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("gpucheck: %s: %w", o.Path, err)
		}
		answers = append(answers, a)
		return nil
	})
	if len(answers) == 0 && errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("gpucheck: no answer lies in %s: --output must name what the workers and this program share", folder)
	}
	slices.SortFunc(answers, func(a, b answer) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.PID-b.PID)
	})
	return answers, err
}

// remove deletes the answers, as far as it can.
func remove(ctx context.Context, folder string) {
	st, err := store.For(ctx, folder)
	if err != nil {
		return
	}
	_ = st.List(ctx, folder, func(o store.Object) error { return st.Delete(ctx, o.Path) })
	_ = st.Delete(ctx, folder)
}

// current are the answers of the processes that came to the end. Where a job was
// tried again there are others, of processes that are gone. A runner that counts
// nothing leaves all.
func current(answers []answer, counters map[string]int64) []answer {
	counted := false
	for name := range counters {
		counted = counted || strings.HasPrefix(name, answered)
	}
	if !counted {
		return answers
	}
	return slices.DeleteFunc(answers, func(a answer) bool { return counters[answered+a.ID] == 0 })
}

func init() { beam.RegisterDoFn(&checkFn{}) }
