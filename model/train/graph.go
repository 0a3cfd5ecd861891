package train

import (
	"fmt"

	"gorgonia.org/tensor"
)

// sizes are the dimensions of a network.
type sizes struct {
	layout, embedding, hidden, layers int // L, D, H
	heads                             []int
	focal                             []bool // by column of the heads
	taught                            bool   // targets are probabilities of teachers
}

func (s *sizes) outputs() int { return len(s.focal) }

// matrix is a weight matrix [k, n] and its two packed forms, which all shards
// read. pack is called after the weights changed, before the shards run.
type matrix[T number] struct {
	data      []T
	k, n      int
	mul, mulT right[T] // of the matrix, of its transpose
}

func (m *matrix[T]) pack() {
	if m.k > 0 && m.n > 0 {
		m.mul.set(m.data, m.n)
		m.mulT.set(m.data, m.n)
	}
}

// is panics unless an op was given the matrix it was made for.
func (m *matrix[T]) is(given []T) {
	if len(given) != len(m.data) || len(given) > 0 && &given[0] != &m.data[0] {
		panic("train: op run on another weight matrix")
	}
}

type direction[T number] struct {
	input, recurrent *matrix[T]
	bias             []T
}

type layer[T number] struct{ directions [2]direction[T] }

// parameter is one array of the network's dense parameters.
type parameter[T number] struct {
	name  string
	shape tensor.Shape
	at    int // in network.flat
	data  []T // network.flat[at:], [shape]
}

// network holds the dense parameters: all but the embedding table. The graphs
// of all shards read them.
type network[T number] struct {
	sizes
	arithmetic arithmetic[T]
	flat       []T // all parameters, in the order of parameters
	parameters []parameter[T]
	matrices   []*matrix[T]

	layout      *matrix[T] // [L, D]
	layoutBias  []T
	layers      []layer[T]
	outStates   *matrix[T] // [2H, K]
	outLine     *matrix[T] // [D, K], right behind outStates
	outputsBias []T
}

func newNetwork[T number](a arithmetic[T], s sizes) *network[T] {
	net := &network[T]{sizes: s, arithmetic: a, layers: make([]layer[T], s.layers)}
	// The first pass counts, the second one lays out.
	for range 2 {
		net.parameters, net.matrices = nil, nil
		at := 0
		array := func(name string, shape ...int) []T {
			p := parameter[T]{name: name, shape: shape, at: at}
			at += p.shape.TotalSize()
			if net.flat != nil {
				p.data = net.flat[p.at:at:at]
			}
			net.parameters = append(net.parameters, p)
			return p.data
		}
		weights := func(name string, k, n int) *matrix[T] {
			m := &matrix[T]{data: array(name, k, n), k: k, n: n}
			if k > 0 && n > 0 {
				m.mul, m.mulT = a.right(k, n, false), a.right(n, k, true)
			}
			net.matrices = append(net.matrices, m)
			return m
		}
		h, size := s.hidden, s.embedding
		net.layout = weights("layout.weights", s.layout, s.embedding)
		net.layoutBias = array("layout.bias", s.embedding)
		for l := range net.layers {
			for k, name := range []string{"forward", "backward"} {
				name = fmt.Sprintf("layers.%d.%s.", l, name)
				net.layers[l].directions[k] = direction[T]{
					input:     weights(name+"input_weights", size, 4*h),
					recurrent: weights(name+"recurrent_weights", h, 4*h),
					bias:      array(name+"bias", 4*h),
				}
			}
			size = 2 * h
		}
		net.outStates = weights("output.weights.states", size, s.outputs())
		net.outLine = weights("output.weights.line", s.embedding, s.outputs())
		net.outputsBias = array("output.bias", s.outputs())
		if net.flat == nil {
			net.flat = make([]T, at)
		}
	}
	return net
}

// inputs are some windows as the network gets them: N = T·B rows, time-major.
type inputs[T number] struct {
	steps, windows int // T, B

	sum     []T   // [N, D] weighted sums of table rows
	layout  []T   // [N, L] standardised
	live    []T   // [N] 0 marks padding
	maskX   []T   // [N, D] dropout of x
	maskH   [][]T // [N, 2H] dropout of each layer's states
	targets []T   // [N, heads]
	weights []T   // [N, heads]
	taught  []T   // [N, K] what the teachers say; nil without any
}

