package cpu

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/model/modeltest"
)

func newScorer(w *model.Weights) (model.Scorer, error) { return New(w) }

func scorerOf(t testing.TB, w *model.Weights) *Scorer {
	t.Helper()
	s, err := New(w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tolerance8Bit is what products of operands with 8 significant bits may change in a
// probability of the goldens, whose weights are far larger than a trained model's.
const tolerance8Bit = 0.01

func TestScorer(t *testing.T) {
	isas := kernel.ISAs()
	if underRace {
		isas = []string{kernel.ISA()} // the portable loops would take minutes
	}
	for _, isa := range isas {
		t.Run(isa, func(t *testing.T) {
			restore, ok := kernel.SwitchISA(isa)
			if !ok {
				t.Fatalf("no %s, which kernel.ISAs names", isa)
			}
			defer restore()
			tolerance := modeltest.Float32
			if p := kernel.Precision(); p == "bfloat16" || p == "int8" {
				tolerance = tolerance8Bit
			}
			modeltest.Run(t, tolerance, newScorer)
		})
	}
}

// TestHeads holds both heads, of few classes and of many, to the reference, and each to the
// bits that it has without the other.
func TestHeads(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		if kernel.Precision() == "int8" || kernel.Precision() == "bfloat16" {
			return
		}
		for _, n := range [][2]int{{3, 24}, {5, 3}, {5, 5}, {20, 40}, {4, 70}} {
			c := modeltest.Config(200, 16, 6, 24, 1, n[0], n[1])
			w := modeltest.Weights(c, 7)
			b := modeltest.Batch(c, 7, 60, []model.ContextWindow{{First: 0, Len: 40}, {First: 40, Len: 17}, {First: 57, Len: 3}})
			score := func(w *model.Weights, make func(*model.Weights) (model.Scorer, error)) []float32 {
				s, err := make(w)
				if err != nil {
					t.Fatal(err)
				}
				probs := slices.Repeat([]float32{-1}, b.NumSteps()*w.Config.NumOutputs())
				if err := s.Score(context.Background(), b, probs); err != nil {
					t.Fatal(err)
				}
				return probs
			}
			got, want := score(w, newScorer), score(w, modeltest.NewReference)
			for i, p := range got {
				if math.Abs(float64(p-want[i])) > 5e-3 {
					t.Fatalf("%v classes: probability %d of line %d is %v, want %v", n, i%c.NumOutputs(), i/c.NumOutputs(), p, want[i])
				}
			}
			for at, set := range []string{model.Collapsed, model.Full} {
				alone, err := w.Head(set)
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range score(alone, newScorer) {
					line, class := i/n[at], i%n[at]
					if both := got[line*c.NumOutputs()+at*n[0]+class]; both != p {
						t.Fatalf("%v classes: %s class %d of line %d is %v, alone %v", n, set, class, line, both, p)
					}
				}
			}
		}
	})
}

