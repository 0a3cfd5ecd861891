package train

import (
	"fmt"
	"hash"
	"hash/fnv"
	"sync/atomic"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A fused op is a whole piece of the network as one gorgonia Op: forward
// fills an output that it owns and keeps what backward needs; backward fills
// the gradients of all its differentiable inputs at once. So a graph has a
// few dozen nodes, its machine allocates next to nothing a step, and one
// machine runs it on one goroutine at a time.
//
// What gorgonia asks of such an op (v0.9.18):
//   - An Op returns one value. So the gradient of the first input is the value
//     of the op gradient, and those of the others are ops pick behind it.
//   - Nodes with equal hash codes become one node. So each instance has a
//     number, which is in its hash and in those of its gradient ops.
//   - A tape machine differentiates SDOp only; a LispMachine would silently
//     leave zeros, and is not used.
type fused[T number] struct {
	number int64
	name   string
	// inputs are the shapes of the inputs; the first wrt of them are
	// differentiable.
	inputs []tensor.Shape
	wrt    int
	output tensor.Shape // nil: a scalar
	out    []T          // [output], or one number

	forward  func(out []T, in [][]T)
	backward func(grads [][]T, out, dout []T, in [][]T)

	value gorgonia.Value   // of out; a scalar's is made anew each time
	grads [][]T            // of the differentiable inputs
	vals  []gorgonia.Value // of grads
	in    [][]T            // scratch
}

var fusedOps atomic.Int64

func newFused[T number](name string, output tensor.Shape, wrt int, inputs ...tensor.Shape) *fused[T] {
	o := &fused[T]{number: fusedOps.Add(1), name: name, inputs: inputs, wrt: wrt, output: output}
	o.out = make([]T, max(1, output.TotalSize()))
	if output != nil {
		o.value = tensor.New(tensor.WithShape(output...), tensor.WithBacking(o.out))
	}
	for _, s := range inputs[:wrt] {
		g := make([]T, s.TotalSize())
		o.grads = append(o.grads, g)
		o.vals = append(o.vals, tensor.New(tensor.WithShape(s...), tensor.WithBacking(g)))
	}
	o.in = make([][]T, len(inputs))
	return o
}

// apply adds o to the graph of its inputs.
func (o *fused[T]) apply(in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return gorgonia.ApplyOp(o, in...)
}

func typeOf[T number](s tensor.Shape) hm.Type {
	if len(s) == 0 {
		return dtype[T]()
	}
	return gorgonia.TensorType{Dims: len(s), Of: dtype[T]()}
}

func (o *fused[T]) types() []hm.Type {
	var ts []hm.Type
	for _, s := range o.inputs {
		ts = append(ts, typeOf[T](s))
	}
	return append(ts, typeOf[T](o.output))
}

func (o *fused[T]) Arity() int    { return len(o.inputs) }
func (o *fused[T]) Type() hm.Type { return hm.NewFnType(o.types()...) }
func (o *fused[T]) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	if o.output == nil {
		return tensor.ScalarShape(), nil
	}
	return o.output.Clone(), nil
}
func (o *fused[T]) ReturnsPtr() bool     { return false }
func (o *fused[T]) CallsExtern() bool    { return false }
func (o *fused[T]) OverwritesInput() int { return -1 }
func (o *fused[T]) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "linnet %s %d", o.name, o.number)
}
func (o *fused[T]) Hashcode() uint32 { return hashcode(o) }
func (o *fused[T]) String() string   { return fmt.Sprintf("%s#%d", o.name, o.number) }

func hashcode(o gorgonia.Op) uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// elements are the numbers of a value; a scalar's are copied.
func elements[T number](v gorgonia.Value) []T {
	switch d := v.Data().(type) {
	case []T:
		return d
	case T:
		return []T{d}
	}
	panic("train: value of another element type")
}

func (o *fused[T]) load(in []gorgonia.Value) [][]T {
	for i := range o.inputs {
		o.in[i] = elements[T](in[i])
	}
	return o.in
}

func (o *fused[T]) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	o.forward(o.out, o.load(in))
	if o.output == nil {
		return scalar(o.out[0]), nil
	}
	return o.value, nil
}

func scalar[T number](x T) gorgonia.Value {
	switch x := any(x).(type) {
	case float32:
		return gorgonia.NewF32(x)
	case float64:
		return gorgonia.NewF64(x)
	}
	panic("train: scalar of another type")
}

func (o *fused[T]) DiffWRT(int) []bool {
	d := make([]bool, len(o.inputs))
	for i := range o.wrt {
		d[i] = true
	}
	return d
}

func (o *fused[T]) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	g := &gradient[T]{o}
	first, err := gorgonia.ApplyOp(g, append(append(gorgonia.Nodes{}, in...), out, grad)...)
	if err != nil {
		return nil, err
	}
	nodes := make(gorgonia.Nodes, len(in)) // nil for what is not differentiable
	nodes[0] = first
	for i := 1; i < o.wrt; i++ {
		if nodes[i], err = gorgonia.ApplyOp(&pick[T]{o, i}, first); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// gradient runs backward of a fused op. Its inputs are those of the op, its
// output and the output's gradient; its value is the gradient of the first.
type gradient[T number] struct{ of *fused[T] }

func (g *gradient[T]) Arity() int { return len(g.of.inputs) + 2 }
func (g *gradient[T]) Type() hm.Type {
	out := typeOf[T](g.of.output)
	return hm.NewFnType(append(g.of.types(), out, typeOf[T](g.of.inputs[0]))...)
}
func (g *gradient[T]) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return g.of.inputs[0].Clone(), nil
}
func (g *gradient[T]) ReturnsPtr() bool     { return false }
func (g *gradient[T]) CallsExtern() bool    { return false }
func (g *gradient[T]) OverwritesInput() int { return -1 }
func (g *gradient[T]) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "linnet gradient of %s %d", g.of.name, g.of.number)
}
func (g *gradient[T]) Hashcode() uint32 { return hashcode(g) }
func (g *gradient[T]) String() string   { return "gradient of " + g.of.String() }
func (g *gradient[T]) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	o := g.of
	n := len(o.inputs)
	o.backward(o.grads, elements[T](in[n]), elements[T](in[n+1]), o.load(in))
	return o.vals[0], nil
}

// pick is the gradient of input i of a fused op, once gradient has run.
type pick[T number] struct {
	of *fused[T]
	i  int
}

func (p *pick[T]) Arity() int { return 1 }
func (p *pick[T]) Type() hm.Type {
	return hm.NewFnType(typeOf[T](p.of.inputs[0]), typeOf[T](p.of.inputs[p.i]))
}
func (p *pick[T]) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return p.of.inputs[p.i].Clone(), nil
}
func (p *pick[T]) ReturnsPtr() bool     { return false }
func (p *pick[T]) CallsExtern() bool    { return false }
func (p *pick[T]) OverwritesInput() int { return -1 }
func (p *pick[T]) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "linnet pick %d of %s %d", p.i, p.of.name, p.of.number)
}
func (p *pick[T]) Hashcode() uint32 { return hashcode(p) }
func (p *pick[T]) String() string   { return fmt.Sprintf("gradient %d of %v", p.i, p.of) }
func (p *pick[T]) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return p.of.vals[p.i], nil
}
