package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// panelVectors is the width of a packed panel in vectors.
const panelVectors = 2

// gemm writes the tiles of Gemm: of one panel for each number of rows, and of
// several neighbouring panels for the few rows whose accumulators are too few
// to keep the multipliers busy.
func gemm(v vector) {
	for rows := 1; rows <= v.rows; rows++ {
		gemmTile(v, rows, 1)
	}
	gemmTile(v, 1, 4)
	gemmTile(v, 2, 2)
	gemmTile(v, 3, 2)
}

func gemmTile(v vector, rows, panels int) {
	cols := v.lanes * panelVectors
	name := fmt.Sprintf("gemm%dx%d%s", rows, cols*panels, v.isa)
	TEXT(name, NOSPLIT, "func(a *float32, lda uintptr, b *float32, panel, k uintptr, c *float32, ldc, accumulate uintptr)")
	Doc(fmt.Sprintf("%s is", name),
		"",
		fmt.Sprintf("\tfor i < %d, j < %d: s = 0; for l < k: s += a[i,l]·b[j/%d][l,j%%%d]; c[i,j] = s (or += s)", rows, cols*panels, cols, cols),
		"",
		"with lda, panel (from one panel of b to the next) and ldc in bytes.")
	Pragma("noescape")
	a, lda, b := param("a"), param("lda"), param("b")
	k := param("k")
	// A base pointer for each three rows: the index scales 1 and 2 reach the
	// other two.
	bases := []Register{a}
	if rows > 3 {
		lda3 := GP64()
		LEAQ(Mem{Base: lda, Index: lda, Scale: 2}, lda3)
		for len(bases)*3 < rows {
			p := GP64()
			LEAQ(Mem{Base: bases[len(bases)-1], Index: lda3, Scale: 1}, p)
			bases = append(bases, p)
		}
	}
	at := func(i, u int) Mem {
		m := Mem{Base: bases[i/3], Disp: 4 * u}
		if i%3 > 0 {
			m.Index, m.Scale = lda, uint8(i%3)
		}
		return m
	}
	ptrs := []Register{b}
	if panels > 1 {
		panel := param("panel")
		for len(ptrs) < panels {
			p := GP64()
			LEAQ(Mem{Base: ptrs[len(ptrs)-1], Index: panel, Scale: 1}, p)
			ptrs = append(ptrs, p)
		}
	}
	nv := panels * panelVectors
	bat := func(j, u int) Mem {
		return Mem{Base: ptrs[j/panelVectors], Disp: u*4*cols + j%panelVectors*v.bytes()}
	}
	acc := accumulators(v, rows, nv)
	tile(v, rows, nv, k, acc, at, bat, func(u int) {
		for _, p := range bases {
			ADDQ(U32(4*u), p)
		}
		for _, p := range ptrs {
			ADDQ(U32(4*cols*u), p)
		}
	})
	finish(v, acc, func(m Mem, _ int, r VecVirtual) { VADDPS(m, r, r) }, func(r VecVirtual, _ int, m Mem) { VMOVUPS(r, m) })
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

// tile is the loop over k.
func tile(v vector, rows, nv int, k Register, acc [][]VecVirtual, at, bat func(i, u int) Mem, advance func(u int)) {
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
				VMOVUPS(bat(j, u), bv)
				for i := range rows {
					VFMADD231PS(bv, av[i], acc[i][j])
				}
			}
		}
	} else {
		av, bv := []VecVirtual{v.reg(), v.reg()}, []VecVirtual{}
		for range nv {
			bv = append(bv, v.reg())
		}
		step = func(u int) {
			for j := range nv {
				VMOVUPS(bat(j, u), bv[j])
			}
			for i := range rows {
				VBROADCASTSS(at(i, u), av[i%2])
				for j := range nv {
					VFMADD231PS(bv[j], av[i%2], acc[i][j])
				}
			}
		}
	}
	loop(k, step, advance)
}

// finish writes the accumulators to c, or adds them. The functions work
// on vector j of a row.
func finish(v vector, acc [][]VecVirtual, add func(Mem, int, VecVirtual), store func(VecVirtual, int, Mem)) {
	c, ldc, accumulate, p := param("c"), param("ldc"), param("accumulate"), GP64()
	TESTQ(accumulate, accumulate)
	JZ(LabelRef("store"))
	MOVQ(c, p)
	for i, row := range acc {
		for j, r := range row {
			add(Mem{Base: p, Disp: j * v.bytes()}, j, r)
		}
		if i < len(acc)-1 {
			ADDQ(ldc, p)
		}
	}
	Label("store")
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
		if rows <= 4 { // more would leave no registers for the masks
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
	TEXT(name, NOSPLIT, "func(a *float32, lda uintptr, b *float32, ldb, k uintptr, c *float32, ldc, accumulate uintptr"+mask+")")
	Doc(fmt.Sprintf("%s is", name),
		"",
		fmt.Sprintf("\tfor i < %d, j < %d: s = 0; for l < k: s += a[l,i]·b[l,j]; c[i,j] = s (or += s)", rows, cols),
		"",
		"with lda, ldb and ldc in bytes; a mask leaves out columns.")
	Pragma("noescape")
	a, lda, b, ldb, k := param("a"), param("lda"), param("b"), param("ldb"), param("k")
	load := func(m Mem, _ int, r VecVirtual) { VMOVUPS(m, r) }
	add := func(m Mem, _ int, r VecVirtual) { VADDPS(m, r, r) }
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
		add = func(m Mem, j int, r VecVirtual) { VADDPS(m, r, ks[j], r) }
		store = func(r VecVirtual, j int, m Mem) { VMOVUPS(r, ks[j], m) }
	case masked:
		p := param("mask")
		var ms [panelVectors]VecVirtual
		for j := range ms {
			ms[j] = YMM()
			VMOVUPS(Mem{Base: p, Disp: 32 * j}, ms[j])
		}
		t := YMM()
		load = func(m Mem, j int, r VecVirtual) { VMASKMOVPS(m, ms[j], r) }
		add = func(m Mem, j int, r VecVirtual) {
			VMASKMOVPS(m, ms[j], t)
			VADDPS(t, r, r)
		}
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
	finish(v, acc, add, store)
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
