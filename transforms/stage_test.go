package transforms

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/internal/pipe"
)

// TestStageEnd fails a bundle while a job of it is at work, and tears it down.
func TestStageEnd(t *testing.T) {
	began := make(chan bool)
	ended := false
	s := newStage("test", ProgressOf(t.Name()), 100, func(ctx context.Context, _ int) (*int, *Rejection, error) {
		close(began)
		<-ctx.Done()
		ended = true
		return nil, nil, ctx.Err()
	}, pipe.NewIO)
	defer ForgetProgress(t.Name())
	s.begin()
	if err := s.push(t.Context(), 0, 1, 1, nil, nil); err != nil {
		t.Fatal(err)
	}
	<-began
	s.end(t.Context())
	if !ended {
		t.Error("the job is at work still")
	}
}

// TestStageShares has two bundles of a stage in hand at once: together they hold no
// more than the limit of the process, and when one ends the next has all of it.
func TestStageShares(t *testing.T) {
	defer ForgetProgress(t.Name())
	release := make(chan struct{})
	newTest := func() *stage[int, int] {
		s := newStage("test", ProgressOf(t.Name()), 100, func(_ context.Context, i int) (*int, *Rejection, error) {
			<-release
			return &i, nil, nil
		}, pipe.NewIO)
		s.begin()
		return &s
	}
	// held pushes elements of 10 bytes until one has to wait, and ends the bundle.
	held := func(s *stage[int, int]) (n int) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for s.pipe.Push(ctx, job[int]{in: n}, 10, func(outcome[int], error) error { return nil }) == nil {
			n++
		}
		return n
	}
	one, two := newTest(), newTest()
	if n := held(two); n != 5 {
		t.Errorf("the second of two bundles holds %d elements, want 5", n)
	}
	close(release)
	emit := func(beam.EventTime, *int) {}
	for _, s := range []*stage[int, int]{one, two} {
		if err := s.drain(t.Context(), emit, nil); err != nil {
			t.Fatal(err)
		}
	}
	release = make(chan struct{})
	three := newTest()
	if n := held(three); n != 10 {
		t.Errorf("a bundle alone holds %d elements, want 10", n)
	}
	close(release)
	if err := three.drain(t.Context(), emit, nil); err != nil {
		t.Fatal(err)
	}
}

// TestStageForgotten loses a stage in the middle of a bundle, as workers do with the
// DoFn instances of one that failed: the next has all of the limit.
func TestStageForgotten(t *testing.T) {
	defer ForgetProgress(t.Name())
	begin := func() {
		s := newStage[int, int]("test", ProgressOf(t.Name()), 100, nil, pipe.NewIO)
		s.begin()
	}
	begin()
	bundles := &ProgressOf(t.Name()).stage("test").bundles
	for end := time.Now().Add(time.Minute); bundles.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bundles have a share of the limit, want none", bundles.Load())
		}
		runtime.GC()
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine(errors.New("a\r\nb\rc\n")); got != "a b c" {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("é", 3000)
	if got := oneLine(errors.New(long)); len(got) > 2003 || !utf8.ValidString(got) || !strings.Contains(got, "…") || !strings.HasSuffix(got, "éé") {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
