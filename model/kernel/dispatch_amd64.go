//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

func supported(i isa) bool {
	switch i {
	case isaAVX2:
		return cpu.X86.HasAVX2 && cpu.X86.HasFMA
	case isaAVX512:
		return cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL
	}
	return true
}

// panelWidth is the number of columns of a panel of Packed.
func (i isa) panelWidth() int {
	if i == isaAVX512 {
		return 32
	}
	return 16
}

func gemm(m int, a []float32, lda int, b *Packed, c []float32, ldc int, accumulate bool) {
	if b.isa == isaGeneric || b.K == 0 {
		gemmGeneric(m, a, lda, b, c, ldc, accumulate)
		return
	}
	gemmAsm(m, a, lda, b, c, ldc, accumulate)
}

func gemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	if active == isaGeneric || k == 0 {
		gemmTNGeneric(m, n, k, a, lda, b, ldb, c, ldc, accumulate)
		return
	}
	gemmTNAsm(m, n, k, a, lda, b, ldb, c, ldc, accumulate)
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
