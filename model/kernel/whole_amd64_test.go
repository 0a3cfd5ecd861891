//go:build !noasm

package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Rows become whole numbers of their units, with a zero behind an odd number of them.
func TestQuantise(t *testing.T) {
	for _, i := range []isa{isaMADD, isaVNNI} {
		t.Run(isaNames[i], func(t *testing.T) { testQuantise(t, i) })
	}
}

func testQuantise(t *testing.T, isa isa) {
	if !supported(isa) {
		t.Skipf("this machine has no %s", isaNames[isa])
	}
	r := rand.New(rand.NewPCG(29, 30))
	for k := 1; k <= 130; k++ {
		for _, bad := range [][]float32{{0}, {1e-45, -1e-38}, {1e-33}, {math.MaxFloat32, -1}, {nan}, {inf}, {-inf, 3}} {
			const rows = 3
			lds, ldd := k+k%7, roundUp(k, 16)
			x := gateArguments(r, rows*lds)
			clear(x[lds:][:k]) // a row of the special ones alone
			copy(x[lds+r.IntN(k):][:1], bad)
			x[r.IntN(k)] = bad[len(bad)-1]
			x = guard(x[:(rows-1)*lds+k], k%8).x
			want, wantUnit := make([]int16, rows*ldd), make([]float32, rows)
			for i := range rows {
				largest := float32(wholeLeast)
				for _, v := range x[i*lds:][:k] {
					if v != v || math.IsInf(float64(v), 0) {
						largest = nan
					}
					largest = max(largest, v, -v)
				}
				wantUnit[i] = largest / wholeMost
				for l, v := range x[i*lds:][:k] {
					want[i*ldd+l] = int16(math.RoundToEven(float64(v * (wholeMost / largest))))
				}
			}
			got, unit := slices.Repeat([]int16{0xbad}, rows*ldd+1), guard(make([]float32, rows), 3)
			quantise(isa, rows, got, ldd, unit.x, x, lds, k)
			unit.check(t, "units")
			near(t, "units", unit.x, wantUnit, func(int) float64 { return 0 })
			for i, w := range want {
				if g := got[i]; g != w && i%ldd < roundUp(k, 2) && wantUnit[i/ldd] == wantUnit[i/ldd] {
					t.Fatalf("k %d with %v: number %d of row %d: got %d, want %d", k, bad, i%ldd, i/ldd, g, w)
				}
			}
			if got[rows*ldd] != 0xbad {
				t.Fatalf("k %d: wrote behind the rows", k)
			}
		}
	}
}

// The products are those of the whole numbers, exactly, and these sum to 31 bits
// where all have one sign.
func TestGemmWhole(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		if active.whole() {
			testGemmWhole(t)
		}
	})
}

func testGemmWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	most := int64(0)
	for _, size := range [][3]int{{1, 32, 1}, {1, 200, 95}, {2, 70, 96}, {3, 160, 97}, {5, 384, 64}, {14, 33, 191}, {15, 40, 192}, {120, 96, 193}, {7, 40, 129}, {29, 47, 256}, {29, 47, 300}} {
		for _, equal := range []bool{false, true} {
			m, n, k := size[0], size[1], size[2]
			a, b := random(r, m*k), random(r, k*n)
			if equal {
				a, b = slices.Repeat([]float32{-0.7}, m*k), slices.Repeat([]float32{0.3}, k*n)
			}
			add, ldc := random(r, m*(n+3)), n+3
			p, c := Pack(b, k, n, n), guard(slices.Clone(add), 1)
			if p.depth()%2 != 0 || p.depth() > wholeDepth+1 {
				t.Fatalf("depth %d of %d", p.depth(), k)
			}
			Gemm(m, a, k, p, c.x, ldc, true)
			c.check(t, "c")
			whole, unit := make([]int16, roundUp(k, 16)), make([]float32, 1)
			for i := range m {
				quantise(active, 1, whole, 0, unit, a[i*k:], 0, k)
				for j := range n {
					want := add[i*ldc+j]
					for d, first := 0, 0; first < k; d, first = d+1, first+p.depth() {
						var sum int64
						for l := first; l < min(k, first+p.depth()); l++ {
							sum += int64(whole[l]) * int64(p.whole[p.wholeIndex(l, j)])
						}
						most = max(most, sum, -sum)
						x := float32(sum) * p.unit[d*roundUp(n, p.width)+j]
						want = float32(math.FMA(float64(x), float64(unit[0]), float64(want)))
					}
					if got := c.x[i*ldc+j]; math.Abs(float64(got-want)) > eps*max(1, math.Abs(float64(want))) {
						t.Fatalf("%dx%dx%d: c[%d,%d] is %v, want %v", m, n, k, i, j, got, want)
					}
				}
			}
		}
	}
	if most > math.MaxInt32 || most < math.MaxInt32/100*98 {
		t.Errorf("the largest sum is %d, want nearly %d", most, math.MaxInt32)
	}
}
