package feature

import (
	"math/bits"
	"sync/atomic"
	"unicode/utf8"

	"github.com/linnet-ml/linnet/transforms/yedda"
)

// row is what the features of the document need to know of a line.
type row struct {
	norm      uint64 // key, then slot in document.lines, then how many rows have it
	first     uint64 // key, then slot in document.words
	generaEnd uint32 // in part.genera
	length    int32  // characters
	width     int32  // indent and characters
	indent    int32  // columns
	blank     int32  // blank lines before it
	feed      bool   // a form feed before it
	hasNorm   bool
	hasFirst  bool
	novelty   bool
}

// part is a range of rows that one worker takes apart, with the worker's
// memory.
type part struct {
	first, end int // rows
	line       line
	ids        []uint32
	words      []uint64          // keys of words in small letters
	small      map[uint64]uint32 // and how often they were there before, see fold
	genera     []uint64          // keys of genera row by row, then their slots
}

// wordCounts are counts of one word over a document.
type wordCounts struct {
	first uint32 // lines that begin with it, capitalised
	genus uint32 // lines that have it as a genus
	small uint32 // its uses in small letters
	novel bool   // a genus on or above a line of novelty
}

// lineCount counts the lines of one norm.
type lineCount struct {
	key uint64
	n   uint32
}

// document counts what repeats in a document. Both tables are open-addressing
// with linear probing, and have slots that stay empty. Keys of words stand by
// themselves, near each other, since most words that are looked up are not there.
type document struct {
	rows       []row
	parts      []*part
	keys       []uint64     // of words, 0 for none
	words      []wordCounts // by slot of keys; what stands where there is none means nothing
	lines      []lineCount
	widths     [percentileCap + 1]uint32
	percentile float64 // the 85th of the widths, at least 20
}

// gap looks at the bytes between row i and the one before it: how many blank
// lines there are, and whether a form feed. The form feed may also stand in
// the white space at the end of the row before. A document begins as it ends,
// as if behind a page of its own.
func gap(text []byte, rows []yedda.Line, i int) (blank int32, feed bool) {
	if i == 0 {
		return 3, true
	}
	above := rows[i-1]
	end := min(above.End, rows[i].Start)
	if end+1 == rows[i].Start && text[end] == '\n' && end > above.Start {
		if c := text[end-1]; ' ' < c && c < utf8.RuneSelf {
			return 0, false // as is most often
		}
	}
	for _, c := range text[end:rows[i].Start] {
		switch c {
		case '\n':
			blank++
		case '\f':
			feed = true
		}
	}
	for end > above.Start && !feed {
		if c := text[end-1]; ' ' < c && c < utf8.RuneSelf {
			break
		}
		r, size := utf8.DecodeLastRune(text[above.Start:end])
		if r != utf8.RuneError && infoOf(r).class != space {
			break
		}
		feed = r == '\f'
		end -= size
	}
	return max(0, blank-1), feed
}

// slots returns table with more than twice n empty slots, a power of two.
func slots[T any](table []T, n int) []T {
	table = grow(table, 1<<bits.Len(uint(2*n)))
	// New memory, too: a page that is read before it is written to is faulted twice,
	// and the second fault interrupts the other cores.
	clear(table)
	return table
}

func (d *document) wordSlot(key uint64) uint64 {
	mask := uint64(len(d.keys) - 1)
	i := key >> 20 & mask
	for d.keys[i] != key && d.keys[i] != 0 {
		i = (i + 1) & mask
	}
	return i
}

// addWord is wordSlot of a word that is in the table from then on.
func (d *document) addWord(key uint64) uint64 {
	s := d.wordSlot(key)
	if d.keys[s] == 0 {
		d.keys[s], d.words[s] = key, wordCounts{}
	}
	return s
}

