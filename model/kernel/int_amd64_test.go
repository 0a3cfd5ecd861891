//go:build !noasm

package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Rows become integers of their units, with a zero behind an odd number of them.
func TestQuantise(t *testing.T) {
	for _, i := range []isa{isaMADD, isaAVXVNNI, isaVNNI} {
		t.Run(isaNames[i], func(t *testing.T) { testQuantise(t, i) })
	}
}

func testQuantise(t *testing.T, isa isa) {
	if !supported(isa) {
		t.Skipf("this machine has no %s", isaNames[isa])
	}
	r := rand.New(rand.NewPCG(29, 30))
	for k := 1; k <= 130; k++ {
		for _, bad := range [][]float32{{0}, {1e-45, -1e-38}, {1e-33}, {math.MaxFloat32, -1}, {nan}, {inf}, {-inf, 3}} {
			const rows = 3
			lds, ldd := k+k%7, roundUp(k, 16)
			x := gateArguments(r, rows*lds)
			clear(x[lds:][:k]) // a row of the special ones alone
			copy(x[lds+r.IntN(k):][:1], bad)
			x[r.IntN(k)] = bad[len(bad)-1]
			x = guard(x[:(rows-1)*lds+k], k%8).x
			want, wantUnit := make([]int, rows*ldd), make([]float32, rows)
			for i := range rows {
				largest := float32(minRowMax)
				for _, v := range x[i*lds:][:k] {
					if v != v || math.IsInf(float64(v), 0) {
						largest = nan
					}
					largest = max(largest, v, -v)
				}
				most := float32(isa.qmax())
				wantUnit[i] = largest / most
				for l, v := range x[i*lds:][:k] {
					want[i*ldd+l] = int(math.RoundToEven(float64(v * (most / largest))))
				}
			}
			lanes := ldd / isa.perLane()
			got, unit := slices.Repeat([]uint32{0xbad}, rows*lanes+1), guard(make([]float32, rows), 3)
			quantise(isa, rows, got, lanes, unit.x, x, lds, k)
			unit.check(t, "units")
			near(t, "units", unit.x, wantUnit, func(int) float64 { return 0 })
			for i, w := range want {
				if g := integerAt(isa, got, i); g != w && i%ldd < roundUp(k, isa.perLane()) && wantUnit[i/ldd] == wantUnit[i/ldd] {
					t.Fatalf("k %d with %v: number %d of row %d: got %d, want %d", k, bad, i%ldd, i/ldd, g, w)
				}
			}
			if got[rows*lanes] != 0xbad {
				t.Fatalf("k %d: wrote behind the rows", k)
			}
		}
	}
}

// fractions is gatesRational, of whose integers it sees that they are those of h.
func fractions(t *testing.T) gatesCall {
	return func(rows, vectors uintptr, z *float32, ldz, gate uintptr, c, h *float32, ld uintptr) {
		k := int(8 * vectors)
		ldw := k/2 + 5
		got, want := slices.Repeat([]uint32{0xbad}, int(rows)*ldw), slices.Repeat([]uint32{0xbad}, int(rows)*ldw)
		gatesRational(rows, vectors, z, ldz, gate, c, h, ld, &got[0], uintptr(4*ldw), 1000)
		roundMADD(rows, &want[0], uintptr(4*ldw), h, ld, uintptr(k), 1000)
		if !slices.Equal(got, want) {
			t.Error("other integers than those of h")
		}
	}
}

// Numbers within ±1 become integers of one unit, with zeros behind an odd number of
// them.
func TestRound(t *testing.T) {
	for _, isa := range []isa{isaMADD, isaVNNI, isaVNNI8} {
		t.Run(isaNames[isa], func(t *testing.T) {
			if !supported(isa) {
				t.Skipf("this machine has no %s", isaNames[isa])
			}
			r := rand.New(rand.NewPCG(33, 34))
			for k := 1; k <= 130; k++ {
				const rows = 3
				lds, ldd := k+k%7, roundUp(k, 16)
				x := random(r, (rows-1)*lds+k)
				copy(x, []float32{1, -1, 0.5 / float32(isa.qmax()), 1.5 / float32(isa.qmax())}[:min(k, 4)])
				lanes := ldd / isa.perLane()
				got := slices.Repeat([]uint32{0xbad}, rows*lanes+1)
				round(isa, rows, got, lanes, guard(x, k%8).x, lds, k)
				for i := range rows * ldd {
					want := 0
					if l := i % ldd; l < k {
						want = int(math.RoundToEven(float64(x[i/ldd*lds+l] * float32(isa.qmax()))))
					} else if l >= roundUp(k, isa.perLane()) {
						continue
					}
					if g := integerAt(isa, got, i); g != want {
						t.Fatalf("k %d: number %d of row %d: got %d, want %d", k, i%ldd, i/ldd, g, want)
					}
				}
				if got[rows*lanes] != 0xbad {
					t.Fatalf("k %d: wrote behind the rows", k)
				}
			}
		})
	}
}

