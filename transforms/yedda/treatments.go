package yedda

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// The labels that make treatments.
const (
	nomenclature = "Nomenclature"
	description  = "Description"
)

// treatment is a line of WriteTreatments.
type treatment struct {
	URI          string          `json:"uri"`
	Treatment    int             `json:"treatment"`
	Name         string          `json:"name"`
	Line         int             `json:"line"`
	Page         int             `json:"page"`
	Start        int             `json:"start"`
	End          int             `json:"end"`
	Confidence   *prob           `json:"confidence"`
	Nomenclature []passage       `json:"nomenclature"`
	Descriptions []passage       `json:"descriptions"`
	of           meanProbability // of all its rows
}

// passage is a span of a treatment.
type passage struct {
	Start      int    `json:"start"`
	End        int    `json:"end"`
	Page       int    `json:"page"`
	Confidence *prob  `json:"confidence"`
	Text       string `json:"text"`
	Base64     []byte `json:"text_base64,omitempty"`
}

type prob float32

func (p prob) MarshalJSON() ([]byte, error) { return appendProb(nil, float32(p), "null"), nil }

// meanProbability accumulates a mean.
type meanProbability struct {
	sum float64
	n   int
}

func (p *meanProbability) add(q meanProbability) { p.sum += q.sum; p.n += q.n }

// value is the mean, or nil of no probabilities.
func (p *meanProbability) value() *prob {
	if p.n == 0 {
		return nil
	}
	m := prob(p.sum / float64(p.n))
	return &m
}

// WriteTreatments writes the treatments of a document, a line of JSON each. A
// treatment is a run of Nomenclature and every Description after it up to the
// next run; a run is as many spans labelled Nomenclature as follow one another
// with no other span between them. spans are those of SpansOf.
//
//	{"uri":"a.txt","treatment":1,"name":"Agaricus fictus Nov.","line":7,"page":1,"start":120,"end":480,
//	 "confidence":0.981234,"nomenclature":[{"start":120,"end":141,"page":1,"confidence":0.99,"text":"…"}],
//	 "descriptions":[{"start":143,"end":480,…}]}
//
// Offsets are in bytes of the text, from the first passage's start to the last
// one's end in the treatment itself. name is the first line of the run that holds more
// than a byte order mark, without that and the white space around it, and line its
// number, counted from 1 among all lines. page counts the form feeds before the start, from 1. confidence is the
// mean probability of the label over the rows that the passages touch, null
// where there is none. A passage that is not UTF-8 has U+FFFD for each byte
// that is none, and its exact bytes in text_base64.
func WriteTreatments(t *Table, spans []Span) []byte {
	t.check()
	var (
		out     bytes.Buffer
		e       = json.NewEncoder(&out)
		numbers = lineNumbers{text: t.Text}
		now     *treatment
		n       int // treatments so far
		last    string
		row     int // the first that does not end before the span
		counted int // the first that no passage touches so far
		page    = 1
		pageAt  int
	)
	e.SetEscapeHTML(false)
	flush := func() {
		if now == nil {
			return
		}
		now.Confidence = now.of.value()
		if err := e.Encode(now); err != nil {
			panic("yedda: JSON of strings and numbers failed") // nothing in it can
		}
		now = nil
	}
	for _, s := range spans {
		text := t.Text[s.Start:s.End]
		ink := bytes.TrimLeftFunc(text, func(r rune) bool { return r == '\ufeff' || isSpace(r) })
		if len(ink) == 0 { // a byte order mark ahead of a form feed
			continue
		}
		before := last
		last = s.Label
		if s.Label != nomenclature && (s.Label != description || now == nil) {
			continue
		}
		page += bytes.Count(t.Text[pageAt:s.Start], []byte("\f"))
		pageAt = s.Start
		if s.Label == nomenclature && before != nomenclature {
			flush()
			n++
			name, _, _ := bytes.Cut(ink, newline)
			now = &treatment{
				URI: t.URI, Treatment: n, Name: string(bytes.TrimFunc(name, isSpace)),
				Line: numbers.of(s.End - len(ink)), Page: page, Start: s.Start,
				Nomenclature: []passage{}, Descriptions: []passage{},
			}
		}
		var p meanProbability
		for row < len(t.Rows) && t.Rows[row].End <= s.Start {
			row++
		}
		for i := row; i < len(t.Rows) && t.Rows[i].Start < s.End; i++ {
			if q, ok := t.confidence(i); ok && q == q {
				one := meanProbability{float64(q), 1}
				p.add(one)
				if i >= counted { // a form feed cuts a row into passages, and it counts once
					now.of.add(one)
				}
			}
			counted = max(counted, i+1)
		}
		part := passage{Start: s.Start, End: s.End, Page: page, Confidence: p.value(), Text: string(text)}
		if !utf8.Valid(text) {
			part.Base64 = text
		}
		if s.Label == nomenclature {
			now.Nomenclature = append(now.Nomenclature, part)
		} else {
			now.Descriptions = append(now.Descriptions, part)
		}
		now.End = s.End
	}
	flush()
	return out.Bytes()
}
