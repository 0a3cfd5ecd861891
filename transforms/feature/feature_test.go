package feature

import (
	"testing"

	"github.com/linnet-ml/linnet/transforms/yedda"
)

func TestSmoke(t *testing.T) {
	text := []byte("Agaricus novus Smith, sp. nov.\n\n  Pileus 3-5 mm wide, brown; see Fr. 1821.\n")
	b := Extract(text, yedda.Rows(text), 1<<16, 1)
	t.Log(b.NumLines(), b.IDs, b.GroupEnd, b.GroupScale, b.Layout)
}
