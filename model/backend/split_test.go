package backend

import (
	"testing"
	"time"
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
		s.done(lines, j.cpu, j.begin)
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
