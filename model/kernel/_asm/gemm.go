package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// panelVectors is the width of a packed panel in vectors.
const panelVectors = 2

// The types of Go's tile, which must be the same there, and the offsets of
// their fields in bytes.
const (
	productType = "struct{k uintptr; a *float32; lda uintptr; b *float32; panel uintptr}"
	tileType    = "struct{c *float32; ldc uintptr; add *float32; ldadd uintptr; first, second " + productType + "; end uintptr}"

	tileC, tileLDC, tileAdd, tileLDAdd                 = 0, 8, 16, 24
	tileFirst                                          = 32
	productK, productA, productLDA, productB, productP = 0, 8, 16, 24, 32
	productSize                                        = 40
)

// gemm writes the tiles of Gemm: of one panel for each number of rows, of half
// a panel for the last columns (with AVX2, whose half panels have too few sums to
// keep the multipliers busy, also of one and a half), and of several neighbouring
// panels for the few rows whose accumulators are too few for that. With AVX-512 two
// panels serve up to 6 rows, as many as there are registers for: such a tile loads 10
// operands for 24 multiply-adds, one of 13 rows and a panel 15 for 26.
func gemm(v vector) {
	for rows := 1; rows <= v.rows; rows++ {
		gemmTile(v, rows, panelVectors)
		gemmTile(v, rows, 1)
	}
	gemmTile(v, 1, 4*panelVectors)
	for rows := 2; rows <= 3 || v.lanes == 16 && rows <= 6; rows++ {
		gemmTile(v, rows, 2*panelVectors)
	}
	if v.lanes == 8 {
		for rows := 1; rows <= v.rows*panelVectors/3; rows++ {
			gemmTile(v, rows, 3)
		}
	}
}

// gemmTile writes a tile of nv vectors of columns.
func gemmTile(v vector, rows, nv int) {
	cols := v.lanes * panelVectors
	name := fmt.Sprintf("gemm%dx%d%s", rows, v.lanes*nv, v.isa)
	TEXT(name, NOSPLIT, "func(t *"+tileType+")")
	Doc(name+" is", "",
		fmt.Sprintf("\tfor i < %d, j < %d:", rows, v.lanes*nv),
		"\t\ts = 0",
		fmt.Sprintf("\t\tfor l < t.k: s += t.a[i,l]·t.b[j/%d][l,j%%%d]", cols, cols),
		"\t\tthe same of the second product; s += t.add[i,j]; t.c[i,j] = s")
	Pragma("noescape")
	t, p := param("t"), GP64()
	LEAQ(Mem{Base: t, Disp: tileFirst}, p)
	// A base pointer for each three rows: the index scales 1 and 2 reach the
	// other two.
	a, lda, k := GP64(), GP64(), GP64()
	bases := []Register{a}
	for len(bases)*3 < rows {
		bases = append(bases, GP64())
	}
	panels := []Register{GP64()}
	for len(panels)*panelVectors < nv {
		panels = append(panels, GP64())
	}
	acc := accumulators(v, rows, nv)
	Label("product")
	MOVQ(Mem{Base: p, Disp: productA}, a)
	MOVQ(Mem{Base: p, Disp: productLDA}, lda)
	at := everyRow(bases, lda)
	MOVQ(Mem{Base: p, Disp: productB}, panels[0])
	for i, b := range panels[1:] {
		MOVQ(panels[i], b)
		ADDQ(Mem{Base: p, Disp: productP}, b)
	}
	MOVQ(Mem{Base: p, Disp: productK}, k)
	multiply(v, rows, nv, k, acc, at, product{add: func(b Op, a, s VecVirtual) { VFMADD231PS(b, a, s) }}, panels, bases)
	// The second product stands behind the first, and a 0 behind it.
	ADDQ(Imm(productSize), p)
	CMPQ(Mem{Base: p, Disp: productK}, Imm(0))
	JNE(LabelRef("product"))
	add, ldadd, c, ldc := GP64(), GP64(), GP64(), GP64()
	MOVQ(Mem{Base: t, Disp: tileAdd}, add)
	MOVQ(Mem{Base: t, Disp: tileLDAdd}, ldadd)
	MOVQ(Mem{Base: t, Disp: tileC}, c)
	MOVQ(Mem{Base: t, Disp: tileLDC}, ldc)
	TESTQ(add, add)
	JZ(LabelRef("store"))
	for i, row := range acc {
		for j, r := range row {
			VADDPS(Mem{Base: add, Disp: j * v.bytes()}, r, r)
		}
		if i < len(acc)-1 {
			ADDQ(ldadd, add)
		}
	}
	Label("store")
	storeRows(v, acc, c, ldc, func(r VecVirtual, _ int, m Mem) { VMOVUPS(r, m) })
}

