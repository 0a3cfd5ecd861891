package transforms

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Document is a document as Read emits it. Its slices are shared by all that
// is made of it and never changed.
type Document struct {
	URI    []byte       // where it was read
	Name   []byte       // its path below Options.Base without .ann, and no other's; outputs are called by it
	Text   []byte       // without markup
	Spans  []yedda.Span // of an annotated input, over Text
	SHA256 [32]byte     // of the bytes read, markup included
	// Rows are the lines of Text that reach the model, yedda.Rows(Text). Coders leave
	// them out and make them again, and so do Featurize and Write where there are none.
	Rows []yedda.Line
	// Warnings is the number of places where the input's markup is broken.
	Warnings int

	foreign    string // counter, where input.Foreign(Text); known to Read alone
	unrecorded bool   // an output is there that no record tells of; known to Plan alone
}

// Example is a Document with the features of its rows. Its coder carries the
// document, the size and the version, and makes the features again.
//
// A long document has no Features but a Survey, from which Predict makes those
// of a few windows at a time: all of them would take several times the text. Of an
// Example with neither, or with a Survey of another's making, Predict makes them from
// the document.
type Example struct {
	Document
	InputSize int             // rows of the embedding table that the features are for
	Features  *model.Batch    // a line a row, without windows; or nil
	Survey    *feature.Survey // in their place

	made     *model.Batch    // Features that need no check
	surveyed *feature.Survey // a Survey of this document, for this InputSize
}

// Labelled is a Document with a label on each of its rows.
type Labelled struct {
	Document
	Classes []string  // several have one name only where there are no Probs
	Labels  []uint16  // index in Classes of each row's label: the most probable one
	Probs   []float32 // [rows, len(Classes)], row-major
	// Other is the label of lines that hold ink which nobody can read
	// (yedda.Inked); "" leaves them outside every span.
	Other string
}

// Rejection tells of a document that a stage could not handle.
type Rejection struct {
	URI, Name []byte
	Stage     string // read, featurize, predict or write; compare in pipelines/evaluate
	Reason    string // one line: what is wrong and what to do
	SHA256    []byte // of the bytes read, if they were
	Again     bool   // a watch tried the document again: an earlier Rejection of it was counted
}

// reject makes the Rejection of a document.
func (d *Document) reject(stage string, err error) *Rejection {
	return &Rejection{URI: d.URI, Name: d.Name, Stage: stage, Reason: oneLine(err), SHA256: d.SHA256[:]}
}

// check makes the rows of a document that came without, and returns an error where
// rows are not all lines of its text that are not blank, in order: the formats would
// leave out the labels of others, and call a line without a row unreadable.
func (d *Document) check() error {
	if len(d.Rows) == 0 {
		d.Rows = yedda.Rows(d.Text)
	}
	if err := d.checkBounds(); err != nil {
		return err
	}
	at := 0
	for i, r := range d.Rows {
		line := d.Text[r.Start:r.End]
		if r.Start > 0 && d.Text[r.Start-1] != '\n' || r.End < len(d.Text) && d.Text[r.End] != '\n' || bytes.IndexByte(line, '\n') >= 0 || yedda.Blank(line) {
			return fmt.Errorf("row %d, from byte %d to %d, is no line that can be read; take yedda.Rows of its text", i+1, r.Start, r.End)
		}
		if r.Start > at+1 && !yedda.Blank(d.Text[at:r.Start]) { // by one byte it is the line break
			return fmt.Errorf("a line ahead of row %d, behind byte %d, has no row; take yedda.Rows of its text", i+1, at)
		}
		at = r.End
	}
	if !yedda.Blank(d.Text[at:]) {
		return fmt.Errorf("a line behind the last row, behind byte %d, has no row; take yedda.Rows of its text", at)
	}
	return nil
}

// checkBounds returns an error where rows lie outside the text, overlap or are out of
// order.
func (d *Document) checkBounds() error {
	end := 0
	for i, r := range d.Rows {
		if r.Start < end || r.End < r.Start || r.End > len(d.Text) {
			return fmt.Errorf("row %d is from byte %d to %d, of %d bytes and behind byte %d; take yedda.Rows of its text", i+1, r.Start, r.End, len(d.Text), end)
		}
		end = r.End
	}
	return nil
}

