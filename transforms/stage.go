package transforms

import (
	"context"
	"runtime"
	"strings"
	"time"

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
	limit    int64 // bytes in flight, for all bundles of the process together
	do       work[I, O]
	newPipe  maker[I, O]

	pipe   *pipe.Pipe[job[I], outcome[O]]
	inside *held // of a bundle
}

// held is a bundle's share of the limit. Workers drop the DoFn instances of one that
// failed, and call nothing more of them: the share ends with the instance then.
type held struct{ stage *stageProgress }

func (h *held) end() {
	runtime.SetFinalizer(h, nil)
	h.stage.bundles.Add(-1)
}

// work makes an output or a rejection of an element, or neither for one to pass
// over; an error fails the bundle. It is called on many goroutines.
type work[I, O any] func(ctx context.Context, in I) (*O, *Rejection, error)

// maker is pipe.New or pipe.NewIO.
type maker[I, O any] func(int64, func(context.Context, job[I]) (outcome[O], error)) *pipe.Pipe[job[I], outcome[O]]

func newStage[I, O any](name string, p *Progress, limit int64, do work[I, O], newPipe maker[I, O]) stage[I, O] {
	return stage[I, O]{name: name, progress: p, limit: limit, do: do, newPipe: newPipe}
}

// begin is for StartBundle. Some runners have a dozen bundles of a stage in one
// process: each gets a share of the limit.
func (s *stage[I, O]) begin() {
	if s.pipe != nil {
		s.pipe.Reset()
	}
	p := s.progress.stage(s.name)
	if s.inside == nil { // else the bundle before failed
		p.bundles.Add(1)
		s.inside = &held{p}
		runtime.SetFinalizer(s.inside, (*held).end)
	}
	s.pipe = s.newPipe(s.limit/max(p.bundles.Load(), 1), func(ctx context.Context, j job[I]) (outcome[O], error) {
		o := outcome[O]{time: j.time}
		var err error
		begin := time.Now()
		o.out, o.rejected, err = s.do(ctx, j.in)
		p.spent.Add(int64(time.Since(begin)))
		return o, err
	})
}

func (s *stage[I, O]) push(ctx context.Context, t beam.EventTime, in I, size int64,
	emit func(beam.EventTime, *O), reject func(beam.EventTime, Rejection)) error {
	return s.progress.fail(s.name, s.pipe.Push(ctx, job[I]{t, in}, size, s.emitter(emit, reject)))
}

// drain is for FinishBundle.
func (s *stage[I, O]) drain(ctx context.Context,
	emit func(beam.EventTime, *O), reject func(beam.EventTime, Rejection)) error {
	err := s.pipe.Drain(ctx, s.emitter(emit, reject))
	if err == nil {
		s.inside.end()
		s.inside = nil
	}
	return s.progress.fail(s.name, err)
}

// end is for Teardown, which runner direct alone calls after a failure: what the
// bundle had at work is done then. An interrupted program waits for nothing.
func (s *stage[I, O]) end(ctx context.Context) {
	if s.pipe != nil && ctx.Err() == nil {
		s.pipe.Reset()
	}
}

func (s *stage[I, O]) emitter(emit func(beam.EventTime, *O), reject func(beam.EventTime, Rejection)) func(outcome[O], error) error {
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

// oneLine is err's text on one line of bounded length: a long path leaves its
// middle out.
func oneLine(err error) string {
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	if len(text) > 2000 {
		text = strings.ToValidUTF8(text[:1000]+"…"+text[len(text)-1000:], "")
	}
	return text
}
