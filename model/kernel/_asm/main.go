// Command asm writes the x86 assembly of package kernel and its Go stubs. Run
// it by go generate in the package's folder.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("amd64")
	ConstraintExpr("!noasm")
	for _, v := range []vector{avx2, avx512} {
		gemm(v)
		gemmTN(v)
		gates(v)
		gatesTrain(v)
		gatesBackward(v)
		tanh(v)
		addScaled(v)
		standardise(v)
		sumLines(v, true)
		sumLines(v, false)
		softmax(v)
		peak(v)
	}
	for _, w := range []whole{madd, vnni, vnni8} {
		gemmWhole(w)
		quantise(w)
	}
	sumLinesVNNI()
	for parts := 1; parts <= 3; parts++ {
		amx(parts, parts)
		splitRows(parts)
	}
	amx(2, 1)
	amx(3, 1)
	gatesCubic()
	for n := range 4 {
		gemmFew(n + 1)
	}
	peakTiles()
	Generate()
}
