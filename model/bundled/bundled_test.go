package bundled

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

func TestBundled(t *testing.T) {
	w, err := Weights()
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{model.Collapsed, model.Full} {
		if _, classes, err := w.Config.Head(set); err != nil || len(classes) < 3 {
			t.Errorf("label set %s: %d classes, %v", set, len(classes), err)
		}
	}
	var size int64
	entries, err := fs.ReadDir(FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if limit := int64(10 << 20); size > limit {
		t.Errorf("the bundled model has %d bytes, want at most %d", size, limit)
	}
	meta, err := model.LoadMetadata(FS())
	if err != nil {
		t.Fatal(err)
	}
	if meta.Data == "" || meta.Commit == "" || len(meta.Split.Train) == 0 || len(meta.Split.Validation) == 0 {
		t.Error("the metadata do not say what the model was trained on and by which program")
	}
	if len(meta.Temperatures) != 2 || meta.Validation == nil || meta.Validation.Loss > .11 {
		t.Errorf("temperatures %v and the development scores %+v: want one for each head and a loss of 0.11", meta.Temperatures, meta.Validation)
	}
	if meta.Validation == nil || meta.Validation.MacroF1 < .92 {
		t.Errorf("the recorded development score is %v, want a macro-F1 of at least 0.92", meta.Validation)
	}
}

// TestKnown has models of the bundled one's words and of others.
func TestKnown(t *testing.T) {
	for _, c := range []struct {
		classes, full []string
		labels        map[string]string
		want          string // of Nomenclature, Figure, Helix, Key and Shell, those known
	}{
		{[]string{model.Nomenclature}, nil, nil, "Nomenclature Figure Key"},
		{[]string{model.Nomenclature}, []string{"Helix"}, nil, "Nomenclature Figure Helix Key"},
		{[]string{model.Nomenclature}, nil, map[string]string{"Helix": model.Nomenclature}, "Nomenclature Helix"},
		{[]string{"Shell", model.MiscExposition}, []string{"Key"}, nil, "Key Shell"},
	} {
		known := Known(&model.Config{Classes: c.classes, FullClasses: c.full, LabelMap: c.labels})
		var got []string
		for _, l := range []string{"Nomenclature", "Figure", "Helix", "Key", "Shell"} {
			if slices.Contains(known, l) {
				got = append(got, l)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v, %v, %v: knows %v, want %s", c.classes, c.full, c.labels, got, c.want)
		}
	}
	rest := model.Config{Classes: []string{"Shell", "Rest"}, LabelMap: map[string]string{"Helix": "Shell", "*": "Rest"}}
	if known := Known(&rest); known != nil {
		t.Errorf("a map with *: knows %v, want nil: all", known)
	}
}