// check returns an error where rows, labels and probabilities do not fit together.
func (l *Labelled) check() error {
	if err := l.Document.check(); err != nil {
		return err
	}
	rows, classes := len(l.Rows), len(l.Classes)
	if len(l.Labels) != rows {
		return fmt.Errorf("%d labels for %d rows; give each row of yedda.Rows one", len(l.Labels), rows)
	}
	for _, c := range l.Labels {
		if int(c) >= classes {
			return fmt.Errorf("label %d of %d classes; count them from 0", c, classes)
		}
	}
	if n := len(l.Probs); n > 0 && n != rows*classes {
		return fmt.Errorf("%d probabilities for %d rows of %d classes; give all or none", n, rows, classes)
	} else if n > 0 {
		names := make(map[string]bool, classes)
		for _, c := range l.Classes {
			if names[c] {
				return fmt.Errorf("class %q stands there twice, with probabilities; add them up in one class, or give none", c)
			}
			names[c] = true
		}
	}
	return nil
}

func init() {
	beam.RegisterCoder(reflect.TypeFor[Document](), encodeDocument, decodeDocument)
	beam.RegisterCoder(reflect.TypeFor[Example](), encodeExample, decodeExample)
	beam.RegisterCoder(reflect.TypeFor[Labelled](), encodeLabelled, decodeLabelled)
	beam.RegisterCoder(reflect.TypeFor[Rejection](), encodeRejection, decodeRejection)
}

// The coders are flat: unsigned varints, as which negative numbers are large ones, and
// bytes with their number in front.
// Rows and features are not carried; both follow from the text.

func encodeDocument(d Document) []byte {
	b := make([]byte, 0, len(d.URI)+len(d.Name)+len(d.Text)+32*len(d.Spans)+64)
	b = appendBytes(b, d.URI)
	b = appendBytes(b, d.Name)
	b = appendBytes(b, d.Text)
	b = binary.AppendUvarint(b, uint64(len(d.Spans)))
	for _, s := range d.Spans {
		b = binary.AppendUvarint(b, uint64(s.Start))
		b = binary.AppendUvarint(b, uint64(s.End))
		b = appendBytes(b, s.Label)
	}
	b = append(b, d.SHA256[:]...)
	return binary.AppendUvarint(b, uint64(d.Warnings))
}

func decodeDocument(b []byte) (Document, error) {
	r := reader{b: b}
	d := r.document()
	return d, r.end("Document")
}

func encodeExample(e Example) []byte {
	b := encodeDocument(e.Document)
	b = binary.AppendUvarint(b, uint64(e.InputSize))
	return binary.AppendUvarint(b, model.FeatureVersion)
}

func decodeExample(b []byte) (Example, error) {
	r := reader{b: b}
	e := Example{Document: r.document(), InputSize: r.int()}
	if v := r.int(); r.err == nil && v != model.FeatureVersion {
		return e, fmt.Errorf("transforms: an Example has features of version %d, this program makes %d; run one version of it everywhere", v, model.FeatureVersion)
	}
	if err := r.end("Example"); err != nil {
		return e, err
	}
	if e.InputSize == 0 || !tableSize(e.InputSize) {
		return e, fmt.Errorf("transforms: an Example has features for a table of %d rows; Featurize makes them", e.InputSize)
	}
	e.featurize(false, runtime.GOMAXPROCS(0))
	return e, nil
}

func encodeLabelled(l Labelled) []byte {
	b := encodeDocument(l.Document)
	b = binary.AppendUvarint(b, uint64(len(l.Classes)))
	for _, c := range l.Classes {
		b = appendBytes(b, c)
	}
	b = binary.AppendUvarint(b, uint64(len(l.Labels)))
	b, _ = binary.Append(b, binary.LittleEndian, l.Labels)
	b = binary.AppendUvarint(b, uint64(len(l.Probs)))
	b, _ = binary.Append(b, binary.LittleEndian, l.Probs)
	return appendBytes(b, l.Other)
}

