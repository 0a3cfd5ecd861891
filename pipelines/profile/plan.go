package main

import (
	"math"
	"time"
)

// worker is one worker of a kind, as a plan counts it.
type worker struct {
	Lines   float64 // lines/s
	Cost    float64 // an hour, in any currency
	Startup time.Duration
}

// perMillion is the cost of a million lines, without start-up.
func (w *worker) perMillion() float64 { return w.Cost / 3600 * 1e6 / w.Lines }

// run is the hours that lines take on some workers, start-up included, and what
// all of them cost.
func (w *worker) run(lines float64, workers int) (hours, cost float64) {
	hours = w.Startup.Hours() + lines/w.Lines/3600/float64(workers)
	return hours, hours * w.Cost * float64(workers)
}

// plan compares CPU and GPU workers for a number of lines.
type plan struct {
	Lines    int64    `json:"lines"`
	Workers  int      `json:"workers"`
	CPUHours float64  `json:"cpu_hours"`
	CPUCost  float64  `json:"cpu_cost"`
	GPUHours float64  `json:"gpu_hours,omitempty"`
	GPUCost  float64  `json:"gpu_cost,omitempty"`
	Saving   *float64 `json:"saving,omitempty"` // of the GPU against the CPU; below 0 it costs more; absent where a cost is missing
	// From these numbers of lines on the GPU is cheaper, and sooner done; absent
	// where it never is, and the first where a cost is missing.
	CheaperFrom *int64 `json:"gpu_cheaper_from_lines,omitempty"`
	SoonerFrom  *int64 `json:"gpu_sooner_from_lines,omitempty"`
}

// newPlan plans lines on workers of each kind; gpu is nil where there is none.
func newPlan(cpu, gpu *worker, lines int64, workers int) *plan {
	p := &plan{Lines: lines, Workers: workers}
	p.CPUHours, p.CPUCost = cpu.run(float64(lines), workers)
	if gpu == nil {
		return p
	}
	p.GPUHours, p.GPUCost = gpu.run(float64(lines), workers)
	n := float64(workers)
	if cpu.Cost > 0 && gpu.Cost > 0 {
		saving := p.CPUCost - p.GPUCost
		p.Saving = &saving
		// Cost: n·(start·cost) + lines·cost/speed of both are equal.
		p.CheaperFrom = crossing(n*(gpu.Startup.Seconds()*gpu.Cost-cpu.Startup.Seconds()*cpu.Cost), cpu.Cost/cpu.Lines-gpu.Cost/gpu.Lines)
	}
	p.SoonerFrom = crossing(n*(gpu.Startup-cpu.Startup).Seconds(), 1/cpu.Lines-1/gpu.Lines)
	return p
}

// crossing is the number of lines from which on what is saved, each line some,
// is more than what is spent at first; nil where that never comes.
func crossing(first, each float64) *int64 {
	var n int64
	switch {
	case each <= 0:
		return nil // it may be ahead for small numbers, and falls behind
	case first/each >= math.MaxInt64:
		return nil // nobody has that many
	case first > 0:
		n = int64(math.Ceil(first / each))
	}
	return &n
}
