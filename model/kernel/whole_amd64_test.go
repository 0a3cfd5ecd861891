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
	for _, i := range []isa{isaMADD, isaAVXVNNI, isaVNNI, isaVNNI8} {
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
			want, wantUnit := make([]int, rows*ldd), make([]float32, rows)
			for i := range rows {
				largest := float32(wholeLeast)
				for _, v := range x[i*lds:][:k] {
					if v != v || math.IsInf(float64(v), 0) {
						largest = nan
					}
					largest = max(largest, v, -v)
				}
				most := float32(isa.largest())
				wantUnit[i] = largest / most
				for l, v := range x[i*lds:][:k] {
					want[i*ldd+l] = int(math.RoundToEven(float64(v * (most / largest))))
				}
			}
			lanes := ldd / isa.lane()
			got, unit := slices.Repeat([]uint32{0xbad}, rows*lanes+1), guard(make([]float32, rows), 3)
			quantise(isa, rows, got, lanes, unit.x, x, lds, k)
			unit.check(t, "units")
			near(t, "units", unit.x, wantUnit, func(int) float64 { return 0 })
			for i, w := range want {
				if g := wholeNumber(isa, got, i); g != w && i%ldd < roundUp(k, isa.lane()) && wantUnit[i/ldd] == wantUnit[i/ldd] {
					t.Fatalf("k %d with %v: number %d of row %d: got %d, want %d", k, bad, i%ldd, i/ldd, g, w)
				}
			}
			if got[rows*lanes] != 0xbad {
				t.Fatalf("k %d: wrote behind the rows", k)
			}
		}
	}
}

// wholeNumber is number i of rows that quantise wrote.
func wholeNumber(i isa, rows []uint32, at int) int {
	if i.lane() == 4 {
		return int(uint8(rows[at/4]>>(at%4*8))) - 128
	}
	return int(int16(rows[at/2] >> (at % 2 * 16)))
}

// The products are those of the whole numbers, exactly, and these, of 16 bits, sum to
// 31 where all have one sign.
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
	for _, size := range [][3]int{{1, 32, 1}, {1, 200, 95}, {2, 70, 96}, {3, 160, 97}, {5, 384, 64}, {14, 33, 191}, {15, 40, 192}, {120, 96, 193}, {7, 40, 129}, {29, 47, 256}, {29, 47, 300}, {1, 33, 1<<15 + 5}} {
		for _, equal := range []bool{false, true} {
			m, n, k := size[0], size[1], size[2]
			a, b := random(r, m*k), random(r, k*n)
			if equal {
				a, b = slices.Repeat([]float32{-0.7}, m*k), slices.Repeat([]float32{0.3}, k*n)
			}
			add, ldc := random(r, m*(n+3)), n+3
			p, c := Pack(random(r, k*n), k, n, n), guard(slices.Clone(add), 1)
			p.Repack(b, n) // of the first nothing is left
			if p.depth%active.lane() != 0 || p.depth > active.depth()+1 {
				t.Fatalf("depth %d of %d", p.depth, k)
			}
			Gemm(m, a, k, p, c.x, ldc, true)
			c.check(t, "c")
			whole, unit := make([]uint32, roundUp(k, 16)/active.lane()), make([]float32, 1)
			for i := range m {
				quantise(active, 1, whole, 0, unit, a[i*k:], 0, k)
				for j := range n {
					want := add[i*ldc+j]
					for d, first := 0, 0; first < k; d, first = d+1, first+p.depth {
						var sum int64
						for l := first; l < min(k, first+p.depth); l++ {
							sum += int64(wholeNumber(active, whole, l)) * int64(columnNumber(p, l, j))
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
	if active.lane() == 2 && (most > math.MaxInt32 || most < math.MaxInt32/100*98) {
		t.Errorf("the largest sum is %d, want nearly %d", most, math.MaxInt32)
	}
	if most := int64(active.largest()) * math.MaxInt8 * int64(active.depth()); active.lane() == 4 && most > math.MaxInt32 {
		t.Errorf("a sum may be %d, more than %d", most, math.MaxInt32)
	}
}

// columnNumber is number (k, j) that p holds.
func columnNumber(p *Packed, k, j int) int {
	x := p.whole[p.wholeIndex(k, j)]
	if p.isa.lane() == 4 {
		return int(int8(x >> (k % 4 * 8)))
	}
	return int(int16(x >> (k % 2 * 16)))
}
