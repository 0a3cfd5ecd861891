// Package model holds what a trained line labeller is: its Config, its
// Weights, the Batch a device scores and the Scorer that does it; and how a
// document is cut into windows and their probabilities are averaged. It knows
// nothing of pipelines; packages cpu and cuda implement Scorer, package train
// makes Weights.
//
// Dimensions: B windows in a batch, T lines of a window, D embedding_size,
// H hidden_size, K classes of all heads together. Matrices are row-major.
package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Format is the version of the folder layout that Save writes.
const Format = 1

// What the features of this program are: package feature makes them. A model that
// was trained on others is refused: FeatureVersion rises with any change of what a text gives.
const (
	FeatureVersion = 1
	FeatureHash    = "fnv1a32-murmur3" // FNV-1a of 32 bits, then murmur3's finaliser
	FeatureLayout  = 51                // layout and document features of a line
)

// Names of label sets (Config.LabelSet and the flag --label_set).
const (
	Collapsed = "collapsed" // Nomenclature, Description, Misc-exposition
	Full      = "full"      // every label of the annotation
)

// The classes of the collapsed label set.
const (
	Nomenclature   = "Nomenclature"
	Description    = "Description"
	MiscExposition = "Misc-exposition"
)

// Config describes a model and how it was, or is to be, trained. A field that
// the train pipeline has a flag for has the flag's name in JSON.
type Config struct {
	Format         int    `json:"format"`
	FeatureVersion int    `json:"feature_version"`
	FeatureHash    string `json:"feature_hash"` // name of the hash of package feature

	InputSize     int `json:"input_size"`     // rows of the embedding table
	EmbeddingSize int `json:"embedding_size"` // D
	LayoutSize    int `json:"layout_size"`    // layout and document features of a line; Load takes FeatureLayout alone
	HiddenSize    int `json:"hidden_size"`    // H, of one direction
	NumLayers     int `json:"num_layers"`
	NumClasses    int `json:"num_classes"` // len(Classes)

	Dropout             float64 `json:"dropout"`
	WindowSize          int     `json:"window_size"`           // lines; 0 = whole documents
	PredictionStride    int     `json:"prediction_stride"`     // lines; 0 = WindowSize
	PredictionBatchSize int     `json:"prediction_batch_size"` // windows; 0 = by size of model
	BatchSize           int     `json:"batch_size"`            // windows a training step
	Epochs              int     `json:"epochs"`
	LearningRate        float64 `json:"learning_rate"`
	WeightDecay         float64 `json:"weight_decay"`
	ClassWeights        string  `json:"class_weights"` // none, balanced, or Label=weight,…
	FocalLabels         string  `json:"focal_labels"`  // labels trained with focal loss, separated by commas
	Seed                int64   `json:"seed"`

	// LabelSet names the vocabulary of the main head, Classes. FullClasses,
	// where not empty, is the vocabulary of a second head, trained together.
	// A row of probabilities holds those of Classes, then those of
	// FullClasses; each head sums to 1.
	LabelSet    string   `json:"label_set"`
	Classes     []string `json:"classes"`
	FullClasses []string `json:"full_classes,omitempty"`
	// LabelMap maps raw labels, brat's of any letters too, to Classes. What it does
	// not name stays itself where it is one of Classes, and becomes OtherClass where
	// it is not. "*" is there where somebody named OtherClass for the rest; Class does
	// without it.
	LabelMap   map[string]string `json:"label_map,omitempty"`
	OtherClass string            `json:"other_class,omitempty"`
}

// DefaultConfig is what the train pipeline's defaults make, of the bundled
// model's sizes: three labels, whole documents at prediction.
func DefaultConfig() Config {
	return Config{
		Format:         Format,
		FeatureVersion: FeatureVersion,
		FeatureHash:    FeatureHash,
		InputSize:      1 << 16,
		EmbeddingSize:  64,
		LayoutSize:     FeatureLayout,
		HiddenSize:     96,
		NumLayers:      1,
		NumClasses:     3,
		Dropout:        0.4,
		BatchSize:      12,
		Epochs:         8,
		LearningRate:   5e-3,
		WeightDecay:    0.01,
		ClassWeights:   "none",
		Seed:           1,
		LabelSet:       Collapsed,
		Classes:        []string{Nomenclature, Description, MiscExposition},
		OtherClass:     MiscExposition,
	}
}

// Head is the vocabulary of labelSet ("" = that of the main head) and the
// first of its columns in a row of probabilities. Its error is ErrLabelSet.
func (c *Config) Head(labelSet string) (first int, classes []string, err error) {
	switch {
	case labelSet == "" || labelSet == c.LabelSet:
		return 0, c.Classes, nil
	case labelSet == Full && len(c.FullClasses) > 0:
		return len(c.Classes), c.FullClasses, nil
	case labelSet != Collapsed && labelSet != Full:
		return 0, nil, fmt.Errorf("%w: %s; it must be %s or %s", ErrLabelSet, quote(labelSet), Collapsed, Full)
	}
	return 0, nil, fmt.Errorf("%w: this model has no %s labels; use --label_set=%s or another model", ErrLabelSet, labelSet, c.LabelSet)
}

// ErrLabelSet is the error for a label set that a model has no head for.
var ErrLabelSet = errors.New("model: label_set")

// Class is the index in Classes that a label of the annotation is trained and
// judged as, by LabelMap and OtherClass; -1 for "" (no label) and where there
// is no OtherClass for it.
func (c *Config) Class(label string) int {
	if label == "" {
		return -1
	}
	if to, ok := c.LabelMap[label]; ok {
		return slices.Index(c.Classes, to)
	}
	if i := slices.Index(c.Classes, label); i >= 0 {
		return i
	}
	if c.OtherClass == "" {
		return -1
	}
	return slices.Index(c.Classes, c.OtherClass)
}

// FullClass is the index of label in FullClasses; -1 where it is not there.
func (c *Config) FullClass(label string) int { return slices.Index(c.FullClasses, label) }

// WindowsPerBatch is how many windows a batch of prediction holds:
// PredictionBatchSize, or what suits the size of the model where that is 0.
func (c *Config) WindowsPerBatch() int {
	switch {
	case c.PredictionBatchSize > 0:
		return c.PredictionBatchSize
	case c.NumLayers <= 2 && c.HiddenSize <= 128:
		return 128
	case c.NumLayers <= 3 && c.HiddenSize <= 256:
		return 64
	}
	return 32
}

// LossWeights is ClassWeights parsed: the weight of each label it names, nil
// where it names none. balanced says that weights are to be the inverse of how
// often a class occurs.
func (c *Config) LossWeights() (weights map[string]float64, balanced bool, err error) {
	weights, err = c.classWeights()
	if err != nil {
		return nil, false, fmt.Errorf("model: %w", err)
	}
	return weights, c.ClassWeights == "balanced", nil
}

// FocalClasses is FocalLabels as a list, without blanks.
func (c *Config) FocalClasses() []string {
	return strings.FieldsFunc(c.FocalLabels, func(r rune) bool { return r == ',' || r == ' ' })
}

// NumOutputs is K: the length of a row of probabilities.
func (c *Config) NumOutputs() int { return len(c.Classes) + len(c.FullClasses) }
