//go:build cuda && cgo

package gpuinit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/dustin/go-humanize"
)

const (
	maxDevices = 256       // more is no answer
	minFree    = 512 << 20 // bytes; CUDA's own context takes 300 MB and more
)

func probe(ctx context.Context, timeout time.Duration) (*Machine, error) {
	return withTimeout(ctx, timeout, "asking what GPUs there are", func() (*Machine, error) {
		if err := libnvml.Open(); err != nil {
			return nil, errNoDriver(err)
		}
		value, set := visible()
		return probeNVML(nvml.New(), value, set, mpsRuns())
	})
}

func errNoDriver(why error) error {
	return &Error{Kind: ErrNoDriver, What: "no NVIDIA driver: " + printable(why.Error()),
		Remedy: "install it, or run the container with --gpus=all, or use --device=cpu"}
}

// probeNVML asks lib. visible is CUDA_VISIBLE_DEVICES, where it is set.
func probeNVML(lib nvml.Interface, visible string, set, mps bool) (*Machine, error) {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, errNVML(ret)
	}
	defer lib.Shutdown()

	m := &Machine{MPS: mps}
	if v, ret := lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		m.Driver = printable(v)
	}
	var ret nvml.Return
	if m.CUDA, ret = lib.SystemGetCudaDriverVersion_v2(); ret != nvml.SUCCESS {
		m.CUDA, _ = lib.SystemGetCudaDriverVersion()
	}
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return m, errNVML(ret)
	}
	if n < 0 || n > maxDevices {
		return m, &Error{Kind: ErrBroken, What: fmt.Sprintf("the NVIDIA driver speaks of %d GPUs", n), Remedy: reinstall}
	}
	forbidden := 0
	for i := range n {
		handle, ret := lib.DeviceGetHandleByIndex(i)
		switch i -= forbidden; ret {
		case nvml.SUCCESS:
			m.Devices = append(m.Devices, devices(i, handle)...)
		case nvml.ERROR_NO_PERMISSION: // another job's: neither nvidia-smi nor CUDA counts it
			forbidden++
		default:
			m.Devices = append(m.Devices, Device{Index: i, Ordinal: -1, Name: "GPU", Err: errNVML(ret)})
		}
	}
	if set {
		hide(m.Devices, visible)
	}
	if forbidden > 0 && len(m.Devices) == 0 {
		m.Devices = []Device{{Ordinal: -1, Name: "GPU", Err: errNVML(nvml.ERROR_NO_PERMISSION)}}
	}
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.Err == nil {
			d.Err = m.assess(d)
		}
	}
	return m, m.check()
}

// devices are card i or, with MIG, its instances.
func devices(i int, handle nvml.Device) []Device {
	card := describe(handle, Device{Index: i})
	if card.Err != nil {
		return []Device{card}
	}
	if mode, _, ret := handle.GetMigMode(); ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return []Device{card}
	}
	n, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		n = 0
	}
	var out []Device
	for j := range min(n, maxDevices) {
		instance, ret := handle.GetMigDeviceHandleByIndex(j)
		if ret != nvml.SUCCESS {
			continue // numbers of instances have gaps
		}
		// An instance has no capability and no mode of its own.
		out = append(out, describe(instance, Device{Index: i, MIG: true, Major: card.Major, Minor: card.Minor, Exclusive: card.Exclusive}))
	}
	if len(out) == 0 {
		card.Err = &Error{Kind: ErrInvisible, What: fmt.Sprintf("GPU %d is in MIG mode and has no instance", i),
			Remedy: "make one (nvidia-smi mig -cgi 19 -C) or leave MIG mode (nvidia-smi -mig 0)"}
		return []Device{card}
	}
	return out
}

