//go:build !amd64 || noasm

package kernel

// What x86 alone has: assembly of what takes little time of labelling (softmax,
// the layout's numbers) and of what only training calls; integers, Joined, and
// steps that are more than products and gates.

func gemmTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	gemmTNGeneric(m, n, k, a, lda, b, ldb, c, ldc)
}

func gatesTrain(z, cPrev, c, tanhC, h []float32, hidden int) {
	gatesTrainGeneric(z, cPrev, c, tanhC, h, hidden)
}

func gatesBackward(dz, z, cPrev, tanhC, dh, dc []float32, hidden int) {
	gatesBackwardGeneric(dz, z, cPrev, tanhC, dh, dc, hidden)
}

func sumRowsF32(dst, table []float32, rows int, ids []uint32, scale float32) bool {
	return sumRowsF32Generic(dst, table, rows, ids, scale)
}

func addScaled(dst, x []float32, scale float32) { addScaledGeneric(dst, x, scale) }

func (a *AdamW) update(w, g, m, v []float32) { a.updateGeneric(w, g, m, v) }

func sum(dst, x, y, z []float32) { sumGeneric(dst, x, y, z) }

func standardise(rows int, dst, x, mean, invStd []float32, limit float32) {
	standardiseGeneric(rows, dst, x, mean, invStd, limit)
}

func softmax(rows int, x []float32, ld, n int) { softmaxGeneric(rows, x, ld, n) }

func repackInt(*Packed, []float32, int) {}

func round(isa, int, []uint32, int, []float32, int, int) {}

func (j *Joined) step(int, []uint32, bool, []float32, []float32, []float32, []float32, []uint32) {}

func (j *Joined) output(int, []uint32, *Packed, []float32, int) {}

func step(int, term, term, []float32, []float32, []float32, []float32, int) bool { return false }
