package model

import "math"

// QuantizeTable rounds table, [rows, d], to int8 with one scale a row:
// table[r,j] ≈ scale[r]·q[r,j], off by at most scale[r]/2, with q in ±127. The
// scales are whole multiples, up to 255, of one power of two, so that
// kernel.SumLines can add integers; the largest is 128 times that power or
// more. A row of zeros has scale 0. Rounding what was rounded so before
// changes nothing. The numbers must be finite.
func QuantizeTable(table []float32, rows, d int) (q []int8, scale []float32) {
	if len(table) != rows*d {
		panic("model: QuantizeTable: table is not [rows, d]")
	}
	q, scale = make([]int8, rows*d), make([]float32, rows)
	// Of numbers below 2⁻¹³⁴ or so the power is as small as a float32 can be, and
	// the largest scale a smaller multiple.
	unit := max(math.SmallestNonzeroFloat32, powerAbove(top(table)/127/255))
	for r := range rows {
		row := table[r*d : (r+1)*d]
		m := math.Ceil(top(row) / 127 / unit)
		if m == 0 {
			continue
		}
		// A row that was rounded before may have lost its largest number's last
		// part, and its scale be one multiple more.
		if m < 255 && !allMultiples(row, m*unit) && allMultiples(row, (m+1)*unit) {
			m++
		}
		s := m * unit
		scale[r] = float32(s)
		for j, v := range row {
			q[r*d+j] = int8(math.RoundToEven(float64(v) / s))
		}
	}
	return q, scale
}

// allMultiples reports whether each number is a whole multiple of s, give or
// take a thousandth.
func allMultiples(x []float32, s float64) bool {
	for _, v := range x {
		if n := float64(v) / s; math.Abs(n-math.Round(n)) > 1e-3 {
			return false
		}
	}
	return true
}

// top is the largest magnitude.
func top(x []float32) float64 {
	var top float32
	for _, v := range x {
		top = max(top, v, -v)
	}
	return float64(top)
}

// powerAbove is the least power of two from x on, or 0 of 0.
func powerAbove(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction == 0.5 {
		return x
	}
	return math.Ldexp(math.Ceil(fraction), exponent)
}

// RoundBFloat16 is x rounded to bfloat16, to nearest, ties to even: 8 bits of a
// number's 24. Products of such matrices on matrix tiles take two thirds of the
// time. What is not finite stays so; above 3.38e38 a number becomes infinite.
func RoundBFloat16(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		if v-v != 0 {
			y[i] = v
			continue
		}
		b := math.Float32bits(v)
		y[i] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
	}
	return y
}
