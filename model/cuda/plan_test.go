//go:build cuda && cgo

package cuda

import (
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
)

// A batch that a kernel's grid has no room for is refused, not launched.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		embedding, lines int
		window           model.ContextWindow
		windows          int
		err              string // "" where it is laid
	}{
		"windows":           {16, 1, model.ContextWindow{Len: 1}, 65535 * 32, ""},
		"too many windows":  {16, 1, model.ContextWindow{Len: 1}, 65535*32 + 1, "more than 2097120 windows; lower prediction_batch_size"},
		"lines":             {1 << 16, 20000, model.ContextWindow{Len: 20000}, 6, ""},
		"too many numbers":  {1 << 16, 20000, model.ContextWindow{Len: 20000}, 7, "or 131071 in all"},
		"too long a window": {16, 65535*64 + 1, model.ContextWindow{Len: 65535*64 + 1}, 1, "more than 4194240 lines in a window"},
	} {
		t.Run(name, func(t *testing.T) {
			c := modeltest.Config(1, 16, 0, 16, 1, 1, 0)
			c.EmbeddingSize = tc.embedding
			var s sizes
			s.fill(&c)
			b := &model.Batch{GroupEnd: make([]uint32, tc.lines*model.Groups), GroupScale: make([]float32, tc.lines*model.Groups), Windows: slices.Repeat([]model.ContextWindow{tc.window}, tc.windows)}
			err := new(plan).lay(&s, 1, []*model.Batch{b}, make([]float32, b.NumSteps()*s.k))
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}