func accumulators(v vector, rows, nv int) [][]VecVirtual {
	acc := make([][]VecVirtual, rows)
	for i := range acc {
		for range nv {
			acc[i] = append(acc[i], v.zero())
		}
	}
	return acc
}

// everyRow sets bases to every third row from the first base on and returns where
// the u-th 4 bytes of a row stand.
func everyRow(bases []Register, lda Register) func(i, u int) Mem {
	if len(bases) > 1 {
		lda3 := GP64()
		LEAQ(Mem{Base: lda, Index: lda, Scale: 2}, lda3)
		for i, b := range bases[1:] {
			LEAQ(Mem{Base: bases[i], Index: lda3, Scale: 1}, b)
		}
	}
	return func(i, u int) Mem {
		m := Mem{Base: bases[i/3], Disp: 4 * u}
		if i%3 > 0 {
			m.Index, m.Scale = lda, uint8(i%3)
		}
		return m
	}
}

// product is how a product is added to a sum.
type product struct {
	own int // registers that add takes
	add func(b Op, a, sum VecVirtual)
	// addTwo, where there is one, adds those of two vectors and spends a and spare.
	addTwo func(b []VecVirtual, a, spare VecVirtual, sums []VecVirtual)
}

// multiply is the loop over k, of 4 bytes each. It moves panels and bases on.
func multiply(v vector, rows, nv int, k Register, acc [][]VecVirtual, at func(i, u int) Mem, p product, panels, bases []Register) {
	cols := v.lanes * panelVectors
	bat := func(j, u int) Mem {
		return Mem{Base: panels[j/panelVectors], Disp: u*4*cols + j%panelVectors*v.bytes()}
	}
	advance := func(u int) {
		for _, r := range bases {
			ADDQ(U32(4*u), r)
		}
		for _, r := range panels {
			ADDQ(U32(4*cols*u), r)
		}
	}
	var step func(u int)
	if rows <= 3 {
		av, bv := []VecVirtual{}, v.reg()
		for range rows {
			av = append(av, v.reg())
		}
		step = func(u int) {
			for i := range rows {
				VBROADCASTSS(at(i, u), av[i])
			}
			for j := range nv {
				b := Op(bv)
				if rows*nv+rows+1+p.own > v.regs {
					b = bat(j, u)
				} else {
					VMOVUPS(bat(j, u), bv)
				}
				for i := range rows {
					p.add(b, av[i], acc[i][j])
				}
			}
		}
	} else {
		av, bv := []VecVirtual{v.reg(), v.reg()}, []VecVirtual{}
		for range nv {
			bv = append(bv, v.reg())
		}
		if rows*nv+len(av)+nv > v.regs {
			av[1] = av[0]
		}
		step = func(u int) {
			for j := range nv {
				VMOVUPS(bat(j, u), bv[j])
			}
			for i := range rows {
				VBROADCASTSS(at(i, u), av[i%2])
				if p.addTwo != nil {
					p.addTwo(bv, av[i%2], av[1-i%2], acc[i])
					continue
				}
				for j := range nv {
					p.add(bv[j], av[i%2], acc[i][j])
				}
			}
		}
	}
	loop(k, step, advance)
}

// storeRows writes the accumulators to c and ends the function; store writes vector j
// of a row.
func storeRows(v vector, acc [][]VecVirtual, c, ldc Register, store func(r VecVirtual, j int, to Mem)) {
	for i, row := range acc {
		for j, r := range row {
			store(r, j, Mem{Base: c, Disp: j * v.bytes()})
		}
		if i < len(acc)-1 {
			ADDQ(ldc, c)
		}
	}
	VZEROUPPER()
	RET()
}

