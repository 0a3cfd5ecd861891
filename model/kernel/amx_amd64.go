//go:build !noasm

package kernel

import (
	"sync"

	"golang.org/x/sys/cpu"
)

// The products on Intel's matrix tiles: 16 by 16 sums in float32 of products
// of bfloat16 numbers. A tile's state lives within one call of assembly, which
// Go never preempts.

const (
	amxRows  = 32  // of a block: two tiles
	amxWidth = 32  // columns of a panel: two tiles
	amxDepth = 32  // of a tile in K
	amxTile  = 512 // numbers in a tile of b

	chunkRowsAMX = 4 * amxRows // of a that are split at once
)

// The arguments of gemmAMX1x1 and its like, with distances in bytes; aliases because the
// assembly's declaration spells the types out.
type (
	amxCall = struct {
		config        *[64]byte
		c             *float32
		ldc           uintptr
		add           *float32 // nil for none; ldadd 0 for one row for all
		ldadd         uintptr
		addPanel      uintptr
		rowBlocks     uintptr
		panels        uintptr
		lower, right  uintptr // whether a block has a second row and column of tiles
		first, second amxProduct
		//lint:ignore U1000 the assembly reads it
		end     uintptr // 0: there is no third product
		step    amxStep
		waiting amxGates
	}
	// amxStep makes the call one for a step of an LSTM where units is not 0.
	amxStep = struct {
		units    uintptr  // blocks of 32
		pace     uintptr  // of a block's gates: bytes of pre-activations a turn
		ahead    uintptr  // where the first turn begins, so that the last one ends with the block; at most 0
		other    *float32 // takes c's place in every second block
		state, h *float32 // c and h of the LSTM
		ld       uintptr  // of both
	}
	// amxGates is a block whose products are done and whose gates are not; its
	// pointers are those of the next row.
	amxGates = struct {
		//lint:ignore U1000 the assembly sets it
		pace uintptr
		//lint:ignore U1000 the assembly sets it
		due         uintptr // where z should be by now
		z, state, h *float32
	}
	amxProduct = struct {
		blocks uintptr // of 32 in K
		a      *uint16
		lda    uintptr
		b      *uint16
		panel  uintptr // from one of b to the next
		next   uintptr // the same, of one gate
	}
)

// amxSupported asks for the machine's tiles once: the processor has them, and
// the operating system allows their use.
var amxSupported = sync.OnceValue(func() bool {
	return cpu.X86.HasAMXTile && cpu.X86.HasAMXBF16 && cpu.X86.HasAVX512BF16 && hasAVX512() && requestTiles()
})

// partSize is the number of elements of a k×n matrix packed for tiles.
func partSize(k, n int) int { return roundUp(k, amxDepth) * roundUp(n, amxWidth) }

// partStep is the distance of an element's parts.
const partStep = 2 * amxTile

// partIndex is where part 0 of element (k, j) stands in a matrix packed for
// tiles, K deep: panels of 32 columns; in each, blocks of 32 of K; in each, the
// parts; in each, two tiles of 16 columns; in each, 16 rows of pairs of K, a
// pair side by side.
func partIndex(k, j, K, parts int) int {
	blocks := roundUp(K, amxDepth) / amxDepth
	block := j/amxWidth*blocks + k/amxDepth
	tile := 2*parts*block + j%amxWidth/16
	return tile*amxTile + k%amxDepth/2*32 + j%16*2 + k%2
}

// gemmAMX is gemmGeneric with operands in parts; add is added first.
func gemmAMX(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	buf := partBuffers.Get().(*partBuffer)
	for row := 0; row < m; row += chunkRowsAMX {
		rows := min(chunkRowsAMX, m-row)
		g := amxCall{ldc: uintptr(4 * ldc), ldadd: uintptr(4 * ldadd), addPanel: 4 * amxWidth}
		buf.x = splitTerm(&g.first, buf.x, x, row, rows)
		if y.b != nil {
			buf.y = splitTerm(&g.second, buf.y, y, row, rows)
		}
		n := x.b.N
		for _, rp := range cut(rows, amxRows) {
			for _, cp := range cut(n, amxWidth) {
				if rp.blocks == 0 || cp.blocks == 0 {
					continue
				}
				t := g
				t.rowBlocks, t.panels = uintptr(rp.blocks), uintptr(cp.blocks)
				var config [64]byte
				configure(&config, rp.size, cp.size)
				t.config = &config
				if rp.size > 16 {
					t.lower = 1
				}
				if cp.size > 16 {
					t.right = 1
				}
				r, j := row+rp.first, cp.first
				t.c = &c[r*ldc+j]
				if add != nil {
					t.add = &add[r*ldadd+j]
				}
				offset(&t.first, buf.x, x, rp.first, j)
				if y.b != nil {
					offset(&t.second, buf.y, y, rp.first, j)
				}
				multiply(&t, x.b)
			}
		}
	}
	partBuffers.Put(buf)
}