func newInputs[T number](s *sizes, steps, windows int) *inputs[T] {
	n := steps * windows
	in := &inputs[T]{steps: steps, windows: windows,
		sum: make([]T, n*s.embedding), layout: make([]T, n*s.layout), live: make([]T, n), maskX: make([]T, n*s.embedding),
		targets: make([]T, n*len(s.heads)), weights: make([]T, n*len(s.heads))}
	if s.taught {
		in.taught = make([]T, n*s.outputs())
	}
	for range s.layers {
		in.maskH = append(in.maskH, make([]T, n*2*s.hidden))
	}
	return in
}

// graph is the network over its inputs, which are to be written before run. It
// runs on one goroutine at a time.
type graph[T number] struct {
	*inputs[T]
	machine machine[T]
	right   int   // rows of the last run whose most probable class of the first head is the target
	params  []int // arrays, in the order of network.parameters
	dsum    int   // array
}

func newGraph[T number](net *network[T], steps, windows int) (*graph[T], error) {
	arrays, calls, g := describe(net, steps, windows)
	var err error
	g.machine, err = newMachine(arrays, calls, append(g.params[:len(g.params):len(g.params)], g.dsum))
	return g, err
}

// describe lists the arrays and the calls of a graph, which has no machine yet.
func describe[T number](net *network[T], steps, windows int) (arrays []array[T], calls []call[T], g *graph[T]) {
	n, d, h, l := steps*windows, net.embedding, net.hidden, net.sizes.layout
	g = &graph[T]{inputs: newInputs[T](&net.sizes, steps, windows)}
	add := func(name string, data []T, shape ...int) int {
		arrays = append(arrays, array[T]{name, shape, data})
		return len(arrays) - 1
	}
	apply := func(o *fused[T], in ...int) int {
		calls = append(calls, call[T]{o, in, add(o.name, o.out, o.output...)})
		return len(arrays) - 1
	}

	params := map[string]int{}
	for _, p := range net.parameters {
		params[p.name] = add(p.name, p.data, p.shape...)
		g.params = append(g.params, params[p.name])
	}
	g.dsum = add("sum", g.sum, n, d)
	layout, live, maskX := add("layout", g.layout, n, l), add("live", g.live, n), add("mask x", g.maskX, n, d)
	targets, weights := add("targets", g.targets, n, len(net.heads)), add("weights", g.weights, n, len(net.heads))

	x := apply(lineOp(net.arithmetic, n, l, d, net.layout), g.dsum, params["layout.weights"], params["layout.bias"], layout)
	x = apply(maskOp[T](n, d), x, maskX)
	states, size := x, d
	for i := range net.layers {
		in := []int{states}
		for _, dir := range []string{"forward", "backward"} {
			for _, p := range []string{"input_weights", "recurrent_weights", "bias"} {
				in = append(in, params[fmt.Sprintf("layers.%d.%s.%s", i, dir, p)])
			}
		}
		states = apply(layerOp(net.arithmetic, steps, windows, size, h, &net.layers[i]), append(in, live)...)
		states = apply(maskOp[T](n, 2*h), states, add(fmt.Sprintf("mask states %d", i), g.maskH[i], n, 2*h))
		size = 2 * h
	}
	logits := apply(headsOp(net.arithmetic, n, size, d, net.outputs(), net.outStates, net.outLine),
		states, x, params["output.weights.states"], params["output.weights.line"], params["output.bias"])
	in := []int{logits, targets, weights}
	if net.taught {
		in = append(in, add("taught", g.taught, n, net.outputs()))
	}
	apply(lossOp[T](n, net.heads, net.focal, net.taught, &g.right), in...)
	return arrays, calls, g
}

// run computes loss and gradients of what stands in the inputs.
func (g *graph[T]) run() (loss T, err error) { return g.machine.run() }

// gradient of parameter i of the network, valid until the next run.
func (g *graph[T]) gradient(i int) []T { return g.machine.gradient(g.params[i]) }

// sumGradient is the gradient of sum, valid until the next run.
func (g *graph[T]) sumGradient() []T { return g.machine.gradient(g.dsum) }
