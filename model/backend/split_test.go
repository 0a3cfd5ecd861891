package backend

import (
	"errors"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// simulate runs batches of lines each through GPUs that take one batch after
// the other, as fast as gpu lines a second, and cores as fast as cpu each, lanes
// batches at a time. It returns the time of all and what the CPU took.
func simulate(s *split, batches, lines, lanes int, gpu, cpu float64) (took time.Duration, onCPU int) {
	type job struct {
		end   time.Time
		begin time.Time
		cpu   bool
	}
	clock := time.Unix(0, 0)
	s.now = func() time.Time { return clock }
	var running []job
	var free time.Time // when the GPUs are through
	for batches > 0 || len(running) > 0 {
		for ; batches > 0 && len(running) < lanes; batches-- {
			j := job{begin: clock, cpu: s.onCPU(lines)}
			if j.cpu {
				onCPU++
				j.end = clock.Add(time.Duration(float64(lines) / cpu * 1e9))
			} else {
				if free.Before(clock) {
					free = clock
				}
				free = free.Add(time.Duration(float64(lines) / gpu * 1e9))
				j.end = free
			}
			running = append(running, j)
		}
		first := 0
		for i := range running {
			if running[i].end.Before(running[first].end) {
				first = i
			}
		}
		j := running[first]
		running = append(running[:first], running[first+1:]...)
		clock = j.end
		s.done(lines, j.cpu, j.begin, false)
	}
	return clock.Sub(time.Unix(0, 0)), onCPU
}

// TestSplit has the CPU take what it is worth of long runs, and lengthen no run
// by much, whichever is faster.
func TestSplit(t *testing.T) {
	const lines, cores, lanes = 64000, 4, 8
	for name, tc := range map[string]struct {
		gpu, cpu float64 // lines/s
		batches  int
		least    float64 // of the ideal speed, of both together
	}{
		"GPU of 20 cores":           {3e6, 150e3, 5000, .97},
		"GPU of 20 cores, a second": {3e6, 150e3, 50, 0},
		"GPU of 200 cores":          {30e6, 150e3, 50000, .97},
		"GPU as a core":             {150e3, 150e3, 200, .8},
		"GPU slower than a core":    {500, 150e3, 500, .04}, // the eight that it got at first take two minutes each
		"one batch":                 {3e6, 150e3, 1, 0},
		"CPU that is no use":        {3e6, 100, 5000, 0},
	} {
		s := &split{cores: cores, full: 2}
		took, onCPU := simulate(s, tc.batches, lines, lanes, tc.gpu, tc.cpu)
		alone := time.Duration(float64(tc.batches) * lines / tc.gpu * 1e9)
		ideal := float64(tc.batches) * lines / (tc.gpu + cores*tc.cpu) * 1e9
		once := time.Duration(lines / tc.cpu * 1e9) // the batch by which the CPU's speed is found
		t.Logf("%s: %d of %d batches on the CPU, %v, GPU alone %v, ideal %v", name, onCPU, tc.batches, took.Round(time.Millisecond), alone.Round(time.Millisecond), time.Duration(ideal).Round(time.Millisecond))
		if took > alone+max(alone/delayDivisor, once) {
			t.Errorf("%s: %v, %v on the GPU alone", name, took, alone)
		}
		if ideal < tc.least*float64(took) {
			t.Errorf("%s: %.2f of the ideal speed, want %.2f", name, ideal/float64(took), tc.least)
		}
		if tc.batches == 1 && onCPU > 0 || s.batches != 0 || s.lines != 0 || s.running != 0 {
			t.Errorf("%s: %d batches on the CPU; left %+v", name, onCPU, s)
		}
	}
}

// TestSplitOfFailures counts what the GPUs could not do as the CPU's, and a batch that
// failed as nobody's.
func TestSplitOfFailures(t *testing.T) {
	w := modeltest.Weights(modeltest.Config(20, 4, 3, 5, 1, 3, 0), 1)
	one := modeltest.Batch(w.Config, 1, 9, []model.ContextWindow{{Len: 9}})
	two := modeltest.Batch(w.Config, 1, 9, []model.ContextWindow{{Len: 4}, {First: 4, Len: 5}})
	for name, tc := range map[string]struct {
		batch    *model.Batch
		err      error
		gpu, cpu float64 // lines whose time was taken
	}{
		"works":               {one, nil, 9, 0},
		"lost":                {two, model.ErrDeviceLost, 0, 9},
		"one window too many": {one, model.ErrOutOfMemory, 0, 9},
		"halves may fit":      {two, model.ErrOutOfMemory, 0, 0},
		"another error":       {one, errors.New("a bug"), 0, 0},
	} {
		onCPU, err := cpu.New(w)
		if err != nil {
			t.Fatal(err)
		}
		s := newWithFallback(&failing{MultiScorer: onCPU, err: tc.err}, w, nil)
		s.split = &split{cores: 1, full: 1, now: time.Now}
		onGPU, err := s.ScoreOn(t.Context(), []*model.Batch{tc.batch}, make([]float32, 27))
		if (err == nil) != (tc.gpu+tc.cpu > 0) || err == nil && onGPU != (tc.gpu > 0) {
			t.Errorf("%s: on a GPU: %t, %v", name, onGPU, err)
		}
		if p := s.split; p.gpu.lines != tc.gpu || p.cpu.lines != tc.cpu || p.batches != 0 || p.lines != 0 || p.running != 0 {
			t.Errorf("%s: %+v, want the time of %v lines of the GPU's and %v of the CPU's, and nothing left", name, p, tc.gpu, tc.cpu)
		}
	}
}
