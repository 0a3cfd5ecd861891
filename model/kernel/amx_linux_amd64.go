//go:build !noasm

package kernel

import "golang.org/x/sys/unix"

// requestTiles asks Linux for permission to use the tiles, for this process:
// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
func requestTiles() bool {
	const reqXCompPerm, tileData = 0x1023, 18
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, reqXCompPerm, tileData, 0)
	return errno == 0
}
