//go:build (amd64 || arm64) && !noasm

package kernel

// chunkRows is how many rows of a go through all panels before the next ones
// do: few enough to stay in the nearest caches.
const chunkRows = 112

// Sizes of the largest tile of one panel of any instruction set.
const (
	maxTileRows    = 14
	maxTileColumns = 32
)

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
	w := b.width
	for j := 0; j < b.N; {
		panels, most := b.isa.tileSize(m)
		if j+panels*w > b.N {
			panels, most = 1, b.isa.tileRows()
		}
		tiles := (m + most - 1) / most
		t.first.b = &g.x.b.data[j*g.x.b.K]
		if g.y.b != nil {
			t.second.b = &g.y.b.data[j*g.y.b.K]
		}
		if rows := b.isa.wideRows(); rows > 0 && b.N-j == w+w/2 {
			g.wide(row, m, j, rows)
			return
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

// wide is chunk of the columns from j on, which fill a panel and half of the next, by
// tiles of up to most rows.
func (g *gemmCall) wide(row, m, j, most int) {
	t, cols := &g.t, g.x.b.N-j
	for i := row; i < row+m; i += most {
		g.rows(t, i)
		t.c = &g.c[i*g.ldc+j]
		if g.add != nil {
			t.add = &g.add[i*g.ldadd+j]
		}
		runTile(t, g.x.b.isa, min(most, row+m-i), cols)
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

// tileSize is how many neighbouring panels the tiles of m rows take at once, and how
// many rows they have at most.
func (i isa) tileSize(m int) (panels, rows int) {
	switch {
	case m == 1:
		return 4, 1
	case m <= 3:
		return 2, 3
	case i == isaAVX512:
		return 2, 6
	}
	return 1, i.tileRows()
}
