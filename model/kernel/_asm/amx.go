package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Matrix tiles of bfloat16 (Intel's Architecture Instruction Set Extensions
// Programming Reference, chapter 3). Neither avo nor Go's assembler knows
// them, so they are written as bytes.

// The types of Go's amxCall, which must be the same there, and the offsets of
// their fields in bytes.
const (
	amxProductType = "struct{blocks uintptr; a *uint16; lda uintptr; b *uint16; panel, next uintptr}"
	amxStepType    = "struct{units, pace, ahead uintptr; other, state, h *float32; ld uintptr}"
	amxGatesType   = "struct{pace, due uintptr; z, state, h *float32}"
	amxCallType    = "struct{config *[64]byte; c *float32; ldc uintptr; add *float32; ldadd, addPanel, rowBlocks, panels, lower, right uintptr; first, second " + amxProductType + "; end uintptr; step " + amxStepType + "; waiting " + amxGatesType + "}"

	amxConfig, amxC, amxLDC, amxAdd, amxLDAdd, amxAddPanel = 0, 8, 16, 24, 32, 40
	amxRowBlocks, amxPanels, amxLower, amxRight            = 48, 56, 64, 72
	amxFirst, amxSecond                                    = 80, 128
	amxBlocks, amxA, amxLDA, amxB, amxPanel, amxNext       = 0, 8, 16, 24, 32, 40
	amxProductLength                                       = 48
	amxUnits, amxPace, amxAhead                            = 184, 192, 200
	amxOther, amxState, amxH, amxLDState                   = 208, 216, 224, 232
	amxWaitingPace, amxDue                                 = 240, 248
	amxWaitingZ, amxWaitingState, amxWaitingH              = 256, 264, 272
)

// raw writes an instruction as bytes.
func raw(bytes ...byte) {
	for _, b := range bytes {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(b)}})
	}
}

// vex is the prefix of an instruction in opcode map 0F38, without operands
// beyond the eighth register but an index and a base.
func vex(pp, vvvv byte, index, base byte) []byte {
	return []byte{0xc4, 0xe2 &^ (index >> 3 << 6) &^ (base >> 3 << 5), (^vvvv&15)<<3 | pp}
}

const (
	ppNone = 0
	pp66   = 1
	ppF3   = 2
	ppF2   = 3
)

// number is the encoding of a general register.
func number(r GPPhysical) byte {
	for i, x := range []GPPhysical{RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15} {
		if x == r {
			return byte(i)
		}
	}
	panic("no such register")
}

// tileMemory moves a tile from or to base + row·stride + disp.
func tileMemory(pp, tile byte, base, stride GPPhysical, disp int) {
	b, s := number(base), number(stride)
	code := append(vex(pp, 0, s, b), 0x4b, 0x84|tile<<3, s&7<<3|b&7)
	for i := range 4 {
		code = append(code, byte(disp>>(8*i)))
	}
	raw(code...)
}

func tileLoad(tile byte, base, stride GPPhysical, disp int) {
	Comment(fmt.Sprintf("TILELOADD %d(%s)(%s*1), TMM%d", disp, base.Asm(), stride.Asm(), tile))
	tileMemory(ppF2, tile, base, stride, disp)
}

// tileStream is tileLoad of what need not stay in the nearest cache.
func tileStream(tile byte, base, stride GPPhysical, disp int) {
	Comment(fmt.Sprintf("TILELOADDT1 %d(%s)(%s*1), TMM%d", disp, base.Asm(), stride.Asm(), tile))
	tileMemory(pp66, tile, base, stride, disp)
}

func tileStore(tile byte, base, stride GPPhysical, disp int) {
	Comment(fmt.Sprintf("TILESTORED TMM%d, %d(%s)(%s*1)", tile, disp, base.Asm(), stride.Asm()))
	tileMemory(ppF3, tile, base, stride, disp)
}

