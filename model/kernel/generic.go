package kernel

import (
	"math"
	"slices"
)

// The portable forms. They are the specification: every other version gives
// the same within rounding.

const genericWidth = 16

// gemmGeneric is
//
//	for i, j:
//		s = 0
//		for k: s += x.a[i,k]·x.b[k,j]
//		for k: s += y.a[i,k]·y.b[k,j]
//		c[i,j] = s + add[i,j]
//
// in blocks of two rows and four columns, which the registers hold.
func gemmGeneric(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	n := x.b.N
	for j := 0; j < n; j += 4 {
		cols := min(4, n-j)
		i := 0
		for ; i+2 <= m; i += 2 {
			var s [8]float32
			tile2x4(i, j, x, &s)
			if y.b != nil {
				tile2x4(i, j, y, &s)
			}
			store(c[i*ldc+j:][:cols], s[:4], add, i*ldadd+j)
			store(c[(i+1)*ldc+j:][:cols], s[4:], add, (i+1)*ldadd+j)
		}
		if i < m {
			var s [4]float32
			tile1x4(i, j, x, &s)
			if y.b != nil {
				tile1x4(i, j, y, &s)
			}
			store(c[i*ldc+j:][:cols], s[:], add, i*ldadd+j)
		}
	}
}

// panel returns the panel that has column j, from that column on.
func (p *Packed) panel(j int) []float32 {
	return p.data[j/p.width*p.width*p.K+j%p.width:]
}

// tile2x4 adds the product of rows i and i+1 with columns [j, j+4).
func tile2x4(i, j int, t term, s *[8]float32) {
	a0 := t.a[i*t.lda:][:t.b.K]
	a1 := t.a[(i+1)*t.lda:][:len(a0)]
	panel := t.b.panel(j)
	s00, s01, s02, s03, s10, s11, s12, s13 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	for k, x := range a0 {
		y := a1[k]
		b := (*[4]float32)(panel[k*genericWidth:])
		s00 += x * b[0]
		s01 += x * b[1]
		s02 += x * b[2]
		s03 += x * b[3]
		s10 += y * b[0]
		s11 += y * b[1]
		s12 += y * b[2]
		s13 += y * b[3]
	}
	*s = [8]float32{s00, s01, s02, s03, s10, s11, s12, s13}
}

// tile1x4 is one row of tile2x4.
func tile1x4(i, j int, t term, s *[4]float32) {
	panel := t.b.panel(j)
	s00, s01, s02, s03 := s[0], s[1], s[2], s[3]
	for k, x := range t.a[i*t.lda:][:t.b.K] {
		b := (*[4]float32)(panel[k*genericWidth:])
		s00 += x * b[0]
		s01 += x * b[1]
		s02 += x * b[2]
		s03 += x * b[3]
	}
	*s = [4]float32{s00, s01, s02, s03}
}

// store writes the first len(c) elements of s to c, plus those of add from at
// on where add is not nil.
func store(c, s, add []float32, at int) {
	s = s[:len(c)]
	if add == nil {
		copy(c, s)
		return
	}
	for j, v := range add[at:][:len(c)] {
		c[j] = s[j] + v
	}
}

