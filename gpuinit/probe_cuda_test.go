//go:build cuda && cgo

package gpuinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

const gib = 1 << 30

// dgx is a machine of n A100s with 40 GiB that nobody uses.
func dgx(n int) *dgxa100.Server {
	s := dgxa100.New()
	s.SystemGetCudaDriverVersion_v2Func = s.SystemGetCudaDriverVersionFunc
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return n, nvml.SUCCESS }
	for i := range s.Devices {
		d := card(s, i)
		d.UUID = fmt.Sprintf("GPU-%d0000000-aaaa", i)
		d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return nvml.COMPUTEMODE_DEFAULT, nvml.SUCCESS }
		setMemory(&d.Device, 40*gib, 40*gib)
		setProcesses(&d.Device)
	}
	return s
}

func card(s *dgxa100.Server, i int) *dgxa100.Device { return s.Devices[i].(*dgxa100.Device) }

func setMemory(d *mock.Device, total, free uint64) {
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: total, Free: free}, nvml.SUCCESS
	}
}

func setProcesses(d *mock.Device, p ...nvml.ProcessInfo) {
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return p, nvml.SUCCESS }
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
}

func setMode(d *dgxa100.Device, mode nvml.ComputeMode) {
	d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return mode, nvml.SUCCESS }
}

// forbid has the driver open none of these cards for this process.
func forbid(s *dgxa100.Server, cards ...int) {
	all := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if slices.Contains(cards, i) {
			return nil, nvml.ERROR_NO_PERMISSION
		}
		return all(i)
	}
}

// setMIG divides d into instances of 5 GiB whose numbers have a gap.
func setMIG(d *dgxa100.Device, instances int) {
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 1 || i > instances {
			return nil, nvml.ERROR_NOT_FOUND
		}
		m := &mock.Device{
			GetUUIDFunc: func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", i), nvml.SUCCESS },
			GetNameFunc: func() (string, nvml.Return) { return "A100 MIG 1g.5gb", nvml.SUCCESS },
		}
		setMemory(m, 5*gib, 4*gib)
		setProcesses(m)
		return m, nvml.SUCCESS
	}
}

