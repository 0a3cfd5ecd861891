// Command linear is a second user of transforms/inference, beside predict: a
// linear model over lines of numbers, on any runner. model.go is all that the
// model takes; what it looks like from outside is here.
//
//	linear --input=rows.csv --model='models/*.json' --output=out
//
// It writes out/results.csv, each line with its answer, and out/failed.tsv, each
// line that the model could not answer with the cause, and prints the metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/local"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/textio"

	"github.com/linnet-ml/linnet/runners"
	"github.com/linnet-ml/linnet/transforms/inference"
)

const (
	namespace = "linear"
	results   = "results.csv"
	failures  = "failed.tsv"
)

// textio leaves the CR of CR LF on the line.
func withAnswer(line string, y float64) string {
	return strings.TrimSuffix(line, "\r") + "," + strconv.FormatFloat(y, 'g', -1, 64)
}

func withCause(line, cause string) string {
	return strings.TrimSuffix(line, "\r") + "\t" + cause
}

func init() {
	inference.Register[string, float64, Linear]()
	beam.RegisterFunction(withAnswer)
	beam.RegisterFunction(withCause)
}

// pipeline answers the lines of the file input.
func pipeline(s beam.Scope, input, output string, model Linear) {
	lines := beam.Reshuffle(s, textio.Read(s, input))
	options := inference.Options{
		MaxBatchSize: 64, BucketWeights: []int64{16, 64}, // lines of like length together
		Timeout: time.Minute, Namespace: namespace,
	}
	answered, failed := inference.RunInference[string, float64](s, model, options, lines)
	textio.Write(s, filepath.Join(output, results), beam.ParDo(s, withAnswer, answered))
	textio.Write(s, filepath.Join(output, failures), beam.ParDo(s, withCause, failed))
}

func run(ctx context.Context) error {
	input := flag.String("input", "", "`file` of lines of numbers with commas between")
	output := flag.String("output", "", "`folder` to write to")
	model := flag.String("model", "", "`pattern` of model files, of which the newest is taken, looked at once a bundle")
	runners.Define(flag.CommandLine)
	flag.Parse()
	if done, err := runners.Boot(ctx); done {
		return err
	}
	runners.Init(0) // a worker that Beam's own boot program started stays in here
	if *input == "" || *output == "" || *model == "" || flag.NArg() > 0 {
		return fmt.Errorf("name --input, --output and --model, and nothing else")
	}
	if err := runners.Check(); err != nil {
		return err
	}
	found, err := filepath.Glob(*input)
	if err != nil || len(found) == 0 { // textio reads nothing, and says nothing
		return fmt.Errorf("no file matches --input=%s; name one", *input)
	}
	for _, name := range []string{results, failures} { // textio writes no empty file: the run before's would stay
		out := filepath.Join(*output, name)
		if slices.ContainsFunc(found, func(in string) bool { return same(in, out) }) {
			return fmt.Errorf("%s is an input and would be written over; name another --output", out)
		}
		if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	p, s := beam.NewPipelineWithRoot()
	pipeline(s, *input, *output, Linear{Pattern: *model})
	result, err := runners.Run(ctx, p, namespace, 0)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(result.Counters)) {
		fmt.Printf("%s %d\n", name, result.Counters[name])
	}
	for _, name := range slices.Sorted(maps.Keys(result.Distributions)) {
		d := result.Distributions[name]
		fmt.Printf("%s count %d sum %d min %d max %d\n", name, d.Count, d.Sum, d.Min, d.Max)
	}
	return nil
}

// same reports whether both paths are of one file, which is there.
func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "linear:", err)
		os.Exit(1)
	}
}
