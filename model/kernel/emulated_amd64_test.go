//go:build !noasm

package kernel

import (
	"os"

	"golang.org/x/sys/cpu"
)

// LINNET_EMULATED says that what the processor lacks is done for it, by
// scripts/check.d/emulate.c.
func init() {
	if os.Getenv("LINNET_EMULATED") != "" {
		amxSupported = hasAVX512
		cpu.X86.HasAVXVNNI = true
	}
}
