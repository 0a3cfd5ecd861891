//go:build (!amd64 && !arm64) || noasm

package kernel

func supported(i isa) bool { return i == isaGeneric }

func (isa) panelWidth() int { return genericWidth }

func repackParts(*Packed, []float32, int, int) {}

func gemm(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	gemmGeneric(m, x, y, add, ldadd, c, ldc)
}

func gates(rows int, z []float32, ldz int, c []float32, ldc int, h []float32, ldh, hidden int) {
	gatesGeneric(rows, z, ldz, c, ldc, h, ldh, hidden)
}

func sumLines(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups, lines int) bool {
	return sumLinesGeneric(dst, ldd, t, ids, first, groupEnd, groupScale, groups, lines)
}

func tanh(x []float32) { tanhGeneric(x) }