// bfloat16 rounds to the nearest bfloat16, ties to even; a NaN stays one and a
// denormal becomes 0.
func bfloat16(x float32) uint16 {
	b := math.Float32bits(x)
	switch {
	case x != x:
		return uint16(b>>16 | 0x40)
	case b&0x7f800000 == 0:
		return uint16(b >> 16 & 0x8000)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// gemmTNGeneric is
//
//	for i, j: s = 0; for l < k: s += a[l,i]·b[l,j]; c[i,j] = s
//
// in blocks of four by two.
func gemmTNGeneric(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	for i := 0; i < m; i += 4 {
		for j := 0; j < n; j += 2 {
			if i+4 > m || j+2 > n {
				for ii := i; ii < min(i+4, m); ii++ {
					for jj := j; jj < min(j+2, n); jj++ {
						var s float32
						for l := 0; l < k; l++ {
							s += a[l*lda+ii] * b[l*ldb+jj]
						}
						c[ii*ldc+jj] = s
					}
				}
				continue
			}
			var s00, s01, s10, s11, s20, s21, s30, s31 float32
			for l := 0; l < k; l++ {
				x := (*[4]float32)(a[l*lda+i:])
				y := (*[2]float32)(b[l*ldb+j:])
				s00 += x[0] * y[0]
				s01 += x[0] * y[1]
				s10 += x[1] * y[0]
				s11 += x[1] * y[1]
				s20 += x[2] * y[0]
				s21 += x[2] * y[1]
				s30 += x[3] * y[0]
				s31 += x[3] * y[1]
			}
			c[i*ldc+j], c[i*ldc+j+1] = s00, s01
			c[(i+1)*ldc+j], c[(i+1)*ldc+j+1] = s10, s11
			c[(i+2)*ldc+j], c[(i+2)*ldc+j+1] = s20, s21
			c[(i+3)*ldc+j], c[(i+3)*ldc+j+1] = s30, s31
		}
	}
}

// sigmoidLimit bounds the argument of σ: σ(−29) is 3e-13, not 0, so a gate
// never multiplies an infinity by 0.
const sigmoidLimit = 29

func sigmoid32(x float32) float32 {
	x = min(max(x, -sigmoidLimit), sigmoidLimit)
	return float32(1 / (1 + math.Exp(-float64(x))))
}

func tanh32(x float32) float32 { return float32(math.Tanh(float64(x))) }

func gatesGeneric(rows int, z []float32, ldz int, c []float32, ldc int, h []float32, ldh, hidden int) {
	for r := range rows {
		zi, zf, zg, zo := split4(z[r*ldz:], hidden)
		c, h := c[r*ldc:][:hidden], h[r*ldh:][:hidden]
		for j := range c {
			c[j] = sigmoid32(zf[j])*c[j] + sigmoid32(zi[j])*tanh32(zg[j])
			h[j] = sigmoid32(zo[j]) * tanh32(c[j])
		}
	}
}

func gatesTrainGeneric(z, cPrev, c, tanhC, h []float32, hidden int) {
	zi, zf, zg, zo := split4(z, hidden)
	cPrev, c, tanhC, h = cPrev[:hidden], c[:hidden], tanhC[:hidden], h[:hidden]
	for j := range c {
		zi[j], zf[j], zg[j], zo[j] = sigmoid32(zi[j]), sigmoid32(zf[j]), tanh32(zg[j]), sigmoid32(zo[j])
		c[j] = zf[j]*cPrev[j] + zi[j]*zg[j]
		tanhC[j] = tanh32(c[j])
		h[j] = zo[j] * tanhC[j]
	}
}

func gatesBackwardGeneric(dz, z, cPrev, tanhC, dh, dc []float32, hidden int) {
	zi, zf, zg, zo := split4(z, hidden)
	di, df, dg, do := split4(dz, hidden)
	cPrev, tanhC, dh, dc = cPrev[:hidden], tanhC[:hidden], dh[:hidden], dc[:hidden]
	for j := range dc {
		i, f, g, o, tc := zi[j], zf[j], zg[j], zo[j], tanhC[j]
		d := dc[j] + dh[j]*o*(1-tc*tc)
		di[j] = d * g * i * (1 - i)
		df[j] = d * cPrev[j] * f * (1 - f)
		dg[j] = d * i * (1 - g*g)
		do[j] = dh[j] * tc * o * (1 - o)
		dc[j] = d * f
	}
}

func split4(z []float32, hidden int) (i, f, g, o []float32) {
	return z[:hidden], z[hidden:][:hidden], z[2*hidden:][:hidden], z[3*hidden:][:hidden]
}

func sumLinesGeneric(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups, lines int) bool {
	for l := range lines {
		out := dst[l*ldd:][:t.d]
		for g := l * groups; g < (l+1)*groups; g++ {
			for _, id := range ids[first:groupEnd[g]] {
				if uint64(id) >= uint64(t.rows) {
					return false
				}
				w := groupScale[g] * t.scale[id]
				for j, q := range t.data[int(id)*t.d:][:t.d] {
					out[j] += w * float32(q)
				}
			}
			first = groupEnd[g]
		}
	}
	return true
}

// maxSummedIDs is how many products of an int8 and a uint8, one an id, an int32 can
// sum.
const maxSummedIDs = 1 << 16

// sumLinesInt is SumLines of a table with multiples, in integers within
// a group; other implementations give the same bits.
func sumLinesInt(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups, lines int) bool {
	sum, part := make([]float32, t.d), make([]int32, t.d)
	for l := range lines {
		clear(sum)
		for g := l * groups; g < (l+1)*groups; g++ {
			for some := range slices.Chunk(ids[first:groupEnd[g]], maxSummedIDs) {
				clear(part)
				for _, id := range some {
					if uint64(id) >= uint64(t.rows) {
						return false
					}
					for j, q := range t.data[int(id)*t.d:][:t.d] {
						part[j] += int32(t.multiples[id]) * int32(q)
					}
				}
				w := groupScale[g] * t.unit
				for j, n := range part {
					sum[j] += float32(w * float32(n)) // not fused
				}
			}
			first = groupEnd[g]
		}
		addScaledGeneric(dst[l*ldd:][:t.d], sum, 1)
	}
	return true
}

func sumRowsF32Generic(dst, table []float32, rows int, ids []uint32, scale float32) bool {
	for _, id := range ids {
		if uint64(id) >= uint64(rows) {
			return false
		}
		addScaledGeneric(dst, table[int(id)*len(dst):], scale)
	}
	return true
}

func addScaledGeneric(dst, x []float32, scale float32) {
	x = x[:len(dst)]
	for j, v := range x {
		dst[j] += scale * v
	}
}

// Conversions keep a product from being rounded together with the sum after it.
func (a *AdamW) updateGeneric(w, g, m, v []float32) {
	g, m, v = g[:len(w)], m[:len(w)], v[:len(w)]
	for i, x := range g {
		x *= a.Clip
		m[i] = float32(Beta1*m[i]) + float32((1-Beta1)*x)
		v[i] = float32(Beta2*v[i]) + float32((1-Beta2)*x*x)
		root := float32(math.Sqrt(float64(v[i] * a.Correction)))
		w[i] -= a.Step*m[i]/(root+a.Epsilon) + float32(a.Decay*w[i])
	}
}

func sumGeneric(dst, x, y, z []float32) {
	x, y, z = x[:len(dst)], y[:len(dst)], z[:len(dst)]
	for j, v := range x {
		dst[j] = v + y[j] + z[j]
	}
}

func standardiseGeneric(rows int, dst, x, mean, invStd []float32, limit float32) {
	n := len(mean)
	invStd = invStd[:n]
	for r := range rows {
		dst, x := dst[r*n:][:n], x[r*n:][:n]
		for j := range dst {
			v := (x[j] - mean[j]) * invStd[j]
			if v > limit {
				v = limit
			}
			if v < -limit {
				v = -limit
			}
			dst[j] = v
		}
	}
}

func tanhGeneric(x []float32) {
	for j, v := range x {
		x[j] = tanh32(v)
	}
}

// softmaxGeneric subtracts the maximum first, so that nothing overflows.
func softmaxGeneric(rows int, x []float32, ld, n int) {
	for r := range rows {
		x := x[r*ld:][:n]
		top := x[0]
		for _, v := range x[1:] {
			top = max(top, v)
		}
		var sum float32
		for j, v := range x {
			x[j] = float32(math.Exp(float64(v - top)))
			sum += x[j]
		}
		for j := range x {
			x[j] /= sum
		}
	}
}
