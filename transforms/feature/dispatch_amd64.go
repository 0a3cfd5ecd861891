//go:build !noasm

package feature

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/linnet-ml/linnet/model/kernel"
	"golang.org/x/sys/cpu"
)

// vectors reports whether lines are taken apart and hashed with AVX-512: with
// the parts that processors have since Ice Lake and Zen 4.
func vectors() bool { return kernel.AVX512() && hasVBMI2 }

var hasVBMI2 = cpu.X86.HasAVX512VBMI2

// What the assembly takes as given.
var (
	_ = [1]int{}[unsafe.Offsetof(tokens{}.at)-8]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.letter)-8-4*4*(512+64)]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.lo)-unsafe.Offsetof(tokens{}.letter)-7*8*9-8]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.hi)-unsafe.Offsetof(tokens{}.lo)-8*(512+64)]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.several)-unsafe.Offsetof(tokens{}.lo)-3*8*(512+64)]
	_ = [1]int{}[unsafe.Offsetof(tokens{}.shapes)-unsafe.Offsetof(tokens{}.several)-(3+7)*8*9]
	_ = [1]int{}[unsafe.Sizeof(masks{})-40]
	_ = [1]int{}[unsafe.Offsetof(masks{}.cont)-32]
)

func (l *line) classifyVector(raw []byte) (wide bool) {
	if len(raw) == 0 {
		return false
	}
	return classifyAVX512(&raw[0], uintptr(len(raw)), &l.low[0], &l.masks[0].letter) != 0
}

func (l *line) splitVector() {
	l.tokens.n = int(splitAVX512(&l.masks[0].letter, uintptr(l.from), uintptr(l.end), &l.tokens.n))
}

// lookVector reports whether a token has more than 16 bytes.
func (l *line) lookVector() bool {
	return lookAVX512(&l.low[0], &l.tokens.n, uintptr(l.tokens.n), &abbreviations[0]) != 0
}

// sumVector may write 64 keys and more behind words.
func sumVector(words []uint64, norm uint64, keys *[64]uint64, which, parted uint64, n int, small uint64) ([]uint64, uint64) {
	end := len(words)
	words = slices.Grow(words, 64+8)[:end+bits.OnesCount64(small)]
	norm += sumAVX512(&keys[0], &factors[n], which, parted, &words[:end+1][end], small)
	return words, norm
}

func (l *line) hashVector(out []uint32, wordEnd, pairEnd int) (affixEnd int) {
	n := hashTokensAVX512(&l.low[0], &l.tokens.n, uintptr(l.tokens.n), &out[0], &out[wordEnd], &out[pairEnd])
	return pairEnd + int(n)
}

func finishVector(hashes []uint32, mask uint32) {
	finishAVX512(&hashes[0], uintptr(len(hashes)), mask)
}
