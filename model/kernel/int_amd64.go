//go:build !noasm

package kernel

import (
	"math"
	"sync"
)

// Products of 16-bit integers: one instruction multiplies two a lane where a
// multiply-add of float32 does one (AVX-512's VNNI), or two instructions do that take
// less time than two multiply-adds (AVX2). A row of a is quantised to multiples of its
// own unit (the quantisation scale), or all rows of Joined to multiples of one, a column
// of b to multiples of its own. Sums are exact, in 32 bits that cannot overflow, so both
// ways give the same bits.
//
// Of 8 bits one instruction multiplies four a lane. It takes those of a as unsigned, with
// a zero point of 128; a column's start, −128 times its sum, takes the zero point out
// again.

// minRowMax bounds from below the largest magnitude that a row's unit is computed
// from, so that 1 divided by it stays finite.
const minRowMax = 1e-30

// intTile is one call of the assembly: a row of tiles, the distances in bytes.
// Aliases because the assembly's declaration spells the types out.
type (
	intTile = struct {
		c      *float32
		ldc    uintptr
		add    *float32
		ldadd  uintptr
		panels uintptr
		//lint:ignore U1000 the assembly counts
		done     uintptr
		products *intProduct
	}
	intProduct = struct {
		lanes   uintptr // of numbers in K; 0 behind the last product
		a       *uint32
		lda     uintptr
		b       *uint32
		panel   uintptr
		rowUnit *float32
		//lint:ignore U1000 the assembly reads it
		columnUnit *float32
		//lint:ignore U1000 the assembly of 8 bits reads it
		start *int32
	}
)

// lanes is how many lanes k integers take.
func (i isa) lanes(k int) int {
	if i.perLane() == 4 {
		return (k + 3) / 4
	}
	return (k + 1) / 2
}

// intIndex is the lane that (k, j) stands in, lowest k lowest: panels of columns;
// in each, rows of lanes.
func (p *Packed) intIndex(k, j int) int {
	return (j/p.width*p.isa.lanes(p.K)+k/p.isa.perLane())*p.width + j%p.width
}

// repackInt rounds a matrix with rows ldb apart. In each depth of K a column's
// unit is such that its numbers' magnitudes, of 16 bits, sum to at most
// (2³¹−1)/qmax.
func repackInt(p *Packed, b []float32, ldb int) {
	n, depth, perLane := roundUp(p.N, p.width), p.depth, p.isa.perLane()
	if size := n * p.isa.lanes(p.K); len(p.ints) < size {
		depths := (p.K + depth - 1) / depth
		p.ints, p.unit, p.start = make([]uint32, size), make([]float32, n*depths), make([]int32, n*depths)
	}
	clear(p.ints)
	clear(p.start)
	width := 32 / perLane
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
			scale := math.MaxInt8 / most
			if perLane == 2 { // rounding adds a half to each
				scale = min((float64(math.MaxInt32/p.isa.qmax())-float64(depth)/2)/sum, math.MaxInt16/most)
			}
			p.unit[d*n+j] = float32(1 / scale)
			for k := first; k < end; k++ {
				v := int32(math.RoundToEven(float64(b[k*ldb+j]) * scale))
				p.ints[p.intIndex(k, j)] |= uint32(v) << (32 - width) >> (32 - width - k%perLane*width)
				if perLane == 4 {
					p.start[d*n+j] -= 128 * v
				}
			}
		}
	}
}

// intRows are rows of integers, lda words apart, and their units.
type intRows struct {
	a    []uint32
	lda  int
	unit []float32
}

// intBuffer holds rows in integers, their units, and products for the assembly.
type intBuffer struct {
	a        []uint32
	unit     [chunkRows]float32
	products []intProduct
	zeros    []float32
}

var intBuffers = sync.Pool{New: func() any { return &intBuffer{products: make([]intProduct, 2)} }}

// gemmInt computes c = x + add with operands rounded to integers; add is added
// first and may be c.
func gemmInt(m int, x term, add []float32, ldadd int, c []float32, ldc int) {
	if add == nil {
		add, ldadd = c, ldc
		for i := range m {
			clear(c[i*ldc:][:x.b.N])
		}
	}
	w := intBuffers.Get().(*intBuffer)
	for row := 0; row < m; row += chunkRows {
		rows := min(chunkRows, m-row)
		a := w.quantise(x, row, rows)
		inTiles(rows, x.b.isa, func(i, size int) {
			tile := intRows{a.a[i*a.lda:], a.lda, a.unit[i:]}
			w.multiply(tile, x.b.K, x.b, size, add[(row+i)*ldadd:], ldadd, c[(row+i)*ldc:], ldc)
		})
	}
	intBuffers.Put(w)
}

