package eval

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// figures are some that NumPy worked out (testdata/goldens/eval/make.py).
func figures(t *testing.T) (f struct {
	Calibration struct {
		Probabilities []float64
		Right         []bool
		Error         float64
	}
	Percentiles struct {
		Values    []float64
		Low, High float64
	}
	Tails      [][2]float64 // documents, percentile
	Deviations [][3]float64 // lines, probability, mean distance
}) {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash("../../testdata/goldens/eval/figures.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// Ten lines in five bins, by hand:
//
//	(0, 0.2]    0.125 wrong, 0.1875 right              accuracy 1/2, mean 0.15625
//	(0.4, 0.6]  0.5 right, 0.5 wrong, 0.59375 wrong    accuracy 1/3, mean 1.59375/3
//	(0.8, 1]    1 right ×3, 0.875 right, 0.90625 wrong accuracy 4/5, mean 4.78125/5
func TestCalibration(t *testing.T) {
	c := NewCalibration(5)
	for _, l := range []struct {
		p     float64
		right bool
	}{
		{.125, false}, {.1875, true},
		{.5, true}, {.5, false}, {.59375, false},
		{1, true}, {1, true}, {1, true}, {.875, true}, {.90625, false},
	} {
		c.Add(l.p, l.right)
	}
	r := c.Report()
	near(t, "error", r.Error, (2*(.5-.15625)+(1.59375-1)+(4.78125-4))/10)
	near(t, "worst", r.Worst, .5-.15625)
	near(t, "accuracy", r.Accuracy, .6)
	near(t, "mean probability", r.Probability, (.3125+1.59375+4.78125)/10)
	if got, want := c.N, []int64{2, 0, 3, 0, 5}; !slices.Equal(got, want) {
		t.Errorf("bins: got %v, want %v", got, want)
	}
	if b := r.Bins[2]; b.From != .4 || b.To != .6 || b.Lines != 3 {
		t.Errorf("third bin: got %+v", b)
	}
}

func TestCalibrationGolden(t *testing.T) {
	f := figures(t).Calibration
	c := NewCalibration(CalibrationBins)
	for i, p := range f.Probabilities {
		c.Add(p, f.Right[i])
	}
	if got := c.Report().Error; math.Abs(got-f.Error) > 1e-9 || f.Error == 0 {
		t.Errorf("error: got %.12f, want %.12f", got, f.Error)
	}
}

// Edges belong to the bin below; what no probability should be stays in range.
func TestCalibrationEdges(t *testing.T) {
	for _, c := range []struct {
		p    float64
		want int
	}{{0, 0}, {1e-30, 0}, {.25, 0}, {math.Nextafter(.25, 1), 1}, {.5, 1}, {1, 3}, {1 + 1e-7, 3}, {-1, 0}} {
		cal := NewCalibration(4)
		cal.Add(c.p, true)
		if got := slices.Index(cal.N, 1); got != c.want {
			t.Errorf("%v: got bin %d, want %d", c.p, got, c.want)
		}
	}
	if r := NewCalibration(3).Report(); r.Error != 0 || r.Accuracy != 0 {
		t.Errorf("of nothing: got %+v", r)
	}
}

// The order of lines and parts does not change a bit of the report.
func TestCalibrationMerge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	whole := NewCalibration(15)
	probs := make([]float64, 5000)
	for i := range probs {
		probs[i] = float64(.05 + .95*rnd.Float32())
		whole.Add(probs[i], i%3 > 0)
	}
	for range 2 {
		parts := []*Calibration{NewCalibration(15), NewCalibration(15), NewCalibration(15)}
		for _, i := range rnd.Perm(len(probs)) {
			parts[rnd.IntN(3)].Add(probs[i], i%3 > 0)
		}
		all := NewCalibration(15)
		for _, p := range parts {
			all.Merge(p)
		}
		if got, want := all.Report(), whole.Report(); !reflect.DeepEqual(got, want) {
			t.Errorf("merged: got %v, want %v", got, want)
		}
	}
}

// Lines 0–3 are neighbours, and so are 4–8; line 6 has no gold.
//
//	line       0 1 2 3 | 4 5 6 7 8
//	gold       A A B B | B B . A A
//	predicted  A A A B | B B B B .
func TestSpans(t *testing.T) {
	s := NewSpans([]string{"A", "B"})
	s.Add([]int{0, 0, 1, 1, 1, 1, -1, 0, 0}, []int{0, 0, 0, 1, 1, 1, 1, 1, -1},
		[]bool{true, false, false, false, true, false, false, false, false})
	want := &Spans{
		Classes: s.Classes,
		Gold:    []int64{2, 2}, Predicted: []int64{1, 3},
		Exact: []int64{0, 1}, // lines 4–5
		Found: []int64{1, 2}, Touching: []int64{1, 2},
	}
	if !reflect.DeepEqual(s, want) {
		t.Fatalf("got %+v, want %+v", s, want)
	}
	r := s.Report()
	near(t, "exact precision", r.Exact.MicroPrecision, 1./4)
	near(t, "exact recall", r.Exact.MicroRecall, 1./4)
	near(t, "overlap precision", r.Overlap.MicroPrecision, 3./4)
	near(t, "overlap recall of A", r.Overlap.Classes[0].Recall, 1./2)
	near(t, "overlap precision of B", r.Overlap.Classes[1].Precision, 2./3)
	near(t, "overlap F1 of B", r.Overlap.Classes[1].F1, .8)
	near(t, "overlap macro F1", r.Overlap.MacroF1, (2./3+.8)/2)
	near(t, "exact macro F1", r.Exact.MacroF1, (0+2./5)/2)
	if r.Gold != 4 || r.Predicted != 4 {
		t.Errorf("got %d and %d spans, want 4 and 4", r.Gold, r.Predicted)
	}

	// Counts merged are those of both documents together, under whatever order of
	// the classes.
	other := func(into *Spans) {
		into.Add([]int{0, 0, 1, 0}, []int{0, 0, 0, 1}, make([]bool, 4))
	}
	merged := NewSpans(s.Classes)
	other(merged)
	merged.Merge(s, func(i int) int { return i })
	swapped := NewSpans([]string{"B", "A"})
	swapped.Merge(s, func(i int) int { return 1 - i })
	if swapped.Gold[0] != s.Gold[1] || swapped.Predicted[0] != s.Predicted[1] || swapped.Exact[0] != s.Exact[1] {
		t.Errorf("merged the other way round: got %+v of %+v", swapped, s)
	}
	if other(s); !reflect.DeepEqual(merged, s) {
		t.Errorf("merged: got %+v, want %+v", merged, s)
	}
}

// Equal labels give equal spans, however many.
func TestSpansOfTheSame(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	s := NewSpans([]string{"A", "B", "C"})
	for range 50 {
		labels, starts := make([]int, rnd.IntN(30)), make([]bool, 30)
		for i := range labels {
			labels[i], starts[i] = rnd.IntN(4)-1, rnd.IntN(4) == 0
		}
		s.Add(labels, labels, starts[:len(labels)])
	}
	if r := s.Report(); r.Gold == 0 || r.Exact.MicroF1 != 1 || r.Exact.MacroF1 != 1 || r.Overlap.MacroF1 != 1 {
		t.Errorf("got %+v", r)
	}
}

// TestSpansByDefinition counts the spans of random lines by what they are: all
// from and to between which lines are neighbours of one label, and which no line
// before or behind could join.
func TestSpansByDefinition(t *testing.T) {
	type span struct{ from, to, label int }
	const classes = 3
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		n := rnd.IntN(12)
		gold, pred, judged, starts := make([]int, n), make([]int, n), make([]int, n), make([]bool, n)
		for i := range n {
			gold[i], pred[i], starts[i] = rnd.IntN(classes+1)-1, rnd.IntN(classes+1)-1, rnd.IntN(4) == 0
			judged[i] = pred[i]
			if gold[i] < 0 {
				judged[i] = -1
			}
		}
		all := func(labels []int) map[span]bool {
			joined := func(i int) bool { // with the line before
				return i > 0 && i < n && labels[i] == labels[i-1] && !starts[i]
			}
			found := map[span]bool{}
			for from := range n {
				for to := from + 1; to <= n; to++ {
					one := labels[from] >= 0 && !joined(from) && !joined(to)
					for i := from + 1; i < to; i++ {
						one = one && joined(i)
					}
					if one {
						found[span{from, to, labels[from]}] = true
					}
				}
			}
			return found
		}
		want := NewSpans([]string{"A", "B", "C"})
		inGold, inPred := all(gold), all(judged)
		share := func(s span, others map[span]bool) bool {
			for o := range others {
				if o.label == s.label && o.from < s.to && s.from < o.to {
					return true
				}
			}
			return false
		}
		for s := range inGold {
			want.Gold[s.label]++
			if inPred[s] {
				want.Exact[s.label]++
			}
			if share(s, inPred) {
				want.Found[s.label]++
			}
		}
		for s := range inPred {
			want.Predicted[s.label]++
			if share(s, inGold) {
				want.Touching[s.label]++
			}
		}
		got := NewSpans(want.Classes)
		got.Add(gold, pred, starts)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("gold %v, predicted %v, starts %v:\ngot  %+v\nwant %+v", gold, pred, starts, got, want)
		}
	}
}

