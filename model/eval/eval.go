// Package eval judges labels against gold: counts of gold against predicted
// labels, and from them precision, recall and F1 of each class, their macro
// and micro averages and accuracy; the same of spans; calibration of
// probabilities; and intervals by bootstrap over documents. Counts are
// integers, so a report does not depend on the order in which lines or parts
// were added.
package eval

import "slices"

// Counts is a confusion matrix over lines. It is not safe for concurrent use:
// give each goroutine its own and Merge them.
type Counts struct {
	Classes []string
	// N is [K, K]: N[gold*K+pred] is the number of lines of class gold that
	// were labelled pred.
	N []int64
	// Missed[gold] is the number of lines of class gold that got no label.
	Missed []int64
}

// NewCounts returns empty counts over classes, which it keeps.
func NewCounts(classes []string) *Counts {
	k := len(classes)
	return &Counts{Classes: classes, N: make([]int64, k*k), Missed: make([]int64, k)}
}

// Add counts n lines. Lines without gold (gold < 0) are not counted; those
// without a prediction (pred < 0) are counted as missed. It panics on an index
// beyond Classes.
func (c *Counts) Add(gold, pred int, n int64) {
	switch {
	case gold < 0:
	case pred >= len(c.Classes):
		panic("eval: prediction beyond the classes") // it would count for another pair
	case pred < 0:
		c.Missed[gold] += n
	default:
		c.N[gold*len(c.Classes)+pred] += n
	}
}

// Merge adds the counts of o, which has the same classes.
func (c *Counts) Merge(o *Counts) {
	if len(c.Classes) != len(o.Classes) {
		panic("eval: merge of counts over other classes")
	}
	for i, n := range o.N {
		c.N[i] += n
	}
	for i, n := range o.Missed {
		c.Missed[i] += n
	}
}

// Report is what Counts say, ready for JSON. Ratios are within [0, 1]; one
// without lines to count is 0.
type Report struct {
	Lines    int64   `json:"lines"` // with gold
	Accuracy float64 `json:"accuracy"`
	// Macro averages weigh the classes that have gold lines equally; a class
	// without any has no recall to average.
	MacroPrecision float64 `json:"macro_precision"`
	MacroRecall    float64 `json:"macro_recall"`
	MacroF1        float64 `json:"macro_f1"`
	// Micro averages weigh lines equally. They equal the accuracy unless some
	// lines got no label.
	MicroPrecision float64 `json:"micro_precision"`
	MicroRecall    float64 `json:"micro_recall"`
	MicroF1        float64 `json:"micro_f1"`

	Classes   []Class   `json:"classes"`
	Confusion [][]int64 `json:"confusion"` // [gold][pred]
}

// Class is the part of a Report about one class.
type Class struct {
	Class     string  `json:"class"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	Gold      int64   `json:"gold"`      // lines of the class
	Predicted int64   `json:"predicted"` // lines labelled with it
	Correct   int64   `json:"correct"`   // lines that are both
}

// Report computes the figures; c may go on counting.
func (c *Counts) Report() *Report {
	k := len(c.Classes)
	r := &Report{Classes: make([]Class, k), Confusion: make([][]int64, k)}
	var correct, predicted int64
	var withGold float64
	for i, name := range c.Classes {
		cl := Class{Class: name, Correct: c.N[i*k+i], Gold: c.Missed[i]}
		for j := range k {
			cl.Gold += c.N[i*k+j]
			cl.Predicted += c.N[j*k+i]
		}
		cl.Precision = ratio(cl.Correct, cl.Predicted)
		cl.Recall = ratio(cl.Correct, cl.Gold)
		cl.F1 = ratio(2*cl.Correct, cl.Predicted+cl.Gold)
		r.Classes[i] = cl
		r.Confusion[i] = slices.Clone(c.N[i*k : (i+1)*k])
		r.Lines += cl.Gold
		correct += cl.Correct
		predicted += cl.Predicted
		if cl.Gold > 0 {
			withGold++
			r.MacroPrecision += cl.Precision
			r.MacroRecall += cl.Recall
			r.MacroF1 += cl.F1
		}
	}
	if withGold > 0 {
		r.MacroPrecision /= withGold
		r.MacroRecall /= withGold
		r.MacroF1 /= withGold
	}
	r.Accuracy = ratio(correct, r.Lines)
	r.MicroPrecision = ratio(correct, predicted)
	r.MicroRecall = r.Accuracy
	r.MicroF1 = ratio(2*correct, predicted+r.Lines)
	return r
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