// room is how many words and lines to make the tables for. Of the words that can be
// distinct it is five eighths: most are there again and again, and the slots, more than
// twice as many, hold even all.
func (d *document) room() (words, lines int) {
	words = len(d.rows)
	for _, p := range d.parts {
		words += len(p.genera)
	}
	return words*5/8 + 1, len(d.rows)
}

// count fills the tables, which get room for so many keys, all but the uses in
// small letters. It replaces keys by slots, and those of lines by their counts.
func (d *document) count(words, lines int) {
	d.keys = slots(d.keys, words)
	d.words = grow(d.words, len(d.keys))
	d.lines = slots(d.lines, lines)
	lineMask := uint64(len(d.lines) - 1)
	for _, p := range d.parts {
		for i := p.first; i < p.end; i++ {
			r := &d.rows[i]
			if r.hasNorm {
				s := r.norm >> 20 & lineMask
				for d.lines[s].key != r.norm && d.lines[s].key != 0 {
					s = (s + 1) & lineMask
				}
				d.lines[s].key = r.norm
				d.lines[s].n++
				r.norm = s
			}
			if r.hasFirst {
				s := d.addWord(r.first)
				d.words[s].first++
				r.first = s
			}
		}
		for i, key := range p.genera {
			s := d.addWord(key)
			d.words[s].genus++
			p.genera[i] = s
		}
	}
	for i := range d.rows { // in a loop of its own, so that cache misses overlap
		if r := &d.rows[i]; r.hasNorm {
			r.norm = uint64(d.lines[r.norm].n)
		}
	}
	var above []uint64 // slots of the genera of the row above
	for _, p := range d.parts {
		for i := p.first; i < p.end; i++ {
			own := p.generaOf(d.rows, i)
			if d.rows[i].novelty {
				for _, s := range above {
					d.words[s].novel = true
				}
				for _, s := range own {
					d.words[s].novel = true
				}
			}
			above = own
		}
	}
	d.measure()
}

// generaOf returns the part of p.genera that belongs to row i.
func (p *part) generaOf(rows []row, i int) []uint64 {
	from := uint32(0)
	if i > p.first {
		from = rows[i-1].generaEnd
	}
	return p.genera[from:rows[i].generaEnd]
}

// countSmall counts the words of p in small letters, as far as the table has
// them. Several parts may be counted at once.
//
// Whether the table has a word is unpredictable, so no branch depends on it: the words
// that are there are gathered, and so are the few whose slot holds another.
func (d *document) countSmall(p *part) {
	mask := uint64(len(d.keys) - 1)
	var there, taken [64]uint64 // slots; keys
	for words := p.words; len(words) > 0; {
		n := min(len(words), len(there))
		numThere, numTaken := uint64(0), uint64(0)
		for _, key := range words[:n] {
			s := key >> 20 & mask
			k := d.keys[s]
			there[numThere&63], taken[numTaken&63] = s, key
			numThere += one(k == key)
			numTaken += one(k != key) & one(k != 0)
		}
		for _, s := range there[:numThere] {
			d.addSmallAt(s, 1)
		}
		for _, key := range taken[:numTaken] {
			d.addSmall(key, 1)
		}
		words = words[n:]
	}
	for key, n := range p.small {
		d.addSmall(key, n)
	}
}

// addSmall counts n uses of a word in small letters, if the table has it.
func (d *document) addSmall(key uint64, n uint32) {
	if s := d.wordSlot(key); d.keys[s] == key {
		d.addSmallAt(s, n)
	}
}

// addSmallAt is addSmall of the word in a slot.
func (d *document) addSmallAt(slot uint64, n uint32) {
	if small := &d.words[slot].small; len(d.parts) == 1 {
		*small += n
	} else {
		atomic.AddUint32(small, n)
	}
}

