//go:build !noasm

package kernel

import (
	"math"
	"sync"
)

// Products of whole numbers of 16 bits: one instruction multiplies two a lane where a
// multiply-add of float32 does one (AVX-512's VNNI), or two instructions do that take
// less time than two multiply-adds (AVX2). A row of a is rounded to multiples of its
// own unit, a column of b to multiples of its own, and what is summed is exact, in 32
// bits that cannot overflow: both give the same bits.

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

// wholeIndex is where (k, j) stands: panels of columns; in each, rows of pairs of
// K, a pair side by side.
func (p *Packed) wholeIndex(k, j int) int {
	return (j/p.width*roundUp(p.K, 2)+k&^1)*p.width + j%p.width*2 + k&1
}

// repackWhole rounds a matrix with rows ldb apart. In each depth of K a column's
// unit is such that its numbers' magnitudes sum to at most (2³¹−1)/wholeMost.
func repackWhole(p *Packed, b []float32, ldb int) {
	n, depth := roundUp(p.N, p.width), p.depth()
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
				p.whole[p.wholeIndex(k, j)] = int16(math.RoundToEven(float64(b[k*ldb+j]) * scale))
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

// gemmWhole is gemmGeneric with operands rounded to whole numbers; add is added
// first.
func gemmWhole(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
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
	quantise(b.isa, rows, w.a, lda, w.unit[:], x.a[row*x.lda:], x.lda, b.K)
	n, depth := roundUp(b.N, b.width), b.depth()
	for d, k := 0, 0; k < b.K; d, k = d+1, k+depth {
		t := wholeTile{
			ldc: uintptr(4 * ldc), ldadd: uintptr(4 * ldadd),
			pairs: uintptr(min(depth, b.K-k)+1) / 2,
			lda:   uintptr(2 * lda), panel: uintptr(2 * b.width * roundUp(b.K, 2)),
		}
		tiles := (rows + b.isa.tileRows() - 1) / b.isa.tileRows()
		for i, left := 0, tiles; left > 0; left-- {
			size := (rows - i) / left
			t.a, t.rowUnit = &w.a[i*lda+k], &w.unit[i]
			for j := 0; j < b.N; {
				width := b.width
				if wide := b.width * manyPanels(size); j+wide <= b.N {
					width = wide
				}
				count := (b.N - j) / width
				t.b, t.columnUnit = &b.whole[b.wholeIndex(k, j)], &b.unit[d*n+j]
				if count == 0 {
					last(t, b, size, row+i, j, add, ldadd, c, ldc)
					break
				}
				t.count = uintptr(count)
				t.c, t.add = &c[(row+i)*ldc+j], &add[(row+i)*ldadd+j]
				runTileWhole(&t, b.isa, size, width)
				j += count * width
			}
			i += size
		}
		add, ldadd = c, ldc
	}
}

// last is product of the columns from j on, which do not fill a panel.
func last(t wholeTile, b *Packed, rows, row, j int, add []float32, ldadd int, c []float32, ldc int) {
	var out [maxTileRows * maxTileColumns]float32
	w := b.width
	for i := range rows {
		copy(out[i*w:], add[(row+i)*ldadd+j:][:b.N-j])
	}
	t.c, t.ldc, t.add, t.ldadd, t.count = &out[0], uintptr(4*w), &out[0], uintptr(4*w), 1
	runTileWhole(&t, b.isa, rows, w)
	for i := range rows {
		copy(c[(row+i)*ldc+j:][:b.N-j], out[i*w:])
	}
}

// quantise rounds rows of src to whole numbers of their units.
func quantise(i isa, rows int, dst []int16, ldd int, unit, src []float32, lds, k int) {
	call := quantiseAVX2
	if i == isaVNNI {
		call = quantiseAVX512
	}
	call(uintptr(rows), &dst[0], uintptr(2*ldd), &unit[0], &src[0], uintptr(4*lds), uintptr(k), wholeMost, wholeLeast)
}

// stepWhole is Step, as many rows at a time as a tile has, whose pre-activations
// stay in the nearest cache. It returns false where it cannot.
func stepWhole(m int, x, y term, bias, z, c, h []float32, hidden int) bool {
	cubic := x.b.isa == isaVNNI
	if cubic && hidden%16 != 0 {
		return false
	}
	most := x.b.isa.tileRows()
	tiles := (m + most - 1) / most
	for row, left := 0, tiles; left > 0; left-- {
		rows := (m - row) / left
		x, y := x, y
		x.a = x.a[row*x.lda:]
		if y.b != nil {
			y.a = y.a[row*y.lda:]
		}
		gemmWhole(rows, x, y, bias, 0, z, 4*hidden)
		if cubic {
			gatesCubic(uintptr(rows), uintptr(hidden/16), &z[0], uintptr(16*hidden), uintptr(4*hidden), &c[row*hidden], &h[row*hidden], uintptr(4*hidden))
		} else {
			gates(rows, z, 4*hidden, c[row*hidden:], hidden, h[row*hidden:], hidden, hidden)
		}
		row += rows
	}
	return true
}

// runTileWhole calls the assembly of a tile's size.
func runTileWhole(t *wholeTile, i isa, rows, cols int) {
	if i == isaVNNI {
		switch cols {
		case 32:
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
		case 64:
			if rows == 2 {
				gemm2x64VNNI(t)
			} else {
				gemm3x64VNNI(t)
			}
		case 128:
			gemm1x128VNNI(t)
		}
		return
	}
	switch cols {
	case 16:
		switch rows {
		case 1:
			gemm1x16MADD(t)
		case 2:
			gemm2x16MADD(t)
		case 3:
			gemm3x16MADD(t)
		case 4:
			gemm4x16MADD(t)
		case 5:
			gemm5x16MADD(t)
		case 6:
			gemm6x16MADD(t)
		}
	case 32:
		if rows == 2 {
			gemm2x32MADD(t)
		} else {
			gemm3x32MADD(t)
		}
	case 64:
		gemm1x64MADD(t)
	}
}
