package kernel

import "os"

// isa is an instruction set, in rising order.
type isa int

const (
	isaGeneric isa = iota
	isaAVX2
	isaAVX512
	isaAMX // products in bfloat16 on matrix tiles, all else as AVX-512; by name only
)

var isaNames = [...]string{isaGeneric: "generic", isaAVX2: "avx2", isaAVX512: "avx512", isaAMX: "amx"}

// active is read by every call and changes only in SwitchISA.
var active = choose(os.Getenv("LINNET_ISA"))

// choose is the best supported instruction set that is not above the one named;
// an empty or unknown name means the best that computes in float32.
func choose(name string) isa {
	limit := isaAVX512
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

// ISA is the name of the instruction set in use: generic, avx2, avx512 or amx.
func ISA() string { return isaNames[active] }

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