// gemmTN writes the tiles of GemmTN, and those for its last columns, masked.
func gemmTN(v vector) {
	for rows := 1; rows <= v.rows; rows++ {
		if v.lanes == 16 {
			gemmTNTile(v, rows, true) // a mask costs nothing
			continue
		}
		gemmTNTile(v, rows, false)
		if rows <= 4 { // 6 would leave no registers for the masks; 5 was not tried
			gemmTNTile(v, rows, true)
		}
	}
}

func gemmTNTile(v vector, rows int, masked bool) {
	cols := v.lanes * panelVectors
	name, mask := fmt.Sprintf("gemmTN%dx%d%s", rows, cols, v.isa), ""
	if masked {
		mask = ", mask uint32"
		if v.lanes == 8 {
			name, mask = fmt.Sprintf("gemmTNTail%dx%d%s", rows, cols, v.isa), ", mask *[16]int32"
		}
	}
	TEXT(name, NOSPLIT, "func(a *float32, lda uintptr, b *float32, ldb, k uintptr, c *float32, ldc uintptr"+mask+")")
	Doc(fmt.Sprintf("%s is", name),
		"",
		fmt.Sprintf("\tfor i < %d, j < %d: s = 0; for l < k: s += a[l,i]·b[l,j]; c[i,j] = s", rows, cols),
		"",
		"with lda, ldb and ldc in bytes; a mask leaves out columns.")
	Pragma("noescape")
	a, lda, b, ldb, k := param("a"), param("lda"), param("b"), param("ldb"), param("k")
	load := func(m Mem, _ int, r VecVirtual) { VMOVUPS(m, r) }
	store := func(r VecVirtual, _ int, m Mem) { VMOVUPS(r, m) }
	switch {
	case masked && v.lanes == 16:
		bits := Load(Param("mask"), GP32())
		var ks [panelVectors]OpmaskVirtual
		for j := range ks {
			ks[j] = K()
			KMOVW(bits, ks[j])
			SHRL(Imm(16), bits)
		}
		load = func(m Mem, j int, r VecVirtual) { VMOVUPS_Z(m, ks[j], r) }
		store = func(r VecVirtual, j int, m Mem) { VMOVUPS(r, ks[j], m) }
	case masked:
		p := param("mask")
		var ms [panelVectors]VecVirtual
		for j := range ms {
			ms[j] = YMM()
			VMOVUPS(Mem{Base: p, Disp: 32 * j}, ms[j])
		}
		load = func(m Mem, j int, r VecVirtual) { VMASKMOVPS(m, ms[j], r) }
		store = func(r VecVirtual, j int, m Mem) { VMASKMOVPS(r, ms[j], m) }
	}
	acc := accumulators(v, rows, panelVectors)
	av := []VecVirtual{v.reg(), v.reg()}
	bv := []VecVirtual{v.reg(), v.reg()}
	loop(k, func(int) {
		for j, r := range bv {
			load(Mem{Base: b, Disp: j * v.bytes()}, j, r)
		}
		for i := range rows {
			VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, av[i%2])
			for j, r := range bv {
				VFMADD231PS(r, av[i%2], acc[i][j])
			}
		}
		ADDQ(lda, a)
		ADDQ(ldb, b)
	}, func(int) {})
	storeRows(v, acc, param("c"), param("ldc"), store)
}

// loop runs step k times, four of them between advances.
func loop(k Register, step, advance func(u int)) {
	k4 := GP64()
	MOVQ(k, k4)
	SHRQ(Imm(2), k4)
	JZ(LabelRef("tail"))
	Label("loop4")
	for u := range 4 {
		step(u)
	}
	advance(4)
	DECQ(k4)
	JNZ(LabelRef("loop4"))
	Label("tail")
	ANDQ(Imm(3), k)
	JZ(LabelRef("done"))
	Label("loop1")
	step(0)
	advance(1)
	DECQ(k)
	JNZ(LabelRef("loop1"))
	Label("done")
}

// peak writes the loop that measures what the multipliers can do at best.
func peak(v vector) {
	TEXT("peak"+v.isa, NOSPLIT, "func(n uintptr)")
	Doc("peak" + v.isa + fmt.Sprintf(" runs n times %d independent multiply-adds of %d lanes.", peakChains, v.lanes))
	n := param("n")
	acc := accumulators(v, 1, peakChains)[0]
	x := v.zero()
	Label("loop")
	for _, r := range acc {
		VFMADD231PS(x, x, r)
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

const peakChains = 12
