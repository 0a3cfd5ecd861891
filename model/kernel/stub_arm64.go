//go:build !noasm

package kernel

// gemmRxCNEON is
//
//	for i < R, j < C:
//		s = 0
//		for l < k: s += a[i,l]·b[j/16][l,j%16] of t.first
//		the same of t.second; s += t.add[i,j]; t.c[i,j] = s

//go:noescape
func gemm1x8NEON(t *tile)

//go:noescape
func gemm2x8NEON(t *tile)

//go:noescape
func gemm3x8NEON(t *tile)

//go:noescape
func gemm4x8NEON(t *tile)

//go:noescape
func gemm5x8NEON(t *tile)

//go:noescape
func gemm6x8NEON(t *tile)

//go:noescape
func gemm1x16NEON(t *tile)

//go:noescape
func gemm2x16NEON(t *tile)

//go:noescape
func gemm3x16NEON(t *tile)

//go:noescape
func gemm4x16NEON(t *tile)

//go:noescape
func gemm5x16NEON(t *tile)

//go:noescape
func gemm6x16NEON(t *tile)

//go:noescape
func gemm2x32NEON(t *tile)

//go:noescape
func gemm3x32NEON(t *tile)

//go:noescape
func gemm1x64NEON(t *tile)

// gemmRx16BFMMLAp is gemmRx16NEON of a in two parts and of b in p.

//go:noescape
func gemm2x16BFMMLA1(t *bfmmlaTile)

//go:noescape
func gemm2x16BFMMLA2(t *bfmmlaTile)

//go:noescape
func gemm4x16BFMMLA1(t *bfmmlaTile)

//go:noescape
func gemm4x16BFMMLA2(t *bfmmlaTile)

// splitRowsBFMMLA splits blocks ≥ 1 of 8 numbers of two rows a and b into two parts:
//
//	for 4 of K: dst = the first parts of a's and of b's; dst = the second parts
//
//go:noescape
func splitRowsBFMMLA(blocks uintptr, dst *uint16, a, b *float32)

// gatesNEON is gatesGeneric of one row and n units, n a multiple of 4, gate
// bytes from one gate's pre-activations to the next one's.
//
//go:noescape
func gatesNEON(n uintptr, z *float32, gate uintptr, c, h *float32)

// tanhNEON is tanhGeneric of n numbers, n a multiple of 4.
//
//go:noescape
func tanhNEON(n uintptr, x *float32)

// sumRowsNEON adds n ≥ 1 weighted rows of a table, d bytes apart, to 64 numbers:
//
//	for id of ids: dst += scale·tableScale[id]·table[id·d:][:64]
//
// It returns false at an id from rows on.
//
//go:noescape
func sumRowsNEON(dst *float32, table *int8, d uintptr, tableScale *float32, rows uintptr, ids *uint32, n uintptr, scale float32) (ok bool)
