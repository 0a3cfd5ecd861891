package transforms

import (
	"context"
	"testing"

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
