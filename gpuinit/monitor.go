package gpuinit

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Usage is what NVML said of a device over a time.
type Usage struct {
	Device  Device
	Samples int
	// The values, over all samples.
	Memory      Value // bytes in use, of all processes
	Utilisation Value // % of the time that a kernel ran
	MemoryBusy  Value // % of the time that memory was read or written
	Power       Value // W
	Energy      Value // J since the beginning; Most is all of it
	SMClock     Value // MHz
	MemoryClock Value // MHz
	Temperature Value // °C
	Sent        Value // bytes/s over PCIe
	Received    Value // bytes/s over PCIe
	Corrected   Value // ECC errors since the driver was loaded
	Uncorrected Value // ECC errors since the driver was loaded
	Processes   Value // that compute on it, this one too
	XIDs        []uint64
	Slowdowns   []string // why clocks were held down, each once
	NoXIDs      bool     // the card does not tell of XID errors
	NoSlowdowns bool     // nor of slowdowns
}

// Value is the average, least and most of some samples. A card that does not
// tell a value has 0 samples of it.
type Value struct {
	N                 int
	Mean, Least, Most float64
}

// add takes a sample in.
func (v *Value) add(x float64) {
	if v.N == 0 || x < v.Least {
		v.Least = x
	}
	if v.N == 0 || x > v.Most {
		v.Most = x
	}
	v.N++
	v.Mean += (x - v.Mean) / float64(v.N)
}

// Advice is what a run's utilisation suggests, in one line; empty between 50 %
// and 95 %, and where the card does not tell it.
func (u *Usage) Advice() string {
	where := fmt.Sprintf("GPU %d %s", u.Device.Index, u.Device.Name)
	switch mean := u.Utilisation.Mean; {
	case u.Utilisation.N == 0:
	case mean < 50:
		return fmt.Sprintf("%s worked %.0f %% of the time: it waits for work; raise --prediction_batch_size, give the machine more cores for reading and features, or let several workers share it (--workers_per_gpu)", where, mean)
	case mean > 95:
		return fmt.Sprintf("%s worked %.0f %% of the time: it is what the run waits for; more GPUs, or a faster one, would shorten it", where, mean)
	}
	return ""
}

// Table are the values for people, a line each: average, least, most, or N/A.
func (u *Usage) Table() (rows [][]string) {
	number := func(format string) func(float64) string {
		return func(x float64) string { return fmt.Sprintf(format, x) }
	}
	bytes := func(x float64) string { return humanize.IBytes(uint64(max(x, 0))) }
	rate := func(x float64) string { return bytes(x) + "/s" }
	for _, r := range []struct {
		name string
		v    Value
		text func(float64) string
	}{
		{"memory", u.Memory, bytes}, {"utilisation", u.Utilisation, number("%.0f %%")}, {"memory utilisation", u.MemoryBusy, number("%.0f %%")},
		{"power", u.Power, number("%.1f W")}, {"energy", u.Energy, number("%.1f J")},
		{"SM clock", u.SMClock, number("%.0f MHz")}, {"memory clock", u.MemoryClock, number("%.0f MHz")}, {"temperature", u.Temperature, number("%.0f °C")},
		{"PCIe sent", u.Sent, rate}, {"PCIe received", u.Received, rate},
		{"ECC errors, corrected", u.Corrected, number("%.0f")}, {"ECC errors, uncorrected", u.Uncorrected, number("%.0f")},
		{"processes", u.Processes, number("%.0f")},
	} {
		row := []string{r.name, "N/A", "N/A", "N/A"}
		if r.v.N > 0 {
			row = []string{r.name, r.text(r.v.Mean), r.text(r.v.Least), r.text(r.v.Most)}
		}
		rows = append(rows, row)
	}
	list := func(missing bool, found string) string {
		switch {
		case missing:
			return "N/A"
		case found == "":
			return "none"
		}
		return found
	}
	return append(rows,
		[]string{"XID errors", list(u.NoXIDs, strings.Trim(fmt.Sprint(u.XIDs), "[]")), "", ""},
		[]string{"slowdowns", list(u.NoSlowdowns, strings.Join(u.Slowdowns, ", ")), "", ""})
}

// Monitor samples devices in the background.
type Monitor struct {
	stop func() []Usage
}

// NewMonitor samples the devices by NVML from now on, each period. Where NVML
// cannot be had it samples none.
func NewMonitor(devices []Device, period time.Duration) *Monitor {
	return newMonitor(devices, period)
}

// Stop takes a last sample and returns what was seen of each device. It does not
// wait for a driver that does not answer: such devices have what was seen before.
func (m *Monitor) Stop() []Usage { return m.stop() }