// measure finds the 85th percentile of the widths, between ranks linearly.
func (d *document) measure() {
	clear(d.widths[:])
	for i := range d.rows {
		d.widths[min(d.rows[i].width, percentileCap)]++
	}
	rank := .85 * float64(len(d.rows)-1)
	low := int(rank)
	below, above := -1, -1
	seen := 0
	for w, n := range d.widths {
		seen += int(n)
		if below < 0 && seen > low {
			below = w
		}
		if seen > low+1 || seen == len(d.rows) {
			above = w
			break
		}
	}
	d.percentile = max(20, float64(below)+(rank-float64(low))*float64(above-below))
}

// writeLayout writes the features of rows [from, to) that depend on other rows to
// layout, [to−from, LayoutSize].
func (d *document) writeLayout(layout []float32, from, to int) {
	n := len(d.rows)
	scale := 1 / d.percentile
	if from == to {
		return
	}
	// What stands around the document is as wide as its first and last row.
	first, last := row{width: d.rows[0].width}, row{width: d.rows[n-1].width, blank: 3, feed: true}
	part := 0
	// Distances to form feeds count to 60, so a look that far is enough.
	since, next := from, from
	for since > 0 && since > from-60 && !d.rows[since].feed {
		since--
	}
	for i := from; i < to; i++ {
		if (i-from)%64 == 0 {
			d.writeFirstWords(layout[(i-from)*LayoutSize:], i, min(i+64, to))
		}
		for i >= d.parts[part].end {
			part++
		}
		r := &d.rows[i]
		if next == i {
			next++
			for next < min(n, to+60) && !d.rows[next].feed {
				next++
			}
		}
		o := layout[(i-from)*LayoutSize:][:LayoutSize]
		o[relLength] = float32(float64(max(1, r.length)) * scale)
		o[blankBefore] = float32(min(r.blank, 1))
		o[blanksBefore] = float32(min(r.blank, 3)) / 3
		o[feedBefore] = flag(r.feed)
		above, below := &first, &last
		if i > 0 {
			above = &d.rows[i-1]
		}
		if i+1 < n {
			below = &d.rows[i+1]
		}
		o[blankAfter] = float32(min(below.blank, 1))
		o[blanksAfter] = float32(min(below.blank, 3)) / 3
		o[feedAfter] = flag(below.feed)
		o[place] = float32(float64(i) / float64(n))
		o[early] = float32(min(i, 60)) / 60

		if r.feed {
			since = i
		}
		o[sinceFeed] = float32(min(i-since, 60)) / 60
		o[afterFeed] = flag(i-since < 3)
		o[tillFeed] = float32(min(next-i, 60)) / 60
		o[beforeFeed] = flag(next-i <= 2)
		o[widerAbove] = float32(float64(r.width-above.width) * scale)
		o[widerBelow] = float32(float64(r.width-below.width) * scale)
		o[deeperAbove] = float32(min(max(r.indent-above.indent, -20), 20)) / 10
		o[deeperBelow] = float32(min(max(r.indent-below.indent, -20), 20)) / 10

		if r.hasNorm {
			o[repeats] = log1p(int(r.norm) - 1)
			o[repeated] = flag(r.norm >= 3)
		}
		genera := d.parts[part].generaOf(d.rows, i)
		most, novel := uint32(0), false
		for _, s := range genera {
			most = max(most, d.words[s].genus)
			novel = novel || d.words[s].novel
		}
		o[genusCount] = log1p(int(most))
		o[genusNovel] = flag(novel)
		o[generaOnLine] = float32(len(genera))
	}
}

// writeFirstWords writes the features of the first words of rows [from, to), in a loop of
// its own so that the cache misses of its table overlap.
func (d *document) writeFirstWords(layout []float32, from, to int) {
	for i := range d.rows[from:to] {
		if r := &d.rows[from+i]; r.hasFirst {
			o := layout[i*LayoutSize:][:LayoutSize]
			w := &d.words[r.first]
			o[firstCount] = log1p(int(w.first) - 1)
			o[firstGenus] = log1p(int(w.genus))
			o[firstNovel] = flag(w.novel)
			o[firstWord] = log1p(int(w.small))
		}
	}
}
