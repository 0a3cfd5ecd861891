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
	// Where all numbers are below 2⁻¹³⁴ or so, the unit is the smallest float32, and
	// the largest scale may be less than 128 times that.
	unit := max(math.SmallestNonzeroFloat32, ceilPowerOfTwo(maxAbs(table)/127/255))
	for r := range rows {
		row := table[r*d : (r+1)*d]
		m := math.Ceil(maxAbs(row) / 127 / unit)
		if m == 0 {
			continue
		}
		// Rounding may have lowered the row's largest number, so that a smaller
		// scale would do now: the one that it was rounded with stays.
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

// allMultiples reports whether each number is a whole multiple of s, within a
// thousandth of s.
func allMultiples(x []float32, s float64) bool {
	for _, v := range x {
		if n := float64(v) / s; math.Abs(n-math.Round(n)) > 1e-3 {
			return false
		}
	}
	return true
}

// maxAbs is the largest magnitude in x, 0 where x is empty.
func maxAbs(x []float32) float64 {
	var m float32
	for _, v := range x {
		m = max(m, v, -v)
	}
	return float64(m)
}

// ceilPowerOfTwo is the smallest power of two that is at least x, and 0 where x
// is 0.
func ceilPowerOfTwo(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction == 0.5 {
		return x
	}
	return math.Ldexp(math.Ceil(fraction), exponent)
}

// RoundBFloat16 is x rounded to bfloat16, to nearest, ties to even: 8 bits of a
// number's 24. Products of such matrices on matrix tiles take two thirds of the
// time. What is not finite stays so; from 3.3962e38 on a number becomes infinite.
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
