//go:build cuda && cgo

package cuda

import (
	"math"
	"testing"
)

// TestHalves rounds every float16, and what lies between it and the next one.
func TestHalves(t *testing.T) {
	value := func(h uint16) float64 {
		exp, frac := int(h>>10&31), float64(h&1023)
		if exp == 0 {
			return math.Ldexp(frac, -24)
		}
		return math.Ldexp(1024+frac, exp-25)
	}
	for h := range uint16(0x7bff) {
		here, next := value(h), value(h+1)
		middle := (here + next) / 2
		even := h + h&1
		cases := map[float64]uint16{here: h, middle: even,
			float64(math.Nextafter32(float32(middle), 0)): h, float64(math.Nextafter32(float32(middle), 1e9)): h + 1}
		for v, want := range cases {
			got := halves([]float32{float32(v), float32(-v)})
			if got[0] != want || got[1] != want|0x8000 {
				t.Fatalf("halves(±%g) = %#x, want %#x and its negative", v, got, want)
			}
		}
	}
}

// TestPack wants each order to hold every weight of a block once.
func TestPack(t *testing.T) {
	for name, of := range map[string]order{"float": orderFloat, "wmma": orderWMMA, "mma": orderMMA} {
		seen := map[[3]int]bool{}
		for i := range blockSize {
			row, gate, unit := of(i)
			if row < 0 || row >= tileRows || gate < 0 || gate >= 4 || unit < 0 || unit >= tileUnits {
				t.Fatalf("%s: number %d is row %d, gate %d, unit %d", name, i, row, gate, unit)
			}
			seen[[3]int{row, gate, unit}] = true
		}
		if len(seen) != blockSize {
			t.Errorf("%s: %d weights of %d", name, len(seen), blockSize)
		}
	}
}
