//go:build !amd64 || noasm

package kernel

// stepGates is what Step does with z.
func stepGates(m int, z, c, h []float32, hidden int) {
	GatesRows(m, z, 4*hidden, c, hidden, h, hidden, hidden)
}
