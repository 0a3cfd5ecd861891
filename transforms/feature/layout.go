package feature

import (
	"bytes"
	"math"
	"unicode/utf8"
)

// The features of a line, in their order in Batch.Layout. Shares are of the
// characters of the line's head, its first 512 tokens.
const (
	logLength    = iota // ln(1+characters)/4
	relLength           // characters over the document's 85th percentile
	indent              // columns, at most 40, /10
	blankBefore         // 1 if a blank line stands before
	blanksBefore        // how many, at most 3, /3
	blankAfter          // the same after it
	blanksAfter         //
	feedBefore          // 1 if a form feed stands before
	feedAfter           // and after
	digitShare          // ×3
	capitalShare        // of the letters, ×2
	otherShare          // neither letter, digit nor white space, ×4
	capitalWords        // share of words that begin with a capital
	commas              // /4
	stops               // /4
	semicolons          // /2
	firstCapital        // class of the first character: one of four
	firstSmall          //
	firstDigit          //
	firstOther          //
	lastStop            // class of the last character
	lastComma           // , or ;
	lastHyphen          // -, soft hyphen or ‐
	lastColon           //
	lastDigit           //
	lastLetter          //
	hasYear             // see marks
	hasMeasure          //
	hasAuthor           //
	hasParen            // an opening parenthesis
	allCapitals         // over two letters, more than 4 of 5 capitals
	wordCount           // at most 20, /10
	place               // row / rows
	early               // row, at most 60, /60

	// Features of the document around the line.
	repeats      // ln(1+other lines with this line's norm)
	repeated     // 1 where three lines or more have this norm
	sinceFeed    // rows since a form feed, at most 60, /60
	firstCount   // ln(1+other lines with this first word)
	firstGenus   // ln(1+lines that have the first word as a genus)
	firstNovel   // 1 if that genus stands on or above a line of novelty
	firstWord    // ln(1+uses of the first word in lower case)
	genusCount   // ln(1+lines that have it) of the line's most frequent genus
	genusNovel   // 1 if one of its genera stands on or above a line of novelty
	generaOnLine // how many distinct ones
	afterFeed    // 1 for the first three rows behind a form feed
	tillFeed     // rows to the next one, at most 60, /60
	beforeFeed   // 1 for the last two rows before it
	widerAbove   // width less that of the row above, over the 85th percentile
	widerBelow   // and of the row below
	deeperAbove  // indent less that of the row above, within ±20, /10
	deeperBelow  // and of the row below

	// LayoutSize is how many there are of both kinds; model.FeatureLayout says it, too.
	LayoutSize = iota
)

// percentileCap is the width from which on the 85th percentile no longer tells
// lines apart.
const percentileCap = 4096

const logTable = 1024

var logOf [logTable]float32

func init() {
	for n := range logOf {
		logOf[n] = float32(math.Log1p(float64(n)))
	}
}

// log1p returns ln(1+n).
func log1p(n int) float32 {
	if n < logTable {
		return logOf[n]
	}
	return float32(math.Log1p(float64(n)))
}

// lastOf is the number that a last character of ASCII, as line.low has it, sets; 0,
// which is logLength's, stands for none.
var lastOf = [utf8.RuneSelf]uint8{'.': lastStop, ',': lastComma, ';': lastComma, '-': lastHyphen, ':': lastColon, '0': lastDigit}

func init() {
	for c := 'a'; c <= 'z'; c++ {
		lastOf[c] = lastLetter
	}
}

func flag(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// writeLayout writes the features that l and m alone decide to a row of Batch.Layout, and
// zeros to the rest of it.
func (l *line) writeLayout(m *marks, row []float32) {
	o := (*[LayoutSize]float32)(row)
	*o = [LayoutSize]float32{}
	if t := &l.tokens; t.n > 0 {
		// By index, without a branch: the class is unpredictable.
		o[firstOther-2*(t.letter[0]&1)-t.upper[0]&1-t.digit[0]&1] = 1
		if c := l.low[l.end-1]; c < utf8.RuneSelf {
			o[lastOf[c]] = 1 // none: logLength is written below
		} else if at := l.end - 1; l.masks[at>>6].letter>>(at&63)&1 != 0 {
			o[lastLetter] = 1
		} else {
			b := l.low[l.from:l.end]
			o[lastHyphen] = flag(bytes.HasSuffix(b, []byte("\u00ad")) || bytes.HasSuffix(b, []byte("\u2010")))
		}
	}
	size := max(1, l.letters+l.digits+l.others+l.spaces)
	n := float32(size)
	o[logLength] = log1p(max(1, l.length)) / 4
	o[indent] = float32(min(l.indent, 40)) / 10
	o[digitShare] = float32(l.digits) / n * 3
	o[capitalShare] = float32(l.uppers) / float32(max(1, l.letters)) * 2
	o[otherShare] = float32(l.others) / n * 4
	o[capitalWords] = float32(l.capitalised) / float32(max(1, l.words))
	o[commas] = float32(l.signs[comma]) / 4
	o[stops] = float32(l.signs[fullStop]) / 4
	o[semicolons] = float32(l.signs[semicolon]) / 2
	o[hasYear] = flag(m.year)
	o[hasMeasure] = flag(m.measure)
	o[hasAuthor] = flag(m.author)
	o[hasParen] = flag(l.signs[paren] > 0)
	o[allCapitals] = flag(l.letters > 2 && 5*l.uppers > 4*l.letters)
	o[wordCount] = float32(min(l.words, 20)) / 10
}
