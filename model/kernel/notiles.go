//go:build !amd64 || noasm

package kernel

// There are no products of whole numbers here, and no steps of their own.
func repackWhole(*Packed, []float32, int) {}

func step(int, term, term, []float32, []float32, []float32, []float32, int) bool { return false }
