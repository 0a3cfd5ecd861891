//go:build cuda && cgo

package cuda

import (
	"math"
	"unsafe"

	"github.com/linnet-ml/linnet/model"
)

// A tile is 8 units of 4 gates. A block is its weights for 16 rows, 512 numbers
// in the order that a kernel reads them in (prim.cuh).
const (
	tileRows  = 16
	tileUnits = 8
	tileCols  = 4 * tileUnits
	blockSize = tileRows * tileCols
)

// order is where number i of a block comes from.
type order func(i int) (row, gate, unit int)

// orderFloat is [16 rows][8 units][4 gates].
func orderFloat(i int) (row, gate, unit int) { return i / 32, i % 4, i / 4 % 8 }

// orderWMMA is [16 rows][4 gates][8 units], for compute capability below 8.0.
func orderWMMA(i int) (row, gate, unit int) { return i / 32, i / 8 % 4, i % 8 }

// orderMMA is that of the registers of mma.sync.m16n8k16: lane 4·g+t holds rows
// 2t, 2t+1, 2t+8 and 2t+9 of unit g; two gates of all lanes, then the other two.
func orderMMA(i int) (row, gate, unit int) {
	lane, e := i/8%32, i%4
	return lane%4*2 + e%2 + e/2*8, i/256*2 + i/4%2, lane / 4
}

// packed are the weights as the kernels take them, in one piece of memory.
type packed struct {
	bytes []byte

	table, tableScale, mean, invStd, layoutWeights, layoutBias int // where each begins
	layers                                                     []packedLayer
	outputWeights, outputBias                                  int
}

type packedLayer struct {
	kTiles           int // blocks of rows of the input
	input, recurrent int // both directions, the tiles of one after the other
	bias             int
}

// sizes of a model as the kernels see it.
type sizes struct {
	e, u          int // D and H rounded up to 16
	tiles         int // of both directions
	k             int
	classes       int // of the first head
	layouts       int
	layers        int
	hidden        int // H
	half          bool
	element       int // bytes of a number of x and of states
	residentTiles int // blocks of K whose recurrent weights the resident kernel keeps in registers (its KT); 0 where they do not fit
}

func (s *sizes) fill(c *model.Config) {
	s.e, s.u = ceil(c.EmbeddingSize, tileRows)*tileRows, ceil(c.HiddenSize, tileRows)*tileRows
	s.tiles = 2 * s.u / tileUnits
	s.k, s.classes, s.layouts, s.layers, s.hidden = c.NumOutputs(), len(c.Classes), c.LayoutSize, c.NumLayers, c.HiddenSize
}

// pack lays w out for the kernels: matrices in halves where s.half is set, in
// the order of blocks.
func pack(w *model.Weights, s *sizes, of order) *packed {
	p := &packed{}
	d, h := w.Config.EmbeddingSize, w.Config.HiddenSize

	table := w.Table
	if d != s.e {
		table = make([]int8, w.Config.InputSize*s.e)
		for r := range w.Config.InputSize {
			copy(table[r*s.e:], w.Table[r*d:][:d])
		}
	}
	p.table = appendTo(p, table)
	p.tableScale = appendTo(p, w.TableScale)
	p.mean = appendTo(p, w.LayoutMean)
	p.invStd = appendTo(p, w.LayoutInvStd)
	p.layoutWeights = appendTo(p, byQuads(w.LayoutWeights, s.layouts, d, s.e))
	p.layoutBias = appendTo(p, byQuads(w.LayoutBias, 1, d, s.e))

	// Row r of a matrix of the layer stands at rows[r] of the original; -1 is a
	// row of zeros.
	rows := padding(nil, d, s.e)
	states := padding(nil, h, s.u)
	for i := range w.Layers {
		dirs := [2]*model.Direction{&w.Layers[i].Forward, &w.Layers[i].Backward}
		l := packedLayer{kTiles: len(rows) / tileRows}
		l.input = p.matrix(dirs[0].InputWeights, dirs[1].InputWeights, h, rows, s, of)
		l.recurrent = p.matrix(dirs[0].RecurrentWeights, dirs[1].RecurrentWeights, h, states, s, of)
		bias := make([]float32, s.tiles*tileCols)
		for side, dir := range dirs {
			for gate := range 4 {
				for unit := range h {
					bias[(side*s.tiles/2+unit/tileUnits)*tileCols+unit%tileUnits/2*8+gate*2+unit%2] = dir.Bias[gate*h+unit]
				}
			}
		}
		l.bias = appendTo(p, bias)
		p.layers = append(p.layers, l)
		rows = padding(padding(nil, h, s.u), h, s.u)
	}

	p.outputWeights = p.output(w.OutputWeights, padding(rows, d, s.e), s, of)
	p.outputBias = appendTo(p, w.OutputBias)
	return p
}

