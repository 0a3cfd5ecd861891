//go:build !noasm

package kernel

import (
	"math"
	"sync"
)

// Products of whole numbers of 16 bits (AVX-512's VNNI): two of them a lane and
// instruction, where a multiply-add of float32 does one. A row of a is rounded to
// multiples of its own unit, a column of b to multiples of its own, and what is
// summed is exact, in 32 bits that cannot overflow.

// wholeLeast is the smallest number that a row's unit is made of, such that one
// divided by it stays finite.
const wholeLeast = 1e-30

// wholeTile is one call of the assembly: a row of tiles, the distances in bytes.
// An alias because the assembly's declaration spells the type out.
type wholeTile = struct {
	c       *float32
	ldc     uintptr
	add     *float32
	ldadd   uintptr
	count   uintptr // of tiles
	pairs   uintptr // of numbers in K
	a       *int16
	lda     uintptr
	b       *int16
	panel   uintptr
	rowUnit *float32
	//lint:ignore U1000 the assembly reads it
	columnUnit *float32
}

// depths is in how many parts K is summed, at most, and depth how much of it each
// takes, an even number.
func (p *Packed) depths() int { return max(1, (p.K+wholeDepth-1)/wholeDepth) }

func (p *Packed) depth() int { return roundUp((p.K+p.depths()-1)/p.depths(), 2) }

// wholeIndex is where (k, j) stands: panels of 32 columns; in each, rows of pairs
// of K, a pair side by side.
func wholeIndex(k, j, K int) int {
	return (j/32*roundUp(K, 2)+k&^1)*32 + j%32*2 + k&1
}

// repackVNNI rounds a matrix with rows ldb apart. In each depth of K a column's
// unit is such that its numbers' magnitudes sum to at most (2³¹−1)/wholeMost.
func repackVNNI(p *Packed, b []float32, ldb int) {
	n, depth := roundUp(p.N, 32), p.depth()
	if size := n * roundUp(p.K, 2); len(p.whole) < size {
		p.whole, p.unit = make([]int16, size), make([]float32, n*p.depths())
	}
	for d, first := 0, 0; first < p.K; d, first = d+1, first+depth {
		end := min(p.K, first+depth)
		for j := range p.N {
			var sum, most float64
			for k := first; k < end; k++ {
				v := math.Abs(float64(b[k*ldb+j]))
				sum, most = sum+v, max(most, v)
			}
			if sum == 0 || !(sum <= math.MaxFloat64) {
				p.unit[d*n+j] = float32(sum) * 0 // 0, of an infinity or a NaN a NaN, which count alone
				continue
			}
			// Rounding adds a half to each.
			scale := min((math.MaxInt32/wholeMost-float64(depth)/2)/sum, math.MaxInt16/most)
			p.unit[d*n+j] = float32(1 / scale)
			for k := first; k < end; k++ {
				p.whole[wholeIndex(k, j, p.K)] = int16(math.RoundToEven(float64(b[k*ldb+j]) * scale))
			}
		}
	}
}

// wholeBuffer holds rows of a in whole numbers and their units.
type wholeBuffer struct {
	a    []int16
	unit [chunkRows]float32
}

var wholeBuffers = sync.Pool{New: func() any { return new(wholeBuffer) }}

// gemmVNNI is gemmGeneric with operands rounded to whole numbers; add is added
// first.
func gemmVNNI(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	if add == nil {
		add, ldadd = c, ldc
		for i := range m {
			clear(c[i*ldc:][:x.b.N])
		}
	}
	buf := wholeBuffers.Get().(*wholeBuffer)
	for row := 0; row < m; row += chunkRows {
		rows := min(chunkRows, m-row)
		buf.product(x, row, rows, add, ldadd, c, ldc)
		if y.b != nil {
			buf.product(y, row, rows, c, ldc, c, ldc)
		}
	}
	wholeBuffers.Put(buf)
}

