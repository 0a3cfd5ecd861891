//go:build (!amd64 && !arm64) || noasm

package kernel

func supported(i isa) bool { return i == isaGeneric }

func (isa) panelWidth() int { return genericWidth }

func repackParts(*Packed, []float32, int, int) {}

func gemm(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	gemmGeneric(m, x, y, add, ldadd, c, ldc)
}

func gemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	gemmTNGeneric(m, n, k, a, lda, b, ldb, c, ldc)
}

func gates(rows int, z []float32, ldz int, c []float32, ldc int, h []float32, ldh, hidden int) {
	gatesGeneric(rows, z, ldz, c, ldc, h, ldh, hidden)
}

func gatesTrain(z, cPrev, c, tanhC, h []float32, hidden int) {
	gatesTrainGeneric(z, cPrev, c, tanhC, h, hidden)
}

func gatesBackward(dz, z, cPrev, tanhC, dh, dc []float32, hidden int) {
	gatesBackwardGeneric(dz, z, cPrev, tanhC, dh, dc, hidden)
}

func sumLines(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups, lines int) bool {
	return sumLinesGeneric(dst, ldd, t, ids, first, groupEnd, groupScale, groups, lines)
}

func sumRowsF32(dst, table []float32, rows int, ids []uint32, scale float32) bool {
	return sumRowsF32Generic(dst, table, rows, ids, scale)
}

func addScaled(dst, x []float32, scale float32) { addScaledGeneric(dst, x, scale) }

func sum(dst, x, y, z []float32) { sumGeneric(dst, x, y, z) }

func standardise(rows int, dst, x, mean, invStd []float32, limit float32) {
	standardiseGeneric(rows, dst, x, mean, invStd, limit)
}

func tanh(x []float32) { tanhGeneric(x) }

func softmax(rows int, x []float32, ld, n int) { softmaxGeneric(rows, x, ld, n) }
