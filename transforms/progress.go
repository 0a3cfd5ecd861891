package transforms

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Progress is how far a run is in this process. Transforms find it by
// Options.Run; a launcher whose runner works in its own process reads it, and
// may stop it. Numbers are of documents unless they say otherwise.
type Progress struct {
	Tried      atomic.Int64 // that Read is through with
	Skipped    atomic.Int64 // done by an earlier run
	PassedOver atomic.Int64 // not rejected by an earlier run, under Options.RetryRejected
	Labelled   atomic.Int64
	Rejected   atomic.Int64
	Lines      atomic.Int64 // lines labelled
	Bytes      atomic.Int64 // bytes read

	stages sync.Map // name → *stageProgress

	stop atomic.Bool
	mu   sync.Mutex
	err  error
	note string
}

var runs sync.Map // Options.Run → *Progress

// ProgressOf is the Progress of a run, made when it is first asked for.
func ProgressOf(run string) *Progress {
	p, _ := runs.LoadOrStore(run, new(Progress))
	return p.(*Progress)
}

// ForgetProgress drops a run that is over, and what its watches remember.
func ForgetProgress(run string) {
	runs.Delete(run)
	watches.Range(func(key, _ any) bool {
		if key.([2]any)[0] == any(run) {
			watches.Delete(key)
		}
		return true
	})
}

// Seen is the number of documents that are through, without PassedOver.
func (p *Progress) Seen() int64 {
	return p.Skipped.Load() + p.Labelled.Load() + p.Rejected.Load()
}

// Stop makes Read and List pass over what has not been read, and Write what it has not
// begun, and ends Watch. What runs under this name later reads nothing either, until
// ForgetProgress.
func (p *Progress) Stop() { p.stop.Store(true) }

// Stopped reports whether Stop was called.
func (p *Progress) Stopped() bool { return p.stop.Load() }

// Err is the first error that failed a bundle in this process.
func (p *Progress) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Note keeps the first remark of a run, for its launcher; Noted returns it.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = cmp.Or(p.note, text)
}

// Noted is what Note kept.
func (p *Progress) Noted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.note
}

// stageProgress is what a stage did in this process.
type stageProgress struct {
	bundles atomic.Int64 // in hand
	spent   atomic.Int64 // ns that it worked
}

func (p *Progress) stage(name string) *stageProgress {
	s, _ := p.stages.LoadOrStore(name, new(stageProgress))
	return s.(*stageProgress)
}

// Spent is how long the read, featurize, predict or write stage worked or waited
// in this process, all goroutines together. That of predict, and of features that are
// made for a batch, is of the whole process, whose runs share batches.
func (p *Progress) Spent(stage string) time.Duration {
	spent := p.stage(stage).spent.Load()
	switch stage {
	case "featurize":
		spent += featureTime.Load()
	case "predict":
		spent = scoringTime.Load()
	}
	return time.Duration(spent)
}

// fail keeps err, which fails a bundle, marks it so that a launcher in another
// process finds it in whatever a runner wraps around it, and returns it.
func (p *Progress) fail(stage string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("linnet: %s: %w", stage, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = cmp.Or(p.err, err)
	return err
}