// product computes c = x + add of some rows.
func (w *wholeBuffer) product(x term, row, rows int, add []float32, ldadd int, c []float32, ldc int) {
	b := x.b
	lda := roundUp(b.K, 16)
	if len(w.a) < rows*lda {
		w.a = make([]int16, chunkRows*lda)
	}
	quantiseAVX512(uintptr(rows), &w.a[0], uintptr(2*lda), &w.unit[0], &x.a[row*x.lda], uintptr(4*x.lda), uintptr(b.K), wholeMost, wholeLeast)
	n, depth := roundUp(b.N, 32), b.depth()
	for d, k := 0, 0; k < b.K; d, k = d+1, k+depth {
		t := wholeTile{
			ldc: uintptr(4 * ldc), ldadd: uintptr(4 * ldadd),
			pairs: uintptr(min(depth, b.K-k)+1) / 2,
			lda:   uintptr(2 * lda), panel: uintptr(64 * roundUp(b.K, 2)),
		}
		tiles := (rows + maxTileRows - 1) / maxTileRows
		for i, left := 0, tiles; left > 0; left-- {
			size := (rows - i) / left
			t.a, t.rowUnit = &w.a[i*lda+k], &w.unit[i]
			for j := 0; j < b.N; {
				width := 32
				if wide := 32 * manyPanels(size); j+wide <= b.N {
					width = wide
				}
				count := (b.N - j) / width
				t.b, t.columnUnit = &b.whole[wholeIndex(k, j, b.K)], &b.unit[d*n+j]
				if count == 0 {
					w.last(t, size, row+i, j, b.N, add, ldadd, c, ldc)
					break
				}
				t.count = uintptr(count)
				t.c, t.add = &c[(row+i)*ldc+j], &add[(row+i)*ldadd+j]
				runTileVNNI(&t, size, width)
				j += count * width
			}
			i += size
		}
		add, ldadd = c, ldc
	}
}

// last is the columns from j on, which do not fill a panel.
func (w *wholeBuffer) last(t wholeTile, rows, row, j, n int, add []float32, ldadd int, c []float32, ldc int) {
	var out [maxTileRows * maxTileColumns]float32
	for i := range rows {
		copy(out[i*32:], add[(row+i)*ldadd+j:][:n-j])
	}
	t.c, t.ldc, t.add, t.ldadd, t.count = &out[0], 4*32, &out[0], 4*32, 1
	runTileVNNI(&t, rows, 32)
	for i := range rows {
		copy(c[(row+i)*ldc+j:][:n-j], out[i*32:])
	}
}

// stepVNNI is Step, as many rows at a time as a tile has, whose pre-activations
// stay in the nearest cache. It returns false where it cannot.
func stepVNNI(m int, x, y term, bias, z, c, h []float32, hidden int) bool {
	if hidden%16 != 0 {
		return false
	}
	tiles := (m + maxTileRows - 1) / maxTileRows
	for row, left := 0, tiles; left > 0; left-- {
		rows := (m - row) / left
		x, y := x, y
		x.a = x.a[row*x.lda:]
		if y.b != nil {
			y.a = y.a[row*y.lda:]
		}
		gemmVNNI(rows, x, y, bias, 0, z, 4*hidden)
		gatesCubic(uintptr(rows), uintptr(hidden/16), &z[0], uintptr(16*hidden), uintptr(4*hidden), &c[row*hidden], &h[row*hidden], uintptr(4*hidden))
		row += rows
	}
	return true
}

// runTileVNNI calls the assembly of a tile's size.
func runTileVNNI(t *wholeTile, rows, cols int) {
	switch cols {
	case 64:
		if rows == 2 {
			gemm2x64VNNI(t)
		} else {
			gemm3x64VNNI(t)
		}
		return
	case 128:
		gemm1x128VNNI(t)
		return
	}
	switch rows {
	case 1:
		gemm1x32VNNI(t)
	case 2:
		gemm2x32VNNI(t)
	case 3:
		gemm3x32VNNI(t)
	case 4:
		gemm4x32VNNI(t)
	case 5:
		gemm5x32VNNI(t)
	case 6:
		gemm6x32VNNI(t)
	case 7:
		gemm7x32VNNI(t)
	case 8:
		gemm8x32VNNI(t)
	case 9:
		gemm9x32VNNI(t)
	case 10:
		gemm10x32VNNI(t)
	case 11:
		gemm11x32VNNI(t)
	case 12:
		gemm12x32VNNI(t)
	case 13:
		gemm13x32VNNI(t)
	case 14:
		gemm14x32VNNI(t)
	}
}
