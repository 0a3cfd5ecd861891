package kernel

// Packed is the right-hand side of Gemm, a K×N matrix copied into the order in
// which the instruction set of the time of packing reads it: panels of some
// columns, the last one padded with zeros, each panel row after row. It serves
// any number of Gemm calls at once, and none while it is repacked.
type Packed struct {
	K, N  int
	isa   isa       // which packed it, and so multiplies by it
	width int       // columns of a panel
	data  []float32 // [panels, K, width]
}

func newPacked(k, n int) *Packed {
	if k < 0 || n < 0 {
		panic("kernel: negative size")
	}
	p := &Packed{K: k, N: n, isa: active, width: active.panelWidth()}
	p.data = make([]float32, (n+p.width-1)/p.width*k*p.width)
	return p
}

// Pack copies b, [k, n] with rows ldb apart.
func Pack(b []float32, k, n, ldb int) *Packed {
	p := newPacked(k, n)
	p.Repack(b, ldb)
	return p
}

// PackTrans copies bᵀ, where b is [n, k] with rows ldb apart.
func PackTrans(b []float32, k, n, ldb int) *Packed {
	p := newPacked(k, n)
	p.RepackTrans(b, ldb)
	return p
}

// Repack copies another b of the same size, [p.K, p.N], into p's memory.
func (p *Packed) Repack(b []float32, ldb int) {
	checkMatrix(b, p.K, p.N, ldb)
	w := p.width
	for j := 0; j < p.N; j += w {
		n := min(w, p.N-j)
		panel := p.data[j*p.K:][:p.K*w]
		for k := 0; k < p.K; k++ {
			copy(panel[k*w:k*w+n], b[k*ldb+j:])
		}
	}
}

// RepackTrans copies bᵀ into p's memory; b is [p.N, p.K] with rows ldb apart.
func (p *Packed) RepackTrans(b []float32, ldb int) {
	checkMatrix(b, p.N, p.K, ldb)
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
// lda apart, c is [m, b.N] with rows ldc apart. The sum over K runs in order
// and from zero; c is added last. A row's result does not depend on m or on
// the row's place.
func Gemm(m int, a []float32, lda int, b *Packed, c []float32, ldc int, accumulate bool) {
	checkMatrix(a, m, b.K, lda)
	checkMatrix(c, m, b.N, ldc)
	if m == 0 || b.N == 0 {
		return
	}
	gemm(m, a, lda, b, c, ldc, accumulate)
}

// GemmTN computes c = aᵀ·b, or c += aᵀ·b where accumulate: a is [k, m] with
// rows lda apart, b is [k, n] with rows ldb apart, c is [m, n] with rows ldc
// apart. The sum over k runs in order and from zero; c is added last.
func GemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	checkMatrix(a, k, m, lda)
	checkMatrix(b, k, n, ldb)
	checkMatrix(c, m, n, ldc)
	if m == 0 || n == 0 {
		return
	}
	gemmTN(m, n, k, a, lda, b, ldb, c, ldc, accumulate)
}

// Gates is the cell of an LSTM for one row: z [4·hidden] holds the
// pre-activations i, f, g, o and is left as it is; c [hidden] is updated in
// place, h [hidden] is written:
//
//	c = σ(z_f)·c + σ(z_i)·tanh(z_g);  h = σ(z_o)·tanh(c)
func Gates(z, c, h []float32, hidden int) {
	if hidden < 0 || len(z) < 4*hidden || len(c) < hidden || len(h) < hidden {
		panic("kernel: short Gates slice")
	}
	if hidden > 0 {
		gates(z, c, h, hidden)
	}
}

// Gates2 is Gates of zx + zh, both [4·hidden]: the input's share of the
// pre-activations and the recurrent one.
func Gates2(zx, zh, c, h []float32, hidden int) {
	if hidden < 0 || len(zx) < 4*hidden || len(zh) < 4*hidden || len(c) < hidden || len(h) < hidden {
		panic("kernel: short Gates2 slice")
	}
	if hidden > 0 {
		gates2(zx, zh, c, h, hidden)
	}
}

// GatesTrain is Gates keeping what GatesBackward needs: z is overwritten with
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

// SumRows adds weighted rows of an int8 table [rows, len(dst)] to dst:
//
//	dst += Σ_id (scale·tableScale[id])·table[id]
//
// in the order of ids.
func SumRows(dst []float32, table []int8, tableScale []float32, ids []uint32, scale float32) {
	if len(dst) == 0 {
		return
	}
	rows := uint64(min(len(table)/len(dst), len(tableScale)))
	for _, id := range ids {
		if uint64(id) >= rows {
			panic("kernel: id outside the table")
		}
	}
	if len(ids) > 0 {
		sumRows(dst, table, tableScale, ids, scale)
	}
}

// SumRowsF32 adds rows of a float32 table [rows, len(dst)] to dst:
//
//	dst += Σ_id scale·table[id]
//
// in the order of ids.
func SumRowsF32(dst []float32, table []float32, ids []uint32, scale float32) {
	if len(dst) == 0 {
		return
	}
	rows := uint64(len(table) / len(dst))
	for _, id := range ids {
		if uint64(id) >= rows {
			panic("kernel: id outside the table")
		}
	}
	if len(ids) > 0 {
		sumRowsF32(dst, table, ids, scale)
	}
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

// Tanh replaces every element with its hyperbolic tangent.
func Tanh(x []float32) {
	if len(x) > 0 {
		tanh(x)
	}
}

// Softmax replaces x with exp(x)/Σ exp(x).
func Softmax(x []float32) { softmaxGeneric(x) }

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
