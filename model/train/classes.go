package train

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/linnet-ml/linnet/model"
)

// MinLines is how many lines a label of the annotation needs in the training
// documents to be a class of its own in the full set.
const MinLines = 20

// Classes settles what cfg leaves open about labels, from the lines of docs:
//
//   - Classes of the full label set are the raw labels with at least 20 lines that
//     YEDDA can write (model.IsLabel), those in LabelMap counted as what it maps them
//     to, what else it maps to, and OtherClass, by name. Those of the collapsed set
//     are cfg.Classes or, where that is empty, what LabelMap maps to, and OtherClass
//     unless LabelMap leaves no label of docs to it, nor NumClasses a class: then
//     there is none.
//   - Where NumClasses is not 0 and smaller than that, the commonest
//     NumClasses−1 stay and the rest fold into OtherClass, which stays too.
//   - FullClasses, the second head of a model with collapsed labels, are such
//     raw labels, unless cfg names them.
//   - Where init is the model to begin with, not nil, and cfg has its label set,
//     map and classes, all are as init has them, whatever lines docs have.
//
// One class is an error, and so is one that LabelMap takes for a label of another.
// The returned Config has NumClasses set and passes Validate.
func Classes(docs []Document, cfg model.Config, init *model.Weights) (model.Config, error) {
	if init != nil && continues(&cfg, &init.Config) {
		cfg.Classes, cfg.FullClasses, cfg.NumClasses = init.Config.Classes, init.Config.FullClasses, init.Config.NumClasses
		return cfg, cfg.Validate()
	}
	raw, mapped := map[string]int{}, map[string]int{}
	for _, d := range docs {
		for _, l := range d.Labels {
			if l != "" {
				raw[l]++
				mapped[cmp.Or(cfg.LabelMap[l], l)]++
			}
		}
	}
	common := commonLabels(raw)

	classes := slices.Clone(cfg.Classes)
	switch {
	case cfg.LabelSet == model.Full:
		for _, l := range cfg.LabelMap {
			mapped[l] += MinLines
		}
		classes = commonLabels(mapped)
		cfg.FullClasses = nil
	case len(classes) == 0:
		classes = slices.Compact(slices.Sorted(maps.Values(cfg.LabelMap)))
		rest := false
		for l := range raw {
			rest = rest || cfg.LabelMap[l] == "" && !slices.Contains(classes, l)
		}
		if n := cfg.NumClasses; !rest && (n == 0 || n >= len(classes)) {
			cfg.OtherClass = ""
		}
	}
	if other := cfg.OtherClass; other != "" && !slices.Contains(classes, other) {
		classes = append(classes, other)
	}
	if len(classes) == 0 {
		return cfg, errors.New("train: classes: no label has 20 lines in the training documents; name the classes, or give more documents")
	}
	for _, class := range classes {
		if to := cfg.LabelMap[class]; to != "" && to != class {
			remedy := "name the class otherwise"
			if class == cfg.OtherClass {
				remedy = "let other labels become another class, such as by *=" + to
			}
			return cfg, fmt.Errorf("train: label_map: %s is a class, and a label that becomes %s: what the model calls %[1]s would be learnt from and judged as %[2]s; %s", class, to, remedy)
		}
	}
	cfg.Classes = classes
	if n := cfg.NumClasses; n > 0 && n < len(classes) {
		if cfg.OtherClass == "" {
			return cfg, fmt.Errorf("train: num_classes: %d, but there are %d labels and no other_class for the rest; set it, or num_classes=0", n, len(classes))
		}
		fold(&cfg, raw, n)
	}
	if len(cfg.Classes) == 1 {
		return cfg, fmt.Errorf("train: classes: %s would be the only class, and right everywhere; give more documents, or another label_set, label_map or num_classes", cfg.Classes[0])
	}
	cfg.NumClasses = len(cfg.Classes)
	if cfg.LabelSet == model.Collapsed && len(cfg.FullClasses) == 0 && len(common) > 1 {
		cfg.FullClasses = common
	}
	return cfg, cfg.Validate()
}

// commonLabels are the labels that have at least MinLines lines and that YEDDA can
// write, in order.
func commonLabels(lines map[string]int) (labels []string) {
	for _, l := range slices.Sorted(maps.Keys(lines)) {
		if lines[l] >= MinLines && model.IsLabel(l) {
			labels = append(labels, l)
		}
	}
	return labels
}

// continues reports whether cfg asks for the classes of init.
func continues(cfg, init *model.Config) bool {
	labels := maps.Clone(init.LabelMap)
	delete(labels, "*") // OtherClass says it
	return cfg.LabelSet == init.LabelSet && cfg.OtherClass == init.OtherClass && maps.Equal(cfg.LabelMap, labels) &&
		(cfg.NumClasses == 0 || cfg.NumClasses == init.NumClasses) && (cfg.LabelSet == model.Full || slices.Equal(cfg.Classes, init.Classes))
}

