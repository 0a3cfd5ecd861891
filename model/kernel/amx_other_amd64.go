//go:build !noasm && !linux

package kernel

// requestTiles is not known for this operating system.
func requestTiles() bool { return false }
