package cli

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

var getProcessMemoryInfo = windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")

// PeakMemory is the most memory that this process had, in bytes; 0 where the
// system does not tell.
func PeakMemory() int64 {
	var counters struct { // PROCESS_MEMORY_COUNTERS
		size, faults           uint32
		peak                   uintptr
		workingSet             uintptr
		quotas                 [4]uintptr
		pagefile, pagefilePeak uintptr
	}
	counters.size = uint32(unsafe.Sizeof(counters))
	ok, _, _ := getProcessMemoryInfo.Call(uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&counters)), uintptr(counters.size))
	if ok == 0 {
		return 0
	}
	return int64(counters.peak)
}

// CPUTime is the time that this process's threads computed, all cores together.
func CPUTime() time.Duration {
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user) != nil {
		return 0
	}
	ticks := func(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) }
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}
