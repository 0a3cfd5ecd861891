package kernel

import "math"

// Packed is the right-hand side of Gemm, a K×N matrix copied into the order in
// which the instruction set of the time of packing reads it: panels of some
// columns, the last one padded with zeros, each panel row after row. It serves
// any number of Gemm calls at once, and none while it is repacked.
//
// AVX2 and better sum the products of few columns along K, as many at a time as a
// vector has lanes.
type Packed struct {
	K, N   int
	isa    isa       // which packed it, and so multiplies by it
	width  int       // columns of a panel
	narrow bool      // at most maxNarrow columns
	data   []float32 // [panels, K, width]; where narrow, the transpose, [N, K up to a multiple of 16]
	bf16   []uint16  // instead of data: bfloat16 in the order of partIndex
	parts  int       // of bf16
	ints   []uint32  // instead of data: integers of columns' units, in the order of intIndex
	depth  int       // of ints: how much of K is summed at once
	unit   []float32 // of ints: columns' quantisation scales, [blocks of depth in K, columns of all panels]
	start  []int32   // of ints: what sums begin with (see 8 bits in int_amd64.go), of the same size
}

// NewPacked is a matrix of zeros for Repack, of weights that change all the
// time: always in float32, as for the others packing takes as long as many products.
func NewPacked(k, n int) *Packed { return newPacked(k, n, active.float(), false) }

// maxNarrow is the most columns of a narrow matrix, which would leave most of a vector or
// a tile empty.
const maxNarrow = 4

// leastIntColumns is the number of columns from which on products of integers save more
// than quantising the rows costs.
const leastIntColumns = 64

// maxInteger is the largest magnitude in matrices of integers: a sum of 192 products with
// rows of up to 8,191 stays finite before their unit comes to it.
const maxInteger = 1e32

// newPacked is a matrix that i multiplies by, of zeros or, in parts and in integers,
// without memory yet. narrow keeps few columns in float32, transposed where AVX2 or better
// sums them along K.
func newPacked(k, n int, i isa, narrow bool) *Packed {
	if k < 0 || n < 0 {
		panic("kernel: negative size")
	}
	narrow = narrow && n <= maxNarrow
	if narrow && i.float() < isaAVX512 {
		i = i.float()
	}
	p := &Packed{K: k, N: n, isa: i, width: i.panelWidth(), narrow: narrow && (i >= isaAVX512 || i == isaAVX2 && n < maxNarrow)}
	switch {
	case p.narrow:
		p.data = make([]float32, n*p.stride())
		return p
	case p.isa.integer():
		depths := max(1, (k+i.depth()-1)/i.depth())
		p.depth = roundUp((k+depths-1)/depths, i.perLane())
		return p
	case p.inParts():
		return p
	}
	p.data = make([]float32, (n+p.width-1)/p.width*k*p.width)
	return p
}

// roundUp is n up to a multiple of to, a power of two.
func roundUp(n, to int) int { return (n + to - 1) &^ (to - 1) }

// matches reports whether p and q are packed alike, so that the sum of a product with
// each can be one call.
func (p *Packed) matches(q *Packed) bool {
	return p.isa == q.isa && p.narrow == q.narrow && p.parts == q.parts
}

// stride is K up to whole vectors: the distance of columns where they are few, and of
// rows of integers.
func (p *Packed) stride() int { return (p.K + 15) &^ 15 }

// inParts reports whether p's numbers are held as sums of bfloat16 parts.
func (p *Packed) inParts() bool { return p.isa.parts() > 0 && !p.narrow }

// InSteps reports whether Step, with both products of an LSTM's step at once, is faster
// than one product of many steps' inputs ahead of them, whose sums go to memory and back.
// On tiles these take longer than a product; with AVX-512 multiply-adds wait for them, with
// AVX2 those of large matrices.
func (p *Packed) InSteps() bool {
	return p.inParts() || p.isa == isaAVX512 || p.isa == isaAVX2 && p.N > 512
}

// Pack copies b, [k, n] with rows ldb apart.
func Pack(b []float32, k, n, ldb int) *Packed {
	i := active
	switch {
	case i.integer() && (n < leastIntColumns || exceedsIntegers(b, k, n, ldb)):
		i = i.float()
	case i == isaVNNI8: // 8 bits are for Joined alone
		i = isaVNNI
	}
	return packFor(i, b, k, n, ldb)
}

