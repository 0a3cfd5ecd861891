package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// scoreFn counts the lines of labelled documents, PCollection<Labelled>, by gold
// and predicted label. The counters' names are those of nameCounter.
type scoreFn struct {
	Run         string
	Config      model.Config
	LabelSet    string
	Predictions transforms.Path
	Parts       transforms.Path // folder of the parts; "" for none
	Known       []string        // labels that are no news as the class of the rest; nil for all
}

func (f *scoreFn) ProcessElement(ctx context.Context, l transforms.Labelled) error {
	j := judged{doc: &l.Document}
	j.lines, j.predicted = l.Inked()
	if f.Parts != "" {
		j.probs = make([]float64, len(j.lines))
		j.ink = make([][]stretch, len(j.lines))
		row := 0
		for i, line := range j.lines {
			j.ink[i] = inkOfLine(l.Text[line.Start:line.End], j.predicted[i])
			if row < len(l.Rows) && l.Rows[row] == line {
				j.probs[i] = float64(l.Probs[row*len(l.Classes)+int(l.Labels[row])])
				row++
			}
		}
	}
	return f.judge(ctx, &j)
}

// judge counts the labels of j.lines against the spans of j.doc, and writes the
// document's part where a report wants it.
func (f *scoreFn) judge(ctx context.Context, j *judged) error {
	j.gold = (&yedda.Document{Text: j.doc.Text, Spans: j.doc.Spans}).LineLabels(j.lines)
	counts, odd := sums{}, map[[2]string]int64{}
	known := func(label string) bool { return label == "" || f.Known == nil || slices.Contains(f.Known, label) }
	labelled, predicted := false, f.Predictions == "" || len(j.lines) == 0
	for i, g := range j.gold {
		labelled, predicted = labelled || g != "", predicted || j.predicted[i] != ""
		if !known(g) {
			odd[[2]string{oddPrefix, g}]++
		}
		if p := j.predicted[i]; f.Predictions != "" && !known(p) {
			odd[[2]string{oddPredictedPrefix, p}]++
		}
		j.gold[i], j.predicted[i] = f.class(g), f.given(j.predicted[i])
		counts.add(j.gold[i], j.predicted[i], 1)
	}
	for pair, n := range counts {
		beam.NewCounter(transforms.Namespace, nameCounter(pairPrefix, pair)).Inc(ctx, n)
	}
	if !labelled {
		odd[[2]string{oddPrefix, ""}]++
	}
	if !predicted {
		odd[[2]string{oddPredictedPrefix, ""}]++
	}
	if j.doc.Warnings > 0 {
		odd[[2]string{oddPrefix, broken}] += int64(j.doc.Warnings)
	}
	if j.broken > 0 {
		odd[[2]string{oddPredictedPrefix, broken}] += int64(j.broken)
	}
	for what, n := range odd {
		first, _ := firstOdd.LoadOrStore([3]string{f.Run, what[0], what[1]}, text(j.doc.Name))
		beam.NewCounter(transforms.Namespace, nameCounter(what[0], [2]string{what[1], first.(string)})).Inc(ctx, n)
	}
	beam.NewCounter(transforms.Namespace, "judged").Inc(ctx, 1)
	if f.Parts == "" {
		return nil
	}
	return j.part(f.class, f.given).write(ctx, string(f.Parts))
}

// class is the class that a label is judged as: that which it was trained as, or,
// by a second head and in files of the full set, itself.
func (f *scoreFn) class(label string) string {
	if label == "" || f.LabelSet != f.Config.LabelSet {
		return label
	}
	c := f.Config.Class(label)
	if c < 0 {
		return ""
	}
	return f.Config.Classes[c]
}

// given is the class of a predicted label. A model gives classes already, which
// its LabelMap may name as labels of the annotation, too.
func (f *scoreFn) given(label string) string {
	if f.Predictions == "" {
		return label
	}
	return f.class(label)
}

// compareFn is scoreFn for predictions in files: PCollection<Document> to
// Rejections.
type compareFn struct {
	Score     scoreFn
	Verbosity int
}

func (f *compareFn) ProcessElement(ctx context.Context, d transforms.Document, reject func(transforms.Rejection)) error {
	uri := store.Join(string(f.Score.Predictions), string(d.Name)+".ann")
	fail := func(reason string) {
		reject(transforms.Rejection{URI: d.URI, Name: d.Name, Stage: "compare", Reason: reason})
	}
	st, err := store.For(ctx, uri)
	if err != nil {
		return err
	}
	predicted, read, at, err := prediction(ctx, st, uri)
	if err != nil {
		fail("its prediction: " + err.Error())
		return nil
	}
	if f.Verbosity >= 3 {
		for _, w := range predicted.Warnings {
			log.Infof(ctx, "linnet: %s:%d: %s", read, w.Line, w.What)
		}
	}
	lines, predictedLines := seen(d.Text, d.Rows), seen(predicted.Text, yedda.Rows(predicted.Text))
	same := func(i int) bool {
		a, b := lines[i], predictedLines[i]
		return bytes.Equal(fields(d.Text[a.Start:a.End]), fields(predicted.Text[b.Start:b.End]))
	}
	alike := 0
	for alike < min(len(lines), len(predictedLines)) && same(alike) {
		alike++
	}
	if alike < max(len(lines), len(predictedLines)) {
		from := len(predicted.Text)
		if alike < len(predictedLines) {
			from = predictedLines[alike].Start
		}
		fail(fmt.Sprintf("its prediction %s has other text, from line %d on; predict it again from this document", at, 1+bytes.Count(predicted.Text[:from], []byte("\n"))))
		return nil
	}
	j := judged{doc: &d, lines: lines, predicted: predicted.LineLabels(predictedLines), broken: predicted.NumWarnings}
	if f.Score.Parts != "" {
		j.ink = inkOf(predicted, predictedLines)
	}
	return f.Score.judge(ctx, &j)
}