// A class without gold spans has no part in the macro averages, one with a single
// one a whole part; nothing at all gives zeros, never NaN.
func TestSpansWithoutGold(t *testing.T) {
	s := NewSpans([]string{"once", "never", "missed"})
	s.Add([]int{0, 2, 2}, []int{0, 1, 1}, make([]bool, 3))
	r := s.Report()
	near(t, "exact macro F1", r.Exact.MacroF1, 1./2)
	near(t, "overlap macro F1", r.Overlap.MacroF1, 1./2)
	if c := r.Exact.Classes[1]; c.Predicted != 1 || c.Gold != 0 || c.F1 != 0 {
		t.Errorf("class without gold: got %+v", c)
	}
	if _, err := json.Marshal(NewSpans([]string{"a"}).Report()); err != nil {
		t.Errorf("report of nothing: %v", err)
	}
}

func TestPercentile(t *testing.T) {
	f := figures(t).Percentiles
	slices.Sort(f.Values)
	near(t, "low", percentile(f.Values, 2.5), f.Low)
	near(t, "high", percentile(f.Values, 97.5), f.High)
	near(t, "of one", percentile([]float64{7}, 97.5), 7)
}

// Two documents: all of a's 30 lines are right, none of b's 10. A resample is
// aa, ab, ba or bb, of accuracy 1, 3/4, 3/4 and 0; each of aa and bb comes in a
// quarter of the cases, so that the interval is all of [0, 1]. With 40 more
// documents like a, one in e has no b at all.
func TestBootstrap(t *testing.T) {
	classes := []string{"A", "B"}
	a, b := []Cell{{0, 0, 20}, {1, 1, 10}}, []Cell{{0, 1, 5}, {1, 0, 4}, {1, -1, 1}}
	r := Bootstrap(classes, [][]Cell{a, b}, 1000, 1)
	if want := (Interval{0, 1}); r.Accuracy != want || r.MacroF1 != want {
		t.Errorf("two documents: got %+v", r)
	}
	if want := "intervals of 2 documents are too narrow; judge 10 or more to go by them"; r.Caution != want {
		t.Errorf("two documents: got caution %q, want %q", r.Caution, want)
	}
	documents := [][]Cell{b}
	for range 40 {
		documents = append(documents, a)
	}
	// The number of b is about Poisson(1): 97.5 % have 3 or fewer.
	r = Bootstrap(classes, documents, 1000, 1)
	near(t, "low", r.Accuracy.Low, 38.*30/(38*30+30))
	near(t, "high", r.Accuracy.High, 1)
	if again := Bootstrap(classes, documents, 1000, 1); !reflect.DeepEqual(again, r) {
		t.Errorf("one seed, two results: %+v and %+v", r, again)
	}
	if r = Bootstrap(classes, [][]Cell{a, a, a}, 100, 1); r.MacroF1 != (Interval{1, 1}) || r.Caution != "no resample differs, which tells nothing of other documents" {
		t.Errorf("documents alike: got %+v", r)
	}
	// Where nothing but A is there and predicted, its F1 is 2r/(1+r) of the accuracy
	// r, resample by resample.
	documents = nil
	for i := range int64(30) {
		documents = append(documents, []Cell{{0, 0, i}, {0, -1, 30 - i}})
	}
	macro, accuracy := resample([]string{"A"}, documents, 1000, 1)
	for i, r := range accuracy {
		near(t, "F1", macro[i], 2*r/(1+r))
	}
	slices.Sort(macro)
	slices.Sort(accuracy)
	r = Bootstrap([]string{"A"}, documents, 1000, 1)
	near(t, "low F1", r.MacroF1.Low, percentile(macro, tail(r.Effective)))
	near(t, "high F1", r.MacroF1.High, percentile(macro, 100-tail(r.Effective)))
	near(t, "low accuracy", r.Accuracy.Low, percentile(accuracy, tail(r.Effective)))
	near(t, "high accuracy", r.Accuracy.High, percentile(accuracy, 100-tail(r.Effective)))
	if r = Bootstrap(classes, nil, 100, 1); r.MacroF1 != (Interval{}) {
		t.Errorf("no documents: got %+v", r)
	}
	if r = Bootstrap(classes, documents, 0, 1); r.MacroF1 != (Interval{}) {
		t.Errorf("no resamples: got %+v", r)
	}
}

