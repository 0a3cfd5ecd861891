package model

import "fmt"

// Groups is the number of groups that a line's feature ids fall into: words,
// word pairs, affixes, and first, last and shape.
const Groups = 4

// ContextWindow is a run of neighbouring lines of a Batch that is labelled as
// one sequence.
type ContextWindow struct {
	First, Len int // in lines of the Batch
}

// Batch is what a Scorer scores: the features of some lines, in compressed
// sparse rows, and the windows over them. A line is summed once, however many
// windows hold it. A Batch must not change while it is scored.
type Batch struct {
	// IDs are rows of the embedding table, line by line, group by group.
	IDs []uint32
	// GroupEnd[l*Groups+g] is the end in IDs of group g of line l; a group
	// begins where the one before it ends.
	GroupEnd []uint32
	// GroupScale[l*Groups+g] weighs the rows of group g of line l: 1/√n of
	// its n ids (0 for none).
	GroupScale []float32
	// Layout is [lines, LayoutSize]: the dense features, of a line's layout and of
	// the document around it, not yet standardised; a Scorer does that with the
	// model's means and standard deviations.
	Layout []float32
	// Windows lie anywhere over the lines and may overlap.
	Windows []ContextWindow
}

// NumLines is the number of lines whose features the batch holds.
func (b *Batch) NumLines() int { return len(b.GroupEnd) / Groups }

// NumSteps is the number of rows of probabilities that Score writes: the
// lengths of the windows together.
func (b *Batch) NumSteps() int {
	n := 0
	for _, w := range b.Windows {
		n += w.Len
	}
	return n
}

// FirstID is where the ids of line l begin in IDs.
func (b *Batch) FirstID(l int) uint32 {
	if l == 0 {
		return 0
	}
	return b.GroupEnd[l*Groups-1]
}

// Check reports groups, layout numbers or windows that are not those of one
// batch of lines, each with layoutSize numbers. It does not look at the ids.
func (b *Batch) Check(layoutSize int) error {
	lines := b.NumLines()
	if len(b.GroupEnd)%Groups != 0 || len(b.GroupScale) != len(b.GroupEnd) {
		return fmt.Errorf("batch: %d ends and %d scales of groups; there must be %d of each a line",
			len(b.GroupEnd), len(b.GroupScale), Groups)
	}
	if len(b.Layout) != lines*layoutSize {
		return fmt.Errorf("batch: %d layout numbers for %d lines; the model has %d a line: make the features of its version",
			len(b.Layout), lines, layoutSize)
	}
	for i, w := range b.Windows {
		if w.First < 0 || w.Len < 0 || w.First > lines || w.Len > lines-w.First {
			return fmt.Errorf("batch: window %d: lines %d to %d of %d; it must lie among them", i, w.First, w.First+w.Len, lines)
		}
	}
	return nil
}

// CheckAll is Check, and reports ids that are none of a table of inputSize rows, groups
// of them that do not follow each other, and numbers that are not finite.
func (b *Batch) CheckAll(layoutSize, inputSize int) error {
	if err := b.Check(layoutSize); err != nil {
		return err
	}
	at := uint32(0)
	for g, end := range b.GroupEnd {
		if end < at || int64(end) > int64(len(b.IDs)) {
			return fmt.Errorf("line %d: a group of ids ends at %d; it must be from %d to %d", g/Groups+1, end, at, len(b.IDs))
		}
		at = end
		if v := b.GroupScale[g]; v-v != 0 {
			return fmt.Errorf("line %d: the scale of a group is %v; it must be finite", g/Groups+1, v)
		}
	}
	for _, id := range b.IDs {
		if int64(id) >= int64(inputSize) {
			return fmt.Errorf("id %d, but input_size is %d; extract its features again", id, inputSize)
		}
	}
	for i, v := range b.Layout {
		if v-v != 0 {
			return fmt.Errorf("line %d: layout number %d is %v; it must be finite", i/layoutSize+1, i%layoutSize+1, v)
		}
	}
	return nil
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() {
	b.IDs, b.GroupEnd, b.GroupScale = b.IDs[:0], b.GroupEnd[:0], b.GroupScale[:0]
	b.Layout, b.Windows = b.Layout[:0], b.Windows[:0]
}

// AppendLines copies lines [first, first+n) of src behind those of b and
// returns the index of the first of them in b. Windows are not copied.
func (b *Batch) AppendLines(src *Batch, first, n int) int {
	at := b.NumLines()
	if n == 0 {
		return at
	}
	layout := len(src.Layout) / src.NumLines() // before b grows, which may be src
	from, to := src.FirstID(first), src.FirstID(first+n)
	shift := uint32(len(b.IDs)) - from // wraps around, as does the sum below
	b.IDs = append(b.IDs, src.IDs[from:to]...)
	for _, e := range src.GroupEnd[first*Groups : (first+n)*Groups] {
		b.GroupEnd = append(b.GroupEnd, e+shift)
	}
	b.GroupScale = append(b.GroupScale, src.GroupScale[first*Groups:(first+n)*Groups]...)
	b.Layout = append(b.Layout, src.Layout[first*layout:(first+n)*layout]...)
	return at
}