func packFor(i isa, b []float32, k, n, ldb int) *Packed {
	p := newPacked(k, n, i, true)
	p.Repack(b, ldb)
	return p
}

// exceedsIntegers reports whether a number of b is too large for products of integers.
func exceedsIntegers(b []float32, k, n, ldb int) bool {
	checkMatrix(b, k, n, ldb)
	for row := range k {
		for _, v := range b[row*ldb:][:n] {
			if v > maxInteger || v < -maxInteger {
				return true
			}
		}
	}
	return false
}

// PackOutput is Pack of a matrix that may get more columns, of zeros, where products are
// faster so: its N is n or more, and so is what a row of a product takes.
func PackOutput(b []float32, k, n, ldb int) *Packed {
	if active < isaAVX512 || n <= maxNarrow || active.integer() && n >= leastIntColumns {
		return Pack(b, k, n, ldb)
	}
	i := active
	if i.integer() {
		i = i.float()
	}
	return packPadded(b, k, n, ldb, i)
}

// packPadded copies b to whole panels.
func packPadded(b []float32, k, n, ldb int, i isa) *Packed {
	width := i.panelWidth()
	p := newPacked(k, roundUp(n, width), i, false)
	checkMatrix(b, k, n, ldb)
	padded := make([]float32, k*p.N)
	for row := range k {
		copy(padded[row*p.N:][:n], b[row*ldb:])
	}
	p.Repack(padded, p.N)
	return p
}

// PackTwo copies the matrices of a Step, b1 [k1, n] and b2 [k2, n]
// with rows ldb apart.
func PackTwo(b1 []float32, k1 int, b2 []float32, k2, n, ldb int) (p1, p2 *Packed) {
	p1, p2 = Pack(b1, k1, n, ldb), Pack(b2, k2, n, ldb)
	switch {
	case p1.isa != p2.isa: // one of them is too large for integers
		p1, p2 = packFor(active.float(), b1, k1, n, ldb), packFor(active.float(), b2, k2, n, ldb)
	case p1.parts < p2.parts:
		repackParts(p1, b1, ldb, p2.parts)
	case p2.parts < p1.parts:
		repackParts(p2, b2, ldb, p1.parts)
	}
	return p1, p2
}

// partsOf is how many parts the numbers of b take: one where the others would all be 0.
func (p *Packed) partsOf(b []float32, ldb int) int {
	for k := range p.K {
		for _, v := range b[k*ldb:][:p.N] {
			if math.Float32bits(v)<<16 != 0 {
				return p.isa.parts()
			}
		}
	}
	return 1
}

// Repack copies another b of the same size, [p.K, p.N], into p's memory.
func (p *Packed) Repack(b []float32, ldb int) {
	checkMatrix(b, p.K, p.N, ldb)
	switch {
	case p.N == 0:
		return
	case p.inParts():
		repackParts(p, b, ldb, p.partsOf(b, ldb))
		return
	case p.isa.integer():
		repackInt(p, b, ldb)
		return
	case p.narrow:
		for k := range p.K {
			for j, v := range b[k*ldb:][:p.N] {
				p.data[j*p.stride()+k] = v
			}
		}
		return
	}
	w := p.width
	for j := 0; j < p.N; j += w {
		n := min(w, p.N-j)
		panel := p.data[j*p.K:][:p.K*w]
		for k := 0; k < p.K; k++ {
			copy(panel[k*w:k*w+n], b[k*ldb+j:])
		}
	}
}

// RepackTrans copies bᵀ into the memory of p, which NewPacked made; b is
// [p.N, p.K] with rows ldb apart.
func (p *Packed) RepackTrans(b []float32, ldb int) {
	if p.inParts() || p.isa.integer() || p.narrow {
		panic("kernel: RepackTrans of a matrix that NewPacked did not make")
	}
	checkMatrix(b, p.N, p.K, ldb)
	if p.K == 0 {
		return
	}
	w := p.width
	for j := 0; j < p.N; j += w {
		n := min(w, p.N-j)
		panel := p.data[j*p.K:][:p.K*w]
		for i := 0; i < n; i++ {
			for k, v := range b[(j+i)*ldb:][:p.K] {
				panel[k*w+i] = v
			}
		}
	}
}
