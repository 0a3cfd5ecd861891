//go:build (amd64 || arm64) && !noasm

package kernel

import (
	"math"
	"sync"
	"unsafe"
)

// repackParts is Repack of numbers in so many parts.
func repackParts(p *Packed, b []float32, ldb, parts int) {
	p.parts, p.bf16 = parts, grow(p.bf16, partSize(p.K, p.N)*parts)
	clear(p.bf16)
	for j := range p.N {
		for k := range p.K {
			at, rest := partIndex(k, j, p.K, parts), b[k*ldb+j]
			for i := range parts {
				part := bfloat16(rest)
				p.bf16[at+partStep*i] = part
				rest -= math.Float32frombits(uint32(part) << 16) // which float32 holds; of an infinity, a NaN
			}
		}
	}
}

// partBuffer holds rows of two products in parts.
type partBuffer struct{ x, y []uint16 }

var partBuffers = sync.Pool{New: func() any { return new(partBuffer) }}

// grow returns s with room for n numbers.
func grow(s []uint16, n int) []uint16 {
	if len(s) < n {
		return aligned64(n)
	}
	return s
}

// aligned64 makes a slice that begins at a multiple of 64 bytes, as tiles like
// it.
func aligned64(n int) []uint16 {
	s := make([]uint16, n+31)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(s))) & 63 / 2)
	return s[skip : skip+n : skip+n]
}
