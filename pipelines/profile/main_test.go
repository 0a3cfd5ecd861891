package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/html"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"profile": main}) }

func TestScripts(t *testing.T) {
	setup := func(env *testscript.Env) error {
		sample, err := filepath.Abs(filepath.Join("..", "..", "testdata", "sample"))
		env.Setenv("SAMPLE", sample)
		return err
	}
	clitest.Scripts(t, "profiling ", setup, map[string]clitest.Command{"agree": agree})
}

// agree holds profile.json and profile.html of a folder to profile.tsv, which
// has a row for each batch size: agree FOLDER 50 300.
func agree(ts *testscript.TestScript, _ bool, args []string) {
	var table [][]string
	for line := range strings.Lines(ts.ReadFile(filepath.Join(args[0], "profile.tsv"))) {
		table = append(table, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	names, rows := table[0], table[1:]
	var sizes []string
	for _, row := range rows {
		sizes = append(sizes, row[slices.Index(names, "batch_size")])
	}
	if !slices.Equal(sizes, args[1:]) {
		ts.Fatalf("batch sizes %q, want %q", sizes, args[1:])
	}
	var r struct{ Rows []map[string]any }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(filepath.Join(args[0], "profile.json"))), &r))
	if len(r.Rows) != len(rows) {
		ts.Fatalf("%d rows in JSON, %d in TSV", len(r.Rows), len(rows))
	}
	page, err := html.Parse(strings.NewReader(ts.ReadFile(filepath.Join(args[0], "profile.html"))))
	ts.Check(err)
	var cells []string
	for n := range page.Descendants() {
		if n.Type == html.ElementNode && n.Data == "data" {
			cells = append(cells, n.Attr[0].Val)
		}
	}
	if want := slices.Concat(rows...); !slices.Equal(cells, want) {
		ts.Fatalf("the page has %q, want %q", cells, want)
	}
	for i, row := range rows {
		for j, name := range names {
			switch v := r.Rows[i][name].(type) {
			case string:
				if v != row[j] {
					ts.Fatalf("%s is %s in JSON, %s in TSV", name, v, row[j])
				}
			case float64:
				if got, err := strconv.ParseFloat(row[j], 64); (err != nil || got != v) && row[j] != "N/A" {
					ts.Fatalf("%s is %v in JSON, %s in TSV", name, v, row[j])
				}
				if strings.Contains(name, "per_second") && v <= 0 {
					ts.Fatalf("%s is %v", name, v)
				}
			default:
				ts.Fatalf("%s is missing in JSON", name)
			}
		}
	}
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-4*max(1, math.Abs(want)) }

func TestFitLine(t *testing.T) {
	// Worked out by hand.
	const gb = 1e9
	f := fitLine([]float64{50, 300}, []float64{.6641 * gb, 5.7539 * gb}, 0)
	f.fits(30 * gb)
	if f.Refused != "" || !near(f.Slope, 20_359_200) || !near(f.Intercept, -353_860_000) || !near(f.SlopeGiB, .018961) || f.SlopeError != nil || f.LargestBatch != 1490 {
		t.Errorf("two points: %+v", f)
	}
	f = fitLine([]float64{0, 1, 2}, []float64{0, 1, 2.1}, 0)
	if f.Refused != "" || !near(f.Slope, 1.05) || !near(f.Intercept, -.0166667) || !near(*f.SlopeError*(1<<30), .0288675) || !near(f.R2, .999245) || !near(f.Worst, .015873) {
		t.Errorf("three points: %+v, error %g", f, *f.SlopeError*(1<<30))
	}
	refused := map[string]struct {
		x, y  []float64
		noise float64
		want  string
	}{
		"bent":      {[]float64{1, 2, 3}, []float64{1, 2, 4}, 0, "batch size 2 is 0.3333 B off, 11 % of their range (R² 0.964)"},
		"one size":  {[]float64{50}, []float64{1}, 0, "one batch size"},
		"noise":     {[]float64{1, 2}, []float64{100, 110}, 5, "10 B from the smallest to the largest batch, and by 5 B"},
		"falling":   {[]float64{1, 2}, []float64{110, 100}, 1, "does not grow"},
		"unchanged": {[]float64{1, 2}, []float64{7, 7}, 0, "differs by 0 B"},
	}
	for name, tc := range refused {
		f := fitLine(tc.x, tc.y, tc.noise)
		f.fits(1000)
		if !strings.Contains(f.Refused, tc.want) || f.LargestBatch != 0 {
			t.Errorf("%s: %+v, want %q", name, f, tc.want)
		}
	}
}

