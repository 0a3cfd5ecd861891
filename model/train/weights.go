package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/linnet-ml/linnet/model"
)

// newWeights makes the arrays and their first values, from the seed: the table
// and biases 0 (forget gates 1), recurrent weights orthogonal gate by gate,
// the others normal with deviation 1/√rows, half of that for the output.
func (t *trainer) newWeights() {
	cfg := &t.config
	rnd := rand.New(rand.NewPCG(uint64(cfg.Seed), streamWeights))
	s := networkSizes(cfg)
	s.taught = t.teachers != nil
	t.net = newNetwork[float32](kernels{}, s)
	n := len(t.net.flat)
	t.grad, t.m, t.v = make([]float32, n), make([]float32, n), make([]float32, n)

	normal := func(m *matrix[float32], deviation float64) {
		for i := range m.data {
			m.data[i] = float32(deviation * rnd.NormFloat64())
		}
	}
	rows := func(m *matrix[float32]) float64 { return 1 / math.Sqrt(float64(m.k)) }
	h := cfg.HiddenSize
	normal(t.net.layout, rows(t.net.layout))
	for l := range t.net.layers {
		for k := range 2 {
			d := &t.net.layers[l].directions[k]
			normal(d.input, rows(d.input))
			for gate := range 4 {
				orthogonal(rnd, d.recurrent.data[gate*h:], h, 4*h)
			}
			for j := range h {
				d.bias[h+j] = 1
			}
		}
	}
	deviation := .5 / math.Sqrt(float64(t.net.outStates.k+t.net.outLine.k))
	normal(t.net.outStates, deviation)
	normal(t.net.outLine, deviation)

	size := cfg.InputSize * cfg.EmbeddingSize
	t.table, t.tableM, t.tableV = make([]float32, size), make([]float32, size), make([]float32, size)
	t.slot = make([]int32, cfg.InputSize)
	for i := range t.slot {
		t.slot[i] = -1
	}
	t.layoutMean, t.layoutInvStd = layoutStatistics(t.corpus.docs, cfg.LayoutSize)
}

// orthogonal writes a random orthogonal matrix [n, n], rows ld apart, by
// Gram and Schmidt's method over normal rows.
func orthogonal(rnd *rand.Rand, dst []float32, n, ld int) {
	q := make([][]float64, n)
	for i := range q {
		q[i] = make([]float64, n)
		for j := range q[i] {
			q[i][j] = rnd.NormFloat64()
		}
		for range 2 { // twice is enough (Kahan)
			for _, p := range q[:i] {
				dot := inner(q[i], p)
				for j := range p {
					q[i][j] -= dot * p[j]
				}
			}
		}
		length := math.Sqrt(inner(q[i], q[i]))
		for j := range q[i] {
			q[i][j] /= length
			dst[i*ld+j] = float32(q[i][j])
		}
	}
}

