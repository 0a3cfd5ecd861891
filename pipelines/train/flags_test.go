package main

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestFlags checks that every flag of the config is in the model's config and
// changes its hash, and that the same flags give the same model.
func TestFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	corpus := newCorpus(t)
	base := trained(t, corpus)
	if again := trained(t, corpus); again.Hash() != base.Hash() {
		t.Error("the same flags give two models")
	}
	for flag, value := range map[string]string{
		"input_size": "1024", "embedding_size": "9", "hidden_size": "7", "num_layers": "2", "num_classes": "2",
		"dropout": "0.1", "window_size": "40", "prediction_batch_size": "3", "batch_size": "3", "epochs": "1",
		"learning_rate": "0.001", "weight_decay": "0.5", "class_weights": "balanced", "focal_labels": "Nomenclature", "seed": "2",
	} {
		t.Run(flag, func(t *testing.T) {
			w := trained(t, corpus, "--"+flag+"="+value)
			if w.Hash() == base.Hash() {
				t.Error("the model is the same")
			}
			text, err := json.Marshal(w.Config)
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]any
			if err := json.Unmarshal(text, &fields); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(fields[flag]); got != value {
				t.Errorf("the config has %s=%s, want %s", flag, got, value)
			}
		})
	}
	w := trained(t, corpus, "--window_size=40", "--prediction_stride=10")
	if w.Config.PredictionStride != 10 {
		t.Errorf("prediction_stride=%d, want 10", w.Config.PredictionStride)
	}
}
