package transforms

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/internal/pipe"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Write is PCollection<Labelled> to PCollection<[]byte>: it writes the outputs
// of each document and, when all are there, its record, and emits the
// document's name. Every file is whole or absent.
//
// A document whose labels are not one a row is rejected. So is one with a label
// that YEDDA cannot hold, or brat where that is asked for; its other formats are
// written all the same. What stands in the place of an output of a document that
// has no record, and is not what is to be written, stays: the document is rejected,
// unless Options.Force. With Options.Again so do outputs that somebody edited since
// they were written, and those of another document that is still there. A failing
// output store fails the bundle.
//
// Documents of your own want Names of their own: of two with one Name the later one's
// outputs take the place of the earlier's, unless the earlier's URI is another and can
// be read.
func Write(s beam.Scope, opts Options, labelled beam.PCollection) (written, rejected beam.PCollection) {
	s = s.Scope("linnet.Write")
	global("Write", labelled)
	if opts.Output == "" {
		panic("transforms: Write: Options.Output is empty; name the folder to write to")
	}
	if _, err := opts.formats(); err != nil {
		panic(err.Error())
	}
	return beam.ParDo2(s, &writeFn{Options: opts}, labelled)
}

type writeFn struct {
	Options  Options
	formats  []format
	progress *Progress
	stage    stage[Labelled, output]
	tally    tally
}

// output is what was written of one document.
type output struct {
	name    []byte
	classes []string
	counts  []int64 // lines of each class
}

func (f *writeFn) Setup() error {
	f.progress = ProgressOf(f.Options.Run)
	var err error
	if f.formats, err = f.Options.formats(); err != nil {
		return f.progress.fail("write", err)
	}
	f.stage = newStage("write", f.progress, f.Options.inFlight()/4, f.write, pipe.NewIO)
	f.tally = tally{}
	return nil
}

func (f *writeFn) StartBundle(emit func(beam.EventTime, []byte), reject func(beam.EventTime, Rejection)) {
	f.stage.begin()
}

func (f *writeFn) ProcessElement(ctx context.Context, t beam.EventTime, l Labelled, emit func(beam.EventTime, []byte), reject func(beam.EventTime, Rejection)) error {
	size := int64(2*len(l.Text) + 4*len(l.Probs))
	return f.stage.push(ctx, t, l, size, f.emitter(ctx, emit), reject)
}

func (f *writeFn) FinishBundle(ctx context.Context, emit func(beam.EventTime, []byte), reject func(beam.EventTime, Rejection)) error {
	return f.stage.drain(ctx, f.emitter(ctx, emit), reject)
}

func (f *writeFn) Teardown(ctx context.Context) { f.stage.end(ctx) }

func (f *writeFn) emitter(ctx context.Context, emit func(beam.EventTime, []byte)) func(beam.EventTime, *output) {
	return func(t beam.EventTime, o *output) {
		lines := f.tally.add(ctx, o.classes, o.counts)
		f.progress.Labelled.Add(1)
		f.progress.Lines.Add(lines)
		emit(t, o.name)
	}
}

// tally counts documents, lines and labels; it keeps the counters, whose names
// depend on the data.
type tally map[string]beam.Counter

func (t tally) add(ctx context.Context, classes []string, counts []int64) (lines int64) {
	inc := func(name string, n int64) {
		c, ok := t[name]
		if !ok {
			c = beam.NewCounter(Namespace, name)
			t[name] = c
		}
		c.Inc(ctx, n)
	}
	for i, n := range counts {
		lines += n
		inc(LabelCounter+classes[i], n)
	}
	inc("documents", 1)
	inc("lines", lines)
	return lines
}

// LabelCounter begins the name of the counter of a label's lines.
const LabelCounter = "label_"

func (f *writeFn) write(ctx context.Context, l Labelled) (*output, *Rejection, error) {
	if f.progress.Stopped() { // thousands of small ones may be waiting for a slow disk
		return nil, nil, nil
	}
	out, r, err := f.writeOnce(ctx, l, f.Options.Again)
	if errors.Is(err, store.ErrTaken) && !f.Options.Again { // a record may say by whom
		out, r, err = f.writeOnce(ctx, l, true)
	}
	if errors.Is(err, store.ErrTaken) {
		return nil, l.reject("write", fmt.Errorf("%w, and no record says that predict wrote it (one that was killed may have, of another version, with other settings or before the document changed); move it to a folder of its own, or take --force to write over it", err)), nil
	}
	return out, r, err
}

