package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// gemmFew writes the product with a matrix of n columns, at most four: too few
// to fill a vector, so vectors go along K, and four rows' sums are added up
// together.
func gemmFew(n int) {
	v := avx512
	name := fmt.Sprintf("gemmFew%d%s", n, v.isa)
	TEXT(name, NOSPLIT, "func(m uintptr, a *float32, lda uintptr, b *float32, k uintptr, add *float32, ldadd uintptr, c *float32, ldc uintptr)")
	Doc(name+" is", "",
		fmt.Sprintf("\tfor i < m, j < %d: c[i,j] = add[i,j] + Σ_l a[i,l]·b[j,l]", n), "",
		"for m ≥ 1, with l < k, the distances of rows in bytes and those of b a multiple",
		"of 64 bytes. The sum goes over l of each remainder by 16 and then over these.")
	Pragma("noescape")
	m, a, lda, add, c := param("m"), param("a"), param("lda"), param("add"), param("c")
	k, ldb, rest, columns, one := param("k"), GP64(), K(), K(), GP64()
	LEAQ(Mem{Base: k, Disp: 15}, ldb)
	ANDQ(I32(-16), ldb)
	SHLQ(Imm(2), ldb)
	MOVQ(k, one)
	ANDQ(Imm(15), one)
	bit := GP64()
	MOVQ(U32(1), bit)
	SHLXQ(one, bit, bit)
	DECQ(bit)
	KMOVW(bit.As32(), rest)
	MOVQ(U32(1<<n-1), bit)
	KMOVW(bit.As32(), columns)
	SHRQ(Imm(4), k)

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
	b, left := GP64(), GP64()
	Load(Param("b"), b)
	MOVQ(k, left)
	multiply := func(load func(at Mem) VecVirtual) {
		var x [4]VecVirtual
		for i := range x {
			x[i] = load(Mem{Base: rows[i]})
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
	TESTQ(left, left)
	JZ(LabelRef("rest"))
	Label("vector")
	multiply(lanes{v, nil}.load)
	for i := range rows {
		ADDQ(Imm(64), rows[i])
	}
	ADDQ(Imm(64), b)
	DECQ(left)
	JNZ(LabelRef("vector"))
	Label("rest")
	KTESTW(rest, rest)
	JZ(LabelRef("sum"))
	multiply(lanes{v, rest}.load)
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
		half, quarter := YMM(), XMM()
		VEXTRACTF64X4(Imm(1), low, half)
		VADDPS(half, low.AsY(), half)
		VEXTRACTF32X4(Imm(1), half, quarter)
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
		VMOVUPS_Z(Mem{Base: add}, columns, more)
		VADDPS(more, row, row)
		VMOVUPS(row, columns, Mem{Base: c})
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
