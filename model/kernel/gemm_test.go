package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()*2 - 1
	}
	return x
}

// naive is c = op(a)·b in float64; at(i, l) reads op(a).
func naive(m, n, k int, at func(i, l int) float32, b func(l, j int) float32) []float64 {
	c := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				c[i*n+j] += float64(at(i, l)) * float64(b(l, j))
			}
		}
	}
	return c
}

func TestGemmSmoke(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {2, 4, 3}, {3, 28, 7}, {7, 33, 5}, {5, 16, 0}, {64, 384, 96}} {
		m, n, k := s[0], s[1], s[2]
		t.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(t *testing.T) {
			a, b := random(r, m*k), random(r, k*n)
			bt := make([]float32, n*k)
			at := make([]float32, k*m)
			for l := range k {
				for j := range n {
					bt[j*k+l] = b[l*n+j]
				}
				for i := range m {
					at[l*m+i] = a[i*k+l]
				}
			}
			want := naive(m, n, k, func(i, l int) float32 { return a[i*k+l] }, func(l, j int) float32 { return b[l*n+j] })
			check := func(what string, c []float32, base float32) {
				t.Helper()
				for i := range want {
					if d := math.Abs(float64(c[i]-base) - want[i]); !(d < 1e-4) {
						t.Fatalf("%s: element %d: got %v, want %v", what, i, c[i], want[i])
					}
				}
			}
			c := make([]float32, m*n)
			Gemm(m, a, k, Pack(b, k, n, n), c, n, false)
			check("Pack", c, 0)
			for i := range c {
				c[i] = 3
			}
			Gemm(m, a, k, PackTrans(bt, k, n, k), c, n, true)
			check("PackTrans", c, 3)
			GemmTN(m, n, k, at, m, b, n, c, n, false)
			check("GemmTN", c, 0)
			GemmTN(m, n, k, at, m, b, n, c, n, true)
		})
	}
}