func inner(a, b []float64) (s float64) {
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

// layoutStatistics are mean and 1/deviation of the layout numbers over all
// rows of docs. A number that never varies gets 0 for 1/deviation: it says
// nothing.
func layoutStatistics(docs []Document, size int) (mean, invStd []float32) {
	sum, squares := make([]float64, size), make([]float64, size)
	var n float64
	for _, d := range docs {
		for x := d.Features.Layout; len(x) > 0; x = x[size:] {
			n++
			for j, v := range x[:size] {
				sum[j] += float64(v)
				squares[j] += float64(v) * float64(v)
			}
		}
	}
	mean, invStd = make([]float32, size), make([]float32, size)
	for j := range mean {
		m := sum[j] / n
		mean[j] = float32(m)
		if variance := squares[j]/n - m*m; variance > 1e-10*(1+m*m) {
			invStd[j] = float32(1 / math.Sqrt(variance))
		}
	}
	return mean, invStd
}

// weights is the model as it stands, with its table at 8 bits and its matrices
// at those of bfloat16.
func (t *trainer) weights() *model.Weights {
	cfg := &t.config
	w := &model.Weights{
		Config:        *cfg,
		LayoutMean:    slices.Clone(t.layoutMean),
		LayoutInvStd:  slices.Clone(t.layoutInvStd),
		LayoutWeights: model.RoundBFloat16(t.net.layout.data),
		LayoutBias:    slices.Clone(t.net.layoutBias),
		OutputWeights: model.RoundBFloat16(slices.Concat(t.net.outStates.data, t.net.outLine.data)),
		OutputBias:    slices.Clone(t.net.outputsBias),
	}
	w.Table, w.TableScale = model.QuantizeTable(t.table, cfg.InputSize, cfg.EmbeddingSize)
	clone := func(d *direction[float32]) model.Direction {
		return model.Direction{
			InputWeights:     model.RoundBFloat16(d.input.data),
			RecurrentWeights: model.RoundBFloat16(d.recurrent.data),
			Bias:             slices.Clone(d.bias),
		}
	}
	for l := range t.net.layers {
		d := &t.net.layers[l].directions
		w.Layers = append(w.Layers, model.Layer{Forward: clone(&d[0]), Backward: clone(&d[1])})
	}
	return w
}

// averaged is the model that training would end with now, by towardsInit.
func (t *trainer) averaged() *model.Weights {
	if t.initFlat == nil {
		return t.weights()
	}
	// Nothing else reads the weights at the end of an epoch.
	flat, table := slices.Clone(t.net.flat), slices.Clone(t.table)
	t.towardsInit()
	w := t.weights()
	copy(t.net.flat, flat)
	copy(t.table, table)
	return w
}

// towardsInit moves the weights, in place, InitShare of the way back to Init.
func (t *trainer) towardsInit() {
	for _, part := range [][2][]float32{{t.net.flat, t.initFlat}, {t.table, t.initTable}} {
		for i, v := range part[1] {
			part[0][i] += float32(t.identity.InitShare) * (v - part[0][i])
		}
	}
}

// setWeights begins from w, and from the statistics of its training rows.
func (t *trainer) setWeights(w *model.Weights) {
	d := t.config.EmbeddingSize
	for id, scale := range w.TableScale {
		for j, q := range w.Table[id*d : (id+1)*d] {
			t.table[id*d+j] = scale * float32(q)
		}
	}
	t.layoutMean, t.layoutInvStd = w.LayoutMean, w.LayoutInvStd
	copy(t.net.layout.data, w.LayoutWeights)
	copy(t.net.layoutBias, w.LayoutBias)
	for l := range t.net.layers {
		for k, from := range []*model.Direction{&w.Layers[l].Forward, &w.Layers[l].Backward} {
			to := &t.net.layers[l].directions[k]
			copy(to.input.data, from.InputWeights)
			copy(to.recurrent.data, from.RecurrentWeights)
			copy(to.bias, from.Bias)
		}
	}
	n := copy(t.net.outStates.data, w.OutputWeights)
	copy(t.net.outLine.data, w.OutputWeights[n:])
	copy(t.net.outputsBias, w.OutputBias)
}

// sameSizes reports why a model cannot be the beginning of one of cfg.
func sameSizes(init, cfg *model.Config) error {
	for _, f := range []struct {
		name      string
		have, ask int
	}{
		{"feature_version", init.FeatureVersion, cfg.FeatureVersion},
		{"input_size", init.InputSize, cfg.InputSize},
		{"embedding_size", init.EmbeddingSize, cfg.EmbeddingSize},
		{"layout_size", init.LayoutSize, cfg.LayoutSize},
		{"hidden_size", init.HiddenSize, cfg.HiddenSize},
		{"num_layers", init.NumLayers, cfg.NumLayers},
	} {
		if f.have != f.ask {
			return fmt.Errorf("train: init_model: its %s is %d, not %d; train with its sizes or without it", f.name, f.have, f.ask)
		}
	}
	if others := otherClasses(init, cfg); others != "" {
		return fmt.Errorf("train: init_model: its %s; train with its classes or without it", others)
	}
	return nil
}

// otherClasses says in what the classes of have are not those of want, "" where
// they are the same.
func otherClasses(have, want *model.Config) string {
	for _, head := range []struct {
		name       string
		have, want []string
	}{{"classes", have.Classes, want.Classes}, {"full_classes", have.FullClasses, want.FullClasses}} {
		without := func(a, b []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(a), func(c string) bool { return slices.Contains(b, c) }), ", ")
		}
		lack, more := without(head.want, head.have), without(head.have, head.want)
		switch {
		case slices.Equal(head.have, head.want):
			continue
		case lack == "" && more == "":
			return head.name + " are in another order"
		case more == "":
			return fmt.Sprintf("%s lack %s", head.name, lack)
		case lack == "":
			return fmt.Sprintf("%s have %s besides", head.name, more)
		}
		return fmt.Sprintf("%s lack %s and have %s besides", head.name, lack, more)
	}
	return ""
}
