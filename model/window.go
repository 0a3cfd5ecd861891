package model

import "math"

// Where windows are whole documents, one of more than 2,000 rows is cut into equal
// parts of LongWindow rows and more.
const (
	longDocument = 2000
	LongWindow   = 1000
)

// Windows cuts n rows into windows of size rows, stride apart (0: size apart).
// The last one ends with the document, so it may begin closer to the one before
// it. Where stride is above size, rows between windows are in none. Size 0 makes
// the whole document one window, or equal parts of 1,000 rows and more where it has
// more than 2,000. It panics where n or size is negative.
func Windows(n, size, stride int) []ContextWindow {
	if n < 0 || size < 0 {
		panic("model: Windows: negative size")
	}
	if n == 0 {
		return nil
	}
	if size == 0 {
		parts := 1
		if n > longDocument {
			parts = n / LongWindow
		}
		out := make([]ContextWindow, parts)
		for i := range out {
			first, end := int64(i)*int64(n)/int64(parts), int64(i+1)*int64(n)/int64(parts)
			out[i] = ContextWindow{First: int(first), Len: int(end - first)}
		}
		return out
	}
	if stride <= 0 {
		stride = size
	}
	size = min(size, n)
	var out []ContextWindow
	for first := 0; first+size < n; first += stride {
		out = append(out, ContextWindow{First: first, Len: size})
	}
	return append(out, ContextWindow{First: n - size, Len: size})
}

// Covered is how many rows these windows hold together, or the largest int.
func Covered(n, size, stride int) int {
	if size == 0 || n <= size {
		return n
	}
	if stride <= 0 {
		stride = size
	}
	return int(min(((int64(n)-int64(size)+int64(stride)-1)/int64(stride)+1)*int64(size), math.MaxInt))
}

// MaxCovered bounds the probabilities of a document's windows, 1 GiB of them. A
// model says how windows overlap, and may come from anywhere.
const MaxCovered = 1 << 28

// Average is the probabilities of the rows, [rows, count], from those of their
// windows, [window.Len, count]. The windows are those of Windows and leave no row
// out. A row that lies in several windows gets their mean, weighed by how far from
// the window's ends it stands. Where one window holds all rows, Average returns
// probs[0] itself, not a copy.
func Average(rows int, windows []ContextWindow, probs [][]float32, count int) []float32 {
	if len(windows) == 1 {
		return probs[0]
	}
	out := make([]float32, rows*count)
	covered := 0
	for _, w := range windows {
		covered += w.Len
	}
	if covered == rows { // no overlap: as they are
		for i, w := range windows {
			copy(out[w.First*count:], probs[i][:w.Len*count])
		}
		return out
	}
	weights := make([]float32, rows)
	for i, w := range windows {
		for j := range w.Len {
			weight := float32(min(j+1, w.Len-j))
			row := w.First + j
			weights[row] += weight
			from := probs[i][j*count:][:count]
			for k, p := range from {
				out[row*count+k] += weight * p
			}
		}
	}
	for row, weight := range weights {
		for k := range count {
			out[row*count+k] /= weight
		}
	}
	return out
}
