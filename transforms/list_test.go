package transforms

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/beamtest"
)

// A worker that sees no document where the launcher did says what it lacks.
func TestListUnseen(t *testing.T) {
	set := newSet(t, []string{t.TempDir()}, "")
	_, err := runOn("direct", func(s beam.Scope) { List(s, Options{}, set) })
	if want := "a worker elsewhere must reach it by the same name"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestListBegun has another run begin below the input, after the launcher looked there:
// none of its outputs is listed, though the manifest's name comes behind theirs.
func TestListBegun(t *testing.T) {
	dir := write(t, map[string]string{"a.txt": "a\n", "b/c.txt": "c\n",
		"other/0.txt.ann": "", "other/1.txt": "", "other/_manifest.jsonl": "", "other/sub/d.txt.ann": "", "other/sub/brat/d.txt": ""})
	if _, err := runOn("direct", func(s beam.Scope) {
		collect(s, t.Name(), List(s, Options{}, newSet(t, []string{dir}, "")))
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, path := range gather[[]byte](t.Name()) {
		got = append(got, string(path))
	}
	slices.Sort(got)
	equal(t, "listed", fmt.Sprint(got), fmt.Sprint([]string{filepath.Join(dir, "a.txt"), filepath.Join(dir, "b", "c.txt")}))
}

// A Set that names nothing would list nothing, without a word.
func TestNoSet(t *testing.T) {
	for _, set := range []*input.Set{nil, {}} {
		for name, build := range map[string]func(beam.Scope){
			"List":  func(s beam.Scope) { List(s, Options{}, set) },
			"Watch": func(s beam.Scope) { Watch(s, Options{}, set, time.Second) },
		} {
			if got, want := beamtest.PanicOf(build), "transforms: "+name+": the input.Set is empty; make one with input.New"; got != want {
				t.Errorf("got the panic %q, want %q", got, want)
			}
		}
	}
}
