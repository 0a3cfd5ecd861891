package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/transforms/store"
)

// report is report.json.
type report struct {
	Input       []string     `json:"input"`
	Model       string       `json:"model,omitempty"`
	ModelHash   string       `json:"model_hash,omitempty"`
	Predictions string       `json:"predictions,omitempty"`
	LabelSet    string       `json:"label_set"`
	Documents   int64        `json:"documents"`
	Rejected    int64        `json:"rejected"`
	Seconds     float64      `json:"seconds"`
	Report      *eval.Report `json:"report"` // of lines
	*details
	unlike error // to the report that --baseline names
}

// gather makes the report of the counters. Its classes are the model's, and
// what else occurred, by name.
func gather(counters map[string]int64, f *scoreFn) *eval.Report {
	_, classes, _ := f.Config.Head(f.LabelSet) // none where there is no such head, as with files of the full set
	lines := sums{}
	for name, n := range counters {
		if pair, ok := namesOf(pairPrefix, name); ok {
			lines[pair] += n
		}
	}
	return lines.counts(classes).Report()
}

// reportFiles are those of a report, and what each has in it.
var reportFiles = [][2]string{{"report.json", `"label_set"`}, {"report.html", "<title>Linnet: evaluation</title>"}}

// writeReport merges the parts into r and writes it, for programs and for
// people.
func (o *options) writeReport(ctx context.Context, parts string, r *report) error {
	var classes []string
	for _, c := range r.Report.Classes {
		classes = append(classes, c.Class)
	}
	m, found := newMerger(classes), int64(0)
	err := readParts(ctx, parts, func(p *part) { found++; m.add(p) })
	if err != nil {
		return err
	}
	if found < r.Documents {
		return fmt.Errorf("--report: %s: it has the figures of %d of %s; name a folder that workers share with this program, such as gs://bucket/report",
			o.report, found, cli.Plural(r.Documents, "document"))
	}
	r.details = m.details()
	if o.earlier != nil {
		r.unlike = r.compare(o.baseline, o.earlier)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	page, err := htmlReport(r)
	if err != nil {
		return err
	}
	st, err := store.For(ctx, o.report)
	if err != nil {
		return err
	}
	if err := st.Write(ctx, store.Join(o.report, "report.json"), append(data, '\n')); err != nil {
		return err
	}
	return st.Write(ctx, store.Join(o.report, "report.html"), page)
}

// print writes what the report adds to the table.
func (d *details) print() {
	if i := d.Intervals; i != nil {
		caution := ""
		if i.Caution != "" {
			caution = "; " + i.Caution
		}
		fmt.Printf("95 %% intervals by document: accuracy %.3f to %.3f, macro-F1 %.3f to %.3f%s\n",
			i.Accuracy.Low, i.Accuracy.High, i.MacroF1.Low, i.MacroF1.High, caution)
	}
	if d.Baseline != nil {
		fmt.Println(d.Baseline)
	}
	fmt.Printf("F1 of spans %.4f exact, %.4f overlap; macro-F1 of characters %.4f\n",
		d.Spans.Exact.MicroF1, d.Spans.Overlap.MicroF1, d.Characters.MacroF1)
}

// table writes the figures for people.
func table(w io.Writer, r *report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "label\tprecision\trecall\tF1\tlines\tpredicted\t\n")
	for _, c := range r.Report.Classes {
		if c.Gold == 0 && c.Predicted == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%.4f\t%.4f\t%.4f\t%s\t%s\t\n", c.Class, c.Precision, c.Recall, c.F1, cli.Count(c.Gold), cli.Count(c.Predicted))
	}
	fmt.Fprintf(t, "macro\t%.4f\t%.4f\t%.4f\t%s\t\t\n", r.Report.MacroPrecision, r.Report.MacroRecall, r.Report.MacroF1, cli.Count(r.Report.Lines))
	fmt.Fprintf(t, "micro\t%.4f\t%.4f\t%.4f\t\t\t\n", r.Report.MicroPrecision, r.Report.MicroRecall, r.Report.MicroF1)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "accuracy %.4f, macro-F1 %.4f; %s, %s with a label, %.1f s\n",
		r.Report.Accuracy, r.Report.MacroF1, cli.Plural(r.Documents, "document"), cli.Plural(r.Report.Lines, "line"), r.Seconds)
	return err
}
