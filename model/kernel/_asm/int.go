package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
	"github.com/mmcloughlin/avo/x86"
)

// Products of 16-bit integers: a lane of 32 bits multiplies two of them and
// adds the products, by one instruction of VNNI's, or by two without a sum in them,
// which still take less time than two multiply-adds of float32. Of 8 bits it
// multiplies four.

// The types of Go's intTile, which must be the same there, and the offsets of
// their fields in bytes.
const (
	intProductType = "struct{lanes uintptr; a *uint32; lda uintptr; b *uint32; panel uintptr; rowUnit, columnUnit *float32; start *int32}"
	intType        = "struct{c *float32; ldc uintptr; add *float32; ldadd, panels, done uintptr; products *" + intProductType + "}"

	intC, intLDC, intAdd, intLDAdd, intPanels, intDone, intProducts     = 0, 8, 16, 24, 32, 40, 48
	intLanes, intA, intLDA, intB, intPanel, intRow, intColumn, intStart = 0, 8, 16, 24, 32, 40, 48, 56
	intProductLength                                                    = 64
)

// integer is an instruction set with products of integers, each of so many bytes.
type integer struct {
	vector
	name string
	size int
}

var (
	madd    = integer{avx2, "MADD", 2}
	avxvnni = integer{avx2, "AVXVNNI", 2} // rounds as madd
	vnni    = integer{avx512, "VNNI", 2}
	vnni8   = integer{avx512, "VNNI8", 1}
)

// gemmInt writes the tiles, as gemm does, but for those of two panels and more than
// three rows, by which integers gain nothing.
func gemmInt(w integer) {
	for rows := 1; rows <= w.rows; rows++ {
		gemmTileInt(w, rows, panelVectors)
	}
	gemmTileInt(w, 1, 4*panelVectors)
	gemmTileInt(w, 2, 2*panelVectors)
	gemmTileInt(w, 3, 2*panelVectors)
}