// Ten documents of one size weigh as ten; a hundred times the lines in one of them
// make it nearly the only one. Lines without gold weigh nothing.
func TestEffective(t *testing.T) {
	right := []Cell{{0, 0, 30}, {-1, 0, 500}}
	documents := [][]Cell{{{0, 1, 30}}}
	for range 9 {
		documents = append(documents, right)
	}
	r := Bootstrap([]string{"A", "B"}, documents, 100, 1)
	near(t, "of one size", r.Effective, 10)
	if r.Caution != "" {
		t.Errorf("of one size: got caution %q", r.Caution)
	}
	documents[0] = []Cell{{0, 1, 3000}}
	r = Bootstrap([]string{"A", "B"}, documents, 100, 1)
	near(t, "one of 3,000 lines", r.Effective, 3270.*3270/(3000*3000+9*30*30))
	if want := "intervals of 10 documents that weigh as 1.2 of one size may be too narrow; judge more to go by them"; r.Caution != want {
		t.Errorf("one of 3,000 lines: got caution %q, want %q", r.Caution, want)
	}
}

func TestTail(t *testing.T) {
	for _, c := range figures(t).Tails {
		// Student's quantile is a series that is 3 % short at 1 degree of freedom, where
		// nearly nothing is left of the tail.
		if got := tail(c[0]); math.Abs(got-c[1]) > 3e-4 {
			t.Errorf("%v documents: got %v, want %v", c[0], got, c[1])
		}
	}
	if got := tail(1); got != 0 {
		t.Errorf("one document: got %v", got)
	}
}

