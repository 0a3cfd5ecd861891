package model

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"time"
)

// Metadata says where a model comes from: metadata.json in its folder.
// Nothing in it changes what the model computes.
type Metadata struct {
	Data      string       `json:"data"`                 // what it was trained on, source and licence
	Split     Split        `json:"split"`                // which documents it was trained and judged on
	Seed      int64        `json:"seed"`                 // of weights, order and dropout
	CropShare float64      `json:"crop_share"`           // of the lines that was learnt from once more in parts
	Init      string       `json:"init_model,omitempty"` // hash of the model it began with
	InitShare float64      `json:"init_share,omitempty"` // of it in these weights, beside what it became
	Teachers  []string     `json:"teachers,omitempty"`   // hashes of the models it learnt from instead of the labels
	Epochs    []EpochStats `json:"epochs"`               // what each epoch came to
	BestEpoch int          `json:"best_epoch,omitempty"` // whose weights these are, from 1; 0: the last one's
	// Temperatures are what the logits of each head were divided by after that; none
	// where all are 1.
	Temperatures []float64 `json:"temperatures,omitempty"`
	Training     *Accuracy `json:"training,omitempty"`    // on Split.Train, without dropout
	Validation   *Accuracy `json:"validation,omitempty"`  // on Split.Validation
	Test         *Accuracy `json:"test,omitempty"`        // on Split.Test
	BatchSize    int       `json:"batch_size"`            // windows a step, of all workers together
	Precision    string    `json:"precision"`             // of the arithmetic
	WorldSize    int       `json:"world_size"`            // workers or GPUs that trained at once
	RoundSteps   int       `json:"round_steps,omitempty"` // of its workers; 0 for an epoch
	Skipped      int       `json:"skipped,omitempty"`     // steps whose gradient was not finite (float16)
	GPUMemory    int64     `json:"gpu_memory,omitempty"`  // bytes in use at the end, of the GPU with most
	GPUPeak      int64     `json:"gpu_peak,omitempty"`    // the most in use
	Parameters   int       `json:"parameters"`            // NumParameters of its Config
	Commit       string    `json:"commit,omitempty"`      // of the program that trained it
	Device       string    `json:"device"`                // CPU or GPU, instruction set, workers
	Time         time.Time `json:"time"`                  // when training ended, UTC
	Seconds      float64   `json:"seconds"`               // training took
}

// Split names the documents of each part, and the lines they had.
type Split struct {
	Train           []string `json:"train"`
	Validation      []string `json:"validation,omitempty"`
	Test            []string `json:"test,omitempty"`
	TrainLines      int      `json:"train_lines"`
	ValidationLines int      `json:"validation_lines,omitempty"`
	TestLines       int      `json:"test_lines,omitempty"`
}

// EpochStats is one epoch of training. Validation's numbers are 0 where there
// were no documents for it, and those of the mean with Init where InitShare is
// above 0.
type EpochStats struct {
	Loss              float64 `json:"loss"`     // mean of the steps
	Accuracy          float64 `json:"accuracy"` // of the training lines as they came, under dropout; without classes of weight 0
	ValidationLoss    float64 `json:"validation_loss,omitempty"`
	ValidationMacroF1 float64 `json:"validation_macro_f1,omitempty"`
	// ValidationAccuracy is the share of lines that are right.
	ValidationAccuracy float64 `json:"validation_accuracy,omitempty"`
	LearningRate       float64 `json:"learning_rate"` // at its end
	Seconds            float64 `json:"seconds"`
	TrainingSeconds    float64 `json:"training_seconds"` // of these, without the judgement
	Lines              int     `json:"lines"`            // that the steps read, context included
}

// Accuracy is how a model did on labelled, non-blank lines.
type Accuracy struct {
	Loss     float64            `json:"loss"`     // mean cross-entropy
	Accuracy float64            `json:"accuracy"` // share of lines that are right
	MacroF1  float64            `json:"macro_f1"`
	F1       map[string]float64 `json:"f1"` // by class
}

// LoadMetadata reads metadata.json of the model in fsys. A folder without one
// gives an error that wraps fs.ErrNotExist; the model is as good without.
func LoadMetadata(fsys fs.FS) (*Metadata, error) {
	b, err := readFile(fsys, metadataFile, maxMetadataBytes)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	m := new(Metadata)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("model: %s: %s; copy the model again", metadataFile, oneLine(err))
	}
	return m, nil
}
