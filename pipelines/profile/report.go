package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/pipelines/internal/cli"
	"github.com/linnet-ml/linnet/pipelines/internal/picture"
	"github.com/linnet-ml/linnet/transforms/store"
)

// report is profile.json.
type report struct {
	Time       time.Time  `json:"time"`
	Machine    string     `json:"machine"`
	GPU        string     `json:"gpu,omitempty"`
	Precision  string     `json:"gpu_precision,omitempty"` // of the GPU's products
	NoGPU      string     `json:"no_gpu,omitempty"`        // why --device=auto took none
	Model      string     `json:"model"`
	ModelHash  string     `json:"model_hash"`
	Input      []string   `json:"input"`
	Documents  int        `json:"documents"`
	Lines      int64      `json:"lines"`
	WindowSize int        `json:"window_size"`
	Rounds     int        `json:"rounds"`
	Rows       []measured `json:"rows"`
	CPUFit     *fit       `json:"cpu_fit,omitempty"`
	GPUFit     *fit       `json:"gpu_fit,omitempty"`
	FastestCPU *measured  `json:"fastest_cpu,omitempty"`
	FastestGPU *measured  `json:"fastest_gpu,omitempty"`
	CPUStartup float64    `json:"cpu_startup_seconds"`
	GPUStartup float64    `json:"gpu_startup_seconds,omitempty"`
	CPUPerMega float64    `json:"cpu_cost_per_million_lines,omitempty"`
	GPUPerMega float64    `json:"gpu_cost_per_million_lines,omitempty"`
	Plan       *plan      `json:"plan,omitempty"`
	Noise      float64    `json:"noise_share,omitempty"` // largest spread of a row's rounds, as a share of their median; one round has none
	Advice     []string   `json:"advice"`                // all that is said below the table
	ramWeights int64      // bytes that the weights take as they were read
	reading    time.Duration
	gpuUsage   []gpuinit.Usage
}

// column is one of profile.tsv: its name there, for people, and its value, as
// it stands in the file and for people.
type column struct {
	name, title string
	gpu         bool // only where a GPU was measured
	value       func(*measured) (raw, text string)
}

func countColumn(v func(*measured) int64) func(*measured) (string, string) {
	return func(m *measured) (string, string) { return strconv.FormatInt(v(m), 10), cli.Count(v(m)) }
}

func bytesColumn(v func(*measured) int64) func(*measured) (string, string) {
	return func(m *measured) (string, string) {
		if v(m) < 0 {
			return "N/A", "N/A"
		}
		return strconv.FormatInt(v(m), 10), bytes(float64(v(m)))
	}
}

func numberColumn(format string, v func(*measured) float64) func(*measured) (string, string) {
	return func(m *measured) (string, string) { return raw(v(m)), fmt.Sprintf(format, v(m)) }
}

