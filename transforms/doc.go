// Package transforms labels documents in a Beam pipeline:
//
//	paths → Read → Featurize → Predict → Write
//
// Read, Featurize, Predict and Write are exported PTransforms, each usable
// alone. Every one returns, beside its output, a PCollection<Rejection> of the
// documents that it could not handle; nothing else stops for them. An error,
// which fails the bundle, is left for the output store and the device.
//
// All four work on the global window only, which is checked when the pipeline
// is built, and emit every element with the time of the document it came from.
// They do their work on many cores inside the DoFn, hold a bounded number of
// bytes in flight and keep documents whole: no contents cross a shuffle
// between them. An emitted slice is never changed afterwards, and must not be
// by who receives it.
//
// Where a runner tries a bundle again (Flink, Dataflow), Read with Options.Output passes
// over what Write had written of it, and no other transform gets that again. A pipeline
// that does more than Write gives Read no Output, or Force.
//
// Where one of them is in a pipeline twice, Beam's direct runner keeps the metrics of one
// alone; on prism and Flink each has its own.
package transforms

import (
	"context"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/graph/window"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
)

// Namespace is that of the counters: documents, lines, skipped, rejected, warnings,
// label_NAME for every label, and those that have constants here.
const Namespace = "linnet"

// global panics with one line where c is not in the global window.
func global(transform string, c beam.PCollection) {
	if !c.IsValid() {
		panic("transforms: " + transform + ": the input is no PCollection")
	}
	if c.WindowingStrategy().Fn.Kind != window.GlobalWindows {
		panic("transforms: " + transform + ": the input must be in the global window; put beam.WindowInto(s, window.NewGlobalWindows(), c) before it")
	}
}

// logf logs through Beam, which carries it from a worker to its runner's log,
// where verbosity is at least level.
func logf(ctx context.Context, verbosity, level int, format string, args ...any) {
	if verbosity >= level {
		log.Infof(ctx, "linnet: "+format, args...)
	}
}
