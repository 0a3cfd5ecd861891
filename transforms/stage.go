package transforms

import (
	"context"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/internal/pipe"
)

// job is an element with the time that what comes of it is emitted with.
type job[T any] struct {
	time beam.EventTime
	in   T
}

// outcome is what became of a job: an output, a rejection, or neither for a
// document to pass over.
type outcome[T any] struct {
	time     beam.EventTime
	out      *T
	rejected *Rejection
}

// stage is the pipe of a DoFn that makes an O, or a Rejection, of each I.
type stage[I, O any] struct {
	name     string
	progress *Progress
	pipe     *pipe.Pipe[job[I], outcome[O]]
}

type work[I, O any] func(ctx context.Context, in I) (*O, *Rejection, error)

func newStage[I, O any](name string, p *Progress, do work[I, O],
	make func(int64, func(context.Context, job[I]) (outcome[O], error)) *pipe.Pipe[job[I], outcome[O]], limit int64) stage[I, O] {
	return stage[I, O]{name, p, make(limit, func(ctx context.Context, j job[I]) (outcome[O], error) {
		o := outcome[O]{time: j.time}
		var err error
		o.out, o.rejected, err = do(ctx, j.in)
		return o, err
	})}
}

func (s *stage[I, O]) push(ctx context.Context, t beam.EventTime, in I, size int64,
	emit func(beam.EventTime, *O), reject func(beam.EventTime, Rejection)) error {
	return s.progress.fail(s.name, s.pipe.Push(ctx, job[I]{t, in}, size, s.emitter(ctx, emit, reject)))
}

func (s *stage[I, O]) drain(ctx context.Context,
	emit func(beam.EventTime, *O), reject func(beam.EventTime, Rejection)) error {
	return s.progress.fail(s.name, s.pipe.Drain(ctx, s.emitter(ctx, emit, reject)))
}

func (s *stage[I, O]) emitter(ctx context.Context,
	emit func(beam.EventTime, *O), reject func(beam.EventTime, Rejection)) func(outcome[O], error) error {
	return func(o outcome[O], err error) error {
		switch {
		case err != nil:
			return err
		case o.rejected != nil:
			reject(o.time, *o.rejected)
		case o.out != nil:
			emit(o.time, o.out)
		}
		return nil
	}
}

// oneLine is err's text on one line of bounded length.
func oneLine(err error) string {
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	if len(text) > 2000 {
		text = text[:2000] + "…"
	}
	return text
}
