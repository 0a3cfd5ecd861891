package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/pipelines/internal/picture"
)

// pictures are the plots of a report.
func pictures(r *report) ([]picture.Picture, error) {
	var all []picture.Picture
	for _, draw := range []func(*report) (picture.Picture, error){scoresPlot, calibrationPlot, documentsPlot} {
		p, err := draw(r)
		if err != nil {
			return nil, err
		}
		if p.Source != "" {
			all = append(all, p)
		}
	}
	return all, nil
}

// scoresPlot shows precision, recall and F1 of the classes.
func scoresPlot(r *report) (picture.Picture, error) {
	var names []string
	var values [3]plotter.Values
	for _, c := range r.Report.Classes {
		if c.Gold == 0 && c.Predicted == 0 {
			continue
		}
		names = append(names, c.Class)
		for i, v := range []float64{c.Precision, c.Recall, c.F1} {
			values[i] = append(values[i], v)
		}
	}
	if len(names) == 0 {
		return picture.Picture{}, nil
	}
	p := picture.New("", "")
	p.Y.Min, p.Y.Max = 0, 1
	// Many classes take more room.
	width, height := max(picture.Width, vg.Length(len(names))*1.1*vg.Centimeter), picture.Height
	bar := (width - 2*vg.Centimeter) / vg.Length(len(names)) / 4
	for i, name := range []string{"precision", "recall", "F1"} {
		bars, err := plotter.NewBarChart(values[i], bar)
		if err != nil {
			return picture.Picture{}, err
		}
		bars.Color = []color.Color{picture.Blue, picture.Orange, picture.Green}[i]
		bars.LineStyle.Width = 0
		bars.Offset = vg.Length(i-1) * bar
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	p.Y.Max = 1.4 // room for the legend
	p.Y.Tick.Marker = fifths
	p.NominalX(names...)
	longest := vg.Length(0)
	for _, name := range names {
		longest = max(longest, p.X.Tick.Label.Width(name))
	}
	if len(names) > 4 || longest > 3.6*bar { // a class has the room of four bars
		height += longest + longest/6
		// They hang from the axis, with room below: a wider font is longer there.
		p.X.Tick.Label.Rotation = -1.2
		p.X.Tick.Label.XAlign = draw.XLeft
		p.X.Tick.Label.YAlign = draw.YCenter
		p.X.Label.Text, p.X.Label.Padding = " ", longest/6
	}
	return picture.Render(p, width, height, "Bars of precision, recall and F1 of each label; the table has the numbers",
		"Precision, recall and F1 by label, of lines")
}

// fifths are the ticks of a share.
var fifths = plot.ConstantTicks{
	{Value: 0, Label: "0"}, {Value: .2, Label: "0.2"}, {Value: .4, Label: "0.4"},
	{Value: .6, Label: "0.6"}, {Value: .8, Label: "0.8"}, {Value: 1, Label: "1"},
}

// calibrationPlot shows how often labels of some probability are right.
func calibrationPlot(r *report) (picture.Picture, error) {
	if r.Calibration == nil || r.Calibration.Lines == 0 {
		return picture.Picture{}, nil
	}
	p := picture.New("probability of the label", "share that is right")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.X.Tick.Marker, p.Y.Tick.Marker = fifths, fifths
	even, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}})
	if err != nil {
		return picture.Picture{}, err
	}
	even.Color, even.Dashes = picture.Grey, []vg.Length{3, 3}
	var points, shares plotter.XYs
	for _, b := range r.Calibration.Bins {
		if b.Lines > 0 {
			points = append(points, plotter.XY{X: b.Probability, Y: b.Accuracy})
		}
		share := float64(b.Lines) / float64(r.Calibration.Lines)
		shares = append(shares, plotter.XY{X: b.From, Y: 0}, plotter.XY{X: b.From, Y: share},
			plotter.XY{X: b.To, Y: share}, plotter.XY{X: b.To, Y: 0})
	}
	bars, err := plotter.NewPolygon(shares)
	if err != nil {
		return picture.Picture{}, err
	}
	bars.Color, bars.LineStyle.Width = color.NRGBA{0x80, 0x80, 0x80, 0x60}, 0
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return picture.Picture{}, err
	}
	line.Color, line.Width = picture.Blue, 1.5
	dots.Color, dots.Shape, dots.Radius = picture.Blue, draw.CircleGlyph{}, 2.5
	p.Add(bars, even, line, dots)
	p.Legend.Add("model", line, dots)
	p.Legend.Add("calibrated", even)
	p.Legend.Add("share of lines", bars)
	return picture.Render(p, picture.Width, picture.Height,
		fmt.Sprintf("Share of right labels by probability; expected calibration error %.4f", r.Calibration.Error),
		fmt.Sprintf("Calibration: expected error %.4f in %d bins", r.Calibration.Error, eval.CalibrationBins))
}

// documentsPlot shows how many documents are of some accuracy.
func documentsPlot(r *report) (picture.Picture, error) {
	if len(r.Each) < 2 {
		return picture.Picture{}, nil
	}
	const bins = 20
	bars := &plotter.Histogram{Bins: make([]plotter.HistogramBin, bins), Width: 1. / bins, FillColor: picture.Blue}
	for i := range bars.Bins {
		bars.Bins[i].Min, bars.Bins[i].Max = float64(i)/bins, float64(i+1)/bins
	}
	for _, doc := range r.Each {
		bars.Bins[min(int(doc.Accuracy*bins), bins-1)].Weight++
	}
	p := picture.New("accuracy", "documents")
	p.Add(bars)
	p.X.Min, p.X.Max, p.Y.Min = 0, 1, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = fifths, plot.TickerFunc(picture.WholeTicks)
	return picture.Render(p, picture.Width, picture.Height, "Number of documents by accuracy; the table has the worst", "Documents by accuracy of their lines")
}
