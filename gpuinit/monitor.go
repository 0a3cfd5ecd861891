package gpuinit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
)

// Usage is what NVML said of a device over a time.
type Usage struct {
	Device  Device
	Name    string // of several devices together; "" for Device's
	Samples int
	// The values, over all samples.
	Memory      Value // bytes in use, of all processes
	Utilisation Value // % of the time that a kernel ran
	MemoryBusy  Value // % of the time that memory was read or written
	Power       Value // W
	Energy      Value // J from one sample to the next; Sum is all of it
	SMClock     Value // MHz
	MemoryClock Value // MHz
	Temperature Value // °C
	Sent        Value // bytes/s over PCIe
	Received    Value // bytes/s over PCIe
	Corrected   Value // ECC errors since the driver was loaded
	Uncorrected Value // ECC errors since the driver was loaded
	Processes   Value // that compute on it, this one too
	Errors      Value // XID errors since the sample before
	Slowed      Value // 1 where clocks were held down, else 0
	XIDs        []uint64
	Slowdowns   []string // why clocks were held down, each once
}

// Value is the average, least and most of some samples. A card that does not
// tell a value has 0 samples of it.
type Value struct {
	N                 int
	Mean, Least, Most float64
}

// Sum is that of all samples.
func (v *Value) Sum() float64 { return v.Mean * float64(v.N) }

// add takes the samples of w in.
func (v *Value) add(w Value) {
	switch {
	case w.N == 0:
	case v.N == 0:
		*v = w
	default:
		v.N += w.N
		v.Mean += (w.Mean - v.Mean) * float64(w.N) / float64(v.N)
		v.Least, v.Most = min(v.Least, w.Least), max(v.Most, w.Most)
	}
}

// Quantity is a value of a Usage.
type Quantity struct {
	Name  string  // for programs, with its unit
	Scale float64 // units of Name in one of the value's own, so that whole numbers tell enough
	Value *Value

	title string // for people
	text  func(float64) string
}

// Quantities are all values of u.
func (u *Usage) Quantities() []Quantity {
	number := func(format string) func(float64) string {
		return func(x float64) string { return fmt.Sprintf(format, x) }
	}
	bytes := func(x float64) string { return humanize.IBytes(uint64(max(x, 0))) }
	rate := func(x float64) string { return bytes(x) + "/s" }
	return []Quantity{
		{"memory_bytes", 1, &u.Memory, "memory", bytes},
		{"utilization_percent", 1, &u.Utilisation, "utilisation", number("%.0f %%")},
		{"memory_utilization_percent", 1, &u.MemoryBusy, "memory utilisation", number("%.0f %%")},
		{"power_milliwatts", 1e3, &u.Power, "power", number("%.1f W")},
		{"sm_clock_megahertz", 1, &u.SMClock, "SM clock", number("%.0f MHz")},
		{"memory_clock_megahertz", 1, &u.MemoryClock, "memory clock", number("%.0f MHz")},
		{"temperature_celsius", 1, &u.Temperature, "temperature", number("%.0f °C")},
		{"pcie_sent_bytes_per_second", 1, &u.Sent, "PCIe sent", rate},
		{"pcie_received_bytes_per_second", 1, &u.Received, "PCIe received", rate},
		{"ecc_corrected_errors", 1, &u.Corrected, "ECC errors, corrected", number("%.0f")},
		{"ecc_uncorrected_errors", 1, &u.Uncorrected, "ECC errors, uncorrected", number("%.0f")},
		{"processes", 1, &u.Processes, "processes", number("%.0f")},
		{"energy_millijoules", 1e3, &u.Energy, "", nil},
		{"xid_errors", 1, &u.Errors, "", nil},
		{"slowed", 1, &u.Slowed, "", nil},
	}
}

// Add takes the samples of v in, of the same device or of another.
func (u *Usage) Add(v *Usage) {
	u.Samples += v.Samples
	from := v.Quantities()
	for i, q := range u.Quantities() {
		q.Value.add(*from[i].Value)
	}
	u.XIDs = append(slices.Clip(u.XIDs), v.XIDs...)
	for _, why := range v.Slowdowns {
		if !slices.Contains(u.Slowdowns, why) {
			u.Slowdowns = append(slices.Clip(u.Slowdowns), why)
		}
	}
}

