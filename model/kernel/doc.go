// Package kernel has the loops in which labelling spends its time: products
// with packed matrices, LSTM gates, sums of table rows, tanh and softmax, all
// over row-major float32 slices.
//
// Each has a portable form (generic.go), which is the specification (of Joined's steps
// Step's, within what rounding changes), and
// versions for instruction sets of x86 and, of what takes most of labelling's time,
// for arm64's NEON, chosen once at start: the best that the machine has, or the best up to
// the one that the environment variable LINNET_ISA names (generic, neon, bfmmla, avx2,
// madd, avxvnni, avx512, vnni, vnni8, amx24, amx or amx8, in this order; an unknown name counts for nothing
// here, and the programs refuse it). The build tag noasm leaves the portable form alone.
//
// madd, of AVX2, avxvnni, of AVX-VNNI, and vnni, of AVX-512, multiply whole numbers of 16 bits, twice as many at
// once as there are float32s: each row of the left operand in multiples of 1/8,191 of its largest number, each
// column of the right one, 192 of K at a time, in multiples of about 1/262,000 of the
// sum of its magnitudes, with sums that are exact. vnni8 is vnni but for steps of an LSTM,
// which multiply numbers of 8 bits, four times as many, columns in multiples of 1/127 of their largest, and is
// never chosen unasked. Steps are those of Joined there, whose rows hold multiples of 1/8,191 or 1/127; with vnni
// and vnni8, hidden sizes in whole 16s, tanh and σ are the cubics below; with madd and avxvnni, in
// whole 8s, fractions that are off by 8.5e-6. Matrices of fewer than 64 columns and those that change, as in
// training, stay in float32.
//
// The last three multiply on matrix tiles, which take bfloat16, numbers of 8
// bits. amx24 splits a float32 into three of them, which hold all its bits, and
// adds the six products of parts that are not below the last bit; amx takes two
// parts and three products, within 2⁻¹⁵ of the product of two numbers. Where the
// packed numbers are bfloat16 themselves, as those of trained models are, it is
// three products and two. amx8 rounds to one, and is never chosen unasked (Henry, Tang and
// Heinecke 2019, Leveraging the bfloat16 Artificial Intelligence Datatype). Sums
// are in float32. In Step of amx and amx8, tanh and σ of a hidden size in whole
// 32s are cubics that are off by 5.2e-6 at most.
//
// bfmmla, of arm64's processors that have FEAT_BF16, is the products of amx in vectors, two
// rows by two columns in each, and all else of neon; the sums are rounded to odd. It is
// chosen unasked on Linux alone.
//
// Promises:
//
//   - On one instruction set a result depends on its own operands only: a row
//     of Gemm or GatesRows has the same bits whatever the number of rows and
//     wherever it stands among them. Other instruction sets agree within
//     rounding, and so do, in SumLines of a Table with multiples, processors with
//     AVX-512 that have VNNI and those that do not, and those with AVX2 that have BMI2
//     and those that do not.
//   - Any size from 0 up works; none needs to be a multiple of anything.
//   - Nothing is allocated, except by what packs, and nothing started:
//     a call runs on the calling goroutine. Calls may run at the same time
//     where they write to different slices.
//   - A slice too short for its size panics with a constant string before
//     anything is written. Slices of one call must not overlap unless its
//     comment says so.
//   - A NaN stays a NaN, but not in what Joined rounds; in products of parts or of whole numbers an infinity may become one. Gates take σ of what is beyond ±29 as σ(±29), 3e-13
//     from its limit, those of AVX2 and AVX-512 of what is beyond ±21, 8e-10 from it; there c, which a
//     step changes by 1 at most, must stay within ±1e11, or may become infinite.
package kernel

//go:generate go -C _asm run ./neon -out ../kernel_arm64.s
//go:generate go -C _asm run . -out ../kernel_amd64.s -stubs ../stub_amd64.go -pkg kernel