// writeOnce, with again, asks first for the record that l may have. Its error wraps
// ErrTaken where an output's place has what no record tells of. A rejection by name or
// place is known to Plan before: trial.run and checkOutputs make it, too.
func (f *writeFn) writeOnce(ctx context.Context, l Labelled, again bool) (*output, *Rejection, error) {
	o, name := &f.Options, string(l.Name)
	st, err := o.outputStore(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := cmp.Or(o.misplaced(name), l.check()); err != nil {
		return nil, l.reject("write", err), nil
	}
	w := &writing{o, st, &l, nil, map[string]uint32{}, nil}
	if again {
		var r *Rejection
		if w.before, r, err = o.checkOverwrite(ctx, st, &l.Document); r != nil || err != nil {
			return nil, r, err
		}
	}
	lines, labels := l.Inked()
	if r, err := w.putFormats(ctx, f.formats, yedda.SpansOf(l.Text, lines, labels)); r != nil || err != nil {
		return nil, r, err
	}
	counts := make([]int64, len(l.Classes))
	for _, c := range l.Labels {
		counts[c]++
	}
	if other := slices.Index(l.Classes, l.Other); other >= 0 { // of lines that nobody can read
		counts[other] += int64(len(lines) - len(l.Rows))
	}
	record, err := f.record(&l, len(lines), counts, w.sums, w.before)
	if err != nil {
		return nil, nil, err
	}
	if r, err := w.put(ctx, o.donePath(name), record, w.write); r != nil || err != nil {
		return nil, r, err
	}
	return &output{l.Name, l.Classes, counts}, nil, o.deleteRejection(ctx, st, name)
}

// writing is a document whose files are being written.
type writing struct {
	*Options
	st     store.Store
	l      *Labelled
	before *Done             // the record of the outputs that are there, or nil
	sums   map[string]uint32 // of the outputs written so far, by their paths below the output folder
	added  []string          // the paths of those that were not there before
}

// putFormats writes the outputs of l. New formats come first: where they cannot be
// written, those before stay. The others' are deleted before the first of them. A format
// that cannot hold l rejects it when all others are written.
func (w *writing) putFormats(ctx context.Context, formats []format, spans []yedda.Span) (*Rejection, error) {
	add := w.st.Add
	if w.Force {
		add = w.write
	}
	name := string(w.l.Name)
	fresh, old := formats, []format(nil)
	if w.before != nil {
		fresh, old = w.before.split(formats, name)
	}
	var bad error
	forgotten := false
	for i, format := range slices.Concat(fresh, old) {
		files, err := format.encode(w.l, spans, w.Probabilities)
		if err != nil {
			bad = cmp.Or(bad, err)
			continue
		}
		if i >= len(fresh) && !forgotten {
			if err := w.deleteOutputs(ctx, w.st, name, w.before); err != nil {
				return nil, err
			}
			forgotten = true
		}
		for i, out := range format.outputs {
			path := out.Of(name)
			if r, err := w.put(ctx, store.Join(string(w.Output), path), files[i], add); r != nil || err != nil {
				return r, err
			}
			w.sums[path] = crc32.Checksum(files[i], castagnoli)
		}
	}
	if bad != nil {
		if len(w.sums) > 0 {
			bad = fmt.Errorf("%w; its other formats are written and no record tells of them, so that other labels take --force", bad)
		}
		return w.l.reject("write", bad), nil
	}
	return nil, nil
}

// put writes one file by write, and rejects l where it cannot have that name. Where it
// is rejected, or something of somebody's stands there, what was added goes, as no record
// will tell of it.
func (w *writing) put(ctx context.Context, path string, data []byte, write func(context.Context, string, []byte) (bool, error)) (*Rejection, error) {
	added, err := write(ctx, path, data)
	if errors.Is(err, store.ErrTaken) && w.writtenByThisRun(ctx, w.st, path) {
		added, err = w.write(ctx, path, data)
	}
	if err == nil && added {
		w.added = append(w.added, path)
	}
	if !badName(err) && !errors.Is(err, store.ErrTaken) {
		return nil, err
	}
	for _, path := range w.added {
		if err := remove(ctx, w.st, path); err != nil {
			return nil, err
		}
	}
	if !badName(err) {
		return nil, err
	}
	return w.l.reject("write", fmt.Errorf("%w; rename the document", err)), nil
}

// write is the store's Write, after which nothing of before is there.
func (w *writing) write(ctx context.Context, path string, data []byte) (bool, error) {
	return true, w.st.Write(ctx, path, data)
}

// record is the Done record of l, which has so many lines with ink, with its line
// break. Before is the one that it takes the place of, or nil.
func (f *writeFn) record(l *Labelled, lines int, counts []int64, sums map[string]uint32, before *Done) ([]byte, error) {
	o, name := &f.Options, string(l.Name)
	record := Done{
		Document: name, Bytes: base64Name(l.Name),
		Input: string(l.URI), InputBytes: base64Name(l.URI), InputSHA256: hex.EncodeToString(l.SHA256[:]),
		Model: o.ModelHash, Settings: o.Settings,
		Outputs: o.outputs(name), Lines: lines, Labels: map[string]int64{},
		Doubtful: l.doubtful(), Warnings: l.Warnings, Versions: o.Versions, Time: time.Now().UTC().Truncate(time.Millisecond),
	}
	for _, out := range record.Outputs {
		record.CRC32C = append(record.CRC32C, sums[out])
	}
	for i, n := range counts {
		record.Labels[l.Classes[i]] += n // of one's own making several may have one name
	}
	if before != nil {
		record.Earlier = before.sums()
		for _, out := range record.Outputs {
			delete(record.Earlier, inJSON(out))
		}
	}
	data, err := json.Marshal(record)
	return append(data, '\n'), err
}

// badName says that a document's name is the reason of a failed write, and not
// the store. EEXIST is what making a folder says where a file of its name comes
// at the same moment.
func badName(err error) bool {
	return errors.Is(err, store.ErrName) || errors.Is(err, syscall.EEXIST) || errors.Is(err, store.ErrFolder) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTEMPTY)
}

