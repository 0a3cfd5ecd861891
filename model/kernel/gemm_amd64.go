//go:build !noasm

package kernel

// chunkRows is how many rows of a go through all panels before the next ones
// do: few enough to stay in the nearest caches.
const chunkRows = 112

// Sizes of the largest tile of any instruction set.
const (
	maxTileRows    = 14
	maxTileColumns = 32
)

// tileRows is the largest number of rows of a tile.
func (i isa) tileRows() int {
	if i >= isaAVX512 {
		return maxTileRows
	}
	return 6
}

// tile is one call of a tile's assembly: c = first + second + add over some
// rows and columns, the distances of rows and panels in bytes. add may be nil.
// The names are aliases because the assembly's declarations spell the types
// out.
type (
	tile = struct {
		c             *float32
		ldc           uintptr
		add           *float32
		ldadd         uintptr
		first, second tileProduct
		//lint:ignore U1000 the assembly reads it
		end uintptr // 0: there is no third product
	}
	tileProduct = struct {
		k     uintptr
		a     *float32
		lda   uintptr
		b     *float32
		panel uintptr
	}
)

// gemmAsm is gemmGeneric.
func gemmAsm(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	g := gemmCall{x: x, y: y, add: add, ldadd: ldadd, c: c, ldc: ldc}
	for i := 0; i < m; i += chunkRows {
		g.chunk(i, min(chunkRows, m-i))
	}
}

// gemmCall is what the tiles of one Gemm share.
type gemmCall struct {
	x, y       term
	add, c     []float32
	ldadd, ldc int
	t          tile
}

// chunk goes through the panels, and in each through tiles of about equally
// many rows from row on.
func (g *gemmCall) chunk(row, m int) {
	t := &g.t
	t.ldadd, t.ldc = uintptr(4*g.ldadd), uintptr(4*g.ldc)
	setProduct(&t.first, g.x)
	if g.y.b != nil {
		setProduct(&t.second, g.y)
	}
	b := g.x.b
	w, most := b.width, b.isa.tileRows()
	tiles := (m + most - 1) / most
	for j := 0; j < b.N; {
		panels := 1
		if p := manyPanels(m); j+p*w <= b.N {
			panels = p
		}
		t.first.b = &g.x.b.data[j*g.x.b.K]
		if g.y.b != nil {
			t.second.b = &g.y.b.data[j*g.y.b.K]
		}
		cols := panels * w
		if j+cols > b.N {
			g.last(row, m, j, tiles)
			return
		}
		for i, left := row, tiles; left > 0; left-- {
			rows := (row + m - i) / left
			g.rows(t, i)
			t.c = &g.c[i*g.ldc+j]
			if g.add != nil {
				t.add = &g.add[i*g.ldadd+j]
			}
			runTile(t, b.isa, rows, cols)
			i += rows
		}
		j += cols
	}
}

// last is chunk of the columns from j on, which do not fill a panel.
func (g *gemmCall) last(row, m, j, tiles int) {
	var out [maxTileRows * maxTileColumns]float32
	t := g.t // a copy: out would escape into g
	b := g.x.b
	cols, w := b.N-j, b.width
	if cols <= w/2 {
		w /= 2
	}
	t.add, t.ldc = nil, uintptr(4*w)
	for i, left := row, tiles; left > 0; left-- {
		rows := (row + m - i) / left
		g.rows(&t, i)
		t.c = &out[0]
		runTile(&t, b.isa, rows, w)
		for r := range rows {
			store(g.c[(i+r)*g.ldc+j:][:cols], out[r*w:][:cols], g.add, (i+r)*g.ldadd+j)
		}
		i += rows
	}
}

// rows points a tile at the rows from i on.
func (g *gemmCall) rows(t *tile, i int) {
	t.first.a = &g.x.a[i*g.x.lda]
	if g.y.b != nil {
		t.second.a = &g.y.a[i*g.y.lda]
	}
}

func setProduct(p *tileProduct, x term) {
	p.k, p.lda, p.panel = uintptr(x.b.K), uintptr(4*x.lda), uintptr(4*x.b.K*x.b.width)
}

// manyPanels is how many panels the tiles of so few rows take at once.
func manyPanels(rows int) int {
	switch rows {
	case 1:
		return 4
	case 2, 3:
		return 2
	}
	return 1
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
			if rows == 2 {
				gemm2x64AVX512(t)
			} else {
				gemm3x64AVX512(t)
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
func gemmTNAsm(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	w, most := active.panelWidth(), active.tileRows()
	for j := 0; j < n; j += w {
		cols := min(w, n-j)
		if active == isaAVX2 && cols < w {
			most = 4
		}
		tiles := (m + most - 1) / most
		for t, i := 0, 0; t < tiles; t++ {
			rows := (m - i) / (tiles - t)
			var add *float32
			if accumulate {
				add = &c[i*ldc+j]
			}
			gemmTNTile(rows, cols, &a[i], uintptr(4*lda), &b[j], uintptr(4*ldb), uintptr(k), &c[i*ldc+j], uintptr(4*ldc), add)
			i += rows
		}
	}
}

func gemmTNTile(rows, cols int, a *float32, lda uintptr, b *float32, ldb, k uintptr, c *float32, ldc uintptr, add *float32) {
	if active >= isaAVX512 {
		mask := uint32(1)<<cols - 1 // all ones for 32
		switch rows {
		case 1:
			gemmTN1x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 2:
			gemmTN2x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 3:
			gemmTN3x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 4:
			gemmTN4x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 5:
			gemmTN5x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 6:
			gemmTN6x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 7:
			gemmTN7x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 8:
			gemmTN8x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 9:
			gemmTN9x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 10:
			gemmTN10x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 11:
			gemmTN11x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 12:
			gemmTN12x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 13:
			gemmTN13x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		case 14:
			gemmTN14x32AVX512(a, lda, b, ldb, k, c, ldc, add, mask)
		}
		return
	}
	if cols < 16 {
		mask := (*[16]int32)(tailMask[16-cols:])
		switch rows {
		case 1:
			gemmTNTail1x16AVX2(a, lda, b, ldb, k, c, ldc, add, mask)
		case 2:
			gemmTNTail2x16AVX2(a, lda, b, ldb, k, c, ldc, add, mask)
		case 3:
			gemmTNTail3x16AVX2(a, lda, b, ldb, k, c, ldc, add, mask)
		case 4:
			gemmTNTail4x16AVX2(a, lda, b, ldb, k, c, ldc, add, mask)
		}
		return
	}
	switch rows {
	case 1:
		gemmTN1x16AVX2(a, lda, b, ldb, k, c, ldc, add)
	case 2:
		gemmTN2x16AVX2(a, lda, b, ldb, k, c, ldc, add)
	case 3:
		gemmTN3x16AVX2(a, lda, b, ldb, k, c, ldc, add)
	case 4:
		gemmTN4x16AVX2(a, lda, b, ldb, k, c, ldc, add)
	case 5:
		gemmTN5x16AVX2(a, lda, b, ldb, k, c, ldc, add)
	case 6:
		gemmTN6x16AVX2(a, lda, b, ldb, k, c, ldc, add)
	}
}
