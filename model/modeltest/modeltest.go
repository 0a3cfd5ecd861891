// Package modeltest is the test that every model.Scorer passes: probabilities
// within a tolerance of goldens, which an independent implementation made
// (scripts/goldens.py, numpy in float64), and of a plain reference on random
// shapes, with the same labels; the same bits whatever shares the batch, in
// any order, from any number of goroutines.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

// Float32 is what a Scorer in float32 may differ from the goldens, in
// probability.
const Float32 = 1e-4

// constructor makes a Scorer of weights, or refuses them.
type constructor = func(*model.Weights) (model.Scorer, error)

// Run holds the Scorers that newScorer makes to what model.Scorer promises,
// with probabilities within tolerance. Labels must agree wherever the two best
// classes are further apart than twice that.
func Run(t *testing.T, tolerance float64, newScorer func(*model.Weights) (model.Scorer, error)) {
	t.Run("goldens", func(t *testing.T) { testGoldens(t, tolerance, newScorer) })
	t.Run("reference", func(t *testing.T) { testReference(t, tolerance, newScorer) })
	t.Run("batch invariance", func(t *testing.T) { testBatchInvariance(t, newScorer) })
	t.Run("concurrency", func(t *testing.T) { testConcurrency(t, newScorer) })
	t.Run("empty", func(t *testing.T) { testEmpty(t, newScorer) })
	t.Run("cancelled", func(t *testing.T) { testCancelled(t, newScorer) })
	t.Run("invalid", func(t *testing.T) { testInvalid(t, newScorer) })
}

// Golden is one case of testdata/goldens/model.json.
type Golden struct {
	Name          string    `json:"name"`
	Seed          uint32    `json:"seed"`
	InputSize     int       `json:"input_size"`
	EmbeddingSize int       `json:"embedding_size"`
	LayoutSize    int       `json:"layout_size"`
	HiddenSize    int       `json:"hidden_size"`
	NumLayers     int       `json:"num_layers"`
	Classes       int       `json:"classes"`
	FullClasses   int       `json:"full_classes"`
	Lines         int       `json:"lines"`
	Windows       [][2]int  `json:"windows"` // first line, length
	Probs         []float64 `json:"probs"`   // [steps, K]
}

// Goldens reads testdata/goldens/model.json of the repository that the test
// runs in.
func Goldens(t testing.TB) []Golden {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("modeltest: no go.mod above the test: the goldens lie in the repository")
		}
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, "testdata", "goldens", "model.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []Golden }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatal("modeltest: no goldens")
	}
	return file.Cases
}

// Model makes the weights and the batch of g.
func (g *Golden) Model() (*model.Weights, *model.Batch) {
	c := Config(g.InputSize, g.EmbeddingSize, g.LayoutSize, g.HiddenSize, g.NumLayers, g.Classes, g.FullClasses)
	var windows []model.ContextWindow
	for _, w := range g.Windows {
		windows = append(windows, model.ContextWindow{First: w[0], Len: w[1]})
	}
	return Weights(c, g.Seed), Batch(c, g.Seed, g.Lines, windows)
}

// Config is a valid Config of these sizes.
func Config(inputSize, embeddingSize, layoutSize, hiddenSize, layers, classes, fullClasses int) model.Config {
	c := model.DefaultConfig()
	c.InputSize, c.EmbeddingSize, c.LayoutSize, c.HiddenSize, c.NumLayers = inputSize, embeddingSize, layoutSize, hiddenSize, layers
	c.NumClasses, c.Classes, c.FullClasses, c.OtherClass = classes, nil, nil, ""
	for i := range classes {
		c.Classes = append(c.Classes, fmt.Sprintf("Class-%d", i))
	}
	for i := range fullClasses {
		c.FullClasses = append(c.FullClasses, fmt.Sprintf("Full-%d", i))
	}
	return c
}

