// Package feature turns the lines of a document into what the network reads:
// the ids of hashed words, word pairs, affixes and shapes, and LayoutSize numbers a
// line, of layout and document. Training and prediction share it.
//
// Bytes that are no UTF-8 and U+FFFD are left out as if they were not there,
// so what stands on both sides of one joins. A byte order mark ahead of the
// first words is left out, too. Letters, capitals and digits are those of
// Unicode; lower case is the simple mapping, character by character.
// A line may be of any length; its first 512 tokens make the features.
//
// Equal text gives equal features, whatever the number of workers. No input
// makes a number that is not finite. scripts/features.py is an independent
// implementation that makes the goldens.
//
// On x86, assembly finds and hashes the tokens of a line: with AVX-512 on Ice
// Lake, Zen 4 and newer, otherwise with AVX2, but not on Zen 1 and 2, whose PEXT
// is slow. kernel.AVX512 and kernel.AVX2 say where either is turned off. Each
// equals the Go code beside it bit for bit:
//
//   - classifyAVX512 and classifyAVX2: line.classifyASCII
//   - split…: the loop of line.split
//   - look…: that of line.look
//   - hashTokens…: line.hashTokens
//   - sum… and fmix32…: sum and fmix32
//   - edgesAVX2: line.head and line.tail
//   - countBMI2: line.countHead
//
// They take bytes for characters; mendClasses, countRunes and mendAffixes put that
// right in lines beyond ASCII.
package feature

//go:generate go -C _asm run . -out ../feature_amd64.s -stubs ../stub_amd64.go -pkg feature

