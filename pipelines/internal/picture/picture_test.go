package picture

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// A font that is wider than the one reckoned with, as browsers take where they
// have no Liberation Sans, runs into no other text, no sample and no edge.
func TestRenderLeavesRoom(t *testing.T) {
	p := New("samples", "MiB")
	line, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: 300, Y: 1}})
	if err != nil {
		t.Fatal(err)
	}
	p.Add(line)
	p.Legend.Add("measured", line)
	p.Legend.Add("fit", line)
	pic, err := Render(p, Width, Height, "", "")
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(pic.Source), ",")
	svg, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	type at struct{ x, y float64 }
	texts := map[string]at{}
	for _, m := range regexp.MustCompile(`<text x="([0-9.-]+)" y="([0-9.-]+)"[^>]*style="([^"]*)">([^<]*)<`).FindAllStringSubmatch(string(svg), -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		y, _ := strconv.ParseFloat(m[2], 64)
		texts[m[4]] = at{x, y}
		if !strings.Contains(m[3], ",sans-serif;") {
			t.Errorf("%q has no other font: %s", m[4], m[3])
		}
	}
	measured, fit, last := texts["measured"], texts["fit"], texts["300"]
	const wide = 7 // points of a figure, in a font of 10
	if measured == (at{}) || measured.x != fit.x {
		t.Errorf("the legend's texts begin at %v and %v, want one place, right of the samples", measured, fit)
	}
	if fit.y-measured.y < 10 {
		t.Errorf("the legend's lines are %g apart, want a font's height", fit.y-measured.y)
	}
	if last.x == 0 || last.x+3*wide > float64(Width) {
		t.Errorf("300 begins at %g of %g", last.x, float64(Width))
	}
}

func TestWholeTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{{0, 3, "0 1 2 3"}, {1, 3, "1 2 3"}, {1, 10, "2 4 6 8 10"}, {0, 12, "0 5 10"}} {
		var got []string
		for _, tick := range WholeTicks(c.low, c.high) {
			got = append(got, tick.Label)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("from %g to %g: %q, want %s", c.low, c.high, got, c.want)
		}
	}
}

// A tick's label is its number, however narrow the range.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []string
	}{
		{0, 1, []string{"0.0", "0.5", "1.0"}},
		{1.087, 1.215, []string{"1.1", "1.15", "1.2"}},
		{0, 123456789, []string{"0", "4e+07", "8e+07", "1.2e+08"}},
	} {
		var got []string
		for _, tick := range ticks(c.low, c.high) {
			if !tick.IsMinor() {
				got = append(got, tick.Label)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%g to %g: got %q, want %q", c.low, c.high, got, c.want)
		}
	}
}