func tileZero(tile byte) {
	Comment(fmt.Sprintf("TILEZERO TMM%d", tile))
	raw(append(vex(ppF2, 0, 0, 0), 0x49, 0xc0|tile<<3)...)
}

// tileMultiply adds a·b to c.
func tileMultiply(c, a, b byte) {
	Comment(fmt.Sprintf("TDPBF16PS TMM%d, TMM%d, TMM%d", b, a, c))
	raw(append(vex(ppF3, b, 0, 0), 0x5c, 0xc0|c<<3|a)...)
}

// order is the pairs of parts whose products count, for the numbers of parts of
// a and of b, such that one part at a time changes where it can: of two parts
// all products but that of both second ones, of three those that are not below
// the last bit of a float32.
var order = map[[2]int][][2]int{
	{1, 1}: {{0, 0}},
	{2, 1}: {{1, 0}, {0, 0}},
	{2, 2}: {{1, 0}, {0, 0}, {0, 1}},
	{3, 1}: {{2, 0}, {1, 0}, {0, 0}},
	{3, 3}: {{2, 0}, {1, 0}, {0, 0}, {0, 1}, {1, 1}, {0, 2}},
}

// amx writes the loop over blocks of 32 rows and panels of 32 columns of
// matrices whose numbers are split into so many parts.
func amx(aParts, bParts int) {
	order := order[[2]int{aParts, bParts}]
	name := fmt.Sprintf("gemmAMX%dx%d", aParts, bParts)
	TEXT(name, NOSPLIT, "func(call *"+amxCallType+")")
	Doc(name+" is", "",
		"\tfor p < call.panels, r < call.rowBlocks, i < 32, j < 32:",
		"\t\ts = call.add[p][32r+i,j]",
		"\t\tfor l < 32·call.first.blocks: s += call.first.a[32r+i,l]·call.first.b[p][l,j]",
		"\t\tthe same of the second product; call.c[32r+i,32p+j] = s",
		"",
		fmt.Sprintf("of numbers in parts of bfloat16, %d of a's and %d of b's, with sums in float32: the products %v of", aParts, bParts, order),
		"the parts of a and b. Panels of add and of b lie addPanel and panel bytes apart. The configuration, lower and right say how much of 32",
		"rows and columns there is.",
		"",
		"With call.step.units it goes on to as many blocks of 32 units of an LSTM, whose",
		"pre-activations go to call.c and call.step.other by turns. The multipliers of",
		"tiles and those of vectors work side by side: between the products of a block",
		"stand the gates of the block before, which is in call.waiting; the last one's",
		"still wait in the end.")
	Pragma("noescape")
	g, stride, panel, block := RDI, R8, R13, R15
	a, lower, lda, b, k, product := RAX, RSI, RBX, RCX, RDX, R9
	c, below, ldc := R10, R12, R11
	z, state, h, due := R10, R11, R12, R14 // while products run
	Load(Param("call"), g)
	field := func(offset int) Mem { return Mem{Base: g, Disp: offset} }
	// where runs f where the call has the part that a field tells of.
	count := 0
	where := func(offset int, f func()) {
		count++
		label := fmt.Sprintf("without%d", count)
		CMPQ(field(offset), Imm(0))
		JE(LabelRef(label))
		f()
		Label(label)
	}
	// point sets c, below and ldc to a matrix's block.
	point := func(base, ld int) {
		MOVQ(field(ld), ldc)
		MOVQ(ldc, below)
		SHLQ(Imm(5), below)
		IMULQ(block, below)
		MOVQ(panel, c)
		if base == amxAdd {
			IMULQ(field(amxAddPanel), c)
		} else {
			SHLQ(Imm(7), c)
		}
		ADDQ(below, c)
		ADDQ(field(base), c)
		MOVQ(ldc, below)
		SHLQ(Imm(4), below)
		ADDQ(c, below)
	}
	MOVQ(field(amxConfig), a)
	Comment("LDTILECFG (AX)")
	raw(append(vex(ppNone, 0, 0, 0), 0x49, 0x00)...)
	MOVQ(U32(64), stride)
	CMPQ(field(amxUnits), Imm(0))
	JE(LabelRef("units"))
	var units func(z func(i int) Op, c, h Mem) code
	if aParts < 3 {
		units = newTileGates().gates
	} else {
		whole := avx512.gateConstants()
		whole.reciprocal = true
		units = func(z func(i int) Op, c, h Mem) code {
			return code{func() { whole.gates(lanes{avx512, nil}, z, c, h) }}
		}
	}
	Label("units")
	XORQ(panel, panel)
	Label("panel")
	XORQ(block, block)
	Label("block")
	CMPQ(field(amxAdd), Imm(0))
	JNE(LabelRef("add"))
	tileZero(0)
	where(amxRight, func() { tileZero(1) })
	where(amxLower, func() {
		tileZero(2)
		where(amxRight, func() { tileZero(3) })
	})
	JMP(LabelRef("multiply"))
	Label("add")
	point(amxAdd, amxLDAdd)
	tileLoad(0, c, ldc, 0)
	where(amxRight, func() { tileLoad(1, c, ldc, 64) })
	where(amxLower, func() {
		tileLoad(2, below, ldc, 0)
		where(amxRight, func() { tileLoad(3, below, ldc, 64) })
	})
	Label("multiply")
	MOVQ(field(amxWaitingZ), z)
	MOVQ(field(amxWaitingState), state)
	MOVQ(field(amxWaitingH), h)
	MOVQ(field(amxDue), due)
	LEAQ(Mem{Base: g, Disp: amxFirst}, product)
	// A block of 32 in K of a's parts and of b's: the parts of a row stand side
	// by side, 64 bytes each; those of b's two tiles follow each other.
	Label("product")
	MOVQ(Mem{Base: product, Disp: amxBlocks}, k)
	MOVQ(Mem{Base: product, Disp: amxLDA}, lda)
	MOVQ(panel, b)
	IMULQ(Mem{Base: product, Disp: amxPanel}, b)
	ADDQ(Mem{Base: product, Disp: amxB}, b)
	MOVQ(lda, a)
	SHLQ(Imm(5), a)
	IMULQ(block, a)
	ADDQ(Mem{Base: product, Disp: amxA}, a)
	MOVQ(lda, lower)
	SHLQ(Imm(4), lower)
	ADDQ(a, lower)
	// row is the gates of a row of the block that waits.
	row := func() code {
		var c code
		for _, at := range []int{0, 64} {
			c = append(c, units(func(i int) Op { return Mem{Base: z, Disp: 128*i + at} },
				Mem{Base: state, Disp: at}, Mem{Base: h, Disp: at})...)
		}
		return append(c,
			func() { ADDQ(U32(4*128), z) },
			func() { ADDQ(field(amxLDState), state) },
			func() { ADDQ(field(amxLDState), h) })
	}
	// inner writes the products of a block in K. With gates, rows of the block
	// that waits go among them, until they are as far as they should be by now:
	// one at a time instruction by instruction, for a clump of gates keeps what
	// stands behind it from the multipliers of tiles; what is left in the end.
	inner := func(gates bool, where func(offset int, f func())) {
		inA, inB := -1, -1
		for _, p := range order {
			i, j := p[0], p[1]
			newA, newB := i != inA, j != inB
			inA, inB = i, j
			products := code{
				func() {
					if newA {
						tileLoad(4, a, lda, 64*i)
					}
					if newB {
						tileStream(6, b, stride, 2048*j)
					}
					tileMultiply(0, 4, 6)
				},
				func() {
					where(amxRight, func() {
						if newB {
							tileStream(7, b, stride, 2048*j+1024)
						}
						tileMultiply(1, 4, 7)
					})
				},
				func() {
					where(amxLower, func() {
						if newA {
							tileLoad(5, lower, lda, 64*i)
						}
						tileMultiply(2, 5, 6)
					})
				},
				func() { where(amxLower, func() { where(amxRight, func() { tileMultiply(3, 5, 7) }) }) },
			}
			if !gates {
				products.write()
				continue
			}
			count++
			plain, next := fmt.Sprintf("plain%d", count), fmt.Sprintf("next%d", count)
			ADDQ(field(amxWaitingPace), due)
			CMPQ(z, due)
			JGE(LabelRef(plain))
			r := row()
			for n, f := range products {
				f()
				r[len(r)*n/len(products) : len(r)*(n+1)/len(products)].write()
			}
			JMP(LabelRef(next))
			Label(plain)
			products.write()
			Label(next)
		}
		if gates {
			more, done := fmt.Sprintf("more%d", count), fmt.Sprintf("done%d", count)
			Label(more)
			CMPQ(z, due)
			JGE(LabelRef(done))
			row().write()
			JMP(LabelRef(more))
			Label(done)
		}
		ADDQ(U32(64*aParts), a)
		ADDQ(U32(64*aParts), lower)
		ADDQ(U32(2048*bParts), b)
		DECQ(k)
	}
	// Whole tiles go their own way, without questions; steps of an LSTM always
	// have both columns.
	CMPQ(field(amxRight), Imm(0))
	JE(LabelRef("some"))
	CMPQ(field(amxLower), Imm(0))
	JE(LabelRef("upper"))
	Label("all")
	inner(true, func(_ int, f func()) { f() })
	JNZ(LabelRef("all"))
	JMP(LabelRef("multiplied"))
	Label("upper")
	inner(true, func(offset int, f func()) {
		if offset == amxRight {
			f()
		}
	})
	JNZ(LabelRef("upper"))
	JMP(LabelRef("multiplied"))
	Label("some")
	inner(false, where)
	JNZ(LabelRef("some"))
	Label("multiplied")
	ADDQ(Imm(amxProductLength), product)
	CMPQ(Mem{Base: product, Disp: amxBlocks}, Imm(0))
	JNE(LabelRef("product"))
	MOVQ(z, field(amxWaitingZ))
	MOVQ(state, field(amxWaitingState))
	MOVQ(h, field(amxWaitingH))
	MOVQ(due, field(amxDue))
	point(amxC, amxLDC)
	tileStore(0, c, ldc, 0)
	where(amxRight, func() { tileStore(1, c, ldc, 64) })
	where(amxLower, func() {
		tileStore(2, below, ldc, 0)
		where(amxRight, func() { tileStore(3, below, ldc, 64) })
	})
	INCQ(block)
	CMPQ(block, field(amxRowBlocks))
	JCS(LabelRef("block"))
	INCQ(panel)
	CMPQ(panel, field(amxPanels))
	JCS(LabelRef("panel"))
	CMPQ(field(amxUnits), Imm(0))
	JE(LabelRef("end"))
	// This block's gates wait for the products of the next.
	move := func(from, to int) {
		MOVQ(field(from), a)
		MOVQ(a, field(to))
	}
	move(amxPace, amxWaitingPace)
	move(amxState, amxWaitingState)
	move(amxH, amxWaitingH)
	MOVQ(field(amxOther), b)
	move(amxC, amxOther)
	MOVQ(b, field(amxC))
	MOVQ(a, field(amxWaitingZ))
	ADDQ(field(amxAhead), a)
	MOVQ(a, field(amxDue))
	DECQ(field(amxUnits))
	JZ(LabelRef("end"))
	for _, pointer := range []int{amxAdd, amxState, amxH} {
		ADDQ(U32(128), field(pointer))
	}
	for _, product := range []int{amxFirst, amxSecond} {
		MOVQ(field(product+amxNext), a)
		ADDQ(a, field(product+amxB))
	}
	JMP(LabelRef("units"))
	Label("end")
	Comment("TILERELEASE")
	raw(append(vex(ppNone, 0, 0, 0), 0x49, 0xc0)...)
	VZEROUPPER()
	RET()
}

