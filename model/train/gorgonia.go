//go:build !cuda

package train

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	// gorgonia's graphs hold Go pointers where the garbage collector does not
	// look, and refuse to run under a Go that it has not been told is safe.
	_ "go4.org/unsafe/assume-no-moving-gc"
)

// This file is not in builds with CUDA: gorgonia has a tag of the same name,
// with which it asks for the headers and libraries of cuBLAS and cuDNN.

// graphMachine is gorgonia's tape machine over the graph of the calls.
type graphMachine[T number] struct {
	vm    gorgonia.VM
	cost  *gorgonia.Node
	grads []*gorgonia.Node // by array, nil for what is not asked for
}

// newMachine differentiates by the arrays of wrt.
func newMachine[T number](arrays []array[T], calls []call[T], wrt []int) (machine[T], error) {
	e := gorgonia.NewGraph()
	nodes := make([]*gorgonia.Node, len(arrays))
	for _, c := range calls {
		var in gorgonia.Nodes
		for _, i := range c.in {
			if nodes[i] == nil { // an input over data, which stays shared
				a := &arrays[i]
				v := tensor.New(tensor.WithShape(a.shape...), tensor.WithBacking(a.data))
				nodes[i] = gorgonia.NewTensor(e, dtype[T](), len(a.shape), gorgonia.WithShape(a.shape...),
					gorgonia.WithName(a.name), gorgonia.WithValue(v))
			}
			in = append(in, nodes[i])
		}
		var err error
		if nodes[c.out], err = gorgonia.ApplyOp(newOp(c.op), in...); err != nil {
			return nil, fmt.Errorf("train: graph: %w", err)
		}
	}
	m := &graphMachine[T]{cost: nodes[calls[len(calls)-1].out], grads: make([]*gorgonia.Node, len(arrays))}
	var by gorgonia.Nodes
	for _, i := range wrt {
		by = append(by, nodes[i])
	}
	grads, err := gorgonia.Grad(m.cost, by...)
	if err != nil {
		return nil, fmt.Errorf("train: gradients: %w", err)
	}
	for j, i := range wrt {
		m.grads[i] = grads[j]
	}
	m.vm = gorgonia.NewTapeMachine(e)
	runtime.SetFinalizer(m.vm, nil) // which does nothing, but a machine is in a cycle, and would never be freed
	return m, nil
}

func (m *graphMachine[T]) run() (T, error) {
	if err := m.vm.RunAll(); err != nil {
		return 0, fmt.Errorf("train: step: %w", err)
	}
	m.vm.Reset()
	return elements[T](m.cost.Value())[0], nil
}

func (m *graphMachine[T]) gradient(array int) []T { return elements[T](m.grads[array].Value()) }

func dtype[T number]() tensor.Dtype {
	if _, ok := any(T(0)).(float32); ok {
		return tensor.Float32
	}
	return tensor.Float64
}

// op is a fused op as a gorgonia Op. What gorgonia asks of such an op (v0.9.18):
//   - An Op returns one value. So the gradient of the first input is the value
//     of the op gradient, and those of the others are ops pick behind it.
//   - Nodes with equal hash codes become one node. So each instance has a
//     number, which is in its hash and in those of its gradient ops.
//   - A tape machine differentiates SDOp only; a LispMachine would silently
//     leave zeros, and is not used.
type op[T number] struct {
	*fused[T]
	opName

	value gorgonia.Value   // of out; a scalar's is made anew each time
	vals  []gorgonia.Value // of grads
	in    [][]T            // scratch
}

// opName is the name of an op, which no other has, and what all of them tell gorgonia.
type opName string

func (opName) ReturnsPtr() bool        { return false }
func (opName) CallsExtern() bool       { return false }
func (opName) OverwritesInput() int    { return -1 }
func (n opName) WriteHash(h hash.Hash) { io.WriteString(h, "linnet "+string(n)) }
func (n opName) String() string        { return string(n) }
func (n opName) Hashcode() uint32 {
	h := fnv.New32a()
	n.WriteHash(h)
	return h.Sum32()
}

var ops atomic.Int64

func newOp[T number](f *fused[T]) *op[T] {
	o := &op[T]{fused: f, opName: opName(fmt.Sprintf("%s#%d", f.name, ops.Add(1))), in: make([][]T, len(f.inputs))}
	if f.output != nil {
		o.value = tensor.New(tensor.WithShape(f.output...), tensor.WithBacking(f.out))
	}
	for i, g := range f.grads {
		o.vals = append(o.vals, tensor.New(tensor.WithShape(f.inputs[i]...), tensor.WithBacking(g)))
	}
	return o
}

func typeOf[T number](s tensor.Shape) hm.Type {
	if len(s) == 0 {
		return dtype[T]()
	}
	return gorgonia.TensorType{Dims: len(s), Of: dtype[T]()}
}

func (o *op[T]) types() []hm.Type {
	var ts []hm.Type
	for _, s := range o.inputs {
		ts = append(ts, typeOf[T](s))
	}
	return append(ts, typeOf[T](o.output))
}

func (o *op[T]) Arity() int    { return len(o.inputs) }
func (o *op[T]) Type() hm.Type { return hm.NewFnType(o.types()...) }
func (o *op[T]) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	if o.output == nil {
		return tensor.ScalarShape(), nil
	}
	return o.output.Clone(), nil
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

func (o *op[T]) load(in []gorgonia.Value) [][]T {
	for i := range o.inputs {
		o.in[i] = elements[T](in[i])
	}
	return o.in
}

func (o *op[T]) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
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

func (o *op[T]) DiffWRT(int) []bool {
	d := make([]bool, len(o.inputs))
	for i := range o.wrt {
		d[i] = true
	}
	return d
}

func (o *op[T]) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	g := &gradient[T]{"gradient of " + o.opName, o}
	first, err := gorgonia.ApplyOp(g, append(append(gorgonia.Nodes{}, in...), out, grad)...)
	if err != nil {
		return nil, err
	}
	nodes := make(gorgonia.Nodes, len(in)) // nil for what is not differentiable
	nodes[0] = first
	for i := 1; i < o.wrt; i++ {
		if nodes[i], err = gorgonia.ApplyOp(&pick[T]{opName(fmt.Sprintf("gradient %d of %s", i, o.opName)), o, i}, first); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// gradient runs backward of a fused op. Its inputs are those of the op, its
// output and the output's gradient; its value is the gradient of the first.
type gradient[T number] struct {
	opName
	of *op[T]
}

func (g *gradient[T]) Arity() int { return len(g.of.inputs) + 2 }
func (g *gradient[T]) Type() hm.Type {
	out := typeOf[T](g.of.output)
	return hm.NewFnType(append(g.of.types(), out, typeOf[T](g.of.inputs[0]))...)
}
func (g *gradient[T]) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return g.of.inputs[0].Clone(), nil
}
func (g *gradient[T]) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	o := g.of
	n := len(o.inputs)
	o.backward(o.grads, elements[T](in[n]), elements[T](in[n+1]), o.load(in))
	return o.vals[0], nil
}

// pick is the gradient of input i of a fused op, once gradient has run.
type pick[T number] struct {
	opName
	of *op[T]
	i  int
}

func (p *pick[T]) Arity() int { return 1 }
func (p *pick[T]) Type() hm.Type {
	return hm.NewFnType(typeOf[T](p.of.inputs[0]), typeOf[T](p.of.inputs[p.i]))
}
func (p *pick[T]) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return p.of.inputs[p.i].Clone(), nil
}
func (p *pick[T]) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return p.of.vals[p.i], nil
}
