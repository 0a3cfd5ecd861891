//go:build !amd64 || noasm

package kernel

// There are no tiles here.
func aligned64(int) []uint16 { return nil }

func amxSize(int, int) int { return 0 }

func repackAMX(*Packed, []float32, int, int) {}

func step(int, term, term, []float32, []float32, []float32, []float32, int) bool { return false }
