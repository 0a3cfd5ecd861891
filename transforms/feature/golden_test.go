package feature

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// goldens is where scripts/features.py --goldens writes.
const goldens = "../../testdata/goldens/feature"

type golden struct {
	InputSize int `json:"input_size"`
	Lines     []struct {
		Start, End int
		IDs        [model.Groups][]uint32
		Layout     []float32
	}
}

func readGoldens(t testing.TB) (names []string, texts [][]byte, want []golden) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldens, "*.json"))
	if err != nil || len(files) < 7 {
		t.Fatalf("%d goldens in %s, want 7: %v", len(files), goldens, err)
	}
	for _, file := range files {
		name, _, _ := strings.Cut(filepath.Base(file), "-")
		text, err := os.ReadFile(filepath.Join(goldens, name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var g golden
		if err := json.Unmarshal(data, &g); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
		texts = append(texts, text)
		want = append(want, g)
	}
	return names, texts, want
}

// group returns the ids of group g of line i.
func group(b *model.Batch, i, g int) []uint32 {
	k := i*model.Groups + g
	from := uint32(0)
	if k > 0 {
		from = b.GroupEnd[k-1]
	}
	return b.IDs[from:b.GroupEnd[k]]
}

// The twin in numpy made the goldens: ids are equal, numbers within 1e-5,
// which leaves room for float32 and seven printed digits.
func TestGoldens(t *testing.T) {
	names, texts, want := readGoldens(t)
	for f, name := range names {
		t.Run(name, func(t *testing.T) {
			text, want := texts[f], want[f]
			rows := yedda.Rows(text)
			if len(rows) != len(want.Lines) {
				t.Fatalf("got %d rows, want %d", len(rows), len(want.Lines))
			}
			b := Extract(text, rows, want.InputSize, 1)
			if got := b.NumLines(); got != len(rows) {
				t.Fatalf("got %d lines, want %d", got, len(rows))
			}
			for i, w := range want.Lines {
				if rows[i] != (yedda.Line{Start: w.Start, End: w.End}) {
					t.Fatalf("row %d: got %v, want %d to %d", i, rows[i], w.Start, w.End)
				}
				for g := range model.Groups {
					if got := group(b, i, g); !slices.Equal(got, w.IDs[g]) {
						t.Errorf("row %d %q: group %d: got %v, want %v", i, cut(text, rows[i]), g, got, w.IDs[g])
					}
				}
				if len(w.Layout) != LayoutSize {
					t.Fatalf("row %d: golden has %d numbers, want %d; scripts/features.py makes it", i, len(w.Layout), LayoutSize)
				}
				for k, v := range w.Layout {
					got := b.Layout[i*LayoutSize+k]
					if math.Abs(float64(got-v)) > 1e-5*max(1, math.Abs(float64(v))) {
						t.Errorf("row %d %q: number %d: got %v, want %v", i, cut(text, rows[i]), k, got, v)
					}
				}
			}
		})
	}
}

func cut(text []byte, r yedda.Line) []byte { return text[r.Start:min(r.End, r.Start+60)] }
