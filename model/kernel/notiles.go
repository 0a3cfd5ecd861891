//go:build !amd64 || noasm

package kernel

// What x86 alone has: integers, Joined, and steps that are more than products and gates.

func repackInt(*Packed, []float32, int) {}

func round(isa, int, []uint32, int, []float32, int, int) {}

func (j *Joined) step(int, []uint32, bool, []float32, []float32, []float32, []float32, []uint32) {}

func (j *Joined) output(int, []uint32, *Packed, []float32, int) {}

func step(int, term, term, []float32, []float32, []float32, []float32, int) bool { return false }
