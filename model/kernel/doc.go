// Package kernel has the loops in which labelling spends its time: products
// with packed matrices, LSTM gates, sums of table rows, tanh and softmax, all
// over row-major float32 slices.
//
// Each has a portable form (generic.go), which is the specification, and
// versions for x86 instruction sets, chosen once at start: the best that the
// machine has, or the best up to the one that the environment variable
// LINNET_ISA names (generic, avx2, avx512 or amx; an unknown name counts for
// nothing). amx is never chosen unasked: its products round their operands to
// bfloat16, 8 bits. The build tag noasm leaves the portable form alone.
//
// Promises:
//
//   - On one instruction set a result depends on its own operands only: a row
//     of Gemm or Gates has the same bits whatever the number of rows and
//     wherever it stands among them. Other instruction sets agree within
//     rounding.
//   - Any size from 0 up works; none needs to be a multiple of anything.
//   - Nothing is allocated, except by Pack and PackTrans, and nothing started:
//     a call runs on the calling goroutine. Calls may run at the same time
//     where they write to different slices.
//   - A slice too short for its size panics with a constant string before
//     anything is written. Slices of one call must not overlap unless its
//     comment says so.
//   - A NaN stays a NaN. Gates take σ of what is beyond ±29 as σ(±29), 3e-13
//     from its limit.
package kernel

//go:generate go -C _asm run . -out ../kernel_amd64.s -stubs ../stub_amd64.go -pkg kernel
