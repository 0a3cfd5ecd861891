package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
)

// rows are those of a device that were measured.
func (r *report) rows(kind string) (out []measured) {
	for _, m := range r.Rows {
		if m.Device == kind && m.Failed == "" {
			out = append(out, m)
		}
	}
	return out
}

// line fits memory to batch size.
func line(rows []measured, memory func(*measured) int64) *fit {
	var x, y []float64
	noise := int64(0)
	for i := range rows {
		x, y = append(x, float64(rows[i].BatchSize)), append(y, float64(memory(&rows[i])))
		if rows[i].Device == backend.CPU {
			noise = max(noise, rows[i].RAMNoise)
		}
	}
	f := fitLine(x, y, float64(noise))
	return &f
}

func fastest(rows []measured) *measured {
	m := slices.MaxFunc(rows, func(a, b measured) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
	return &m
}

// wild is how far rounds of one batch size may be apart, as a share of their
// median, before their speeds tell nothing.
const wild = .5

// advise works out what the rows say.
func (o *options) advise(r *report) {
	say := func(format string, args ...any) { r.Advice = append(r.Advice, fmt.Sprintf(format, args...)) }
	for _, m := range r.Rows {
		r.Noise = max(r.Noise, m.spread())
		if m.Failed != "" {
			say("%s: a batch of %s does not fit: %s", m.Device, cli.Count(int64(m.BatchSize)), m.Failed)
		}
	}
	if rows := r.rows(backend.CPU); len(rows) > 0 {
		r.FastestCPU = fastest(rows)
		say("CPU: fastest with batches of %s, %s lines/s", cli.Count(int64(r.FastestCPU.BatchSize)), cli.Count(int64(math.Round(r.FastestCPU.PerSecond))))
		r.CPUFit = line(rows, func(m *measured) int64 { return m.RAMPeak })
		if o.budget > 0 && r.GPU == "" {
			r.CPUFit.fits(int64(o.budget))
		}
		say("RAM: %s", r.CPUFit.text(rows))
	}
	if rows := r.rows(backend.CUDA); len(rows) > 0 {
		r.FastestGPU = fastest(rows)
		say("GPU: fastest with batches of %s, %s lines/s in %s, %.3g times the CPU", cli.Count(int64(r.FastestGPU.BatchSize)), cli.Count(int64(math.Round(r.FastestGPU.PerSecond))), r.Precision, r.FastestGPU.PerSecond/r.FastestCPU.PerSecond)
		if slices.ContainsFunc(rows, func(m measured) bool { return m.GPUPeak < 0 }) {
			say("GPU memory: the driver does not tell it (NVML)")
		} else {
			most := rows[len(rows)-1]
			r.GPUFit = line(rows, func(m *measured) int64 { return m.GPUPeak })
			r.GPUFit.fits(o.cardBudget(r))
			say("GPU memory: %s", r.GPUFit.text(rows))
			say("GPU memory cannot be read off RAM: with batches of %s the card had %s in use, and the process %s of RAM", cli.Count(int64(most.BatchSize)), bytes(float64(most.GPUPeak)), bytes(float64(most.RAMPeak)))
		}
		for i := range r.gpuUsage {
			if text := r.gpuUsage[i].Advice(); text != "" {
				say("%s", text)
			}
		}
	}
	if r.NoGPU != "" {
		say("no GPU: %s", r.NoGPU)
	}
	o.count(r, say)
	switch {
	case r.Noise > wild:
		say("rounds of one batch size were up to %.0f %% apart, too far to go by: give more documents than these %s, or more --rounds", 100*r.Noise, cli.Plural(r.Lines, "line"))
	case o.rounds > 1:
		say("rounds of one batch size were up to %.1f %% apart: what else runs on the machine counts; lines a CPU second count it least", 100*r.Noise)
	}
}

// cardBudget is what a batch may take of the GPU.
func (o *options) cardBudget(r *report) int64 {
	if o.budget > 0 || len(r.gpuUsage) == 0 {
		return int64(o.budget)
	}
	return int64(r.gpuUsage[0].Device.Memory)
}

// text is the line through rows in words.
func (f *fit) text(rows []measured) string {
	if f.Refused != "" {
		return "no slope: " + f.Refused
	}
	t := bytes(f.Slope) + " a sample"
	if f.SlopeError != nil {
		t += fmt.Sprintf(" (± %s, R² %.4f)", bytes(math.Round(*f.SlopeError*(1<<30))), f.R2)
	} else {
		t += " (two points tell no error; name three or more batch sizes)"
	}
	t += fmt.Sprintf(", %s at once", english.Plural(rows[0].AtOnce, "batch", "batches"))
	if f.Budget > 0 {
		t += fmt.Sprintf("; the largest batch within %s has %s", bytes(float64(f.Budget)), cli.Plural(f.LargestBatch, "sample"))
		if most := rows[len(rows)-1].BatchSize; f.LargestBatch > int64(most) {
			t += fmt.Sprintf(", if the line goes on %.1f times as far as was measured", float64(f.LargestBatch)/float64(most))
		}
	}
	return t
}

// count works out costs and the plan.
func (o *options) count(r *report, say func(string, ...any)) {
	if r.FastestCPU == nil {
		return
	}
	if o.givenCPUStart {
		r.CPUStartup = o.cpuStartup.Seconds()
	}
	if o.givenGPUStart {
		r.GPUStartup = o.gpuStartup.Seconds()
	}
	cpu := &worker{r.FastestCPU.PerSecond, o.cpuCost, time.Duration(r.CPUStartup * 1e9)}
	var gpu *worker
	if r.FastestGPU != nil {
		gpu = &worker{r.FastestGPU.PerSecond, o.gpuCost, time.Duration(r.GPUStartup * 1e9)}
	}
	if o.cpuCost > 0 {
		r.CPUPerMega = cpu.perMillion()
		say("CPU: %s per million lines, scoring alone", decimal(r.CPUPerMega))
	}
	if o.gpuCost > 0 && gpu != nil {
		r.GPUPerMega = gpu.perMillion()
		say("GPU: %s per million lines, scoring alone", decimal(r.GPUPerMega))
	}
	if o.planLines == 0 {
		return
	}
	p := newPlan(cpu, gpu, o.planLines, o.planWorkers)
	r.Plan = p
	whole := cli.Plural(p.Lines, "line") + " on " + cli.Plural(int64(p.Workers), "worker")
	cost := func(cost float64) string {
		if cost == 0 { // nobody said what an hour costs
			return ""
		}
		return ", cost " + decimal(cost)
	}
	say("%s: CPU %s h%s (scoring alone; reading and features come on top)", whole, decimal(p.CPUHours), cost(p.CPUCost))
	if gpu == nil {
		return
	}
	saving := ""
	if p.Saving != nil {
		saving = ", saving " + decimal(*p.Saving)
	}
	say("%s: GPU %s h%s%s", whole, decimal(p.GPUHours), cost(p.GPUCost), saving)
	if p.SoonerFrom != nil {
		say("the GPU is sooner done from %s on, start-up included", cli.Plural(*p.SoonerFrom, "line"))
	} else {
		say("the GPU is never sooner done")
	}
	switch {
	case p.Saving == nil:
		say("whether the GPU is cheaper needs --cpu_hourly_cost and --gpu_hourly_cost")
	case p.CheaperFrom != nil:
		say("the GPU is cheaper from %s on, start-up included", cli.Plural(*p.CheaperFrom, "line"))
	default:
		say("the GPU never pays at these costs, however many lines there are")
	}
}

// decimal is a number for people, in four figures and without an exponent.
func decimal(x float64) string {
	if math.Abs(x) >= 1000 {
		return humanize.Commaf(math.Round(x))
	}
	x, _ = strconv.ParseFloat(fmt.Sprintf("%.4g", x), 64)
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// bytes is a number of bytes for people, in four figures.
func bytes(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if math.Abs(n) < 1000 {
			return fmt.Sprintf("%.4g %s", n, unit)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.4g TiB", n)
}
