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

// Parameters are those of a network on the host, and their moments: the dense
// ones in the order of layout weights and bias; of each layer and direction
// input weights, recurrent weights and bias; output weights of the states and of
// the line, and bias. The table is [Rows, Embedding].
type Parameters struct {
	Flat, M, V            []float32
	Table, TableM, TableV []float32
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
