//go:build !amd64 || noasm

package kernel

func supported(isa) bool { return false }

func (isa) panelWidth() int { return genericWidth }

func gemm(m int, a []float32, lda int, b *Packed, c []float32, ldc int, accumulate bool) {
	gemmGeneric(m, a, lda, b, c, ldc, accumulate)
}

func gemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	gemmTNGeneric(m, n, k, a, lda, b, ldb, c, ldc, accumulate)
}

func gates(z, c, h []float32, hidden int) { gatesGeneric(z, c, h, hidden) }

func gates2(zx, zh, c, h []float32, hidden int) { gates2Generic(zx, zh, c, h, hidden) }

func gatesTrain(z, cPrev, c, tanhC, h []float32, hidden int) {
	gatesTrainGeneric(z, cPrev, c, tanhC, h, hidden)
}

func gatesBackward(dz, z, cPrev, tanhC, dh, dc []float32, hidden int) {
	gatesBackwardGeneric(dz, z, cPrev, tanhC, dh, dc, hidden)
}

func sumRows(dst []float32, table []int8, tableScale []float32, ids []uint32, scale float32) {
	sumRowsGeneric(dst, table, tableScale, ids, scale)
}

func sumRowsF32(dst []float32, table []float32, ids []uint32, scale float32) {
	sumRowsF32Generic(dst, table, ids, scale)
}

func addScaled(dst, x []float32, scale float32) { addScaledGeneric(dst, x, scale) }

func tanh(x []float32) { tanhGeneric(x) }
