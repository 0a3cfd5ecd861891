package train

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sizes are the dimensions of a network.
type sizes struct {
	layout, embedding, hidden, layers int // L, D, H
	heads                             []int
	focal                             []bool // by column of the heads
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

// pack readies the weights for graphs to run.
func (net *network[T]) pack() {
	for _, m := range net.matrices {
		m.pack()
	}
}

// graph is the network over some windows as one gorgonia graph with its
// machine; it runs on one goroutine at a time. The slices are its inputs, to
// be written before run.
type graph[T number] struct {
	steps, windows int // T, B; N = T·B rows, time-major

	sum     []T   // [N, D] weighted sums of table rows
	layout  []T   // [N, L] standardised
	live    []T   // [N] 0 marks padding
	maskX   []T   // [N, D] dropout of x
	maskH   [][]T // [N, 2H] dropout of each layer's states
	targets []T   // [N, heads]
	weights []T   // [N, heads]

	machine gorgonia.VM
	right   int // rows of the last run whose most probable class of the first head is the target
	cost    *gorgonia.Node
	dsum    *gorgonia.Node
	dparams gorgonia.Nodes // in the order of network.parameters
}

func newGraph[T number](net *network[T], steps, windows int) (*graph[T], error) {
	n, d, h, l := steps*windows, net.embedding, net.hidden, net.sizes.layout
	g := &graph[T]{steps: steps, windows: windows}
	e := gorgonia.NewGraph()
	var err error
	// node adds an input over data, which stays shared.
	node := func(name string, data []T, shape ...int) *gorgonia.Node {
		v := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
		return gorgonia.NewTensor(e, dtype[T](), len(shape), gorgonia.WithShape(shape...),
			gorgonia.WithName(name), gorgonia.WithValue(v))
	}
	input := func(name string, shape ...int) ([]T, *gorgonia.Node) {
		data := make([]T, tensor.Shape(shape).TotalSize())
		return data, node(name, data, shape...)
	}
	apply := func(o *fused[T], in ...*gorgonia.Node) (out *gorgonia.Node) {
		if err == nil {
			out, err = o.apply(in...)
		}
		return out
	}

	params := map[string]*gorgonia.Node{}
	var wrt gorgonia.Nodes
	for _, p := range net.parameters {
		params[p.name] = node(p.name, p.data, p.shape...)
		wrt = append(wrt, params[p.name])
	}
	var sum, layout, live, maskX, targets, weights *gorgonia.Node
	g.sum, sum = input("sum", n, d)
	g.layout, layout = input("layout", n, l)
	g.live, live = input("live", n)
	g.maskX, maskX = input("mask x", n, d)
	g.targets, targets = input("targets", n, len(net.heads))
	g.weights, weights = input("weights", n, len(net.heads))

	x := apply(lineOp(net.arithmetic, n, l, d, net.layout),
		sum, params["layout.weights"], params["layout.bias"], layout)
	x = apply(maskOp[T](n, d), x, maskX)
	states, size := x, d
	for i := range net.layers {
		in := []*gorgonia.Node{states}
		for _, dir := range []string{"forward", "backward"} {
			for _, p := range []string{"input_weights", "recurrent_weights", "bias"} {
				in = append(in, params[fmt.Sprintf("layers.%d.%s.%s", i, dir, p)])
			}
		}
		states = apply(layerOp(net.arithmetic, steps, windows, size, h, &net.layers[i]), append(in, live)...)
		mask, maskNode := input(fmt.Sprintf("mask states %d", i), n, 2*h)
		g.maskH = append(g.maskH, mask)
		states = apply(maskOp[T](n, 2*h), states, maskNode)
		size = 2 * h
	}
	logits := apply(headsOp(net.arithmetic, n, size, d, net.outputs(), net.outStates, net.outLine),
		states, x, params["output.weights.states"], params["output.weights.line"], params["output.bias"])
	g.cost = apply(lossOp[T](n, net.heads, net.focal, &g.right), logits, targets, weights)
	if err != nil {
		return nil, fmt.Errorf("train: graph: %w", err)
	}
	grads, err := gorgonia.Grad(g.cost, append(wrt, sum)...)
	if err != nil {
		return nil, fmt.Errorf("train: gradients: %w", err)
	}
	g.dparams, g.dsum = grads[:len(wrt)], grads[len(wrt)]
	g.machine = gorgonia.NewTapeMachine(e)
	return g, nil
}

// run computes loss and gradients of what stands in the inputs.
func (g *graph[T]) run() (loss T, err error) {
	if err := g.machine.RunAll(); err != nil {
		return 0, fmt.Errorf("train: step: %w", err)
	}
	g.machine.Reset()
	return elements[T](g.cost.Value())[0], nil
}

// gradient of parameter i of the network, valid until the next run.
func (g *graph[T]) gradient(i int) []T { return elements[T](g.dparams[i].Value()) }

// sumGradient is the gradient of sum, valid until the next run.
func (g *graph[T]) sumGradient() []T { return elements[T](g.dsum.Value()) }
