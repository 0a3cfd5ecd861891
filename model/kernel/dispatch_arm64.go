//go:build !noasm

package kernel

// Every processor of this architecture has NEON.

func supported(i isa) bool {
	return i == isaGeneric || i == isaNEON || i == isaBFMMLA && bfmmlaSupported()
}

func (isa) panelWidth() int { return genericWidth }

func (isa) tileRows() int { return 6 }

func (isa) wideRows() int { return 0 }

func gemm(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	switch x.b.isa {
	case isaGeneric:
		gemmGeneric(m, x, y, add, ldadd, c, ldc)
	case isaBFMMLA:
		gemmBFMMLA(m, x, y, add, ldadd, c, ldc)
	default:
		gemmAsm(m, x, y, add, ldadd, c, ldc)
	}
}

// runTile calls the assembly of a tile's size.
func runTile(t *tile, _ isa, rows, cols int) {
	switch cols {
	case 16:
		switch rows {
		case 1:
			gemm1x16NEON(t)
		case 2:
			gemm2x16NEON(t)
		case 3:
			gemm3x16NEON(t)
		case 4:
			gemm4x16NEON(t)
		case 5:
			gemm5x16NEON(t)
		case 6:
			gemm6x16NEON(t)
		}
	case 8:
		switch rows {
		case 1:
			gemm1x8NEON(t)
		case 2:
			gemm2x8NEON(t)
		case 3:
			gemm3x8NEON(t)
		case 4:
			gemm4x8NEON(t)
		case 5:
			gemm5x8NEON(t)
		case 6:
			gemm6x8NEON(t)
		}
	case 32:
		if rows == 2 {
			gemm2x32NEON(t)
		} else {
			gemm3x32NEON(t)
		}
	case 64:
		gemm1x64NEON(t)
	}
}

func gates(rows int, z []float32, ldz int, c []float32, ldc int, h []float32, ldh, hidden int) {
	if active == isaGeneric {
		gatesGeneric(rows, z, ldz, c, ldc, h, ldh, hidden)
		return
	}
	whole := hidden &^ 3
	for r := range rows {
		z, c, h := z[r*ldz:], c[r*ldc:], h[r*ldh:]
		if whole > 0 {
			gatesNEON(uintptr(whole), &z[0], uintptr(4*hidden), &c[0], &h[0])
		}
		if whole < hidden {
			gatesPart(z, c, h, whole, hidden)
		}
	}
}

// gatesPart computes the last units of a row, fewer than four, from some on.
func gatesPart(z, c, h []float32, from, hidden int) {
	n := hidden - from
	var part [16]float32
	var cell, state [4]float32
	for g := range 4 {
		copy(part[4*g:], z[g*hidden+from:][:n])
	}
	copy(cell[:], c[from:][:n])
	gatesNEON(4, &part[0], 16, &cell[0], &state[0])
	copy(c[from:][:n], cell[:])
	copy(h[from:][:n], state[:])
}

// sumLines goes through columns of 64 in assembly, where there are no others.
func sumLines(dst []float32, ldd int, t *Table, ids []uint32, first uint32, groupEnd []uint32, groupScale []float32, groups, lines int) bool {
	if active == isaGeneric || t.d%64 != 0 {
		return sumLinesGeneric(dst, ldd, t, ids, first, groupEnd, groupScale, groups, lines)
	}
	for k, end := range groupEnd[:lines*groups] {
		if end == first {
			continue
		}
		out := dst[k/groups*ldd:]
		for j := 0; j < t.d; j += 64 {
			if !sumRowsNEON(&out[j], &t.data[j], uintptr(t.d), &t.scale[0], uintptr(t.rows), &ids[first], uintptr(end-first), groupScale[k]) {
				return false
			}
		}
		first = end
	}
	return true
}

func tanh(x []float32) {
	if active == isaGeneric {
		tanhGeneric(x)
		return
	}
	whole := len(x) &^ 3
	if whole > 0 {
		tanhNEON(uintptr(whole), &x[0])
	}
	if whole < len(x) {
		var last [4]float32
		n := copy(last[:], x[whole:])
		tanhNEON(4, &last[0])
		copy(x[whole:], last[:n])
	}
}
