//go:build cuda && cgo

package gpuinit

//go:generate sh -c "./symbols.sh >symbols.h.new && mv symbols.h.new symbols.h"

// #cgo linux LDFLAGS: -ldl
// #include <stddef.h>
// #include "shim.h"
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

func built() error { return nil }

// library opens one of the driver's libraries, once. A failure is tried again
// by the next call: a driver may be installed while a worker lives.
type library struct {
	open func(why *C.char, size C.size_t) C.int
	mu   sync.Mutex
	done bool
}

var (
	libcuda = library{open: func(why *C.char, size C.size_t) C.int { return C.linnet_open_cuda(why, size) }}
	libnvml = library{open: func(why *C.char, size C.size_t) C.int { return C.linnet_open_nvml(why, size) }}
)

func (l *library) Open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return nil
	}
	why := make([]byte, 256)
	if l.open((*C.char)(unsafe.Pointer(&why[0])), C.size_t(len(why))) == 0 {
		return fmt.Errorf("%s", C.GoString((*C.char)(unsafe.Pointer(&why[0]))))
	}
	l.done = true
	return nil
}

// startCUDA is the real cuInit, whose code it returns.
func startCUDA() int { return int(C.linnet_init_cuda()) }

const reinstall = "reboot, or install the driver again; nvidia-smi should work first"

// hung says that a call into the driver never came back. No other is made then:
// it would wait behind the first.
var hung struct {
	sync.Mutex
	during string
}

// driverTimeout is Options.Timeout where that is 0: eight cards without persistence
// take ten seconds to answer.
const driverTimeout = 30 * time.Second

// withTimeout calls f, which may wait for the driver, on a goroutine of its own, and
// gives up after timeout, driverTimeout where that is 0. A thread that waits in the
// driver cannot be ended; it stays until the process ends.
func withTimeout[T any](ctx context.Context, timeout time.Duration, during string, f func() (T, error)) (T, error) {
	var none T
	timeout = cmp.Or(timeout, driverTimeout)
	hung.Lock()
	before := hung.during
	hung.Unlock()
	if before != "" {
		return none, errHangs(before, timeout)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			// go-nvml slices by lengths that the driver gives.
			if p := recover(); p != nil {
				r.err = &Error{Kind: ErrBroken, What: fmt.Sprintf("the NVIDIA driver gives impossible answers (%s: %v)", during, p), Remedy: reinstall}
			}
			done <- r
		}()
		r.value, r.err = f()
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-timer.C:
		return none, hangs(during, timeout)
	}
}

func hangs(during string, timeout time.Duration) error {
	hung.Lock()
	defer hung.Unlock()
	hung.during = during
	return errHangs(during, timeout)
}

func errHangs(during string, timeout time.Duration) error {
	return &Error{Kind: ErrHangs, What: fmt.Sprintf("the NVIDIA driver does not answer (%s, waited %v)", during, timeout),
		Remedy: "look for NVRM or Xid in dmesg, reset the card or reboot; --device=cpu works meanwhile"}
}