// describe fills in d from what handle says.
func describe(handle nvml.Device, d Device) Device {
	d.Ordinal = -1
	var ret nvml.Return
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		d.Name, d.Err = "GPU", errNVML(ret)
		return d
	}
	d.UUID = printable(d.UUID)
	if d.UUID == "" || strings.ContainsAny(d.UUID, ", ") {
		d.Name, d.Err = "GPU", &Error{Kind: ErrBroken, What: fmt.Sprintf("the NVIDIA driver gives GPU %d the UUID %q", d.Index, d.UUID), Remedy: reinstall}
		return d
	}
	if d.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		d.Name = "GPU"
	}
	d.Name = printable(d.Name)
	// A card that shares the machine's memory (GB10, Jetson) tells none, and one that
	// is divided tells all of it to administrators only.
	if d.Memory, d.Free, ret = memory(handle); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_NO_PERMISSION {
		d.Err = errNVML(ret)
		return d
	}
	d.Free = min(d.Free, d.Memory)
	if !d.MIG {
		if d.Major, d.Minor, ret = handle.GetCudaComputeCapability(); ret != nvml.SUCCESS {
			d.Err = errNVML(ret)
			return d
		}
		mode, ret := handle.GetComputeMode()
		switch {
		case ret != nvml.SUCCESS: // not said by every card
		case mode == nvml.COMPUTEMODE_PROHIBITED:
			d.Err = &Error{Kind: ErrBusy, What: fmt.Sprintf("GPU %d %s is closed to computing", d.Index, d.Name),
				Remedy: fmt.Sprintf("open it with nvidia-smi -i %d -c DEFAULT", d.Index)}
		case mode != nvml.COMPUTEMODE_DEFAULT:
			d.Exclusive = true
		}
	}
	// Both are missing where permission or support is; then nobody is known.
	alone, _ := handle.GetComputeRunningProcesses()
	shared, _ := handle.GetMPSComputeRunningProcesses()
	for _, p := range slices.Concat(alone, shared) {
		// A client of MPS is in both ("M+C" in nvidia-smi).
		if int(p.Pid) == os.Getpid() || slices.ContainsFunc(d.Processes, func(q Process) bool { return q.PID == int(p.Pid) }) {
			continue
		}
		if p.UsedGpuMemory > cmp.Or(d.Memory, math.MaxInt64) { // all ones where it is not known
			p.UsedGpuMemory = 0
		}
		d.Processes = append(d.Processes, Process{PID: int(p.Pid), Memory: p.UsedGpuMemory})
	}
	return d
}

// memory is what programs can have of a device, and what is free, in bytes. Since
// driver 510 the total has also what the driver keeps for itself, hundreds of MB,
// which is never free.
func memory(handle nvml.Device) (total, free uint64, ret nvml.Return) {
	now, ret := handle.GetMemoryInfo_v2()
	if ret == nvml.SUCCESS {
		return now.Total - min(now.Reserved, now.Total), now.Free, ret
	}
	before, old := handle.GetMemoryInfo() // drivers before 510
	if old == nvml.SUCCESS || ret != nvml.ERROR_NOT_SUPPORTED {
		ret = old
	}
	return before.Total, before.Free, ret
}

func freeMemory(d *Device) uint64 {
	if libnvml.Open() != nil {
		return 0
	}
	lib := nvml.New()
	if lib.Init() != nvml.SUCCESS {
		return 0
	}
	defer lib.Shutdown()
	handle, ret := lib.DeviceGetHandleByUUID(d.UUID)
	if ret != nvml.SUCCESS {
		return 0
	}
	_, free, _ := memory(handle)
	return free
}

// The compute capability that the PTX of model/cuda asks for: Volta, and T4.
const minMajor, minMinor = 7, 0

// minCUDA is the CUDA, as cuDriverGetVersion counts it, that a driver needs to
// compile the PTX of model/cuda for a GPU of that capability, and the Linux
// driver that first had it.
func minCUDA(major int) (version int, driver string) {
	switch {
	case major >= 9:
		return 11080, "520" // PTX 7.8
	case major >= 8:
		return 11000, "450" // PTX 7.0
	}
	return 10000, "410" // PTX 6.3
}

// assess is why this process cannot use d.
func (m *Machine) assess(d *Device) error {
	cuda, driver := minCUDA(d.Major)
	switch {
	case d.Major < minMajor || d.Major == minMajor && d.Minor < minMinor:
		return &Error{Kind: ErrCapability, What: fmt.Sprintf("GPU %d %s has compute capability %d.%d; %d.%d is needed", d.Index, d.Name, d.Major, d.Minor, minMajor, minMinor),
			Remedy: "use a Volta or newer (V100, T4, A100, …), or --device=cpu"}
	case m.CUDA < cuda:
		return &Error{Kind: ErrOldDriver, What: fmt.Sprintf("the NVIDIA driver %s speaks CUDA %d.%d; GPU %d %s needs %d.%d", m.Driver, m.CUDA/1000, m.CUDA%1000/10, d.Index, d.Name, cuda/1000, cuda%1000/10),
			Remedy: fmt.Sprintf("install driver %s or newer", driver)}
	case d.Exclusive && len(d.Processes) > 0 && !m.MPS:
		return &Error{Kind: ErrBusy, What: fmt.Sprintf("GPU %d %s takes one process at a time and %s", d.Index, d.Name, d.holders()),
			Remedy: fmt.Sprintf("wait for it, start MPS, or allow more with nvidia-smi -i %d -c DEFAULT", d.Index)}
	case d.Memory > 0 && d.Free < minFree:
		return &Error{Kind: ErrMemory, What: fmt.Sprintf("GPU %d %s has %s of %s free, %s", d.Index, d.Name, humanize.IBytes(d.Free), humanize.IBytes(d.Memory), d.holders()),
			Remedy: fmt.Sprintf("end what holds it (nvidia-smi lists it); CUDA alone takes about %s", humanize.IBytes(minFree))}
	}
	return nil
}

