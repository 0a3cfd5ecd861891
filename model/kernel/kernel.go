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
	half   []uint16  // instead of data: bfloat16 in the order of partIndex
	parts  int       // of half
	ints   []uint32  // instead of data: integers of columns' units, in the order of intIndex
	depth  int       // of ints: how much of K is summed at once
	unit   []float32 // of ints: [depths, columns of all panels]
	start  []int32   // of ints: what sums begin with, of the same size
}

// NewPacked is a matrix of zeros for Repack, of weights that change all the
// time: always in float32, as for the others packing takes as long as many products.
func NewPacked(k, n int) *Packed { return newPacked(k, n, active.float(), false) }

// maxNarrow is the most columns of a narrow matrix: too little of a vector or a tile.
const maxNarrow = 4

// leastIntColumns is the number of columns from which on integers win back what it costs
// to round the rows.
const leastIntColumns = 64

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
		p.depth = roundUp((k+depths-1)/depths, i.lane())
		return p
	case p.inParts():
		return p
	}
	p.data = make([]float32, (n+p.width-1)/p.width*k*p.width)
	return p
}

// roundUp is n up to a multiple of to.
func roundUp(n, to int) int { return (n + to - 1) / to * to }

// matches tells whether one product goes through p and q.
func (p *Packed) matches(q *Packed) bool {
	return p.isa == q.isa && p.narrow == q.narrow && p.parts == q.parts
}

// stride is K up to whole vectors: the distance of columns where they are few, and of
// rows of integers.
func (p *Packed) stride() int { return (p.K + 15) &^ 15 }

// inParts tells that p's numbers stand as parts of bfloat16.
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
	case i.integer() && n < leastIntColumns:
		i = i.float()
	case i == isaVNNI8: // 8 bits are for Joined alone
		i = isaVNNI
	}
	p := newPacked(k, n, i, true)
	p.Repack(b, ldb)
	return p
}