// padding appends to rows the next n rows and then -1 up to `to` of them.
func padding(rows []int, n, to int) []int {
	first := 0
	for _, r := range rows {
		first = max(first, r+1)
	}
	for i := range to {
		if i < n {
			rows = append(rows, first+i)
		} else {
			rows = append(rows, -1)
		}
	}
	return rows
}

// matrix appends the tiles of both directions' matrices, [len, 4H] each, whose
// rows stand as rows says.
func (p *packed) matrix(forward, backward []float32, h int, rows []int, s *sizes, of order) int {
	out := make([]float32, s.tiles*len(rows)*tileCols)
	at := 0
	for tile := range s.tiles {
		from, first := forward, tile*tileUnits
		if tile >= s.tiles/2 {
			from, first = backward, (tile-s.tiles/2)*tileUnits
		}
		for row := 0; row < len(rows); row += tileRows {
			for i := range blockSize {
				r, gate, unit := of(i)
				if r, unit = rows[row+r], first+unit; r >= 0 && unit < h {
					out[at+i] = from[(r*4+gate)*h+unit]
				}
			}
			at += blockSize
		}
	}
	return p.appendNumbers(out, s.half)
}

// output appends the output layer's matrix m, whose rows stand as rows says, in tiles
// of 32 columns; what is behind the first head begins at a multiple of 8. In halves
// each block is two, whose sum has m's digits.
func (p *packed) output(m []float32, rows []int, s *sizes, of order) int {
	first, rest := s.classes, s.k-s.classes
	if rest > 0 {
		first = ceil(first, tileUnits) * tileUnits
	}
	columns := padding(padding(nil, s.classes, first), rest, ceil(first+rest, tileCols)*tileCols-first)
	var out []float32
	for first := 0; first < len(columns); first += tileCols {
		for row := 0; row < len(rows); row += tileRows {
			var whole, upper, lower [blockSize]float32
			for i := range blockSize {
				r, gate, unit := of(i)
				if r, c := rows[row+r], columns[first+gate*tileUnits+unit]; r >= 0 && c >= 0 {
					whole[i] = m[r*s.k+c]
				}
				upper[i] = math.Float32frombits((math.Float32bits(whole[i]) + 1<<12) &^ (1<<13 - 1))
				lower[i] = whole[i] - upper[i]
			}
			if s.half {
				out = append(append(out, upper[:]...), lower[:]...)
			} else {
				out = append(out, whole[:]...)
			}
		}
	}
	return p.appendNumbers(out, s.half)
}

// appendNumbers is appendTo, of halves where they are asked for.
func (p *packed) appendNumbers(v []float32, half bool) int {
	if half {
		return appendTo(p, halves(v))
	}
	return appendTo(p, v)
}

// byQuads is m, [rows, n], with zeros up to `to` numbers in each row, of whose 16
// columns each the first four come first, then the next four.
func byQuads(m []float32, rows, n, to int) []float32 {
	out := make([]float32, rows*to)
	for r := range rows {
		for c, v := range m[r*n:][:n] {
			out[r*to+c%16/4*to/4+c/16*4+c%4] = v
		}
	}
	return out
}

// appendTo appends the bytes of v to p, from a multiple of 256 on, which it
// returns.
func appendTo[T int8 | uint16 | float32](p *packed, v []T) int {
	at := align(len(p.bytes))
	p.bytes = append(p.bytes, make([]byte, at-len(p.bytes))...)
	p.bytes = append(p.bytes, bytesOf(v)...)
	return at
}

func align(n int) int { return (n + 255) &^ 255 }

// bytesOf is v's own memory.
func bytesOf[T any](v []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(t)))
}

// maxHalf is the largest number of float16.
const maxHalf = 65504

// halfFits reports whether all matrices of w are within float16's range.
func halfFits(w *model.Weights) bool {
	matrices := [][]float32{w.OutputWeights}
	for _, l := range w.Layers {
		matrices = append(matrices, l.Forward.InputWeights, l.Forward.RecurrentWeights, l.Backward.InputWeights, l.Backward.RecurrentWeights)
	}
	for _, m := range matrices {
		for _, v := range m {
			if !(v <= maxHalf && v >= -maxHalf) {
				return false
			}
		}
	}
	return true
}

// halves is v in IEEE 754 binary16, rounded to nearest even; v is within ±maxHalf.
func halves(v []float32) []uint16 {
	out := make([]uint16, len(v))
	for i, f := range v {
		bits := math.Float32bits(f)
		sign, exp, frac := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127+15, bits&0x7fffff
		shift := uint(13)
		if exp <= 0 { // subnormal
			frac |= 0x800000
			shift += uint(min(1-exp, 12))
			exp = 0
		}
		h := uint32(exp)<<10 + frac>>shift
		rest, middle := frac&(1<<shift-1), uint32(1)<<(shift-1)
		if rest > middle || rest == middle && h&1 == 1 {
			h++ // into the exponent, where it carries
		}
		out[i] = sign | uint16(h)
	}
	return out
}
