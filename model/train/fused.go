package train

import "gorgonia.org/tensor"

// A fused op is a whole piece of the network: forward fills an output that it
// owns and keeps what backward needs; backward fills the gradients of all its
// differentiable inputs at once. So a graph has a few dozen nodes, its machine
// allocates next to nothing a step, and one machine runs it on one goroutine at
// a time.
type fused[T number] struct {
	name string
	// inputs are the shapes of the inputs; the first wrt of them are
	// differentiable.
	inputs []tensor.Shape
	wrt    int
	output tensor.Shape // nil: a scalar
	out    []T          // [output], or one number
	grads  [][]T        // of the differentiable inputs

	forward  func(out []T, in [][]T)
	backward func(grads [][]T, out, dout []T, in [][]T)
}

func newFused[T number](name string, output tensor.Shape, wrt int, inputs ...tensor.Shape) *fused[T] {
	o := &fused[T]{name: name, inputs: inputs, wrt: wrt, output: output}
	o.out = make([]T, max(1, output.TotalSize()))
	for _, s := range inputs[:wrt] {
		o.grads = append(o.grads, make([]T, s.TotalSize()))
	}
	return o
}

// call is an op and the arrays of a graph that it reads and writes.
type call[T number] struct {
	op  *fused[T]
	in  []int
	out int
}

// array is an input or a parameter of a graph, or what an op wrote.
type array[T number] struct {
	name  string
	shape tensor.Shape
	data  []T
}

// machine runs the calls of a graph, forwards and backwards.
type machine[T number] interface {
	// run returns the value of the last call, one number.
	run() (T, error)
	// gradient of that number by an array, valid until the next run.
	gradient(array int) []T
}

// tape is the plain machine: the calls one after the other, and back. Builds
// with CUDA have no other (gorgonia.go says why); its numbers are gorgonia's,
// bit for bit.
type tape[T number] struct {
	arrays []array[T]
	calls  []call[T]
	in     [][]T // scratch
	grads  [][]T // of the arrays; of those that no call is differentiated by, nil
}

func newTape[T number](arrays []array[T], calls []call[T]) *tape[T] {
	return &tape[T]{arrays: arrays, calls: calls, grads: make([][]T, len(arrays))}
}

func (t *tape[T]) inputs(c *call[T]) [][]T {
	t.in = t.in[:0]
	for _, i := range c.in {
		t.in = append(t.in, t.arrays[i].data)
	}
	return t.in
}

func (t *tape[T]) run() (T, error) {
	for i := range t.calls {
		c := &t.calls[i]
		c.op.forward(c.op.out, t.inputs(c))
	}
	clear(t.grads)
	last := &t.calls[len(t.calls)-1]
	t.grads[last.out] = []T{1}
	for i := len(t.calls) - 1; i >= 0; i-- {
		c := &t.calls[i]
		c.op.backward(c.op.grads, c.op.out, t.grads[c.out], t.inputs(c))
		for j, grad := range c.op.grads {
			sum := t.grads[c.in[j]]
			if sum == nil {
				t.grads[c.in[j]] = grad
				continue
			}
			for k, g := range grad {
				sum[k] += g
			}
		}
	}
	return last.op.out[0], nil
}

func (t *tape[T]) gradient(array int) []T { return t.grads[array] }
