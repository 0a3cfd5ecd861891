package typeset

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/eval"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// settings are those that the benchmarks judge a model by.
var settings = []struct {
	name string
	set  func([]line, *rand.Rand) []line
}{
	{"as it stands", func(l []line, _ *rand.Rand) []line { return l }},
	{"a line a paragraph", func(l []line, _ *rand.Rand) []line { return fill(l, 0) }},
	{"40 bytes a line", func(l []line, _ *rand.Rand) []line { return fill(l, 40) }},
	{"110 bytes a line", func(l []line, _ *rand.Rand) []line { return fill(l, 110) }},
	{"half in capitals", func(l []line, r *rand.Rand) []line { capitalise(l, r); return l }},
	{"no blank line", func(l []line, _ *rand.Rand) []line { space(l, "\n"); return l }},
	{"a blank line after each", func(l []line, _ *rand.Rand) []line { space(l, "\n\n"); return l }},
	{"misread", func(l []line, r *rand.Rand) []line {
		for i := range l {
			l[i].text = addOCRErrors(l[i].text, r)
		}
		return l
	}},
	{"broken off", abridge},
	{"names of two words", func(l []line, _ *rand.Rand) []line { return bare(l, 2) }},
	{"names of four words", func(l []line, _ *rand.Rand) []line { return bare(l, 4) }},
}

// bare leaves of each name its first words.
func bare(lines []line, words int) (kept []line) {
	for i, l := range lines {
		if l.label == "Nomenclature" {
			if i > 0 && lines[i-1].label == l.label {
				continue
			}
			l.text = l.text[:wordsEnd(l.text, words)]
		}
		kept = append(kept, l)
	}
	return kept
}

// BenchmarkSettings tells macro-F1 of a model (the bundled one, or that of the folder
// LINNET_MODEL) on the development volumes of LINNET_CORPUS in each setting.
func BenchmarkSettings(b *testing.B) {
	judge, docs := newJudge(b), development(b)
	for _, s := range settings {
		b.Run(s.name, func(b *testing.B) {
			counts := eval.NewCounts(judge.config.Classes)
			for b.Loop() {
				counts = eval.NewCounts(judge.config.Classes)
				for i, doc := range docs {
					gold := s.set(slices.Clone(doc), rand.New(rand.NewPCG(uint64(i), 1)))
					for k, class := range judge.label(b, gold) {
						if gold[k].label != "" {
							counts.Add(judge.config.Class(gold[k].label), class, 1)
						}
					}
				}
			}
			r := counts.Report()
			b.ReportMetric(r.MacroF1, "macro-F1")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkFirstNames tells of how many documents that begin with a name, parts of the
// development volumes, the first line is called one, and of how many that begin with
// another paragraph.
func BenchmarkFirstNames(b *testing.B) {
	judge, docs := newJudge(b), development(b)
	name := judge.config.Class("Nomenclature")
	for _, s := range settings {
		b.Run(s.name, func(b *testing.B) {
			var found, names, mistaken, others float64
			for b.Loop() {
				found, names, mistaken, others = 0, 0, 0, 0
				for i, doc := range docs {
					for first, l := range doc {
						if !begins(doc, first) || l.label == "" || first > 0 && judge.config.Class(doc[first-1].label) == judge.config.Class(l.label) {
							continue
						}
						part := slices.Clone(doc[first:min(first+60, len(doc))])
						part[0].before = nil
						called := judge.label(b, s.set(part, rand.New(rand.NewPCG(uint64(i), uint64(first)))))[0] == name
						if judge.config.Class(l.label) == name {
							names++
							if called {
								found++
							}
						} else {
							others++
							if called {
								mistaken++
							}
						}
					}
				}
			}
			b.ReportMetric(100*found/names, "%found")
			b.ReportMetric(100*mistaken/others, "%mistaken")
			b.ReportMetric(names, "names")
			b.ReportMetric(others, "others")
			b.ReportMetric(0, "ns/op")
		})
	}
}

type judge struct {
	config *model.Config
	scorer *cpu.Scorer
}

// development has the lines of each document of the development volumes.
func development(b *testing.B) (docs [][]line) {
	root := os.Getenv("LINNET_CORPUS")
	if root == "" {
		root = "../../../shared/corpus"
	}
	for _, volume := range []string{"Mycotaxon/Vol119", "Persoonia/Vol016/n4.txt.ann"} {
		filepath.WalkDir(filepath.Join(root, filepath.FromSlash(volume)), func(path string, _ fs.DirEntry, err error) error {
			src, e := os.ReadFile(path)
			if err != nil || e != nil || !strings.HasSuffix(path, ".ann") {
				return nil
			}
			d := yedda.Parse(src)
			rows := yedda.Rows(d.Text)
			lines, _ := split(d.Text, rows, d.LineLabels(rows))
			docs = append(docs, lines)
			return nil
		})
	}
	if len(docs) == 0 {
		b.Skipf("no development volumes in %s; set LINNET_CORPUS", root)
	}
	return docs
}

func newJudge(b *testing.B) *judge {
	w, err := bundled.Weights()
	if dir := os.Getenv("LINNET_MODEL"); dir != "" {
		w, err = model.Load(os.DirFS(dir))
	}
	if err != nil {
		b.Fatal(err)
	}
	if w, err = w.Head(model.Collapsed); err != nil {
		b.Fatal(err)
	}
	scorer, err := cpu.New(w)
	if err != nil {
		b.Fatal(err)
	}
	return &judge{&w.Config, scorer}
}

// label is the class of each of lines, which are a document.
func (j *judge) label(b *testing.B, lines []line) []int {
	text, _ := join(lines)
	batch := feature.Extract(text, yedda.Rows(text), j.config.InputSize, 1)
	batch.Windows = model.Windows(len(lines), j.config.WindowSize, j.config.PredictionStride)
	k := len(j.config.Classes)
	probs := make([]float32, batch.NumSteps()*k)
	if err := j.scorer.Score(b.Context(), batch, probs); err != nil {
		b.Fatal(err)
	}
	classes := make([]int, len(lines))
	for i := range classes {
		for c := range k {
			if probs[i*k+c] > probs[i*k+classes[i]] {
				classes[i] = c
			}
		}
	}
	return classes
}
