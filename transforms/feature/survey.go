package feature

import (
	"sync"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Survey is a long document whose features are made a few lines at a time.
// Those of all its lines would take some 500 bytes each; a Survey takes about
// 100. It reads the text twice, which costs a third of Extract's time more.
type Survey struct {
	text      []byte
	rows      []yedda.Line
	inputSize uint32
	doc       document
}

// NewSurvey surveys a document; the arguments are those of Extract. The Survey
// keeps text and rows, which must not change.
func NewSurvey(text []byte, rows []yedda.Line, inputSize, workers int) *Survey {
	checkInputSize(inputSize)
	s := &Survey{text: text, rows: rows, inputSize: uint32(inputSize)}
	if len(rows) == 0 {
		return s
	}
	d := &s.doc
	d.rows = make([]row, len(rows))
	parts := make([]*part, max(1, min(workers, len(rows)/minPart)))
	for i := range parts {
		parts[i] = new(part)
	}
	d.divide(rows, parts)
	each(parts, func(p *part) { p.read(text, rows, d.rows, nil, s.inputSize); p.fold(0) })
	d.count(d.distinct())
	d.lines = nil
	each(parts, func(p *part) {
		d.countSmall(p)
		*p = part{first: p.first, end: p.end, genera: p.genera}
	})
	return s
}

// NumLines is the number of the document's rows.
func (s *Survey) NumLines() int { return len(s.rows) }

var linePool = sync.Pool{New: func() any { return new(line) }}

// ExtractTo makes the features of rows [first, first+n), just as Extract of the
// whole document has them, in the memory of b, whatever b holds. It is safe for
// concurrent use.
func (s *Survey) ExtractTo(b *model.Batch, first, n int) {
	b.Reset()
	b.GroupEnd = grow(b.GroupEnd, n*model.Groups)[:0]
	b.GroupScale = grow(b.GroupScale, n*model.Groups)[:0]
	b.Layout = grow(b.Layout, n*LayoutSize)
	b.IDs = grow(b.IDs, n*idsPerLine)[:0]
	l := linePool.Get().(*line)
	defer linePool.Put(l)
	var m marks
	var words, genera []uint64
	for i := range n {
		l.read(lineOf(s.text, s.rows[first+i]))
		b.IDs, b.GroupEnd, b.GroupScale = l.appendIDs(b.IDs, b.GroupEnd, b.GroupScale, s.inputSize)
		words, genera = l.find(&m, words[:0], genera[:0])
		l.writeLayout(&m, b.Layout[i*LayoutSize:])
	}
	l.orig = nil // it is part of the text
	s.doc.writeLayout(b.Layout, first, first+n)
}

// idsPerLine is about how many ids a line has.
const idsPerLine = 64

// foldWords is the number of words from which a part of a Survey counts them.
var foldWords = 1 << 20

// fold counts the words of p, where there are more than so many, and drops them.
func (p *part) fold(from int) {
	if len(p.words) <= from {
		return
	}
	if p.small == nil {
		p.small = map[uint64]uint32{}
	}
	for _, key := range p.words {
		p.small[key]++
	}
	p.words = p.words[:0]
}

// distinct is the number of distinct keys of words and of lines: few beside the
// rows, where a document is long.
func (d *document) distinct() (words, lines int) {
	seen := map[uint64]struct{}{}
	for i := range d.rows {
		if r := &d.rows[i]; r.hasFirst {
			seen[r.first] = struct{}{}
		}
	}
	for _, p := range d.parts {
		for _, key := range p.genera {
			seen[key] = struct{}{}
		}
	}
	words = len(seen)
	seen = map[uint64]struct{}{}
	for i := range d.rows {
		if r := &d.rows[i]; r.hasNorm {
			seen[r.norm] = struct{}{}
		}
	}
	return words, len(seen)
}