// Steps with joined matrices are those of the integers in the rows, and near those
// of float32.
func TestJoined(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		if joined := Join(nil, 0, nil, 0) != nil; joined != active.integer() {
			t.Fatalf("joined matrices: got %v, want %v", joined, active.integer())
		}
		if active.integer() {
			testJoined(t)
		}
	})
}

func testJoined(t *testing.T) {
	if most := int64(active.qmax()) * math.MaxInt8 * int64(active.depth()); active.perLane() == 4 && most > math.MaxInt32 {
		t.Errorf("a sum may be %d, more than %d", most, math.MaxInt32)
	}
	r := rand.New(rand.NewPCG(35, 36))
	sizes := [][2]int{{0, 8}, {1, 1}, {5, 7}, {37, 8}, {64, 16}, {37, 48}, {64, 96}, {100, 100}, {150, 72}, {64, 256}}
	if active.perLane() == 4 { // more than one sum may hold
		sizes = append(sizes, [2]int{active.depth() + 5, 2})
	}
	for _, size := range sizes {
		k, hidden := size[0], size[1]
		n := 4 * hidden
		input, recurrent, bias := random(r, k*n), random(r, hidden*n), random(r, n)
		for _, w := range [][]float32{input, recurrent} {
			for i := range w {
				w[i] /= float32(max(8, math.Sqrt(float64(k))))
			}
		}
		j := Join(input, k, recurrent, hidden)
		for _, m := range []int{1, 2, 3, 7, 20, 64} {
			if k*m > 1<<17 {
				break
			}
			const steps = 3
			stride, words := j.Stride(), j.Words()
			rows := slices.Repeat([]uint32{0x7fff7fff}, (steps+1)*m*stride) // what is not written to must not count
			room := guard(make([]float32, m*n), 1)
			cell, state := guard(random(r, m*hidden), 3), guard(make([]float32, m*hidden), 5)
			wantC, wantH := slices.Clone(cell.x), []float32(nil)
			at, left := 0, m
			for step := range steps {
				x := random(r, left*k)
				j.Round(left, x, k, rows[at*stride:], stride)
				from, exactC := rows[at*stride:], slices.Clone(cell.x)
				j.Step(left, from, step > 0, bias, room.x, cell.x, state.x, rows[(at+left)*stride:])
				room.check(t, "z")
				cell.check(t, "c")
				state.check(t, "h")
				exactZ, exactH := make([]float32, left*n), make([]float32, left*hidden)
				for i := range left {
					for col := range n {
						exactZ[i*n+col] = bias[col] + float32(exactSum(j, from[i*stride:], col, step > 0))
					}
				}
				joinedGates(t, left, exactZ, exactC, exactH, hidden)
				wantZ := make([]float32, left*n)
				for i := range left {
					for col := range n {
						sum := float64(bias[col])
						for l := range k {
							sum += float64(x[i*k+l]) * float64(input[l*n+col])
						}
						for l := range hidden {
							if step > 0 {
								sum += float64(wantH[i*hidden+l]) * float64(recurrent[l*n+col])
							}
						}
						wantZ[i*n+col] = float32(sum)
					}
				}
				wantH = make([]float32, left*hidden)
				gatesGeneric(left, wantZ, n, wantC, hidden, wantH, hidden, hidden)
				for i, got := range state.x[:left*hidden] {
					if math.Abs(float64(got-exactH[i])) > 1e-5 {
						t.Fatalf("%d inputs, %d units, %d rows, step %d: h[%d] is %v, and of the integers %v", k, hidden, left, step, i, got, exactH[i])
					}
					if tolerance := map[int]float64{2: 2e-3, 4: 0.1}[j.b.isa.perLane()]; math.Abs(float64(got-wantH[i])) > tolerance {
						t.Fatalf("%d inputs, %d units, %d rows, step %d: h[%d] is %v, in float64 %v", k, hidden, left, step, i, got, wantH[i])
					}
					word := integerAt(j.b.isa, rows[(at+left+i/hidden)*stride+words:], i%hidden)
					if want := int(math.RoundToEven(float64(got * float32(j.b.isa.qmax())))); word != want {
						t.Fatalf("state %v is %d in the next row, want %d", got, word, want)
					}
				}
				at += left
				left -= left / 3
				wantH = wantH[:left*hidden]
			}
		}
	}
}

