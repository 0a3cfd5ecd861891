package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a Config. They are wide for people and narrow enough that a
// config.json of unknown origin cannot make the program allocate without
// bound: maxBytes is the one that counts.
const (
	maxInputSize  = 1 << 24
	maxSize       = 1 << 12 // of embedding, layout and hidden
	maxLayers     = 16
	maxClasses    = 1 << 10 // of one head
	maxLabel      = 50      // bytes, as in YEDDA's markup
	maxWindow     = 1 << 20 // lines
	maxBatch      = 1 << 16 // windows
	maxEpochs     = 1 << 16
	maxLabelMap   = 1 << 12
	maxStringList = 1 << 14 // bytes of class_weights and focal_labels
	maxBytes      = 1 << 30 // of all parameters
)

// Validate reports the first field that is out of bounds, by its name, and
// what it must be. A Config that passes describes at most 1 GiB of parameters.
func (c *Config) Validate() error {
	if err := c.check(); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

func (c *Config) check() error {
	if c.Format != Format {
		return fmt.Errorf("format: %d, but this program reads %d; use the program that the model came with", c.Format, Format)
	}
	if c.FeatureVersion != FeatureVersion {
		return fmt.Errorf("feature_version: %d, but this program makes %d; train the model again or use the program it came with",
			c.FeatureVersion, FeatureVersion)
	}
	if c.FeatureHash != FeatureHash {
		return fmt.Errorf("feature_hash: %s, but this program uses %s; train the model again or use the program it came with",
			quote(c.FeatureHash), FeatureHash)
	}
	ints := []struct {
		name          string
		value, lo, hi int
	}{
		{"input_size", c.InputSize, 1, maxInputSize},
		{"embedding_size", c.EmbeddingSize, 1, maxSize},
		{"layout_size", c.LayoutSize, 1, maxSize},
		{"hidden_size", c.HiddenSize, 1, maxSize},
		{"num_layers", c.NumLayers, 1, maxLayers},
		{"num_classes", c.NumClasses, 1, maxClasses},
		{"window_size", c.WindowSize, 0, maxWindow},
		{"prediction_batch_size", c.PredictionBatchSize, 0, maxBatch},
		{"batch_size", c.BatchSize, 1, maxBatch},
		{"epochs", c.Epochs, 1, maxEpochs},
	}
	for _, f := range ints {
		if f.value < f.lo || f.value > f.hi {
			return fmt.Errorf("%s: %s; it must be from %s to %s", f.name, comma(f.value), comma(f.lo), comma(f.hi))
		}
	}
	if c.PredictionStride < 0 || c.PredictionStride > c.WindowSize {
		return fmt.Errorf("prediction_stride: %s; it must be from 0 to window_size, %s", comma(c.PredictionStride), comma(c.WindowSize))
	}
	floats := []struct {
		name   string
		ok     bool
		value  float64
		bounds string
	}{
		{"dropout", c.Dropout >= 0 && c.Dropout <= 0.95, c.Dropout, "from 0 to 0.95"},
		{"learning_rate", c.LearningRate > 0 && c.LearningRate <= 10, c.LearningRate, "above 0 and at most 10"},
		{"weight_decay", c.WeightDecay >= 0 && c.WeightDecay <= 10, c.WeightDecay, "from 0 to 10"},
	}
	for _, f := range floats {
		if !f.ok {
			return fmt.Errorf("%s: %v; it must be %s", f.name, f.value, f.bounds)
		}
	}
	if n := c.parameterBytes(); n > maxBytes {
		return fmt.Errorf("input_size, embedding_size, hidden_size and num_layers: together %s bytes of parameters; at most %s are allowed",
			comma(int(n)), comma(maxBytes))
	}
	return c.checkClasses()
}

func (c *Config) checkClasses() error {
	if c.LabelSet != Collapsed && c.LabelSet != Full {
		return fmt.Errorf("label_set: %s; it must be %s or %s", quote(c.LabelSet), Collapsed, Full)
	}
	if err := checkLabels("classes", c.Classes); err != nil {
		return err
	}
	if c.NumClasses != len(c.Classes) {
		return fmt.Errorf("num_classes: %d, but classes has %d; they must agree", c.NumClasses, len(c.Classes))
	}
	if len(c.FullClasses) > 0 {
		if c.LabelSet == Full {
			return errors.New("full_classes: label_set is full already; leave it empty")
		}
		if err := checkLabels("full_classes", c.FullClasses); err != nil {
			return err
		}
	}
	n := len(c.LabelMap)
	if c.LabelMap["*"] != "" { // no label, but what OtherClass says
		n--
	}
	if n > maxLabelMap {
		return fmt.Errorf("label_map: %s labels; at most %s are allowed", comma(n), comma(maxLabelMap))
	}
	for from, to := range c.LabelMap {
		if from == "" || !utf8.ValidString(from) { // brat's labels are any words
			return fmt.Errorf("label_map: %s is no label; name one of the annotation", quote(from))
		}
		if !slices.Contains(c.Classes, to) {
			return fmt.Errorf("label_map: %s maps to %s, which is not in classes", quote(from), quote(to))
		}
	}
	if c.OtherClass != "" && !slices.Contains(c.Classes, c.OtherClass) {
		return fmt.Errorf("other_class: %s is not in classes", quote(c.OtherClass))
	}
	if _, err := c.classWeights(); err != nil {
		return err
	}
	if len(c.FocalLabels) > maxStringList {
		return fmt.Errorf("focal_labels: %s bytes; at most %s are allowed", comma(len(c.FocalLabels)), comma(maxStringList))
	}
	for _, l := range c.FocalClasses() {
		if !c.isClass(l) {
			return fmt.Errorf("focal_labels: %s is not in classes: %s", quote(l), c.classNames())
		}
	}
	return nil
}

const labelRule = "a label is a letter from A to Z, then up to 49 of these, digits, _ or -"

func checkLabels(field string, labels []string) error {
	if len(labels) == 0 || len(labels) > maxClasses {
		return fmt.Errorf("%s: %s labels; there must be from 1 to %s", field, comma(len(labels)), comma(maxClasses))
	}
	seen := make(map[string]bool, len(labels))
	for _, l := range labels {
		if !IsLabel(l) {
			return fmt.Errorf("%s: %s is no label; %s", field, quote(l), labelRule)
		}
		if seen[l] {
			return fmt.Errorf("%s: %s stands there twice; name each class once", field, l)
		}
		seen[l] = true
	}
	return nil
}

// IsLabel reports whether s can stand in YEDDA's closing token, as classes must.
func IsLabel(s string) bool {
	if len(s) == 0 || len(s) > maxLabel {
		return false
	}
	for i, b := range []byte(s) {
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (i == 0 || (b < '0' || b > '9') && b != '_' && b != '-') {
			return false
		}
	}
	return true
}

// classWeights is ClassWeights parsed: a weight for each label it names, or
// nil for none and balanced.
func (c *Config) classWeights() (map[string]float64, error) {
	switch c.ClassWeights {
	case "", "none", "balanced":
		return nil, nil
	}
	if len(c.ClassWeights) > maxStringList {
		return nil, fmt.Errorf("class_weights: %s bytes; at most %s are allowed", comma(len(c.ClassWeights)), comma(maxStringList))
	}
	weights := make(map[string]float64)
	for part := range strings.SplitSeq(c.ClassWeights, ",") {
		label, number, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("class_weights: %s; it must be none, balanced or Label=weight,Label=weight", quote(part))
		}
		label = strings.TrimSpace(label)
		if !c.isClass(label) {
			return nil, fmt.Errorf("class_weights: %s is not in classes: %s", quote(label), c.classNames())
		}
		if _, twice := weights[label]; twice {
			return nil, fmt.Errorf("class_weights: %s stands there twice; name each class once", label)
		}
		w, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(w >= 0 && w <= 1e6) {
			return nil, fmt.Errorf("class_weights: %s=%s; a weight must be from 0 to 1,000,000", label, quote(number))
		}
		weights[label] = w
	}
	for _, label := range c.Classes {
		if w, ok := weights[label]; !ok || w > 0 {
			return weights, nil
		}
	}
	return nil, errors.New("class_weights: all classes weigh 0, so that nothing would be learnt; give one a weight")
}