// gemmTileInt writes a row of tiles of nv vectors of columns.
func gemmTileInt(w integer, rows, nv int) {
	v, lane := w.vector, 4/w.size
	cols := v.lanes * panelVectors
	name := fmt.Sprintf("gemm%dx%d%s", rows, v.lanes*nv, w.name)
	begin, number := "0", ""
	if lane == 4 {
		begin, number = "p.start[j]", ", those of p.a without a sign"
	}
	TEXT(name, NOSPLIT, "func(t *"+intType+")")
	Doc(name+" is", "",
		fmt.Sprintf("\tfor i < %d, j < %d·t.panels, %d at a time:", rows, cols, v.lanes*nv),
		"\t\tc = t.add[i,j]",
		"\t\tfor each p of t.products up to one of no lanes:",
		"\t\t\ts = "+begin+", an integer",
		fmt.Sprintf("\t\t\tfor l < %d·p.lanes: s += p.a[i,l]·p.b[j/%d][l/%d,j%%%d,l%%%d]", lane, cols, lane, cols, lane),
		"\t\t\tc += float32(s)·p.columnUnit[j]·p.rowUnit[i]",
		"\t\tt.c[i,j] = c", "",
		fmt.Sprintf("of %d bits a number%s, with the last product and sum rounded once. t.done is 0,", 8*w.size, number),
		"and t.panels in the end.")
	Pragma("noescape")
	t := param("t")
	field := func(offset int) Mem { return Mem{Base: t, Disp: offset} }
	p := GP64()
	of := func(offset int) Mem { return Mem{Base: p, Disp: offset} }
	Label("tile")
	// What a product is added to: the sum of those before.
	add, ldadd := GP64(), GP64()
	// from adds the place of the panels, of 8·lanes bytes each, in a row.
	from := func(r Register, at GPVirtual) {
		MOVQ(field(intDone), at)
		SHLQ(Imm(v.log2()+3), at)
		ADDQ(at, r)
	}
	MOVQ(field(intAdd), add)
	from(add, GP64())
	MOVQ(field(intLDAdd), ldadd)
	MOVQ(field(intProducts), p)
	Label("product")
	panels := []Register{GP64()}
	for len(panels)*panelVectors < nv {
		panels = append(panels, GP64())
	}
	a, lda, k := GP64(), GP64(), GP64()
	bases := []Register{a}
	for len(bases)*3 < rows {
		bases = append(bases, GP64())
	}
	MOVQ(of(intA), a)
	MOVQ(of(intLDA), lda)
	at := everyRow(bases, lda)
	MOVQ(field(intDone), panels[0])
	IMULQ(of(intPanel), panels[0])
	ADDQ(of(intB), panels[0])
	for i, b := range panels[1:] {
		MOVQ(panels[i], b)
		ADDQ(of(intPanel), b)
	}
	unit, c, ldc := GP64(), GP64(), GP64()
	acc := accumulators(v, rows, nv)
	if lane == 4 {
		MOVQ(of(intStart), unit)
		from(unit, c)
		for j := range nv {
			for _, row := range acc {
				VMOVDQU32(Mem{Base: unit, Disp: j * v.bytes()}, row[j])
			}
		}
	}
	MOVQ(of(intLanes), k)
	multiply(v, rows, nv, k, acc, at, w.product(), panels, bases)
	MOVQ(of(intColumn), unit)
	from(unit, c)
	for j := range nv {
		u := v.reg()
		VMOVUPS(Mem{Base: unit, Disp: j * v.bytes()}, u)
		for _, row := range acc {
			VCVTDQ2PS(row[j], row[j])
			VMULPS(u, row[j], row[j])
		}
	}
	MOVQ(of(intRow), unit)
	MOVQ(field(intC), c)
	from(c, ldc)
	MOVQ(field(intLDC), ldc)
	for i, row := range acc {
		u := v.reg()
		VBROADCASTSS(Mem{Base: unit, Disp: 4 * i}, u)
		for j, r := range row {
			VFMADD213PS(Mem{Base: add, Disp: j * v.bytes()}, u, r)
			VMOVUPS(r, Mem{Base: c, Disp: j * v.bytes()})
		}
		if i < rows-1 {
			ADDQ(ldadd, add)
			ADDQ(ldc, c)
		}
	}
	MOVQ(field(intC), add)
	from(add, ldadd)
	MOVQ(ldc, ldadd)
	ADDQ(Imm(intProductLength), p)
	CMPQ(of(intLanes), Imm(0))
	JNE(LabelRef("product"))
	ADDQ(Imm(uint64(nv/panelVectors)), field(intDone))
	MOVQ(field(intDone), k)
	CMPQ(k, field(intPanels))
	JCS(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// product adds the products of a lane.
func (w integer) product() product {
	switch w.name {
	case "AVXVNNI":
		return product{add: multiplyVEX}
	case "VNNI":
		return product{add: func(b Op, a, s VecVirtual) { VPDPWSSD(b, a, s) }}
	case "VNNI8":
		return product{add: func(b Op, a, s VecVirtual) { VPDPBUSD(b, a, s) }}
	}
	return product{
		own: 1,
		add: func(b Op, a, s VecVirtual) {
			products := w.reg()
			VPMADDWD(b, a, products)
			VPADDD(products, s, s)
		},
		// Both multiply before one adds, or the sums wait.
		addTwo: func(b []VecVirtual, a, spare VecVirtual, sums []VecVirtual) {
			VPMADDWD(b[0], a, spare)
			VPMADDWD(b[1], a, a)
			VPADDD(spare, sums[0], sums[0])
			VPADDD(a, sums[1], sums[1])
		},
	}
}

// multiplyVEX is VPDPWSSD without AVX-512, which avo and Go's assembler do not know.
func multiplyVEX(b Op, a, s VecVirtual) {
	i, err := x86.VPDPWSSD(b, a, s)
	if err != nil {
		panic(err)
	}
	i.ISA = []string{"AVXVNNI"}
	Instruction(i)
}

// encodeVEX writes what multiplyVEX left as bytes, now that its registers are known.
func encodeVEX(f *ir.Function) error {
	nodes := f.Nodes
	f.Nodes = nil
	for _, n := range nodes {
		i, ok := n.(*ir.Instruction)
		if !ok || !slices.Equal(i.ISA, []string{"AVXVNNI"}) {
			f.Nodes = append(f.Nodes, n)
			continue
		}
		var id [3]byte
		for j, r := range i.Operands {
			id[j] = byte(r.(Physical).PhysicalIndex())
		}
		b, a, s := id[0], id[1], id[2]
		// VEX.256.66.0F38.W0 52 /r, whose prefix has the high bits of s and b and all of a inverted.
		code := []byte{0xc4, 0x42 | ^s>>3<<7 | ^b>>3&1<<5, ^a&15<<3 | 5, 0x52, 0xc0 | s&7<<3 | b&7}
		f.Nodes = append(f.Nodes, ir.NewComment(fmt.Sprintf("VPDPWSSD Y%d, Y%d, Y%d", b, a, s)),
			&ir.Instruction{Opcode: "LONG", Operands: []Op{U32(binary.LittleEndian.Uint32(code))}},
			&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(code[4])}})
	}
	return nil
}

// rounding goes through rows of float32 that become integers.
type rounding struct {
	integer
	rows, dst, src, vectors Register
	d, s, n, left           Register
	tail                    lanes
	other                   VecVirtual
}

func newRounding(w integer) *rounding {
	r := &rounding{integer: w, rows: param("rows"), dst: param("dst"), src: param("src"), vectors: param("k"),
		d: GP64(), s: GP64(), n: GP64(), left: GP64(), other: XMM()}
	rest := GP64()
	MOVQ(r.vectors, r.left)
	ANDQ(Imm(uint64(w.lanes-1)), r.left)
	SHRQ(Imm(w.log2()), r.vectors)
	MOVQ(r.left, rest)
	r.tail = w.vector.tail(rest)
	return r
}