// inTiles calls f for tiles of about equally many of m rows.
func inTiles(m int, i isa, f func(first, rows int)) {
	most := i.tileRows()
	for first, left := 0, (m+most-1)/most; left > 0; left-- {
		rows := (m - first) / left
		f(first, rows)
		first += rows
	}
}

// quantise rounds rows of x to units of their own.
func (w *intBuffer) quantise(x term, row, rows int) intRows {
	lda := x.b.isa.lanes(x.b.stride())
	if len(w.a) < rows*lda {
		w.a = make([]uint32, chunkRows*lda)
	}
	quantise(x.b.isa, rows, w.a, lda, w.unit[:], x.a[row*x.lda:], x.lda, x.b.K)
	return intRows{w.a, lda, w.unit[:]}
}

// multiply computes c = a·b + add of as many rows as a tile has, and of the first k
// numbers of each.
func (w *intBuffer) multiply(a intRows, k int, b *Packed, rows int, add []float32, ldadd int, c []float32, ldc int) {
	for j := 0; j < b.N; {
		width := b.width
		panels, _ := b.isa.tileSize(rows)
		if j+panels*width > b.N {
			panels = 1
		}
		width *= panels
		w.point(a, k, b, j)
		t := intTile{ldc: uintptr(4 * ldc), ldadd: uintptr(4 * ldadd), products: &w.products[0]}
		count := (b.N - j) / width
		if count == 0 {
			last(t, b, rows, add[j:], ldadd, c[j:], ldc, b.N-j)
			return
		}
		t.c, t.add, t.panels = &c[j], &add[j], uintptr(count*panels)
		runTileInt(&t, b.isa, rows, width)
		j += count * width
	}
}

// point points products, one a depth of K, at a's rows and at column j, where a panel
// begins.
func (w *intBuffer) point(a intRows, k int, b *Packed, j int) {
	lanes, left := b.isa.lanes(b.depth), b.isa.lanes(k)
	at, column := j*b.isa.lanes(b.K), j
	panel := uintptr(4 * b.width * b.isa.lanes(b.K))
	n := 0
	for first := 0; left > 0; first += lanes {
		if n+1 >= len(w.products) {
			w.products = append(w.products, intProduct{})
		}
		p := &w.products[n] // field by field: a struct is made elsewhere and copied
		p.lanes = uintptr(min(lanes, left))
		p.a, p.lda, p.rowUnit = &a.a[first], uintptr(4*a.lda), &a.unit[0]
		p.b, p.panel, p.columnUnit, p.start = &b.ints[at], panel, &b.unit[column], &b.start[column]
		n++
		left -= lanes
		at += lanes * b.width
		column += roundUp(b.N, b.width)
	}
	w.products[n].lanes = 0
}

// last is multiply of columns that do not fill a panel.
func last(t intTile, b *Packed, rows int, add []float32, ldadd int, c []float32, ldc, columns int) {
	var out [maxTileRows * maxTileColumns]float32
	w := b.width
	for i := range rows {
		copy(out[i*w:], add[i*ldadd:][:columns])
	}
	t.c, t.ldc, t.add, t.ldadd, t.panels = &out[0], uintptr(4*w), &out[0], uintptr(4*w), 1
	runTileInt(&t, b.isa, rows, w)
	for i := range rows {
		copy(c[i*ldc:][:columns], out[i*w:])
	}
}

// quantise rounds rows of src to integers of their units.
func quantise(i isa, rows int, dst []uint32, ldd int, unit, src []float32, lds, k int) {
	call := quantiseMADD
	if i == isaVNNI {
		call = quantiseVNNI
	}
	call(uintptr(rows), &dst[0], uintptr(4*ldd), &unit[0], &src[0], uintptr(4*lds), uintptr(k), float32(i.qmax()), minRowMax)
}

// round rounds rows of src, of numbers within ±1, to integers of one unit.
func round(i isa, rows int, dst []uint32, ldd int, src []float32, lds, k int) {
	call := roundMADD
	switch i {
	case isaVNNI:
		call = roundVNNI
	case isaVNNI8:
		call = roundVNNI8
	}
	call(uintptr(rows), &dst[0], uintptr(4*ldd), &src[0], uintptr(4*lds), uintptr(k), float32(i.qmax()))
}

// oneUnit is the unit of every row of Joined's, by the bytes of a number.
var oneUnit [3][maxTileRows]float32