// prediction reads the annotation at uri, X.txt.ann, or where there is none brat's
// pair, X.txt with X.ann, which is empty where nothing has a label. Read is the file
// that was read, at where its text stands.
func prediction(ctx context.Context, st store.Store, uri string) (d *yedda.Document, read, at string, err error) {
	read = uri
	data, err := st.Read(ctx, uri, 0)
	if errors.Is(err, store.ErrNotExist) {
		text := strings.TrimSuffix(uri, ".ann")
		pair := strings.TrimSuffix(text, ".txt") + ".ann"
		ann, annErr := st.Read(ctx, pair, 0)
		switch {
		case annErr != nil && !errors.Is(annErr, store.ErrNotExist):
			return nil, pair, pair, annErr
		case annErr == nil && yedda.IsBrat(ann):
			read, data, err = pair, ann, nil
		case annErr == nil: // Parse takes an empty one, and says what is wrong with another
			if of, textErr := st.Read(ctx, text, 0); !errors.Is(textErr, store.ErrNotExist) {
				read, data, err = text, of, textErr
			}
		}
	}
	if errors.Is(err, store.ErrNotExist) {
		err = fmt.Errorf("%w; label the document, or give its annotation the prediction's name and folder", err)
	}
	if err != nil {
		return nil, read, read, err
	}
	if d, at, err = input.Parse(ctx, read, data, true, 0); err != nil {
		err = fmt.Errorf("%s: %w", read, err)
	}
	return d, read, at, err
}

// seen are the lines of text but those of white space alone, such as a blank first line
// before which an editor puts a byte order mark; rows are Rows(text).
func seen(text []byte, rows []yedda.Line) []yedda.Line {
	return slices.DeleteFunc(slices.Clone(yedda.Inked(text, rows)), func(l yedda.Line) bool {
		return len(bytes.TrimLeftFunc(text[l.Start:l.End], white)) == 0
	})
}

// fields is line with its white space made one blank each.
func fields(line []byte) []byte { return bytes.Join(bytes.FieldsFunc(line, white), []byte(" ")) }

// rejectedFn counts the documents that could not be judged, and keeps the
// first reason for a launcher in the same process.
type rejectedFn struct{ Run string }

func (f *rejectedFn) ProcessElement(ctx context.Context, r transforms.Rejection) {
	beam.NewCounter(transforms.Namespace, "rejected").Inc(ctx, 1)
	if p := transforms.ProgressOf(f.Run); p.Noted() == "" {
		p.Note(fmt.Sprintf("%s: %s", r.URI, r.Reason))
		beam.NewCounter(transforms.Namespace, reasonCounter+strings.ToValidUTF8(p.Noted(), "\uFFFD")).Inc(ctx, 1)
	}
}

// reasonCounter begins the name of a counter that tells the launcher the first
// reason that a worker met.
const reasonCounter = "reason: "

func firstReason(run string, counters map[string]int64) string {
	if note := transforms.ProgressOf(run).Noted(); note != "" {
		return note
	}
	for name := range counters {
		if reason, ok := strings.CutPrefix(name, reasonCounter); ok {
			return reason
		}
	}
	return "what the workers' log says"
}

// Prefixes of nameCounter. Counters with pairPrefix, and no others, are of lines by gold
// and predicted label. Those with oddPrefix are by what is odd and the first document
// of the process that has it: of lines by a label that is none of Known, of documents
// without any label by "", and of places of broken markup by broken. Those with
// oddPredictedPrefix are the same of Predictions.
const (
	pairPrefix         = "lines: "
	oddPrefix          = "unknown: "
	oddPredictedPrefix = "unknown prediction: "
	broken             = "[@" // which is no label
)

// firstOdd has the first document that this process met, by run, prefix and label: a
// counter for each document would be too many.
var firstOdd sync.Map

// nameCounter is prefix and "gold/predicted", with the labels escaped as in a URL.
func nameCounter(prefix string, pair [2]string) string {
	return prefix + url.PathEscape(pair[0]) + "/" + url.PathEscape(pair[1])
}

// namesOf is the pair of a counter, if it is one of nameCounter's with that prefix.
func namesOf(prefix, counter string) (pair [2]string, ok bool) {
	name, ok := strings.CutPrefix(counter, prefix)
	gold, predicted, slash := strings.Cut(name, "/")
	g, errGold := url.PathUnescape(gold)
	p, errPredicted := url.PathUnescape(predicted)
	return [2]string{g, p}, ok && slash && errGold == nil && errPredicted == nil
}

func init() {
	beam.RegisterDoFn(&scoreFn{})
	beam.RegisterDoFn(&compareFn{})
	beam.RegisterDoFn(&rejectedFn{})
}
