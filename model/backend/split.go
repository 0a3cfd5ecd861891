package backend

import (
	"sync"
	"time"
)

// split schedules batches on GPUs and CPU where both work at once. Batches go to
// the GPUs until these have enough to do; one more goes to a free core where
// that is done with it sooner than the GPUs would be, or soon enough: within a
// twentieth of the time that the GPUs have worked, so that the end of a run waits
// no longer for it. Speeds are as measured, under whatever else the machine does;
// that of the CPU is not known before its first batch, which it gets when the GPUs
// have worked for a second.
type split struct {
	cores int // batches that the CPU computes at once
	full  int // batches that keep the GPUs busy
	now   func() time.Time

	mu      sync.Mutex
	batches int           // that the GPUs have
	lines   int           // of these
	last    time.Time     // when a batch came to idle GPUs, or when they were last done with one
	busy    time.Duration // of the GPUs
	running int           // batches that the CPU has
	gpu     speed         // of all GPUs
	cpu     speed         // of a core
}

// speed is in lines a second, of the last few batches more than of those before.
type speed struct{ lines, seconds float64 }

func (s *speed) add(lines int, took time.Duration) {
	const keep = .8
	s.lines, s.seconds = keep*s.lines+float64(lines), keep*s.seconds+took.Seconds()
}

// timeFor is the time that lines take, and false where that is not known.
func (s *speed) timeFor(lines int) (time.Duration, bool) {
	if s.lines == 0 {
		return 0, false
	}
	return time.Duration(float64(lines) * s.seconds / s.lines * 1e9), true
}

const (
	tryCPU       = time.Second // of the GPUs' work, before the CPU's speed is measured
	delayDivisor = 20          // a run may last a twentieth longer than with GPUs alone
)

// onCPU counts a batch in and says whether the CPU takes it; done counts it out.
func (s *split) onCPU(lines int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cpuWins(lines) {
		s.running++
		return true
	}
	if s.batches == 0 {
		s.last = s.now()
	}
	s.batches, s.lines = s.batches+1, s.lines+lines
	return false
}

func (s *split) cpuWins(lines int) bool {
	if s.batches < s.full || s.running >= s.cores {
		return false
	}
	onGPU, known := s.gpu.timeFor(s.lines + lines)
	if !known {
		return false
	}
	onCPU, known := s.cpu.timeFor(lines)
	if !known {
		return s.running == 0 && s.busy >= tryCPU
	}
	return onCPU < max(onGPU, s.busy/delayDivisor)
}

// toCPU has the CPU take a batch that the GPUs could not.
func (s *split) toCPU(lines int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches, s.lines = s.batches-1, s.lines-lines
	s.running++
}

// done counts a batch out that began at begin. One that failed tells nothing of speed.
func (s *split) done(lines int, onCPU bool, begin time.Time, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if onCPU {
		s.running--
		if !failed {
			s.cpu.add(lines, now.Sub(begin))
		}
		return
	}
	s.batches, s.lines = s.batches-1, s.lines-lines
	if !failed {
		took := now.Sub(s.last)
		s.gpu.add(lines, took)
		s.busy += took
		s.last = now
	}
}