func decodeLabelled(b []byte) (Labelled, error) {
	r := reader{b: b}
	l := Labelled{Document: r.document()}
	l.Classes = make([]string, r.count(1))
	for i := range l.Classes {
		l.Classes[i] = string(r.bytes())
	}
	n := r.count(2)
	if labels := r.take(2 * n); labels != nil {
		l.Labels = make([]uint16, n)
		binary.Decode(labels, binary.LittleEndian, l.Labels)
	}
	n = r.count(4)
	if probs := r.take(4 * n); n > 0 && probs != nil {
		l.Probs = make([]float32, n)
		binary.Decode(probs, binary.LittleEndian, l.Probs)
	}
	l.Other = string(r.bytes())
	return l, r.end("Labelled")
}

func encodeRejection(j Rejection) []byte {
	b := appendBytes(nil, j.URI)
	b = appendBytes(b, j.Name)
	b = appendBytes(b, j.Stage)
	b = appendBytes(b, j.Reason)
	b = appendBytes(b, j.SHA256)
	if j.Again {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeRejection(b []byte) (Rejection, error) {
	r := reader{b: b}
	j := Rejection{URI: r.bytes(), Name: r.bytes(), Stage: string(r.bytes()), Reason: string(r.bytes()), SHA256: r.bytes(), Again: r.int() != 0}
	return j, r.end("Rejection")
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// reader takes values off the front of b; after an error all are zero.
// The slices that it returns are copies: b belongs to Beam.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("cut short")

func (r *reader) fail() { r.b, r.err = nil, errShort }

func (r *reader) int() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// count is an int of things that take at least size bytes each.
func (r *reader) count(size int) int {
	n := r.int()
	if n < 0 || n > len(r.b)/size {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	return append([]byte(nil), r.take(r.count(1))...) // nil for none
}

func (r *reader) document() Document {
	d := Document{URI: r.bytes(), Name: r.bytes(), Text: r.bytes()}
	if n := r.count(3); n > 0 {
		d.Spans = make([]yedda.Span, n)
	}
	for i := range d.Spans {
		d.Spans[i] = yedda.Span{Start: r.int(), End: r.int(), Label: string(r.bytes())}
	}
	copy(d.SHA256[:], r.take(len(d.SHA256)))
	d.Warnings = r.int()
	d.Rows = yedda.Rows(d.Text)
	return d
}

// end is the error of what was read: nil where all of b was, and nothing else.
func (r *reader) end(what string) error {
	if r.err == nil && len(r.b) > 0 {
		r.err = errors.New("has bytes behind its end")
	}
	if r.err != nil {
		return fmt.Errorf("transforms: an encoded %s: %w", what, r.err)
	}
	return nil
}

// labels are the names of the rows' labels.
func (l *Labelled) labels() []string {
	names := make([]string, len(l.Labels))
	for i, c := range l.Labels {
		names[i] = l.Classes[c]
	}
	return names
}

// doubtful is the number of rows whose labels are yedda.Doubtful; 0 without
// Probs.
func (l *Labelled) doubtful() (n int) {
	if len(l.Probs) == 0 {
		return 0
	}
	for i, c := range l.Labels {
		if yedda.Doubtful(l.Probs[i*len(l.Classes)+int(c)]) {
			n++
		}
	}
	return n
}

// Inked are the lines with ink and their labels: the rows, and those that
// nobody can read, labelled Other.
func (l *Labelled) Inked() (lines []yedda.Line, labels []string) {
	lines, labels = yedda.Inked(l.Text, l.Rows), l.labels()
	if len(lines) == len(l.Rows) {
		return l.Rows, labels
	}
	all := make([]string, len(lines))
	row := 0
	for i, line := range lines {
		if row < len(l.Rows) && l.Rows[row] == line {
			all[i] = labels[row]
			row++
		} else {
			all[i] = l.Other
		}
	}
	return lines, all
}

// table is l as the other formats take it. They call the document by its name,
// so that where it was read does not change the bytes.
func (l *Labelled) table() *yedda.Table {
	return &yedda.Table{
		URI: string(l.Name), Text: l.Text, Rows: l.Rows, Labels: l.labels(),
		Classes: l.Classes, Probs: l.Probs,
	}
}
