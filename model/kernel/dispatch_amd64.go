//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

func supported(i isa) bool {
	switch i {
	case isaAVX2, isaMADD:
		return cpu.X86.HasAVX2 && cpu.X86.HasFMA
	case isaAVXVNNI:
		return supported(isaMADD) && cpu.X86.HasAVXVNNI
	case isaAVX512:
		return hasAVX512()
	case isaVNNI, isaVNNI8:
		return hasAVX512() && cpu.X86.HasAVX512VNNI
	case isaAMX24, isaAMX, isaAMX8:
		return amxSupported()
	}
	return i == isaGeneric
}

// hasAVX512 is about the parts that processors have had since Skylake-X and
// Zen 4.
func hasAVX512() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
}

// panelWidth is the number of columns of a panel of Packed.
func (i isa) panelWidth() int {
	if i >= isaAVX512 {
		return 32
	}
	return 16
}

func gemm(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	switch {
	case x.b.isa == isaGeneric:
		gemmGeneric(m, x, y, add, ldadd, c, ldc)
	case x.b.narrow:
		gemmNarrow(m, x, add, ldadd, c, ldc)
		if y.b != nil {
			gemmNarrow(m, y, c, ldc, c, ldc)
		}
	case x.b.inParts():
		gemmAMX(m, x, y, add, ldadd, c, ldc)
	case x.b.isa.integer():
		gemmInt(m, x, add, ldadd, c, ldc)
		if y.b != nil {
			gemmInt(m, y, c, ldc, c, ldc)
		}
	default:
		gemmAsm(m, x, y, add, ldadd, c, ldc)
	}
}

// nothing is what a product of few columns adds to where there is nothing to
// add.
var nothing [maxNarrow]float32

type narrow = func(m uintptr, a *float32, lda uintptr, b *float32, k uintptr, add *float32, ldadd uintptr, c *float32, ldc uintptr)

// Products of few columns, by their number less 1.
var (
	narrowAVX512 = []narrow{gemmNarrow1AVX512, gemmNarrow2AVX512, gemmNarrow3AVX512, gemmNarrow4AVX512}
	narrowAVX2   = []narrow{gemmNarrow1AVX2, gemmNarrow2AVX2, gemmNarrow3AVX2}
)

// gemmNarrow computes c = x + add.
func gemmNarrow(m int, x term, add []float32, ldadd int, c []float32, ldc int) {
	if add == nil {
		add, ldadd = nothing[:], 0
	}
	calls := narrowAVX512
	if x.b.isa == isaAVX2 {
		calls = narrowAVX2
	}
	calls[x.b.N-1](uintptr(m), &x.a[0], uintptr(4*x.lda), &x.b.data[0], uintptr(x.b.K), &add[0], uintptr(4*ldadd), &c[0], uintptr(4*ldc))
}

func gemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	if active == isaGeneric {
		gemmTNGeneric(m, n, k, a, lda, b, ldb, c, ldc)
		return
	}
	gemmTNAsm(m, n, k, a, lda, b, ldb, c, ldc)
}

// step is Step on tiles for m > 0 and K > 0 of x. It returns false where the matrices are
// not for tiles or hidden is not in whole blocks.
func step(m int, x, y term, bias, z, c, h []float32, hidden int) bool {
	return x.b.inParts() && stepAMX(m, x, y, bias, z, c, h, hidden)
}

func gates(rows int, z []float32, ldz int, c []float32, ldc int, h []float32, ldh, hidden int) {
	switch active.float() {
	case isaAVX512:
		gatesAVX512(uintptr(rows), &z[0], uintptr(4*ldz), &c[0], uintptr(4*ldc), &h[0], uintptr(4*ldh), uintptr(hidden))
	case isaAVX2:
		gatesAVX2(uintptr(rows), &z[0], uintptr(4*ldz), &c[0], uintptr(4*ldc), &h[0], uintptr(4*ldh), uintptr(hidden))
	default:
		gatesGeneric(rows, z, ldz, c, ldc, h, ldh, hidden)
	}
}

func gatesTrain(z, cPrev, c, tanhC, h []float32, hidden int) {
	switch active.float() {
	case isaAVX512:
		gatesTrainAVX512(&z[0], &cPrev[0], &c[0], &tanhC[0], &h[0], uintptr(hidden))
	case isaAVX2:
		gatesTrainAVX2(&z[0], &cPrev[0], &c[0], &tanhC[0], &h[0], uintptr(hidden))
	default:
		gatesTrainGeneric(z, cPrev, c, tanhC, h, hidden)
	}
}

func gatesBackward(dz, z, cPrev, tanhC, dh, dc []float32, hidden int) {
	switch active.float() {
	case isaAVX512:
		gatesBackwardAVX512(&dz[0], &z[0], &cPrev[0], &tanhC[0], &dh[0], &dc[0], uintptr(hidden))
	case isaAVX2:
		gatesBackwardAVX2(&dz[0], &z[0], &cPrev[0], &tanhC[0], &dh[0], &dc[0], uintptr(hidden))
	default:
		gatesBackwardGeneric(dz, z, cPrev, tanhC, dh, dc, hidden)
	}
}

