package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// gemmNarrow writes the product with a matrix of n columns, at most four, with AVX2
// three: too few to fill a vector, so vectors go along K, and four rows' sums are
// added up together.
func gemmNarrow(v vector, n int) {
	name := fmt.Sprintf("gemmNarrow%d%s", n, v.isa)
	TEXT(name, NOSPLIT, "func(m uintptr, a *float32, lda uintptr, b *float32, k uintptr, add *float32, ldadd uintptr, c *float32, ldc uintptr)")
	Doc(name+" is", "",
		fmt.Sprintf("\tfor i < m, j < %d: c[i,j] = add[i,j] + Σ_l a[i,l]·b[j,l]", n), "",
		"for m ≥ 1, with l < k, the distances of rows in bytes and those of b a multiple",
		fmt.Sprintf("of 64 bytes. The sum goes over l of each remainder by %d and then over these.", v.lanes))
	Pragma("noescape")
	m, a, lda, add, c := param("m"), param("a"), param("lda"), param("add"), param("c")
	k, ldb, left := param("k"), GP64(), GP64()
	LEAQ(Mem{Base: k, Disp: 15}, ldb)
	ANDQ(I32(-16), ldb)
	SHLQ(Imm(2), ldb)
	MOVQ(k, left)
	ANDQ(Imm(uint64(v.lanes-1)), left)
	rest := v.tail(left)
	var columns Op // the first n of a row
	if v.lanes == 16 {
		bits := GP32()
		columns = K()
		MOVL(U32(1<<n-1), bits)
		KMOVW(bits, columns)
	} else {
		columns = XMM()
		VMOVUPS(v.tailMask().Offset(32-4*n), columns)
	}

	Label("rows")
	// Rows that are not there are the first one again.
	rows := [4]GPVirtual{GP64(), GP64(), GP64(), GP64()}
	MOVQ(a, rows[0])
	for i := 1; i < 4; i++ {
		LEAQ(Mem{Base: rows[i-1], Index: lda, Scale: 1}, rows[i])
		CMPQ(m, Imm(uint64(i)))
		CMOVQLE(a, rows[i])
	}
	var sums [4][]VecVirtual // [row][column]
	for i := range sums {
		for range n {
			sums[i] = append(sums[i], v.zero())
		}
	}
	b, vectors := GP64(), GP64()
	Load(Param("b"), b)
	MOVQ(k, vectors)
	SHRQ(Imm(v.log2()), vectors)
	multiply := func(l lanes) {
		if v.lanes == 8 { // with no registers to spare
			for i := range sums {
				x := l.load(Mem{Base: rows[i]})
				VFMADD231PS(Mem{Base: b}, x, sums[i][0])
				for j := 1; j < n; j++ {
					VFMADD231PS(Mem{Base: b, Index: ldb, Scale: uint8(j)}, x, sums[i][j])
				}
			}
			return
		}
		var x [4]VecVirtual
		for i := range x {
			x[i] = l.load(Mem{Base: rows[i]})
		}
		at := GP64()
		MOVQ(b, at)
		for j := range n {
			if j > 0 {
				ADDQ(ldb, at)
			}
			w := v.reg()
			VMOVUPS(Mem{Base: at}, w)
			for i := range x {
				VFMADD231PS(x[i], w, sums[i][j])
			}
		}
	}
	TESTQ(vectors, vectors)
	JZ(LabelRef("rest"))
	Label("vector")
	multiply(lanes{v, nil})
	for i := range rows {
		ADDQ(Imm(uint64(v.bytes())), rows[i])
	}
	ADDQ(Imm(uint64(v.bytes())), b)
	DECQ(vectors)
	JNZ(LabelRef("vector"))
	Label("rest")
	TESTQ(U32(v.lanes-1), k)
	JZ(LabelRef("sum"))
	multiply(rest)
	Label("sum")

	// Four rows of a column become four numbers of one register.
	var columnSums [4]VecVirtual
	for j := range columnSums {
		if j >= n {
			columnSums[j] = XMM()
			VPXOR(columnSums[j], columnSums[j], columnSums[j])
			continue
		}
		pair := func(x, y VecVirtual) VecVirtual {
			low, high := v.reg(), v.reg()
			VUNPCKLPS(y, x, low)
			VUNPCKHPS(y, x, high)
			VADDPS(high, low, low)
			return low
		}
		x, y := pair(sums[0][j], sums[1][j]), pair(sums[2][j], sums[3][j])
		low, high := v.reg(), v.reg()
		VUNPCKLPD(y, x, low)
		VUNPCKHPD(y, x, high)
		VADDPS(high, low, low)
		half, quarter := low, XMM()
		if v.lanes == 16 {
			half = YMM()
			VEXTRACTF64X4(Imm(1), low, half)
			VADDPS(half, low.AsY(), half)
			VEXTRACTF32X4(Imm(1), half, quarter)
		} else {
			VEXTRACTF128(Imm(1), half, quarter)
		}
		VADDPS(quarter, half.AsX(), quarter)
		columnSums[j] = quarter
	}
	// And four columns of a row.
	var low, high [2]VecVirtual
	for i := range low {
		low[i], high[i] = XMM(), XMM()
		VUNPCKLPS(columnSums[2*i+1], columnSums[2*i], low[i])
		VUNPCKHPS(columnSums[2*i+1], columnSums[2*i], high[i])
	}
	ldadd, ldc := slot("ldadd"), slot("ldc")
	for i := range 4 {
		row, from := XMM(), low
		if i > 1 {
			from = high
		}
		if i%2 == 0 {
			VUNPCKLPD(from[1], from[0], row)
		} else {
			VUNPCKHPD(from[1], from[0], row)
		}
		more := XMM()
		if v.lanes == 16 {
			VMOVUPS_Z(Mem{Base: add}, columns, more)
			VADDPS(more, row, row)
			VMOVUPS(row, columns, Mem{Base: c})
		} else {
			VMASKMOVPS(Mem{Base: add}, columns, more)
			VADDPS(more, row, row)
			// Masked stores are slow on Zen.
			if n == 1 {
				VMOVSS(row, Mem{Base: c})
			} else {
				VMOVSD(row, Mem{Base: c})
			}
			if n == 3 {
				VEXTRACTPS(Imm(2), row, Mem{Base: c, Disp: 8})
			}
		}
		ADDQ(ldadd, add)
		ADDQ(ldc, c)
		DECQ(m)
		JZ(LabelRef("end"))
	}
	LEAQ(Mem{Base: a, Index: lda, Scale: 4}, a)
	JMP(LabelRef("rows"))
	Label("end")
	VZEROUPPER()
	RET()
}
