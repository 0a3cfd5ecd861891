package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Cell is a number of lines of one class that were labelled another; Pred < 0
// is no label.
type Cell struct {
	Gold, Pred int32
	N          int64
}

// Interval is where a figure lies in the middle 95 % of the resamples.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Intervals are what Bootstrap finds.
type Intervals struct {
	Resamples int      `json:"resamples"`
	Seed      uint64   `json:"seed"`
	MacroF1   Interval `json:"macro_f1"`
	Accuracy  Interval `json:"accuracy"`
	Caution   string   `json:"caution,omitempty"` // where documents are too few
}

// enoughDocuments is the number from which on Intervals hold what they say: of
// normal figures those of 3 documents have the true mean in 76 of 100 cases, of 5
// in 85, of 10 in 91.
const enoughDocuments = 10

// Bootstrap draws as many documents as there are, with replacement, resamples
// times, and reports the percentiles 2.5 and 97.5 of the figures (Efron's
// percentile interval). Lines of one document are alike, so that lines, drawn
// one by one, would give intervals that are too narrow. documents[i] are the
// cells of document i over classes. The result depends on its order, and on
// the seed, alone. Of 2 to 9 documents it has a caution.
func Bootstrap(classes []string, documents [][]Cell, resamples int, seed uint64) *Intervals {
	r := &Intervals{Resamples: resamples, Seed: seed}
	if n := len(documents); n > 1 && n < enoughDocuments {
		r.Caution = fmt.Sprintf("intervals of %d documents are too narrow; judge %d or more to go by them", n, enoughDocuments)
	}
	if len(documents) == 0 || resamples == 0 {
		return r
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	macro, accuracy := make([]float64, resamples), make([]float64, resamples)
	for i := range resamples {
		counts := NewCounts(classes)
		for range documents {
			for _, c := range documents[rnd.IntN(len(documents))] {
				counts.Add(int(c.Gold), int(c.Pred), c.N)
			}
		}
		report := counts.Report()
		macro[i], accuracy[i] = report.MacroF1, report.Accuracy
	}
	slices.Sort(macro)
	slices.Sort(accuracy)
	r.MacroF1 = Interval{percentile(macro, 2.5), percentile(macro, 97.5)}
	r.Accuracy = Interval{percentile(accuracy, 2.5), percentile(accuracy, 97.5)}
	return r
}

// percentile is that of sorted values, between two of them on the straight
// line, as NumPy's default.
func percentile(sorted []float64, p float64) float64 {
	at := p / 100 * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
