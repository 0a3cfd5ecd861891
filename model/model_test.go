package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testConfig is a small model with two heads.
func testConfig() Config {
	c := DefaultConfig()
	c.InputSize, c.EmbeddingSize, c.HiddenSize, c.NumLayers = 50, 5, 3, 2
	c.FullClasses = []string{"Nomenclature", "Description", "Key", "Figure"}
	return c
}

// testWeights are random weights of the shapes of c.
func testWeights(c Config) *Weights {
	w := &Weights{Config: c}
	r := rand.New(rand.NewPCG(1, 2))
	for _, t := range w.tensors() {
		if t.i8 != nil {
			*t.i8 = make([]int8, t.len())
			for i := range *t.i8 {
				(*t.i8)[i] = int8(r.IntN(255) - 127)
			}
			continue
		}
		*t.f32 = make([]float32, t.len())
		for i := range *t.f32 {
			(*t.f32)[i] = r.Float32() - 0.5
		}
	}
	return w
}

func TestDefaultConfigIsValid(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, want := c.NumParameters(), 65536*64+51*64+64+2*(64*384+96*384+384)+(192+64)*3+3; got != want {
		t.Errorf("NumParameters() = %d, want %d", got, want)
	}
}

func TestConfigValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*Config)
		want   string // prefix of the error
	}{
		"format":                {func(c *Config) { c.Format = 9 }, "model: format: 9, but this program reads 1"},
		"feature_version":       {func(c *Config) { c.FeatureVersion = 2 }, "model: feature_version: 2, but this program makes 1"},
		"feature_hash":          {func(c *Config) { c.FeatureHash = "md5" }, `model: feature_hash: "md5"`},
		"input_size":            {func(c *Config) { c.InputSize = 0 }, "model: input_size: 0; it must be from 1 to 16,777,216"},
		"input_size large":      {func(c *Config) { c.InputSize = 1<<24 + 1 }, "model: input_size: 16,777,217;"},
		"embedding_size":        {func(c *Config) { c.EmbeddingSize = -100 }, "model: embedding_size: -100;"},
		"layout_size":           {func(c *Config) { c.LayoutSize = 0 }, "model: layout_size: 0;"},
		"hidden_size":           {func(c *Config) { c.HiddenSize = 4097 }, "model: hidden_size: 4,097; it must be from 1 to 4,096"},
		"num_layers":            {func(c *Config) { c.NumLayers = 17 }, "model: num_layers: 17;"},
		"num_classes":           {func(c *Config) { c.NumClasses = 4 }, "model: num_classes: 4, but classes has 3"},
		"window_size":           {func(c *Config) { c.WindowSize = -1 }, "model: window_size: -1;"},
		"prediction_stride":     {func(c *Config) { c.WindowSize, c.PredictionStride = 80, 81 }, "model: prediction_stride: 81; it must be from 0 to window_size, 80"},
		"prediction_batch_size": {func(c *Config) { c.PredictionBatchSize = 1 << 17 }, "model: prediction_batch_size: 131,072;"},
		"batch_size":            {func(c *Config) { c.BatchSize = 0 }, "model: batch_size: 0;"},
		"epochs":                {func(c *Config) { c.Epochs = 0 }, "model: epochs: 0;"},
		"dropout":               {func(c *Config) { c.Dropout = 1 }, "model: dropout: 1; it must be from 0 to 0.95"},
		"dropout NaN":           {func(c *Config) { c.Dropout = math.NaN() }, "model: dropout: NaN;"},
		"learning_rate":         {func(c *Config) { c.LearningRate = 0 }, "model: learning_rate: 0; it must be above 0"},
		"learning_rate NaN":     {func(c *Config) { c.LearningRate = math.NaN() }, "model: learning_rate: NaN;"},
		"weight_decay":          {func(c *Config) { c.WeightDecay = -1 }, "model: weight_decay: -1;"},
		"too many parameters":   {func(c *Config) { c.InputSize, c.EmbeddingSize = 1<<24, 4096 }, "model: input_size, embedding_size, hidden_size and num_layers: together 68,"},
		"label_set":             {func(c *Config) { c.LabelSet = "some" }, `model: label_set: "some";`},
		"no classes":            {func(c *Config) { c.Classes = nil }, "model: classes: 0 labels;"},
		"class is no label":     {func(c *Config) { c.Classes[0] = "a b" }, `model: classes: "a b" is no label`},
		"class begins wrong":    {func(c *Config) { c.Classes[0] = "1a" }, `model: classes: "1a" is no label`},
		"class beyond ASCII":    {func(c *Config) { c.Classes[0] = "Имя" }, `model: classes: "Имя" is no label; a label is a letter from A to Z,`},
		"class is long":         {func(c *Config) { c.Classes[0] = strings.Repeat("a", 51) }, `model: classes: "aaa`},
		"class twice":           {func(c *Config) { c.Classes[1] = c.Classes[0] }, "model: classes: Nomenclature stands there twice"},
		"full class twice":      {func(c *Config) { c.FullClasses[1] = c.FullClasses[0] }, "model: full_classes: Nomenclature stands there twice"},
		"two full heads":        {func(c *Config) { c.LabelSet = Full }, "model: full_classes: label_set is full already"},
		"label_map to nowhere":  {func(c *Config) { c.LabelMap = map[string]string{"Key": "Nothing"} }, `model: label_map: "Key" maps to "Nothing"`},
		"label_map of lines":    {func(c *Config) { c.LabelMap = map[string]string{"Key\nlinnet: done": "Nothing"} }, `model: label_map: "Key\nlinnet: done" maps to "Nothing"`},
		"label_map no label":    {func(c *Config) { c.LabelMap = map[string]string{"": Description} }, `model: label_map: "" is no label`},
		"label_map no UTF-8":    {func(c *Config) { c.LabelMap = map[string]string{"\xff": Description} }, `model: label_map: "\xff" is no label`},
		"label_map large":       {func(c *Config) { c.LabelMap = largeMap(4097) }, "model: label_map: 4,097 labels; at most 4,096"},
		"other_class":           {func(c *Config) { c.OtherClass = "Other" }, `model: other_class: "Other" is not in classes`},
		"class_weights form":    {func(c *Config) { c.ClassWeights = "heavy" }, `model: class_weights: "heavy"; it must be none, balanced or`},
		"class_weights label":   {func(c *Config) { c.ClassWeights = "Foo=1" }, `model: class_weights: "Foo" is not in classes`},
		"class_weights number":  {func(c *Config) { c.ClassWeights = "Description=x" }, `model: class_weights: Description="x"; a weight must be from 0`},
		"class_weights NaN":     {func(c *Config) { c.ClassWeights = "Description=NaN" }, `model: class_weights: Description="NaN";`},
		"class_weights twice":   {func(c *Config) { c.ClassWeights = "Description=1,Description=2" }, "model: class_weights: Description stands there twice"},
		"class_weights of 0":    {func(c *Config) { c.ClassWeights = "Nomenclature=0,Description=0,Misc-exposition=0" }, "model: class_weights: all classes weigh 0"},
		"class_weights long":    {func(c *Config) { c.ClassWeights = "Description=" + strings.Repeat("0", 1<<14) }, "model: class_weights: 16,396 bytes; at most 16,384"},
		"focal_labels":          {func(c *Config) { c.FocalLabels = "Description,Foo" }, `model: focal_labels: "Foo" is not in classes`},
		"focal_labels long":     {func(c *Config) { c.FocalLabels = strings.Repeat("Key,", 1<<12+1) }, "model: focal_labels: 16,388 bytes; at most 16,384"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := testConfig()
			tc.change(&c)
			checkError(t, c.Validate(), tc.want)
		})
	}
}

