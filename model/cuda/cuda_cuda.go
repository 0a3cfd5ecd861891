//go:build cuda && cgo

package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/linnet-ml/linnet/model"
)

// Scorer implements model.MultiScorer on one or more devices. A goroutine with
// a thread of its own holds each device's context; a call lays the next free plan,
// and goes to the plan's device. A call that a lost device held goes to the others;
// when all are lost calls return model.ErrDeviceLost. A device whose driver does not
// answer is lost, too.
type Scorer struct {
	sizes     sizes
	rows      int // of the table
	text      string
	precision string
	log       func(level int, format string, args ...any)

	cards  []*card
	close  sync.Once
	closed chan struct{} // when close is done
	plans  chan *plan    // free ones; has room for all

	mu    sync.Mutex
	alive int
	dead  chan struct{} // closed when alive is 0
	why   error         // of the last device that was lost
}

// New puts w on the devices. Where only some of them have room, it uses those.
func New(w *model.Weights, o Options) (*Scorer, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	if len(o.Devices) == 0 {
		return nil, errors.New("cuda: no devices")
	}
	half := false
	switch o.Precision {
	case "", Float16:
		half = halfFits(w)
	case Float32:
	default:
		return nil, fmt.Errorf("cuda: precision: %s; it must be %s or %s", strconv.Quote(o.Precision), Float16, Float32)
	}
	s := &Scorer{rows: w.Config.InputSize, plans: make(chan *plan, plans*len(o.Devices)), closed: make(chan struct{}), dead: make(chan struct{})}
	s.sizes.fill(&w.Config)
	s.precision = Float32
	if half {
		s.precision = Float16
	}
	s.text = "cuda, " + s.precision
	if s.log = o.Log; s.log == nil {
		s.log = func(int, string, ...any) {}
	}
	for _, device := range o.Devices {
		c := &card{watchdog: newWatchdog(), device: device, limit: o.MemoryLimit, jobs: make(chan *job, plans)}
		s.cards = append(s.cards, c)
		go s.own(c, w, half)
	}
	go s.watch(cmp.Or(o.Timeout, defaultTimeout))
	var failed []error
	for _, c := range s.cards {
		if err := <-c.opened; err != nil {
			failed = append(failed, err)
		} else {
			s.text += fmt.Sprintf(", GPU %d %s", c.device.Index, c.device.Name)
			s.mu.Lock()
			s.alive++
			s.mu.Unlock()
			c.out.Add(plans)
			for i := range c.plans {
				c.plans[i] = &plan{card: c}
			}
			go func() {
				c.out.Wait()
				close(c.jobs)
			}()
		}
	}
	for i := range plans { // of each card in turn
		for _, c := range s.cards {
			if c.plans[i] != nil {
				s.plans <- c.plans[i]
			}
		}
	}
	if s.alive == 0 {
		s.Close()
		return nil, failed[len(failed)-1]
	}
	for _, err := range failed {
		s.log(1, without, err)
	}
	return s, nil
}

// own is the goroutine of c, from its opening to its closing.
func (s *Scorer) own(c *card, w *model.Weights, half bool) {
	defer c.end()
	c.enter("starting")
	err := c.open(w, half)
	there := c.leave()
	c.started(err)
	if err != nil {
		return
	}
	if there {
		err := c.serve()
		if err != nil && err != errGivenUp { // watch says why a card was given up
			s.lose(c, err)
		}
		for j := range c.jobs {
			c.answer(j, err)
		}
	}
	c.enter("closing")
	c.close()
	c.leave()
}

// without is what is said of a device that fails while others are left.
const without = "%v; going on without it"

// lose counts a device out, once.
func (s *Scorer) lose(c *card, err error) {
	c.lost.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.why = err
		s.retire(c)
		if s.alive--; s.alive == 0 {
			close(s.dead)
		} else {
			s.log(1, without, err)
		}
	})
}

// retire takes c's plans out of use: those that are free now, and by put the others.
// It wants mu held.
func (s *Scorer) retire(c *card) {
	c.retired = true
	for range cap(s.plans) {
		select {
		case p := <-s.plans:
			s.put(p)
		default:
		}
	}
}

// put makes p free. It wants mu held.
func (s *Scorer) put(p *plan) {
	if p.card.retired { // the driver may still have it
		p.card.out.Done()
		return
	}
	p.upload, p.probs = nil, nil
	s.plans <- p
}

// String says where the Scorer computes and how.
func (s *Scorer) String() string { return s.text }

// Precision is that of the products.
func (s *Scorer) Precision() string { return s.precision }

// Close waits for calls that run and gives the devices' memory back.
func (s *Scorer) Close() error {
	s.close.Do(func() {
		s.mu.Lock()
		for _, c := range s.cards {
			s.retire(c)
		}
		s.mu.Unlock()
		for _, c := range s.cards {
			<-c.over
		}
		close(s.closed)
	})
	return nil
}

// Score implements model.Scorer. Once a batch is on its way to a device, Score
// waits for it whatever becomes of ctx.
func (s *Scorer) Score(ctx context.Context, b *model.Batch, probs []float32) error {
	return s.ScoreAll(ctx, []*model.Batch{b}, probs)
}

// ScoreAll implements model.MultiScorer, as Score does model.Scorer.
func (s *Scorer) ScoreAll(ctx context.Context, batches []*model.Batch, probs []float32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var full []*card
	for {
		again, err := s.try(ctx, &full, batches, probs)
		if !again {
			return err
		}
	}
}

// try scores by one device, and says whether another should. In full are those that had
// no room for the one window there is, of which no half can be tried.
func (s *Scorer) try(ctx context.Context, full *[]*card, batches []*model.Batch, probs []float32) (again bool, err error) {
	var p *plan
	for {
		select {
		case p = <-s.plans:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-s.dead:
			return false, s.why
		case <-s.closed:
			return false, errors.New("cuda: the Scorer is closed")
		}
		if !slices.Contains(*full, p.card) || !s.others(*full) {
			break
		}
		s.giveBack(p)
		time.Sleep(time.Millisecond) // others may be busy for long
	}
	defer func() { s.giveBack(p) }()
	if err := p.lay(&s.sizes, s.rows, batches, probs); err != nil || p.steps == 0 {
		return false, err
	}
	c, j := p.card, &job{plan: p, done: make(chan error, 1)}
	if err := c.hold(j); err != nil {
		s.lose(c, err)
		return true, err
	}
	c.jobs <- j
	if err = <-j.done; err == nil {
		copy(probs, p.probs)
	} else if j.left { // nobody else may have the plan
		s.lose(c, err)
	}
	if errors.Is(err, model.ErrOutOfMemory) && len(p.windows) == 1 {
		*full = append(*full, c)
		return s.others(*full), err
	}
	return errors.Is(err, model.ErrDeviceLost), err
}

// giveBack makes p free again.
func (s *Scorer) giveBack(p *plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(p)
}

// others reports whether there are devices beside these.
func (s *Scorer) others(these []*card) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.cards, func(c *card) bool { return c.plans[0] != nil && !c.retired && !slices.Contains(these, c) })
}