func scorer(t *testing.T, newScorer constructor, w *model.Weights) model.Scorer {
	t.Helper()
	s, err := newScorer(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func score(t *testing.T, s model.Scorer, b *model.Batch, k int) []float32 {
	t.Helper()
	probs := make([]float32, b.NumSteps()*k)
	for i := range probs {
		probs[i] = float32(math.NaN()) // Score must write them all
	}
	if err := s.Score(context.Background(), b, probs); err != nil {
		t.Fatal(err)
	}
	return probs
}

// compare wants got within tolerance of want and the same labels.
func compare(t *testing.T, tolerance float64, got []float32, want []float64, heads ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d probabilities, want %d", len(got), len(want))
	}
	worst, at := 0.0, 0
	for i := range got {
		if diff := math.Abs(float64(got[i]) - want[i]); !(diff <= worst) { // NaN too
			worst, at = diff, i
		}
	}
	if !(worst <= tolerance) {
		t.Errorf("probability %d = %g, want %g", at, got[at], want[at])
	}
	for row := 0; len(want) > 0; row++ {
		for head, n := range heads {
			label, margin := argmax(want[:n])
			gotLabel, _ := argmax(got[:n])
			if margin > 2*tolerance && gotLabel != label {
				t.Errorf("row %d, head %d: label %d, want %d", row, head, gotLabel, label)
			}
			got, want = got[n:], want[n:]
		}
	}
}

// argmax is the index of the largest number and its margin over the next one.
func argmax[F float32 | float64](p []F) (at int, margin float64) {
	for i := range p {
		if p[i] > p[at] {
			at = i
		}
	}
	margin = math.Inf(1)
	for i := range p {
		if i != at {
			margin = min(margin, float64(p[at]-p[i]))
		}
	}
	return at, margin
}

func heads(c *model.Config) []int {
	if len(c.FullClasses) == 0 {
		return []int{len(c.Classes)}
	}
	return []int{len(c.Classes), len(c.FullClasses)}
}

func testGoldens(t *testing.T, tolerance float64, newScorer constructor) {
	for _, g := range Goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			w, b := g.Model()
			got := score(t, scorer(t, newScorer, w), b, w.Config.NumOutputs())
			compare(t, tolerance, got, g.Probs, heads(&w.Config)...)
		})
	}
}

func testReference(t *testing.T, tolerance float64, newScorer constructor) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		c := Config(1+r.IntN(300), 1+r.IntN(70), 1+r.IntN(20), 1+r.IntN(40), 1+r.IntN(3), 1+r.IntN(30), r.IntN(2)*r.IntN(30))
		lines := 1 + r.IntN(40)
		b := Batch(c, uint32(i), lines, randomWindows(r, lines, r.IntN(90)))
		name := fmt.Sprintf("D%d H%d layers %d lines %d windows %d", c.EmbeddingSize, c.HiddenSize, c.NumLayers, lines, len(b.Windows))
		t.Run(name, func(t *testing.T) {
			w := Weights(c, uint32(i))
			reference := score(t, scorer(t, NewReference, w), b, c.NumOutputs())
			want := make([]float64, len(reference))
			for i, p := range reference {
				want[i] = float64(p)
			}
			got := score(t, scorer(t, newScorer, w), b, c.NumOutputs())
			compare(t, tolerance, got, want, heads(&c)...)
			if len(c.FullClasses) > 0 {
				checkHead(t, "", newScorer, w, b, got)
				checkHead(t, model.Full, newScorer, w, b, got)
			}
		})
	}
}

// checkHead compares a head alone with its columns of all, bit for bit.
func checkHead(t *testing.T, labelSet string, newScorer constructor, w *model.Weights, b *model.Batch, all []float32) {
	t.Helper()
	head, err := w.Head(labelSet)
	if err != nil {
		t.Fatal(err)
	}
	first, classes, _ := w.Config.Head(labelSet)
	got := score(t, scorer(t, newScorer, head), b, len(classes))
	for row := range slices.Chunk(all, w.Config.NumOutputs()) {
		for i := range classes {
			if math.Float32bits(got[i]) != math.Float32bits(row[first+i]) {
				t.Fatalf("label set %q alone: %v of a class, %v beside the other head", labelSet, got[i], row[first+i])
			}
		}
		got = got[len(classes):]
	}
}

// randomWindows are n windows of any place and length, some of them empty.
func randomWindows(r *rand.Rand, lines, n int) []model.ContextWindow {
	var windows []model.ContextWindow
	for range n {
		first := r.IntN(lines + 1)
		windows = append(windows, model.ContextWindow{First: first, Len: r.IntN(lines - first + 1)})
	}
	return windows
}

