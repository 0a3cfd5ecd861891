package modeltest

import (
	"fmt"
	"math"

	"github.com/linnet-ml/linnet/model"
)

// The weights and batches of the goldens are not stored: they come from a
// generator of integers that scripts/goldens.py has as well. Number i of the
// stream called name is
//
//	hash(hash(FNV-1a32(name) + seed) + i)
//
// modulo 2^32, where hash is the finaliser of murmur3. All that is made of
// them is exact in float32, but for 1/√n, which both sides round correctly.

// stream is one sequence of numbers.
type stream uint32

func newStream(name string, seed uint32) stream {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return stream(hash(h + seed))
}

func hash(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return h
}

// at is number i.
func (s stream) at(i int) uint32 { return hash(uint32(s) + uint32(i)) }

// below is number i in [0, n).
func (s stream) below(i, n int) int { return int(s.at(i) % uint32(n)) }

// unit is number i in [-0.5, 0.5), a multiple of 2^-24.
func (s stream) unit(i int) float32 { return float32(s.at(i)>>8)/(1<<24) - 0.5 }

// floats are n units times scale.
func (s stream) floats(n int, scale float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = s.unit(i) * scale
	}
	return x
}

// weightScale is 4/2^k for the smallest k with 4^k ≥ fanIn: units times this
// give sums of about 1.
func weightScale(fanIn int) float32 {
	scale := float32(4)
	for n := 1; n < fanIn; n *= 4 {
		scale /= 2
	}
	return scale
}

// Weights makes weights of the sizes of c. Their streams have the names of the
// tensors in weights.safetensors.
func Weights(c model.Config, seed uint32) *model.Weights {
	d, h, k := c.EmbeddingSize, c.HiddenSize, c.NumOutputs()
	w := &model.Weights{Config: c}

	table := newStream("table", seed)
	w.Table = make([]int8, c.InputSize*d)
	for i := range w.Table {
		w.Table[i] = int8(table.below(i, 255) - 127)
	}
	scale := newStream("table_scale", seed)
	w.TableScale = make([]float32, c.InputSize)
	for i := range w.TableScale {
		w.TableScale[i] = (scale.unit(i) + 1) / 128
	}

	w.LayoutMean = newStream("layout.mean", seed).floats(c.LayoutSize, 1)
	inv := newStream("layout.inv_std", seed)
	w.LayoutInvStd = make([]float32, c.LayoutSize)
	for i := range w.LayoutInvStd {
		w.LayoutInvStd[i] = inv.unit(i) + 1
	}
	w.LayoutWeights = newStream("layout.weights", seed).floats(c.LayoutSize*d, weightScale(c.LayoutSize)/4)
	w.LayoutBias = newStream("layout.bias", seed).floats(d, 1)

	in := d
	direction := func(name string) model.Direction {
		return model.Direction{
			InputWeights:     newStream(name+".input_weights", seed).floats(in*4*h, weightScale(in)),
			RecurrentWeights: newStream(name+".recurrent_weights", seed).floats(h*4*h, weightScale(h)),
			Bias:             newStream(name+".bias", seed).floats(4*h, 2),
		}
	}
	for l := range c.NumLayers {
		name := fmt.Sprintf("layers.%d", l)
		w.Layers = append(w.Layers, model.Layer{Forward: direction(name + ".forward"), Backward: direction(name + ".backward")})
		in = 2 * h
	}
	w.OutputWeights = newStream("output.weights", seed).floats((2*h+d)*k, 2*weightScale(2*h+d))
	w.OutputBias = newStream("output.bias", seed).floats(k, 1)
	return w
}

// Batch makes the lines of a batch and sets its windows. Groups have 0 to 6
// ids; every fifth line has none at all.
func Batch(c model.Config, seed uint32, lines int, windows []model.ContextWindow) *model.Batch {
	b := &model.Batch{Windows: windows}
	count, ids := newStream("batch.count", seed), newStream("batch.ids", seed)
	for g := range lines * model.Groups {
		n := count.below(g, 7)
		if g/model.Groups%5 == 4 {
			n = 0
		}
		for range n {
			b.IDs = append(b.IDs, uint32(ids.below(len(b.IDs), c.InputSize)))
		}
		scale := float32(0)
		if n > 0 {
			scale = float32(1 / math.Sqrt(float64(n)))
		}
		b.GroupEnd = append(b.GroupEnd, uint32(len(b.IDs)))
		b.GroupScale = append(b.GroupScale, scale)
	}
	// Wide enough that some are clipped.
	b.Layout = newStream("batch.layout", seed).floats(lines*c.LayoutSize, 16)
	return b
}
