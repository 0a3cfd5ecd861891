package model

import "math"

// QuantizeTable rounds table, [rows, d], to int8 with one scale a row:
// table[r,j] ≈ scale[r]·q[r,j], off by at most scale[r]/2, with q in ±127. A
// row of zeros has scale 0. The numbers must be finite.
func QuantizeTable(table []float32, rows, d int) (q []int8, scale []float32) {
	if len(table) != rows*d {
		panic("model: QuantizeTable: table is not [rows, d]")
	}
	q, scale = make([]int8, rows*d), make([]float32, rows)
	for r := range rows {
		row := table[r*d : (r+1)*d]
		var top float32
		for _, v := range row {
			top = max(top, max(v, -v))
		}
		s := top / 127
		if s == 0 {
			continue
		}
		scale[r] = s
		inverse := 1 / float64(s)
		for j, v := range row {
			// The clamp is for scales so small that they are rounded much.
			n := math.RoundToEven(float64(v) * inverse)
			q[r*d+j] = int8(max(-127, min(127, n)))
		}
	}
	return q, scale
}

// RoundBFloat16 is x rounded to bfloat16, to nearest, ties to even: 8 bits of a
// number's 24. Matrices of such numbers take half the time on matrix tiles. The
// numbers must be finite.
func RoundBFloat16(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		b := math.Float32bits(v)
		y[i] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
	}
	return y
}
