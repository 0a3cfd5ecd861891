package model

import (
	"math"
	"slices"
	"testing"
)

// A negative size asked for windows until the memory was gone.
func TestWindowsOfNegativeSize(t *testing.T) {
	for _, c := range [][2]int{{10, -1}, {-1, 0}} {
		func() {
			defer func() {
				if recover() != "model: Windows: negative size" {
					t.Errorf("%d rows in windows of %d: no panic", c[0], c[1])
				}
			}()
			Windows(c[0], c[1], 0)
		}()
	}
}

func TestWindows(t *testing.T) {
	type w = [2]int // First, Len
	cases := map[string]struct {
		n, size, stride int
		want            []w
	}{
		"nothing":                       {0, 0, 0, nil},
		"nothing in windows":            {0, 5, 2, nil},
		"whole":                         {7, 0, 0, []w{{0, 7}}},
		"whole, longest":                {2000, 0, 0, []w{{0, 2000}}},
		"cut in two":                    {2001, 0, 0, []w{{0, 1000}, {1000, 1001}}},
		"cut in three":                  {3500, 0, 0, []w{{0, 1166}, {1166, 1167}, {2333, 1167}}},
		"apart":                         {6, 3, 0, []w{{0, 3}, {3, 3}}},
		"the last begins earlier":       {7, 3, 0, []w{{0, 3}, {3, 3}, {4, 3}}},
		"overlapping":                   {6, 4, 2, []w{{0, 4}, {2, 4}}},
		"overlapping, the last closer":  {7, 4, 2, []w{{0, 4}, {2, 4}, {3, 4}}},
		"one apart":                     {5, 3, 1, []w{{0, 3}, {1, 3}, {2, 3}}},
		"a window longer than the text": {3, 10, 5, []w{{0, 3}}},
		"a window of one line":          {2, 1, 1, []w{{0, 1}, {1, 1}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Windows(c.n, c.size, c.stride)
			var pairs []w
			for _, g := range got {
				pairs = append(pairs, w{g.First, g.Len})
			}
			if !slices.Equal(pairs, c.want) {
				t.Errorf("windows: got %v, want %v", pairs, c.want)
			}
			sum := 0
			for _, w := range got {
				sum += w.Len
			}
			if n := Covered(c.n, c.size, c.stride); n != sum {
				t.Errorf("rows in windows: got %d, want %d", n, sum)
			}
			inside := make([]bool, c.n)
			for _, w := range got {
				for i := range w.Len {
					inside[w.First+i] = true
				}
			}
			for i, ok := range inside {
				if !ok {
					t.Errorf("row %d lies in no window", i)
				}
			}
		})
	}
}

// TestWindowsOfManyRows has products that 32 bits do not hold.
func TestWindowsOfManyRows(t *testing.T) {
	for _, n := range []int{1_500_000, 3_000_000, 16 << 20} {
		end := 0
		for _, w := range Windows(n, 0, 0) {
			if w.First != end || w.Len < LongWindow || w.Len > 2*LongWindow {
				t.Fatalf("%d rows: window %v begins behind row %d", n, w, end)
			}
			end += w.Len
		}
		if end != n {
			t.Errorf("windows end at row %d of %d", end, n)
		}
	}
	if n := Covered(1_000_000, 100_000, 1); n <= MaxCovered {
		t.Errorf("windows of 100,000, one apart, of 1,000,000 rows: %d in all", n)
	}
}

func TestAverage(t *testing.T) {
	// Two windows of three rows over four. The rows of a window weigh 1, 2, 1.
	ws := []ContextWindow{{First: 0, Len: 3}, {First: 1, Len: 3}}
	probs := [][]float32{
		{1, 0, .5, .5, 0, 1},
		{0, 1, .25, .75, 1, 0},
	}
	got := Average(4, ws, probs, 2)
	want := []float32{1, 0, (2*.5 + 0) / 3, (2*.5 + 1) / 3, (0 + 2*.25) / 3, (1 + 2*.75) / 3, 1, 0}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-7 {
			t.Fatalf("overlapping: got %v, want %v", got, want)
		}
	}
	// Windows that lie apart give their probabilities as they are.
	p := float32(1) / 3
	got = Average(2, []ContextWindow{{First: 0, Len: 1}, {First: 1, Len: 1}}, [][]float32{{p, 1 - p}, {1 - p, p}}, 2)
	if want := []float32{p, 1 - p, 1 - p, p}; !slices.Equal(got, want) {
		t.Errorf("apart: got %v, want %v", got, want)
	}
}
