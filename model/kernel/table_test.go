package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNewTable(t *testing.T) {
	for _, c := range []struct {
		name      string
		scale     []float32
		multiples []uint8 // nil: none
	}{
		{"eighths", []float32{.125, 0, .25, 31.875}, []uint8{1, 0, 2, 255}},
		{"eighths and one more", []float32{.125, 32}, nil},
		{"finest unit", []float32{3, 6}, []uint8{96, 192}},
		{"a power of two", []float32{1}, []uint8{128}},
		{"thirds", []float32{1, 1.0 / 3}, nil},
		{"a bit too many", []float32{1, 1.0 / 256}, nil},
		{"zeros", []float32{0, 0}, []uint8{0, 0}},
		{"none", nil, []uint8{}},
		{"negative", []float32{1, -1}, nil},
		{"all negative", []float32{-1}, nil},
		{"NaN", []float32{1, nan}, nil},
		{"infinite", []float32{inf, 1}, nil},
		{"denormal", []float32{0x1p-149, 0x3p-149}, []uint8{1, 3}},
		{"large", []float32{0x1.fep127, 0x1p120}, []uint8{255, 1}},
	} {
		table := NewTable(make([]int8, 2*len(c.scale)), c.scale, 2)
		if !slices.Equal(table.multiples, c.multiples) || (table.multiples == nil) != (c.multiples == nil) {
			t.Errorf("%s: got %v of %g, want %v", c.name, table.multiples, table.unit, c.multiples)
		}
		for r, m := range table.multiples {
			if got := float32(m) * table.unit; got != c.scale[r] {
				t.Errorf("%s: %d·%g is %g, want %g", c.name, m, table.unit, got, c.scale[r])
			}
		}
	}
}

// The sum in integers is exact where scales and sums fit float32, so that
// it is the sum by the definition, in float64.
func TestSumLinesInt(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	l := randomLines(r, 5, 3, 4)
	for i := range l.scales {
		l.scales[i] = float32(r.IntN(16)) / 8
	}
	want, got := make([]float64, l.n*5), make([]float32, l.n*5)
	at := l.first
	for g, end := range l.ends {
		for _, id := range l.ids[at:end] {
			for j := range 5 {
				want[g/3*5+j] += float64(l.scales[g]) * float64(l.whole.scale[id]) * float64(l.whole.data[int(id)*5+j])
			}
		}
		at = end
	}
	if !sumLinesInt(got, 5, l.whole, l.ids, l.first, l.ends, l.scales, 3, l.n) {
		t.Fatal("an id is outside the table")
	}
	for i, w := range want {
		if float64(got[i]) != w {
			t.Errorf("sum %d: got %v, want %v", i, got[i], w)
		}
	}
}

// An id outside the table is seen wherever it stands in a group, and no id
// after the last.
func TestSumLinesOutside(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		table := NewTable(make([]int8, 64*4), []float32{1, 2, 3, 4}, 64)
		for n := 1; n < 12; n++ {
			for bad := range n + 1 {
				ids := make([]uint32, n+4)
				ids[bad] = 4 + uint32(bad)<<28
				panics := func() (yes bool) {
					defer func() { yes = recover() != nil }()
					SumLines(make([]float32, 64), 64, table, ids, 0, []uint32{uint32(n)}, []float32{1}, 1)
					return
				}()
				if panics != (bad < n) {
					t.Errorf("id %d of %d is outside: panics is %v", bad, n, panics)
				}
			}
		}
	})
}

// A group of so many ids that a sum of int32 would overflow. Float32 loses some
// of what it adds to a large sum.
func TestSumLinesMany(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		const n = 200_003
		data := make([]int8, 64)
		for i := range data {
			data[i] = int8(2*i - 128) // the first is the least there is
		}
		got := make([]float32, 64)
		SumLines(got, 64, NewTable(data, []float32{255}, 64), make([]uint32, n), 0, []uint32{n}, []float32{1}, 1)
		want := make([]float32, 64)
		for i, q := range data {
			want[i] = n * 255 * float32(q)
		}
		near(t, fmt.Sprintf("sum of %d", n), got, want, func(i int) float64 { return 1e-2 * math.Abs(float64(want[i])) })
	})
}
