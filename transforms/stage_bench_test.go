//go:build unix

package transforms

import (
	"cmp"
	"context"
	"crypto/sha256"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// BenchmarkStage says what a line costs in each stage of predict, and in the
// whole of it, with the bundled model: the processor time of the process,
// garbage collection included, per line that reaches the model. The documents
// are those of LINNET_CORPUS; 10 rounds (-benchtime=10x) are enough.
//
//	read     files into memory, SHA-256
//	rows     markup taken out, lines found
//	features ids and layout numbers
//	table    layout standardised and multiplied, rows of the table summed
//	lstm     both directions, output and softmax: score less table
//	score    all of the model, in batches as Predict makes them
//	decode   probabilities averaged, labels chosen
//	yedda    spans made, marked and checked
//	write    outputs and records written
//	predict  the pipeline on the direct runner, from files to files
func BenchmarkStage(b *testing.B) {
	s := newStages(b)
	table := s.measure(b, "table", s.table)
	s.measure(b, "read", func() {
		for i := range s.docs {
			_, s.err = s.read.readWithRetries(b.Context(), string(s.docs[i].URI), 0)
			sha256.Sum256(s.data[i])
		}
	})
	s.measure(b, "rows", func() {
		for i := range s.docs {
			yedda.Rows(yedda.Parse(s.data[i]).Text)
		}
	})
	s.measure(b, "features", func() {
		var memory model.Batch
		for i := range s.docs {
			feature.ExtractTo(&memory, s.docs[i].Text, s.docs[i].Rows, s.predict.model.Config.InputSize, 1)
		}
	})
	score := s.measure(b, "score", s.score)
	if score > 0 && table > 0 {
		b.Run("lstm", func(b *testing.B) {
			for b.Loop() {
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(score-table, "ns/line")
		})
	}
	s.measure(b, "decode", func() {
		for i := range s.docs {
			s.predict.decode(&s.docs[i], s.outs[i])
		}
	})
	s.measure(b, "yedda", func() {
		for i := range s.labelled {
			l := &s.labelled[i]
			lines, labels := l.Inked()
			_, s.err = encodeYedda(l, yedda.SpansOf(l.Text, lines, labels), false)
		}
	})
	s.measure(b, "write", func() { s.write(b.Context()) })
	s.measure(b, "predict", func() { s.run(b.TempDir()) })
}

// stages are the documents with what comes out of each stage.
type stages struct {
	lines    int
	err      error
	read     *readFn
	predict  *predictFn
	writer   *writeFn
	weights  *model.Weights
	data     [][]byte // as read
	docs     []Document
	features []*model.Batch
	batches  [][]windowItem
	place    map[windowItem][2]int // document and window
	outs     [][]scored            // a document's windows
	labelled []Labelled
	marked   [][]byte
}

func newStages(b *testing.B) *stages {
	root := os.Getenv("LINNET_CORPUS")
	if root == "" {
		root = filepath.Join("..", "..", "shared", "corpus")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(root); err != nil {
		b.Skipf("no corpus of annotated journals: %v; set LINNET_CORPUS", err)
	}
	opts := Options{Base: Path(root), Output: Path(b.TempDir()), Force: true, ModelHash: "", WindowSize: -1, Deferred: true}
	s := &stages{read: &readFn{Options: opts}, predict: &predictFn{Options: opts}, writer: &writeFn{Options: opts}, place: map[windowItem][2]int{}}
	s.read.Setup()
	if err := cmp.Or(s.predict.Setup(b.Context()), s.writer.Setup()); err != nil {
		b.Fatal(err)
	}
	if s.weights, err = bundled.Weights(); err != nil {
		b.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".txt.ann") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		d := Document{URI: []byte(path), Name: []byte(input.Name(root, path)), Text: yedda.Parse(data).Text}
		if d.Rows = yedda.Rows(d.Text); len(d.Rows) > 0 {
			s.docs, s.data = append(s.docs, d), append(s.data, data)
			s.lines += len(d.Rows)
		}
		return nil
	})
	if err != nil || s.lines == 0 {
		b.Fatalf("%d lines in %s: %v", s.lines, root, err)
	}
	var items []windowItem
	for i := range s.docs {
		f := feature.Extract(s.docs[i].Text, s.docs[i].Rows, s.weights.Config.InputSize, 1)
		s.features = append(s.features, f)
		windows := s.predict.windows(len(s.docs[i].Rows))
		s.outs = append(s.outs, make([]scored, len(windows)))
		src := &source{features: f}
		for j, w := range windows {
			it := windowItem{src, w}
			items = append(items, it)
			s.place[it] = [2]int{i, j}
		}
	}
	slices.SortStableFunc(items, func(a, b windowItem) int { return cmp.Compare(a.window.Len, b.window.Len) })
	for len(items) > 0 {
		n, lines := 0, 0
		for n < len(items) && n < s.weights.Config.WindowsPerBatch() && (n == 0 || lines+items[n].window.Len <= batchLines) {
			lines += items[n].window.Len
			n++
		}
		s.batches = append(s.batches, items[:n])
		items = items[n:]
	}
	s.score()
	for i := range s.docs {
		l, err := s.predict.decode(&s.docs[i], s.outs[i])
		if err != nil {
			b.Fatal(err)
		}
		s.labelled = append(s.labelled, l)
		lines, labels := l.Inked()
		s.marked = append(s.marked, yedda.Format(l.Text, yedda.SpansOf(l.Text, lines, labels)))
	}
	if s.err != nil {
		b.Fatal(s.err)
	}
	return s
}

// measure runs f as often as the benchmark wants, and returns and reports the
// nanoseconds of processor time a line.
func (s *stages) measure(b *testing.B, name string, f func()) (perLine float64) {
	b.Run(name, func(b *testing.B) {
		f()
		runtime.GC()
		begin, rounds := processorTime(), 0
		for b.Loop() {
			f()
			rounds++
		}
		if s.err != nil {
			b.Fatal(s.err)
		}
		perLine = float64(processorTime()-begin) / float64(rounds) / float64(s.lines)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(perLine, "ns/line")
	})
	return perLine
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// table is what stands before the LSTM, by the kernels that the Scorer calls.
func (s *stages) table() {
	const lines, groups = 64, model.Groups
	w, d, l := s.weights, s.weights.Config.EmbeddingSize, s.weights.Config.LayoutSize
	packed, table := kernel.Pack(w.LayoutWeights, l, d, d), kernel.NewTable(w.Table, w.TableScale, d)
	layout, x := make([]float32, lines*l), make([]float32, lines*d)
	for _, f := range s.features {
		var id uint32
		for first := 0; first < f.NumLines(); first += lines {
			n := min(lines, f.NumLines()-first)
			kernel.StandardiseRows(n, layout, f.Layout[first*l:], w.LayoutMean, w.LayoutInvStd, 6)
			kernel.GemmBias(n, layout, l, packed, w.LayoutBias, x, d)
			ends := f.GroupEnd[first*groups : (first+n)*groups]
			kernel.SumLines(x, d, table, f.IDs, id, ends, f.GroupScale[first*groups:], groups)
			id = ends[len(ends)-1]
			kernel.Tanh(x[:n*d])
		}
	}
}

func (s *stages) score() {
	h := scorerHandler{model: s.predict.model}
	for _, items := range s.batches {
		outs, err := h.Run(context.Background(), items)
		if err != nil {
			s.err = err
			return
		}
		for i, it := range items {
			at := s.place[it]
			s.outs[at[0]][at[1]] = outs[i]
		}
	}
}

func (s *stages) write(ctx context.Context) {
	o := &s.writer.Options
	st, err := o.outputStore(ctx)
	if err != nil {
		s.err = err
		return
	}
	for i := range s.labelled {
		l := &s.labelled[i]
		record, err := s.writer.record(l, len(l.Rows), make([]int64, len(l.Classes)), map[string]uint32{string(l.Name) + ".ann": crc32.Checksum(s.marked[i], castagnoli)}, nil)
		s.err = cmp.Or(s.err, err,
			st.Write(ctx, store.Join(string(o.Output), string(l.Name)+".ann"), s.marked[i]),
			st.Write(ctx, o.donePath(string(l.Name)), record))
	}
}

func (s *stages) run(output string) {
	opts := s.read.Options
	opts.Output, opts.Run = Path(output), "stages"
	var uris [][]byte
	for i := range s.docs {
		uris = append(uris, s.docs[i].URI)
	}
	_, err := runOn("direct", func(scope beam.Scope) {
		docs, _ := Read(scope, opts, beam.CreateList(scope, uris))
		examples, _ := Featurize(scope, opts, docs)
		labelled, _ := Predict(scope, opts, examples)
		Write(scope, opts, labelled)
	})
	s.err = cmp.Or(s.err, err)
}
