package model

import (
	"context"
	"errors"
	"iter"
)

// ErrOutOfMemory is what a Scorer returns when its device has no room for the
// batch; half of it may fit.
var ErrOutOfMemory = errors.New("model: out of memory")

// ErrDeviceLost is what a Scorer returns, from then on, when its device stopped
// working. Another Scorer can score the batch.
var ErrDeviceLost = errors.New("model: device lost")

// Scorer computes probabilities on one device. It is safe for concurrent use.
type Scorer interface {
	// Score writes the probabilities of every line of every window of b, in
	// the order of the windows, to probs, which is [b.NumSteps(), K]. A line's
	// probabilities depend on its window alone, not on what else is in b.
	Score(ctx context.Context, b *Batch, probs []float32) error
	// Close frees the device's memory; the Scorer is not used after it.
	Close() error
}

// MultiScorer is a Scorer that can take windows over several Batches, such as
// those of several documents, without their lines being copied together.
type MultiScorer interface {
	Scorer
	// ScoreAll is Score of the windows of all batches, one Batch after the
	// other: probs is [sum of their NumSteps, K]. The Batches may share memory,
	// and lines that no window holds cost nothing.
	ScoreAll(ctx context.Context, batches []*Batch, probs []float32) error
}

// StreamScorer is a MultiScorer that looks at one Batch at a time.
type StreamScorer interface {
	MultiScorer
	// ScoreSeq is ScoreAll of batches that are made while it runs: it ranges over them
	// once, and when it asks for the next one it is done with the one before, whose
	// memory may be used again.
	ScoreSeq(ctx context.Context, batches iter.Seq[*Batch], probs []float32) error
}