// TestCoverage judges made-up models whose true figures are known: the lines of a
// document are right with a probability of its own, 0.9 on average, and documents
// have from 20 to 1,000 lines. Percentiles 2.5 and 97.5 had the true accuracy in 420
// and 447 of 500 cases.
func TestCoverage(t *testing.T) {
	for _, c := range []struct{ documents, least int }{{10, 455}, {20, 455}} {
		rnd, held := rand.New(rand.NewPCG(9, 10)), 0
		for trial := range 500 {
			documents := make([][]Cell, c.documents)
			for i := range documents {
				lines := int64(20 * math.Exp(rnd.Float64()*math.Log(50)))
				p, right := 1-.2*rnd.Float64(), int64(0)
				for range lines {
					if rnd.Float64() < p {
						right++
					}
				}
				documents[i] = []Cell{{0, 0, right}, {0, 1, lines - right}}
			}
			if r := Bootstrap([]string{"A", "B"}, documents, 300, uint64(trial)); r.Accuracy.Low <= .9 && .9 <= r.Accuracy.High {
				held++
			}
		}
		t.Logf("%d documents: %d of 500", c.documents, held)
		if held < c.least {
			t.Errorf("%d documents: %d of 500 intervals hold the true accuracy, want %d or more", c.documents, held, c.least)
		}
	}
}

