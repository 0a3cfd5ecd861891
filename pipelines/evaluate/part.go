package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// part is what the report needs of one document. Workers write parts, one file
// a document, into a folder of the run below --report; the launcher merges
// them. Retries write the same file again, so that nothing counts twice.
type part struct {
	Name       []byte `json:"name"`
	Lines      []pair `json:"lines"`
	Characters []pair `json:"characters"`
	// Classes are those of Spans.
	Classes     []string          `json:"classes"`
	Spans       *eval.Spans       `json:"spans"`
	Calibration *eval.Calibration `json:"calibration,omitempty"` // of a model alone
	Wrong       []wrongLine       `json:"wrong"`                 // most confident first
}

// pair is a number of lines, or characters, of one label that got another.
type pair struct {
	Gold      string `json:"gold"`
	Predicted string `json:"predicted"`
	N         int64  `json:"n"`
}

// wrongLine is a line whose label is not gold's, with its neighbours.
type wrongLine struct {
	Document    string        `json:"document"`
	Line        int           `json:"line"` // 1-based, in the text without markup
	Gold        string        `json:"gold"`
	Predicted   string        `json:"predicted"`
	Probability float64       `json:"probability,omitempty"` // of Predicted; 0 is unknown
	Lines       []contextLine `json:"lines"`                 // neighbours and itself
	rank        int           // among its document's
	name        []byte        // of the document, as it is
}

// contextLine is a line near a wrong one, or that one.
type contextLine struct {
	Line      int    `json:"line"`
	Text      string `json:"text"` // its begin
	Gold      string `json:"gold"`
	Predicted string `json:"predicted"`
}

const (
	keptWrong   = 50  // wrong lines of a part, and of the report
	neighbours  = 2   // lines before and behind a wrong one
	contextSize = 240 // bytes of a line's text, at most
	partLimit   = 64 << 20
)

// judged is a document with gold and predicted labels, as part needs it. The
// slices are parallel to lines.
type judged struct {
	doc             *transforms.Document
	lines           []yedda.Line
	gold, predicted []string    // "" is none
	ink             [][]stretch // predicted labels of the characters
	probs           []float64   // of the predicted label, 0 unknown; nil without a model
	broken          int         // places of the prediction's markup
}

// part makes the part of a document. Labels of characters are judged as classes:
// gold ones by class, predicted ones by given.
func (j *judged) part(class, given func(string) string) *part {
	lines, characters := sums{}, sums{}
	for i, g := range j.gold {
		lines.add(g, j.predicted[i], 1)
	}
	for i, gold := range inkOf(&yedda.Document{Text: j.doc.Text, Spans: j.doc.Spans}, j.lines) {
		align(gold, j.ink[i], func(g, p string, n int) { characters.add(class(g), given(p), int64(n)) })
	}
	p := &part{Name: j.doc.Name, Lines: lines.pairs(), Characters: characters.pairs(), Wrong: []wrongLine{}}
	j.spans(p)
	if j.probs != nil {
		p.Calibration = eval.NewCalibration(eval.CalibrationBins)
		for i, g := range j.gold {
			if g != "" && j.probs[i] > 0 {
				p.Calibration.Add(j.probs[i], g == j.predicted[i])
			}
		}
	}
	j.wrong(p)
	return p
}

// spans counts the document's spans, which end where those of predict's outputs do:
// at blank lines and form feeds (yedda.SpansOf). A line that form feeds cut is as many
// lines here.
func (j *judged) spans(p *part) {
	p.Classes = []string{}
	turns := make([]string, len(j.lines)) // so that no line makes a span with the next
	for i := range turns {
		turns[i] = []string{"even", "odd"}[i%2]
	}
	pieces := yedda.SpansOf(j.doc.Text, j.lines, turns)
	gold, predicted := make([]int, len(pieces)), make([]int, len(pieces))
	starts := make([]bool, len(pieces))
	i := 0
	for k, piece := range pieces {
		for j.lines[i].End < piece.End {
			i++
		}
		gold[k], predicted[k] = index(&p.Classes, j.gold[i]), index(&p.Classes, j.predicted[i])
		if k > 0 {
			between := bytes.TrimPrefix(j.doc.Text[pieces[k-1].End:piece.Start], []byte("\r"))
			starts[k] = string(between) != "\n"
		}
	}
	p.Spans = eval.NewSpans(p.Classes)
	p.Spans.Add(gold, predicted, starts)
}

// index is that of a class in classes, which it joins where it is none of them; ""
// is -1.
func index(classes *[]string, class string) int {
	if class == "" {
		return -1
	}
	i := slices.Index(*classes, class)
	if i < 0 {
		i = len(*classes)
		*classes = append(*classes, class)
	}
	return i
}

// wrong keeps the wrong lines of the highest probabilities, or the first ones.
func (j *judged) wrong(p *part) {
	var wrong []int
	for i, g := range j.gold {
		if g != "" && j.predicted[i] != "" && g != j.predicted[i] {
			wrong = append(wrong, i)
		}
	}
	if j.probs != nil {
		slices.SortStableFunc(wrong, func(a, b int) int { return cmp.Compare(j.probs[b], j.probs[a]) })
	}
	wrong = wrong[:min(len(wrong), keptWrong)]
	if len(wrong) == 0 {
		return
	}
	number := make([]int, len(j.lines)) // of physical lines
	at, n := 0, 1
	for i, line := range j.lines {
		n += bytes.Count(j.doc.Text[at:line.Start], []byte("\n"))
		number[i], at = n, line.Start
	}
	for _, i := range wrong {
		w := wrongLine{Document: text(j.doc.Name), Line: number[i], Gold: j.gold[i], Predicted: j.predicted[i]}
		if j.probs != nil {
			w.Probability = j.probs[i]
		}
		for k := max(i-neighbours, 0); k <= min(i+neighbours, len(j.lines)-1); k++ {
			line := j.doc.Text[j.lines[k].Start:j.lines[k].End]
			w.Lines = append(w.Lines, contextLine{number[k], cut(line), j.gold[k], j.predicted[k]})
		}
		p.Wrong = append(p.Wrong, w)
	}
}

