//go:build !noasm && !linux && !darwin

package kernel

// bfmmlaSupported is not known for this operating system.
func bfmmlaSupported() bool { return false }
