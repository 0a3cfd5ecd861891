package kernel

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// Nothing behind an operand is read or written: it may be the end of memory.
func TestAtEnd(t *testing.T) {
	var regions [12][]byte // more than a call has operands
	for i := range regions {
		regions[i] = region(t)
	}
	next := 0
	take := func() []byte {
		next++
		return regions[next%len(regions)]
	}
	end := func(x []float32) []float32 { return atEnd(take(), x) }
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(41, 42))
		rnd := func(n int) []float32 { return end(random(r, n)) }
		for n := 1; n <= 70; n++ {
			for _, m := range []int{1, 3, 17} {
				k := 1 + r.IntN(40)
				bias, p := random(r, n), Pack(rnd(k*n), k, n, n)
				GemmBias(m, rnd(m*k), k, p, end(bias), rnd(m*n), n)
				Gemm(m, rnd(m*k), k, p, rnd(m*n), n, true)
				GemmTN(m, n, k, rnd(k*m), m, rnd(k*n), n, rnd(m*n), n)
				GatesRows(m, rnd(m*4*n), 4*n, rnd(m*n), n, rnd(m*n), n, n)
				in, rec := PackTwo(rnd(k*4*n), k, rnd(n*4*n), n, 4*n, 4*n)
				Step(m, rnd(m*k), k, in, rnd(m*n), rec, rnd(4*n), rnd(m*4*n), rnd(m*n), rnd(m*n), n)
				StandardiseRows(m, rnd(m*n), rnd(m*n), rnd(n), rnd(n), 6)
				SoftmaxRows(m, rnd(m*n), n, n)
				if j := Join(rnd(k*4*n), k, rnd(n*4*n), n); j != nil {
					rows := atEnd(take(), make([]uint32, m*j.Stride()))
					j.Round(m, rnd(m*k), k, rows, j.Stride())
					j.Step(m, rows, true, rnd(4*n), rnd(m*4*n), rnd(m*n), rnd(m*n), atEnd(take(), make([]uint32, m*j.Stride())))
					if out := j.PackOutput(rnd(n*k), k, k); out != nil {
						j.Output(m, rows, out, rnd(m*out.N), out.N)
					}
				}
			}
			GatesTrain(rnd(4*n), rnd(n), rnd(n), rnd(n), rnd(n), n)
			GatesBackward(rnd(4*n), rnd(4*n), rnd(n), rnd(n), rnd(n), rnd(n), n)
			Tanh(rnd(n))
			AddScaled(rnd(n), rnd(n), .7)
			(&AdamW{Epsilon: 1}).Update(rnd(n), rnd(n), rnd(n), rnd(n))
			Sum(rnd(n), rnd(n), rnd(n), rnd(n))
			l := randomLines(r, n, 3, 9)
			for _, table := range []*Table{l.table, l.whole} {
				at := NewTable(atEnd(take(), table.data), end(table.scale), n)
				ids, ends := l.ids[:l.ends[len(l.ends)-1]], atEnd(take(), l.ends)
				SumLines(rnd(l.n*n), n, at, atEnd(take(), ids), l.first, ends, end(l.scales), l.groups)
			}
			SumRowsF32(rnd(n), rnd(5*n), atEnd(take(), []uint32{4, 0, 4}), .7)
		}
	})
}

// region is memory behind which none may be read.
func region(t *testing.T) []byte {
	const size = 1 << 17
	m, err := syscall.Mmap(-1, 0, size+os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	if err := syscall.Mprotect(m[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return m[:size]
}

// atEnd is a copy of x at the end of m.
func atEnd[T float32 | uint32 | int8](m []byte, x []T) []T {
	var one T
	m = m[len(m)-len(x)*int(unsafe.Sizeof(one)):]
	y := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m))), len(x))
	copy(y, x)
	return y
}
