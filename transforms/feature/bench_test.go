package feature

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/linnet-ml/linnet/transforms/yedda"
)

func corpus(tb testing.TB) [][]byte {
	root := os.Getenv("LINNET_CORPUS")
	if root == "" {
		root = "../../../shared/corpus"
	}
	var out [][]byte
	filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(p) == ".ann" {
			src, err := os.ReadFile(p)
			if err == nil {
				out = append(out, yedda.Strip(src))
			}
		}
		return nil
	})
	if len(out) == 0 {
		tb.Skipf("no corpus in %s", root)
	}
	return out
}

func BenchmarkCorpus(b *testing.B) {
	texts := corpus(b)
	var rows [][]yedda.Line
	n, ids := 0, 0
	for _, t := range texts {
		rows = append(rows, yedda.Rows(t))
		n += len(rows[len(rows)-1])
	}
	b.ReportAllocs()
	for b.Loop() {
		ids = 0
		for i, t := range texts {
			ids += len(Extract(t, rows[i], 1<<16, 1).IDs)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/line")
	b.ReportMetric(float64(ids)/float64(n), "ids/line")
}