func raw(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func rateColumn(v func(*measured) float64) func(*measured) (string, string) {
	return func(m *measured) (string, string) { return raw(v(m)), cli.Count(int64(math.Round(v(m)))) }
}

func percentColumn(v func(*measured) float64) func(*measured) (string, string) {
	return func(m *measured) (string, string) {
		if v(m) < 0 {
			return "N/A", "N/A"
		}
		return numberColumn("%.0f %%", v)(m)
	}
}

var columns = []column{
	{"device", "device", false, func(m *measured) (string, string) { return m.Device, m.Device }},
	{"batch_size", "batch size", false, countColumn(func(m *measured) int64 { return int64(m.BatchSize) })},
	{"batches_at_once", "at once", false, countColumn(func(m *measured) int64 { return int64(m.AtOnce) })},
	{"gpu_before_bytes", "GPU before", true, bytesColumn(func(m *measured) int64 { return m.GPUBefore })},
	{"gpu_model_bytes", "GPU, model", true, bytesColumn(func(m *measured) int64 { return m.GPUModel })},
	{"gpu_peak_of_a_batch_bytes", "GPU, batch", true, bytesColumn(func(m *measured) int64 { return m.GPUBatch })},
	{"gpu_peak_bytes", "GPU, peak", true, bytesColumn(func(m *measured) int64 { return m.GPUPeak })},
	{"ram_before_bytes", "RAM before", false, bytesColumn(func(m *measured) int64 { return m.RAMBefore })},
	{"ram_model_bytes", "RAM, model", false, bytesColumn(func(m *measured) int64 { return m.RAMModel })},
	{"ram_peak_of_a_batch_bytes", "RAM, batch", false, bytesColumn(func(m *measured) int64 { return m.RAMBatch })},
	{"ram_peak_bytes", "RAM, peak", false, bytesColumn(func(m *measured) int64 { return m.RAMPeak })},
	{"batches", "batches", false, countColumn(func(m *measured) int64 { return int64(m.Batches) })},
	{"samples", "samples", false, countColumn(func(m *measured) int64 { return m.Samples })},
	{"lines", "lines", false, countColumn(func(m *measured) int64 { return m.Lines })},
	{"seconds", "time", false, numberColumn("%.2f s", func(m *measured) float64 { return m.Seconds })},
	{"mean_batch_seconds", "a batch", false, func(m *measured) (string, string) { return raw(m.BatchSeconds), decimal(1e3*m.BatchSeconds) + " ms" }},
	{"lines_per_second", "lines/s", false, rateColumn(func(m *measured) float64 { return m.PerSecond })},
	{"lines_per_second_slowest", "slowest", false, rateColumn(func(m *measured) float64 { return m.Slowest })},
	{"lines_per_second_fastest", "fastest", false, rateColumn(func(m *measured) float64 { return m.Fastest })},
	{"lines_per_cpu_second", "lines/CPU s", false, rateColumn(func(m *measured) float64 { return m.PerCPUSecond })},
	{"cpu_utilisation_percent", "CPU", false, percentColumn(func(m *measured) float64 { return m.Utilisation })},
	{"gpu_utilisation_percent", "GPU", true, percentColumn(func(m *measured) float64 { return m.GPUBusy })},
}

// of is the column's value in a row; a CPU has none of the GPU's, and a batch that did
// not fit has none of what was to be measured.
func (c *column) of(m *measured) (raw, text string) {
	raw, text = c.value(m)
	unmeasured := m.Failed != "" && raw == "0" && c.name != "gpu_before_bytes" // a card may have nothing in use
	if c.gpu && m.Device == backend.CPU || unmeasured {
		return "N/A", "N/A"
	}
	return raw, text
}

// columns are those that the rows have.
func (r *report) columns() (out []column) {
	for _, c := range columns {
		if !c.gpu || r.GPU != "" {
			out = append(out, c)
		}
	}
	return out
}

// tsv is profile.tsv: a line of names and one for each row, numbers as in
// profile.json.
func (r *report) tsv() []byte {
	var b strings.Builder
	line := func(cell func(column) string) {
		var cells []string
		for _, c := range r.columns() {
			cells = append(cells, cell(c))
		}
		fmt.Fprintln(&b, strings.Join(cells, "\t"))
	}
	line(func(c column) string { return c.name })
	for i := range r.Rows {
		line(func(c column) string { raw, _ := c.of(&r.Rows[i]); return raw })
	}
	return []byte(b.String())
}

// table prints what a person asks first.
func (r *report) table(w io.Writer) error {
	fmt.Fprintf(w, "%s; %s, %s in samples of %d\n", r.Machine, cli.Plural(int64(r.Documents), "document"), cli.Plural(r.Lines, "line"), r.WindowSize)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	shown := map[string]bool{"device": true, "batch_size": true, "gpu_model_bytes": true, "gpu_peak_bytes": true, "ram_model_bytes": true, "ram_peak_bytes": true,
		"mean_batch_seconds": true, "lines_per_second": true, "lines_per_second_slowest": true, "lines_per_second_fastest": true, "lines_per_cpu_second": true, "cpu_utilisation_percent": true, "gpu_utilisation_percent": true}
	row := func(cell func(column) string) {
		for _, c := range r.columns() {
			if shown[c.name] {
				fmt.Fprintf(t, "%s\t", cell(c))
			}
		}
		fmt.Fprintln(t)
	}
	row(func(c column) string { return c.title })
	for i := range r.Rows {
		row(func(c column) string { _, text := c.of(&r.Rows[i]); return text })
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range r.Advice {
		if _, err := fmt.Fprintln(w, cli.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// reportFiles are those of a report, and what each has in it.
var reportFiles = [][2]string{{"profile.tsv", "device\tbatch_size\t"}, {"profile.json", `"model_hash"`}, {"profile.html", "<title>Linnet: profile</title>"}}

// write writes the three files.
func (r *report) write(ctx context.Context, folder string) error {
	asJSON, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("profile: profile.json: %w", err)
	}
	asHTML, err := r.html()
	if err != nil {
		return fmt.Errorf("profile: profile.html: %w", err)
	}
	st, err := store.For(ctx, folder)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"profile.tsv": r.tsv(), "profile.json": append(asJSON, '\n'), "profile.html": asHTML} {
		if err := st.Write(ctx, store.Join(folder, name), data); err != nil {
			return err
		}
	}
	return nil
}

//go:embed report.html.tmpl
var pageText string

// page is profile.html: one file that loads nothing.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"count":   cli.Count,
	"decimal": decimal,
	"plural":  cli.Plural,
	"whole":   func(n int) string { return cli.Count(int64(n)) },
	"join":    func(s []string) string { return cli.Printable(strings.Join(s, ", ")) },
	"text":    cli.Printable,
	"rate":    func(m *measured) string { return cli.Count(int64(math.Round(m.PerSecond))) },
}).Parse(pageText))

