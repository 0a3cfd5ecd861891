package transforms

import (
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
)

// A worker that sees no document where the launcher did says what it lacks.
func TestListUnseen(t *testing.T) {
	set := newSet(t, []string{t.TempDir()}, "")
	_, err := runOn("direct", func(s beam.Scope) { List(s, Options{}, set) })
	if want := "a worker elsewhere must reach it by the same name"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
