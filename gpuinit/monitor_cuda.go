//go:build cuda && cgo

package gpuinit

import (
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func newMonitor(devices []Device, period time.Duration) *Monitor {
	return monitorBy(func() (nvml.Interface, error) { return nvml.New(), libnvml.Open() }, devices, period)
}

// monitorBy samples by what open gives.
func monitorBy(open func() (nvml.Interface, error), devices []Device, period time.Duration) *Monitor {
	var mu sync.Mutex
	usages := make([]Usage, len(devices))
	for i, d := range devices {
		usages[i] = Usage{Device: d, NoXIDs: true, NoSlowdowns: true}
	}
	over, done, first := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(first) })
	go func() {
		defer close(done)
		defer begun()
		defer func() { _ = recover() }() // go-nvml slices by lengths that the driver gives
		lib, err := open()
		if err != nil || lib.Init() != nvml.SUCCESS {
			return
		}
		defer lib.Shutdown()
		samplers := make([]sampler, len(devices))
		for i, d := range devices {
			samplers[i].open(lib, d.UUID)
		}
		defer func() {
			for i := range samplers {
				samplers[i].close()
			}
		}()
		for last := false; ; {
			for i := range samplers {
				next := samplers[i].sample(func() Usage { mu.Lock(); defer mu.Unlock(); return usages[i] }())
				mu.Lock()
				usages[i] = next
				mu.Unlock()
			}
			begun()
			if last {
				return
			}
			select {
			case <-time.After(period):
			case <-over:
				last = true
			}
		}
	}()
	wait := func(c chan struct{}) {
		select {
		case <-c:
		case <-time.After(5 * time.Second):
		}
	}
	wait(first)
	return &Monitor{stop: sync.OnceValue(func() []Usage {
		close(over)
		wait(done)
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(usages)
	})}
}

// sampler samples one device.
type sampler struct {
	handle nvml.Device
	events nvml.EventSet
	energy uint64 // mJ at the beginning
}

func (s *sampler) open(lib nvml.Interface, uuid string) {
	handle, ret := lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return
	}
	s.handle = handle
	s.energy, _ = handle.GetTotalEnergyConsumption()
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

// sample is u with one more sample.
func (s *sampler) sample(u Usage) Usage {
	if s.handle == nil {
		return u
	}
	u.Samples++
	h := s.handle
	add := func(v *Value, x float64, ret nvml.Return) {
		if ret == nvml.SUCCESS {
			v.add(x)
		}
	}
	if m, ret := h.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
		u.Memory.add(float64(m.Used))
	} else if m, ret := h.GetMemoryInfo(); ret == nvml.SUCCESS {
		u.Memory.add(float64(m.Used))
	}
	if rates, ret := h.GetUtilizationRates(); ret == nvml.SUCCESS {
		u.Utilisation.add(float64(rates.Gpu))
		u.MemoryBusy.add(float64(rates.Memory))
	}
	power, ret := h.GetPowerUsage()
	add(&u.Power, float64(power)/1e3, ret)
	energy, ret := h.GetTotalEnergyConsumption()
	add(&u.Energy, float64(energy-min(energy, s.energy))/1e3, ret)
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
		u.NoSlowdowns = false
		for _, r := range slowdowns {
			if reasons&r.bit != 0 && !slices.Contains(u.Slowdowns, r.name) {
				u.Slowdowns = append(slices.Clip(u.Slowdowns), r.name)
			}
		}
	}
	if s.events != nil {
		u.NoXIDs = false
		for range 100 {
			event, ret := s.events.Wait(0)
			if ret != nvml.SUCCESS {
				break
			}
			u.XIDs = append(slices.Clip(u.XIDs), event.EventData)
		}
	}
	return u
}
