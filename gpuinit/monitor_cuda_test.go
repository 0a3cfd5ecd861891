//go:build cuda && cgo

package gpuinit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// TestMonitor has a card whose values are known, one that tells nothing but its
// memory, and a driver that hangs.
func TestMonitor(t *testing.T) {
	s := dgx(2)
	var samples atomic.Int64
	s.DeviceGetHandleByUUIDFunc = func(uuid string) (nvml.Device, nvml.Return) {
		for i := range 2 {
			if card(s, i).UUID == uuid {
				return card(s, i), nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	xids := []uint64{79}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				if len(xids) == 0 {
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
				x := xids[0]
				xids = xids[1:]
				return nvml.EventData{EventData: x}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	for i := range 2 {
		d := card(s, i)
		ret := nvml.SUCCESS
		if i == 1 {
			ret = nvml.ERROR_NOT_SUPPORTED
		}
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return ret }
		d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
			n := samples.Add(1)
			return nvml.Memory_v2{Total: 40 * gib, Used: uint64(min(n, 3)) * gib}, nvml.SUCCESS
		}
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 40, Memory: 10}, ret }
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 250_500, ret }
		energy := uint64(1000)
		d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { energy += 500; return energy, ret }
		d.GetClockInfoFunc = func(k nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(k), ret }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, ret }
		d.GetPcieThroughputFunc = func(c nvml.PcieUtilCounter) (uint32, nvml.Return) { return 7 + uint32(c), ret }
		d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			return 3 - uint64(k), ret
		}
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
			return nvml.ClocksEventReasonGpuIdle | nvml.ClocksEventReasonSwPowerCap, ret
		}
		if i == 1 {
			d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ret }
		} else {
			setProcesses(&d.Device, nvml.ProcessInfo{Pid: 1}, nvml.ProcessInfo{Pid: 2})
		}
	}
	devices := []Device{{Name: "A", UUID: card(s, 0).UUID}, {Index: 1, Name: "B", UUID: card(s, 1).UUID}, {Index: 2, UUID: "GPU-gone"}}
	m := monitorBy(func() (nvml.Interface, error) { return s, nil }, devices, time.Millisecond, nil)
	for samples.Load() < 6 {
		time.Sleep(time.Millisecond)
	}
	u := m.Stop()
	if len(u) != 3 || u[0].Samples < 3 || u[2].Samples != 0 {
		t.Fatalf("%+v", u)
	}
	a := u[0]
	if a.Memory.Least != gib || a.Memory.Most != 3*gib || a.Memory.Mean <= gib || a.Memory.Mean >= 3*gib {
		t.Errorf("memory %+v, want 1 to 3 GiB", a.Memory)
	}
	if math.Abs(a.Energy.Sum()-.5*float64(a.Samples-1)) > 1e-9 || a.Energy.Least != 0 || a.Energy.Most != .5 {
		t.Errorf("energy %+v, want 0.5 J between two of %d samples", a.Energy, a.Samples)
	}
	if !slices.Equal(a.Slowdowns, []string{"power cap"}) || !slices.Equal(a.XIDs, []uint64{79}) {
		t.Errorf("slowdowns %q, XIDs %d", a.Slowdowns, a.XIDs)
	}
	table := fmt.Sprint(a.Table())
	for _, want := range []string{"[utilisation 40 % 40 % 40 %]", "[power 250.5 W", "[SM clock 1001 MHz", "[memory clock 1002 MHz", "[temperature 61 °C",
		"[PCIe sent 6.8 KiB/s", "[PCIe received 7.8 KiB/s", "[ECC errors, corrected 3 ", "[ECC errors, uncorrected 2 ", "[processes 2 2 2]", "[XID errors 79 ", "[slowdowns 100 % of the time: power cap "} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in %s", want, table)
		}
	}
	if b := fmt.Sprint(u[1].Table()); strings.Count(b, "N/A N/A N/A") != 11 || strings.Count(b, "N/A") != 3*11+3 {
		t.Errorf("a card that tells its memory alone: %s", b)
	}
}

// TestMonitorBusy samples only while there is work, and counts no energy of the
// time before.
func TestMonitorBusy(t *testing.T) {
	s := dgx(1)
	d := card(s, 0)
	s.DeviceGetHandleByUUIDFunc = func(string) (nvml.Device, nvml.Return) { return d, nvml.SUCCESS }
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	none := nvml.ERROR_NOT_SUPPORTED
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{Used: gib}, nvml.SUCCESS }
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, none }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, none }
	var joules atomic.Int64
	joules.Store(100)
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return uint64(joules.Load()) * 1000, nvml.SUCCESS }
	d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, none }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, none }
	d.GetPcieThroughputFunc = func(nvml.PcieUtilCounter) (uint32, nvml.Return) { return 0, none }
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, none }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0, none }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, none }

	open := func() (nvml.Interface, error) { return s, nil }
	m := monitorBy(open, []Device{{UUID: d.UUID}}, time.Hour, nil)
	joules.Add(5)
	m.Sample(0)
	if u := m.Take()[0]; u.Samples != 2 || u.Energy.Sum() != 5 || u.Memory.Mean != gib {
		t.Errorf("%d samples, %g J, memory %+v; want 2, 5 and 1 GiB", u.Samples, u.Energy.Sum(), u.Memory)
	}
	m.Sample(time.Hour) // there is one
	if u := m.Take()[0]; u.Samples != 0 {
		t.Errorf("%d samples beside one that is young enough", u.Samples)
	}
	m.Stop()

	busy := make(chan bool) // whoever has sent to it knows that what came of the value before is over
	m = monitorBy(open, []Device{{UUID: d.UUID}}, time.Millisecond, func() bool { return <-busy })
	busy <- false
	busy <- false
	if u := m.Take()[0]; u.Samples != 1 || u.Device.UUID != d.UUID {
		t.Errorf("%d samples; want the first alone, without work", u.Samples)
	}
	joules.Add(1000)
	busy <- false
	busy <- true
	busy <- true // the first sample is taken
	joules.Add(5)
	busy <- true
	busy <- false
	if u := m.Take()[0]; u.Samples != 3 || u.Energy.Sum() != 5 {
		t.Errorf("%d samples, %g J; want 3, and 5 without those of the time without work", u.Samples, u.Energy.Sum())
	}
	close(busy) // without work
	m.Stop()
	m.Sample(0) // is over, and does not wait
	if u := m.Take()[0]; u.Samples != 0 {
		t.Errorf("%d samples after Stop", u.Samples)
	}
}

// TestMonitorHangs stops in spite of a driver that does not answer.
func TestMonitorHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	m := monitorBy(func() (nvml.Interface, error) { select {} }, []Device{{UUID: "GPU-1"}}, time.Millisecond, nil)
	if u := m.Stop(); len(u) != 1 || u[0].Samples != 0 {
		t.Errorf("%+v", u)
	}
}
