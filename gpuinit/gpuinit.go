// Package gpuinit finds NVIDIA GPUs and starts CUDA on those that this process
// may use. It promises never to exit the process, never to wait for a driver
// that does not answer, and to name the remedy in each of its errors.
//
// Only a build with -tags cuda (and cgo) can use a GPU. Importing the package
// touches no driver in any build: libcuda and libnvidia-ml are opened by the
// first call of Probe or Init, and no binary is linked with them, so that one
// binary runs with and without a GPU.
package gpuinit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Kinds of failure, for errors.Is. Each error of Probe, Init and Explain is one
// of them, and ErrNoDevice too, but for a context's and those of the leases' files.
var (
	ErrNoDevice   = errors.New("no usable GPU")
	ErrNotBuilt   = errors.New("built without CUDA")
	ErrNoDriver   = errors.New("no driver")
	ErrOldDriver  = errors.New("driver too old")
	ErrBroken     = errors.New("broken driver or device")
	ErrHangs      = errors.New("driver does not answer")
	ErrInvisible  = errors.New("GPU hidden")
	ErrCapability = errors.New("GPU not supported")
	ErrBusy       = errors.New("GPU busy")
	ErrMemory     = errors.New("GPU out of memory")
)

// Error is a failure in one line: what is wrong and what to do about it.
type Error struct {
	Kind         error // one of the Err values
	What, Remedy string
	Cause        error // what CUDA returned; nil where it was not asked
}

func (e *Error) Error() string { return fmt.Sprintf("gpuinit: %s; %s", e.What, e.Remedy) }

// Is reports the kind. Memory may come back and a card may become free, but
// until then no device is there to be used either.
func (e *Error) Is(target error) bool { return target == e.Kind || target == ErrNoDevice }

func (e *Error) Unwrap() error { return e.Cause }

// Device is a GPU, or one MIG instance of a GPU.
type Device struct {
	Index        int    // of the card among the machine's, in PCI order, as nvidia-smi counts
	Ordinal      int    // CUDA's number for it in this process after Init; -1 before and where it is not used
	Name, UUID   string // "NVIDIA A100-SXM4-40GB", "GPU-4404…" or "MIG-…"
	Memory, Free uint64 // bytes that programs can have; 0 where nobody says it: Free without NVML, both of a card that shares the machine's
	Major, Minor int    // compute capability
	MIG          bool   // an instance: CUDA gives a process no more than one
	Exclusive    bool   // compute mode: one process at a time
	Processes    []Process
	Err          error // why this process cannot use it; nil where it can
}

// Process is another process that computes on a device.
type Process struct {
	PID    int
	Memory uint64 // bytes that it holds there; 0 where the driver does not say
}

// held is the memory that other processes hold on d, in bytes.
func (d *Device) held() (n uint64) {
	for _, p := range d.Processes {
		n += p.Memory
	}
	return n
}

// String describes d in one line.
func (d *Device) String() string {
	memory := humanize.IBytes(d.Memory)
	switch {
	case d.Memory == 0:
		memory = "memory unknown"
	case d.Free > 0:
		memory = fmt.Sprintf("%s of %s free", humanize.IBytes(d.Free), memory)
	}
	s := fmt.Sprintf("%d %s, %s, compute %d.%d", d.Index, d.Name, memory, d.Major, d.Minor)
	if d.MIG {
		s += ", a MIG instance"
	}
	if d.Exclusive {
		s += ", one process at a time"
	}
	if n := len(d.Processes); n > 0 {
		s += fmt.Sprintf(", %d other process(es) hold %s", n, humanize.IBytes(d.held()))
	}
	return s
}

// Machine is what the driver says about this machine.
type Machine struct {
	Driver  string // version of the driver, "550.54.15"
	CUDA    int    // newest CUDA that it speaks, 12040 for 12.4
	MPS     bool   // a Multi-Process Service shares the GPUs
	Devices []Device
}

// usable are the devices that this process can use.
func (m *Machine) usable() (out []Device) {
	for _, d := range m.Devices {
		if d.Err == nil {
			out = append(out, d)
		}
	}
	return out
}

// String is the line that logs are searched for.
func (m *Machine) String() string {
	usable := m.usable()
	parts := make([]string, len(usable))
	for i := range usable {
		parts[i] = usable[i].String()
	}
	s := fmt.Sprintf("%d GPU(s) available, driver %s (CUDA %d.%d)", len(usable), m.Driver, m.CUDA/1000, m.CUDA%1000/10)
	if m.MPS {
		s += ", shared by MPS"
	}
	if len(parts) > 0 {
		s += ": " + strings.Join(parts, "; ")
	}
	return s
}

// Options of Init.
type Options struct {
	// WorkersPerGPU is how many processes may share a device; 0 means 1.
	WorkersPerGPU int
	// Devices is how many devices this process takes at most; 0 means all
	// that no other process holds.
	Devices int
	// Wait is for a process that has no other device: it waits until another
	// one gives a GPU back, rather than return ErrBusy.
	Wait bool
	// Timeout is how long the driver may take to answer; 0 means 30 s.
	Timeout time.Duration
	// Log takes lines for the user, of level 1 (a worker waits) and 2 (what is
	// there); nil drops them.
	Log func(level int, format string, args ...any)
}

// GPUs are the devices of this process. They stay its own until Close.
type GPUs struct {
	Machine *Machine
	Devices []Device // at least one; Ordinal counts from 0

	release func() error
}

// Close lets other processes have the devices. Whatever was made on them was
// freed before.
func (g *GPUs) Close() error { return g.release() }

// Built is nil, or the error of a build that has no CUDA.
func Built() error { return built() }

// Probe asks the driver what is there, and starts nothing on any device. The
// error says why no GPU can be used and what to do; the Machine comes with it
// as far as it is known, which may be nil.
func Probe(ctx context.Context) (*Machine, error) { return probe(ctx, 0) }

// FreeMemory is what is free of d now, in bytes; 0 where nobody says it.
func FreeMemory(d *Device) uint64 { return freeMemory(d) }

// Init takes devices for this process, sharing them fairly with other
// processes that call it, and starts CUDA on them. CUDA is started once a
// process, so a later call gets the devices that the first one got.
func Init(ctx context.Context, o Options) (*GPUs, error) { return initialise(ctx, o) }

// Hangs is the error of a driver that has not answered for so long, and notes
// that it does not: later calls of Probe and Init fail rather than wait.
func Hangs(during string, waited time.Duration) error { return hangs(during, waited) }

// Explain is err, which CUDA returned for work on d, with what it means and
// what to do.
func Explain(err error, d *Device) error { return explain(err, d) }
