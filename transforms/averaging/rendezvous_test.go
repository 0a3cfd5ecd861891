package averaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/store"
)

// meet trains by workers that meet in a folder, each a Job of its own, and
// returns the model's hash; worker 1 stops and starts again before each round.
func meet(t *testing.T, dir string, list []Document, docs []train.Document, workers int) string {
	t.Helper()
	ctx := t.Context()
	job := func() *Job { return &Job{Folder: transforms.Path(dir), InputSize: 256, Cores: 1} }
	over := make(chan error, workers)
	attend := func(ctx context.Context, i int) { over <- job().Attend(ctx, i) }
	for i := 2; i < workers; i++ {
		go attend(ctx, i)
	}
	one, stop := context.WithCancel(ctx)
	go attend(one, 1)

	leader := job()
	if err := leader.Begin(ctx, list, docs); err != nil {
		t.Fatal(err)
	}
	o := options(docs)
	o.Distributed, o.RoundSteps = workers, 4
	o.Round = func(ctx context.Context, r train.Round) error {
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("a worker that was stopped: %v", err)
		}
		one, stop = context.WithCancel(t.Context())
		go attend(one, 1)
		return leader.Lead(ctx, r)
	}
	w, _, err := train.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.End(ctx); err != nil {
		t.Fatal(err)
	}
	for range workers - 1 {
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
	stop()
	return w.Hash()
}

// Workers that meet come to the weights of Shares that were called by hand, and
// leave nothing behind; what an earlier training left does not count, and goes.
func TestRendezvous(t *testing.T) {
	pollInterval = 2 * time.Millisecond
	list, docs := corpus(t)
	for _, workers := range []int{2, 3} {
		dir := t.TempDir()
		for _, name := range []string{"share-4-1.state", "share-4-0-TLT6HWZJ.state"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("stale"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if meet(t, dir, list, docs, workers) != byHand(t, docs, workers) {
			t.Errorf("%d workers: other weights than by hand", workers)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

// A share that no leader takes is deleted by its worker, once its round is over.
func TestRendezvousAbandoned(t *testing.T) {
	pollInterval = 2 * time.Millisecond
	ctx := t.Context()
	list, docs := corpus(t)
	job := func(dir string) *Job { return &Job{Folder: transforms.Path(dir), InputSize: 256, Cores: 1} }
	dir := t.TempDir()
	j := job(dir)
	if err := j.Begin(ctx, list, docs); err != nil {
		t.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- job(dir).Attend(ctx, 1) }()
	o := options(docs)
	o.Distributed, o.RoundSteps = 2, 4
	abandoned := errors.New("abandoned")
	o.Round = func(ctx context.Context, r train.Round) error {
		text := fmt.Sprintf(`{"ID":"old","Begin":%d,"Steps":%d,"Workers":2,"InputSize":256}`, r.State.Step(), r.Steps)
		if err := errors.Join(store.Write(ctx, j.file(stateFile), r.State.Encode()), store.Write(ctx, j.file(roundFile), []byte(text))); err != nil {
			return err
		}
		m, err := j.readAnnouncement(ctx)
		if err != nil {
			return err
		}
		if err := wait(ctx, m.shareFile(j, 1)); err != nil {
			return err
		}
		return abandoned
	}
	if _, _, err := train.Run(ctx, o); !errors.Is(err, abandoned) {
		t.Fatal(err)
	}
	for _, name := range []string{roundFile, stateFile, documentsFile} { // as End, which takes shares with it
		if err := store.Delete(ctx, j.file(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Who waits in vain says so.
func TestRendezvousErrors(t *testing.T) {
	pollInterval, roundTimeout = time.Millisecond, 20*time.Millisecond
	defer func() { roundTimeout = time.Hour }()
	list, docs := corpus(t)
	j := &Job{Folder: transforms.Path(t.TempDir()), InputSize: 256, Cores: 1}
	if err := j.Attend(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "start worker 0") {
		t.Errorf("without a leader: %v", err)
	}
	if err := j.Begin(t.Context(), list, docs); err != nil {
		t.Fatal(err)
	}
	o := options(docs)
	o.Distributed, o.Round = 2, j.Lead
	if _, _, err := train.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "worker 1 left no share") {
		t.Errorf("without a worker: %v", err)
	}
	// The leader is gone, and its round lies there.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := j.Attend(ctx, 1); err == nil || !strings.Contains(err.Error(), "start worker 0") {
		t.Errorf("its leader is gone: %v", err)
	}
	if err := j.Attend(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "has 2; start all with the same --workers") {
		t.Errorf("a worker too many: %v", err)
	}
	// Another error than roundTimeout's is said as it is.
	roundTimeout = time.Hour
	lead, stop := context.WithCancel(t.Context())
	go func() {
		for len(glob(string(j.Folder), "share-*-0-*.state")) < 2 { // of the leader before, and of this one
			time.Sleep(pollInterval)
		}
		stop()
	}()
	if _, _, err := train.Run(lead, o); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "left no share") {
		t.Errorf("a leader that is stopped: %v", err)
	}
}
