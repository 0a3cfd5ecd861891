package averaging

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/transforms/store"
)

// A training needs no runner where its workers are processes that somebody else
// starts, such as the pods of an indexed Job: Job.Folder is their rendezvous. Worker 0
// leads (Lead) and writes roundFile; each of the others (Attend) polls for it,
// trains its share and leaves a file, as on a runner. Whoever is killed and
// started again finds what to do in the folder.

const roundFile = "round.json"

// announcement is a round as its leader writes it into roundFile.
type announcement struct {
	ID                    string // of this round alone: shares of others do not count
	Begin, Steps, Workers int
	InputSize             int
}

func (m *announcement) shareFile(j *Job, worker int) string {
	return j.file(fmt.Sprintf(sharePrefix+"%d-%d-%s.state", m.Begin+m.Steps, worker, m.ID))
}

// How often a worker looks for a file, and after how long without one it gives up.
var (
	pollInterval = time.Second
	roundTimeout = time.Hour
)

// Lead runs a round as worker 0, the leader of the others.
func (j *Job) Lead(ctx context.Context, r train.Round) error {
	m := &announcement{ID: rand.Text()[:8], Begin: r.State.Step(), Steps: r.Steps, Workers: r.Workers, InputSize: j.InputSize}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = errors.Join(store.Write(ctx, j.file(stateFile), r.State.Encode()), store.Write(ctx, j.file(roundFile), text))
	if err == nil {
		err = j.writeShare(ctx, m, 0)
	}
	if err != nil {
		return err
	}
	for i := range m.Workers {
		path := m.shareFile(j, i)
		if err := wait(ctx, path); errors.Is(err, store.ErrNotExist) {
			return fmt.Errorf("averaging: worker %d left no share for %v; start it again, with the same --model_out", i, roundTimeout)
		} else if err != nil {
			return err
		}
		s, err := readState(ctx, path)
		if err != nil {
			return err
		}
		if err := r.Merge(s); err != nil {
			return err
		}
	}
	// First the round, so that nobody begins it again.
	if err := store.Delete(ctx, j.file(roundFile)); err != nil {
		return err
	}
	for i := range m.Workers {
		if err := store.Delete(ctx, m.shareFile(j, i)); err != nil {
			return err
		}
	}
	return nil
}

func (j *Job) writeShare(ctx context.Context, m *announcement, worker int) error {
	s, err := j.trainShare(ctx, worker, m.Workers, m.Steps)
	if err != nil {
		return err
	}
	return store.Write(ctx, m.shareFile(j, worker), s.Encode())
}

// Attend trains the shares of a worker, from 1 on, round after round until the training
// is over.
func (j *Job) Attend(ctx context.Context, worker int) error {
	began := false
	lastContact := time.Now() // when the leader last asked for a share or took one
	mine := ""                // the share that lies in the folder
	for {
		m, err := j.readAnnouncement(ctx)
		if err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
		path := ""
		if m != nil {
			path = m.shareFile(j, worker)
		}
		if mine != "" && mine != path {
			// The leader deleted it, unless it came too late or a leader
			// before it had asked for it.
			if err := store.Delete(ctx, mine); err != nil {
				return err
			}
			mine, lastContact = "", time.Now()
		}
		switch {
		case m == nil:
			switch there, err := j.Runs(ctx); {
			case err != nil:
				return err
			case !there && began:
				return nil
			case there:
				began = true
			}
		case worker >= m.Workers:
			return fmt.Errorf("averaging: worker %d, but the training in %s has %d; start all with the same --workers", worker, j.Folder, m.Workers)
		default:
			began = true
			there, err := store.Exists(ctx, path)
			if err != nil {
				return err
			}
			if !there {
				j.InputSize = m.InputSize
				if err := j.writeShare(ctx, m, worker); err != nil {
					// The leader may have gone on, or begun anew, meanwhile.
					if now, e := j.readAnnouncement(ctx); e == nil && now.ID == m.ID {
						return err
					}
				}
				lastContact = time.Now()
			}
			mine = path
		}
		if time.Since(lastContact) > roundTimeout {
			return fmt.Errorf("averaging: no new round in %s for %v; start worker 0, with the same --model_out", j.Folder, roundTimeout)
		}
		if err := sleep(ctx); err != nil {
			return err
		}
	}
}

// Runs reports whether a training has begun in Folder, and not ended.
func (j *Job) Runs(ctx context.Context) (bool, error) {
	return store.Exists(ctx, j.file(documentsFile))
}

func (j *Job) readAnnouncement(ctx context.Context) (*announcement, error) {
	text, err := store.Read(ctx, j.file(roundFile), 0)
	if err != nil {
		return nil, err
	}
	m := new(announcement)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("averaging: %s: %w", j.file(roundFile), err)
	}
	return m, nil
}

// wait waits for a file.
func wait(ctx context.Context, path string) error {
	for began := time.Now(); ; {
		there, err := store.Exists(ctx, path)
		if there || err != nil {
			return err
		}
		if time.Since(began) > roundTimeout {
			return store.ErrNotExist
		}
		if err := sleep(ctx); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollInterval):
		return nil
	}
}
