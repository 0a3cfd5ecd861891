package feature

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// TestSurvey compares the features of ranges of rows with those of the whole
// document.
func TestSurvey(t *testing.T) {
	defer func(n int) { foldWords = n }(foldWords)
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		foldWords = []int{0, 10, 1 << 20}[seed%3]
		text := randomText(r, 3+r.IntN(30000), 20)
		text = bytes.ReplaceAll(text, []byte("muscaria"), []byte("amanita")) // a first word's use in small letters
		rows := yedda.Rows(text)
		whole := extract(text, rows, 1<<16, 1)
		s := NewSurvey(text, rows, 1<<16, 1+r.IntN(4))
		if s.NumLines() != len(rows) {
			t.Fatalf("%d lines, want %d", s.NumLines(), len(rows))
		}
		for range 20 {
			first := r.IntN(len(rows) + 1)
			n := r.IntN(len(rows) - first + 1)
			want := new(model.Batch)
			want.AppendLines(whole, first, n)
			got := new(model.Batch)
			s.ExtractTo(got, first, n)
			same(t, got, want, fmt.Sprintf("seed %d, rows %d to %d of %d", seed, first, first+n, len(rows)))
		}
		got := new(model.Batch)
		s.ExtractTo(got, 0, len(rows))
		same(t, got, whole, "all rows")
	}
	if n := NewSurvey(nil, nil, 10, 4).NumLines(); n != 0 {
		t.Errorf("no text has %d lines", n)
	}
}
