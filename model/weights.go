package model

import "slices"

// Weights are a trained model. x of a line is
//
//	tanh( Σ_g GroupScale_g · Σ_{id in g} TableScale[id]·Table[id]
//	      + clip((layout − LayoutMean)·LayoutInvStd, ±6)·LayoutWeights + LayoutBias )
//
// and goes through the Layers; a line's logits are
// [states of the last layer; x]·OutputWeights + OutputBias, with one softmax
// a head. Training ends with matrices rounded to bfloat16 (RoundBFloat16), but any
// numbers do.
type Weights struct {
	Config Config

	Table      []int8    // [InputSize, D]
	TableScale []float32 // [InputSize]

	LayoutMean    []float32 // [LayoutSize]
	LayoutInvStd  []float32 // [LayoutSize]
	LayoutWeights []float32 // [LayoutSize, D]
	LayoutBias    []float32 // [D]

	Layers []Layer // NumLayers

	OutputWeights []float32 // [2H+D, K]: forward states, backward states, x
	OutputBias    []float32 // [K]
}

// Layer is one bidirectional LSTM layer (Hochreiter and Schmidhuber 1997; with
// forget gates, Gers et al. 2000): Forward reads a window from its first line,
// Backward from its last.
type Layer struct{ Forward, Backward Direction }

// Direction is one direction of a layer. Its input, of size In, is x in the
// first layer and [forward; backward] states (2H) of the one below in the
// others. Gates stand in the order i, f, g, o:
//
//	z = in·InputWeights + h·RecurrentWeights + Bias
//	c = σ(z_f)·c + σ(z_i)·tanh(z_g),  h = σ(z_o)·tanh(c)
type Direction struct {
	InputWeights     []float32 // [In, 4H]
	RecurrentWeights []float32 // [H, 4H]
	Bias             []float32 // [4H]
}

// Head is w with the head of labelSet ("" = the main one) alone: a row of
// probabilities is that head's columns of w's. All but OutputWeights is shared
// with w. What the Config says of labels for training and judging is left out.
// Where w has no other head, Head is w itself. Its error is ErrLabelSet.
func (w *Weights) Head(labelSet string) (*Weights, error) {
	first, classes, err := w.Config.Head(labelSet)
	if err != nil {
		return nil, err
	}
	k, n := w.Config.NumOutputs(), len(classes)
	if n == k {
		return w, nil
	}
	head := *w
	c := &head.Config
	if labelSet != "" {
		c.LabelSet = labelSet
	}
	c.Classes, c.NumClasses, c.FullClasses = classes, n, nil
	c.LabelMap, c.OtherClass, c.ClassWeights, c.FocalLabels = nil, "", "", ""
	head.OutputWeights = make([]float32, 0, len(w.OutputWeights)/k*n)
	for row := range slices.Chunk(w.OutputWeights, k) {
		head.OutputWeights = append(head.OutputWeights, row[first:first+n]...)
	}
	head.OutputBias = w.OutputBias[first : first+n]
	return &head, nil
}
