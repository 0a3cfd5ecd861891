//go:build !noasm

package kernel

// tileRows is the largest number of rows of a tile of one panel.
func (i isa) tileRows() int {
	if i >= isaAVX512 {
		return maxTileRows
	}
	return 6
}

// wideRows is the largest number of rows of a tile of one and a half panels, 0 where
// there is none.
func (i isa) wideRows() int {
	if i == isaAVX2 {
		return 4
	}
	return 0
}

// runTile calls the assembly of a tile's size.
func runTile(t *tile, i isa, rows, cols int) {
	if i == isaAVX512 {
		switch cols {
		case 32:
			switch rows {
			case 1:
				gemm1x32AVX512(t)
			case 2:
				gemm2x32AVX512(t)
			case 3:
				gemm3x32AVX512(t)
			case 4:
				gemm4x32AVX512(t)
			case 5:
				gemm5x32AVX512(t)
			case 6:
				gemm6x32AVX512(t)
			case 7:
				gemm7x32AVX512(t)
			case 8:
				gemm8x32AVX512(t)
			case 9:
				gemm9x32AVX512(t)
			case 10:
				gemm10x32AVX512(t)
			case 11:
				gemm11x32AVX512(t)
			case 12:
				gemm12x32AVX512(t)
			case 13:
				gemm13x32AVX512(t)
			case 14:
				gemm14x32AVX512(t)
			}
		case 16:
			switch rows {
			case 1:
				gemm1x16AVX512(t)
			case 2:
				gemm2x16AVX512(t)
			case 3:
				gemm3x16AVX512(t)
			case 4:
				gemm4x16AVX512(t)
			case 5:
				gemm5x16AVX512(t)
			case 6:
				gemm6x16AVX512(t)
			case 7:
				gemm7x16AVX512(t)
			case 8:
				gemm8x16AVX512(t)
			case 9:
				gemm9x16AVX512(t)
			case 10:
				gemm10x16AVX512(t)
			case 11:
				gemm11x16AVX512(t)
			case 12:
				gemm12x16AVX512(t)
			case 13:
				gemm13x16AVX512(t)
			case 14:
				gemm14x16AVX512(t)
			}
		case 64:
			switch rows {
			case 2:
				gemm2x64AVX512(t)
			case 3:
				gemm3x64AVX512(t)
			case 4:
				gemm4x64AVX512(t)
			case 5:
				gemm5x64AVX512(t)
			case 6:
				gemm6x64AVX512(t)
			}
		case 128:
			gemm1x128AVX512(t)
		}
		return
	}
	switch cols {
	case 16:
		switch rows {
		case 1:
			gemm1x16AVX2(t)
		case 2:
			gemm2x16AVX2(t)
		case 3:
			gemm3x16AVX2(t)
		case 4:
			gemm4x16AVX2(t)
		case 5:
			gemm5x16AVX2(t)
		case 6:
			gemm6x16AVX2(t)
		}
	case 8:
		switch rows {
		case 1:
			gemm1x8AVX2(t)
		case 2:
			gemm2x8AVX2(t)
		case 3:
			gemm3x8AVX2(t)
		case 4:
			gemm4x8AVX2(t)
		case 5:
			gemm5x8AVX2(t)
		case 6:
			gemm6x8AVX2(t)
		}
	case 24:
		switch rows {
		case 1:
			gemm1x24AVX2(t)
		case 2:
			gemm2x24AVX2(t)
		case 3:
			gemm3x24AVX2(t)
		case 4:
			gemm4x24AVX2(t)
		}
	case 32:
		if rows == 2 {
			gemm2x32AVX2(t)
		} else {
			gemm3x32AVX2(t)
		}
	case 64:
		gemm1x64AVX2(t)
	}
}

// tailMask[16-n:] has n columns set.
var tailMask = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}

// gemmTNAsm is gemmTNGeneric.
func gemmTNAsm(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	w, most := active.panelWidth(), active.tileRows()
	for j := 0; j < n; j += w {
		cols := min(w, n-j)
		if active < isaAVX512 && cols < w {
			most = 4
		}
		tiles := (m + most - 1) / most
		for t, i := 0, 0; t < tiles; t++ {
			rows := (m - i) / (tiles - t)
			gemmTNTile(rows, cols, &a[i], uintptr(4*lda), &b[j], uintptr(4*ldb), uintptr(k), &c[i*ldc+j], uintptr(4*ldc))
			i += rows
		}
	}
}

func gemmTNTile(rows, cols int, a *float32, lda uintptr, b *float32, ldb, k uintptr, c *float32, ldc uintptr) {
	if active >= isaAVX512 {
		mask := uint32(1)<<cols - 1 // all ones for 32
		switch rows {
		case 1:
			gemmTN1x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 2:
			gemmTN2x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 3:
			gemmTN3x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 4:
			gemmTN4x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 5:
			gemmTN5x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 6:
			gemmTN6x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 7:
			gemmTN7x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 8:
			gemmTN8x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 9:
			gemmTN9x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 10:
			gemmTN10x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 11:
			gemmTN11x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 12:
			gemmTN12x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 13:
			gemmTN13x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		case 14:
			gemmTN14x32AVX512(a, lda, b, ldb, k, c, ldc, mask)
		}
		return
	}
	if cols < 16 {
		mask := (*[16]int32)(tailMask[16-cols:])
		switch rows {
		case 1:
			gemmTNTail1x16AVX2(a, lda, b, ldb, k, c, ldc, mask)
		case 2:
			gemmTNTail2x16AVX2(a, lda, b, ldb, k, c, ldc, mask)
		case 3:
			gemmTNTail3x16AVX2(a, lda, b, ldb, k, c, ldc, mask)
		case 4:
			gemmTNTail4x16AVX2(a, lda, b, ldb, k, c, ldc, mask)
		}
		return
	}
	switch rows {
	case 1:
		gemmTN1x16AVX2(a, lda, b, ldb, k, c, ldc)
	case 2:
		gemmTN2x16AVX2(a, lda, b, ldb, k, c, ldc)
	case 3:
		gemmTN3x16AVX2(a, lda, b, ldb, k, c, ldc)
	case 4:
		gemmTN4x16AVX2(a, lda, b, ldb, k, c, ldc)
	case 5:
		gemmTN5x16AVX2(a, lda, b, ldb, k, c, ldc)
	case 6:
		gemmTN6x16AVX2(a, lda, b, ldb, k, c, ldc)
	}
}