func (c *Config) isClass(label string) bool {
	return slices.Contains(c.Classes, label) || slices.Contains(c.FullClasses, label)
}

// classNames lists the classes of both heads, the first ones where they are
// many.
func (c *Config) classNames() string {
	const many = 40
	names := slices.Clone(c.Classes)
	for _, l := range c.FullClasses {
		if !slices.Contains(names, l) {
			names = append(names, l)
		}
	}
	if len(names) > many {
		names = append(names[:many], "…")
	}
	return strings.Join(names, ", ")
}

// parameterBytes is the size of all parameters as they stand in the file.
// Within Validate's other bounds it does not overflow.
func (c *Config) parameterBytes() int64 {
	w := Weights{Config: *c}
	var n int64
	for _, t := range w.tensors() {
		n += t.bytes()
	}
	return n
}

// NumParameters counts the numbers that training sets: everything but the
// scales of the table and the statistics of the layout.
func (c *Config) NumParameters() int {
	w := Weights{Config: *c}
	n := 0
	for _, t := range w.tensors() {
		if t.trained {
			n += int(t.len())
		}
	}
	return n
}

// Validate reports what is wrong with w: its Config, a slice that has not the
// length its Config asks for, or a number that is not finite.
func (w *Weights) Validate() error {
	if err := w.Config.Validate(); err != nil {
		return err
	}
	if len(w.Layers) != w.Config.NumLayers {
		return fmt.Errorf("model: layers: %d, but num_layers is %d", len(w.Layers), w.Config.NumLayers)
	}
	for _, t := range w.tensors() {
		if got := int64(t.have()); got != t.len() {
			return fmt.Errorf("model: %s: %s numbers; the config asks for %s", t.name, comma(int(got)), comma(int(t.len())))
		}
		if err := t.checkFinite(); err != nil {
			return fmt.Errorf("model: %w", err)
		}
	}
	return nil
}

// checkFinite looks for a number that is infinite or not a number.
func (t *tensor) checkFinite() error {
	if t.f32 == nil {
		return nil
	}
	const exponent = 0x7f800000
	for i, v := range *t.f32 {
		if math.Float32bits(v)&exponent == exponent {
			return fmt.Errorf("%s: number %s is %v; the model is damaged or its training diverged: train it again", t.name, comma(i), v)
		}
	}
	return nil
}

// quote is s for one line of an error: cut to its first 60 bytes, and quoted.
func quote(s string) string {
	if len(s) > 60 {
		return strconv.Quote(s[:60]) + "…"
	}
	return strconv.Quote(s)
}

// comma is n with a comma at each thousand.
func comma(n int) string {
	s := strconv.Itoa(n)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
