//go:build cuda && cgo

package cuda

import (
	"errors"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model"
)

// TestTrainerHangs has a driver that does not come back: the call ends, so do later
// ones, at once, and Close.
func TestTrainerHangs(t *testing.T) {
	if !standIn(t, "STANDIN_DEVICES=1", "STANDIN_HANG=cuMemcpyDtoH_v2") {
		return
	}
	one, err := NewTrainer(devices(t)[0], Network{Rows: 2, Embedding: 1, Layout: 1, Hidden: 1, Layers: 1, Heads: []int{2}, Focal: make([]bool, 2)}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	one.timeout = time.Second
	p := &Parameters{Flat: make([]float32, 1)}
	if err := one.Put(p); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{one.Get(p), one.Begin([]uint32{0})} {
		if !errors.Is(err, model.ErrDeviceLost) || !errors.Is(err, gpuinit.ErrHangs) {
			t.Errorf("%v, want a driver that does not answer", err)
		}
	}
	one.Close()
}

// TestPartsHaveRoom: a training's parts of products, of any number of lines, stand within
// its memory; they are not more for more lines.
func TestPartsHaveRoom(t *testing.T) {
	for _, hidden := range []int{1, 17, 48, 64, 96, 97, 128, 256} {
		for _, embedding := range []int{1, 16, 64, 128} {
			tr := Trainer{net: Network{Embedding: embedding, Layout: 51, Hidden: hidden, Layers: 2, Heads: []int{3, 4}, Focal: make([]bool, 7)}}
			for _, steps := range []int{1, 2, 10, 25, 37, 80} {
				for windows := 1; windows <= 500; windows += 3 {
					l := tr.lay(steps, windows, 1, 1)
					n := steps * windows
					for _, p := range [][4]int{
						{2 * hidden, 7, n, 1}, {embedding, 7, n, 1}, {51, embedding, n, 1}, {embedding, 4 * hidden, n, 2}, {2 * hidden, 4 * hidden, n, 2},
						{hidden, 4 * hidden, n - windows, 2}, // recurrent weights
					} {
						parts, depth := split(p[0], p[1], p[2], p[3])
						if need := parts * p[3] * p[0] * p[1]; parts > 1 && need > l.floats-l.parts || parts*depth < p[2] {
							t.Fatalf("hidden %d, embedding %d, %d steps of %d windows: %d parts of %d lines take %d numbers of %d", hidden, embedding, steps, windows, parts, depth, need, l.floats-l.parts)
						}
					}
				}
			}
		}
	}
}
