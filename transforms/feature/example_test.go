package feature_test

import (
	"context"
	"fmt"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// The lines of a text are labelled without a pipeline.
func ExampleExtract() {
	weights, err := bundled.Weights() // or model.Load of a folder
	if err != nil {
		fmt.Println(err)
		return
	}
	weights, err = weights.Head(model.Collapsed)
	if err != nil {
		fmt.Println(err)
		return
	}
	scorer, err := cpu.New(weights)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scorer.Close()

	text := []byte("Agaricus fictus Nov., sp. nov.\n\nPileus 3–5 cm latus, albus, siccus.\n")
	rows := yedda.Rows(text)
	config := weights.Config
	batch := feature.Extract(text, rows, config.InputSize, 1)
	batch.Windows = model.Windows(len(rows), config.WindowSize, config.PredictionStride)
	classes := config.NumOutputs()
	probs := make([]float32, batch.NumSteps()*classes)
	if err := scorer.Score(context.Background(), batch, probs); err != nil {
		fmt.Println(err)
		return
	}
	windows := make([][]float32, len(batch.Windows))
	for i, rest := 0, probs; i < len(windows); i++ {
		n := batch.Windows[i].Len * classes
		windows[i], rest = rest[:n], rest[n:]
	}
	probs = model.Average(len(rows), batch.Windows, windows, classes)

	labels := make([]string, len(rows))
	for r := range rows {
		best := 0
		for k, p := range probs[r*classes:][:classes] {
			if p > probs[r*classes+best] {
				best = k
			}
		}
		labels[r] = config.Classes[best]
	}
	fmt.Printf("%s", yedda.Format(text, yedda.SpansOf(text, rows, labels)))
	// Output:
	// [@Agaricus fictus Nov., sp. nov.#Nomenclature*]
	//
	// [@Pileus 3–5 cm latus, albus, siccus.#Description*]
}
