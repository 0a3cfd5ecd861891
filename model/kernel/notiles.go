//go:build !amd64 || noasm

package kernel

// There are no tiles here, and no products of whole numbers.
func repackAMX(*Packed, []float32, int, int) {}

func repackWhole(*Packed, []float32, int) {}

func step(int, term, term, []float32, []float32, []float32, []float32, int) bool { return false }
