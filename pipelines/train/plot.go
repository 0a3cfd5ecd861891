package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/pipelines/internal/picture"
)

// line is one number of each epoch; epochs where all are 0 have none.
type line struct {
	name  string
	color color.Color
	of    func(*model.EpochStats) float64
}

// plotEpochs draws, by epoch, the losses on the left and the scores on the right,
// as SVG.
func plotEpochs(epochs []model.EpochStats) ([]byte, error) {
	loss, err := newPlot("loss", epochs, []line{
		{"training", picture.Blue, func(e *model.EpochStats) float64 { return e.Loss }},
		{"validation", picture.Orange, func(e *model.EpochStats) float64 { return e.ValidationLoss }},
	})
	if err != nil {
		return nil, err
	}
	score, err := newPlot("share", epochs, []line{
		{"training accuracy", picture.Blue, func(e *model.EpochStats) float64 { return e.Accuracy }},
		{"validation accuracy", picture.Orange, func(e *model.EpochStats) float64 { return e.ValidationAccuracy }},
		{"validation macro-F1", picture.Green, func(e *model.EpochStats) float64 { return e.ValidationMacroF1 }},
	})
	if err != nil {
		return nil, err
	}
	score.Legend.Top = false
	const width, height = 22 * vg.Centimeter, 8 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	canvas.SetColor(color.White)
	canvas.Fill(whole.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: .5 * vg.Centimeter, PadLeft: 6, PadRight: 6, PadTop: 6, PadBottom: 6}
	for i, p := range []*plot.Plot{loss, score} {
		c := picture.Inside(tiles.At(whole, i, 0))
		// The right is where no line goes: losses fall and scores rise.
		all, legend := p.DataCanvas(c), p.Legend.Rectangle(c)
		const room = 1.25 // for a wider font
		p.Legend.XOffs = max(p.Legend.XOffs, all.Max.X-all.Min.X-room*(legend.Max.X-legend.Min.X))
		p.Draw(c)
	}
	return picture.SVG(canvas)
}

func newPlot(y string, epochs []model.EpochStats, lines []line) (*plot.Plot, error) {
	p := picture.New("epoch", y)
	p.BackgroundColor = color.White
	p.X.Tick.Marker = plot.TickerFunc(picture.WholeTicks)
	p.Add(plotter.NewGrid())
	for _, l := range lines {
		var xys plotter.XYs
		any := false
		for i := range epochs {
			v := l.of(&epochs[i])
			any = any || v != 0
			xys = append(xys, plotter.XY{X: float64(i + 1), Y: v})
		}
		if !any {
			continue
		}
		path, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return nil, err
		}
		path.Color, path.Width = l.color, 1.5
		dots.Color, dots.Shape, dots.Radius = l.color, draw.CircleGlyph{}, 2.5
		p.Add(path, dots)
		p.Legend.Add(l.name, path, dots)
	}
	if p.Y.Min == p.Y.Max { // which would be drawn from one below to one above
		p.Y.Min = 0
	}
	return p, nil
}
