//go:build cuda

package train

func newMachine[T number](arrays []array[T], calls []call[T], _ []int) (machine[T], error) {
	return newTape(arrays, calls), nil
}