import (
	"bytes"
	"slices"
	"sync"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

const (
	minPart   = 512      // rows that are worth a goroutine
	maxPooled = 16 << 20 // bytes of scratch that are kept for the next document
)

// Extract returns the features of rows of text, one line of the Batch a row,
// without Windows. text is the whole document: the bytes between two rows are
// its blank lines and form feeds. Ids are below inputSize, the rows of the
// embedding table; it panics where that is below 1 or above 1<<32 - 1. Up to
// workers goroutines share a long document. Extract is safe for concurrent
// use and keeps nothing of its arguments.
func Extract(text []byte, rows []yedda.Line, inputSize, workers int) *model.Batch {
	b := new(model.Batch)
	ExtractTo(b, text, rows, inputSize, workers)
	return b
}

// ExtractTo is Extract into the memory of b, whatever b holds.
func ExtractTo(b *model.Batch, text []byte, rows []yedda.Line, inputSize, workers int) {
	checkInputSize(inputSize)
	e := pool.Get().(*extractor)
	e.extract(b, text, rows, inputSize, min(workers, len(rows)/minPart))
	if e.size() <= maxPooled {
		pool.Put(e)
	}
}

func checkInputSize(n int) {
	if n < 1 || int64(n) > 1<<32-1 {
		panic("feature: input size out of range")
	}
}

// extractor is the memory that Extract works in.
type extractor struct {
	doc   document
	spare []*part
}

var pool = sync.Pool{New: func() any { return new(extractor) }}

func (e *extractor) extract(b *model.Batch, text []byte, rows []yedda.Line, inputSize, workers int) {
	n := len(rows)
	b.Reset()
	if n == 0 {
		return
	}
	b.GroupEnd = grow(b.GroupEnd, n*model.Groups)
	b.GroupScale = grow(b.GroupScale, n*model.Groups)
	b.Layout = grow(b.Layout, n*LayoutSize)

	e.doc.rows = grow(e.doc.rows, n)
	workers = max(1, workers)
	for len(e.spare) < workers {
		e.spare = append(e.spare, new(part))
	}
	e.doc.divide(rows, e.spare[:workers])
	parts := e.doc.parts
	// A part by itself writes its ids where they belong, if there is memory.
	lent := len(parts) == 1 && cap(b.IDs) > 0
	if lent {
		parts[0].ids, b.IDs = b.IDs, parts[0].ids
	}
	each(parts, func(p *part) { p.read(text, rows, e.doc.rows, b, uint32(inputSize)) })
	e.doc.count(e.doc.room())
	each(parts, func(p *part) { e.doc.countSmall(p) })
	each(parts, func(p *part) { e.doc.writeLayout(b.Layout[p.first*LayoutSize:], p.first, p.end) })
	if lent {
		parts[0].ids, b.IDs = b.IDs, parts[0].ids
	} else {
		e.join(b)
	}
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// size is about how many bytes e holds.
func (e *extractor) size() int {
	n := 48*cap(e.doc.rows) + 8*cap(e.doc.keys) + 16*cap(e.doc.words) + 16*cap(e.doc.lines)
	for _, p := range e.spare {
		n += 4*cap(p.ids) + 8*cap(p.words) + 8*cap(p.genera) + cap(p.line.low) + cap(p.line.buf) + 40*cap(p.line.masks)
	}
	return n
}

// divide gives the parts about equally many bytes each.
func (d *document) divide(rows []yedda.Line, parts []*part) {
	d.parts = parts
	from, end := rows[0].Start, rows[len(rows)-1].End
	i := 0
	for k, p := range parts {
		p.first = i
		border := from + int(float64(end-from)*float64(k+1)/float64(len(parts)))
		for i < len(rows) && rows[i].Start < border {
			i++
		}
		if k == len(parts)-1 {
			i = len(rows)
		}
		p.end = i
	}
}

// each calls f for every part, at once where there are several.
func each(parts []*part, f func(p *part)) {
	if len(parts) == 1 {
		f(parts[0])
		return
	}
	var wait sync.WaitGroup
	for _, p := range parts {
		wait.Go(func() { f(p) })
	}
	wait.Wait()
}

// read takes the rows of p apart: all that a line says alone. Group ends
// count from the part's first id.
//
// Without b it keeps only what the document counts.
func (p *part) read(text []byte, rows []yedda.Line, facts []row, b *model.Batch, inputSize uint32) {
	p.ids, p.words, p.genera = p.ids[:0], p.words[:0], p.genera[:0]
	var ends []uint32
	var scales []float32
	if b != nil {
		ends = b.GroupEnd[p.first*model.Groups : p.first*model.Groups]
		scales = b.GroupScale[p.first*model.Groups : p.first*model.Groups]
	}
	l, m := &p.line, new(marks)
	for i := p.first; i < p.end; i++ {
		l.read(lineOf(text, rows[i]))
		if b != nil {
			p.ids, ends, scales = l.appendIDs(p.ids, ends, scales, inputSize)
			p.words, p.genera = l.find(m, p.words, p.genera)
			l.writeLayout(m, b.Layout[i*LayoutSize:])
		} else {
			p.words, p.genera = l.find(m, p.words, p.genera)
			p.fold(foldWords)
		}
		// Field by field: a copy would have to wait for the single numbers.
		r := &facts[i]
		r.norm, r.hasNorm = m.norm, m.norm != 0
		r.first, r.hasFirst = m.first, m.first != 0
		r.generaEnd = uint32(len(p.genera))
		r.length, r.width, r.indent = int32(l.length), int32(l.indent+l.length), int32(l.indent)
		r.blank, r.feed = gap(text, rows, i)
		r.feed = r.feed || l.feed
		r.novelty = m.novelty
	}
	l.orig = nil // it is part of text, and p outlives it
}

// lineOf is a row of text, up to whose end memory may be read, without the byte
// order mark that the text begins with, unless the row has nothing else.
func lineOf(text []byte, row yedda.Line) []byte {
	line := text[row.Start:row.End:len(text)]
	if row.Start == 0 {
		if rest := bytes.TrimPrefix(line, []byte("\ufeff")); !yedda.Blank(rest) {
			return rest
		}
	}
	return line
}

// join puts the ids of the parts together.
func (e *extractor) join(b *model.Batch) {
	if len(e.doc.parts) == 1 {
		b.IDs = slices.Clone(e.doc.parts[0].ids)
		return
	}
	n := 0
	for _, p := range e.doc.parts {
		n += len(p.ids)
	}
	b.IDs = grow(b.IDs, n)
	at := 0
	for _, p := range e.doc.parts {
		copy(b.IDs[at:], p.ids)
		if at > 0 {
			for i := p.first * model.Groups; i < p.end*model.Groups; i++ {
				b.GroupEnd[i] += uint32(at)
			}
		}
		at += len(p.ids)
	}
}
