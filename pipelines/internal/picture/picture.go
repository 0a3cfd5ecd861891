// Package picture draws the plots of the pipelines' pages.
package picture

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture is a plot for the page: an SVG in a data URI, as which nothing in it
// can run, and its words for those who cannot see it.
type Picture struct {
	Source  template.URL
	Alt     string
	Caption string
}

// Colours that are told apart in both themes; in the dark one the page turns
// lightness around and keeps hues.
var (
	Blue   = color.NRGBA{0x2f, 0x6f, 0xb5, 0xff}
	Orange = color.NRGBA{0xc9, 0x6a, 0x14, 0xff}
	Green  = color.NRGBA{0x3a, 0x8a, 0x4d, 0xff}
	Grey   = color.NRGBA{0x80, 0x80, 0x80, 0xff}
)

// The size of most plots.
const (
	Width  = 11 * vg.Centimeter
	Height = 7.5 * vg.Centimeter
)

// New is an empty plot in the report's style, with the names of its axes and room
// for a legend at its top left, where a text that is wider than it was reckoned
// runs into nothing.
func New(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(ticks), plot.TickerFunc(ticks)
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	for _, style := range []*font.Font{&p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		*style = sans
	}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.Padding = true, true, 4, 3
	return p
}

// ticks are gonum's, with labels that say what they are: gonum calls 1.15 and 1.2
// both 1.2.
func ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range ticks {
		if v, err := strconv.ParseFloat(t.Label, 64); err == nil && math.Abs(v-t.Value) > 1e-9*math.Abs(t.Value) {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 6, 64)
		}
	}
	return ticks
}

// WholeTicks are a few ticks at whole numbers.
func WholeTicks(low, high float64) []plot.Tick {
	step := 1.0
	for i := 0; high-low > 5*step; i++ {
		step *= []float64{2, 2.5, 2}[i%3] // 1, 2, 5, 10, …
	}
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.0f", v)})
	}
	return ticks
}

// Inside is c less what the labels of axes stick out by.
func Inside(c draw.Canvas) draw.Canvas { return draw.Crop(c, 6, -14, 2, -6) }

// SVG is what was drawn. Where there is no Liberation Sans fonts of its widths take its place.
func SVG(canvas *vgsvg.Canvas) ([]byte, error) {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	const family = "font-family:Liberation Sans"
	return bytes.ReplaceAll(b.Bytes(), []byte(family+";"), []byte(family+",Arimo,Arial,Helvetica,sans-serif;")), nil
}

// Render draws p.
func Render(p *plot.Plot, width, height vg.Length, alt, caption string) (Picture, error) {
	canvas := vgsvg.New(width, height)
	p.Draw(Inside(draw.New(canvas)))
	svg, err := SVG(canvas)
	if err != nil {
		return Picture{}, err
	}
	source := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg)
	return Picture{template.URL(source), alt, caption}, nil //nolint:gosec // made here
}