// TestConfigAtBounds has the ends of what is allowed.
func TestConfigAtBounds(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"dropout 0":           func(c *Config) { c.Dropout = 0 },
		"dropout":             func(c *Config) { c.Dropout = .95 },
		"learning_rate":       func(c *Config) { c.LearningRate = 10 },
		"weight_decay 0":      func(c *Config) { c.WeightDecay = 0 },
		"weight_decay":        func(c *Config) { c.WeightDecay = 10 },
		"prediction_stride":   func(c *Config) { c.WindowSize, c.PredictionStride = 80, 80 },
		"prediction_stride 0": func(c *Config) { c.WindowSize, c.PredictionStride = 80, 0 },
		"ones":                func(c *Config) { c.InputSize, c.EmbeddingSize, c.HiddenSize, c.NumLayers = 1, 1, 1, 1 },
		"num_layers":          func(c *Config) { c.NumLayers = 16 },
		"class_weights":       func(c *Config) { c.ClassWeights = "Description=0,Key=1e6" },
		"focal_labels":        func(c *Config) { c.FocalLabels = strings.Repeat("Key,", 1<<12) },
		"label_map and *":     func(c *Config) { c.LabelMap = largeMap(4096) },
		"label of 50":         func(c *Config) { c.Classes[0], c.LabelMap = strings.Repeat("a", 50), nil },
	} {
		c := testConfig()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// largeMap is a label map of n labels, and of "*".
func largeMap(n int) map[string]string {
	m := map[string]string{"*": Description}
	for i := range n {
		m[fmt.Sprintf("label-%d", i)] = Description
	}
	return m
}

// TestIsLabel compares with a regular expression, byte by byte of the alphabet.
func TestIsLabel(t *testing.T) {
	rule := regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,49}\z`)
	for b := range 256 {
		for _, s := range []string{string([]byte{byte(b)}), string([]byte{'a', byte(b)}), string([]byte{'a', byte(b), 'a'})} {
			if got, want := IsLabel(s), rule.MatchString(s); got != want {
				t.Errorf("IsLabel(%q) = %t, want %t", s, got, want)
			}
		}
	}
	for _, n := range []int{0, 50, 51} {
		if s := strings.Repeat("Z", n); IsLabel(s) != rule.MatchString(s) {
			t.Errorf("IsLabel of %d letters = %t", n, IsLabel(s))
		}
	}
}

// checkError wants one line that begins with want.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	if got := err.Error(); !strings.HasPrefix(got, want) || strings.Contains(got, "\n") || len(got) > 400 {
		t.Errorf("error = %q\nwant one line that begins %q", got, want)
	}
}

func TestHead(t *testing.T) {
	two, full := testConfig(), testConfig()
	full.LabelSet, full.FullClasses = Full, nil
	one := testConfig()
	one.FullClasses = nil
	cases := map[string]struct {
		c        Config
		labelSet string
		first, n int
		want     string
	}{
		"default":             {two, "", 0, 3, ""},
		"collapsed":           {two, Collapsed, 0, 3, ""},
		"full":                {two, Full, 3, 4, ""},
		"full alone":          {full, Full, 0, 3, ""},
		"full is default":     {full, "", 0, 3, ""},
		"collapsed from full": {full, Collapsed, 0, 0, "model: label_set: this model has no collapsed labels; use --label_set=full"},
		"no full head":        {one, Full, 0, 0, "model: label_set: this model has no full labels; use --label_set=collapsed"},
		"unknown":             {two, "some", 0, 0, `model: label_set: "some"; it must be`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			first, classes, err := tc.c.Head(tc.labelSet)
			if tc.want != "" {
				checkError(t, err, tc.want)
				return
			}
			if err != nil || first != tc.first || len(classes) != tc.n {
				t.Errorf("Head(%q) = %d, %d classes, %v; want %d, %d", tc.labelSet, first, len(classes), err, tc.first, tc.n)
			}
		})
	}
}

func TestClass(t *testing.T) {
	c := testConfig()
	c.LabelMap = map[string]string{"Holotype": Description, Nomenclature: MiscExposition}
	for label, want := range map[string]int{
		Description: 1, MiscExposition: 2, "Key": 2, "Holotype": 1, Nomenclature: 2, "": -1,
	} {
		if got := c.Class(label); got != want {
			t.Errorf("Class(%q) = %d, want %d", label, got, want)
		}
	}
	c.LabelMap = nil
	for i, label := range c.Classes {
		if got := c.Class(label); got != i {
			t.Errorf("Class(%q) = %d, want %d", label, got, i)
		}
	}
	c.OtherClass = ""
	if got := c.Class("Key"); got != -1 {
		t.Errorf("Class without other_class = %d, want -1", got)
	}
	for label, want := range map[string]int{"Key": 2, "Figure": 3, "Holotype": -1, "": -1} {
		if got := c.FullClass(label); got != want {
			t.Errorf("FullClass(%q) = %d, want %d", label, got, want)
		}
	}
}

func TestWindowsPerBatch(t *testing.T) {
	for _, tc := range []struct{ layers, hidden, set, want int }{
		{1, 96, 0, 128}, {2, 128, 0, 128}, {3, 96, 0, 64}, {1, 129, 0, 64}, {3, 256, 0, 64}, {4, 64, 0, 32}, {1, 257, 0, 32}, {1, 96, 7, 7},
	} {
		c := Config{NumLayers: tc.layers, HiddenSize: tc.hidden, PredictionBatchSize: tc.set}
		if got := c.WindowsPerBatch(); got != tc.want {
			t.Errorf("WindowsPerBatch of %d layers, hidden %d, set %d = %d, want %d", tc.layers, tc.hidden, tc.set, got, tc.want)
		}
	}
}

func TestLossWeightsAndFocalClasses(t *testing.T) {
	c := testConfig()
	c.ClassWeights = "Description = 2.5, Key=0"
	c.FocalLabels = "Key, Description"
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	weights, balanced, err := c.LossWeights()
	if err != nil || balanced || len(weights) != 2 || weights[Description] != 2.5 {
		t.Errorf("LossWeights() = %v, %v, %v", weights, balanced, err)
	}
	if got := c.FocalClasses(); !slices.Equal(got, []string{"Key", Description}) {
		t.Errorf("FocalClasses() = %q", got)
	}
	c.ClassWeights = "balanced"
	if weights, balanced, err := c.LossWeights(); weights != nil || !balanced || err != nil {
		t.Errorf("LossWeights() of balanced = %v, %v, %v", weights, balanced, err)
	}
}

func TestWeightsValidate(t *testing.T) {
	if err := testWeights(testConfig()).Validate(); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*Weights)
		want   string
	}{
		"config": {func(w *Weights) { w.Config.Epochs = 0 }, "model: epochs: 0"},
		"layers": {func(w *Weights) { w.Layers = w.Layers[:1] }, "model: layers: 1, but num_layers is 2"},
		"short":  {func(w *Weights) { w.Layers[1].Backward.Bias = nil }, "model: layers.1.backward.bias: 0 numbers; the config asks for 12"},
		"table":  {func(w *Weights) { w.Table = w.Table[1:] }, "model: table: 249 numbers; the config asks for 250"},
		"NaN":    {func(w *Weights) { w.OutputBias[2] = float32(math.NaN()) }, "model: output.bias: number 2 is NaN"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := testWeights(testConfig())
			tc.change(w)
			checkError(t, w.Validate(), tc.want)
		})
	}
}

func TestQuantizeTable(t *testing.T) {
	const rows, d = 4000, 7
	r := rand.New(rand.NewPCG(3, 4))
	table := make([]float32, rows*d)
	for i := range table {
		table[i] = float32(r.NormFloat64() * float64(1+i/d%300))
	}
	clear(table[d : 2*d]) // a row that training never touched
	for j := range d {
		table[2*d+j] = 40e-45 * float32(j) // next to nothing beside the others
	}
	q, scale := QuantizeTable(table, rows, d)
	rounded := make([]float32, rows*d)
	for i, v := range table {
		s := scale[i/d]
		off := v - s*float32(q[i])
		if limit := s*0.5001 + 1e-43; off > limit || off < -limit {
			t.Errorf("table[%d] = %g became %g, off by more than half of %g", i, v, s*float32(q[i]), s)
		}
		if q[i] == -128 {
			t.Errorf("q[%d] = -128", i)
		}
	}
	// The scales are whole multiples of one power of two, none larger than the
	// row needs.
	largest := float64(slices.Max(scale))
	unit := math.Exp2(math.Floor(math.Log2(largest / 128)))
	for r, s := range scale {
		m := float64(s) / unit
		if m != math.Trunc(m) || m > 255 {
			t.Errorf("scale[%d] = %g is %g times %g", r, s, m, unit)
		}
		var top float64
		for _, v := range table[r*d : (r+1)*d] {
			top = max(top, math.Abs(float64(v)))
		}
		if least := top / 127; float64(s) > least+unit {
			t.Errorf("scale[%d] = %g, more than a multiple of %g above %g", r, s, unit, least)
		}
	}
	for i, v := range q {
		rounded[i] = scale[i/d] * float32(v)
	}
	again, scale2 := QuantizeTable(rounded, rows, d)
	for i, v := range again {
		if got := scale2[i/d] * float32(v); got != rounded[i] {
			t.Errorf("table[%d] = %g was rounded to %g and then to %g", i, table[i], rounded[i], got)
		}
	}
	if scale[1] != 0 {
		t.Errorf("scale of a row of zeros = %g, want 0", scale[1])
	}
}

// Of the two bfloat16 numbers around x, one not farther away than the other is
// taken, the even one where both are as far.
func TestRoundBFloat16(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	inf := float32(math.Inf(1))
	x := []float32{0, 1, 1 + 1.0/256, 1 + 3.0/256, -1 - 1.0/256, 1e-45, 3.3e38, inf, -inf, float32(math.NaN()), math.Float32frombits(0x7fffffff)}
	for range 10000 {
		x = append(x, float32(r.NormFloat64()*math.Exp2(float64(r.IntN(60)-30))))
	}
	for i, y := range RoundBFloat16(x) {
		v := x[i]
		if v != v || math.IsInf(float64(v), 0) {
			if math.Float32bits(y) != math.Float32bits(v) {
				t.Errorf("%v became %v", v, y)
			}
			continue
		}
		low := math.Float32bits(v) &^ 0xffff // toward 0
		around := [2]float32{math.Float32frombits(low), math.Float32frombits(low + 0x10000)}
		far := [2]float64{math.Abs(float64(v) - float64(around[0])), math.Abs(float64(v) - float64(around[1]))}
		want := around[0]
		if far[1] < far[0] || far[1] == far[0] && low>>16&1 == 1 {
			want = around[1]
		}
		if y != want {
			t.Errorf("%v became %v; %v is the nearest", v, y, want)
		}
	}
}

func TestAppendLines(t *testing.T) {
	src := &Batch{
		IDs:        []uint32{1, 2, 3, 4, 5, 6},
		GroupEnd:   []uint32{1, 2, 2, 3, 3, 3, 3, 4, 5, 6, 6, 6},
		GroupScale: []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		Layout:     []float32{1, 2, 3, 4, 5, 6},
	}
	var b Batch
	if at := b.AppendLines(src, 1, 2); at != 0 {
		t.Errorf("first line stands at %d, want 0", at)
	}
	if at := b.AppendLines(src, 0, 1); at != 2 {
		t.Errorf("third line stands at %d, want 2", at)
	}
	if want := []uint32{4, 5, 6, 1, 2, 3}; !slices.Equal(b.IDs, want) {
		t.Errorf("IDs = %v, want %v", b.IDs, want)
	}
	if want := []uint32{0, 0, 0, 1, 2, 3, 3, 3, 4, 5, 5, 6}; !slices.Equal(b.GroupEnd, want) {
		t.Errorf("GroupEnd = %v, want %v", b.GroupEnd, want)
	}
	if want := []float32{3, 4, 5, 6, 1, 2}; !slices.Equal(b.Layout, want) {
		t.Errorf("Layout = %v, want %v", b.Layout, want)
	}

	// A batch's own lines once more.
	if at := b.AppendLines(&b, 1, 2); at != 3 {
		t.Errorf("fourth line stands at %d, want 3", at)
	}
	if err := b.Check(2); err != nil {
		t.Error(err)
	}
	if want := []float32{3, 4, 5, 6, 1, 2, 5, 6, 1, 2}; !slices.Equal(b.Layout, want) {
		t.Errorf("Layout = %v, want %v", b.Layout, want)
	}
	if want := []uint32{4, 5, 6, 1, 2, 3, 5, 6, 1, 2, 3}; !slices.Equal(b.IDs, want) {
		t.Errorf("IDs = %v, want %v", b.IDs, want)
	}
}
