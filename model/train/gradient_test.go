package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// plain is arithmetic by its definition, in any precision: what the kernels
// are held to, and what the derivatives are checked with in float64.
type plain[T number] struct{}

type plainRight[T number] struct {
	k, n       int
	transposed bool
	b          []T // [k, n]
}

func (plain[T]) right(k, n int, transposed bool) right[T] {
	return &plainRight[T]{k, n, transposed, make([]T, k*n)}
}

func (p *plainRight[T]) set(b []T, ldb int) {
	for i := range p.k {
		for j := range p.n {
			if p.transposed {
				p.b[i*p.n+j] = b[j*ldb+i]
			} else {
				p.b[i*p.n+j] = b[i*ldb+j]
			}
		}
	}
}

func (p *plainRight[T]) mul(m int, a []T, lda int, c []T, ldc int, accumulate bool) {
	for i := range m {
		for j := range p.n {
			var s T
			for l := range p.k {
				s += a[i*lda+l] * p.b[l*p.n+j]
			}
			if accumulate {
				s += c[i*ldc+j]
			}
			c[i*ldc+j] = s
		}
	}
}

func (plain[T]) mulTN(m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int) {
	for i := range m {
		for j := range n {
			var s T
			for l := range k {
				s += a[l*lda+i] * b[l*ldb+j]
			}
			c[i*ldc+j] = s
		}
	}
}

func sigmoid[T number](x T) T { return T(1 / (1 + math.Exp(-float64(x)))) }

func (plain[T]) gates(z, cPrev, c, tanhC, h []T) {
	n := len(h)
	for j := range n {
		i, f, g, o := sigmoid(z[j]), sigmoid(z[n+j]), T(math.Tanh(float64(z[2*n+j]))), sigmoid(z[3*n+j])
		z[j], z[n+j], z[2*n+j], z[3*n+j] = i, f, g, o
		c[j] = f*cPrev[j] + i*g
		tanhC[j] = T(math.Tanh(float64(c[j])))
		h[j] = o * tanhC[j]
	}
}

func (plain[T]) gatesBackward(z, cPrev, tanhC, dh, dc, dz []T) {
	n := len(dh)
	for j := range n {
		i, f, g, o, t := z[j], z[n+j], z[2*n+j], z[3*n+j], tanhC[j]
		d := dc[j] + dh[j]*o*(1-t*t)
		dz[j] = d * g * i * (1 - i)
		dz[n+j] = d * cPrev[j] * f * (1 - f)
		dz[2*n+j] = d * i * (1 - g*g)
		dz[3*n+j] = dh[j] * t * o * (1 - o)
		dc[j] = d * f
	}
}

func (plain[T]) tanh(x []T) {
	for i, v := range x {
		x[i] = T(math.Tanh(float64(v)))
	}
}

// TestGraphFreed wants a graph that is no longer used freed, as each share of a round in
// one process makes some.
func TestGraphFreed(t *testing.T) {
	_, g := randomNetwork(t, plain[float32]{}, sizes{layout: 3, embedding: 4, hidden: 4, layers: 1, heads: []int{3}, focal: make([]bool, 3)}, []int{5, 2})
	if _, err := g.run(); err != nil {
		t.Fatal(err)
	}
	freed := make(chan struct{})
	runtime.AddCleanup(g, func(freed chan struct{}) { close(freed) }, freed)
	g = nil
	for range 100 {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the graph is still there")
}

// randomNetwork returns a network with random weights and a graph of it with
// random inputs: lengths are those of the windows, dropout masks have zeros,
// some rows have no target, one class has focal loss.
func randomNetwork[T number](t *testing.T, a arithmetic[T], s sizes, lengths []int) (*network[T], *graph[T]) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(7, uint64(s.hidden)))
	net := newNetwork(a, s)
	for _, p := range net.parameters {
		scale := 1 / math.Sqrt(float64(p.shape[0]))
		for i := range p.data {
			p.data[i] = T(scale * rnd.NormFloat64())
		}
	}
	g, err := newGraph(net, slices.Max(lengths), len(lengths))
	if err != nil {
		t.Fatal(err)
	}
	normal := func(x []T) {
		for i := range x {
			x[i] = T(rnd.NormFloat64())
		}
	}
	normal(g.sum)
	normal(g.layout)
	for _, m := range append(g.maskH, g.maskX) {
		for i := range m {
			m[i] = T(rnd.IntN(3)) / 2
		}
	}
	for b, length := range lengths {
		for step := range length {
			r := step*len(lengths) + b
			g.live[r] = 1
			for j, classes := range s.heads {
				if rnd.IntN(4) > 0 {
					g.targets[r*len(s.heads)+j] = T(rnd.IntN(classes))
					g.weights[r*len(s.heads)+j] = T(.1 + rnd.Float64())
				}
			}
		}
	}
	// Of each head a distribution, which a student is to learn.
	for row := g.taught; len(row) > 0; {
		for _, classes := range s.heads {
			var sum float64
			p := make([]float64, classes)
			for c := range p {
				p[c] = rnd.ExpFloat64()
				sum += p[c]
			}
			for c := range p {
				row[c] = T(p[c] / sum)
			}
			row = row[classes:]
		}
	}
	net.pack()
	return net, g
}

