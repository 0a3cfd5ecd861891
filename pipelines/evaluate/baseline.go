package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/store"
)

// comparison is how much better a run is than an earlier one, whose report is given,
// over the documents of which both judged as many lines of each label.
type comparison struct {
	Report    string `json:"report"` // the folder
	ModelHash string `json:"model_hash,omitempty"`
	Documents int    `json:"documents"`
	LeftOut   int    `json:"left_out"` // of either report
	*eval.Differences
}

// earlierReport is what is read of a report.json.
type earlierReport struct {
	ModelHash string    `json:"model_hash"`
	LabelSet  string    `json:"label_set"`
	Each      []counted `json:"each_document"`
}

// loadBaseline reads the report in a folder, which must be of the label set.
func loadBaseline(ctx context.Context, folder, labelSet string) (*earlierReport, error) {
	file := store.Join(folder, "report.json")
	data, err := store.Read(ctx, file, 0)
	switch {
	case errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrNotFile):
		return nil, cli.Usagef("--baseline: %w; name the folder of an earlier --report", err)
	case err != nil:
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	r := new(earlierReport)
	if err := json.Unmarshal(data, r); err != nil || len(r.Each) == 0 {
		return nil, cli.Usagef("--baseline: %s is no report with the figures of each document; make it again with this version of evaluate", file)
	}
	if r.LabelSet != labelSet {
		return nil, cli.Usagef("--baseline: %s is of --label_set=%s, not %s; give both the same", file, r.LabelSet, labelSet)
	}
	return r, nil
}

// compare compares with the report of an earlier run.
func (d *details) compare(folder string, earlier *earlierReport) error {
	c := &comparison{Report: folder, ModelHash: earlier.ModelHash}
	before := map[string][]counted{} // in order: several may be one in UTF-8
	for _, doc := range earlier.Each {
		before[doc.Name] = append(before[doc.Name], doc)
	}
	var now, then []counted
	for _, doc := range d.Each {
		old := before[doc.Name]
		if len(old) > 0 {
			before[doc.Name] = old[1:]
		}
		if len(old) == 0 || !slices.Equal(goldOf(doc.Counts), goldOf(old[0].Counts)) {
			c.LeftOut++
			continue
		}
		now, then = append(now, doc), append(then, old[0])
	}
	c.Documents = len(now)
	for _, old := range before {
		c.LeftOut += len(old)
	}
	if c.Documents == 0 {
		return fmt.Errorf("--baseline: %s: none of its documents is judged here by the same labels; judge the same --input by the same classes", folder)
	}
	var classes []string
	a, b := cells(&classes, now), cells(&classes, then)
	c.Differences = eval.Compare(classes, a, b, resamples, bootstrapSeed)
	d.Baseline = c
	return nil
}

// goldOf are the lines of each label by annotation, whatever was predicted, sorted.
func goldOf(counts []pair) []pair {
	lines := sums{}
	for _, c := range counts {
		lines.add(c.Gold, "", c.N)
	}
	return lines.pairs()
}

// String is the comparison in a line.
func (c *comparison) String() string {
	accuracy, macro, caution := "", "", ""
	if i := c.Intervals; i != nil {
		accuracy = fmt.Sprintf(" (95 %%: %+.4f to %+.4f)", i.Accuracy.Low, i.Accuracy.High)
		macro = fmt.Sprintf(" (95 %%: %+.4f to %+.4f)", i.MacroF1.Low, i.MacroF1.High)
		if i.Caution != "" {
			caution = "; " + i.Caution
		}
	}
	line := fmt.Sprintf("against %s: accuracy %+.4f%s, macro-F1 %+.4f%s, over %s", cli.Printable(c.Report), c.Accuracy, accuracy, c.MacroF1, macro, cli.Plural(int64(c.Documents), "document"))
	if c.LeftOut > 0 {
		line += fmt.Sprintf("; %s left out, which one of the two lacks or has by other labels", cli.Plural(int64(c.LeftOut), "document"))
	}
	return line + caution
}