func init() {
	for bytes, i := range []isa{1: isaVNNI8, 2: isaVNNI} {
		for row := range oneUnit[bytes] {
			oneUnit[bytes][row] = 1 / float32(i.qmax())
		}
	}
}

// step goes as many rows at a time as a tile has, whose pre-activations stay in the
// nearest cache.
func (j *Joined) step(m int, rows []uint32, hasPrev bool, bias, z, c, h []float32, next []uint32) {
	b, i, hidden, stride, words := j.b, j.b.isa, j.hidden, j.Stride(), j.Words()
	k := b.K
	switch {
	case hasPrev:
	case i.perLane() == 2 && words > 0:
		k = 2 * words
	default:
		zero := uint32(0)
		if i.perLane() == 4 { // sums begin with the correction for the zero point of all of K
			zero = 0x80808080
		}
		for row := range m {
			states := rows[row*stride:][words:stride]
			for w := range states {
				states[w] = zero
			}
		}
	}
	unit := oneUnit[4/i.perLane()][:]
	w := intBuffers.Get().(*intBuffer)
	inTiles(m, i, func(first, size int) {
		tile := intRows{rows[first*stride:], stride, unit}
		w.multiply(tile, k, b, size, bias, 0, z, 4*hidden)
		c, h, to := c[first*hidden:], h[first*hidden:], next[first*stride+words:]
		switch {
		case i >= isaVNNI && hidden%16 == 0:
			gatesCubic(uintptr(size), uintptr(hidden/16), &z[0], uintptr(16*hidden), uintptr(4*hidden), &c[0], &h[0], uintptr(4*hidden))
		case i < isaVNNI && hidden%8 == 0:
			gatesRational(uintptr(size), uintptr(hidden/8), &z[0], uintptr(16*hidden), uintptr(4*hidden), &c[0], &h[0], uintptr(4*hidden), &to[0], uintptr(4*stride), float32(i.qmax()))
			return
		default:
			gates(size, z, 4*hidden, c, hidden, h, hidden, hidden)
		}
		round(i, size, to, stride, h, hidden, hidden)
	})
	intBuffers.Put(w)
}

// output multiplies the states of rows.
func (j *Joined) output(m int, states []uint32, out *Packed, c []float32, ldc int) {
	unit := oneUnit[4/out.isa.perLane()][:]
	w := intBuffers.Get().(*intBuffer)
	if len(w.zeros) < out.N {
		w.zeros = make([]float32, out.N)
	}
	inTiles(m, out.isa, func(first, size int) {
		tile := intRows{states[first*j.Stride():], j.Stride(), unit}
		w.multiply(tile, out.K, out, size, w.zeros, 0, c[first*ldc:], ldc)
	})
	intBuffers.Put(w)
}

// runTileInt calls the assembly of a tile's size.
func runTileInt(t *intTile, i isa, rows, cols int) {
	switch i {
	case isaVNNI:
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
	case isaVNNI8:
		switch cols {
		case 32:
			switch rows {
			case 1:
				gemm1x32VNNI8(t)
			case 2:
				gemm2x32VNNI8(t)
			case 3:
				gemm3x32VNNI8(t)
			case 4:
				gemm4x32VNNI8(t)
			case 5:
				gemm5x32VNNI8(t)
			case 6:
				gemm6x32VNNI8(t)
			case 7:
				gemm7x32VNNI8(t)
			case 8:
				gemm8x32VNNI8(t)
			case 9:
				gemm9x32VNNI8(t)
			case 10:
				gemm10x32VNNI8(t)
			case 11:
				gemm11x32VNNI8(t)
			case 12:
				gemm12x32VNNI8(t)
			case 13:
				gemm13x32VNNI8(t)
			case 14:
				gemm14x32VNNI8(t)
			}
		case 64:
			if rows == 2 {
				gemm2x64VNNI8(t)
			} else {
				gemm3x64VNNI8(t)
			}
		case 128:
			gemm1x128VNNI8(t)
		}
	case isaAVXVNNI:
		switch cols {
		case 16:
			switch rows {
			case 1:
				gemm1x16AVXVNNI(t)
			case 2:
				gemm2x16AVXVNNI(t)
			case 3:
				gemm3x16AVXVNNI(t)
			case 4:
				gemm4x16AVXVNNI(t)
			case 5:
				gemm5x16AVXVNNI(t)
			case 6:
				gemm6x16AVXVNNI(t)
			}
		case 32:
			if rows == 2 {
				gemm2x32AVXVNNI(t)
			} else {
				gemm3x32AVXVNNI(t)
			}
		case 64:
			gemm1x64AVXVNNI(t)
		}
	case isaMADD:
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
}
