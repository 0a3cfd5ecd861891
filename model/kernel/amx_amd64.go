//go:build !noasm

package kernel

import (
	"sync"
	"unsafe"

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
)

// The arguments of gemmAMX, with distances in bytes; aliases because the
// assembly's declaration spells the types out.
type (
	amxCall = struct {
		config        *[64]byte
		c             *float32
		ldc           uintptr
		add           *float32 // nil for none; ldadd 0 for one row for all
		ldadd         uintptr
		rowBlocks     uintptr
		panels        uintptr
		lower, right  uintptr // whether a block has a second row and column of tiles
		first, second amxProduct
		//lint:ignore U1000 the assembly reads it
		end uintptr // 0: there is no third product
	}
	amxProduct = struct {
		blocks uintptr // of 32 in K
		a      *uint16
		lda    uintptr
		b      *uint16
	}
)

// amxSupported asks for the machine's tiles once: the processor has them, and
// the operating system allows their use.
var amxSupported = sync.OnceValue(func() bool {
	return cpu.X86.HasAMXTile && cpu.X86.HasAMXBF16 && cpu.X86.HasAVX512BF16 && hasAVX512() && requestTiles()
})

// roundUp is n up to a multiple of to.
func roundUp(n, to int) int { return (n + to - 1) / to * to }

// amxSize is the number of elements of a k×n matrix packed for tiles.
func amxSize(k, n int) int { return roundUp(k, amxDepth) * roundUp(n, amxWidth) }

// aligned64 makes a slice that begins at a multiple of 64 bytes, as tiles like
// it.
func aligned64(n int) []uint16 {
	s := make([]uint16, n+31)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(s))) & 63 / 2)
	return s[skip : skip+n : skip+n]
}

// amxIndex is where element (k, j) stands in a matrix packed for tiles, K
// deep: panels of 32 columns; in each, blocks of 32 of K; in each, two tiles of
// 16 columns; in each, 16 rows of pairs of K, a pair side by side.
func amxIndex(k, j, K int) int {
	blocks := roundUp(K, amxDepth) / amxDepth
	block := j/amxWidth*blocks + k/amxDepth
	tile := 2*block + j%amxWidth/16
	return tile*amxTile + k%amxDepth/2*32 + j%16*2 + k%2
}

// repackAMX rounds a matrix whose element (k, j) is b[k·stepK+j·stepJ].
func repackAMX(p *Packed, b []float32, stepK, stepJ int) {
	for j := range p.N {
		for k := range p.K {
			p.half[amxIndex(k, j, p.K)] = bfloat16(b[k*stepK+j*stepJ])
		}
	}
}

// amxBuffer holds rows of a rounded to bfloat16.
type amxBuffer struct{ x, y []uint16 }

var amxBuffers = sync.Pool{New: func() any { return new(amxBuffer) }}

// grow returns s with room for n numbers.
func grow(s []uint16, n int) []uint16 {
	if len(s) < n {
		return aligned64(n)
	}
	return s
}

// gemmAMXRows is gemmGeneric with operands rounded to bfloat16; add is added
// first.
func gemmAMXRows(m int, x, y term, add []float32, ldadd int, c []float32, ldc int) {
	buf := amxBuffers.Get().(*amxBuffer)
	for row := 0; row < m; row += chunkRowsAMX {
		rows := min(chunkRowsAMX, m-row)
		g := amxCall{ldc: uintptr(4 * ldc), ldadd: uintptr(4 * ldadd)}
		buf.x = roundTerm(&g.first, buf.x, x, row, rows)
		if y.b != nil {
			buf.y = roundTerm(&g.second, buf.y, y, row, rows)
		}
		n := x.b.N
		for _, rp := range parts(rows, amxRows) {
			for _, cp := range parts(n, amxWidth) {
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
				gemmAMX(&t)
			}
		}
	}
	amxBuffers.Put(buf)
}

// chunkRowsAMX is a multiple of amxRows.
const chunkRowsAMX = 128

// part is a run of blocks of one size.
type part struct{ first, blocks, size int }

// parts cuts n into whole blocks and what is left.
func parts(n, block int) [2]part {
	full := n / block
	p := [2]part{{0, full, block}, {full * block, 0, n - full*block}}
	if p[1].size > 0 {
		p[1].blocks = 1
	}
	return p
}

// roundTerm rounds rows of x.a into s and sets what does not change with the
// block.
func roundTerm(p *amxProduct, s []uint16, x term, row, rows int) []uint16 {
	depth := roundUp(x.b.K, amxDepth)
	s = grow(s, depth*rows)
	p.blocks, p.lda = uintptr(depth/amxDepth), uintptr(2*depth)
	roundRowsAMX(uintptr(rows), &s[0], p.lda, &x.a[row*x.lda], uintptr(4*x.lda), uintptr(x.b.K))
	return s
}

// offset points p to a row of the rounded a and a column of b.
func offset(p *amxProduct, a []uint16, x term, row, column int) {
	depth := roundUp(x.b.K, amxDepth)
	p.a, p.b = &a[row*depth], &x.b.half[column*depth]
}

// configure describes the eight tiles: 0 to 3 the sums, 4 and 5 the rows of a,
// 6 and 7 the columns of b.
func configure(config *[64]byte, rows, cols int) {
	config[0] = 1 // the palette
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
