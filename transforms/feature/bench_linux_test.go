package feature

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// benchText is the corpus where there is one, and otherwise the texts of the
// goldens many times over.
func benchText(b *testing.B) (texts [][]byte, rows [][]yedda.Line, lines int) {
	root := os.Getenv("LINNET_CORPUS")
	if root == "" {
		root = "../../../shared/corpus"
	}
	filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".ann" {
			if src, err := os.ReadFile(path); err == nil {
				texts = append(texts, yedda.Parse(src).Text)
			}
		}
		return nil
	})
	if len(texts) == 0 {
		b.Logf("no corpus in %s: the goldens' texts instead", root)
		_, golden, _ := readGoldens(b)
		for range 30 {
			texts = append(texts, golden...)
		}
	}
	for _, text := range texts {
		rows = append(rows, yedda.Rows(text))
		lines += len(rows[len(rows)-1])
	}
	return texts, rows, lines
}

// perLine runs f, over so many lines, and reports the CPU time of the process
// as well as the time that passed: benchmarks share their machine.
func perLine(b *testing.B, lines int, f func()) {
	f()
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		f()
	}
	n := float64(b.N) * float64(lines)
	b.ReportMetric(float64(cpuTime()-before)/n, "cpu-ns/line")
	b.ReportMetric(float64(b.Elapsed())/n, "ns/line")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkExtract(b *testing.B) {
	texts, rows, lines := benchText(b)
	b.Run("reused", func(b *testing.B) { // the memory of one batch
		batch := new(model.Batch)
		perLine(b, lines, func() {
			for i, text := range texts {
				ExtractTo(batch, text, rows[i], 1<<16, 1)
			}
		})
	})
	for _, workers := range []int{1, 2} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			perLine(b, lines, func() {
				for i, text := range texts {
					Extract(text, rows[i], 1<<16, workers)
				}
			})
		})
	}
}

// The stages of Extract, in memory that is there.
func BenchmarkStage(b *testing.B) {
	texts, rows, lines := benchText(b)
	type work struct {
		e     *extractor
		batch *model.Batch
	}
	var all []work
	for i, text := range texts {
		e, batch := new(extractor), new(model.Batch)
		e.extract(batch, text, rows[i], 1<<16, 1)
		all = append(all, work{e, batch})
	}
	each := func(f func(i int, w work, p *part)) func() {
		return func() {
			for i, w := range all {
				f(i, w, w.e.doc.parts[0])
			}
		}
	}
	eachLine := func(f func(i, k int, w work, p *part)) func() {
		return each(func(i int, w work, p *part) {
			for k := range rows[i] {
				p.line.read(texts[i][rows[i][k].Start:rows[i][k].End:len(texts[i])])
				f(i, k, w, p)
			}
		})
	}
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) { perLine(b, lines, f) })
	}
	run("line", eachLine(func(int, int, work, *part) {}))
	run("line+ids", eachLine(func(_, _ int, w work, p *part) {
		p.ids, _, _ = p.line.appendIDs(p.ids[:0], w.batch.GroupEnd[:0], w.batch.GroupScale[:0], 1<<16)
	}))
	var m marks
	run("line+find", eachLine(func(_, _ int, w work, p *part) {
		p.words, p.genera = p.line.find(&m, p.words[:0], p.genera[:0])
	}))
	run("line+numbers", eachLine(func(_, k int, w work, p *part) {
		p.line.writeLayout(&m, w.batch.Layout[k*LayoutSize:])
	}))
	run("read", each(func(i int, w work, p *part) {
		p.read(texts[i], rows[i], w.e.doc.rows, w.batch, 1<<16)
	}))
	run("read+count", each(func(i int, w work, p *part) {
		p.read(texts[i], rows[i], w.e.doc.rows, w.batch, 1<<16)
		w.e.doc.count(w.e.doc.room())
	}))
	run("small", each(func(_ int, w work, p *part) { w.e.doc.countSmall(p) }))
	run("document", each(func(i int, w work, p *part) { w.e.doc.writeLayout(w.batch.Layout, 0, len(rows[i])) }))
}
