//go:build !noasm

package kernel

import (
	"sync"

	"golang.org/x/sys/unix"
)

// bfmmlaSupported asks Linux once whether the processor has bfloat16's instructions,
// which golang.org/x/sys/cpu does not tell.
var bfmmlaSupported = sync.OnceValue(func() bool {
	const hwcap2, bf16 = 26, 1 << 14 // AT_HWCAP2, HWCAP2_BF16
	auxv, _ := unix.Auxv()
	for _, entry := range auxv {
		if entry[0] == hwcap2 {
			return entry[1]&bf16 != 0
		}
	}
	return false
})
