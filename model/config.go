// Package model holds what a trained line labeller is: its Config, its
// Weights, the Batch a device scores and the Scorer that does it. It knows
// nothing of pipelines; packages cpu and cuda implement Scorer, package train
// makes Weights.
//
// Dimensions: B windows in a batch, T lines of a window, D embedding_size,
// H hidden_size, K classes of all heads together. Matrices are row-major.
package model

// Format is the version of the folder layout that Save writes.
const Format = 1

// Names of label sets (Config.LabelSet and the flag --label_set).
const (
	Collapsed = "collapsed" // Nomenclature, Description, Misc-exposition
	Full      = "full"      // every label of the annotation
)

// Config describes a model and how it was, or is to be, trained. The names of
// its JSON fields are the names of the flags of the train pipeline.
type Config struct {
	Format         int    `json:"format"`
	FeatureVersion int    `json:"feature_version"`
	FeatureHash    string `json:"feature_hash"` // name of the hash of package feature

	InputSize     int `json:"input_size"`     // rows of the embedding table
	EmbeddingSize int `json:"embedding_size"` // D
	LayoutSize    int `json:"layout_size"`    // layout and document numbers of a line
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
	// LabelMap maps raw labels to Classes; what it does not name becomes
	// OtherClass.
	LabelMap   map[string]string `json:"label_map,omitempty"`
	OtherClass string            `json:"other_class,omitempty"`
}

// NumOutputs is K: the length of a row of probabilities.
func (c *Config) NumOutputs() int { return len(c.Classes) + len(c.FullClasses) }
