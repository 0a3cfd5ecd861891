package main

import (
	"fmt"
	"math"
	"slices"
)

// fit is the line through the points (batch size, bytes) with the least
// squares of its errors.
type fit struct {
	Slope        float64  `json:"slope_bytes"`               // bytes a sample
	SlopeGiB     float64  `json:"slope_gib"`                 // GiB a sample
	SlopeError   *float64 `json:"slope_error_gib,omitempty"` // standard error of SlopeGiB; two points have none
	Intercept    float64  `json:"intercept_bytes"`           // of no sample; it may be below 0
	R2           float64  `json:"r2"`                        // share of the variance that the line explains
	Worst        float64  `json:"worst_residual_share"`      // largest distance of a point, as a share of the range
	Points       int      `json:"points"`
	LargestBatch int64    `json:"largest_batch,omitempty"` // that fits Budget
	Budget       int64    `json:"budget_bytes,omitempty"`
	Refused      string   `json:"refused,omitempty"` // why the line is none to go by; then nothing else counts
}

// A line is refused where a point lies further from it than this share of the
// points' range.
const bent = .05

// fitLine fits y, bytes, to x, batch sizes; noise is how many bytes one y varies
// by when it is measured again.
func fitLine(x, y []float64, noise float64) fit {
	n := float64(len(x))
	var meanX, meanY float64
	for i := range x {
		meanX += x[i] / n
		meanY += y[i] / n
	}
	var xx, xy, yy float64
	for i := range x {
		dx, dy := x[i]-meanX, y[i]-meanY
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	f := fit{Points: len(x)}
	if xx == 0 {
		f.Refused = "one batch size makes no line; name two or more in --batch_sizes"
		return f
	}
	f.Slope = xy / xx
	f.SlopeGiB = f.Slope / (1 << 30)
	f.Intercept = meanY - f.Slope*meanX
	least, most := slices.Min(y), slices.Max(y)
	var rest, worst float64
	at := 0
	for i := range x {
		r := y[i] - f.Intercept - f.Slope*x[i]
		rest += r * r
		if math.Abs(r) > worst {
			worst, at = math.Abs(r), i
		}
	}
	f.R2 = 1
	if yy > 0 {
		f.R2 = 1 - rest/yy
	}
	if most > least {
		f.Worst = worst / (most - least)
	}
	if len(x) > 2 {
		e := math.Sqrt(rest/(n-2)/xx) / (1 << 30)
		f.SlopeError = &e
	}
	switch {
	case most-least <= 2*noise:
		f.Refused = fmt.Sprintf("memory differs by %s from the smallest to the largest batch, and by %s when one is measured again", bytes(most-least), bytes(noise))
	case f.Slope <= 0:
		f.Refused = "memory does not grow with the batch"
	case f.Worst > bent:
		f.Refused = fmt.Sprintf("the points lie on no line: that of batch size %.0f is %s off, %.0f %% of their range (R² %.3f)", x[at], bytes(worst), 100*f.Worst, f.R2)
	}
	return f
}

// fits sets the largest batch whose memory by the line is at most budget bytes.
func (f *fit) fits(budget int64) {
	f.Budget = budget
	if f.Refused == "" {
		f.LargestBatch = int64(max(0, math.Floor((float64(budget)-f.Intercept)/f.Slope)))
	}
}
