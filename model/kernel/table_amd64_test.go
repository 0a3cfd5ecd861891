//go:build !noasm

package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"
)

// The sums in integers have the bits of their specification.
func TestSumLinesAsm(t *testing.T) {
	for _, name := range []string{"avx2", "avx512"} {
		t.Run(name, func(t *testing.T) {
			restore, ok := SwitchISA(name)
			if !ok || name == "avx512" && !cpu.X86.HasAVX512VNNI || !cpu.X86.HasBMI2 {
				t.Skipf("this machine has no %s with what else it takes, VNNI or BMI2", name)
			}
			defer restore()
			testSumLinesAsm(t)
		})
	}
}

func testSumLinesAsm(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for _, d := range []int{64, 128, 192} {
		for range 100 {
			l := randomLines(r, d, 1+r.IntN(4), 1+r.IntN(5))
			ldd := d + r.IntN(8)
			dst := random(r, (l.n-1)*ldd+d)
			want := slices.Clone(dst)
			sumLinesInt(want, ldd, l.whole, l.ids, l.first, l.ends, l.scales, l.groups, l.n)
			SumLines(dst, ldd, l.whole, l.ids, l.first, l.ends, l.scales, l.groups)
			if !slices.Equal(bits(dst), bits(want)) {
				t.Fatalf("d %d, %d lines of %d groups: other bits than sumLinesInt", d, l.n, l.groups)
			}
		}
	}
	table := NewTable(make([]int8, 64), []float32{255}, 64)
	for i := range table.data {
		table.data[i] = int8(2*i - 128)
	}
	const n = 3*maxSummedIDs + 5
	dst, want := make([]float32, 64), make([]float32, 64)
	SumLines(dst, 64, table, make([]uint32, n), 0, []uint32{n}, []float32{.7}, 1)
	sumLinesInt(want, 64, table, make([]uint32, n), 0, []uint32{n}, []float32{.7}, 1, 1)
	if !slices.Equal(bits(dst), bits(want)) {
		t.Fatal("a long group: other bits than sumLinesInt")
	}
}
