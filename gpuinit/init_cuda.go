//go:build cuda && cgo

package gpuinit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"gorgonia.org/cu"
)

// process is what Init did in this process.
var process struct {
	sync.Mutex
	gpus    *GPUs // nil when nobody has them
	users   int
	started []Device // what CUDA starts with, which cannot be changed once it may have begun to
	counted bool     // CUDA sees all of these
	asked   *Machine // as CUDA told it; nil where NVML does
}

// given is the user's CUDA_VISIBLE_DEVICES, once Init has set another.
var given struct {
	sync.Mutex
	visible       string
	wasSet, taken bool
}

// visible is the user's CUDA_VISIBLE_DEVICES.
func visible() (string, bool) {
	given.Lock()
	defer given.Unlock()
	if given.taken {
		return given.visible, given.wasSet
	}
	return os.LookupEnv("CUDA_VISIBLE_DEVICES")
}

func initialise(ctx context.Context, o Options) (*GPUs, error) {
	process.Lock()
	defer process.Unlock()
	if process.gpus == nil {
		gpus, err := start(ctx, o)
		if err != nil {
			return nil, err
		}
		process.gpus = gpus
	}
	process.users++
	g := *process.gpus
	g.release = sync.OnceValue(release)
	return &g, nil
}

// release gives the leases back when the last one closes.
func release() error {
	process.Lock()
	defer process.Unlock()
	if process.users--; process.users > 0 {
		return nil
	}
	err := process.gpus.release()
	process.gpus = nil
	return err
}

