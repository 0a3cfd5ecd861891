//go:build !amd64 || noasm

package kernel

// There are no products of whole numbers here, and no steps of their own.
func repackWhole(*Packed, []float32, int) {}

// Nor is there a Joined.
func round(isa, int, []uint32, int, []float32, int, int) {}

func (j *Joined) step(int, []uint32, bool, []float32, []float32, []float32, []float32, []uint32) {}

func step(int, term, term, []float32, []float32, []float32, []float32, int) bool { return false }
