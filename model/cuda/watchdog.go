//go:build cuda && cgo

package cuda

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

// defaultTimeout is that of Options: a batch takes a second at most on any GPU,
// and compiling the kernels some on a new one.
const defaultTimeout = 5 * time.Minute

// watchdog gives a card up whose goroutine waits too long for the driver. A thread
// that waits in the driver cannot be ended, so the card's jobs are answered for it,
// and it keeps their plans, for the driver may yet write there.
type watchdog struct {
	opened chan error    // of open's one error
	over   chan struct{} // closed when the goroutine ended or was given up
	lost   sync.Once     // counted out

	mu     sync.Mutex
	inside bool   // a call into the driver
	looks  int    // of watch, since that began
	doing  string // there
	held   []*job // not answered
	ready  bool   // opened has its error
	gone   bool   // given up, or ended
	why    error  // given up
}

func newWatchdog() *watchdog {
	return &watchdog{opened: make(chan error, 1), over: make(chan struct{})}
}

// enter says that the goroutine calls the driver, and leave that it came back;
// false means that nobody waits for it any more.
func (w *watchdog) enter(doing string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside, w.looks, w.doing = true, 0, doing
}

func (w *watchdog) leave() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside = false
	return !w.gone
}

// started tells New how open ended, unless the card was given up.
func (w *watchdog) started(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gone {
		w.ready = true
		w.opened <- err
	}
}

// hold counts a job in, and answer out. A card that was given up holds none, and
// hold returns why that was.
func (w *watchdog) hold(j *job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gone {
		w.held = append(w.held, j)
	}
	return w.why
}

func (w *watchdog) answer(j *job, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return
	}
	w.held = slices.DeleteFunc(w.held, func(held *job) bool { return held == j })
	j.done <- err
}

// end says that the goroutine ends.
func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gone {
		w.gone = true
		close(w.over)
	}
}

// watchdogTicks is how often watch looks at a card within the timeout. It counts
// looks rather than time, so that time in which the process was stopped, or the
// machine slept, does not count.
const watchdogTicks = 8

// giveUp gives the card up where it is in one call at so many looks, which is
// longer than timeout, and returns why; served says that it had opened.
func (w *watchdog) giveUp(d *gpuinit.Device, timeout time.Duration) (why error, served bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || !w.inside {
		return nil, false
	}
	if w.looks++; w.looks <= watchdogTicks {
		return nil, false
	}
	w.gone = true
	w.why = fmt.Errorf("%w: GPU %d (%s): %w", model.ErrDeviceLost, d.Index, d.Name, gpuinit.Hangs(w.doing, timeout))
	for _, j := range w.held {
		j.left = true
		j.done <- w.why
	}
	w.held = nil
	if !w.ready {
		w.opened <- w.why
	}
	close(w.over)
	return w.why, w.ready
}

// watch gives up cards that do not answer, until the Scorer is closed.
func (s *Scorer) watch(timeout time.Duration) {
	tick := time.NewTicker(timeout/watchdogTicks + 1)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.closed:
			return
		}
		for _, c := range s.cards {
			if why, served := c.giveUp(&c.device, timeout); served {
				s.lose(c, why)
			}
		}
	}
}
