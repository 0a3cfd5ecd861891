//go:build !linux || !(amd64 || arm64)

package cli

// hugePages is for Linux.
func hugePages(int) {}