// PackTwo copies the matrices of a Step, b1 [k1, n] and b2 [k2, n]
// with rows ldb apart.
func PackTwo(b1 []float32, k1 int, b2 []float32, k2, n, ldb int) (p1, p2 *Packed) {
	p1, p2 = Pack(b1, k1, n, ldb), Pack(b2, k2, n, ldb)
	if p1.parts < p2.parts {
		repackParts(p1, b1, ldb, p2.parts)
	} else if p2.parts < p1.parts {
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

// Gemm computes c = a·b, or c += a·b where accumulate: a is [m, b.K] with rows
// lda apart, c is [m, b.N] with rows ldc apart. In float32 the sum over K runs in
// order and from zero, where columns are not few, and c is added last. A row's
// result does not depend on m or on the row's place.
func Gemm(m int, a []float32, lda int, b *Packed, c []float32, ldc int, accumulate bool) {
	if accumulate {
		gemmSum(m, term{a, lda, b}, term{}, c, ldc, c, ldc)
	} else {
		gemmSum(m, term{a, lda, b}, term{}, nil, 0, c, ldc)
	}
}

// GemmBias computes c = a·b + bias, bias [b.N] added to every row.
func GemmBias(m int, a []float32, lda int, b *Packed, bias []float32, c []float32, ldc int) {
	checkBias(bias, b.N)
	gemmSum(m, term{a, lda, b}, term{}, bias, 0, c, ldc)
}

func checkBias(bias []float32, n int) {
	if len(bias) < n {
		panic("kernel: short bias")
	}
}

// term is one product of a sum of them.
type term struct {
	a   []float32 // [m, b.K]
	lda int
	b   *Packed // nil where there is no such term
}

// gemmSum computes c = x + y + add; add may be nil or c itself and has rows
// ldadd apart, 0 for one that is added to all.
func gemmSum(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	n := x.b.N
	checkMatrix(x.a, m, x.b.K, x.lda)
	checkMatrix(c, m, n, ldc)
	if y.b != nil {
		checkMatrix(y.a, m, y.b.K, y.lda)
		if x.b.K == 0 {
			x, y = y, term{}
		} else if y.b.K == 0 {
			y = term{}
		}
	}
	if m == 0 || n == 0 {
		return
	}
	if x.b.K == 0 {
		for i := range m {
			row := c[i*ldc:][:n]
			if add == nil {
				clear(row)
			} else {
				copy(row, add[i*ldadd:])
			}
		}
		return
	}
	gemm(m, x, y, add, ldadd, c, ldc)
}

// GemmTN computes c = aᵀ·b: a is [k, m] with rows lda apart, b is [k, n] with
// rows ldb apart, c is [m, n] with rows ldc apart. The sum over k runs in order
// and from zero.
func GemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	checkMatrix(a, k, m, lda)
	checkMatrix(b, k, n, ldb)
	checkMatrix(c, m, n, ldc)
	switch {
	case m == 0 || n == 0:
	case k > 0:
		gemmTN(m, n, k, a, lda, b, ldb, c, ldc)
	default:
		for i := range m {
			clear(c[i*ldc:][:n])
		}
	}
}

// GatesRows is the cell of an LSTM for some rows, ldz, ldc and ldh apart. In each,
// z [4·hidden] holds the pre-activations i, f, g, o and is left as it is; c [hidden]
// is updated in place, h [hidden] is written:
//
//	c = σ(z_f)·c + σ(z_i)·tanh(z_g);  h = σ(z_o)·tanh(c)
func GatesRows(rows int, z []float32, ldz int, c []float32, ldc int, h []float32, ldh, hidden int) {
	checkMatrix(z, rows, 4*hidden, ldz)
	checkMatrix(c, rows, hidden, ldc)
	checkMatrix(h, rows, hidden, ldh)
	if rows > 0 && hidden > 0 {
		gates(rows, z, ldz, c, ldc, h, ldh, hidden)
	}
}

// Step is a step of an LSTM for m rows: GatesRows of x·input + before·recurrent +
// bias, with x [m, input.K], before and h [m, hidden] and c [m, hidden] in rows
// ldx and hidden apart, the matrices packed by PackTwo. before may be nil, which
// is zero, or share memory with h. z [m, 4·hidden] is room for the pre-activations.
// Where products are of integers Joined has a faster one.
func Step(m int, x []float32, ldx int, input *Packed, before []float32, recurrent *Packed, bias, z, c, h []float32, hidden int) {
	if input.N != 4*hidden || recurrent.N != 4*hidden || recurrent.K != hidden || !input.matches(recurrent) {
		panic("kernel: Step of matrices that do not match")
	}
	checkBias(bias, 4*hidden)
	checkMatrix(x, m, input.K, ldx)
	checkMatrix(z, m, 4*hidden, 4*hidden)
	checkMatrix(c, m, hidden, hidden)
	checkMatrix(h, m, hidden, hidden)
	first, second := term{x, ldx, input}, term{}
	if before != nil {
		checkMatrix(before, m, hidden, hidden)
		second = term{before, hidden, recurrent}
	}
	if m > 0 && input.K > 0 && step(m, first, second, bias, z, c, h, hidden) {
		return
	}
	gemmSum(m, first, second, bias, 0, z, 4*hidden)
	GatesRows(m, z, 4*hidden, c, hidden, h, hidden, hidden)
}

// GatesTrain is GatesRows of one row, keeping what GatesBackward needs: z is overwritten with
// the activations σ(z_i), σ(z_f), tanh(z_g), σ(z_o); cPrev is read, c, tanhC
// (tanh of c) and h are written. cPrev and c may be the same slice.
func GatesTrain(z, cPrev, c, tanhC, h []float32, hidden int) {
	if hidden < 0 || len(z) < 4*hidden || len(cPrev) < hidden || len(c) < hidden || len(tanhC) < hidden || len(h) < hidden {
		panic("kernel: short GatesTrain slice")
	}
	if hidden > 0 {
		gatesTrain(z, cPrev, c, tanhC, h, hidden)
	}
}

// GatesBackward is the derivative of GatesTrain for one row. z [4·hidden] and
// tanhC are what GatesTrain wrote, cPrev what it read. dh is the gradient with
// respect to h, and dc that with respect to c from the following step (zero at
// the last); dc becomes the gradient with respect to cPrev, and dz
// [4·hidden] that with respect to the pre-activations. dz and z may be the
// same slice.
func GatesBackward(dz, z, cPrev, tanhC, dh, dc []float32, hidden int) {
	if hidden < 0 || len(dz) < 4*hidden || len(z) < 4*hidden || len(cPrev) < hidden ||
		len(tanhC) < hidden || len(dh) < hidden || len(dc) < hidden {
		panic("kernel: short GatesBackward slice")
	}
	if hidden > 0 {
		gatesBackward(dz, z, cPrev, tanhC, dh, dc, hidden)
	}
}

// SumLines adds weighted rows of a table to lines, each of several groups of
// ids:
//
//	dst[l] += Σ_g Σ_{id in g} (groupScale[l·groups+g]·scale[id])·data[id]
//
// The ids of group g of line l end before ids[groupEnd[l·groups+g]] and begin
// where the group before ends (the very first at ids[first]). Line l goes to
// dst[l·ldd:][:d]. An id outside the table panics, with part of the sum done.
// Rows needed soon are fetched early, over the ends of groups and lines.
func SumLines(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups int) {
	lines := checkLines(dst, ldd, t.d, ids, first, groupEnd, groupScale, groups)
	if lines == 0 {
		return
	}
	// Without rows there is no table to point at, and an id that asks for it.
	if t.rows == 0 || !sumLines(dst, ldd, t, ids, first, groupEnd, groupScale, groups, lines) {
		panic("kernel: id outside the table")
	}
}

// SumRowsF32 adds rows of a float32 table [rows, len(dst)] to dst:
//
//	dst += Σ_id scale·table[id]
//
// in the order of ids. An id outside the table panics, with part of the sum
// done.
func SumRowsF32(dst []float32, table []float32, ids []uint32, scale float32) {
	if len(dst) == 0 || len(ids) == 0 {
		return
	}
	// Without rows there is no table to point at, and an id that asks for it.
	if rows := len(table) / len(dst); rows == 0 || !sumRowsF32(dst, table, rows, ids, scale) {
		panic("kernel: id outside the table")
	}
}

// checkLines returns the number of lines, or 0 where there is nothing to add.
func checkLines(dst []float32, ldd, d int, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups int) int {
	if groups <= 0 {
		panic("kernel: no groups")
	}
	lines := len(groupEnd) / groups
	checkMatrix(dst, lines, d, ldd)
	if len(groupScale) < lines*groups {
		panic("kernel: short groupScale")
	}
	at := first
	for _, end := range groupEnd[:lines*groups] {
		if end < at {
			panic("kernel: group ends before it begins")
		}
		at = end
	}
	if uint64(at) > uint64(len(ids)) {
		panic("kernel: short ids")
	}
	if d == 0 || at == first {
		return 0
	}
	return lines
}

// AddScaled computes dst += scale·x; x is as long as dst or longer.
func AddScaled(dst, x []float32, scale float32) {
	if len(x) < len(dst) {
		panic("kernel: short x")
	}
	if len(dst) > 0 {
		addScaled(dst, x, scale)
	}
}

// StandardiseRows computes dst[r] = (x[r] − mean)·invStd, cut at ±limit, which is
// at least 0, for rows as long as mean that follow each other. dst may be x.
func StandardiseRows(rows int, dst, x, mean, invStd []float32, limit float32) {
	n := len(mean)
	checkMatrix(dst, rows, n, n)
	checkMatrix(x, rows, n, n)
	if len(invStd) < n {
		panic("kernel: short invStd")
	}
	if rows > 0 && n > 0 {
		standardise(rows, dst, x, mean, invStd, limit)
	}
}

// Tanh replaces every element with its hyperbolic tangent.
func Tanh(x []float32) {
	if len(x) > 0 {
		tanh(x)
	}
}

// SoftmaxRows replaces every row v of x, [rows, n] with rows ld apart, with
// exp(v)/Σ exp(v).
func SoftmaxRows(rows int, x []float32, ld, n int) {
	checkMatrix(x, rows, n, ld)
	if rows > 0 && n > 0 {
		softmax(rows, x, ld, n)
	}
}

// checkMatrix panics unless s holds [rows, cols] with rows ld apart.
func checkMatrix(s []float32, rows, cols, ld int) {
	if rows < 0 || cols < 0 {
		panic("kernel: negative size")
	}
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols {
		panic("kernel: rows overlap")
	}
	if len(s) < (rows-1)*ld+cols {
		panic("kernel: short matrix")
	}
}
