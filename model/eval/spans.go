package eval

// Spans counts spans: runs of neighbouring lines of one label. The runs of
// gold and of predicted labels are made the same way. It is not safe for
// concurrent use: Merge what several goroutines counted.
//
// All slices are [K].
type Spans struct {
	Classes   []string `json:"-"`
	Gold      []int64  `json:"gold"`
	Predicted []int64  `json:"predicted"`
	// Exact is the number of spans that are in both with the same first line,
	// last line and label.
	Exact []int64 `json:"exact"`
	// Found is the number of gold spans that share a line with a predicted span
	// of their label, Touching that of predicted spans that share a line with
	// a gold span of theirs.
	Found    []int64 `json:"found"`
	Touching []int64 `json:"touching"`
}

// NewSpans returns empty counts over classes, which it keeps.
func NewSpans(classes []string) *Spans {
	all := make([]int64, 5*len(classes))
	part := func(i int) []int64 { return all[i*len(classes) : (i+1)*len(classes)] }
	return &Spans{Classes: classes, Gold: part(0), Predicted: part(1), Exact: part(2), Found: part(3), Touching: part(4)}
}

// Add counts the spans of one document. Both labels are indexes in Classes, one
// a line; starts[i] says that line i is no neighbour of the line before. A line
// without gold (gold < 0) ends the spans on both sides and is not judged; one
// without a prediction (pred < 0) is in no predicted span.
func (s *Spans) Add(gold, pred []int, starts []bool) {
	if len(gold) != len(pred) || len(gold) != len(starts) {
		panic("eval: spans: lines differ in number")
	}
	judged := make([]int, len(pred))
	for i, p := range pred {
		judged[i] = p
		if gold[i] < 0 {
			judged[i] = -1
		}
	}
	// shared reports whether a line of [from, to) is labelled alike on both sides.
	shared := func(from, to int) bool {
		for i := from; i < to; i++ {
			if gold[i] == judged[i] {
				return true
			}
		}
		return false
	}
	ends := make([]int, len(gold)) // of the gold span that begins at a line
	runs(gold, starts, func(from, to int) {
		c := gold[from]
		s.Gold[c]++
		ends[from] = to
		if shared(from, to) {
			s.Found[c]++
		}
	})
	runs(judged, starts, func(from, to int) {
		c := judged[from]
		s.Predicted[c]++
		if ends[from] == to && gold[from] == c {
			s.Exact[c]++
		}
		if shared(from, to) {
			s.Touching[c]++
		}
	})
}

// runs calls fn with every longest run [from, to) of neighbouring lines of one
// label.
func runs(labels []int, starts []bool, fn func(from, to int)) {
	for from := 0; from < len(labels); {
		to := from + 1
		for to < len(labels) && labels[to] == labels[from] && !starts[to] {
			to++
		}
		if labels[from] >= 0 {
			fn(from, to)
		}
		from = to
	}
}

// Merge adds the counts of o, those of its class i to class(i) of s.
func (s *Spans) Merge(o *Spans, class func(i int) int) {
	for i := range o.Gold {
		c := class(i)
		s.Gold[c] += o.Gold[i]
		s.Predicted[c] += o.Predicted[i]
		s.Exact[c] += o.Exact[i]
		s.Found[c] += o.Found[i]
		s.Touching[c] += o.Touching[i]
	}
}

// SpanReport is what Spans say, ready for JSON.
type SpanReport struct {
	Gold      int64      `json:"gold"`
	Predicted int64      `json:"predicted"`
	Exact     SpanScores `json:"exact"`
	Overlap   SpanScores `json:"overlap"`
}

// SpanScores are the figures of one way of matching spans. Averages are as in
// Report.
type SpanScores struct {
	MacroF1        float64     `json:"macro_f1"`
	MicroPrecision float64     `json:"micro_precision"`
	MicroRecall    float64     `json:"micro_recall"`
	MicroF1        float64     `json:"micro_f1"`
	Classes        []SpanClass `json:"classes"`
}

// SpanClass is the part of SpanScores about one class.
type SpanClass struct {
	Class     string  `json:"class"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	Gold      int64   `json:"gold"`
	Predicted int64   `json:"predicted"`
}

// Report computes the figures; s may go on counting.
func (s *Spans) Report() *SpanReport {
	return &SpanReport{
		Gold: sum(s.Gold), Predicted: sum(s.Predicted),
		Exact:   s.scores(s.Exact, s.Exact),
		Overlap: s.scores(s.Found, s.Touching),
	}
}

// scores are the figures where found gold spans and right predicted spans are
// matched.
func (s *Spans) scores(found, right []int64) SpanScores {
	r := SpanScores{Classes: make([]SpanClass, len(s.Classes))}
	var withGold float64
	for i, name := range s.Classes {
		c := SpanClass{Class: name, Gold: s.Gold[i], Predicted: s.Predicted[i]}
		c.Precision, c.Recall = ratio(right[i], c.Predicted), ratio(found[i], c.Gold)
		c.F1 = harmonicMean(c.Precision, c.Recall)
		r.Classes[i] = c
		if c.Gold > 0 {
			withGold++
			r.MacroF1 += c.F1
		}
	}
	if withGold > 0 {
		r.MacroF1 /= withGold
	}
	r.MicroPrecision = ratio(sum(right), sum(s.Predicted))
	r.MicroRecall = ratio(sum(found), sum(s.Gold))
	r.MicroF1 = harmonicMean(r.MicroPrecision, r.MicroRecall)
	return r
}

func sum(v []int64) (n int64) {
	for _, x := range v {
		n += x
	}
	return n
}

func harmonicMean(a, b float64) float64 {
	if a+b == 0 {
		return 0
	}
	return 2 * a * b / (a + b)
}
