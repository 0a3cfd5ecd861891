package cpu

import (
	"context"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
)

// embedLines is how many lines share one product with the layout's weights.
const embedLines = 64

// clip is the largest magnitude of a standardised layout feature.
const clip = 6

// embed computes x of the lines of r, [lines, D], into their rows of mem.words
// where joined matrices take it, otherwise of mem.x, and the share of the logits that
// comes from x rather than from the states into those of mem.lineLogits, [lines, row].
func (s *Scorer) embed(ctx context.Context, mem *scratch, r lineRun) error {
	b, d := r.batch, s.d
	id := b.FirstID(r.first) // of the next group
	for done := 0; done < r.len; done += embedLines {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(embedLines, r.len-done)
		first := r.first + done
		kernel.StandardiseRows(n, mem.layout, b.Layout[first*s.layout:], s.layoutMean, s.layoutInvStd, clip)
		x := mem.xBlock
		kernel.GemmBias(n, mem.layout, s.layout, s.layoutWeights, s.layoutBias, x, d)
		groups := b.GroupEnd[first*model.Groups : (first+n)*model.Groups]
		kernel.SumLines(x, d, s.table, b.IDs, id, groups, b.GroupScale[first*model.Groups:], model.Groups)
		id = groups[len(groups)-1]
		for l := range n {
			// A row at a time, so that no row's place among others matters.
			kernel.Tanh(x[l*d:][:d])
		}
		if joined := s.layers[0].forward.joined; joined != nil {
			joined.Round(n, x, d, mem.words[(r.at+done)*joined.Words():], joined.Words())
		} else {
			copy(mem.x[(r.at+done)*d:], x[:n*d])
		}
		for _, o := range s.heads {
			kernel.GemmBias(n, x, d, o.line, o.bias, mem.lineLogits[(r.at+done)*s.row+o.first:], s.row)
		}
	}
	return nil
}
