//go:build amd64 || arm64

package cli

import (
	"bytes"
	"math"
	"os"
	"runtime/debug"
	"syscall"
)

// hugePages has Linux give the first bytes of Go's heap huge pages, where it gives them
// to those who ask (transparent_hugepage/enabled is madvise, as most distributions have
// it): Go does not ask, and pages of 4 KiB take some 3 µs each in a virtual machine.
//
// The heap takes its addresses one behind the other and again and again, so what slices
// were advised stays when they are gone. Only the first piece may have been in use
// before, for which Go would clear all of one large slice.
func hugePages(size int) {
	const unlimited, piece = math.MaxUint64, 4 << 20
	var addresses syscall.Rlimit
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || !bytes.Contains(enabled, []byte("[madvise]")) ||
		syscall.Getrlimit(syscall.RLIMIT_AS, &addresses) != nil || addresses.Cur != unlimited {
		return
	}
	defer debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	pieces := make([][]byte, size/piece)
	for i := range pieces {
		pieces[i] = make([]byte, piece)
		syscall.Madvise(pieces[i], syscall.MADV_HUGEPAGE) // or they stay small
	}
}