// testBatchInvariance scores windows together, alone and in another order and
// place: the bits must be the same.
func testBatchInvariance(t *testing.T, newScorer constructor) {
	for _, size := range []struct{ layers, embedding, hidden int }{{1, 24, 37}, {2, 24, 37}, {3, 24, 37}, {1, 64, 96}} {
		t.Run(fmt.Sprintf("layers %d hidden %d", size.layers, size.hidden), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(size.layers), 4))
			c := Config(2000, size.embedding, 5, size.hidden, size.layers, 3, 7)
			w := Weights(c, 5)
			s := scorer(t, newScorer, w)
			const lines = 150
			all := Batch(c, 6, lines, append(randomWindows(r, lines, 139), model.ContextWindow{Len: lines}))
			k := c.NumOutputs()
			probs := score(t, s, all, k)

			at := 0 // in probs
			for _, window := range all.Windows {
				want := probs[at : at+window.Len*k]
				at += window.Len * k
				var alone model.Batch
				alone.Windows = []model.ContextWindow{{First: alone.AppendLines(all, window.First, window.Len), Len: window.Len}}
				if window.Len == 0 {
					alone = model.Batch{Windows: []model.ContextWindow{{}}}
				}
				wantSame(t, fmt.Sprintf("window %v alone", window), score(t, s, &alone, k), want)
			}

			shuffled := *all
			order := r.Perm(len(all.Windows))
			shuffled.Windows = nil
			for _, i := range order {
				shuffled.Windows = append(shuffled.Windows, all.Windows[i])
			}
			got := score(t, s, &shuffled, k)
			starts := make([]int, len(all.Windows))
			at = 0
			for i, window := range all.Windows {
				starts[i] = at
				at += window.Len * k
			}
			at = 0
			for _, i := range order {
				n := all.Windows[i].Len * k
				wantSame(t, fmt.Sprintf("window %v in another order", all.Windows[i]), got[at:at+n], probs[starts[i]:starts[i]+n])
				at += n
			}
		})
	}
}

// wantSame wants the same bits.
func wantSame(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: other probabilities than in the whole batch", what)
	}
}

func testConcurrency(t *testing.T, newScorer constructor) {
	r := rand.New(rand.NewPCG(5, 6))
	c := Config(500, 16, 4, 20, 2, 3, 0)
	s := scorer(t, newScorer, Weights(c, 1))
	const batches, goroutines = 5, 8
	var batch [batches]*model.Batch
	var want [batches][]float32
	for i := range batch {
		lines := 1 + 30*i
		batch[i] = Batch(c, uint32(i), lines, randomWindows(r, lines, 1+10*i))
		want[i] = score(t, s, batch[i], c.NumOutputs())
	}
	var wait sync.WaitGroup
	for g := range goroutines {
		wait.Go(func() {
			for i := range 4 * batches {
				i = (i + g) % batches
				probs := make([]float32, len(want[i]))
				if err := s.Score(context.Background(), batch[i], probs); err != nil {
					t.Error(err)
				} else if !slices.Equal(probs, want[i]) {
					t.Errorf("batch %d: other probabilities than alone", i)
				}
			}
		})
	}
	wait.Wait()
}

func testEmpty(t *testing.T, newScorer constructor) {
	c := Config(50, 8, 4, 8, 1, 3, 0)
	s := scorer(t, newScorer, Weights(c, 1))
	score(t, s, new(model.Batch), 3)
	score(t, s, Batch(c, 1, 4, nil), 3)
	score(t, s, Batch(c, 1, 4, []model.ContextWindow{{First: 4}, {}}), 3)
}

func testCancelled(t *testing.T, newScorer constructor) {
	c := Config(50, 8, 4, 8, 1, 3, 0)
	s := scorer(t, newScorer, Weights(c, 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := Batch(c, 1, 4, []model.ContextWindow{{Len: 4}})
	if err := s.Score(ctx, b, make([]float32, 12)); !errors.Is(err, context.Canceled) {
		t.Errorf("Score after its context was cancelled = %v, want %v", err, context.Canceled)
	}
	score(t, s, b, 3) // and it still works
}

func testInvalid(t *testing.T, newScorer constructor) {
	w := Weights(Config(50, 8, 4, 8, 1, 3, 0), 1)
	w.OutputBias = nil
	if s, err := newScorer(w); err == nil {
		s.Close()
		t.Error("a Scorer of weights without output bias")
	}
}
