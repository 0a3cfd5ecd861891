package eval

import "math"

// unit is the fixed-point unit of the sums of probabilities. A float32 of 2^-8 or
// more, and so the largest of fewer than 256 probabilities, is a whole number of
// units: sums are exact and do not depend on the order of lines. An int64 has room
// for 2^31 lines.
const unit = 1.0 / (1 << 32)

// CalibrationBins is the number of bins of equal width, as in Guo et al.,
// "On Calibration of Modern Neural Networks" (2017).
const CalibrationBins = 15

// Calibration counts how often a label of some probability is right. Bin i
// holds probabilities in (i/bins, (i+1)/bins]; 0 is in the first. All slices
// are [bins]. It is not safe for concurrent use.
type Calibration struct {
	N       []int64 `json:"n"`
	Correct []int64 `json:"correct"`
	Sum     []int64 `json:"sum"` // of the probabilities, in 2^-32
}

// NewCalibration returns empty counts in that many bins.
func NewCalibration(bins int) *Calibration {
	return &Calibration{N: make([]int64, bins), Correct: make([]int64, bins), Sum: make([]int64, bins)}
}

// Add counts one line: the probability of its label, and whether it is right.
func (c *Calibration) Add(probability float64, correct bool) {
	bins := len(c.N)
	i := min(max(int(math.Ceil(probability*float64(bins)))-1, 0), bins-1)
	c.N[i]++
	c.Sum[i] += int64(math.Round(probability / unit))
	if correct {
		c.Correct[i]++
	}
}

// Merge adds the counts of o, which has as many bins.
func (c *Calibration) Merge(o *Calibration) {
	if len(c.N) != len(o.N) || len(o.N) != len(o.Correct) || len(o.N) != len(o.Sum) {
		panic("eval: merge of calibrations with other bins")
	}
	for i := range c.N {
		c.N[i] += o.N[i]
		c.Correct[i] += o.Correct[i]
		c.Sum[i] += o.Sum[i]
	}
}

// CalibrationReport is what a Calibration says, ready for JSON.
type CalibrationReport struct {
	// Error is the expected calibration error: the distance of accuracy from
	// mean probability in a bin, averaged over lines. Chance is what it would be
	// on average if each line were right with the mean probability of its bin,
	// whatever the others are: few lines lie beside it by chance alone. Lines of
	// one document are alike, so that chance does more than that.
	Error  float64 `json:"expected_calibration_error"`
	Chance float64 `json:"calibration_error_by_chance"`
	// Worst is the largest distance, that of a bin of WorstLines.
	Worst      float64 `json:"maximum_calibration_error"`
	WorstLines int64   `json:"maximum_calibration_error_lines"`
	Lines      int64   `json:"lines"`
	// Probability is the mean over all lines, Accuracy the share that is right.
	Probability float64          `json:"mean_probability"`
	Accuracy    float64          `json:"accuracy"`
	Bins        []CalibrationBin `json:"bins"`
}

// CalibrationBin is the part about the lines of a probability in (From, To].
type CalibrationBin struct {
	From        float64 `json:"from"`
	To          float64 `json:"to"`
	Lines       int64   `json:"lines"`
	Probability float64 `json:"mean_probability"`
	Accuracy    float64 `json:"accuracy"`
}

// Report computes the figures; c may go on counting.
func (c *Calibration) Report() *CalibrationReport {
	bins := len(c.N)
	r := &CalibrationReport{Lines: sum(c.N), Accuracy: ratio(sum(c.Correct), sum(c.N)), Bins: make([]CalibrationBin, bins)}
	for i, n := range c.N {
		b := CalibrationBin{From: float64(i) / float64(bins), To: float64(i+1) / float64(bins), Lines: n}
		if n > 0 {
			total := float64(c.Sum[i]) * unit
			b.Probability = total / float64(n)
			b.Accuracy = ratio(c.Correct[i], n)
			gap := math.Abs(b.Accuracy - b.Probability)
			r.Error += gap * float64(n) / float64(r.Lines)
			r.Chance += deviation(n, b.Probability) / float64(r.Lines)
			if gap >= r.Worst {
				r.Worst, r.WorstLines = gap, n
			}
			r.Probability += total / float64(r.Lines)
		}
		r.Bins[i] = b
	}
	return r
}

// deviation is the mean distance of a binomial number of n with probability p from
// its mean n·p, by de Moivre's formula 2(m+1)·C(n,m+1)·p^(m+1)·(1−p)^(n−m), where m
// is n·p rounded down.
func deviation(n int64, p float64) float64 {
	if p <= 0 || p >= 1 {
		return 0
	}
	of, m := float64(n), math.Floor(float64(n)*p)
	lgamma := func(x float64) float64 { v, _ := math.Lgamma(x); return v }
	return 2 * math.Exp(lgamma(of+1)-lgamma(m+1)-lgamma(of-m)+(m+1)*math.Log(p)+(of-m)*math.Log1p(-p))
}
