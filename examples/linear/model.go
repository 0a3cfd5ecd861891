package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/linnet-ml/linnet/transforms/inference"
)

// Linear says which model: the newest file that matches Pattern, an object such
// as {"weights": [2, -1], "bias": 0.5}. It is an inference.Updater.
type Linear struct{ Pattern, Path string }

func (l Linear) Watch() string         { return l.Pattern }
func (l Linear) At(path string) Linear { return Linear{l.Pattern, path} }

func (l Linear) Load(context.Context) (inference.Handler[string, float64], error) {
	data, err := os.ReadFile(l.Path)
	if err != nil {
		return nil, err
	}
	m := new(linear)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Path, err)
	}
	return m, nil
}

// linear is the model, loaded.
type linear struct {
	Weights []float64 `json:"weights"`
	Bias    float64   `json:"bias"`
}

// Run answers lines of numbers with commas between; those that are none fail.
func (m *linear) Run(_ context.Context, lines []string) ([]float64, error) {
	y, failed := make([]float64, len(lines)), inference.ItemErrors{}
	for i, line := range lines {
		x := strings.Split(line, ",")
		if len(x) != len(m.Weights) {
			failed[i] = fmt.Errorf("%d numbers, the model takes %d", len(x), len(m.Weights))
			continue
		}
		y[i] = m.Bias
		for k, s := range x {
			v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil {
				failed[i] = err
			}
			y[i] += m.Weights[k] * v
		}
	}
	if len(failed) > 0 {
		return y, failed
	}
	return y, nil
}

func (m *linear) Weight(line string) int64 { return int64(len(line)) }
func (m *linear) ModelBytes() int64        { return int64(8 * (len(m.Weights) + 1)) }
func (m *linear) Close() error             { return nil }
