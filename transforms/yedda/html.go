package yedda

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html"
	"math"
	"slices"
	"strings"
)

//go:embed review.html
var reviewHTML string

//go:embed review.css
var reviewCSS string

//go:embed review.js
var reviewJS string

// PagePolicy is the Content-Security-Policy of a page that runs and loads nothing but
// its own style and script, which are known by their hashes: whatever a document holds,
// it is no script.
func PagePolicy(style, script string) string {
	return "default-src 'none'; style-src " + hashSource(style) + "; script-src " + hashSource(script) + "; base-uri 'none'; form-action 'none'"
}

func hashSource(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

var reviewPolicy = PagePolicy(reviewCSS, reviewJS)

// reviewDocument is what the page knows of a document beside its bytes.
type reviewDocument struct {
	Name   string   `json:"name"`
	Names  []string `json:"names"`  // the first is "", no label
	Labels []int    `json:"labels"` // of all lines, index in Names; -1 where it is blank
	Sure   []int    `json:"sure"`   // the label's probability in thousandths; -1 where there is none
}

// reviewNames are the labels as the page numbers them, from 1: those that make
// treatments, which keep their keys 1 and 2 whatever the others are, then the
// rest. The first, numbered 0, is none.
func reviewNames(classes []string) []string {
	names := []string{""}
	for _, c := range append([]string{nomenclature, description}, classes...) {
		if slices.Contains(classes, c) && !slices.Contains(names, c) {
			names = append(names, c)
		}
	}
	return names
}

// doubt is the probability, in thousandths, below which a line is doubtful: the
// page begins with it.
const doubt = 800

// sure is the probability of a row's label in thousandths; -1 where there is
// none.
func (t *Table) sure(row int) int {
	if p, ok := t.confidence(row); ok && p >= 0 && p <= 1 {
		return thousandths(p)
	}
	return -1
}

func thousandths(p float32) int { return int(math.Round(float64(p) * 1000)) }

// Doubtful reports whether the page of WriteHTML begins by calling a row doubtful
// whose label has that probability: it is less than 80 % probable.
func Doubtful(p float32) bool { return p >= 0 && p <= 1 && thousandths(p) < doubt }

// WriteHTML writes a page to review a labelled document and correct it in a
// browser. It needs nothing else: style, script and the bytes of the document
// are inside, and it works from a file. lines are Inked(t.Text, t.Rows) and
// labels theirs.
//
// The page exports YEDDA, byte for byte Format of SpansOf with the labels as
// they are then; where a line has one that YEDDA cannot hold, it says so instead.
// Text of the document is never markup in the page and never runs: it stands in
// base64 and is shown as text, and the page's policy allows no script but its own.
func WriteHTML(t *Table, lines []Line, labels []string) []byte {
	t.check()
	if len(lines) != len(labels) {
		panic("yedda: lines and labels differ in number")
	}
	doc := reviewDocument{Name: strings.ToValidUTF8(t.URI, "\ufffd"), Names: reviewNames(t.Classes)}
	all := Lines(t.Text)
	doc.Labels, doc.Sure = make([]int, len(all)), make([]int, len(all))
	inked, row := 0, 0
	for i, line := range all {
		doc.Labels[i], doc.Sure[i] = -1, -1
		if inked == len(lines) || lines[inked] != line {
			continue
		}
		label := labels[inked]
		inked++
		k := slices.Index(doc.Names, label)
		if k < 0 {
			k = len(doc.Names)
			doc.Names = append(doc.Names, label)
		}
		doc.Labels[i] = k
		if row < len(t.Rows) && t.Rows[row] == line {
			doc.Sure[i] = t.sure(row)
			row++
		}
	}
	if inked != len(lines) {
		panic("yedda: lines are none of the text")
	}
	data, err := json.Marshal(&doc) // escapes <, > and &
	if err != nil {
		panic("yedda: JSON of strings and numbers failed") // nothing in doc can
	}
	var out bytes.Buffer
	out.Grow(len(reviewHTML) + len(reviewCSS) + len(reviewJS) + len(data) + len(t.Text)*4/3 + 1024)
	fill := strings.NewReplacer(
		"{{policy}}", html.EscapeString(reviewPolicy),
		"{{title}}", html.EscapeString(doc.Name),
		"{{style}}", reviewCSS,
		"{{script}}", reviewJS,
		"{{review}}", string(data),
		"{{text}}", base64.StdEncoding.EncodeToString(t.Text),
	)
	if _, err := fill.WriteString(&out, reviewHTML); err != nil {
		panic("yedda: writing to memory failed")
	}
	return out.Bytes()
}
