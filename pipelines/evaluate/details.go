package main

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/linnet-ml/linnet/model/eval"
)

const (
	worstDocuments = 20
	resamples      = 1000
	bootstrapSeed  = 1
)

// details are the figures that need parts.
type details struct {
	// Spans are runs of neighbouring lines of one label; Characters count each
	// one that is no white space.
	Spans       *eval.SpanReport        `json:"spans"`
	Characters  *eval.Report            `json:"characters"`
	Calibration *eval.CalibrationReport `json:"calibration,omitempty"`
	// Intervals are by resamples of the documents; one document has none.
	Intervals *eval.Intervals `json:"intervals_95,omitempty"`
	Baseline  *comparison     `json:"baseline,omitempty"` // of --baseline
	Worst     []document      `json:"worst_documents"`    // by macro-F1
	Wrong     []wrongLine     `json:"wrong_lines"`        // most confident first
	Each      []counted       `json:"each_document"`      // by name
}

// document is how one document was labelled.
type document struct {
	Name     string  `json:"document"`
	Lines    int64   `json:"lines"`
	Wrong    int64   `json:"wrong"` // without a label, too
	Accuracy float64 `json:"accuracy"`
	MacroF1  float64 `json:"macro_f1"`
}

// merger gathers parts, in any order. Of each document it holds some numbers,
// of the texts only what the report shows.
type merger struct {
	classes    []string // head of them from the start, then others as they come
	head       int
	documents  []counted
	characters sums
	spans      *eval.Spans
	calibrated *eval.Calibration
	wrong      []wrongLine
}

// counted is a document with its lines by label.
type counted struct {
	document
	Counts []pair `json:"counts"`
	name   []byte // as it is: several may be one in UTF-8
}

func newMerger(classes []string) *merger {
	classes = slices.Clone(classes)
	return &merger{classes: classes, head: len(classes), characters: sums{}, spans: eval.NewSpans(classes)}
}

// index is index in m.classes, with room for the class in m.spans.
func (m *merger) index(class string) int {
	i := index(&m.classes, class)
	if i == len(m.spans.Gold) {
		wider := eval.NewSpans(m.classes)
		wider.Merge(m.spans, func(c int) int { return c })
		m.spans = wider
	}
	return i
}

func (m *merger) add(p *part) {
	d := counted{document: document{Name: text(p.Name)}, Counts: p.Lines, name: p.Name}
	own := sums{}
	for _, l := range p.Lines {
		own.add(l.Gold, l.Predicted, l.N)
		if l.Gold != l.Predicted {
			d.Wrong += l.N
		}
	}
	r := own.counts(nil).Report()
	d.Lines, d.Accuracy, d.MacroF1 = r.Lines, r.Accuracy, r.MacroF1
	if d.Lines > 0 {
		m.documents = append(m.documents, d)
	}
	for _, c := range p.Characters {
		m.characters.add(c.Gold, c.Predicted, c.N)
	}
	classes := make([]int, len(p.Classes))
	for c, name := range p.Classes {
		classes[c] = m.index(name)
	}
	m.spans.Merge(p.Spans, func(c int) int { return classes[c] })
	if p.Calibration != nil {
		if m.calibrated == nil {
			m.calibrated = eval.NewCalibration(eval.CalibrationBins)
		}
		m.calibrated.Merge(p.Calibration)
	}
	for rank, w := range p.Wrong {
		w.rank, w.name = rank, p.Name
		m.wrong = append(m.wrong, w)
	}
	if len(m.wrong) > 4*keptWrong {
		m.cutWrong()
	}
}

// cutWrong keeps the most confidently wrong lines; where no confidence is
// known, the first ones of each document.
func (m *merger) cutWrong() {
	slices.SortFunc(m.wrong, func(a, b wrongLine) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability), cmp.Compare(a.rank, b.rank),
			bytes.Compare(a.name, b.name))
	})
	m.wrong = slices.Clone(m.wrong[:min(len(m.wrong), keptWrong)])
}

// details computes the figures, the same whatever the order of parts.
func (m *merger) details() *details {
	m.cutWrong()
	// By name, so that one seed draws the same documents in every run.
	slices.SortFunc(m.documents, func(a, b counted) int { return bytes.Compare(a.name, b.name) })
	classes := slices.Clone(m.classes)
	slices.Sort(classes[m.head:]) // that came in any order
	spans := eval.NewSpans(classes)
	spans.Merge(m.spans, func(c int) int { return slices.Index(classes, m.classes[c]) })
	d := &details{
		Spans:      spans.Report(),
		Characters: m.characters.counts(classes).Report(),
		Wrong:      append([]wrongLine{}, m.wrong...), // in JSON a list, of none too
	}
	if m.calibrated != nil {
		d.Calibration = m.calibrated.Report()
	}
	d.Each = append([]counted{}, m.documents...)
	if len(d.Each) > 1 {
		all := cells(&classes, d.Each)
		d.Intervals = eval.Bootstrap(classes, all, resamples, bootstrapSeed)
	}
	slices.SortStableFunc(m.documents, func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.MacroF1, b.MacroF1), cmp.Compare(b.Wrong, a.Wrong))
	})
	d.Worst = make([]document, 0, worstDocuments)
	for _, doc := range m.documents[:min(len(m.documents), worstDocuments)] {
		d.Worst = append(d.Worst, doc.document)
	}
	return d
}

// cells are those of the documents over classes, which what else occurs joins.
func cells(classes *[]string, documents []counted) [][]eval.Cell {
	all := make([][]eval.Cell, len(documents))
	for i, doc := range documents {
		for _, l := range doc.Counts {
			all[i] = append(all[i], eval.Cell{Gold: int32(index(classes, l.Gold)), Pred: int32(index(classes, l.Predicted)), N: l.N})
		}
	}
	return all
}

// sums are numbers of lines or characters, by gold and predicted class; ""
// predicted is none.
type sums map[[2]string]int64

// add counts n of them; those without gold are not judged.
func (s sums) add(gold, predicted string, n int64) {
	if gold != "" {
		s[[2]string{gold, predicted}] += n
	}
}

// pairs are the sums as a list, sorted.
func (s sums) pairs() []pair {
	list := make([]pair, 0, len(s))
	for key, n := range s {
		list = append(list, pair{key[0], key[1], n})
	}
	slices.SortFunc(list, func(a, b pair) int {
		return cmp.Or(strings.Compare(a.Gold, b.Gold), strings.Compare(a.Predicted, b.Predicted))
	})
	return list
}

// counts are the counts over classes and what else occurs, by name.
func (s sums) counts(classes []string) *eval.Counts {
	others := map[string]bool{}
	for key := range s {
		for _, c := range key {
			if c != "" && !slices.Contains(classes, c) {
				others[c] = true
			}
		}
	}
	classes = slices.Concat(classes, slices.Sorted(maps.Keys(others)))
	counts := eval.NewCounts(classes)
	for key, n := range s {
		counts.Add(slices.Index(classes, key[0]), slices.Index(classes, key[1]), n)
	}
	return counts
}