func TestPlan(t *testing.T) {
	// Worked out by hand: 0.36 an hour at 1,000 lines/s is 0.1 a million lines,
	// 1.8 at 10,000 is 0.05 and ten minutes before the first line.
	cpu, gpu := &worker{1000, .36, 0}, &worker{10_000, 1.8, 10 * time.Minute}
	if !near(cpu.perMillion(), .1) || !near(gpu.perMillion(), .05) {
		t.Errorf("%g and %g per million lines, want 0.1 and 0.05", cpu.perMillion(), gpu.perMillion())
	}
	p := newPlan(cpu, gpu, 72_000_000, 2)
	if !near(p.CPUHours, 10) || !near(p.CPUCost, 7.2) || !near(p.GPUHours, 7./6) || !near(p.GPUCost, 4.2) || p.Saving == nil || !near(*p.Saving, 3) {
		t.Errorf("%+v", p)
	}
	if p.CheaperFrom == nil || !near(float64(*p.CheaperFrom), 12_000_000) || p.SoonerFrom == nil || !near(float64(*p.SoonerFrom), 1_333_334) {
		t.Errorf("cheaper from %v, sooner from %v", p.CheaperFrom, p.SoonerFrom)
	}
	// There both cost the same.
	if at := newPlan(cpu, gpu, 12_000_000, 2); !near(at.CPUCost, at.GPUCost) {
		t.Errorf("at the break-even CPU %g, GPU %g", at.CPUCost, at.GPUCost)
	}
	if p := newPlan(cpu, &worker{2000, 1.8, 0}, 1, 1); p.CheaperFrom != nil || p.SoonerFrom == nil || *p.SoonerFrom != 0 {
		t.Errorf("a dear GPU: %+v", p)
	}
	// Of a cost that nobody gave nothing is known, and it is not 0.
	if p := newPlan(cpu, &worker{10_000, 0, 0}, 1, 1); p.Saving != nil || p.CheaperFrom != nil || p.SoonerFrom == nil {
		t.Errorf("a GPU without a cost: %+v", p)
	}
	// More lines than can be counted are never.
	if p := newPlan(cpu, &worker{1000 * (1 + 1e-15), .36, 3000 * time.Hour}, 1, 1000); p.SoonerFrom != nil {
		t.Errorf("a GPU that is hardly faster: sooner from %d", *p.SoonerFrom)
	}
	if p := newPlan(cpu, nil, 3_600_000, 1); !near(p.CPUHours, 1) || p.GPUHours != 0 || p.CheaperFrom != nil {
		t.Errorf("no GPU: %+v", p)
	}
}

// TestAdvise has what is said agree with the table, and nothing said of memory
// that the card does not tell.
func TestAdvise(t *testing.T) {
	r := &report{Rows: []measured{
		{Device: "cpu", BatchSize: 2, AtOnce: 2, RAMPeak: 1, PerSecond: 10.6},
		{Device: "cuda", BatchSize: 2, AtOnce: 2, RAMPeak: 1, GPUPeak: -1, PerSecond: 20.7},
	}}
	(&options{rounds: 1}).advise(r)
	all := strings.Join(r.Advice, "\n")
	for _, want := range []string{"CPU: fastest with batches of 2, 11 lines/s\n", "GPU: fastest with batches of 2, 21 lines/s in", "GPU memory: the driver does not tell it (NVML)"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing like %q in:\n%s", want, all)
		}
	}
	if strings.Contains(all, "RAM: with batches") || r.GPUFit != nil {
		t.Errorf("GPU memory that nobody told:\n%s", all)
	}
	three := &report{Rows: []measured{
		{Device: "cpu", BatchSize: 1000, AtOnce: 2, RAMPeak: 30_000_000, PerSecond: 1e6, Slowest: 1e5, Fastest: 1.6e6},
		{Device: "cpu", BatchSize: 2000, AtOnce: 2, RAMPeak: 60_000_000, PerSecond: 1153929, Slowest: 1153929, Fastest: 1153929},
		{Device: "cpu", BatchSize: 3000, AtOnce: 2, RAMPeak: 90_000_000, PerSecond: 1e6, Slowest: 1e6, Fastest: 1e6},
	}, Lines: 300}
	(&options{rounds: 3, cpuCost: .2}).advise(three)
	var table strings.Builder
	if err := three.table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CPU: fastest with batches of 2,000, 1,153,929 lines/s\n", "RAM: 29.3 KiB a sample (± 0 B, R² 1.0000), 2 batches at once\n", "CPU: 0.00004814 per million lines, scoring alone\n",
		"up to 150 % apart, too far to go by: give more documents than these 300 lines, or more --rounds\n", "  1,153,929  1,153,929  1,153,929  "} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("nothing like %q in:\n%s", want, &table)
		}
	}
	for x, want := range map[float64]string{0: "0", 6.371e-5: "0.00006371", 7.0 / 6: "1.167", -12345.6: "-12,346", 1e19: "10,000,000,000,000,000,000"} {
		if got := decimal(x); got != want {
			t.Errorf("decimal(%g) = %q, want %q", x, got, want)
		}
	}
	if _, text := bytesColumn(func(m *measured) int64 { return m.GPUPeak })(&r.Rows[1]); text != "N/A" {
		t.Errorf("memory that the card does not tell is %s, want N/A", text)
	}
}

