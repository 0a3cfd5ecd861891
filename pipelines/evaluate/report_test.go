package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/html"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/picture"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// testdata is the repository's, for scripts that run elsewhere.
func testdata(env *testscript.Env) error {
	dir, err := filepath.Abs("../../testdata")
	env.Setenv("TESTDATA", dir)
	return err
}

// golden compares the figures of a report with scikit-learn's.
func golden(ts *testscript.TestScript, neg bool, args []string) {
	var all map[string]json.RawMessage
	data, err := os.ReadFile(filepath.Join(ts.Getenv("TESTDATA"), "goldens/eval/figures.json"))
	ts.Check(err)
	ts.Check(json.Unmarshal(data, &all))
	var want map[string]any
	ts.Check(json.Unmarshal(all[args[0]], &want))
	var got map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &got))

	number := func(figures any, key string) float64 {
		n, ok := figures.(map[string]any)[key].(float64)
		if !ok {
			ts.Fatalf("%s is missing", key)
		}
		return n
	}
	same := func(where string, got, want any, keys ...string) {
		for _, key := range keys {
			if g, w := number(got, key), number(want, key); !(math.Abs(g-w) <= 1e-9) {
				ts.Fatalf("%s: %s is %.12f, want %.12f", where, key, g, w)
			}
		}
	}
	// byClass are the entries of a list of classes that have anything.
	byClass := func(list any) map[string]any {
		classes := map[string]any{}
		for _, c := range list.([]any) {
			if number(c, "gold")+number(c, "predicted") > 0 {
				classes[c.(map[string]any)["class"].(string)] = c
			}
		}
		return classes
	}
	averages := []string{"lines", "accuracy", "macro_precision", "macro_recall", "macro_f1", "micro_precision", "micro_recall", "micro_f1"}
	compared := 0
	for gotKey, wantKey := range map[string]string{"report": "lines", "characters": "characters"} {
		g, w := got[gotKey].(map[string]any), want[wantKey].(map[string]any)
		same(gotKey, g, w, averages...)
		var names []string
		for _, c := range g["classes"].([]any) {
			names = append(names, c.(map[string]any)["class"].(string))
		}
		classes, wantClasses := byClass(g["classes"]), w["classes"].(map[string]any)
		if len(classes) != len(wantClasses) {
			ts.Fatalf("%s: %d classes, want %d", gotKey, len(classes), len(wantClasses))
		}
		for name, wc := range wantClasses {
			same(gotKey+": "+name, classes[name], wc, "precision", "recall", "f1", "gold")
			row := g["confusion"].([]any)[slices.Index(names, name)].([]any)
			for other, n := range wc.(map[string]any)["confusion"].(map[string]any) {
				if got := row[slices.Index(names, other)]; got != n {
					ts.Fatalf("%s: %s for %s is %v, want %v", gotKey, other, name, got, n)
				}
				compared++
			}
		}
	}
	gs, ws := got["spans"].(map[string]any), want["spans"].(map[string]any)
	same("spans", gs, ws, "gold", "predicted")
	for _, way := range []string{"exact", "overlap"} {
		g, w := gs[way].(map[string]any), ws[way].(map[string]any)
		same("spans: "+way, g, w, "macro_f1", "micro_precision", "micro_recall", "micro_f1")
		classes := byClass(g["classes"])
		for name, wc := range w["classes"].(map[string]any) {
			same("spans: "+way+": "+name, classes[name], wc, "precision", "recall", "f1", "gold", "predicted")
			compared++
		}
	}
	// All documents are among the worst 20.
	documents := want["documents"].(map[string]any)
	worst := got["worst_documents"].([]any)
	if len(worst) != len(documents) {
		ts.Fatalf("%d documents, want %d", len(worst), len(documents))
	}
	last := -1.0
	for _, d := range worst {
		name := d.(map[string]any)["document"].(string)
		same(name, d, documents[name+".ann"], "lines", "accuracy", "macro_f1")
		if f := number(d, "macro_f1"); f < last {
			ts.Fatalf("%s is not among the worst in order", name)
		} else {
			last = f
		}
	}
	if compared == 0 {
		ts.Fatalf("nothing was compared")
	}
	// What the command printed is that, too, with the report's intervals.
	said := strings.Join(strings.Fields(ts.ReadFile("stdout")), " ")
	lines, characters := want["lines"], want["characters"]
	exact, overlap := ws["exact"], ws["overlap"]
	intervals := got["intervals_95"].(map[string]any)
	acc, f1 := intervals["accuracy"], intervals["macro_f1"]
	if !(number(acc, "low") < number(acc, "high") && number(f1, "low") < number(f1, "high")) {
		ts.Fatalf("intervals %v", intervals)
	}
	for _, line := range []string{
		fmt.Sprintf("macro %.4f %.4f %.4f ", number(lines, "macro_precision"), number(lines, "macro_recall"), number(lines, "macro_f1")),
		fmt.Sprintf("micro %.4f %.4f %.4f ", number(lines, "micro_precision"), number(lines, "micro_recall"), number(lines, "micro_f1")),
		fmt.Sprintf("accuracy %.3f to %.3f, macro-F1 %.3f to %.3f", number(acc, "low"), number(acc, "high"), number(f1, "low"), number(f1, "high")),
		fmt.Sprintf("F1 of spans %.4f exact, %.4f overlap; macro-F1 of characters %.4f", number(exact, "micro_f1"), number(overlap, "micro_f1"), number(characters, "macro_f1")),
	} {
		if !strings.Contains(said, line) {
			ts.Fatalf("%q is not printed", line)
		}
	}
}

