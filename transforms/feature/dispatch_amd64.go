//go:build !noasm

package feature

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/linnet-ml/linnet/model/kernel"
	"golang.org/x/sys/cpu"
)

// vectors reports whether lines are taken apart and hashed with AVX-512 or with
// AVX2.
func vectors() bool { return kernel.AVX2() && hasVectors }

// avx512 reports which of the two: AVX-512, with the parts of it that processors have
// since Ice Lake and Zen 4. It means nothing where vectors is false.
func avx512() bool { return kernel.AVX512() && hasVBMI2 }

var (
	hasVBMI2 = cpu.X86.HasAVX512VBMI2
	// Where a gather takes longer than loads, and VPMULLD no longer than VPMULUDQ.
	isZen = zen(signature())
	// All that have AVX2 have the others, but where one is emulated.
	hasBits    = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT
	hasVectors = hasBits && !slowPEXT(signature())
)

// slowPEXT reports whether PEXT takes up to hundreds of cycles: on Zen 1 and 2, and on
// Hygon's of Zen 1. No other vendor has processors of these families, or of zen's.
func slowPEXT(signature uint32) bool {
	family := familyOf(signature)
	return family == 0x17 || family == 0x18
}

// zen reports whether it is a Zen 3 or newer.
func zen(signature uint32) bool {
	family := familyOf(signature)
	return family == 0x19 || family == 0x1a
}

func familyOf(signature uint32) uint32 { return signature>>8&0xf + signature>>20&0xff }

// What the assembly takes as given.
var (
	_ = [1]int{}[unsafe.Offsetof(tokens{}.at)-8]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.letter)-8-4*4*(512+64)]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.lo)-unsafe.Offsetof(tokens{}.letter)-7*8*9-8]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.hi)-unsafe.Offsetof(tokens{}.lo)-8*(512+64)]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.several)-unsafe.Offsetof(tokens{}.lo)-3*8*(512+64)]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.shapes)-unsafe.Offsetof(tokens{}.several)-(3+7)*8*9]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.firsts)-unsafe.Offsetof(tokens{}.shapes)-4*16]
	_ = [1]int{}[unsafe.Sizeof(masks{})-40]
	_ = [1]int{}[unsafe.Offsetof(counts{}.signs)-7*8]
	_ = [1]int{}[unsafe.Offsetof(masks{}.cont)-32]
	_ = [1]int{}[maxHead-64]
	_ = [9]int{}[shapedTokens]
)

func (l *line) classifyVector(raw []byte) (wide bool) {
	n := len(raw)
	switch {
	case n == 0:
		return false
	case avx512():
		return classifyAVX512(&raw[0], uintptr(n), &l.low[0], &l.masks[0].letter) != 0
	case (n+63)&^63 <= cap(raw):
		return classifyAVX2(&raw[0], uintptr(n), &l.low[0], &l.masks[0].letter) != 0
	}
	// Less than 64 bytes are left to read, which may be the last ones of memory.
	whole := n &^ 63
	var last [64]byte
	copy(last[:], raw[whole:])
	if whole > 0 {
		wide = classifyAVX2(&raw[0], uintptr(whole), &l.low[0], &l.masks[0].letter) != 0
	}
	return classifyAVX2(&last[0], uintptr(n-whole), &l.low[whole], &l.masks[whole>>6].letter) != 0 || wide
}

func (l *line) splitVector() {
	if avx512() {
		l.tokens.n = int(splitAVX512(&l.masks[0].letter, uintptr(l.from), uintptr(l.end), &l.tokens.n))
	} else {
		l.tokens.n = int(splitAVX2(&l.masks[0].letter, uintptr(l.from), uintptr(l.end), &l.tokens.n))
	}
}

// lookVector reports whether a token has more than 16 bytes.
func (l *line) lookVector() bool {
	switch {
	case avx512() && isZen:
		return lookAVX512Zen(&l.low[0], &l.tokens.n, uintptr(l.tokens.n), &abbreviations[0]) != 0
	case avx512():
		return lookAVX512(&l.low[0], &l.tokens.n, uintptr(l.tokens.n), &abbreviations[0]) != 0
	}
	return lookAVX2(&l.low[0], &l.tokens.n, uintptr(l.tokens.n), &abbreviations[0]) != 0
}

func (l *line) countVector() {
	countBMI2(&l.masks[0].letter, uintptr(l.from), uintptr(l.headEnd), &l.tokens.n, uintptr(l.tokens.n), &l.letters)
}

// sumVector gives words room for what is written eight keys at a time.
func sumVector(words []uint64, norm uint64, keys *[64]uint64, which, parted uint64, n int, small uint64) ([]uint64, uint64) {
	end := len(words)
	words = slices.Grow(words, 64+8)[:end+bits.OnesCount64(small)]
	dst := &words[:end+1][end]
	if avx512() {
		return words, norm + sumAVX512(&keys[0], &factors[n], which, parted, dst, small)
	}
	return words, norm + sumAVX2(&keys[0], &factors[n], which, parted, dst, small)
}

// hashVector may write 19 hashes behind the last one: behind the words 19, behind the
// pairs 15, behind the affixes 4, all of which maxIDs has room for.
func (l *line) hashVector(out []uint32, wordEnd, pairEnd int) (affixEnd int) {
	t := &l.tokens
	switch {
	case avx512() && isZen:
		return pairEnd + int(hashTokensAVX512Zen(&l.low[0], &t.n, uintptr(t.n), &out[0], &out[wordEnd], &out[pairEnd]))
	case avx512():
		return pairEnd + int(hashTokensAVX512(&l.low[0], &t.n, uintptr(t.n), &out[0], &out[wordEnd], &out[pairEnd]))
	}
	return pairEnd + int(hashTokensAVX2(&l.low[0], &t.n, uintptr(t.n), &out[0], &out[wordEnd], &out[pairEnd]))
}

func (l *line) edgesVector(out []uint32) {
	edgesAVX2(&l.low[0], &l.tokens.n, uintptr(l.tokens.n), &out[0])
}

func fmix32Vector(hashes []uint32, mask uint32) {
	switch {
	case avx512():
		fmix32AVX512(&hashes[0], uintptr(len(hashes)), mask)
	case len(hashes) >= 8:
		fmix32AVX2(&hashes[0], uintptr(len(hashes)), mask)
	default:
		for i, h := range hashes {
			hashes[i] = fmix32(h) & mask
		}
	}
}
