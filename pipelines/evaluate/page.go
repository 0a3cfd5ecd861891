package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/picture"
)

//go:embed report.html.tmpl
var pageText string

// page is report.html: one file that loads nothing. html/template escapes all
// text; a policy in the page forbids scripts besides.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"ratio":   func(v float64) string { return fmt.Sprintf("%.4f", v) },
	"rough":   func(v float64) string { return fmt.Sprintf("%.3f", v) }, // other resamples end elsewhere by about 0.001
	"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
	"count":   cli.Count,
	"plural":  cli.Plural,
	"text":    func(s string) string { return text([]byte(s)) },
	"join":    func(s []string) string { return text([]byte(strings.Join(s, ", "))) },
	"matrix":  matrix,
}).Parse(pageText))

func htmlReport(r *report) ([]byte, error) {
	plots, err := pictures(r)
	if err != nil {
		return nil, fmt.Errorf("evaluate: plots: %w", err)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, struct {
		*report
		Plots  []picture.Picture
		Shades []int // of cells, percent
	}{r, plots, shades}); err != nil {
		return nil, fmt.Errorf("evaluate: report.html: %w", err)
	}
	return b.Bytes(), nil
}

// row is that of a gold class in the confusion matrix.
type row struct {
	Class  string
	Cells  []cell
	Missed int64
	Gold   int64
}

// cell is a number of lines.
type cell struct {
	N     int64
	Style string  // its class in CSS: right or wrong, and how much of the row
	Share float64 // of the row
}

// shades are the steps of a cell's colour, in percent.
var shades = []int{0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60}

// matrix is the confusion matrix of the classes that occur.
func matrix(r *eval.Report) []row {
	var rows []row
	for g, class := range r.Classes {
		if class.Gold == 0 && class.Predicted == 0 {
			continue
		}
		out := row{Class: class.Class, Missed: class.Gold, Gold: class.Gold}
		for p, n := range r.Confusion[g] {
			out.Missed -= n
			if r.Classes[p].Gold == 0 && r.Classes[p].Predicted == 0 {
				continue
			}
			c := cell{N: n}
			if class.Gold > 0 {
				c.Share = float64(n) / float64(class.Gold)
			}
			step := int(float64(len(shades)-1)*c.Share + .5)
			if n > 0 {
				step = max(step, 1)
			}
			c.Style = fmt.Sprintf("w%d", shades[step])
			if p == g {
				c.Style = fmt.Sprintf("r%d", shades[step])
			}
			out.Cells = append(out.Cells, c)
		}
		rows = append(rows, out)
	}
	return rows
}
