package yedda

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// jsonDocument is a line of JSONL as doccano reads it, and what we add.
type jsonDocument struct {
	URI     string     `json:"uri"`
	Text    string     `json:"text"`
	Base64  []byte     `json:"text_base64"`
	Label   [][3]any   `json:"label"`
	Classes []string   `json:"classes,omitempty"`
	Lines   []jsonLine `json:"lines,omitzero"`
}

type jsonLine struct {
	Line          int       `json:"line"`
	Start         int       `json:"start"`
	End           int       `json:"end"`
	Label         string    `json:"label"`
	Probabilities jsonProbs `json:"probabilities"`
}

type jsonProbs []float32

func (p jsonProbs) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+len("0.000000,")*len(p))
	b = append(b, '[')
	for i, x := range p {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendProb(b, x, "null")
	}
	return append(b, ']'), nil
}

// WriteJSONL writes a document as one line of JSON with a newline behind it,
// in the shape that doccano reads:
//
//	{"uri":"a.txt","text":"…","text_base64":null,"label":[[0,12,"Nomenclature"],…]}
//
// Offsets are in characters. JSON holds no bytes that are not UTF-8: each of
// them is one U+FFFD in text, so that the offsets hold, and then text_base64
// has the exact bytes. It is there in every document, for doccano takes none of
// several that have not the same members.
//
// With probabilities (and where t has them) there are also classes, their
// names, and lines, one for each row:
//
//	"lines":[{"line":1,"start":0,"end":12,"label":"…","probabilities":[0.981234,…]},…]
//
// line counts all lines of the text from 1; probabilities stand in the order
// of classes, with null for what is no number.
func WriteJSONL(t *Table, spans []Span, probabilities bool) []byte {
	t.check()
	chars := newCharacters(t.Text)
	doc := jsonDocument{URI: t.URI, Text: string(t.Text), Label: make([][3]any, len(spans))}
	if !utf8.Valid(t.Text) {
		doc.Base64 = t.Text
	}
	for i, s := range spans {
		doc.Label[i] = [3]any{chars.of(s.Start), chars.of(s.End), s.Label}
	}
	if probabilities && len(t.Classes) > 0 && t.hasProbs() {
		doc.Classes = t.Classes
		doc.Lines = make([]jsonLine, len(t.Rows))
		numbers := lineNumbers{text: t.Text}
		for i, row := range t.Rows {
			doc.Lines[i] = jsonLine{
				Line:          numbers.of(row.Start),
				Start:         chars.of(row.Start),
				End:           chars.of(row.End),
				Label:         t.Labels[i],
				Probabilities: t.probs(i),
			}
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(&doc); err != nil {
		panic("yedda: JSON of strings and numbers failed") // nothing in doc can
	}
	return out.Bytes()
}
