package cli

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
)

// Memory is what this process has in memory now, in bytes: the system's count
// where it is told (Linux), otherwise what Go took and did not give back.
func Memory() int64 {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			if pages, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				return pages * int64(os.Getpagesize())
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
