package train

import (
	"math/rand/v2"
	"slices"

	"github.com/linnet-ml/linnet/model"
)

// Crop is the lines [First, End) of a document, by its number, and the seed of the
// setting in which they are learnt from.
type Crop struct {
	Document, First, End int
	Setting              uint64
}

// Lines of a crop: from cropLeast on and before cropMost, less where the document ends.
const cropLeast, cropMost = 20, 80

// Crops draws parts of docs, until they have a share of the lines of docs, that
// are to be learnt from as documents of their own. Each begins with a run of lines
// of one class of c, of every class in turn: whole volumes teach that a document
// begins with a title page, and pieces from anywhere that it begins within a run.
// There are at most share times four crops for each cropMost lines of docs: of one whose runs
// begin in its last lines alone, these would else be most of what is learnt from.
// Equal docs and c.Seed give equal crops.
func Crops(docs []Document, c *model.Config, share float64) (crops []Crop) {
	starts := make([][]Crop, len(c.Classes)) // of runs, by class
	lines, most := 0, 0
	for d, doc := range docs {
		lines += len(doc.Labels)
		most += cropMost / cropLeast * ((len(doc.Labels) + cropMost - 1) / cropMost)
		before := -1
		for r, l := range doc.Labels {
			class := c.Class(l)
			if class >= 0 && class != before && r > 0 { // the document itself begins with line 0
				starts[class] = append(starts[class], Crop{Document: d, First: r, End: len(doc.Labels)})
			}
			before = class
		}
	}
	if !slices.ContainsFunc(starts, func(of []Crop) bool { return len(of) > 0 }) {
		return nil
	}
	rnd := rand.New(rand.NewPCG(uint64(c.Seed), streamCrops))
	for class, taken := 0, 0; float64(taken) < share*float64(lines) && float64(len(crops)) < share*float64(most); class = (class + 1) % len(starts) {
		of := starts[class]
		if len(of) == 0 {
			continue
		}
		crop := of[rnd.IntN(len(of))]
		crop.End = min(crop.End, crop.First+cropLeast+rnd.IntN(cropMost-cropLeast))
		crop.Setting = rnd.Uint64()
		taken += crop.End - crop.First
		crops = append(crops, crop)
	}
	return crops
}
