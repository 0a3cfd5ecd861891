package kernel

import (
	"os"
	"runtime"
	"slices"
)

// isa is an instruction set, in rising order: the code compares them.
type isa int

const (
	isaGeneric isa = iota
	isaNEON        // of arm64
	isaBFMMLA      // products of two parts in bfloat16; all else as NEON
	isaAVX2
	isaMADD    // products of 16-bit integers; gates of Joined as precise; all else as AVX2
	isaAVXVNNI // the same, by one instruction
	isaAVX512
	isaVNNI  // products of 16-bit integers; gates of Joined as precise; all else as AVX-512
	isaVNNI8 // of 8 bits in steps; by name only
	isaAMX24 // products on matrix tiles, of numbers in three parts in bfloat16; all else as AVX-512
	isaAMX   // of two parts; gates in Step as the tiles are
	isaAMX8  // of one; by name only
)

// traits of the instruction sets are what the methods of their names tell.
var traits = [...]struct {
	name           string
	float          isa
	perLane, parts int
}{
	isaGeneric: {"generic", isaGeneric, 0, 0},
	isaNEON:    {"neon", isaNEON, 0, 0},
	isaBFMMLA:  {"bfmmla", isaNEON, 0, 2},
	isaAVX2:    {"avx2", isaAVX2, 0, 0},
	isaMADD:    {"madd", isaAVX2, 2, 0},
	isaAVXVNNI: {"avxvnni", isaAVX2, 2, 0},
	isaAVX512:  {"avx512", isaAVX512, 0, 0},
	isaVNNI:    {"vnni", isaAVX512, 2, 0},
	isaVNNI8:   {"vnni8", isaAVX512, 4, 0},
	isaAMX24:   {"amx24", isaAVX512, 0, 3},
	isaAMX:     {"amx", isaAVX512, 0, 2},
	isaAMX8:    {"amx8", isaAVX512, 0, 1},
}

var isaNames = func() (names [len(traits)]string) {
	for i, t := range traits {
		names[i] = t.name
	}
	return names
}()

// active is read by every call and changes only in SwitchISA.
var active = choose(os.Getenv("LINNET_ISA"))

// choose is the best supported instruction set that is not above the one named,
// or, where the name is empty or unknown, the best: at start there is nobody to
// tell. Those for which onlyByName holds are chosen by their own names alone.
func choose(name string) isa {
	limit := isa(len(isaNames) - 1)
	for i, n := range isaNames {
		if n == name {
			limit = isa(i)
		}
	}
	for !supported(limit) || limit.onlyByName() && isaNames[limit] != name {
		limit--
	}
	return limit
}

// onlyByName reports whether i is taken only where LINNET_ISA names it. Two parts by
// BFMMLA are faster on servers' processors and slower on small cores of phones; Apple's
// were not measured.
func (i isa) onlyByName() bool {
	return i == isaVNNI8 || i == isaAMX8 || i == isaBFMMLA && runtime.GOOS != "linux"
}

// ISA is the name of the instruction set in use, one of Names.
func ISA() string { return isaNames[active] }

// AVX512 reports whether the instruction set in use has AVX-512's vectors.
func AVX512() bool { return active >= isaAVX512 }

// AVX2 reports whether the instruction set in use has AVX2's vectors.
func AVX2() bool { return active >= isaAVX2 }

// Precision is how products take their operands with the instruction set in
// use: float32, 16 bits of it, bfloat16, int16 or int8.
func Precision() string {
	switch active.perLane() {
	case 2:
		return "int16"
	case 4:
		return "int8"
	}
	return [...]string{"float32", "bfloat16", "float32 in 16 bits", "float32"}[active.parts()]
}

// Names are the names there are, whatever the machine, in rising order.
func Names() []string { return slices.Clone(isaNames[:]) }

// ISAs are the names of those that this machine and build have, in rising order.
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

// integer reports whether products are of integers.
func (i isa) integer() bool { return i.perLane() > 0 }

// perLane is how many integers a lane of 32 bits holds: two of 16 bits, four of 8,
// or 0 where products are not of integers.
func (i isa) perLane() int { return traits[i].perLane }

// qmax is the largest quantised magnitude of a row in products of integers. In 16
// bits it leaves (2³¹−1)/qmax for the magnitudes of a column to sum to, which gives a
// column's numbers about as many bits.
func (i isa) qmax() int32 {
	if i.perLane() == 4 {
		return 1<<7 - 1
	}
	return 1<<13 - 1
}

// depth is the most of K that is summed in integers before the sum becomes float32: in
// 16 bits what keeps a column's unit small, in 8 bits what cannot overflow.
func (i isa) depth() int {
	if i.perLane() == 4 {
		return 1 << 15
	}
	return 192
}

// float is the instruction set of all that is computed in float32.
func (i isa) float() isa { return traits[i].float }

// parts is how many numbers in bfloat16 stand for one, 0 where none do.
func (i isa) parts() int { return traits[i].parts }
