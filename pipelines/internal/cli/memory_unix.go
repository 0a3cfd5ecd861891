//go:build unix

package cli

import (
	"runtime"
	"syscall"
)

// PeakMemory is the most memory that this process had, in bytes; 0 where the
// system does not tell.
func PeakMemory() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) << 10
}