// stepAMX is Step where it can go block by block, whose pre-activations stay in
// the nearest cache: those of 32 rows and 32 units, in one panel a gate. The
// gates of a block are computed among the products of the next. It returns
// false where it cannot.
func stepAMX(m int, x, y term, bias, z, c, h []float32, hidden int) bool {
	if hidden%amxWidth != 0 {
		return false
	}
	for n := chunkRowsAMX; m > n; m -= n {
		stepAMX(n, x, y, bias, z, c, h, hidden)
		x.a, c, h = x.a[n*x.lda:], c[n*hidden:], h[n*hidden:]
		if y.b != nil {
			y.a = y.a[n*y.lda:]
		}
	}
	const width = 4 * amxWidth
	gate := uintptr(4 * hidden) // bytes from one of bias to the next, and from one row of c or h to the next
	buf := partBuffers.Get().(*partBuffer)
	t := amxCall{ldc: 4 * width, addPanel: gate, rowBlocks: 1, panels: 4, right: 1}
	buf.x = splitTerm(&t.first, buf.x, x, 0, m)
	t.first.panel *= uintptr(hidden / amxWidth) // to the next gate's
	if y.b != nil {
		buf.y = splitTerm(&t.second, buf.y, y, 0, m)
		t.second.panel *= uintptr(hidden / amxWidth)
	}
	var config [64]byte
	t.config, t.c = &config, &z[0]
	t.step.other, t.step.ld = t.c, gate
	if size := min(m, amxRows) * width; size < len(z) { // there is a second block
		t.step.other = &z[size]
	}
	products := x.b.isa.parts()
	if x.b.parts > 1 {
		products = products * (products + 1) / 2
	}
	turns := t.panels * (t.first.blocks + t.second.blocks) * uintptr(products)
	for row := 0; row < m; row += amxRows {
		rows := min(amxRows, m-row)
		configure(&config, rows, amxWidth)
		t.lower = uintptr(rows / 17)
		t.add = &bias[0]
		offset(&t.first, buf.x, x, row, 0)
		if y.b != nil {
			offset(&t.second, buf.y, y, row, 0)
		}
		size := uintptr(4 * width * rows)
		t.step.units, t.step.pace = uintptr(hidden/amxWidth), (size+turns-1)/turns
		t.step.ahead = size - turns*t.step.pace
		t.step.state, t.step.h = &c[row*hidden], &h[row*hidden]
		multiply(&t, x.b)
	}
	partBuffers.Put(buf)
	rows := (m-1)%amxRows + 1 // of the last block
	if last := &t.waiting; x.b.isa.parts() < 3 {
		gatesCubic(uintptr(rows), amxWidth/16, last.z, 4*width, 4*amxWidth, last.state, last.h, gate)
	} else {
		gatesAVX512(uintptr(rows), last.z, 4*width, last.state, gate, last.h, gate, amxWidth)
	}
	return true
}

// multiply calls the assembly for numbers in so many parts as those of b and of
// what it is multiplied with.
func multiply(t *amxCall, b *Packed) {
	switch [2]int{b.isa.parts(), b.parts} {
	case [2]int{1, 1}:
		gemmAMX1x1(t)
	case [2]int{2, 1}:
		gemmAMX2x1(t)
	case [2]int{2, 2}:
		gemmAMX2x2(t)
	case [2]int{3, 1}:
		gemmAMX3x1(t)
	case [2]int{3, 3}:
		gemmAMX3x3(t)
	}
}

// run is some blocks of one size.
type run struct{ first, blocks, size int }

// cut cuts n into whole blocks and what is left.
func cut(n, block int) [2]run {
	full := n / block
	p := [2]run{{0, full, block}, {full * block, 0, n - full*block}}
	if p[1].size > 0 {
		p[1].blocks = 1
	}
	return p
}

// splitTerm splits rows of x.a into s and sets what does not change with the
// block.
func splitTerm(p *amxProduct, s []uint16, x term, row, rows int) []uint16 {
	depth, parts := roundUp(x.b.K, amxDepth), x.b.isa.parts()
	s = grow(s, depth*rows*parts)
	p.blocks, p.lda = uintptr(depth/amxDepth), uintptr(2*depth*parts)
	p.panel = uintptr(2 * depth * x.b.parts * amxWidth)
	p.next = p.panel
	a, lda, k := &x.a[row*x.lda], uintptr(4*x.lda), uintptr(x.b.K)
	switch parts {
	case 1:
		splitRowsAMX1(uintptr(rows), &s[0], p.lda, a, lda, k)
	case 2:
		splitRowsAMX2(uintptr(rows), &s[0], p.lda, a, lda, k)
	case 3:
		splitRowsAMX3(uintptr(rows), &s[0], p.lda, a, lda, k)
	}
	return s
}

// offset points p to a row of the split a and a column of b.
func offset(p *amxProduct, a []uint16, x term, row, column int) {
	depth := roundUp(x.b.K, amxDepth)
	p.a, p.b = &a[row*depth*x.b.isa.parts()], &x.b.bf16[column*depth*x.b.parts]
}

// configure describes the eight tiles: 0 to 3 the sums, 4 and 5 the rows of a,
// 6 and 7 the columns of b.
func configure(config *[64]byte, rows, cols int) {
	*config = [64]byte{1} // the palette
	set := func(tile, rows, bytes int) {
		if rows > 0 && bytes > 0 {
			config[16+2*tile], config[48+tile] = byte(bytes), byte(rows)
		}
	}
	upper, lower := min(rows, 16), max(rows-16, 0)
	left, right := 4*min(cols, 16), 4*max(cols-16, 0)
	set(0, upper, left)
	set(1, upper, right)
	set(2, lower, left)
	set(3, lower, right)
	set(4, upper, 64)
	set(5, lower, 64)
	set(6, 16, left)
	set(7, 16, right)
}