func TestProbe(t *testing.T) {
	unset := "\x00"
	cases := map[string]struct {
		cards   int
		prepare func(s *dgxa100.Server)
		visible string // unset: not set
		mps     bool
		usable  string // indices or UUIDs
		kind    error
		text    []string // in the error or, without one, in the machine's line
	}{
		"none":          {0, nil, unset, false, "", ErrNoDevice, []string{"sees no GPU", "--gpus=all"}},
		"one":           {1, nil, unset, false, "0", nil, []string{"1 GPU(s) available, driver 550.54.15 (CUDA 12.4): 0 Mock NVIDIA A100-SXM4-40GB, 40 GiB of 40 GiB free, compute 8.0"}},
		"eight":         {8, nil, unset, false, "0 1 2 3 4 5 6 7", nil, []string{"8 GPU(s) available"}},
		"shared by MPS": {1, nil, unset, true, "0", nil, []string{"shared by MPS"}},
		"old driver":    {1, func(s *dgxa100.Server) { s.CudaDriverVersion = 10020 }, unset, false, "", ErrOldDriver, []string{"CUDA 10.2; GPU 0", "needs 11.0", "install driver 450"}},
		"driver without memory v2": {1, func(s *dgxa100.Server) {
			card(s, 0).GetMemoryInfo_v2Func = func() (m nvml.Memory_v2, r nvml.Return) { return m, nvml.ERROR_FUNCTION_NOT_FOUND }
			card(s, 0).MemoryInfo = nvml.Memory{Total: 40 * gib, Free: 30 * gib}
		}, unset, false, "0", nil, []string{"30 GiB of 40 GiB"}},
		"what the driver keeps": {1, func(s *dgxa100.Server) {
			card(s, 0).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
				return nvml.Memory_v2{Total: 40 * gib, Reserved: 2 * gib, Used: gib, Free: 37 * gib}, nvml.SUCCESS
			}
		}, unset, false, "0", nil, []string{"37 GiB of 38 GiB free"}},
		"memory that is the machine's": {1, func(s *dgxa100.Server) { // GB10
			card(s, 0).GetMemoryInfo_v2Func = func() (m nvml.Memory_v2, r nvml.Return) { return m, nvml.ERROR_NOT_SUPPORTED }
			card(s, 0).GetMemoryInfoFunc = func() (m nvml.Memory, r nvml.Return) { return m, nvml.ERROR_NOT_SUPPORTED }
			setProcesses(&card(s, 0).Device, nvml.ProcessInfo{Pid: 7, UsedGpuMemory: gib})
		}, unset, false, "0", nil, []string{"40GB, memory unknown, compute 8.0, 1 other process(es) hold 1.0 GiB"}},
		"memory that is not told": {1, func(s *dgxa100.Server) {
			card(s, 0).GetMemoryInfo_v2Func = func() (m nvml.Memory_v2, r nvml.Return) { return m, nvml.ERROR_UNKNOWN }
			card(s, 0).GetMemoryInfoFunc = func() (m nvml.Memory, r nvml.Return) { return m, nvml.ERROR_UNKNOWN }
		}, unset, false, "", ErrBroken, []string{"NVML 999"}},
		"capability": {2, func(s *dgxa100.Server) {
			card(s, 0).CudaComputeCapability = dgxa100.CudaComputeCapability{Major: 6, Minor: 1}
		}, unset, false, "1", nil, nil},
		"capability of all": {1, func(s *dgxa100.Server) {
			card(s, 0).CudaComputeCapability = dgxa100.CudaComputeCapability{Major: 6, Minor: 1}
		}, unset, false, "", ErrCapability, []string{"6.1; 7.0 is needed", "Volta"}},
		"prohibited":      {1, func(s *dgxa100.Server) { setMode(card(s, 0), nvml.COMPUTEMODE_PROHIBITED) }, unset, false, "", ErrBusy, []string{"closed to computing", "nvidia-smi -i 0 -c DEFAULT"}},
		"exclusive, free": {1, func(s *dgxa100.Server) { setMode(card(s, 0), nvml.COMPUTEMODE_EXCLUSIVE_PROCESS) }, unset, false, "0", nil, []string{"one process at a time"}},
		"exclusive, busy": {1, func(s *dgxa100.Server) {
			setMode(card(s, 0), nvml.COMPUTEMODE_EXCLUSIVE_PROCESS)
			setProcesses(&card(s, 0).Device, nvml.ProcessInfo{Pid: 77, UsedGpuMemory: gib})
		}, unset, false, "", ErrBusy, []string{"process 77 holds 1.0 GiB", "MPS"}},
		"exclusive, busy, MPS": {1, func(s *dgxa100.Server) {
			setMode(card(s, 0), nvml.COMPUTEMODE_EXCLUSIVE_PROCESS)
			setProcesses(&card(s, 0).Device, nvml.ProcessInfo{Pid: 77, UsedGpuMemory: gib})
		}, unset, true, "0", nil, []string{"1 other process(es) hold 1.0 GiB"}},
		"clients of MPS": {1, func(s *dgxa100.Server) {
			d := &card(s, 0).Device
			setProcesses(d, nvml.ProcessInfo{Pid: 76, UsedGpuMemory: gib / 32}, nvml.ProcessInfo{Pid: 77, UsedGpuMemory: gib})
			d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
				return []nvml.ProcessInfo{{Pid: 77, UsedGpuMemory: gib}}, nvml.SUCCESS
			}
		}, unset, true, "0", nil, []string{"2 other process(es) hold 1.0 GiB"}},
		"exclusive, this process": {1, func(s *dgxa100.Server) {
			setMode(card(s, 0), nvml.COMPUTEMODE_EXCLUSIVE_PROCESS)
			setProcesses(&card(s, 0).Device, nvml.ProcessInfo{Pid: uint32(os.Getpid()), UsedGpuMemory: gib})
		}, unset, false, "0", nil, nil},
		"full": {2, func(s *dgxa100.Server) {
			for i := range 2 {
				setMemory(&card(s, i).Device, 40*gib, gib/10)
				setProcesses(&card(s, i).Device, nvml.ProcessInfo{Pid: 7, UsedGpuMemory: 39 * gib}, nvml.ProcessInfo{Pid: 8, UsedGpuMemory: ^uint64(0)})
			}
		}, unset, false, "", ErrMemory, []string{"none of 2 GPUs", "102 MiB of 40 GiB free", "process 7, 8 holds 39 GiB"}},
		"MIG":                     {2, func(s *dgxa100.Server) { setMIG(card(s, 0), 3) }, unset, false, "MIG-0 MIG-2 MIG-3 1", nil, []string{"a MIG instance"}},
		"MIG without an instance": {1, func(s *dgxa100.Server) { setMIG(card(s, 0), -1) }, unset, false, "", ErrInvisible, []string{"has no instance", "nvidia-smi mig"}},
		"MIG, not asked by root": {1, func(s *dgxa100.Server) {
			setMIG(card(s, 0), 0)
			card(s, 0).GetMemoryInfo_v2Func = func() (m nvml.Memory_v2, r nvml.Return) { return m, nvml.ERROR_NO_PERMISSION }
			card(s, 0).GetMemoryInfoFunc = func() (m nvml.Memory, r nvml.Return) { return m, nvml.ERROR_NO_PERMISSION }
		}, unset, false, "MIG-0", nil, []string{"4.0 GiB of 5.0 GiB free, compute 8.0, a MIG instance"}},
		"one instance visible":     {2, func(s *dgxa100.Server) { setMIG(card(s, 0), 3) }, "MIG-2", false, "MIG-2", nil, nil},
		"visible":                  {8, nil, "3,GPU-50", false, "3 5", nil, nil},
		"visible to the first bad": {8, nil, "2, 9,3", false, "2", nil, nil},
		"hidden":                   {8, nil, "", false, "", ErrInvisible, []string{"hidden by CUDA_VISIBLE_DEVICES", "unset it"}},
		"hidden by -1":             {1, nil, "-1", false, "", ErrInvisible, []string{"CUDA_VISIBLE_DEVICES=-1"}},
		"hidden and small":         {2, func(s *dgxa100.Server) { setMemory(&card(s, 1).Device, gib, 1) }, "1", false, "", ErrMemory, []string{"GPU 1"}},
		"no kernel module":         {1, func(s *dgxa100.Server) { s.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED } }, unset, false, "", ErrNoDriver, []string{"modprobe nvidia"}},
		"two versions":             {1, func(s *dgxa100.Server) { s.InitFunc = func() nvml.Return { return nvml.ERROR_LIB_RM_VERSION_MISMATCH } }, unset, false, "", ErrBroken, []string{"reboot after the upgrade"}},
		"no permission":            {1, func(s *dgxa100.Server) { s.InitFunc = func() nvml.Return { return nvml.ERROR_NO_PERMISSION } }, unset, false, "", ErrBroken, []string{"/dev/nvidia"}},
		"cards of other jobs": {4, func(s *dgxa100.Server) { // as Slurm has it: ConstrainDevices, and numbers of what is left
			setMemory(&card(s, 2).Device, 40*gib, 30*gib)
			forbid(s, 0, 1, 3)
		}, "0", false, "0", nil, []string{"1 GPU(s) available", "30 GiB of 40 GiB free"}},
		"two cards of other jobs": {4, func(s *dgxa100.Server) { forbid(s, 0, 2) }, "1,0", false, "0 1", nil, nil},
		"all of other jobs":       {2, func(s *dgxa100.Server) { forbid(s, 0, 1) }, "0", false, "", ErrBroken, []string{"/dev/nvidia"}},
		"no count": {1, func(s *dgxa100.Server) {
			s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		}, unset, false, "", ErrBroken, []string{"NVML 999"}},
		"impossible count": {1, func(s *dgxa100.Server) {
			s.DeviceGetCountFunc = func() (int, nvml.Return) { return 1 << 30, nvml.SUCCESS }
		}, unset, false, "", ErrBroken, []string{"1073741824 GPUs"}},
		"one of two lost": {2, func(s *dgxa100.Server) {
			whole := s.DeviceGetHandleByIndexFunc
			s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
				if i == 0 {
					return nil, nvml.ERROR_GPU_IS_LOST
				}
				return whole(i)
			}
		}, unset, false, "1", nil, nil},
		"lost": {1, func(s *dgxa100.Server) {
			card(s, 0).GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
		}, unset, false, "", ErrBroken, []string{"nvidia-smi --gpu-reset"}},
		"UUID that no list can hold": {1, func(s *dgxa100.Server) { card(s, 0).UUID = "GPU-1,GPU-2" }, unset, false, "", ErrBroken, []string{`"GPU-1,GPU-2"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := dgx(tc.cards)
			if tc.prepare != nil {
				tc.prepare(s)
			}
			m, err := probeNVML(s, tc.visible, tc.visible != unset, tc.mps)
			if (err == nil) != (tc.kind == nil) || err != nil && !(errors.Is(err, tc.kind) && errors.Is(err, ErrNoDevice)) {
				t.Fatalf("error %v, want kind %v", err, tc.kind)
			}
			var usable []string
			said := fmt.Sprint(err)
			if m != nil {
				for _, d := range m.usable() {
					if d.MIG {
						usable = append(usable, d.UUID)
					} else {
						usable = append(usable, fmt.Sprint(d.Index))
					}
				}
				if err == nil {
					said = m.String()
				}
			}
			if got := strings.Join(usable, " "); got != tc.usable {
				t.Errorf("usable %q, want %q", got, tc.usable)
			}
			for _, text := range tc.text {
				if !strings.Contains(said, text) {
					t.Errorf("%q lacks %q", said, text)
				}
			}
			if strings.Contains(said, "\n") {
				t.Errorf("%q has more than a line", said)
			}
		})
	}
}

// TestMPS: a container sees no process but its own, so that the daemon's number says
// nothing there.
func TestMPS(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		pid                string // "": no file
		machine, container bool   // what is said there
	}{
		"none":    {"", false, false},
		"runs":    {fmt.Sprintf("%d\n", os.Getpid()), true, true},
		"ended":   {fmt.Sprintf("%d\n", ended.Process.Pid), false, true},
		"garbage": {"x", false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.pid != "" {
				if err := os.WriteFile(filepath.Join(dir, "nvidia-cuda-mps-control.pid"), []byte(tc.pid), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if machine, container := mpsIn(dir, true), mpsIn(dir, false); machine != tc.machine || container != tc.container {
				t.Errorf("runs: %v, in a container %v; want %v and %v", machine, container, tc.machine, tc.container)
			}
		})
	}
}

// answersFrom is a driver whose every answer comes from a list of bytes.
type answersFrom struct{ data []byte }

func (a *answersFrom) bytes(n int) []byte {
	out := make([]byte, n)
	a.data = a.data[copy(out, a.data):]
	return out
}
func (a *answersFrom) number() uint64 { return binary.LittleEndian.Uint64(a.bytes(8)) }
func (a *answersFrom) small() int     { return int(int8(a.bytes(1)[0])) }
func (a *answersFrom) text() string   { return string(a.bytes(a.small() & 31)) }
func (a *answersFrom) ret() nvml.Return {
	if r := a.bytes(1)[0]; r > 200 {
		return nvml.Return(int32(a.number()))
	}
	return nvml.SUCCESS
}

func (a *answersFrom) machine() nvml.Interface {
	s := &mock.Interface{
		InitFunc:                          a.ret,
		ShutdownFunc:                      a.ret,
		SystemGetDriverVersionFunc:        func() (string, nvml.Return) { return a.text(), a.ret() },
		SystemGetCudaDriverVersionFunc:    func() (int, nvml.Return) { return int(int32(a.number())), a.ret() },
		SystemGetCudaDriverVersion_v2Func: func() (int, nvml.Return) { return 12000 + a.small(), a.ret() },
		DeviceGetCountFunc:                func() (int, nvml.Return) { return a.small(), a.ret() },
	}
	s.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return a.device(), a.ret() }
	return s
}

func (a *answersFrom) device() nvml.Device {
	processes := func() ([]nvml.ProcessInfo, nvml.Return) {
		p := make([]nvml.ProcessInfo, a.small()&7)
		for i := range p {
			p[i] = nvml.ProcessInfo{Pid: uint32(a.number()), UsedGpuMemory: a.number()}
		}
		return p, a.ret()
	}
	return &mock.Device{
		GetUUIDFunc:       func() (string, nvml.Return) { return a.text(), a.ret() },
		GetNameFunc:       func() (string, nvml.Return) { return a.text(), a.ret() },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: a.number(), Free: a.number()}, a.ret() },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: a.number(), Reserved: a.number(), Free: a.number()}, a.ret()
		},
		GetCudaComputeCapabilityFunc:      func() (int, int, nvml.Return) { return a.small(), a.small(), a.ret() },
		GetComputeModeFunc:                func() (nvml.ComputeMode, nvml.Return) { return nvml.ComputeMode(a.small()), a.ret() },
		GetComputeRunningProcessesFunc:    processes,
		GetMPSComputeRunningProcessesFunc: processes,
		GetMigModeFunc:                    func() (int, int, nvml.Return) { return a.small() & 1, 0, a.ret() },
		GetMaxMigDeviceCountFunc:          func() (int, nvml.Return) { return a.small(), a.ret() },
		GetMigDeviceHandleByIndexFunc:     func(int) (nvml.Device, nvml.Return) { return a.device(), a.ret() },
	}
}

// FuzzProbe: whatever the driver answers, there is no panic, an error exactly
// where no device is usable, and what is usable can be named to CUDA.
func FuzzProbe(f *testing.F) {
	f.Add([]byte{}, "", false)
	f.Add([]byte("\x00\x03550\x00\x00\x00\x02\x00\x00\x08GPU-1234\x00"), "0,GPU", true)
	f.Fuzz(func(t *testing.T, data []byte, visible string, set bool) {
		m, err := probeNVML((&answersFrom{data}).machine(), visible, set, false)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Remedy == "" || strings.ContainsAny(err.Error(), "\n\x1b") || !utf8.ValidString(err.Error()) {
				t.Fatalf("error %q", err)
			}
		}
		if m == nil {
			if err == nil {
				t.Fatal("neither a machine nor an error")
			}
			return
		}
		usable := m.usable()
		if (err == nil) != (len(usable) > 0) {
			t.Fatalf("%d usable, error %v", len(usable), err)
		}
		for _, d := range usable {
			if d.UUID == "" || strings.ContainsAny(d.UUID, ", \n") || d.Free > d.Memory || d.Memory > 0 && d.Free < minFree || d.Major < minMajor || d.Ordinal != -1 {
				t.Fatalf("usable: %+v", d)
			}
		}
		if strings.ContainsAny(m.String(), "\n\x1b") {
			t.Fatalf("%q", m)
		}
	})
}

// TestMinCUDA reads what the PTX asks for in the PTX.
func TestMinCUDA(t *testing.T) {
	cudas := map[string]int{"6.3": 10000, "7.0": 11000, "7.8": 11080} // by NVIDIA's release notes of PTX
	for major := minMajor; major <= 9; major++ {
		text, err := os.ReadFile(fmt.Sprintf("../model/cuda/kernels_%d0.ptx", major))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\n.version ")
		version, _, _ := strings.Cut(rest, "\n")
		want, known := cudas[version]
		if got, _ := minCUDA(major); !known || got != want {
			t.Errorf("capability %d.0 has PTX %q: minCUDA %d, want %d", major, version, got, want)
		}
	}
}