// format is one of the formats that Write knows.
type format struct {
	name    string
	outputs []input.Output
	// encode makes their contents, in the same order.
	encode func(l *Labelled, spans []yedda.Span, probabilities bool) ([][]byte, error)
}

var formats = []format{
	{"yedda", beside(".ann"), encodeYedda},
	{"brat", []input.Output{{Folder: "brat", Trim: ".txt", Suffix: ".txt"}, {Folder: "brat", Trim: ".txt", Suffix: ".ann"}}, func(l *Labelled, spans []yedda.Span, _ bool) ([][]byte, error) {
		for _, span := range spans {
			if strings.ContainsFunc(span.Label, unicode.IsSpace) {
				return nil, fmt.Errorf("label %q has white space, which ends a label in brat; rename the class, or choose another --format", span.Label)
			}
		}
		return [][]byte{l.Text, yedda.WriteBrat(l.Text, spans)}, nil
	}},
	{"jsonl", beside(".jsonl"), func(l *Labelled, spans []yedda.Span, probabilities bool) ([][]byte, error) {
		return [][]byte{yedda.WriteJSONL(l.table(), spans, probabilities)}, nil
	}},
	{"csv", beside(".csv"), func(l *Labelled, _ []yedda.Span, probabilities bool) ([][]byte, error) {
		return [][]byte{yedda.WriteCSV(l.table(), probabilities)}, nil
	}},
	{"tsv", beside(".tsv"), func(l *Labelled, spans []yedda.Span, _ bool) ([][]byte, error) {
		return [][]byte{yedda.WriteTSV(l.Text, spans)}, nil
	}},
	{"treatments", beside(".treatments.jsonl"), func(l *Labelled, spans []yedda.Span, _ bool) ([][]byte, error) {
		return [][]byte{yedda.WriteTreatments(l.table(), spans)}, nil
	}},
	{"html", []input.Output{reviewPage}, func(l *Labelled, _ []yedda.Span, _ bool) ([][]byte, error) {
		lines, labels := l.Inked()
		return [][]byte{yedda.WriteHTML(l.table(), lines, labels)}, nil
	}},
}

// encodeYedda marks neighbouring lines with one label as one span, and reads
// the result again before it gives it away: labels of someone else's may be none
// of YEDDA.
func encodeYedda(l *Labelled, spans []yedda.Span, _ bool) ([][]byte, error) {
	out := yedda.Format(l.Text, spans)
	if !yedda.Recovers(out, l.Text) {
		for _, span := range spans {
			x := []byte("x")
			if one := []yedda.Span{{End: 1, Label: span.Label}}; !yedda.Recovers(yedda.Format(x, one), x) {
				return nil, fmt.Errorf("label %q is none of YEDDA, which takes %s; rename the class, or choose another --format", span.Label, yedda.LabelRule)
			}
		}
		return nil, errors.New("its text would not come back from YEDDA; choose another --format")
	}
	return [][]byte{out}, nil
}

func beside(suffix string) []input.Output { return []input.Output{{Suffix: suffix}} }

var reviewPage = input.Output{Folder: "html", Suffix: ".html"}

// Formats are the names that Options.Formats may hold.
func Formats() []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return names
}

// formats are those that the options name, in the order of Formats.
func (o *Options) formats() ([]format, error) {
	if len(o.Formats) == 0 {
		return formats[:1], nil
	}
	for _, name := range o.Formats {
		if !slices.Contains(Formats(), name) {
			return nil, fmt.Errorf("transforms: format %q is none; there are %s", name, strings.Join(Formats(), ", "))
		}
	}
	var out []format
	for _, f := range formats {
		if slices.Contains(o.Formats, f.name) {
			out = append(out, f)
		}
	}
	return out, nil
}

// Outputs are the files that each document gets.
func (o *Options) Outputs() (outputs []input.Output) {
	chosen, err := o.formats()
	if err != nil {
		return nil // Write refused it when the pipeline was built
	}
	for _, f := range chosen {
		outputs = append(outputs, f.outputs...)
	}
	return outputs
}

// outputs are the paths of a document's files below the output folder.
func (o *Options) outputs(name string) (paths []string) {
	for _, out := range o.Outputs() {
		paths = append(paths, out.Of(name))
	}
	return paths
}

func init() { beam.RegisterDoFn(&writeFn{}) }
