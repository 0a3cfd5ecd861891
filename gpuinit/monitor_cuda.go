//go:build cuda && cgo

package gpuinit

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func newMonitor(devices []Device, period time.Duration, busy func() bool) *Monitor {
	return monitorBy(func() (nvml.Interface, error) { return nvml.New(), libnvml.Open() }, devices, period, busy)
}

// monitorBy samples by what open gives.
func monitorBy(open func() (nvml.Interface, error), devices []Device, period time.Duration, busy func() bool) *Monitor {
	m := &Monitor{asks: make(chan ask), over: make(chan struct{}), usages: make([]Usage, len(devices))}
	for i, d := range devices {
		m.usages[i].Device = d
	}
	go func() {
		defer close(m.over)
		defer func() { _ = recover() }() // go-nvml slices by lengths that the driver gives
		lib, err := open()
		if err != nil || lib.Init() != nvml.SUCCESS {
			return
		}
		defer lib.Shutdown()
		samplers := make([]sampler, len(devices))
		for i, d := range devices {
			samplers[i].open(lib, d.UUID)
			defer samplers[i].close()
		}
		for rested := false; ; {
			var a ask
			select {
			case <-time.After(period):
				if busy != nil && !busy() {
					rested = true
					continue
				}
			case a = <-m.asks:
			}
			for i := range samplers {
				if rested {
					samplers[i].rest()
				}
				one := samplers[i].sample()
				m.mu.Lock()
				m.usages[i].Add(&one)
				m.last = time.Now()
				m.mu.Unlock()
			}
			rested = false
			if a.done != nil {
				close(a.done)
			}
			if a.last {
				return
			}
		}
	}()
	m.ask(false)
	return m
}

// sampler samples one device.
type sampler struct {
	handle nvml.Device
	events nvml.EventSet
	energy uint64 // mJ at the last sample; 0 where that says nothing
}

func (s *sampler) open(lib nvml.Interface, uuid string) {
	handle, ret := lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return
	}
	s.handle = handle
	events, ret := lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	if handle.RegisterEvents(nvml.EventTypeXidCriticalError, events) != nvml.SUCCESS {
		events.Free()
		return
	}
	s.events = events
}

func (s *sampler) close() {
	if s.events != nil {
		s.events.Free()
	}
}

// slowdowns are the bits of NVML's reasons that are none of an idle card or of
// somebody's wish.
var slowdowns = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksEventReasonSwPowerCap, "power cap"},
	{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
	{nvml.ClocksEventReasonSwThermalSlowdown, "temperature (driver)"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "temperature (hardware)"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
}

// rest forgets the energy counter's last value, so that what was used since the last
// sample is not counted.
func (s *sampler) rest() { s.energy = 0 }

// sample asks the card for each value once. One that it does not tell has no samples.
func (s *sampler) sample() (u Usage) {
	if s.handle == nil {
		return u
	}
	u.Samples = 1
	h := s.handle
	add := func(v *Value, x float64, ret nvml.Return) {
		if ret == nvml.SUCCESS {
			*v = Value{1, x, x, x}
		}
	}
	if m, ret := h.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
		add(&u.Memory, float64(m.Used), ret)
	} else {
		m, ret := h.GetMemoryInfo()
		add(&u.Memory, float64(m.Used), ret)
	}
	rates, ret := h.GetUtilizationRates()
	add(&u.Utilisation, float64(rates.Gpu), ret)
	add(&u.MemoryBusy, float64(rates.Memory), ret)
	power, ret := h.GetPowerUsage()
	add(&u.Power, float64(power)/1e3, ret)
	energy, ret := h.GetTotalEnergyConsumption()
	if s.energy == 0 || energy < s.energy {
		s.energy = energy
	}
	add(&u.Energy, float64(energy-s.energy)/1e3, ret)
	s.energy = energy
	clock, ret := h.GetClockInfo(nvml.CLOCK_SM)
	add(&u.SMClock, float64(clock), ret)
	clock, ret = h.GetClockInfo(nvml.CLOCK_MEM)
	add(&u.MemoryClock, float64(clock), ret)
	degrees, ret := h.GetTemperature(nvml.TEMPERATURE_GPU)
	add(&u.Temperature, float64(degrees), ret)
	rate, ret := h.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
	add(&u.Sent, float64(rate)*1e3, ret)
	rate, ret = h.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	add(&u.Received, float64(rate)*1e3, ret)
	errors, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
	add(&u.Corrected, float64(errors), ret)
	errors, ret = h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	add(&u.Uncorrected, float64(errors), ret)
	processes, ret := h.GetComputeRunningProcesses()
	add(&u.Processes, float64(len(processes)), ret)
	if reasons, ret := h.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS {
		for _, r := range slowdowns {
			if reasons&r.bit != 0 {
				u.Slowdowns = append(u.Slowdowns, r.name)
			}
		}
		add(&u.Slowed, float64(min(1, len(u.Slowdowns))), ret)
	}
	if s.events != nil {
		for range 100 {
			event, ret := s.events.Wait(0)
			if ret != nvml.SUCCESS {
				break
			}
			u.XIDs = append(u.XIDs, event.EventData)
		}
		add(&u.Errors, float64(len(u.XIDs)), nvml.SUCCESS)
	}
	return u
}
