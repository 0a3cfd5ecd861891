package train

import "github.com/linnet-ml/linnet/model/kernel"

// number is the element type of a graph. Training runs in float32; the tests
// run the same ops in float64 to check derivatives by finite differences.
type number interface{ float32 | float64 }

// arithmetic is what the fused ops need of a machine. All matrices are
// row-major; ld is the distance between rows, in elements.
type arithmetic[T number] interface {
	// right makes room for the right-hand side [k, n] of products. With
	// transposed it is given as [n, k].
	right(k, n int, transposed bool) right[T]
	// mulTN is c[m,n] = aᵀ·b with a [k,m] and b [k,n].
	mulTN(m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int)
	// gates steps one row of an LSTM: z [4H] holds the pre-activations i, f,
	// g, o and is overwritten with the activations; c, tanhC and h are [H].
	gates(z, cPrev, c, tanhC, h []T)
	// gatesBackward takes one row back: z and tanhC are what gates left, dh
	// is the gradient of h. dc, the gradient of c, becomes that of cPrev; dz
	// [4H] is the gradient of the pre-activations and may be z itself.
	gatesBackward(z, cPrev, tanhC, dh, dc, dz []T)
	tanh(x []T)
}

// right is the right-hand side of a product, in the machine's own layout.
type right[T number] interface {
	set(b []T, ldb int)
	// mul is c[m,n] (+)= a[m,k]·b.
	mul(m int, a []T, lda int, c []T, ldc int, accumulate bool)
}

// kernels is the arithmetic of package kernel.
type kernels struct{}

type packed struct {
	p          *kernel.Packed
	transposed bool
}

func (kernels) right(k, n int, transposed bool) right[float32] {
	return &packed{kernel.NewPacked(k, n), transposed}
}

func (p *packed) set(b []float32, ldb int) {
	if p.transposed {
		p.p.RepackTrans(b, ldb)
	} else {
		p.p.Repack(b, ldb)
	}
}

func (p *packed) mul(m int, a []float32, lda int, c []float32, ldc int, accumulate bool) {
	kernel.Gemm(m, a, lda, p.p, c, ldc, accumulate)
}

func (kernels) mulTN(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	kernel.GemmTN(m, n, k, a, lda, b, ldb, c, ldc)
}

func (kernels) gates(z, cPrev, c, tanhC, h []float32) {
	kernel.GatesTrain(z, cPrev, c, tanhC, h, len(h))
}

func (kernels) gatesBackward(z, cPrev, tanhC, dh, dc, dz []float32) {
	kernel.GatesBackward(dz, z, cPrev, tanhC, dh, dc, len(dh))
}

func (kernels) tanh(x []float32) { kernel.Tanh(x) }