// cell is a number in the page: as in profile.tsv and for people.
type cell struct{ Raw, Text string }

func (r *report) html() ([]byte, error) {
	plots, err := r.pictures()
	if err != nil {
		return nil, err
	}
	data := struct {
		*report
		Titles []string
		Cells  [][]cell
		Plots  []picture.Picture
		Usage  []gpuinit.Usage
	}{report: r, Plots: plots, Usage: r.gpuUsage}
	for _, c := range r.columns() {
		data.Titles = append(data.Titles, c.title)
	}
	for i := range r.Rows {
		var row []cell
		for _, c := range r.columns() {
			raw, text := c.of(&r.Rows[i])
			row = append(row, cell{raw, text})
		}
		data.Cells = append(data.Cells, row)
	}
	var b strings.Builder
	if err := page.Execute(&b, data); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// pictures are the plots: memory and speed by batch size.
func (r *report) pictures() (all []picture.Picture, err error) {
	add := func(p picture.Picture, e error) {
		all, err = append(all, p), cmp.Or(err, e)
	}
	if rows := r.rows(backend.CPU); len(rows) > 0 {
		add(memoryPlot("RAM", rows, r.CPUFit, func(m *measured) int64 { return m.RAMPeak }))
		add(speedPlot("CPU", rows))
	}
	if rows := r.rows(backend.CUDA); len(rows) > 0 {
		if r.GPUFit != nil {
			add(memoryPlot("GPU memory", rows, r.GPUFit, func(m *measured) int64 { return m.GPUPeak }))
		}
		add(speedPlot("GPU", rows))
	}
	return all, err
}

func memoryPlot(what string, rows []measured, f *fit, memory func(*measured) int64) (picture.Picture, error) {
	unit, name := float64(1<<30), "GiB"
	if most := slices.MaxFunc(rows, func(a, b measured) int { return cmp.Compare(memory(&a), memory(&b)) }); float64(memory(&most)) < unit {
		unit, name = 1<<20, "MiB"
	}
	p := picture.New("samples in a batch", what+", "+name)
	var points plotter.XYs
	for i := range rows {
		points = append(points, plotter.XY{X: float64(rows[i].BatchSize), Y: float64(memory(&rows[i])) / unit})
	}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return picture.Picture{}, err
	}
	dots.Color, dots.Shape, dots.Radius = picture.Blue, draw.CircleGlyph{}, 3
	p.Add(dots)
	p.Legend.Add("measured", dots)
	caption := what + " by batch size, most in use"
	if f.Refused == "" {
		at := func(x float64) plotter.XY { return plotter.XY{X: x, Y: (f.Intercept + f.Slope*x) / unit} }
		line, err := plotter.NewLine(plotter.XYs{at(points[0].X), at(points[len(points)-1].X)})
		if err != nil {
			return picture.Picture{}, err
		}
		line.Color, line.Width = picture.Orange, 1.5
		p.Add(line)
		p.Legend.Add("fit", line)
	} else {
		caption += "; no line fits"
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1.35*p.Y.Max // room for the legend
	return picture.Render(p, picture.Width, picture.Height, caption+"; the table has the numbers", caption)
}

func speedPlot(what string, rows []measured) (picture.Picture, error) {
	p := picture.New("samples in a batch", what+", thousand lines/s")
	data := struct {
		plotter.XYs
		plotter.YErrors
	}{}
	for _, m := range rows {
		data.XYs = append(data.XYs, plotter.XY{X: float64(m.BatchSize), Y: m.PerSecond / 1e3})
		data.YErrors = append(data.YErrors, struct{ Low, High float64 }{(m.PerSecond - m.Slowest) / 1e3, (m.Fastest - m.PerSecond) / 1e3})
	}
	line, dots, err := plotter.NewLinePoints(data.XYs)
	if err != nil {
		return picture.Picture{}, err
	}
	line.Color, line.Width = picture.Green, 1.5
	dots.Color, dots.Shape, dots.Radius = picture.Green, draw.CircleGlyph{}, 3
	bars, err := plotter.NewYErrorBars(data)
	if err != nil {
		return picture.Picture{}, err
	}
	bars.Color = picture.Grey
	p.Add(line, bars, dots)
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1.1*p.Y.Max
	caption := what + ": thousand lines a second by batch size, median, slowest and fastest round"
	return picture.Render(p, picture.Width, picture.Height, caption+"; the table has the numbers", caption)
}