// alike wants two reports that differ in time alone.
func alike(ts *testscript.TestScript, neg bool, args []string) {
	var reports [2]map[string]any
	for i := range reports {
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[i])), &reports[i]))
		delete(reports[i], "seconds")
	}
	if same := reflect.DeepEqual(reports[0], reports[1]); same == neg {
		ts.Fatalf("%s and %s are alike: %t", args[0], args[1], same)
	}
}

// wellFormed wants a page that an HTML parser reads as it is written, that
// runs nothing and loads nothing.
func wellFormed(ts *testscript.TestScript, neg bool, args []string) {
	page := ts.ReadFile(args[0])
	tokens := html.NewTokenizer(strings.NewReader(page))
	var open []string
	seen := map[string]int{}
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			break
		}
		t := tokens.Token()
		switch kind {
		case html.StartTagToken:
			seen[t.Data]++
			if slices.Contains([]string{"script", "iframe", "object", "embed", "link", "base", "form", "svg"}, t.Data) {
				ts.Fatalf("%s has <%s>", args[0], t.Data)
			}
			for _, a := range t.Attr {
				switch {
				case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "href":
					ts.Fatalf("%s: <%s> has %s", args[0], t.Data, a.Key)
				case a.Key == "src" && !strings.HasPrefix(a.Val, "data:image/svg+xml;base64,"):
					ts.Fatalf("%s loads %s", args[0], a.Val)
				}
			}
			if !slices.Contains([]string{"meta", "br", "img"}, t.Data) {
				open = append(open, t.Data)
			}
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != t.Data {
				ts.Fatalf("%s: </%s> closes %v", args[0], t.Data, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 || seen["table"] < 5 || seen["img"] < 2 || seen["style"] != 1 {
		ts.Fatalf("%s: open at the end: %v; elements %v", args[0], open, seen)
	}
}

// svgOf is the SVG that a page holds.
func svgOf(t *testing.T, pic picture.Picture) []byte {
	t.Helper()
	_, data, _ := strings.Cut(string(pic.Source), ",")
	svg, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	return svg
}

// The names of many labels begin at the axis and lead away from the bars, so that
// none stands on them in a font that is wider than the one reckoned with.
func TestNamesLeaveTheBars(t *testing.T) {
	r := &report{Report: &eval.Report{}}
	for _, name := range []string{"Key", "Title", "Figure", "Abstract", "Habitat-distribution"} {
		r.Report.Classes = append(r.Report.Classes, eval.Class{Class: name, Gold: 1})
	}
	pic, err := scoresPlot(r)
	if err != nil {
		t.Fatal(err)
	}
	svg := svgOf(t, pic)
	begins := map[string]bool{}
	names := regexp.MustCompile(`rotate\((.*?)\)">\s*<text x="(.*?)" y="(.*?)"`).FindAllSubmatch(svg, -1)
	for _, m := range names {
		var v [3]float64
		for i := range v {
			v[i], _ = strconv.ParseFloat(string(m[i+1]), 64)
		}
		sin, cos := math.Sincos(v[0] * math.Pi / 180)
		begins[fmt.Sprintf("%.0f", v[1]*sin-v[2]*cos)] = true // points above the bottom
	}
	if len(names) != 5 || len(begins) != 1 {
		t.Errorf("%d names begin at the heights %v, want 5 at one", len(names), begins)
	}
}

// However long the names of labels are, they stand apart, and the bars keep their height.
func TestLongNames(t *testing.T) {
	for _, c := range []struct {
		names string
		hang  bool
	}{
		{"Nomenclature Description Misc-exposition", false},
		{"Key Title Figure Table", false},
		{"Acknowledgements Description Habitat-distribution Materials-methods", true},
		{"Key Distribution-and-ecology-of-specimens-examined-here", true},
		{"Key Title Figure Table Author Distribution-and-ecology-of-specimens-examined-here", true},
	} {
		r := &report{Report: &eval.Report{}}
		for _, name := range strings.Fields(c.names) {
			r.Report.Classes = append(r.Report.Classes, eval.Class{Class: name, Gold: 1, Precision: 1, Recall: 1, F1: 1})
		}
		pic, err := scoresPlot(r)
		if err != nil {
			t.Fatal(err)
		}
		svg := svgOf(t, pic)
		if hang := strings.Contains(string(svg), "rotate("); hang != c.hang {
			t.Errorf("%s: they hang: %t, want %t", c.names, hang, c.hang)
		}
		low, high := math.Inf(1), math.Inf(-1) // of the bars of precision, points
		for _, m := range regexp.MustCompile(`(?s)<path d="([^"]*)"\s*style="fill:#2F6FB5`).FindAllSubmatch(svg, -1) {
			for _, xy := range regexp.MustCompile(`[ML]([0-9.-]+),([0-9.-]+)`).FindAllSubmatch(m[1], -1) {
				y, _ := strconv.ParseFloat(string(xy[2]), 64)
				low, high = min(low, y), max(high, y)
			}
		}
		if high-low < 80 {
			t.Errorf("%s: a bar of 1 has %.0f points, want 80 or more", c.names, high-low)
		}
	}
}

// each are documents of some accuracies.
func each(accuracies ...float64) (documents []counted) {
	for _, a := range accuracies {
		documents = append(documents, counted{document: document{Accuracy: a}})
	}
	return documents
}

// TestPlots reads the plots' figures back from what is drawn, by the lengths of the axes.
func TestPlots(t *testing.T) {
	r := &report{
		Report: &eval.Report{Classes: []eval.Class{
			{Class: "A", Gold: 1, Precision: .2, Recall: .4, F1: .8}, {Class: "none"}, {Class: "B", Predicted: 1, Precision: .6, Recall: .5, F1: .1},
		}},
		details: &details{
			Each: each(0, .07, .5, 1, 1, 1),
			Calibration: &eval.CalibrationReport{Lines: 10, Bins: []eval.CalibrationBin{
				{From: 0, To: .5}, {From: .5, To: .75, Lines: 2, Probability: .6, Accuracy: .5}, {From: .75, To: 1, Lines: 8, Probability: .9, Accuracy: 1},
			}},
		},
	}
	pics, err := pictures(r)
	if err != nil || len(pics) != 3 {
		t.Fatalf("%d plots, %v", len(pics), err)
	}
	for i, c := range []struct {
		top    float64 // of the y axis
		styles string  // those that are looked at
		want   string  // the shapes, from left to right
	}{
		// The top edges of bars.
		{1.4, "fill:#2F6FB5 fill:#C96A14 fill:#3A8A4D", "0:0.2 1:0.4 2:0.8 0:0.6 1:0.5 2:0.1"},
		// The corners of the shares, and the points of the line.
		{1, "fill:#7F7F7F;fill-opacity:0.37647 fill:none;stroke:#2F6FB5;stroke-width:1.5",
			"0:0,0,0,0,0.5,0,0.5,0,0.5,0,0.5,0.2,0.75,0.2,0.75,0,0.75,0,0.75,0.8,1,0.8,1,0 1:0.6,0.5,0.9,1"},
		// The corners of bars.
		{3, "fill:#2F6FB5", "0:0,0,0.05,0,0.05,1,0,1 0:0.05,0,0.1,0,0.1,1,0.05,1 0:0.5,0,0.55,0,0.55,1,0.5,1 0:0.95,0,1,0,1,3,0.95,3"},
	} {
		svg := svgOf(t, pics[i])
		type shape struct {
			style  int
			points []float64 // x, y, x, y, …
		}
		var shapes []shape
		left, bottom, width, height := 0., 0., 0., 0. // of the axes
		for _, m := range regexp.MustCompile(`<path d="([^"A]*)" style="([^ ]*)"`).FindAllSubmatch(svg, -1) {
			s := shape{style: slices.Index(strings.Fields(c.styles), string(m[2]))}
			for _, n := range regexp.MustCompile(`[0-9.]+`).FindAllString(string(m[1]), -1) {
				v, _ := strconv.ParseFloat(n, 64)
				s.points = append(s.points, v)
			}
			if q := s.points; strings.Contains(string(m[2]), "stroke:#000000") && len(q) == 4 {
				if q[2]-q[0] > width {
					left, width = q[0], q[2]-q[0]
				}
				if q[3]-q[1] > height {
					bottom, height = q[1], q[3]-q[1]
				}
			}
			if s.style >= 0 {
				shapes = append(shapes, s)
			}
		}
		slices.SortStableFunc(shapes, func(a, b shape) int {
			return cmp.Or(cmp.Compare(a.points[0], b.points[0]), cmp.Compare(b.style, a.style))
		})
		var got []string
		for _, s := range shapes {
			var corners []string
			top, low := 0., math.Inf(1)
			for k := 0; k < len(s.points); k += 2 {
				x, y := (s.points[k]-left)/width, (s.points[k+1]-bottom)/height*c.top
				top, low = max(top, y), min(low, y)
				corners = append(corners, fmt.Sprintf("%.3g,%.3g", math.Abs(x), math.Abs(y)))
			}
			switch {
			case top < .01 || low > .8*c.top: // a bar without height; a sample of the legend
			case i == 0:
				got = append(got, fmt.Sprintf("%d:%.2g", s.style, top))
			default:
				got = append(got, fmt.Sprintf("%d:%s", s.style, strings.Join(corners, ",")))
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: drawn\n%s\nwant\n%s", pics[i].Caption, got, c.want)
		}
	}
	r.Each = r.Each[:1]
	if pics, err = pictures(r); err != nil || len(pics) != 2 {
		t.Errorf("of one document: %d plots, %v", len(pics), err)
	}
}

// Gold and predicted labels of characters come in pieces that differ.
func TestAlign(t *testing.T) {
	got := ""
	align([]stretch{{"a", 3}, {"", 1}, {"b", 2}}, []stretch{{"x", 2}, {"y", 4}}, func(a, b string, n int) {
		got += fmt.Sprintf("%s/%s %d, ", a, b, n)
	})
	if want := "a/x 2, a/y 1, /y 1, b/y 2, "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInk(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"[@a b#A*] c", "[{A 2} { 1}]"},
		{"x[@y[@z#B*]é#A*]", "[{ 1} {A 1} {B 1} {A 1}]"},
		{"\n[@one\n\ntwo#A*]\n", "[{A 3}] [{A 3}]"},
		{"[@\xff\xfe ﬁ#A*]", "[{A 3}]"},
		{"[@a\x1c\x1fb#A*]\x1ec", "[{A 2} { 1}]"},
	} {
		d := yedda.Parse([]byte(c.src))
		var got []string
		for _, ink := range inkOf(d, yedda.Inked(d.Text, yedda.Rows(d.Text))) {
			got = append(got, fmt.Sprint(ink))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %v, want %s", c.src, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("é", contextSize)
	if got, want := cut([]byte(long+"\r")), strings.Repeat("é", contextSize/2)+"…"; got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
	if got, want := cut([]byte("a"+long)), "a"+strings.Repeat("é", contextSize/2-1)+"…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := cut([]byte("a\x00\x1b[31m\xff\r")), "a  [31m\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInkOfLine(t *testing.T) {
	if got, want := fmt.Sprint(inkOfLine([]byte(" é\tb\u00a0\x1d\xff\r"), "A")), "[{A 3}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// manyWrong is a document of n lines that are all wrong, line i with the
// probability (i·37 mod n)/n.
func manyWrong(name string, n int, probabilities bool) *part {
	src := []byte(strings.Repeat("text\n", n))
	j := judged{doc: &transforms.Document{Name: []byte(name), Text: src, Spans: []yedda.Span{{Start: 0, End: len(src), Label: "A"}}}}
	j.lines = yedda.Rows(src)
	for i := range j.lines {
		j.gold, j.predicted = append(j.gold, "A"), append(j.predicted, "B")
		j.ink = append(j.ink, inkOfLine([]byte("text"), "B"))
		if probabilities {
			j.probs = append(j.probs, float64(i*37%n)/float64(n))
		}
	}
	itself := func(label string) string { return label }
	return j.part(itself, itself)
}

// A part, and the report, keep the lines most confidently wrong, and a bounded
// number; where no probability is known, some of each document.
func TestWrongLines(t *testing.T) {
	const n = 200
	p := manyWrong("a", n, true)
	if len(p.Wrong) != keptWrong || p.Wrong[0].Probability != float64(n-1)/n || p.Wrong[1].Probability != float64(n-2)/n {
		t.Fatalf("got %d lines, first %+v", len(p.Wrong), p.Wrong[0])
	}
	if w := p.Wrong[0]; (w.Line-1)*37%n != n-1 || len(w.Lines) != 2*neighbours+1 || w.Lines[neighbours].Line != w.Line {
		t.Errorf("neighbours: got %+v", w)
	}
	m := newMerger([]string{"A", "B"})
	for i := range 30 {
		m.add(manyWrong(fmt.Sprint("d", i), n, false))
	}
	d := m.details()
	documents := map[string]int{}
	for _, w := range d.Wrong {
		documents[w.Document]++
	}
	if len(d.Wrong) != keptWrong || len(documents) != 30 {
		t.Errorf("got %d lines of %d documents, want %d of 30", len(d.Wrong), len(documents), keptWrong)
	}
	if len(d.Worst) != worstDocuments || d.Calibration != nil || d.Characters.Lines != 30*n*4 || d.Intervals.Accuracy.High != 0 {
		t.Errorf("got %+v", d)
	}
	m.add(manyWrong("sure", n, true))
	if d = m.details(); d.Wrong[0].Document != "sure" || d.Calibration.Lines != n-1 {
		t.Errorf("got %+v of %+v", d.Wrong[0], d.Calibration)
	}
}

// TestOrderOfParts merges parts in both orders. Each has a class of its own that the
// lines with gold do not have, as labels of another program's on lines without.
func TestOrderOfParts(t *testing.T) {
	var parts []*part
	for _, own := range []string{"X", "Y"} {
		text := []byte("one\ntwo\nthree\n")
		j := judged{
			doc:   &transforms.Document{Name: []byte(own), Text: text, Spans: []yedda.Span{{Start: 0, End: 3, Label: "A"}, {Start: 8, End: 9, Label: own + "z"}}},
			lines: yedda.Rows(text), gold: []string{"A", "", "A"}, predicted: []string{"A", own, ""},
		}
		j.ink = [][]stretch{{{"A", 3}}, {{own, 3}}, {{own + "p", 5}}}
		same := func(label string) string { return label }
		parts = append(parts, j.part(same, same))
	}
	var reports []string
	for range 2 {
		m := newMerger([]string{"B", "A"})
		for _, p := range parts {
			m.add(p)
		}
		data, err := json.Marshal(m.details())
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, string(data))
		slices.Reverse(parts)
	}
	if reports[0] != reports[1] {
		t.Errorf("in one order\n%s\nin the other\n%s", reports[0], reports[1])
	}
	if !strings.Contains(reports[0], `"class":"Xz"`) || !strings.Contains(reports[0], `"class":"Y"`) {
		t.Errorf("classes are missing: %s", reports[0])
	}
	if n := strings.Count(reports[0], `"document":`); n != 2*len(parts) { // of one line that is right and one without a label each: none is told as wrong
		t.Errorf("%d documents in both lists, want %d in each: %s", n, len(parts), reports[0])
	}
}

// TestOrderOfNames merges parts of documents whose names are one in UTF-8, in both
// orders: the same figures are drawn for the intervals.
func TestOrderOfNames(t *testing.T) {
	var reports [2]*details
	for i := range reports {
		parts := []*part{manyWrong("M\xf6ller", 3, false), manyWrong("M\xfcller", 30, false)}
		parts[0].Lines = append(parts[0].Lines, pair{"A", "A", 5})
		if i == 1 {
			slices.Reverse(parts)
		}
		m := newMerger([]string{"A", "B"})
		for _, p := range parts {
			m.add(p)
		}
		reports[i] = m.details()
		for _, w := range reports[i].Wrong {
			if w.Document != "M\ufffdller" {
				t.Fatalf("the name is %q", w.Document)
			}
		}
	}
	if !reflect.DeepEqual(reports[0], reports[1]) {
		t.Errorf("in one order\n%+v\nin the other\n%+v", reports[0], reports[1])
	}
}

// TestModelPart judges what a model said of five lines, of which it was not given the
// second, that nobody can read; the last one has no gold and counts nowhere.
func TestModelPart(t *testing.T) {
	src := []byte("one\n\xff\ntwo two\nthree\nfour\n")
	l := transforms.Labelled{
		Document: transforms.Document{
			Name: []byte("a.txt"), Text: src, Rows: yedda.Rows(src),
			Spans: []yedda.Span{{Start: 0, End: 5, Label: "A"}, {Start: 6, End: 20, Label: "B"}},
		},
		Classes: []string{"A", "B"}, Labels: []uint16{0, 0, 1, 0}, Probs: []float32{.875, .125, .75, .25, .375, .625, 1, 0}, Other: "A",
	}
	f := &scoreFn{Run: t.Name(), Config: model.DefaultConfig(), LabelSet: model.Full, Parts: transforms.Path(t.TempDir())}
	if err := f.ProcessElement(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	err := readParts(t.Context(), string(f.Parts), func(p *part) {
		if got, want := fmt.Sprint(p.Lines, p.Characters), "[{A A 2} {B A 1} {B B 1}] [{A A 4} {B A 6} {B B 5}]"; got != want {
			t.Errorf("lines and characters: got %s, want %s", got, want)
		}
		if c := p.Calibration.Report(); c.Lines != 3 || c.Probability != .75 || math.Abs(c.Accuracy-2./3) > 1e-9 {
			t.Errorf("calibration: got %+v", c)
		}
		if got, want := fmt.Sprint(p.Wrong), "[{a.txt 3 B A 0.75 [{1 one A A} {2 \uFFFD A A} {3 two two B A} {4 three B B} {5 four  A}] 0 []}]"; got != want {
			t.Errorf("wrong lines: got %s, want %s", got, want)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFirstReason has the reason of another process among its counters.
func TestFirstReason(t *testing.T) {
	counters := map[string]int64{"judged": 1, nameCounter(pairPrefix, [2]string{"A", "B"}): 2, "rejected": 3}
	if got := firstReason(t.Name(), counters); got != "what the workers' log says" {
		t.Errorf("got %q of no reason", got)
	}
	counters[reasonCounter+"x: no"] = 1
	if got := firstReason(t.Name(), counters); got != "x: no" {
		t.Errorf("got %q, want x: no", got)
	}
}

// Parts that workers left on disks of their own are missed, not passed over.
func TestMissingParts(t *testing.T) {
	ctx, o := t.Context(), &options{report: t.TempDir()}
	folder := partsFolder(o.report, "run")
	if err := beginParts(ctx, folder); err != nil {
		t.Fatal(err)
	}
	p := manyWrong("a", 3, true)
	for range 2 { // a retry
		if err := p.write(ctx, folder); err != nil {
			t.Fatal(err)
		}
	}
	lines := sums{{"A", "B"}: 3}
	r := &report{Documents: 2, Report: lines.counts(nil).Report()}
	err := o.writeReport(ctx, folder, r)
	if err == nil || !strings.Contains(err.Error(), "1 of 2 documents") {
		t.Errorf("got %v", err)
	}
	r.Documents = 1
	if err := o.writeReport(ctx, folder, r); err != nil {
		t.Error(err)
	}
	for _, foreign := range []string{`{"classes":["A"]}`, `{"classes":["A"],"spans":{}}`} {
		if err := os.WriteFile(filepath.Join(folder, "x.json"), []byte(foreign), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := o.writeReport(ctx, folder, r); err == nil || !strings.Contains(err.Error(), "x.json: it is no part") {
			t.Errorf("%s: got %v", foreign, err)
		}
	}
}

// A table that cannot be printed, here into a file that is only read, is an error.
func TestTellUntold(t *testing.T) {
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = closed
	r := &report{Documents: 1, Report: sums{{"Key", "Key"}: 1}.counts(nil).Report()}
	if err := new(options).tell(t.Context(), r, &scoreFn{}, nil); err == nil {
		t.Error("got no error")
	}
}

// Documents whose labels are none of the model's, which has no class for the rest, are
// not told to be without labels.
func TestTellOtherLabels(t *testing.T) {
	cfg := model.DefaultConfig()
	cfg.Classes, cfg.OtherClass = []string{"Shell", "Rest"}, ""
	bare := nameCounter(oddPrefix, [2]string{"", "b.txt"})
	for _, c := range []struct {
		bare int64 // documents without a label, of two
		want string
	}{
		{1, "no line has a label of the model's: Shell, Rest; name files that are annotated with them"},
		{2, "no line has a label; name files with YEDDA annotation (*.txt.ann)"},
	} {
		r := &report{Documents: 2, Report: sums{}.counts(nil).Report()}
		err := (&options{input: []string{"in"}}).tell(t.Context(), r, &scoreFn{Config: cfg}, map[string]int64{bare: c.bare})
		if want := "in: " + c.want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