// TestCompare judges two made-up models of which one has 1 % more right in every
// document, easy or hard: far less than what documents differ by.
func TestCompare(t *testing.T) {
	classes := []string{"A", "B"}
	rnd, held, found, apart := rand.New(rand.NewPCG(13, 14)), 0, 0, 0
	for trial := range 300 {
		var better, worse [][]Cell
		for range 20 {
			p, lines, right := 1-.4*rnd.Float64(), int64(400), [2]int64{}
			for range lines {
				u := rnd.Float64() // of one line, for both
				for m, q := range []float64{p, p - .01} {
					if u < q {
						right[m]++
					}
				}
			}
			better = append(better, []Cell{{0, 0, right[0]}, {0, 1, lines - right[0]}})
			worse = append(worse, []Cell{{0, 0, right[1]}, {0, 1, lines - right[1]}})
		}
		d := Compare(classes, better, worse, 300, uint64(trial))
		i := d.Intervals.Accuracy
		if i.Low <= .01 && .01 <= i.High {
			held++
		}
		if i.Low > 0 {
			found++
		}
		if Bootstrap(classes, better, 300, 1).Accuracy.Low > Bootstrap(classes, worse, 300, 2).Accuracy.High {
			apart++
		}
		if trial > 0 {
			continue
		}
		a, b := report(classes, better), report(classes, worse)
		near(t, "accuracy", d.Accuracy, a.Accuracy-b.Accuracy)
		near(t, "macro-F1", d.MacroF1, a.MacroF1-b.MacroF1)
		back := Compare(classes, worse, better, 300, uint64(trial))
		near(t, "the other way round", back.MacroF1, -d.MacroF1)
		near(t, "its interval", back.Intervals.MacroF1.Low, -d.Intervals.MacroF1.High)
		if i := d.Intervals.MacroF1; !(i.Low <= d.MacroF1 && d.MacroF1 <= i.High) {
			t.Errorf("macro-F1 %v outside %v", d.MacroF1, i)
		}
	}
	if held < 273 || found < 290 || apart > 10 { // 91 % and 97 %
		t.Errorf("of 300 intervals %d hold the difference and %d are above 0; %d pairs of single ones lie apart", held, found, apart)
	}
	same := [][]Cell{{{0, 0, 3}}, {{0, 1, 5}}}
	if d := Compare(classes, same, same, 100, 1); d.Accuracy != 0 || d.Intervals.MacroF1 != (Interval{}) || d.Intervals.Caution != "no resample differs, which tells nothing of other documents" {
		t.Errorf("of the same: got %+v", d)
	}
	if d := Compare(classes, nil, nil, 100, 1); d.MacroF1 != 0 || d.Intervals != nil {
		t.Errorf("of no documents: got %+v", d)
	}
	if d := Compare(classes, same[:1], same[1:], 100, 1); d.Accuracy != 1 || d.Intervals != nil {
		t.Errorf("of one document: got %+v", d)
	}
}

// TestChance compares with sums over the binomial distribution, and with lines that
// are right as often as their probabilities say.
func TestChance(t *testing.T) {
	for _, c := range figures(t).Deviations {
		if got := deviation(int64(c[0]), c[1]); math.Abs(got-c[2]) > 1e-8*c[2] {
			t.Errorf("of %v with %v: got %v, want %v", c[0], c[1], got, c[2])
		}
	}
	if a, b := deviation(5, 0), deviation(5, 1); a != 0 || b != 0 {
		t.Errorf("of certain lines: got %v and %v", a, b)
	}
	rnd := rand.New(rand.NewPCG(11, 12))
	const models, lines = 200, 300
	var got, want float64
	for range models {
		c := NewCalibration(CalibrationBins)
		for range lines {
			p := math.Sqrt(rnd.Float64())
			c.Add(p, rnd.Float64() < p)
		}
		r := c.Report()
		got, want = got+r.Chance/models, want+r.Error/models
	}
	if math.Abs(got-want) > .03*want || want < .05 { // 0.067 of 300 lines
		t.Errorf("calibrated models: error by chance %v, error %v", got, want)
	}
}

// The worst bin says how many lines it has.
func TestWorstLines(t *testing.T) {
	c := NewCalibration(2)
	for range 99 {
		c.Add(.99, true)
	}
	c.Add(.25, true)
	if r := c.Report(); r.Worst != .75 || r.WorstLines != 1 {
		t.Errorf("got %v of %d lines, want 0.75 of 1", r.Worst, r.WorstLines)
	}
}