// TestBatchErrors gives Score batches that are not of the model's sizes.
func TestBatchErrors(t *testing.T) {
	c := modeltest.Config(50, 8, 4, 8, 1, 3, 0)
	s := scorerOf(t, modeltest.Weights(c, 1))
	cases := map[string]struct {
		change func(*model.Batch)
		probs  int
		want   string
	}{
		"layout":          {func(b *model.Batch) { b.Layout = b.Layout[1:] }, 12, "cpu: batch: 15 layout numbers for 4 lines"},
		"groups":          {func(b *model.Batch) { b.GroupEnd = b.GroupEnd[:15] }, 12, "cpu: batch: 15 ends and 16 scales of groups"},
		"group backwards": {func(b *model.Batch) { b.GroupEnd[5] = 0 }, 12, "cpu: batch: line 1: a group of ids ends at 0"},
		"group too far":   {func(b *model.Batch) { b.GroupEnd[15] = 1000 }, 12, "cpu: batch: line 3: a group of ids ends at 1000"},
		"window negative": {func(b *model.Batch) { b.Windows[0].First = -1 }, 12, "cpu: batch: window 0: lines -1 to 3 of 4"},
		"window too long": {func(b *model.Batch) { b.Windows[0].Len = 5 }, 12, "cpu: batch: window 0: lines 0 to 5 of 4"},
		"window past end": {func(b *model.Batch) { b.Windows[0].First = 1 }, 12, "cpu: batch: window 0: lines 1 to 5 of 4"},
		"probs":           {func(*model.Batch) {}, 11, "cpu: batch: room for 11 probabilities; 4 steps need 12"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := modeltest.Batch(c, 1, 4, []model.ContextWindow{{Len: 4}})
			tc.change(b)
			err := s.Score(context.Background(), b, make([]float32, tc.probs))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

// TestScoreAll scores windows over several batches, some of which overlap or
// come in no order, and compares every bit with those of windows alone.
func TestScoreAll(t *testing.T) { eachISA(t, testScoreAll) }

func testScoreAll(t *testing.T) {
	c := modeltest.Config(500, 16, 6, 24, 1, 3, 5)
	s := scorerOf(t, modeltest.Weights(c, 1))
	windows := [][]model.ContextWindow{
		{{First: 90, Len: 10}, {First: 3, Len: 40}, {First: 20, Len: 30}, {First: 25, Len: 5}, {First: 80, Len: 15}},
		nil,
		{{First: 7, Len: 1}, {First: 8, Len: 0}, {First: 8, Len: 20}, {First: 0, Len: 70}},
		{{First: 69, Len: 1}}, // of the batch before, which shares its memory
	}
	var batches []*model.Batch
	var want []float32
	for i, w := range windows {
		b := modeltest.Batch(c, uint32(i), 100-10*i, w)
		if i == 3 {
			b = &model.Batch{IDs: batches[2].IDs, GroupEnd: batches[2].GroupEnd, GroupScale: batches[2].GroupScale, Layout: batches[2].Layout, Windows: w}
		}
		batches = append(batches, b)
		for j := range w {
			alone := *b
			alone.Windows = w[j : j+1]
			probs := make([]float32, w[j].Len*c.NumOutputs())
			if err := s.Score(context.Background(), &alone, probs); err != nil {
				t.Fatal(err)
			}
			want = append(want, probs...)
		}
	}
	got := make([]float32, len(want))
	if err := s.ScoreAll(context.Background(), batches, got); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("probability %d: got %v, want %v", i, got[i], want[i])
		}
	}
	// One after the other in the same memory, which is overwritten when the next is
	// asked for.
	memory := new(model.Batch)
	seq := func(yield func(*model.Batch) bool) {
		for _, b := range batches {
			memory.Reset()
			memory.AppendLines(b, 0, b.NumLines())
			memory.Windows = append(memory.Windows, b.Windows...)
			if !yield(memory) {
				return
			}
			clear(memory.IDs)
			clear(memory.Layout)
			clear(memory.GroupScale)
			clear(memory.Windows)
		}
	}
	clear(got)
	if err := s.ScoreSeq(context.Background(), seq, got); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("batches that are made one after the other have other probabilities")
	}
	batches[3].GroupEnd = slices.Clone(batches[3].GroupEnd)
	batches[3].GroupEnd[69*model.Groups] = 1 << 20
	if err := s.ScoreAll(context.Background(), batches, got); err == nil || !strings.HasPrefix(err.Error(), "cpu: batch: line 69:") {
		t.Errorf("error = %v, want one of line 69", err)
	}
}

// Weights of which a sum may be a NaN are in no joined matrices, which would round it to a
// number: a NaN of any gate is one in all lines of its window, and in no later one.
func TestNaNInStates(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for _, layers := range []int{3, 1} {
			c := modeltest.Config(50, 20, 4, 24, layers, 3, 6)
			w := modeltest.Weights(c, 1)
			w.Layers[layers-1].Backward.RecurrentWeights[7] = 2 * maxJoined
			s := scorerOf(t, w)
			b := modeltest.Batch(c, 1, 12, []model.ContextWindow{{Len: 7}, {First: 7, Len: 5}})
			probs := make([]float32, b.NumSteps()*c.NumOutputs())
			// A bias that no file may have: what is not finite comes of sums, by chance.
			bias := s.layers[0].forward.bias
			for gate := range 5 {
				spoilt := slices.Clone(bias)
				if gate < 4 {
					spoilt[gate*24] = float32(math.NaN())
				}
				s.layers[0].forward.bias = spoilt
				if err := s.Score(context.Background(), b, probs); err != nil {
					t.Fatal(err)
				}
				for i, p := range probs {
					if want := gate < 4; p != p != want {
						t.Fatalf("%d layers: probability %d is %v, with a NaN in gate %d: %v", layers, i, p, gate, want)
					}
				}
			}
		}
	})
}

// The largest weights of joined matrices make no NaN.
func TestMaxJoined(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		c := modeltest.Config(50, 200, 4, 96, 2, 3, 6)
		w := modeltest.Weights(c, 1)
		sign := float32(1)
		for _, x := range [][]float32{w.TableScale, w.LayoutMean, w.LayoutWeights, w.LayoutBias,
			w.Layers[0].Forward.InputWeights, w.Layers[0].Forward.RecurrentWeights, w.Layers[0].Forward.Bias,
			w.Layers[1].Backward.InputWeights, w.Layers[1].Backward.RecurrentWeights, w.Layers[1].Backward.Bias} {
			for i := range x {
				x[i] = sign * maxJoined
				if i%3 == 0 {
					sign = -sign
				}
			}
		}
		s := scorerOf(t, w)
		if got, want := s.layers[0].forward.joined != nil, strings.HasPrefix(kernel.Precision(), "int"); got != want {
			t.Fatalf("joined matrices: got %v, want %v", got, want)
		}
		score(t, s)
	})
}

