package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

// The plot is XML with a legend for each line that has numbers.
func TestPlotEpochs(t *testing.T) {
	alone := []model.EpochStats{{Loss: 2, Accuracy: .5}, {Loss: 1, Accuracy: .75}}
	judged := []model.EpochStats{{Loss: 2, Accuracy: .5, ValidationLoss: 1.5, ValidationAccuracy: .4, ValidationMacroF1: .3}}
	for _, c := range []struct {
		name      string
		epochs    []model.EpochStats
		has, hasn []string
	}{
		{"training alone", alone, []string{"training", "training accuracy", "epoch", "loss", "1", "2"}, []string{"validation", "macro-F1"}},
		{"one epoch", judged, []string{"validation", "validation accuracy", "validation macro-F1"}, nil},
		{"one epoch alone", []model.EpochStats{{Loss: .0006, Accuracy: .6}}, []string{"0.0005", "0.25"}, []string{">-"}},
		{"accuracy all along", []model.EpochStats{{Loss: 2, Accuracy: 1}, {Loss: 2, Accuracy: 1}}, []string{"0.5", "1.0"}, []string{">3"}},
		{"one huge loss", []model.EpochStats{{Loss: 3e38, Accuracy: .5}}, []string{"training"}, nil},
	} {
		b, err := plotEpochs(c.epochs)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for d := xml.NewDecoder(strings.NewReader(string(b))); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		for _, text := range c.has {
			if !strings.Contains(string(b), ">"+text+"<") {
				t.Errorf("%s: no %q", c.name, text)
			}
		}
		for _, text := range c.hasn {
			if strings.Contains(string(b), text) {
				t.Errorf("%s: says %q", c.name, text)
			}
		}
	}
}