func start(ctx context.Context, o Options) (*GPUs, error) {
	logf := o.Log
	if logf == nil {
		logf = func(int, string, ...any) {}
	}
	m, err := machine(ctx, o)
	if m != nil && len(m.Devices) > 0 {
		logf(2, "%v", m)
		for _, d := range m.Devices {
			if d.Err != nil {
				logf(2, "not used: %v", d.Err)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	devices := m.usable()
	if process.started != nil {
		devices = slices.DeleteFunc(devices, func(d Device) bool {
			return !slices.ContainsFunc(process.started, func(s Device) bool { return s.UUID == d.UUID })
		})
		if len(devices) == 0 {
			return nil, &Error{Kind: ErrBroken, What: "the GPU of this process is gone", Remedy: "start the program again"}
		}
	}
	devices, unlock, err := lease(ctx, leases, devices, o, logf)
	if err != nil {
		return nil, err
	}
	if !process.counted {
		if err := startOn(ctx, o, devices); err != nil {
			unlock()
			return nil, err
		}
	}
	for i := range devices {
		d := &devices[i]
		d.Ordinal = slices.IndexFunc(process.started, func(s Device) bool { return s.UUID == d.UUID })
		logf(2, "using GPU %d %s (%s)", d.Index, d.Name, d.UUID)
	}
	return &GPUs{Machine: m, Devices: devices, release: unlock}, nil
}

// machine is what NVML says of the machine or, without NVML, what CUDA does.
func machine(ctx context.Context, o Options) (*Machine, error) {
	m, err := probe(ctx, o.Timeout)
	switch {
	case !errors.Is(err, ErrNoDriver):
	case process.asked != nil:
		return process.asked, process.asked.check()
	case process.started == nil:
		// Some machines have CUDA without NVML. Otherwise NVML's error says more.
		if asked, why := askCUDA(ctx, o); why == nil || errors.Is(why, ErrHangs) || asked != nil || ctx.Err() != nil {
			if asked != nil {
				process.asked, process.started, process.counted = asked, slices.Clone(asked.Devices), true
			}
			return asked, why
		}
	}
	return m, err
}

// startOn starts CUDA with devices alone, so that it makes nothing on others. Where an
// earlier call was not told whether CUDA started, it goes on with what that one had.
func startOn(ctx context.Context, o Options, devices []Device) error {
	if process.started == nil {
		process.started = slices.Clone(devices)
	}
	uuids := make([]string, len(process.started))
	for i, d := range process.started {
		uuids[i] = d.UUID
	}
	before, set := visible()
	given.Lock()
	given.visible, given.wasSet, given.taken = before, set, true
	os.Setenv("CUDA_VISIBLE_DEVICES", strings.Join(uuids, ","))
	given.Unlock()
	n, err := withTimeout(ctx, o.Timeout, "starting CUDA", func() (int, error) {
		if err := openCUDA(); err != nil {
			return 0, err
		}
		return cu.NumDevices()
	})
	if err != nil {
		if _, known := errors.AsType[*Error](err); known {
			process.started = nil // it did not start, or is never asked again
		} else if ctx.Err() == nil {
			err = explain(err, &devices[0])
		}
		return err
	}
	if n != len(uuids) {
		return &Error{Kind: ErrBroken, What: fmt.Sprintf("CUDA sees %d of %d GPUs (CUDA_VISIBLE_DEVICES=%s)", n, len(uuids), strings.Join(uuids, ",")),
			Remedy: "name one GPU by CUDA_VISIBLE_DEVICES; under MPS, start its daemon with all"}
	}
	process.counted = true
	return nil
}

// askCUDA describes a machine without NVML. CUDA is started on all it shows.
func askCUDA(ctx context.Context, o Options) (*Machine, error) {
	return withTimeout(ctx, o.Timeout, "starting CUDA", func() (*Machine, error) {
		if err := openCUDA(); err != nil {
			return nil, err
		}
		m := &Machine{Driver: "unknown", CUDA: cu.Version(), MPS: mpsRuns()}
		n, err := cu.NumDevices()
		if err != nil {
			return nil, explain(err, &Device{Name: "GPU"})
		}
		for i := range min(n, maxDevices) {
			d := Device{Index: i, Ordinal: i, Name: "GPU"}
			dev := cu.Device(i)
			id, err1 := dev.UUID()
			name, err2 := dev.Name()
			memory, err3 := dev.TotalMem()
			major, minor, err4 := dev.ComputeCapability()
			if err := cmp.Or(err1, err2, err3, err4); err != nil {
				d.Err = explain(err, &d)
			} else {
				d.UUID, d.Name, d.Major, d.Minor = "GPU-"+id.String(), printable(name), major, minor
				d.Memory, d.Free = uint64(memory), uint64(memory)
				d.Err = m.assess(&d)
				d.Free = 0 // nobody says it; what others hold is not this process's
			}
			m.Devices = append(m.Devices, d)
		}
		return m, m.check()
	})
}

// openCUDA loads the driver and starts it.
func openCUDA() error {
	if err := libcuda.Open(); err != nil { // where NVML is there, a container may have the driver's tools alone
		return &Error{Kind: ErrNoDriver, What: "the NVIDIA driver comes without CUDA: " + printable(err.Error()),
			Remedy: "install its libcuda, or run the container with --env=NVIDIA_DRIVER_CAPABILITIES=compute,utility"}
	}
	if code := startCUDA(); code != 0 {
		return errCUDA(code)
	}
	return nil
}

// errCUDA is a code of cuInit.
func errCUDA(code int) error {
	switch code {
	case 2: // no memory: CUDA maps addresses for that of the machine and of all cards
		return &Error{Kind: ErrMemory, What: "CUDA does not start: it finds no room for its addresses (CUDA 2)", Remedy: "let the process have them (ulimit -v unlimited; on SGE no h_vmem), or use --device=cpu"}
	case 100: // no device
		return &Error{Kind: ErrNoDevice, What: "CUDA sees no GPU", Remedy: "look at nvidia-smi; a container needs --gpus=all; or use --device=cpu"}
	case 802: // not ready
		return &Error{Kind: ErrBroken, What: "CUDA does not start: what connects the cards is not ready (CUDA 802)", Remedy: "start NVIDIA's fabric manager (systemctl start nvidia-fabricmanager), of the driver's version; it takes a minute"}
	case 803, 804: // of two versions
		return &Error{Kind: ErrBroken, What: fmt.Sprintf("CUDA does not start: its library and the kernel module are of two versions (CUDA %d)", code), Remedy: "reboot after the upgrade; a container's own libcuda must fit the host's driver"}
	case 805, 806, 807, 808, 809: // of MPS
		return &Error{Kind: ErrBusy, What: fmt.Sprintf("CUDA does not start: MPS does not take this process (CUDA %d)", code), Remedy: "it takes one user's processes, and so many of them; wait, or end it (echo quit | nvidia-cuda-mps-control)"}
	case 500: // cuInit is missing
		return &Error{Kind: ErrBroken, What: "libcuda.so.1 is no CUDA driver", Remedy: reinstall}
	}
	return &Error{Kind: ErrBroken, What: fmt.Sprintf("CUDA does not start (CUDA %d)", code), Remedy: reinstall}
}

func explain(err error, d *Device) error {
	if _, known := errors.AsType[*Error](err); err == nil || known {
		return err
	}
	where := fmt.Sprintf("GPU %d %s", d.Index, d.Name)
	e := &Error{Kind: ErrBroken, What: fmt.Sprintf("%s fails: %v", where, err), Remedy: "dmesg says why (Xid); reset the card (nvidia-smi --gpu-reset) or reboot; --device=cpu works meanwhile", Cause: err}
	switch code(err) {
	case int(cu.OutOfMemory):
		e.Kind, e.What = ErrMemory, where+" is out of memory"
		if n := d.held(); n > 0 {
			e.What += fmt.Sprintf(" (other processes hold %s)", humanize.IBytes(n))
		}
		e.Remedy = "end what holds its memory (nvidia-smi lists it), or use --device=cpu"
	case int(cu.NoDevice), int(cu.InvalidDevice), deviceUnavailable:
		e.Kind, e.What = ErrBusy, fmt.Sprintf("%s is busy or takes one process at a time: %v", where, err)
		e.Remedy = fmt.Sprintf("wait for it, start MPS, or allow more with nvidia-smi -i %d -c DEFAULT", d.Index)
	case int(cu.NoBinaryForGpu), int(cu.InvalidSource):
		e.Kind, e.What = ErrCapability, fmt.Sprintf("%s has compute capability %d.%d, which the kernels do not suit", where, d.Major, d.Minor)
		e.Remedy = fmt.Sprintf("use one with %d.%d or newer, or --device=cpu", minMajor, minMinor)
	case 805, 806, 807, 808, 809, 810: // of MPS
		e.Kind, e.What = ErrBusy, fmt.Sprintf("MPS does not take this process's work on %s (CUDA %d)", where, code(err))
		e.Remedy = "it takes processes of one user alone, and not without end, and ends all on a card when one fails there: start again, or end it (echo quit | nvidia-cuda-mps-control)"
	case jitDisabled:
		e.Kind, e.What = ErrBroken, fmt.Sprintf("the driver of %s may not compile the kernels: %v", where, err)
		e.Remedy = "unset CUDA_DISABLE_PTX_JIT, or use --device=cpu"
	case int(cu.InvalidPtx), int(cu.JitCompilerNotFound), unsupportedPTX, int(cu.NotFound):
		e.Kind, e.What = ErrOldDriver, fmt.Sprintf("the driver of %s cannot compile the kernels: %v", where, err)
		_, driver := minCUDA(d.Major)
		e.Remedy = fmt.Sprintf("install driver %s or newer, with libnvidia-ptxjitcompiler", driver)
	}
	return e
}

// Codes that package cu has no name for.
const (
	deviceUnavailable = 46
	unsupportedPTX    = 222
	jitDisabled       = 223
)

// code is CUDA's number in err, or -1. The type of cu's errors has no name.
func code(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		if v := reflect.ValueOf(err); v.CanInt() {
			return int(v.Int())
		}
	}
	return -1
}
