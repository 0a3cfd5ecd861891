// Package kernel has the loops in which labelling and training spend their time:
// products with packed matrices, LSTM gates, sums of table rows, tanh and softmax,
// and AdamW's update, all over row-major float32 slices.
//
// Each has a portable form in generic.go, which is the specification; that of
// Joined's steps and outputs is Step's and Gemm's, within what rounding changes. Other forms are for
// the instruction sets below, one of which is chosen at start: the best that
// the machine has, or the best up to the one that the environment variable
// LINNET_ISA names. An unknown name counts for nothing here, and the programs
// refuse it. The build tag noasm leaves the portable forms alone.
//
// In rising order:
//
//   - generic: portable Go
//   - neon: arm64's vectors, for what takes most of labelling's time
//   - bfmmla: neon, with products of bfloat16 parts by FEAT_BF16; the default on
//     Linux alone
//   - avx2: AVX2 and FMA
//   - madd: avx2, with products of 16-bit integers
//   - avxvnni: madd, by the instruction of AVX-VNNI
//   - avx512: AVX-512 as processors have it since Skylake-X and Zen 4
//   - vnni: avx512, with products of 16-bit integers by VNNI
//   - vnni8: vnni, with steps of Joined in 8 bits; never the default
//   - amx24, amx, amx8: avx512, with products of three, two or one bfloat16
//     parts on AMX's matrix tiles; amx8 is never the default
//
// Integers: where a float32 multiply-add has one number a lane, these have two of
// 16 bits or four of 8. A row of the left operand is quantised to multiples of
// 1/8,191 of its largest magnitude; a column of the right one, in blocks of up to
// 192 of K, to multiples of about 1/262,000 of the sum of its magnitudes or, where
// that is more, of 1/32,767 of its largest one; sums are exact. In 8 bits a column is
// quantised to multiples of 1/127 of its largest magnitude. The rows of Joined are
// multiples of 1/8,191 or 1/127. In its steps
// tanh and σ are approximated: with vnni and vnni8, where the hidden size is a
// multiple of 16, by the piecewise cubics below, and with madd and avxvnni, where it
// is a multiple of 8, by rational functions that are off by 8.5e-6 at most.
// Matrices of fewer than 64 columns, of numbers beyond ±1e32, whose sums might overflow,
// and those that change, as in training, stay in float32, but for the outputs of five and
// more columns that take Joined's states.
//
// Parts: a bfloat16 has 8 significant bits, a float32 24. amx24 splits each
// number into three bfloat16s, which hold all its bits, and adds the six
// products of parts that are not below the last bit; amx and bfmmla take two
// parts and three products, within 2⁻¹⁵ of the product of two numbers (Henry,
// Tang and Heinecke 2019, Leveraging the bfloat16 Artificial Intelligence
// Datatype); amx8 rounds to one. Where the packed numbers are bfloat16s
// themselves, as those of trained models are, three products do for the six, and
// two for the three. Sums are in float32, rounded to odd by bfmmla. In Step of amx
// and amx8, where the hidden size is a multiple of 32, tanh and σ are piecewise
// cubics that are off by 5.2e-6 at most.
//
// Promises:
//
//   - On one instruction set a result depends on its own operands only: a row
//     of Gemm or GatesRows has the same bits whatever the number of rows and
//     wherever it stands among them. Other instruction sets agree within
//     rounding. So do, in SumLines of a Table with multiples, processors of one
//     instruction set with and without VNNI (AVX-512) or BMI2 (AVX2).
//   - Any size from 0 up works; none needs to be a multiple of anything.
//   - Nothing is allocated, except by what packs, and nothing started:
//     a call runs on the calling goroutine. Calls may run at the same time
//     where they write to different slices.
//   - A slice too short for its size panics with a constant string before
//     anything is written. Slices of one call must not overlap unless its
//     comment says so.
//   - A NaN stays a NaN, but not in what Joined rounds; in products of parts
//     or of integers an infinity may become one. Gates take σ beyond ±29
//     as σ(±29), 3e-13 from its limit. With AVX2 and better they take it beyond
//     ±21 as σ(±21), 8e-10 from its limit, and c, which a step changes by 1 at
//     most, may become infinite beyond ±1e11.
package kernel

//go:generate go -C _asm run ./neon -out ../kernel_arm64.s
//go:generate go -C _asm run . -out ../kernel_amd64.s -stubs ../stub_amd64.go -pkg kernel
