//go:build cuda && cgo

package cuda

import "testing"

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
