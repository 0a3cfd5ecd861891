//go:build !noasm

package kernel

import (
	"sync"

	"golang.org/x/sys/unix"
)

// bfmmlaSupported asks macOS once whether the processor has bfloat16's instructions.
var bfmmlaSupported = sync.OnceValue(func() bool {
	has, err := unix.SysctlUint32("hw.optional.arm.FEAT_BF16")
	return err == nil && has != 0
})
