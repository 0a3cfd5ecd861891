package transforms

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/input"
)

// A worker that sees no document where the launcher did says what it lacks.
func TestListUnseen(t *testing.T) {
	set := newSet(t, []string{t.TempDir()}, "")
	_, err := runOn("direct", func(s beam.Scope) { List(s, Options{}, set) })
	if want := "a worker elsewhere must reach it by the same name"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A Set that names nothing would list nothing, without a word.
func TestNoSet(t *testing.T) {
	for _, set := range []*input.Set{nil, {}} {
		for name, build := range map[string]func(beam.Scope){
			"List":  func(s beam.Scope) { List(s, Options{}, set) },
			"Watch": func(s beam.Scope) { Watch(s, Options{}, set, time.Second) },
		} {
			func() {
				defer func() {
					if got, want := recover(), "transforms: "+name+": the input.Set is empty; make one with input.New"; got != want {
						t.Errorf("got the panic %v, want %q", got, want)
					}
				}()
				build(beam.NewPipeline().Root())
			}()
		}
	}
}
