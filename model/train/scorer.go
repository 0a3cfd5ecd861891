package train

import (
	"context"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// plainScorer stands in for package cpu until that exists.
type plainScorer struct{ w *model.Weights }

func newScorer(w *model.Weights) (model.Scorer, error) { return &plainScorer{w}, nil }

func (s *plainScorer) Close() error { return nil }

func (s *plainScorer) Score(_ context.Context, b *model.Batch, probs []float32) error {
	w, cfg := s.w, &s.w.Config
	d, h, k, l := cfg.EmbeddingSize, cfg.HiddenSize, cfg.NumOutputs(), cfg.LayoutSize
	layoutW := kernel.Pack(w.LayoutWeights, l, d, d)
	outW := kernel.Pack(w.OutputWeights, 2*h+d, k, k)
	type dir struct{ wx, wh *kernel.Packed }
	var dirs [][2]dir
	in := d
	for i := range w.Layers {
		var p [2]dir
		for j, q := range []*model.Direction{&w.Layers[i].Forward, &w.Layers[i].Backward} {
			p[j] = dir{kernel.Pack(q.InputWeights, in, 4*h, 4*h), kernel.Pack(q.RecurrentWeights, h, 4*h, 4*h)}
		}
		dirs = append(dirs, p)
		in = 2 * h
	}
	for _, win := range b.Windows {
		n := win.Len
		x := make([]float32, n*d)
		lay := make([]float32, l)
		for t := range n {
			line := win.First + t
			row := x[t*d : (t+1)*d]
			copy(row, w.LayoutBias)
			standardise(lay, b.Layout[line*l:], w.LayoutMean, w.LayoutInvStd)
			kernel.Gemm(1, lay, l, layoutW, row, d, true)
			var at uint32
			if line > 0 {
				at = b.GroupEnd[line*model.Groups-1]
			}
			for g := line * model.Groups; g < (line+1)*model.Groups; g++ {
				kernel.SumRows(row, w.Table, w.TableScale, b.IDs[at:b.GroupEnd[g]], b.GroupScale[g])
				at = b.GroupEnd[g]
			}
			kernel.Tanh(row)
		}
		cur, in := x, d
		for i := range w.Layers {
			out := make([]float32, n*2*h)
			for j, q := range []*model.Direction{&w.Layers[i].Forward, &w.Layers[i].Backward} {
				z := make([]float32, n*4*h)
				for t := range n {
					copy(z[t*4*h:], q.Bias)
				}
				kernel.Gemm(n, cur, in, dirs[i][j].wx, z, 4*h, true)
				c, hh := make([]float32, h), make([]float32, h)
				for s := range n {
					t := s
					if j == 1 {
						t = n - 1 - s
					}
					kernel.Gemm(1, hh, h, dirs[i][j].wh, z[t*4*h:], 4*h, true)
					kernel.Gates(z[t*4*h:(t+1)*4*h], c, hh, h)
					copy(out[t*2*h+j*h:], hh)
				}
			}
			cur, in = out, 2*h
		}
		cat := make([]float32, 2*h+d)
		for t := range n {
			copy(cat, cur[t*in:(t+1)*in])
			copy(cat[2*h:], x[t*d:(t+1)*d])
			p := probs[:k]
			probs = probs[k:]
			copy(p, w.OutputBias)
			kernel.Gemm(1, cat, 2*h+d, outW, p, k, true)
			kernel.Softmax(p[:len(cfg.Classes)])
			if len(cfg.FullClasses) > 0 {
				kernel.Softmax(p[len(cfg.Classes):])
			}
		}
	}
	return nil
}
