package eval

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// The figures below were worked out by hand from this matrix (rows are gold):
//
//	    N  D  M  none
//	N   6  1  2  1     gold 10
//	D   0 16  4  0     gold 20
//	M   2  3 65  0     gold 70
func counted() *Counts {
	c := NewCounts([]string{"N", "D", "M"})
	c.Add(0, 0, 6)
	c.Add(0, 1, 1)
	c.Add(0, 2, 2)
	c.Add(0, -1, 1)
	c.Add(1, 1, 16)
	c.Add(1, 2, 4)
	c.Add(2, 0, 2)
	c.Add(2, 1, 3)
	c.Add(2, 2, 65)
	c.Add(-1, 1, 9) // no gold: not counted
	return c
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12 {
		t.Errorf("%s: got %.15f, want %.15f", what, got, want)
	}
}

func TestReport(t *testing.T) {
	r := counted().Report()
	if r.Lines != 100 {
		t.Errorf("lines: got %d, want 100", r.Lines)
	}
	near(t, "accuracy", r.Accuracy, 0.87)
	near(t, "N precision", r.Classes[0].Precision, 6./8)
	near(t, "N recall", r.Classes[0].Recall, 6./10)
	near(t, "N F1", r.Classes[0].F1, 2./3)
	near(t, "D precision", r.Classes[1].Precision, 16./20)
	near(t, "D recall", r.Classes[1].Recall, 16./20)
	near(t, "D F1", r.Classes[1].F1, .8)
	near(t, "M precision", r.Classes[2].Precision, 65./71)
	near(t, "M recall", r.Classes[2].Recall, 65./70)
	near(t, "M F1", r.Classes[2].F1, 130./141)
	near(t, "macro precision", r.MacroPrecision, (.75+.8+65./71)/3)
	near(t, "macro recall", r.MacroRecall, (.6+.8+65./70)/3)
	near(t, "macro F1", r.MacroF1, (2./3+.8+130./141)/3)
	near(t, "micro precision", r.MicroPrecision, 87./99)
	near(t, "micro recall", r.MicroRecall, .87)
	near(t, "micro F1", r.MicroF1, 174./199)
	if want := [][]int64{{6, 1, 2}, {0, 16, 4}, {2, 3, 65}}; !reflect.DeepEqual(r.Confusion, want) {
		t.Errorf("confusion: got %v, want %v", r.Confusion, want)
	}
	if got := r.Classes[0]; got.Gold != 10 || got.Predicted != 8 || got.Correct != 6 || got.Class != "N" {
		t.Errorf("counts of N: got %+v", got)
	}
}

// A class without gold lines has a precision of 0 but no part in the macro
// averages; nothing at all gives zeros, never NaN.
func TestReportWithoutGold(t *testing.T) {
	c := NewCounts([]string{"a", "b", "never"})
	c.Add(0, 0, 1)
	c.Add(1, 2, 1)
	r := c.Report()
	near(t, "macro F1", r.MacroF1, .5)
	near(t, "accuracy", r.Accuracy, .5)
	if got := r.Classes[2]; got.Predicted != 1 || got.F1 != 0 {
		t.Errorf("class without gold: got %+v", got)
	}
	if _, err := json.Marshal(NewCounts([]string{"a"}).Report()); err != nil {
		t.Errorf("report of nothing: %v", err)
	}
}

// Parts merged in any order give the report of the whole.
func TestMerge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	whole := NewCounts([]string{"a", "b", "c", "d"})
	parts := make([]*Counts, 5)
	for i := range parts {
		parts[i] = NewCounts(whole.Classes)
	}
	for range 1000 {
		gold, pred := rnd.IntN(5)-1, rnd.IntN(5)-1
		whole.Add(gold, pred, 1)
		parts[rnd.IntN(len(parts))].Add(gold, pred, 1)
	}
	merged := NewCounts(whole.Classes)
	for _, i := range rnd.Perm(len(parts)) {
		merged.Merge(parts[i])
	}
	if got, want := merged.Report(), whole.Report(); !reflect.DeepEqual(got, want) {
		t.Errorf("merged: got %+v, want %+v", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("merge of other classes did not panic")
		}
	}()
	merged.Merge(NewCounts([]string{"a"}))
}

// A prediction of a class too many counted as one of the next gold class.
func TestAddBeyondClasses(t *testing.T) {
	c := NewCounts([]string{"a", "b"})
	defer func() {
		if recover() == nil {
			t.Errorf("prediction 2 of 2 classes did not panic; counts %v", c.N)
		}
	}()
	c.Add(0, 2, 1)
}

func TestReportJSON(t *testing.T) {
	b, err := json.Marshal(counted().Report())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"macro_f1":`, `"class":"N"`, `"confusion":[[6,1,2],`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("JSON lacks %s: %s", want, b)
		}
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(&back, counted().Report()) {
		t.Errorf("JSON does not come back: %v", err)
	}
}