// cut is the begin of line, as text.
func cut(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	if len(line) <= contextSize {
		return text(line)
	}
	end := contextSize
	for end > contextSize-utf8.UTFMax && !utf8.RuneStart(line[end]) {
		end--
	}
	return text(line[:end]) + "…"
}

// text is b for people: UTF-8 without control characters.
func text(b []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
}

// stretch is a number of neighbouring characters of a line with one label.
// Characters are those that are no white space; a byte that is no UTF-8 is one.
type stretch struct {
	label string
	n     int
}

// inkOf are the labels of the characters of d's lines, by the innermost span.
func inkOf(d *yedda.Document, lines []yedda.Line) [][]stretch {
	cuts := make([]int, 0, 2*len(d.Spans))
	for _, s := range d.Spans {
		cuts = append(cuts, s.Start, s.End)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var pieces []yedda.Line // of lines, each in the same spans from begin to end
	c := 0
	for _, line := range lines {
		start := line.Start
		for ; c < len(cuts) && cuts[c] < line.End; c++ {
			if cuts[c] > start {
				pieces = append(pieces, yedda.Line{Start: start, End: cuts[c]})
				start = cuts[c]
			}
		}
		pieces = append(pieces, yedda.Line{Start: start, End: line.End})
	}
	labels := d.LineLabels(pieces)
	ink := make([][]stretch, len(lines))
	k := 0
	for i, line := range lines {
		for at := line.Start; at < line.End; {
			r, size := utf8.DecodeRune(d.Text[at:line.End])
			for pieces[k].End <= at {
				k++
			}
			if !white(r) {
				ink[i] = appendInk(ink[i], labels[k])
			}
			at += size
		}
	}
	return ink
}

// inkOfLine is one label for all characters of a line.
func inkOfLine(line []byte, label string) []stretch {
	n := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		if !white(r) {
			n++
		}
		line = line[size:]
	}
	return []stretch{{label, n}}
}

// white says whether r is white space, as package yedda has it, with the
// separators 1C to 1F, or the byte order mark that an editor puts before a text.
func white(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f || r == '\ufeff' }

// appendInk adds a character to list.
func appendInk(list []stretch, label string) []stretch {
	if last := len(list) - 1; last >= 0 && list[last].label == label {
		list[last].n++
		return list
	}
	return append(list, stretch{label, 1})
}

// align calls fn with what two labellings of the same characters say of each
// piece of them.
func align(a, b []stretch, fn func(a, b string, n int)) {
	var i, k, usedA, usedB int
	for i < len(a) && k < len(b) {
		n := min(a[i].n-usedA, b[k].n-usedB)
		fn(a[i].label, b[k].label, n)
		usedA, usedB = usedA+n, usedB+n
		if usedA == a[i].n {
			i, usedA = i+1, 0
		}
		if usedB == b[k].n {
			k, usedB = k+1, 0
		}
	}
}

// partsFolder is where the parts of a run lie.
func partsFolder(report, run string) string { return store.Join(report, "_parts", run) }

// write writes p into folder.
func (p *part) write(ctx context.Context, folder string) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return store.Write(ctx, store.Join(folder, fmt.Sprintf("%x.json", sha256.Sum256(p.Name))), data)
}

// marker is the file that the launcher leaves in the folder of the parts: it
// shows before the run that the report can be written.
const marker = "_run"

func beginParts(ctx context.Context, folder string) error {
	return store.FolderError(store.Write(ctx, store.Join(folder, marker), nil))
}

// readers is the number of parts that are read at a time: on gs:// each waits.
const readers = 8

// readParts calls fn with each part in folder, one after the other, in any
// order.
func readParts(ctx context.Context, folder string, fn func(*part)) error {
	st, err := store.For(ctx, folder)
	if err != nil {
		return err
	}
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	var mu sync.Mutex
	listed := st.List(reading, folder+"/", func(o store.Object) error {
		switch {
		case o.Err != nil:
			return o.Err
		case !strings.HasSuffix(o.Path, ".json"):
			return nil
		}
		group.Go(func() error {
			p, err := readPart(reading, st, o.Path)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			fn(p)
			return nil
		})
		return reading.Err()
	})
	read := group.Wait()
	return cmp.Or(context.Cause(ctx), read, listed)
}

func readPart(ctx context.Context, st store.Store, path string) (*part, error) {
	data, err := st.Read(ctx, path, partLimit)
	if err != nil {
		return nil, err
	}
	p := new(part)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("evaluate: %s: %w", path, err)
	}
	if p.Spans == nil || len(p.Spans.Gold) != len(p.Classes) {
		return nil, fmt.Errorf("evaluate: %s: it is no part of a report; remove the folder and run again", path)
	}
	return p, nil
}

// endParts removes the parts; what stays is no harm.
func endParts(ctx context.Context, report, folder string) {
	st, err := store.For(ctx, folder)
	if err != nil {
		return
	}
	var paths []string
	_ = st.List(ctx, folder+"/", func(o store.Object) error {
		paths = append(paths, o.Path)
		return nil
	})
	for _, path := range append(paths, folder, store.Join(report, "_parts")) {
		_ = st.Delete(ctx, path)
	}
}