// TestColumns wants four figures of a batch that takes little, as on a GPU, and nothing
// of one that did not fit but what it began with.
func TestColumns(t *testing.T) {
	r := &report{GPU: "GPU 0", Rows: []measured{
		{Device: "cpu", BatchSize: 2, BatchSeconds: 13.2699e-6, PerSecond: 5},
		{Device: "cuda", BatchSize: 4, AtOnce: 3, GPUBefore: 0, GPUModel: 8, RAMBefore: 9, RAMModel: 10, GPUBusy: -1, Failed: "out of memory"},
	}}
	var table strings.Builder
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), " 0.01327 ms ") {
		t.Errorf("no 0.01327 ms in:\n%s", &table)
	}
	rows := strings.Split(string(r.tsv()), "\n")
	if want := "cuda 4 3 0 8 N/A N/A 9 10" + strings.Repeat(" N/A", 13); strings.Join(strings.Split(rows[2], "\t"), " ") != want {
		t.Errorf("a batch that did not fit: %q, want %q", rows[2], want)
	}
}

// TestCut has every window once, full batches, and the beginning again at the
// end.
func TestCut(t *testing.T) {
	doc := func(n int) *model.Batch {
		b := new(model.Batch)
		for i := range n {
			b.Windows = append(b.Windows, model.ContextWindow{First: 2 * i, Len: 2})
		}
		return b
	}
	docs := []*model.Batch{doc(3), doc(2)}
	for _, tc := range []struct {
		docs        []*model.Batch
		size, least int
		want        string // windows of each part of each batch
	}{
		{docs, 2, 1, "[2] [1 1] [1 1]"},
		{docs, 5, 2, "[3 2] [3 2]"},
		{docs, 7, 1, "[3 2 2]"},
		{docs[:1], 7, 1, "[3 3 1]"}, // a part that held a line twice would sum it once
	} {
		var got []string
		for _, b := range cut(tc.docs, tc.size, tc.least) {
			var parts []int
			steps := 0
			for _, p := range b.parts {
				parts = append(parts, len(p.Windows))
				for _, w := range p.Windows {
					steps += w.Len
				}
			}
			if steps != b.steps || steps != 2*tc.size {
				t.Errorf("%d steps, counted as %d, of %d windows of 2", steps, b.steps, tc.size)
			}
			got = append(got, fmt.Sprint(parts))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("cut(%d, %d) = %v, want %s", tc.size, tc.least, got, tc.want)
		}
	}
	if len(docs[0].Windows) != 3 {
		t.Error("cut changed a document")
	}
}

// TestStartup wants the reading of the weights, too, which may lie on gs://, in the
// time until a worker works.
func TestStartup(t *testing.T) {
	w, err := bundled.Weights()
	if err != nil {
		t.Fatal(err)
	}
	r := &report{reading: time.Hour}
	if err := new(options).measure(t.Context(), r, backend.CPU, w, nil); err != nil {
		t.Fatal(err)
	}
	if r.CPUStartup <= time.Hour.Seconds() {
		t.Errorf("start-up of %g s, of them an hour for reading", r.CPUStartup)
	}
}

// TestPeak wants a peak that is over when the sampling stops.
func TestPeak(t *testing.T) {
	values := []int64{1, 2, 9, 3}
	at := 0
	seen := make(chan struct{})
	stop := peakOf(func() int64 {
		v := values[min(at, len(values)-1)]
		if at++; at == len(values) {
			close(seen)
		}
		return v
	}, time.Microsecond)
	<-seen
	if got := stop(); got != 9 {
		t.Errorf("peak %d, want 9", got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 30e9: "27.94 GiB", 1 << 20: "1 MiB", -2048: "-2 KiB"} {
		if got := bytes(n); got != want {
			t.Errorf("bytes(%g) = %q, want %q", n, got, want)
		}
	}
}
