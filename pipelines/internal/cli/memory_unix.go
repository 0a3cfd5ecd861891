//go:build unix

package cli

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// PeakMemory is the most memory that this process had, in bytes; 0 where the
// system does not tell.
func PeakMemory() int64 {
	// Linux's Maxrss begins with that of the process that started this one.
	status, _ := os.ReadFile("/proc/self/status")
	var kib int64
	if _, peak, _ := strings.Cut(string(status), "\nVmHWM:"); peak != "" {
		if _, err := fmt.Sscan(peak, &kib); err == nil {
			return kib << 10
		}
	}
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) << 10
}

// CPUTime is the time that this process's threads computed, all cores together.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
