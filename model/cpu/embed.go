package cpu

import (
	"context"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// embedLines is how many lines share one product with the layout's weights.
const embedLines = 64

// clip is where a standardised layout number is cut.
const clip = 6

// embed computes x of every line of b into mem.x, [lines, D].
func (s *Scorer) embed(ctx context.Context, mem *scratch, b *model.Batch) error {
	lines, d := b.NumLines(), s.d
	var id uint32 // first id of the next group
	for first := 0; first < lines; first += embedLines {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(embedLines, lines-first)
		for l := range n {
			standardise(mem.layout[l*s.layout:][:s.layout], b.Layout[(first+l)*s.layout:], s.layoutMean, s.layoutInvStd)
		}
		x := mem.x[first*d:]
		kernel.GemmBias(n, mem.layout, s.layout, s.layoutWeights, s.layoutBias, x, d)
		groups := b.GroupEnd[first*model.Groups : (first+n)*model.Groups]
		kernel.SumLines(x, d, d, s.table, s.tableScale, b.IDs, id, groups, b.GroupScale[first*model.Groups:], model.Groups)
		id = groups[len(groups)-1]
		for l := range n {
			// A row at a time, so that no row's place among others matters.
			kernel.Tanh(x[l*d:][:d])
		}
	}
	return nil
}

// standardise writes (x − mean)·invStd, cut at ±clip.
func standardise(dst, x, mean, invStd []float32) {
	x, mean, invStd = x[:len(dst)], mean[:len(dst)], invStd[:len(dst)]
	for i := range dst {
		v := (x[i] - mean[i]) * invStd[i]
		if v > clip {
			v = clip
		}
		if v < -clip {
			v = -clip
		}
		dst[i] = v
	}
}