// minSamples is the number of samples from which on utilisation says something.
const minSamples = 4

// Advice is what a run's utilisation suggests, in one line; empty between 50 %
// and 95 %, where the card does not tell it, and where there are few samples.
func (u *Usage) Advice() string {
	where := cmp.Or(u.Name, fmt.Sprintf("GPU %d %s", u.Device.Index, u.Device.Name))
	switch mean := u.Utilisation.Mean; {
	case u.Utilisation.N < minSamples:
	case mean < 50:
		return fmt.Sprintf("%s worked %.0f %% of the time: it waits for work; raise --prediction_batch_size, give the machine more cores for reading and features, or let several workers share it (--workers_per_gpu)", where, mean)
	case mean > 95:
		return fmt.Sprintf("%s worked %.0f %% of the time: it is what the run waits for; more GPUs, or a faster one, would shorten it", where, mean)
	}
	return ""
}

// Table are the values for people, a line each: name, average, least, most, or
// N/A.
func (u *Usage) Table() (rows [][]string) {
	for _, q := range u.Quantities() {
		switch {
		case q.text == nil:
		case q.Value.N == 0:
			rows = append(rows, []string{q.title, "N/A", "N/A", "N/A"})
		default:
			rows = append(rows, []string{q.title, q.text(q.Value.Mean), q.text(q.Value.Least), q.text(q.Value.Most)})
		}
	}
	of := func(v Value, text string) string {
		if v.N == 0 {
			return "N/A"
		}
		return text
	}
	xids, slowdowns := "none", "none"
	if len(u.XIDs) > 0 {
		xids = strings.Trim(fmt.Sprint(u.XIDs), "[]")
	}
	if len(u.Slowdowns) > 0 {
		slowdowns = fmt.Sprintf("%.0f %% of the time: %s", 100*u.Slowed.Mean, strings.Join(u.Slowdowns, ", "))
	}
	return append(rows,
		[]string{"energy in all", of(u.Energy, fmt.Sprintf("%.1f J", u.Energy.Sum())), "", ""},
		[]string{"XID errors", of(u.Errors, xids), "", ""},
		[]string{"slowdowns", of(u.Slowed, slowdowns), "", ""})
}

// Monitor samples devices in the background, from NewMonitor to Stop. It does
// not wait long for a driver that does not answer: then there are no more
// samples.
type Monitor struct {
	asks chan ask      // of the goroutine that samples
	over chan struct{} // closed when that ends

	mu     sync.Mutex
	usages []Usage
	last   time.Time // of a sample
	hung   bool
}

// ask is a sample to take now.
type ask struct {
	last bool
	done chan struct{}
}

// NewMonitor samples the devices by NVML now and each period while busy, which
// may be nil, says so. Where NVML cannot be had it samples none.
func NewMonitor(devices []Device, period time.Duration, busy func() bool) *Monitor {
	return newMonitor(devices, period, busy)
}

// sampleTimeout is how long a sample may take: those of eight cards take a second.
const sampleTimeout = 5 * time.Second

// ask has the goroutine take a sample, and waits for that.
func (m *Monitor) ask(last bool) {
	m.mu.Lock()
	hung := m.hung
	m.mu.Unlock()
	if hung {
		return
	}
	a := ask{last, make(chan struct{})}
	timer := time.NewTimer(sampleTimeout)
	defer timer.Stop()
	asks, done := m.asks, (chan struct{})(nil)
	for {
		select {
		case asks <- a:
			asks, done = nil, a.done
			continue
		case <-done:
		case <-m.over:
		case <-timer.C:
			m.mu.Lock()
			m.hung = true
			m.mu.Unlock()
		}
		return
	}
}

// Sample takes a sample now, unless there is one that is not older than age.
func (m *Monitor) Sample(age time.Duration) {
	m.mu.Lock()
	old := time.Since(m.last) > age
	m.mu.Unlock()
	if old {
		m.ask(false)
	}
}

// Take returns what was seen of each device since the last Take, and does not
// wait.
func (m *Monitor) Take() []Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.usages
	m.usages = make([]Usage, len(taken))
	for i := range taken {
		m.usages[i].Device = taken[i].Device
	}
	return taken
}

// Stop takes a last sample and returns what was seen of each device since the
// last Take.
func (m *Monitor) Stop() []Usage {
	m.ask(true)
	return m.Take()
}
