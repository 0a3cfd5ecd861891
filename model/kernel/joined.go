package kernel

// Joined is the two matrices of a Step stacked into one, the input weights above the
// recurrent ones, where products are of integers: inputs and states are numbers within
// ±1, so that all have one unit, stand in one row, and are multiplied at once. It serves
// any number of calls.
//
// A row is Stride words: Words of them hold the input, the rest the states of the step
// before. What is in them is the business of the instruction set that was in use when
// the matrices were joined.
type Joined struct {
	b      *Packed // [Words in numbers + hidden, 4·hidden], zeros between the two
	input  int
	hidden int

	words, stride int
}

// Join copies input [k, 4·hidden] and recurrent [hidden, 4·hidden], which have no gaps
// between their rows. It returns nil where products are not of integers: Step is
// what there is then.
func Join(input []float32, k int, recurrent []float32, hidden int) *Joined {
	if !active.integer() {
		return nil
	}
	n := 4 * hidden
	checkMatrix(input, k, n, n)
	checkMatrix(recurrent, hidden, n, n)
	first := roundUp(k, 16)
	both := make([]float32, (first+hidden)*n)
	copy(both, input[:k*n])
	copy(both[first*n:], recurrent[:hidden*n])
	b := newPacked(first+hidden, n, active, false)
	b.Repack(both, n)
	perLane := active.perLane()
	return &Joined{b, k, hidden, first / perLane, (first + roundUp(hidden, 16)) / perLane}
}

// Words is how many words an input is.
func (j *Joined) Words() int { return j.words }

// Stride is the distance of rows in words.
func (j *Joined) Stride() int { return j.stride }

// Round quantises m inputs into dst, in rows ldd words apart: x is [m, k] in rows ldx
// apart, of numbers within ±1. The result for others, or for a NaN, means nothing.
func (j *Joined) Round(m int, x []float32, ldx int, dst []uint32, ldd int) {
	checkMatrix(x, m, j.input, ldx)
	checkWords(dst, m, j.Words(), ldd)
	if m > 0 && j.input > 0 {
		round(j.b.isa, m, dst, ldd, x, ldx, j.input)
	}
}

// Step is the function Step of rows [m, Stride]. Without hasPrev, as in a first step,
// their previous states are taken as zero, and may be overwritten. bias is [4·hidden], z
// [m, 4·hidden] is scratch for the pre-activations, c and h are [m, hidden]. Besides h it
// writes the states, as Round would, to next, [m, Stride], which may lie behind rows in
// the same memory.
func (j *Joined) Step(m int, rows []uint32, hasPrev bool, bias, z, c, h []float32, next []uint32) {
	n := 4 * j.hidden
	checkBias(bias, n)
	checkWords(rows, m, j.Stride(), j.Stride())
	checkWords(next, m, j.Stride(), j.Stride())
	checkMatrix(z, m, n, n)
	checkMatrix(c, m, j.hidden, j.hidden)
	checkMatrix(h, m, j.hidden, j.hidden)
	if m > 0 && j.hidden > 0 {
		j.step(m, rows, hasPrev, bias, z, c, h, next)
	}
}

// PackOutput is kernel.PackOutput for Output, or nil where a product of the states in
// float32 loses less or is faster.
func (j *Joined) PackOutput(b []float32, n, ldb int) *Packed {
	if j.b.isa.perLane() != 2 || n <= maxNarrow {
		return nil
	}
	return packPadded(b, j.hidden, n, ldb, j.b.isa)
}

// Output computes c = h·out of the states h in rows [m, Stride], as Step writes them. c is
// [m, out.N] with rows ldc apart.
func (j *Joined) Output(m int, rows []uint32, out *Packed, c []float32, ldc int) {
	if out.isa != j.b.isa || out.K != j.hidden {
		panic("kernel: Output of matrices that do not match")
	}
	checkWords(rows, m, j.Stride(), j.Stride())
	checkMatrix(c, m, out.N, ldc)
	if m > 0 && j.hidden > 0 {
		j.output(m, rows[j.Words():], out, c, ldc)
	}
}

func checkWords(s []uint32, rows, cols, ld int) {
	if rows > 0 && (ld < cols || len(s) < (rows-1)*ld+cols) {
		panic("kernel: short words")
	}
}