// each goes through a row.
func (r *rounding) each(label string, f func(x VecVirtual)) {
	MOVQ(r.src, r.s)
	MOVQ(r.dst, r.d)
	MOVQ(r.vectors, r.n)
	TESTQ(r.n, r.n)
	JZ(LabelRef(label + "Tail"))
	Label(label)
	f(lanes{r.vector, nil}.load(Mem{Base: r.s}))
	ADDQ(Imm(uint64(r.bytes())), r.s)
	ADDQ(Imm(uint64(r.lanes*r.size)), r.d)
	DECQ(r.n)
	JNZ(LabelRef(label))
	Label(label + "Tail")
	TESTQ(r.left, r.left)
	JZ(LabelRef(label + "Done"))
	f(r.tail.load(Mem{Base: r.s}))
	Label(label + "Done")
}

// store writes a row times by.
func (r *rounding) store(by VecVirtual) {
	r.each("integer", func(x VecVirtual) {
		VMULPS(by, x, x)
		VCVTPS2DQ(x, x)
		switch r.name {
		case "VNNI":
			VPMOVSDW(x, Mem{Base: r.d})
		case "VNNI8":
			VPADDD_BCST(global("middle", 128), x, x)
			VPMOVDB(x, Mem{Base: r.d})
		default:
			packWords(x, r.other, Mem{Base: r.d})
		}
	})
}

// packWords writes eight numbers as 16 bits each and spends x and other.
func packWords(x, other VecVirtual, to Mem) {
	VEXTRACTI128(Imm(1), x, other)
	VPACKSSDW(other, x.AsX(), other)
	VMOVDQU(other, to)
}

// next goes on with the next row, if there is one.
func (r *rounding) next() {
	ADDQ(slot("ldd"), r.dst)
	ADDQ(slot("lds"), r.src)
	DECQ(r.rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// more is what is added to the numbers of rows: bytes have no sign there.
func (w integer) more() string {
	if w.size == 1 {
		return " + 128"
	}
	return ""
}

// round writes the rounding of rows to integers of one unit.
func round(w integer) {
	name := "round" + w.name
	TEXT(name, NOSPLIT, "func(rows uintptr, dst *uint32, ldd uintptr, src *float32, lds, k uintptr, most float32)")
	Doc(name+" is", "",
		"\tfor r < rows, l < k: dst[r,l] = src[r,l]·most, to the nearest integer, ties to even"+w.more(), "",
		fmt.Sprintf("of %d bits, as for zeros up to the next multiple of %d of k, and ldd and lds in bytes. Numbers", 8*w.size, w.lanes),
		"beyond ±1 and NaNs mean nothing.")
	Pragma("noescape")
	r := newRounding(w)
	by := w.reg()
	VBROADCASTSS(slot("most"), by)
	Label("row")
	r.store(by)
	r.next()
}

// quantise writes the rounding of rows to integers of units of their own.
func quantise(w integer) {
	v, name := w.vector, "quantise"+w.name
	TEXT(name, NOSPLIT, "func(rows uintptr, dst *uint32, ldd uintptr, unit *float32, src *float32, lds, k uintptr, most, least float32)")
	Doc(name+" is", "",
		"\tfor r < rows:",
		"\t\tm = max(least, |src[r,0]|, …, |src[r,k-1]|); unit[r] = m/most",
		"\t\tfor l < k: dst[r,l] = src[r,l]·(most/m), to the nearest integer, ties to even", "",
		fmt.Sprintf("of %d bits, as for zeros up to the next multiple of %d of k, and ldd and lds in bytes. Of a row", 8*w.size, v.lanes),
		"with an infinity or a NaN the unit is a NaN and the numbers mean nothing.")
	Pragma("noescape")
	r, unit := newRounding(w), param("unit")
	abs := v.reg()
	VPBROADCASTD(global("abs", 1<<31-1), abs)
	most, least := XMM(), XMM()
	VMOVSS(slot("most"), most)
	VMOVSS(slot("least"), least)
	m := v.reg()
	Label("row")
	if v.lanes == 16 {
		VPXORD(m, m, m)
	} else {
		VPXOR(m, m, m)
	}
	r.each("magnitude", func(x VecVirtual) {
		if v.lanes == 16 {
			VPANDD(x, abs, x)
		} else {
			VPAND(x, abs, x)
		}
		VPMAXUD(x, m, m)
	})
	half := m
	if v.lanes == 16 {
		half = YMM()
		VEXTRACTI64X4(Imm(1), m, half)
		VPMAXUD(half, m.AsY(), half)
	}
	quarter, other := XMM(), r.other
	VEXTRACTI128(Imm(1), half, quarter)
	VPMAXUD(quarter, half.AsX(), quarter)
	VPSHUFD(Imm(0x4e), quarter, other)
	VPMAXUD(other, quarter, quarter)
	VPSHUFD(Imm(0xb1), quarter, other)
	VPMAXUD(other, quarter, quarter)
	VPMAXUD(least, quarter, quarter)
	// Integers have no NaN; the unit tells: m − m is 0 or one.
	scale, u := XMM(), XMM()
	VDIVSS(quarter, most, scale)
	VDIVSS(most, quarter, u)
	VSUBSS(quarter, quarter, quarter)
	VADDSS(quarter, u, u)
	VMOVSS(u, Mem{Base: unit})
	by := v.reg()
	VBROADCASTSS(scale, by)
	r.store(by)
	ADDQ(Imm(4), unit)
	r.next()
}