// Outputs may have larger weights, as long as sums of them are finite, and those of the other
// head go their own way.
func TestLargeOutputs(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for _, classes := range []int{5, 70} {
			c := modeltest.Config(50, 200, 4, 96, 2, classes, 6)
			w := modeltest.Weights(c, 1)
			all := classes + 6
			for row := range slices.Chunk(w.OutputWeights, all) {
				for i := range row[:classes] {
					row[i] *= 1e36
				}
			}
			full, err := w.Head(model.Full)
			if err != nil {
				t.Fatal(err)
			}
			both, alone := score(t, scorerOf(t, w)), score(t, scorerOf(t, full))
			for i, p := range alone {
				if got := both[i/6*all+classes+i%6]; got != p {
					t.Fatalf("full class %d of line %d is %v, alone %v", i%6, i/6, got, p)
				}
			}
		}
	})
}

// So may the matrices of a layer, one or both.
func TestLargeLayers(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for _, both := range []bool{false, true} {
			w := modeltest.Weights(modeltest.Config(50, 200, 4, 96, 2, 3, 6), 1)
			large := [][]float32{w.Layers[1].Forward.RecurrentWeights}
			if both {
				large = append(large, w.Layers[1].Forward.InputWeights)
			}
			for _, x := range large {
				for i := range x {
					x[i] *= 1e36
				}
			}
			score(t, scorerOf(t, w))
		}
	})
}

// score holds what s makes of some lines to the range of probabilities.
func score(t *testing.T, s *Scorer) []float32 {
	t.Helper()
	b := modeltest.Batch(modeltest.Config(50, 200, 4, 96, 2, 3, 6), 1, 12, []model.ContextWindow{{Len: 7}, {First: 7, Len: 5}})
	probs := make([]float32, b.NumSteps()*s.k)
	if err := s.Score(context.Background(), b, probs); err != nil {
		t.Fatal(err)
	}
	for i, p := range probs {
		if !(p >= 0 && p <= 1) {
			t.Fatalf("probability %d is %v", i, p)
		}
	}
	return probs
}

// TestStateMemory holds groupSize to its bound on logits, on the states between layers, and
// on what is rounded of them.
func TestStateMemory(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for _, layers := range []int{1, 3} {
			testStateMemory(t, scorerOf(t, modeltest.Weights(modeltest.Config(50, 16, 4, 96, layers, 3, 0), 1)))
		}
	})
}

func testStateMemory(t *testing.T, s *Scorer) {
	step := 2 * 4 * s.row // bytes
	if len(s.layers) > 1 {
		step += 2 * 8 * s.h
		if joined := s.layers[1].forward.joined; joined != nil {
			step += 4 * joined.Words()
		}
	}
	windows := make([]window, 1000)
	for i := range windows {
		windows[i].len = 2000 - i
	}
	for len(windows) > 0 {
		n := s.groupSize(windows)
		if n < 1 || n > maxGroup {
			t.Fatalf("a group of %d windows", n)
		}
		steps := 0
		for _, w := range windows[:n] {
			steps += w.len
		}
		if bytes := step * steps; bytes > maxStateBytes {
			t.Fatalf("%d windows of %d steps: %d bytes", n, steps, bytes)
		}
		windows = windows[n:]
	}
	if n := s.groupSize([]window{{len: 1 << 21}, {len: 1}}); n != 1 {
		t.Errorf("a window above the bound goes in a group of %d", n)
	}
}

func TestNoAllocation(t *testing.T) { eachISA(t, testNoAllocation) }

func testNoAllocation(t *testing.T) {
	c := modeltest.Config(500, 16, 6, 24, 2, 3, 5)
	s := scorerOf(t, modeltest.Weights(c, 1))
	b := modeltest.Batch(c, 1, 100, []model.ContextWindow{{Len: 100}, {First: 50, Len: 20}, {First: 7, Len: 1}})
	probs := make([]float32, b.NumSteps()*c.NumOutputs())
	score := func() {
		if err := s.Score(context.Background(), b, probs); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, score); n >= 1 && !underRace {
		t.Errorf("%v allocations a call", n)
	}
}

// eachISA runs f for every instruction set that this machine has.
func eachISA(t *testing.T, f func(t *testing.T)) {
	for _, name := range kernel.ISAs() {
		t.Run(name, func(t *testing.T) {
			restore, _ := kernel.SwitchISA(name)
			defer restore()
			f(t)
		})
	}
}
