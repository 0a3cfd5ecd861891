//go:build !noasm

package kernel

// Products by BFMMLA, of two rows of a by two columns of b, four of K at once, of
// bfloat16 numbers with sums in float32: 16 multiply-adds where FMLA has 4.

const (
	bfmmlaRows  = 4  // of a tile: two pairs
	bfmmlaWidth = 16 // columns of a panel
	bfmmlaDepth = 8  // of K that a split takes at once
)

// bfmmlaTile is one call of a tile's assembly: c = first + second + add over some rows
// and 16 columns, the distances in bytes. add may be nil.
type (
	bfmmlaTile = struct {
		c             *float32
		ldc           uintptr // 0 where both rows are one
		add           *float32
		ldadd         uintptr
		first, second bfmmlaProduct
		//lint:ignore U1000 the assembly reads it
		end uintptr // 0: there is no third product
	}
	bfmmlaProduct = struct {
		blocks uintptr // of 4 in K
		a      *uint16
		pair   uintptr // from one pair of rows to the next
		b      *uint16
	}
)

// partSize is the number of elements of a packed k×n matrix.
func partSize(k, n int) int { return roundUp(k, bfmmlaDepth) * roundUp(n, bfmmlaWidth) }

// partStep is the distance of an element's parts.
const partStep = 4 * bfmmlaWidth

// partIndex is where part 0 of element (k, j) stands in a packed matrix, K deep: panels
// of 16 columns; in each, blocks of 4 of K; in each, the parts; in each, the columns
// with their 4 of K.
func partIndex(k, j, K, parts int) int {
	block := j/bfmmlaWidth*roundUp(K, bfmmlaDepth)/4 + k/4
	return parts*block*partStep + j%bfmmlaWidth*4 + k%4
}

// gemmBFMMLA is gemmGeneric with operands in parts.
func gemmBFMMLA(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	buf := partBuffers.Get().(*partBuffer)
	for row := 0; row < m; row += chunkRows {
		rows := min(chunkRows, m-row)
		buf.x = splitRows(buf.x, x, row, rows)
		if y.b != nil {
			buf.y = splitRows(buf.y, y, row, rows)
		}
		for j := 0; j < x.b.N; j += bfmmlaWidth {
			for i, size := 0, 0; i < rows; i += size {
				size = min(bfmmlaRows, rows-i)
				if size == 3 {
					size = 2
				}
				var t bfmmlaTile
				t.first = productBFMMLA(buf.x, x.b, i, j)
				if y.b != nil {
					t.second = productBFMMLA(buf.y, y.b, i, j)
				}
				if cols := x.b.N - j; cols < bfmmlaWidth {
					var out [bfmmlaRows * bfmmlaWidth]float32
					t.c, t.ldc = &out[0], 4*bfmmlaWidth
					runTileBFMMLA(&t, x.b, size)
					for r := range size {
						store(c[(row+i+r)*ldc+j:][:cols], out[r*bfmmlaWidth:], add, (row+i+r)*ldadd+j)
					}
					continue
				}
				t.c, t.ldc = &c[(row+i)*ldc+j], uintptr(4*ldc)
				if add != nil {
					t.add, t.ldadd = &add[(row+i)*ldadd+j], uintptr(4*ldadd)
				}
				runTileBFMMLA(&t, x.b, size)
			}
		}
	}
	partBuffers.Put(buf)
}

// splitRows splits rows of x.a into s, by pairs: of each, 4 of K at a time, the first
// row's and the second's first parts, then their second parts. A last row without
// another is its own.
func splitRows(s []uint16, x term, row, rows int) []uint16 {
	depth := roundUp(x.b.K, bfmmlaDepth)
	s = grow(s, 2*depth*roundUp(rows, 2))
	whole := x.b.K / bfmmlaDepth * bfmmlaDepth
	for i := 0; i < rows; i += 2 {
		a := x.a[(row+i)*x.lda:][:x.b.K]
		b := a
		if i+1 < rows {
			b = x.a[(row+i+1)*x.lda:][:x.b.K]
		}
		to := s[2*depth*i:]
		if whole > 0 {
			splitRowsBFMMLA(uintptr(whole/bfmmlaDepth), &to[0], &a[0], &b[0])
		}
		if whole < depth {
			var last [2][bfmmlaDepth]float32
			copy(last[0][:], a[whole:])
			copy(last[1][:], b[whole:])
			splitRowsBFMMLA(1, &to[4*whole], &last[0][0], &last[1][0])
		}
	}
	return s
}

// productBFMMLA points at the i-th split row, an even one, and the j-th column.
func productBFMMLA(a []uint16, b *Packed, i, j int) bfmmlaProduct {
	depth := roundUp(b.K, bfmmlaDepth)
	return bfmmlaProduct{uintptr(depth / 4), &a[2*depth*i], uintptr(8 * depth), &b.bf16[depth*b.parts*j]}
}

// runTileBFMMLA calls the assembly for so many rows: 1, 2 or 4.
func runTileBFMMLA(t *bfmmlaTile, b *Packed, rows int) {
	if rows == 1 {
		t.ldc, t.ldadd = 0, 0
	}
	switch {
	case rows == bfmmlaRows && b.parts == 1:
		gemm4x16BFMMLA1(t)
	case rows == bfmmlaRows:
		gemm4x16BFMMLA2(t)
	case b.parts == 1:
		gemm2x16BFMMLA1(t)
	default:
		gemm2x16BFMMLA2(t)
	}
}
