package cuda

// BFloat16 is a precision of a Trainer's products, on GPUs from compute
// capability 8.0 on: float32's range, so that it needs no loss scale.
const BFloat16 = "bfloat16"

// Network is what a Trainer trains: sizes as in model.Config.
type Network struct {
	Rows, Embedding, Layout, Hidden, Layers int
	Heads                                   []int  // columns of each
	Focal                                   []bool // by column: focal loss
}

// columns are those of all heads.
func (n *Network) columns() int { return len(n.Focal) }

// dense is where each array stands in the dense parameters.
type dense struct {
	layout, layoutBias int
	layers             []denseLayer
	states, line, bias int // of the output
	size               int // numbers
	biases             [][2]int
}

// denseLayer is the forward direction; the backward one stands next numbers
// behind it.
type denseLayer struct{ input, recurrent, bias, next int }

func (n *Network) dense() (d dense) {
	weights := func(rows, columns int) int {
		d.size += rows * columns
		return d.size - rows*columns
	}
	bias := func(columns int) int {
		d.size += columns
		d.biases = append(d.biases, [2]int{d.size - columns, d.size})
		return d.size - columns
	}
	h := n.Hidden
	d.layout, d.layoutBias = weights(n.Layout, n.Embedding), bias(n.Embedding)
	in := n.Embedding
	for range n.Layers {
		var l denseLayer
		for i := range 2 {
			this := denseLayer{input: weights(in, 4*h), recurrent: weights(h, 4*h), bias: bias(4 * h)}
			if i == 0 {
				l = this
			}
			l.next = this.input - l.input
		}
		d.layers = append(d.layers, l)
		in = 2 * h
	}
	d.states, d.line, d.bias = weights(in, n.columns()), weights(n.Embedding, n.columns()), bias(n.columns())
	return d
}

// Parameters are those of a network on the host, and their moments: the dense
// ones in the order of layout weights and bias; of each layer and direction
// input weights, recurrent weights and bias; output weights of the states and of
// the line, and bias. The table is [Rows, Embedding].
type Parameters struct {
	Flat, M, V            []float32
	Table, TableM, TableV []float32
}

func (p *Parameters) arrays() [6][]float32 {
	return [6][]float32{p.Flat, p.M, p.V, p.Table, p.TableM, p.TableV}
}

// Windows is a batch, or a part of one: N = Steps·len(Lens) rows, time-major; row
// t·B+b is step t of window b.
type Windows struct {
	Steps int
	Lens  []int32 // rows of each window; those behind are padding

	// Row r sums the rows IDs[Ends[r-1]:Ends[r]] of the table, times Scales.
	Ends, IDs []uint32
	Scales    []float32
	// The same by slot, for the gradient: slot Slots[k] of the step (Begin) has
	// the uses up to SlotEnds[k], in rows Rows with SlotScales.
	Slots, SlotEnds, Rows []uint32
	SlotScales            []float32

	Layout []float32  // [N, Layout], standardised
	MaskX  []uint32   // [N, Embedding] bits: what dropout leaves
	MaskH  [][]uint32 // [N, 2·Hidden] bits of each layer
	Keep   float32    // what is left is multiplied by it

	Targets []int32   // [N, heads] a column of its head
	Weights []float32 // [N, heads] 0 where there is no target
}

// Update is what an update needs beside the gradient.
type Update struct {
	Step         float32 // learning rate / (1 − β1^t)
	Correction   float32 // 1 / (1 − β2^t)
	Decay        float32 // learning rate · weight decay
	Epsilon      float32
	TableEpsilon float32
	Clip         float32 // largest norm of the gradient
	Scale        float32 // that the loss was multiplied by
}

// Stats are what a step came to.
type Stats struct {
	Loss    float32
	Right   int     // rows whose first head is right
	Norm    float32 // of the gradient
	Skipped bool    // the gradient is not finite, nothing was updated
}