func sumLines(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups, lines int) bool {
	switch active.float() {
	case isaAVX512:
		if t.multiples != nil && t.d%64 == 0 && cpu.X86.HasAVX512VNNI {
			return sumLinesVNNI(&dst[0], uintptr(4*ldd), uintptr(t.d), &t.data[0], &t.multiples[0], t.unit, uintptr(t.rows), &ids[0], uintptr(first), uintptr(len(ids)), &groupEnd[0], &groupScale[0], uintptr(groups), uintptr(lines))
		}
		return sumLinesAVX512(&dst[0], uintptr(4*ldd), uintptr(t.d), &t.data[0], &t.scale[0], uintptr(t.rows), &ids[0], uintptr(first), uintptr(len(ids)), &groupEnd[0], &groupScale[0], uintptr(groups), uintptr(lines))
	case isaAVX2:
		if t.multiples != nil && t.d%64 == 0 && cpu.X86.HasBMI2 {
			return sumLinesMADD(&dst[0], uintptr(4*ldd), uintptr(t.d), &t.data[0], &t.multiples[0], t.unit, uintptr(t.rows), &ids[0], uintptr(first), uintptr(len(ids)), &groupEnd[0], &groupScale[0], uintptr(groups), uintptr(lines))
		}
		return sumLinesAVX2(&dst[0], uintptr(4*ldd), uintptr(t.d), &t.data[0], &t.scale[0], uintptr(t.rows), &ids[0], uintptr(first), uintptr(len(ids)), &groupEnd[0], &groupScale[0], uintptr(groups), uintptr(lines))
	}
	return sumLinesGeneric(dst, ldd, t, ids, first, groupEnd, groupScale, groups, lines)
}

// sumRowsF32 is one line of one group to the assembly.
func sumRowsF32(dst, table []float32, rows int, ids []uint32, scale float32) bool {
	n := uint32(len(ids))
	switch active.float() {
	case isaAVX512:
		return sumLinesF32AVX512(&dst[0], 0, uintptr(len(dst)), &table[0], uintptr(rows), &ids[0], 0, uintptr(n), &n, &scale, 1, 1)
	case isaAVX2:
		return sumLinesF32AVX2(&dst[0], 0, uintptr(len(dst)), &table[0], uintptr(rows), &ids[0], 0, uintptr(n), &n, &scale, 1, 1)
	}
	return sumRowsF32Generic(dst, table, rows, ids, scale)
}

func addScaled(dst, x []float32, scale float32) {
	switch active.float() {
	case isaAVX512:
		addScaledAVX512(&dst[0], &x[0], uintptr(len(dst)), scale)
	case isaAVX2:
		addScaledAVX2(&dst[0], &x[0], uintptr(len(dst)), scale)
	default:
		addScaledGeneric(dst, x, scale)
	}
}

func (a *AdamW) update(w, g, m, v []float32) {
	switch active.float() {
	case isaAVX512:
		adamWAVX512(&a.Clip, &w[0], &g[0], &m[0], &v[0], uintptr(len(w)))
	case isaAVX2:
		adamWAVX2(&a.Clip, &w[0], &g[0], &m[0], &v[0], uintptr(len(w)))
	default:
		a.updateGeneric(w, g, m, v)
	}
}

func sum(dst, x, y, z []float32) {
	switch n := len(dst); {
	case active >= isaAVX512 && n >= 16:
		sumAVX512(&dst[0], &x[0], &y[0], &z[0], uintptr(n))
	case active >= isaAVX2 && n >= 8:
		sumAVX2(&dst[0], &x[0], &y[0], &z[0], uintptr(n))
	default:
		sumGeneric(dst, x, y, z)
	}
}

func standardise(rows int, dst, x, mean, invStd []float32, limit float32) {
	switch active.float() {
	case isaAVX512:
		standardiseAVX512(uintptr(rows), &dst[0], &x[0], &mean[0], &invStd[0], uintptr(len(mean)), limit)
	case isaAVX2:
		standardiseAVX2(uintptr(rows), &dst[0], &x[0], &mean[0], &invStd[0], uintptr(len(mean)), limit)
	default:
		standardiseGeneric(rows, dst, x, mean, invStd, limit)
	}
}

func tanh(x []float32) {
	switch active.float() {
	case isaAVX512:
		tanhAVX512(&x[0], uintptr(len(x)))
	case isaAVX2:
		tanhAVX2(&x[0], uintptr(len(x)))
	default:
		tanhGeneric(x)
	}
}

func softmax(rows int, x []float32, ld, n int) {
	switch active.float() {
	case isaAVX512:
		softmaxAVX512(uintptr(rows), &x[0], uintptr(4*ld), uintptr(n))
	case isaAVX2:
		softmaxAVX2(uintptr(rows), &x[0], uintptr(4*ld), uintptr(n))
	default:
		softmaxGeneric(rows, x, ld, n)
	}
}
