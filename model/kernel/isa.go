package kernel

import (
	"os"
	"slices"
)

// isa is an instruction set, in rising order.
type isa int

const (
	isaGeneric isa = iota
	isaNEON        // of arm64
	isaAVX2
	isaMADD // products of whole numbers of 16 bits; all else as AVX2
	isaAVX512
	isaVNNI  // products of whole numbers of 16 bits; gates in Step as precise; all else as AVX-512
	isaAMX24 // products on matrix tiles, of numbers in three parts of 8 bits; all else as AVX-512
	isaAMX   // of two parts; gates in Step as the tiles are
	isaAMX8  // of one, a bfloat16; by name only
)

var isaNames = [...]string{isaGeneric: "generic", isaNEON: "neon", isaAVX2: "avx2", isaMADD: "madd", isaAVX512: "avx512", isaVNNI: "vnni", isaAMX24: "amx24", isaAMX: "amx", isaAMX8: "amx8"}

// active is read by every call and changes only in SwitchISA.
var active = choose(os.Getenv("LINNET_ISA"))

// choose is the best supported instruction set that is not above the one named;
// an empty or unknown name means the best but amx8: nothing can
// be told yet, and a worker has nobody to tell.
func choose(name string) isa {
	limit := isaAMX
	for i, n := range isaNames {
		if n == name {
			limit = isa(i)
		}
	}
	for !supported(limit) {
		limit--
	}
	return limit
}

// ISA is the name of the instruction set in use: generic, neon, avx2,
// madd, avx512, vnni, amx24, amx or amx8.
func ISA() string { return isaNames[active] }

// AVX512 reports whether the instruction set in use has AVX-512's vectors.
func AVX512() bool { return active >= isaAVX512 }

// Precision is how products take their operands with the instruction set in
// use: float32, 16 bits of it, bfloat16 or int16.
func Precision() string {
	if active.whole() {
		return "int16"
	}
	return [...]string{"float32", "bfloat16", "float32 in 16 bits", "float32"}[active.parts()]
}

// Names are the names there are, whatever the machine, slowest first.
func Names() []string { return slices.Clone(isaNames[:]) }

// ISAs are the names of those that this machine and build have, slowest first.
func ISAs() []string {
	var names []string
	for i, n := range isaNames {
		if supported(isa(i)) {
			names = append(names, n)
		}
	}
	return names
}

// SwitchISA is for tests: it turns to the instruction set of the given name and
// returns what turns back, or false where the machine or build does not have
// it. No other call may run meanwhile. A Packed keeps the instruction set that
// it was packed for.
func SwitchISA(name string) (restore func(), ok bool) {
	for i, n := range isaNames {
		if n == name && supported(isa(i)) {
			old := active
			active = isa(i)
			return func() { active = old }, true
		}
	}
	return func() {}, false
}

// whole tells that products are of whole numbers.
func (i isa) whole() bool { return i == isaMADD || i == isaVNNI }

// float is the instruction set of all that is computed in float32.
func (i isa) float() isa {
	if i == isaMADD {
		return isaAVX2
	}
	return min(i, isaAVX512)
}

// parts is how many numbers in bfloat16 stand for one, 0 where none do.
func (i isa) parts() int {
	switch i {
	case isaAMX24:
		return 3
	case isaAMX:
		return 2
	case isaAMX8:
		return 1
	}
	return 0
}