// An output of joined matrices' states is the sum of the integers in the rows, near that of
// float32, and nothing in what it was padded with.
func TestJoinedOutput(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		if !active.integer() {
			return
		}
		r := rand.New(rand.NewPCG(39, 40))
		for _, size := range [][2]int{{0, 8}, {5, 7}, {64, 96}, {3, 400}} {
			k, hidden := size[0], size[1]
			j := Join(make([]float32, k*4*hidden), k, make([]float32, hidden*4*hidden), hidden)
			for _, n := range []int{1, 3, 4, 5, 24, 32, 33, 70} {
				ldb := n + 3
				b := random(r, hidden*ldb)
				out := j.PackOutput(b, n, ldb)
				if want := active.perLane() == 2 && n > maxNarrow; (out != nil) != want {
					t.Fatalf("output of %d columns by integers: got %v, want %v", n, out != nil, want)
				}
				if out == nil {
					continue
				}
				for _, m := range []int{1, 2, 3, 14, 33} {
					stride, ldc := j.Stride(), out.N+1
					states, rows := random(r, m*hidden), slices.Repeat([]uint32{0x7fff7fff}, m*stride)
					round(active, m, rows[j.Words():], stride, states, hidden, hidden)
					c := guard(slices.Repeat([]float32{nan}, (m-1)*ldc+out.N), 1)
					j.Output(m, rows, out, c.x, ldc)
					c.check(t, "c")
					for i := range m {
						for col, got := range c.x[i*ldc:][:out.N] {
							var exact, sum, magnitude float64
							for d, first := 0, 0; first < hidden; d, first = d+1, first+out.depth {
								var ints int64
								for l := first; l < min(hidden, first+out.depth); l++ {
									ints += int64(integerAt(active, rows[i*stride+j.Words():], l)) * int64(columnNumber(out, l, col))
								}
								exact += float64(ints) * float64(out.unit[d*out.N+col]) / float64(active.qmax())
							}
							if col < n {
								for l := range hidden {
									product := float64(states[i*hidden+l]) * float64(b[l*ldb+col])
									sum, magnitude = sum+product, magnitude+math.Abs(product)
								}
							}
							if math.Abs(float64(got)-exact) > 1e-6*(1+magnitude) || math.Abs(float64(got)-sum) > 1e-3*(1+magnitude) {
								t.Fatalf("%d units, %d columns, %d rows: column %d is %v, of the integers %v, in float64 %v", hidden, n, m, col, got, exact, sum)
							}
						}
						if i < m-1 && c.x[i*ldc+out.N] == c.x[i*ldc+out.N] {
							t.Fatalf("%d units, %d columns, %d rows: something was written between rows", hidden, n, m)
						}
					}
				}
			}
		}
	})
}

// What is too short panics, whichever it is.
func TestJoinedPanics(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		const k, hidden, m = 5, 8, 3
		if !active.integer() {
			return
		}
		x := make([]float32, m*4*hidden)
		j := Join(make([]float32, k*4*hidden), k, make([]float32, hidden*4*hidden), hidden)
		words := make([]uint32, m*j.Stride())
		mustPanic(t, map[string]func(){
			"input":     func() { Join(x, k, make([]float32, hidden*4*hidden), hidden) },
			"recurrent": func() { Join(make([]float32, k*4*hidden), k, x, hidden) },
			"x":         func() { j.Round(m, x[:m*k-1], k, words, j.Stride()) },
			"dst":       func() { j.Round(m, x, k, words[:2*j.Stride()+j.Words()-1], j.Stride()) },
			"ldd":       func() { j.Round(m, x, k, words, j.Words()-1) },
			"rows":      func() { j.Step(m, words[1:], true, x, x, x, x, words) },
			"next":      func() { j.Step(m, words, true, x, x, x, x, words[1:]) },
			"bias":      func() { j.Step(m, words, true, x[:4*hidden-1], x, x, x, words) },
			"z":         func() { j.Step(m, words, true, x, x[1:], x, x, words) },
			"c":         func() { j.Step(m, words, true, x, x, x[:m*hidden-1], x, words) },
			"h":         func() { j.Step(m, words, true, x, x, x, x[:m*hidden-1], words) },
			"output":    func() { j.Output(m, words, NewPacked(hidden, 8), x, 8) },
		})
	})
}

