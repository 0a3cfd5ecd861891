package train

import (
	"slices"
	"testing"
)

// The tape gives the loss and the gradients of gorgonia's machine, bit for bit,
// run after run.
func TestTapeIsGorgonia(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			net, want := randomNetwork[float32](t, kernels{}, s.sizes(s.layers, s.hidden), s.lengths)
			arrays, calls, got := describe(net, want.steps, want.windows)
			got.machine = newTape(arrays, calls)
			for run := range 2 {
				want.sum[0] += float32(run)
				copyInputs(got.inputs, want.inputs)
				wantLoss := lossOf(t, want)
				gotLoss := lossOf(t, got)
				if gotLoss != wantLoss || got.right != want.right {
					t.Errorf("run %d: loss %v and %d right, want %v and %d", run, gotLoss, got.right, wantLoss, want.right)
				}
				for i, p := range net.parameters {
					if !slices.Equal(got.gradient(i), want.gradient(i)) {
						t.Errorf("run %d: another gradient of %s", run, p.name)
					}
				}
				if !slices.Equal(got.sumGradient(), want.sumGradient()) {
					t.Errorf("run %d: another gradient of sum", run)
				}
			}
		})
	}
}

func copyInputs[T, U number](to *inputs[T], from *inputs[U]) {
	one := func(to []T, from []U) {
		for i, v := range from {
			to[i] = T(v)
		}
	}
	one(to.sum, from.sum)
	one(to.layout, from.layout)
	one(to.live, from.live)
	one(to.maskX, from.maskX)
	for i := range to.maskH {
		one(to.maskH[i], from.maskH[i])
	}
	one(to.targets, from.targets)
	one(to.weights, from.weights)
	one(to.taught, from.taught)
}