// splitRows writes the splitting of rows into parts of bfloat16.
func splitRows(parts int) {
	name := fmt.Sprintf("splitRowsAMX%d", parts)
	TEXT(name, NOSPLIT, "func(rows uintptr, dst *uint16, ldd uintptr, src *float32, lds, k uintptr)")
	Doc(name+" is", "",
		"\tfor r < rows, l < k, p < parts: dst[r][l/32][p][l%32] = part p of src[r,l]", "",
		fmt.Sprintf("for %d parts, with zeros up to the next multiple of 32 of k; ldd and lds in", parts),
		"bytes. Part 0 is the number in bfloat16, to nearest, ties to even, and",
		"denormals 0; each further part is what the ones before leave.")
	Pragma("noescape")
	rows, dst, src, n, d, s := param("rows"), param("dst"), param("src"), GP64(), GP64(), GP64()
	low, high, rest, one := K(), K(), GP64(), GP64()
	MOVQ(param("k"), rest)
	ANDQ(Imm(31), rest)
	MOVQ(U32(1), one)
	SHLXQ(rest, one, one)
	DECQ(one)
	KMOVW(one.As32(), low)
	SHRQ(Imm(16), one)
	KMOVW(one.As32(), high)
	// convert packs 16 numbers of Z0 and then 16 of Z1 in Z2, part by part.
	convert := func() {
		for p := range parts {
			Comment("VCVTNE2PS2BF16 Z0, Z1, Z2")
			raw(0x62, 0xf2, 0x77, 0x48, 0x72, 0xd0)
			// For avo, which does not see what the bytes write.
			VMOVDQU64(Z2, Mem{Base: d, Disp: 64 * p})
			if p == parts-1 {
				break
			}
			// What is left, which float32 holds; of an infinity, a NaN.
			VEXTRACTI64X4(Imm(1), Z2, Y3)
			VPMOVZXWD(Y2, Z2)
			VPMOVZXWD(Y3, Z3)
			VPSLLD(Imm(16), Z2, Z2)
			VPSLLD(Imm(16), Z3, Z3)
			VSUBPS(Z2, Z0, Z0)
			VSUBPS(Z3, Z1, Z1)
		}
		ADDQ(U32(64*parts), d)
	}
	Label("row")
	MOVQ(dst, d)
	MOVQ(src, s)
	Load(Param("k"), n)
	SHRQ(Imm(5), n)
	JZ(LabelRef("rest"))
	Label("full")
	VMOVUPS(Mem{Base: s}, Z0)
	VMOVUPS(Mem{Base: s, Disp: 64}, Z1)
	convert()
	ADDQ(U32(128), s)
	DECQ(n)
	JNZ(LabelRef("full"))
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef("next"))
	VMOVUPS_Z(Mem{Base: s}, low, Z0)
	VMOVUPS_Z(Mem{Base: s, Disp: 64}, high, Z1)
	convert()
	Label("next")
	ADDQ(slot("ldd"), dst)
	ADDQ(slot("lds"), src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// peakTiles writes what the tiles do at best: products of tiles in registers.
func peakTiles() {
	TEXT("peakAMX", NOSPLIT, "func(config *[64]byte, n uintptr)")
	Doc("peakAMX multiplies 4·n tiles of 16 by 32 and 32 by 16 numbers.")
	Pragma("noescape")
	n := RCX
	Load(Param("config"), RAX)
	Load(Param("n"), n)
	Comment("LDTILECFG (AX)")
	raw(append(vex(ppNone, 0, 0, 0), 0x49, 0x00)...)
	for i := range byte(8) {
		tileZero(i)
	}
	Label("loop")
	tileMultiply(0, 4, 6)
	tileMultiply(1, 4, 7)
	tileMultiply(2, 5, 6)
	tileMultiply(3, 5, 7)
	DECQ(n)
	JNZ(LabelRef("loop"))
	Comment("TILERELEASE")
	raw(append(vex(ppNone, 0, 0, 0), 0x49, 0xc0)...)
	RET()
}