// exactSum is what the numbers of a row and of column col sum to.
func exactSum(j *Joined, row []uint32, col int, hasPrev bool) (z float64) {
	p := j.b
	for d, first := 0, 0; first < p.K; d, first = d+1, first+p.depth {
		var sum int64
		for l := first; l < min(p.K, first+p.depth); l++ {
			if l < roundUp(j.input, 16) && l >= j.input || l >= roundUp(j.input, 16) && !hasPrev {
				continue
			}
			sum += int64(integerAt(p.isa, row, l)) * int64(columnNumber(p, l, col))
		}
		z += float64(sum) * float64(p.unit[d*roundUp(p.N, p.width)+col]) / float64(p.isa.qmax())
	}
	return z
}

// joinedGates is what Joined does with z, a vector of units after the other.
func joinedGates(t *testing.T, m int, z, c, h []float32, hidden int) {
	switch {
	case active >= isaVNNI && hidden%16 == 0:
		gatesOneByOne(m, z, c, h, hidden, 16, gatesCubic)
	case active < isaVNNI && hidden%8 == 0:
		gatesOneByOne(m, z, c, h, hidden, 8, fractions(t))
	default:
		GatesRows(m, z, 4*hidden, c, hidden, h, hidden, hidden)
	}
}

// integerAt is number i of rows that quantise or round wrote.
func integerAt(i isa, rows []uint32, at int) int {
	if i.perLane() == 4 {
		return int(uint8(rows[at/4]>>(at%4*8))) - 128
	}
	return int(int16(rows[at/2] >> (at % 2 * 16)))
}

// The products of 16 bits are those of the integers, exactly, and these sum to
// 31 where all have one sign.
func TestGemmInt(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		if active.perLane() == 2 {
			testGemmInt(t)
		}
	})
}

func testGemmInt(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	most := int64(0)
	for _, size := range [][3]int{{1, 32, 1}, {1, 200, 95}, {2, 70, 96}, {3, 160, 97}, {5, 384, 64}, {14, 33, 191}, {15, 40, 192}, {120, 96, 193}, {7, 40, 129}, {29, 47, 256}, {29, 47, 300}, {1, 33, 1<<15 + 5}} {
		for _, equal := range []bool{false, true} {
			m, n, k := size[0], size[1], size[2]
			a, b := random(r, m*k), random(r, k*n)
			if equal {
				a, b = slices.Repeat([]float32{-0.7}, m*k), slices.Repeat([]float32{0.3}, k*n)
			}
			add, ldc := random(r, m*(n+3)), n+3
			p, c := newPacked(k, n, active, false), guard(slices.Clone(add), 1)
			p.Repack(random(r, k*n), n)
			p.Repack(b, n) // of the first nothing is left
			if p.depth%active.perLane() != 0 || p.depth > active.depth()+1 {
				t.Fatalf("depth %d of %d", p.depth, k)
			}
			Gemm(m, a, k, p, c.x, ldc, true)
			c.check(t, "c")
			ints, unit := make([]uint32, roundUp(k, 16)/active.perLane()), make([]float32, 1)
			for i := range m {
				quantise(active, 1, ints, 0, unit, a[i*k:], 0, k)
				for j := range n {
					want := add[i*ldc+j]
					for d, first := 0, 0; first < k; d, first = d+1, first+p.depth {
						var sum int64
						for l := first; l < min(k, first+p.depth); l++ {
							sum += int64(integerAt(active, ints, l)) * int64(columnNumber(p, l, j))
						}
						most = max(most, sum, -sum)
						x := float32(sum) * p.unit[d*roundUp(n, p.width)+j]
						want = float32(math.FMA(float64(x), float64(unit[0]), float64(want)))
					}
					if got := c.x[i*ldc+j]; math.Abs(float64(got-want)) > eps*max(1, math.Abs(float64(want))) {
						t.Fatalf("%dx%dx%d: c[%d,%d] is %v, want %v", m, n, k, i, j, got, want)
					}
				}
			}
		}
	}
	if most > math.MaxInt32 || most < math.MaxInt32/100*98 {
		t.Errorf("the largest sum is %d, want nearly %d", most, math.MaxInt32)
	}
}

// columnNumber is number (k, j) that p holds.
func columnNumber(p *Packed, k, j int) int {
	x := p.ints[p.intIndex(k, j)]
	if p.isa.perLane() == 4 {
		return int(int8(x >> (k % 4 * 8)))
	}
	return int(int16(x >> (k % 2 * 16)))
}