// fold keeps OtherClass and the n−1 other classes with the most lines, in
// their order.
func fold(cfg *model.Config, raw map[string]int, n int) {
	lines := map[string]int{}
	for l, count := range raw {
		if c := cfg.Class(l); c >= 0 {
			lines[cfg.Classes[c]] += count
		}
	}
	lines[cfg.OtherClass] = math.MaxInt // it stays
	byCount := slices.Clone(cfg.Classes)
	slices.SortFunc(byCount, func(a, b string) int {
		return cmp.Or(cmp.Compare(lines[b], lines[a]), cmp.Compare(a, b))
	})
	kept := byCount[:n]
	cfg.Classes = slices.DeleteFunc(slices.Clone(cfg.Classes), func(c string) bool {
		return !slices.Contains(kept, c)
	})
	labels := maps.Clone(cfg.LabelMap)
	for l, c := range labels {
		if !slices.Contains(kept, c) {
			labels[l] = cfg.OtherClass
		}
	}
	cfg.LabelMap = labels
}

// corpus is documents made ready for training.
type corpus struct {
	what string // training, validation or test
	docs []Document
	// main and full are the targets of each document's rows, −1 for none.
	main, full [][]int
	// labelled[d][r] is the number of rows before row r of document d with a
	// target in the main head.
	labelled [][]int
	lines    int // labelled
}

func newCorpus(what string, docs []Document, cfg *model.Config) (*corpus, error) {
	c := &corpus{what: what, docs: docs}
	for _, d := range docs {
		if err := checkFeatures(&d, cfg); err != nil {
			return nil, fmt.Errorf("train: %s document %s: %w", what, d.Name, err)
		}
		rows := d.Features.NumLines()
		main, full, labelled := make([]int, rows), make([]int, rows), make([]int, rows+1)
		for r, l := range d.Labels {
			main[r], full[r] = cfg.Class(l), cfg.FullClass(l)
			labelled[r+1] = labelled[r]
			if main[r] >= 0 {
				labelled[r+1]++
			}
		}
		c.lines += labelled[rows]
		c.main, c.full = append(c.main, main), append(c.full, full)
		c.labelled = append(c.labelled, labelled)
	}
	return c, nil
}

// leaveOther takes OtherClass out of the second head's targets in documents without a
// label that this head alone knows, as corrections of pages of the main head's classes
// are: there it may be any of that head's labels. Parts of a document are that document.
func (c *corpus) leaveOther(cfg *model.Config) {
	alone := func(l string) bool { return cfg.FullClass(l) >= 0 && !slices.Contains(cfg.Classes, l) }
	if !slices.ContainsFunc(cfg.FullClasses, alone) {
		return
	}
	whole := map[string]bool{}
	for _, d := range c.docs {
		whole[d.Name] = whole[d.Name] || slices.ContainsFunc(d.Labels, alone)
	}
	for i, d := range c.docs {
		for r, l := range d.Labels {
			if l == cfg.OtherClass && !whole[d.Name] {
				c.full[i][r] = -1
			}
		}
	}
}

// checkFeatures tells of features that are none of d's lines, which would end the
// program where a step reads them on a goroutine of its own, or not finite.
func checkFeatures(d *Document, cfg *model.Config) error {
	if d.Features == nil {
		return errors.New("no Features; package feature makes them of its lines")
	}
	f := *d.Features
	f.Windows = nil
	rows := f.NumLines()
	if len(d.Labels) != rows {
		return fmt.Errorf("%d labels for %d lines; give one a line", len(d.Labels), rows)
	}
	return f.CheckAll(cfg.LayoutSize, cfg.InputSize)
}

// columnWeights is the weight of each column's rows in the loss: those that
// ClassWeights names, or the inverse of how often a class occurs (of the main
// head, with a mean of 1 over the lines), or 1.
func (c *corpus) columnWeights(cfg *model.Config) ([]float64, error) {
	named, balanced, err := cfg.LossWeights()
	if err != nil {
		return nil, err
	}
	w := make([]float64, cfg.NumOutputs())
	for i, name := range columns(cfg) {
		w[i] = 1
		if v, ok := named[name]; ok {
			w[i] = v
		}
	}
	if balanced {
		count := make([]int, len(cfg.Classes))
		for _, main := range c.main {
			for _, y := range main {
				if y >= 0 {
					count[y]++
				}
			}
		}
		occurring := 0
		for _, n := range count {
			occurring += min(n, 1)
		}
		for y, n := range count {
			if n > 0 {
				w[y] = float64(c.lines) / float64(occurring*n)
			}
		}
	}
	return w, nil
}

// columns are the names of the columns of all heads.
func columns(cfg *model.Config) []string {
	return append(slices.Clone(cfg.Classes), cfg.FullClasses...)
}

// networkSizes are the dimensions that cfg asks for.
func networkSizes(cfg *model.Config) sizes {
	s := sizes{layout: cfg.LayoutSize, embedding: cfg.EmbeddingSize, hidden: cfg.HiddenSize, layers: cfg.NumLayers,
		heads: []int{len(cfg.Classes)}}
	if len(cfg.FullClasses) > 0 {
		s.heads = append(s.heads, len(cfg.FullClasses))
	}
	focal := cfg.FocalClasses()
	for _, name := range columns(cfg) {
		s.focal = append(s.focal, slices.Contains(focal, name))
	}
	return s
}
