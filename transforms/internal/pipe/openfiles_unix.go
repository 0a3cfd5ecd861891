//go:build unix

package pipe

import (
	"math"
	"sync"
	"syscall"
)

// openFiles is how many files the process may have open at once.
var openFiles = sync.OnceValue(func() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
})
