package train

import (
	"slices"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

// TestCrops checks where crops begin, how long they are and how many there are.
func TestCrops(t *testing.T) {
	c := model.DefaultConfig()
	runs := func(names ...string) (labels []string) { // of 30 lines
		for _, name := range names {
			labels = append(labels, slices.Repeat([]string{name}, 30)...)
		}
		return labels
	}
	docs := []Document{
		{Labels: runs("Misc-exposition", "Nomenclature", "Description", "Key", "", "Description", "Misc-exposition")},
		{Labels: runs("Nomenclature", "Description", "Nomenclature")[:80]},
		{Labels: runs("", "")},
		{},
	}
	const lines, share = 7*30 + 80 + 60, 3
	crops := Crops(docs, &c, share)
	taken, first := 0, make([]int, len(c.Classes))
	for i, crop := range crops {
		labels := docs[crop.Document].Labels
		n := crop.End - crop.First
		if crop.First < 1 || crop.End > len(labels) || n > 79 || n < 20 && crop.End < len(labels) {
			t.Fatalf("crop %+v of %d lines", crop, len(labels))
		}
		class := c.Class(labels[crop.First])
		if class != i%len(c.Classes) || class == c.Class(labels[crop.First-1]) {
			t.Fatalf("crop %d, %+v, begins with class %d behind class %d", i, crop, class, c.Class(labels[crop.First-1]))
		}
		first[class]++
		taken += n
	}
	if taken < share*lines || taken-79 >= share*lines {
		t.Errorf("%d lines, want %d and at most a crop more", taken, share*lines)
	}
	if !slices.Equal(crops, Crops(docs, &c, share)) {
		t.Error("the same seed gives other crops")
	}
	c.Seed++
	if slices.Equal(crops, Crops(docs, &c, share)) {
		t.Error("another seed gives the same crops")
	}
	for name, docs := range map[string][]Document{"no change": {{Labels: runs("Key")}, {Labels: runs("")}}, "no document": nil} {
		if got := Crops(docs, &c, share); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	// A class that nothing begins with has no turn.
	two := Crops([]Document{{Labels: runs("Key", "Description", "Key")}}, &c, share)
	for i, crop := range two {
		if want := []int{30, 60}[i%2]; crop.First != want {
			t.Fatalf("crop %d of two classes, %+v, begins with line %d, want %d", i, crop, crop.First, want)
		}
	}
	if len(two) == 0 {
		t.Error("no crop of two classes")
	}
	// Where only a last line begins a run, that line is not most of the documents.
	tail := Document{Labels: append(slices.Repeat([]string{"Key"}, 800), "Description")}
	if got := Crops([]Document{tail, tail}, &c, 0.5); len(got) != 44 {
		t.Errorf("%d crops of a line, want 44", len(got))
	}
	if got := Crops(docs, &c, 0); len(got) != 0 {
		t.Errorf("a share of 0: %v", got)
	}
}