// holders says who computes on d.
func (d *Device) holders() string {
	if len(d.Processes) == 0 {
		return "and no process is known to hold it"
	}
	pids := make([]string, len(d.Processes))
	for i, p := range d.Processes {
		pids[i] = strconv.Itoa(p.PID)
	}
	if len(pids) > 5 {
		pids = append(pids[:5], "…")
	}
	return fmt.Sprintf("process %s holds %s", strings.Join(pids, ", "), humanize.IBytes(d.held()))
}

// check is why no device can be used.
func (m *Machine) check() error {
	if len(m.usable()) > 0 {
		return nil
	}
	if len(m.Devices) == 0 {
		return &Error{Kind: ErrNoDevice, What: fmt.Sprintf("the NVIDIA driver %s sees no GPU", m.Driver),
			Remedy: "look at nvidia-smi; a container needs --gpus=all; or use --device=cpu"}
	}
	// A device that is merely hidden says less than one that is not.
	first := slices.IndexFunc(m.Devices, func(d Device) bool { return !errors.Is(d.Err, ErrInvisible) })
	e, _ := errors.AsType[*Error](m.Devices[max(first, 0)].Err)
	if len(m.Devices) == 1 {
		return e
	}
	return &Error{Kind: e.Kind, What: fmt.Sprintf("none of %d GPUs can be used: %s", len(m.Devices), e.What), Remedy: e.Remedy}
}

// hide marks the devices that CUDA_VISIBLE_DEVICES leaves out. It lists numbers
// (in PCI order), or beginnings of UUIDs; the first that names nothing ends it.
func hide(devices []Device, value string) {
	seen := make([]bool, len(devices))
	for _, entry := range strings.Split(value, ",") {
		entry = strings.TrimSpace(entry)
		found := false
		for i := range devices {
			d := &devices[i]
			number, err := strconv.Atoi(entry)
			if err == nil && number == d.Index || err != nil && len(entry) > 4 && d.UUID != "" && strings.HasPrefix(d.UUID, entry) {
				found = !seen[i] // named twice is wrong too
				seen[i] = true
			}
		}
		if !found {
			break
		}
	}
	for i := range devices {
		if d := &devices[i]; !seen[i] {
			d.Err = &Error{Kind: ErrInvisible, What: fmt.Sprintf("GPU %d %s is hidden by CUDA_VISIBLE_DEVICES=%s", d.Index, d.Name, printable(value)),
				Remedy: fmt.Sprintf("unset it, or name the GPU (CUDA_VISIBLE_DEVICES=%d)", d.Index)}
		}
	}
}

// errNVML is a failure of the driver, with its remedy.
func errNVML(ret nvml.Return) error {
	e := &Error{Kind: ErrBroken, What: fmt.Sprintf("the NVIDIA driver fails: %s (NVML %d)", printable(nvmlText(ret)), ret), Remedy: reinstall}
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errNoDriver(errors.New("libnvidia-ml.so.1 cannot be opened"))
	case nvml.ERROR_DRIVER_NOT_LOADED:
		e.Kind, e.Remedy = ErrNoDriver, "load the kernel module (modprobe nvidia), or run the container with --gpus=all"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		e.Remedy = "the library and the kernel module are of two versions: reboot after the upgrade"
	case nvml.ERROR_NO_PERMISSION:
		e.Remedy = "let this user open /dev/nvidia* (group video), or run the container with --gpus=all"
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		e.Remedy = "reset the card (nvidia-smi --gpu-reset) or reboot; dmesg says why (Xid)"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		e.Kind, e.Remedy = ErrOldDriver, "install a newer driver"
	}
	return e
}

// nvmlText is go-nvml's text, which without a library is none.
func nvmlText(ret nvml.Return) string {
	if ret < 0 || ret > math.MaxInt16 {
		return "unknown error"
	}
	return ret.Error()
}

// mpsRuns reports whether a Multi-Process Service takes this process's work.
func mpsRuns() bool {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return mpsIn(cmp.Or(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "/tmp/nvidia-mps"), namespace == "pid:[4026531836]") // the kernel's first
}

// mpsIn is mpsRuns for the daemon's folder. all says that this process sees all of the
// machine's; a container sees its own only, and the daemon is none of them.
func mpsIn(dir string, all bool) bool {
	text, err := os.ReadFile(filepath.Join(dir, "nvidia-cuda-mps-control.pid"))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && pid > 0 && (!all || syscall.Kill(pid, 0) != syscall.ESRCH)
}

// printable is s as one line that a terminal can show.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(s))
}
