package kernel

import "math"

// Table is an embedding table [rows, d] of int8 with one scale a row: row r
// stands for scale[r]·data[r].
type Table struct {
	data    []int8
	scale   []float32
	rows, d int

	// scale[r] = multiples[r]·unit, where the scales are such multiples.
	multiples []uint8
	unit      float32
}

// NewTable is the table of data [len(scale), d], which it shares with the
// caller, as it does scale. Where every scale is a whole multiple, 0 to 255, of
// one power of two, as model.QuantizeTable makes them, SumLines adds integers on
// processors that are good at it (AVX-512 with VNNI or AVX2, d in whole 64s).
func NewTable(data []int8, scale []float32, d int) *Table {
	if d < 0 || len(data) != len(scale)*d {
		panic("kernel: table is not [rows, d]")
	}
	t := &Table{data: data, scale: scale, rows: len(scale), d: d}
	var top float32
	for _, s := range scale {
		top = max(top, s)
	}
	if !(top <= math.MaxFloat32) {
		return t
	}
	// The finest unit of which the largest scale is at most 255 will do where
	// any does.
	t.unit = math.SmallestNonzeroFloat32
	for top > 255*t.unit {
		t.unit *= 2
	}
	t.multiples = make([]uint8, len(scale))
	for r, s := range scale {
		n := s / t.unit // exact: the unit is a power of two
		t.multiples[r] = uint8(n)
		if float32(t.multiples[r]) != n {
			t.multiples = nil
			break
		}
	}
	return t
}
