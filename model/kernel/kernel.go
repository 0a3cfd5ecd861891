package kernel

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

// Step is a step of an LSTM for m rows: GatesRows of x·input + hPrev·recurrent +
// bias, the matrices packed by PackTwo. x is [m, input.K] with rows ldx apart; hPrev,
// c and h are [m, hidden] with rows hidden apart. hPrev may be nil, which stands for
// zeros, or share memory with h. z [m, 4·hidden] is scratch for the pre-activations.
// Where products are of integers Joined.Step is faster.
func Step(m int, x []float32, ldx int, input *Packed, hPrev []float32, recurrent *Packed, bias, z, c, h []float32, hidden int) {
	if input.N != 4*hidden || recurrent.N != 4*hidden || recurrent.K != hidden || !input.matches(recurrent) {
		panic("kernel: Step of matrices that do not match")
	}
	checkBias(bias, 4*hidden)
	checkMatrix(x, m, input.K, ldx)
	checkMatrix(z, m, 4*hidden, 4*hidden)
	checkMatrix(c, m, hidden, hidden)
	checkMatrix(h, m, hidden, hidden)
	first, second := term{x, ldx, input}, term{}
	if hPrev != nil {
		checkMatrix(hPrev, m, hidden, hidden)
		second = term{hPrev, hidden, recurrent}
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

// The shares of the moments that a step of AdamW leaves.
const (
	Beta1 = 0.9
	Beta2 = 0.999
)

// AdamW is step t of Adam with decoupled weight decay (Loshchilov and Hutter 2019,
// Decoupled Weight Decay Regularization, algorithm 2). The assembly reads the fields in
// this order.
type AdamW struct {
	Clip       float32 // factor of the gradient
	Step       float32 // learning rate / (1 − Beta1^t)
	Correction float32 // 1 / (1 − Beta2^t)
	Decay      float32 // learning rate · weight decay
	Epsilon    float32
}

// Update takes the step of weights w with gradient g and moments m and v, these three as
// long as w or longer:
//
//	x = Clip·g
//	m = Beta1·m + (1−Beta1)·x
//	v = Beta2·v + (1−Beta2)·x²
//	w −= Step·m/(√(Correction·v) + Epsilon) + Decay·w
//
// All instruction sets give the same bits.
func (a *AdamW) Update(w, g, m, v []float32) {
	n := len(w)
	if len(g) < n || len(m) < n || len(v) < n {
		panic("kernel: short Update slice")
	}
	if n > 0 {
		a.update(w, g, m, v)
	}
}

// Sum computes dst = (x + y) + z, each as long as dst or longer; dst shares no memory with
// them.
func Sum(dst, x, y, z []float32) {
	n := len(dst)
	if len(x) < n || len(y) < n || len(z) < n {
		panic("kernel: short Sum slice")
	}
	if n > 0 {
		sum(dst, x, y, z)
	}
}

// StandardiseRows computes dst[r] = (x[r] − mean)·invStd, clipped to ±limit, which is
// at least 0: dst and x are [rows, len(mean)]. dst may be x.
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