func lossOf[T number](t *testing.T, g *graph[T]) T {
	t.Helper()
	loss, err := g.run()
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

func testSizes(layers, hidden int) sizes {
	return sizes{layout: 4, embedding: 5, hidden: hidden, layers: layers, heads: []int{3, 4},
		focal: []bool{false, true, false, false, false, true, false}}
}

// taughtSizes are those of a student.
func taughtSizes(layers, hidden int) sizes {
	s := testSizes(layers, hidden)
	s.taught = true
	return s
}

var shapes = []struct {
	name           string
	layers, hidden int
	lengths        []int
	sizes          func(layers, hidden int) sizes
}{
	{"one layer", 1, 7, []int{4, 2, 3}, testSizes},
	{"one unit", 1, 1, []int{5, 1}, testSizes},
	{"two layers", 2, 7, []int{3, 4}, testSizes},
	{"three layers", 3, 7, []int{1, 4, 2}, testSizes},
	{"96 units", 1, 96, []int{3, 2}, testSizes},
	{"one step", 2, 7, []int{1, 1}, testSizes},
	{"one window of one line", 1, 7, []int{1}, testSizes},
	{"taught", 1, 7, []int{4, 2, 3}, taughtSizes},
	{"taught, two layers", 2, 7, []int{3, 4}, taughtSizes},
}

// Derivatives of the loss by every parameter and by the sums of table rows,
// against central differences in float64. The check covers some coordinates
// of each array.
func TestGradient(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			net, g := randomNetwork[float64](t, plain[float64]{}, s.sizes(s.layers, s.hidden), s.lengths)
			lossOf(t, g)
			rnd := rand.New(rand.NewPCG(1, 1))
			check := func(name string, x, grad []float64) {
				for range 12 {
					i := rnd.IntN(len(x))
					was := x[i]
					eval := func(v float64) float64 {
						x[i] = v
						net.pack()
						return lossOf(t, g)
					}
					const e = 1e-5
					want := (eval(was+e) - eval(was-e)) / (2 * e)
					x[i] = was
					net.pack()
					if math.Abs(grad[i]-want) > 1e-7*(math.Abs(want)+math.Abs(grad[i]))+1e-9 {
						t.Errorf("%s[%d]: got %g, want %g", name, i, grad[i], want)
					}
				}
			}
			var grads [][]float64
			for i := range net.parameters {
				grads = append(grads, slices.Clone(g.gradient(i)))
			}
			dsum := slices.Clone(g.sumGradient())
			for i, p := range net.parameters {
				check(p.name, p.data, grads[i])
			}
			check("sum", g.sum, dsum)
		})
	}
}

// The float32 kernels give the losses and gradients of float64.
func TestGradientFloat32(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			_, want := randomNetwork[float64](t, plain[float64]{}, s.sizes(s.layers, s.hidden), s.lengths)
			net, got := randomNetwork[float32](t, kernels{}, s.sizes(s.layers, s.hidden), s.lengths)
			wantLoss := lossOf(t, want)
			gotLoss := lossOf(t, got)
			if math.Abs(float64(gotLoss)-wantLoss) > 1e-5*wantLoss {
				t.Errorf("loss: got %g, want %g", gotLoss, wantLoss)
			}
			same := func(name string, got []float32, want []float64) {
				var size float64
				for _, w := range want {
					size = max(size, math.Abs(w))
				}
				for i, w := range want {
					if !(math.Abs(float64(got[i])-w) <= 1e-5*size+1e-7) {
						t.Fatalf("gradient of %s[%d]: got %g, want %g", name, i, got[i], w)
					}
				}
			}
			for i, p := range net.parameters {
				same(p.name, got.gradient(i), want.gradient(i))
			}
			same("sum", got.sumGradient(), want.sumGradient())
		})
	}
}

// What stands in padding changes neither loss nor gradients.
func TestPadding(t *testing.T) {
	lengths := []int{2, 5, 1}
	net, g := randomNetwork[float32](t, kernels{}, testSizes(2, 7), lengths)
	run := func() string {
		s := fmt.Sprint(lossOf(t, g))
		for i := range net.parameters {
			s += fmt.Sprint(g.gradient(i))
		}
		return s
	}
	before := run()
	for r, live := range g.live {
		if live != 0 {
			continue
		}
		for j := range 5 {
			g.sum[r*5+j] += 3
		}
		for j := range 4 {
			g.layout[r*4+j] -= 2
		}
		if d := g.sumGradient()[r*5 : r*5+5]; fmt.Sprint(d) != "[0 0 0 0 0]" {
			t.Errorf("padding row %d has gradient %v", r, d)
		}
	}
	if after := run(); after != before {
		t.Error("padding changes loss or gradients")
	}
}

// pack readies the weights for graphs to run.
func (net *network[T]) pack() {
	for _, m := range net.matrices {
		m.pack()
	}
}
