//go:build !noasm

package kernel

// chunkRows is how many rows of a go through all panels before the next ones
// do: few enough to stay in the nearest caches.
const chunkRows = 112

// tileRows is the largest number of rows of a tile.
func (i isa) tileRows() int {
	if i == isaAVX512 {
		return 14
	}
	return 6
}

// gemmAsm is gemmGeneric.
func gemmAsm(m int, a []float32, lda int, b *Packed, c []float32, ldc int, accumulate bool) {
	for m > chunkRows {
		gemmChunk(chunkRows, a, lda, b, c, ldc, accumulate)
		m -= chunkRows
		a, c = a[chunkRows*lda:], c[chunkRows*ldc:]
	}
	gemmChunk(m, a, lda, b, c, ldc, accumulate)
}

// gemmChunk goes through the panels, and in each through tiles of about equally
// many rows.
func gemmChunk(m int, a []float32, lda int, b *Packed, c []float32, ldc int, accumulate bool) {
	w := b.width
	full := b.N / w
	p := 0
	if panels := gemmPanels(m); panels > 1 {
		for ; p+panels <= full; p += panels {
			gemmTile(m, panels, a, lda, b, p, c[p*w:], ldc, accumulate)
		}
	}
	tiles := (m + b.isa.tileRows() - 1) / b.isa.tileRows()
	for ; p < full; p++ {
		for t, i := 0, 0; t < tiles; t++ {
			rows := (m - i) / (tiles - t)
			gemmTile(rows, 1, a[i*lda:], lda, b, p, c[i*ldc+p*w:], ldc, accumulate)
			i += rows
		}
	}
	rest := b.N - full*w
	if rest == 0 {
		return
	}
	var out [14 * 32]float32 // tileRows × width of the largest tile
	for t, i := 0, 0; t < tiles; t++ {
		rows := (m - i) / (tiles - t)
		gemmTile(rows, 1, a[i*lda:], lda, b, full, out[:], w, false)
		for r := range rows {
			store(c[(i+r)*ldc+full*w:][:rest], out[r*w:][:rest], accumulate)
		}
		i += rows
	}
}

// gemmPanels is how many panels the tiles of so few rows take at once.
func gemmPanels(m int) int {
	switch m {
	case 1:
		return 4
	case 2, 3:
		return 2
	}
	return 1
}

// gemmTile multiplies the first rows of a with some panels of b from panel p.
func gemmTile(rows, panels int, a []float32, lda int, b *Packed, p int, c []float32, ldc int, accumulate bool) {
	a0, c0 := &a[0], &c[0]
	size := b.K * b.width
	b0 := &b.data[p*size]
	la, lb, k, lc := uintptr(4*lda), uintptr(4*size), uintptr(b.K), uintptr(4*ldc)
	var acc uintptr
	if accumulate {
		acc = 1
	}
	if b.isa == isaAVX512 {
		switch rows {
		case 1:
			if panels == 4 {
				gemm1x128AVX512(a0, la, b0, lb, k, c0, lc, acc)
			} else {
				gemm1x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
			}
		case 2:
			if panels == 2 {
				gemm2x64AVX512(a0, la, b0, lb, k, c0, lc, acc)
			} else {
				gemm2x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
			}
		case 3:
			if panels == 2 {
				gemm3x64AVX512(a0, la, b0, lb, k, c0, lc, acc)
			} else {
				gemm3x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
			}
		case 4:
			gemm4x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 5:
			gemm5x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 6:
			gemm6x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 7:
			gemm7x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 8:
			gemm8x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 9:
			gemm9x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 10:
			gemm10x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 11:
			gemm11x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 12:
			gemm12x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 13:
			gemm13x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		case 14:
			gemm14x32AVX512(a0, la, b0, lb, k, c0, lc, acc)
		}
		return
	}
	switch rows {
	case 1:
		if panels == 4 {
			gemm1x64AVX2(a0, la, b0, lb, k, c0, lc, acc)
		} else {
			gemm1x16AVX2(a0, la, b0, lb, k, c0, lc, acc)
		}
	case 2:
		if panels == 2 {
			gemm2x32AVX2(a0, la, b0, lb, k, c0, lc, acc)
		} else {
			gemm2x16AVX2(a0, la, b0, lb, k, c0, lc, acc)
		}
	case 3:
		if panels == 2 {
			gemm3x32AVX2(a0, la, b0, lb, k, c0, lc, acc)
		} else {
			gemm3x16AVX2(a0, la, b0, lb, k, c0, lc, acc)
		}
	case 4:
		gemm4x16AVX2(a0, la, b0, lb, k, c0, lc, acc)
	case 5:
		gemm5x16AVX2(a0, la, b0, lb, k, c0, lc, acc)
	case 6:
		gemm6x16AVX2(a0, la, b0, lb, k, c0, lc, acc)
	}
}

// tailMask[16-n:] has n columns set.
var tailMask = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}

// gemmTNAsm is gemmTNGeneric.
func gemmTNAsm(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	w, most := active.panelWidth(), active.tileRows()
	var acc uintptr
	if accumulate {
		acc = 1
	}
	for j := 0; j < n; j += w {
		cols := min(w, n-j)
		if active == isaAVX2 && cols < w {
			most = 4
		}
		tiles := (m + most - 1) / most
		for t, i := 0, 0; t < tiles; t++ {
			rows := (m - i) / (tiles - t)
			gemmTNTile(rows, cols, &a[i], uintptr(4*lda), &b[j], uintptr(4*ldb), uintptr(k), &c[i*ldc+j], uintptr(4*ldc), acc)
			i += rows
		}
	}
}

func gemmTNTile(rows, cols int, a *float32, lda uintptr, b *float32, ldb, k uintptr, c *float32, ldc, acc uintptr) {
	if active == isaAVX512 {
		mask := uint32(1)<<cols - 1 // all ones for 32
		switch rows {
		case 1:
			gemmTN1x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 2:
			gemmTN2x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 3:
			gemmTN3x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 4:
			gemmTN4x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 5:
			gemmTN5x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 6:
			gemmTN6x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 7:
			gemmTN7x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 8:
			gemmTN8x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 9:
			gemmTN9x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 10:
			gemmTN10x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 11:
			gemmTN11x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 12:
			gemmTN12x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 13:
			gemmTN13x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 14:
			gemmTN14x32AVX512(a, lda, b, ldb, k, c, ldc, acc, mask)
		}
		return
	}
	if cols < 16 {
		mask := (*[16]int32)(tailMask[16-cols:])
		switch rows {
		case 1:
			gemmTNTail1x16AVX2(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 2:
			gemmTNTail2x16AVX2(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 3:
			gemmTNTail3x16AVX2(a, lda, b, ldb, k, c, ldc, acc, mask)
		case 4:
			gemmTNTail4x16AVX2(a, lda, b, ldb, k, c, ldc, acc, mask)
		}
		return
	}
	switch rows {
	case 1:
		gemmTN1x16AVX2(a, lda, b, ldb, k, c, ldc, acc)
	case 2:
		gemmTN2x16AVX2(a, lda, b, ldb, k, c, ldc, acc)
	case 3:
		gemmTN3x16AVX2(a, lda, b, ldb, k, c, ldc, acc)
	case 4:
		gemmTN4x16AVX2(a, lda, b, ldb, k, c, ldc, acc)
	case 5:
		gemmTN5x16AVX2(a, lda, b, ldb, k, c, ldc, acc)
	case 6:
		gemmTN6x16AVX2(a, lda, b, ldb, k, c, ldc, acc)
	}
}
