// Command linnet is Linnet's side of scripts/bench: it makes the models and
// texts that every contender gets, and times a model without Beam.
//
//	linnet models DIR          writes DIR/H, models of H hidden units: the bundled
//	                           one, and 96 and 256
//	linnet texts DIR LINES FILE…
//	                           copies the files, without markup, over and over
//	                           until they have LINES lines that are not blank
//	linnet serve MODEL TEXTS   answers commands from the standard input, each
//	                           with a line of JSON:
//	    dump FILE              writes a batch and its probabilities
//	    time WHAT CALLERS SECONDS
//	                           calls Score over and over from CALLERS
//	                           goroutines; WHAT is table (all of Score) or x
//	                           (what follows the line vectors)
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/maruel/safetensors"
	"golang.org/x/sync/errgroup"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/model/cpu"
	"github.com/linnet-ml/linnet/model/kernel"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// The shapes of the comparison: windows × lines of each, and D.
const (
	windows = 64
	steps   = 50
	d       = 64
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "linnet:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "models":
		return models(args[1])
	case len(args) > 3 && args[0] == "texts":
		return texts(args[1], args[2], args[3:])
	case len(args) == 3 && args[0] == "serve":
		return serve(args[1], args[2])
	}
	return errors.New("usage: linnet models DIR | texts DIR LINES FILE… | serve MODEL TEXTS")
}

// answer prints v as a line of JSON.
func answer(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// models writes the bundled model, and made-up weights with its classes for each
// other H that is compared.
func models(dir string) error {
	w, err := bundled.Weights()
	if err != nil {
		return err
	}
	made := map[string]string{}
	for _, hidden := range slices.Compact([]int{w.Config.HiddenSize, 96, 256}) {
		use, what := w, "the bundled model"
		if c := w.Config; hidden != c.HiddenSize {
			c.HiddenSize = hidden
			use, what = modeltest.Weights(c, 1), "made-up weights"
		}
		name := strconv.Itoa(hidden)
		if err := model.Save(filepath.Join(dir, name), use, nil); err != nil {
			return err
		}
		made[name] = what
	}
	return answer(made)
}

func texts(dir, want string, files []string) error {
	lines, err := strconv.Atoi(want)
	if err != nil {
		return err
	}
	var sources [][]byte
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".ann") {
			text = yedda.Parse(text).Text
		}
		sources = append(sources, text)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	documents, have, bytes := 0, 0, 0
	for have < lines {
		text := sources[documents%len(sources)]
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.txt", documents)), text, 0o666); err != nil {
			return err
		}
		documents++
		have += len(yedda.Rows(text))
		bytes += len(text)
		if documents >= len(sources) && have == 0 {
			return errors.New("the texts have no lines")
		}
	}
	return answer(map[string]int{"documents": documents, "lines": have, "bytes": bytes})
}

// server times one model on one batch.
type server struct {
	w      *model.Weights
	scorer *cpu.Scorer
	table  *model.Batch // windows of real lines
	x      *model.Batch // the same without ids
	layout *kernel.Packed
}

func serve(dir, texts string) error {
	w, err := model.Load(os.DirFS(dir))
	if err != nil {
		return err
	}
	s := &server{w: w}
	if s.scorer, err = cpu.New(w); err != nil {
		return err
	}
	if s.table, err = batch(texts, w.Config.InputSize); err != nil {
		return err
	}
	x := *s.table
	x.IDs, x.GroupEnd, x.GroupScale = nil, make([]uint32, len(x.GroupEnd)), make([]float32, len(x.GroupEnd))
	s.x = &x
	s.layout = kernel.Pack(w.LayoutWeights, w.Config.LayoutSize, d, d)
	if err := answer(map[string]any{
		"isa": kernel.ISA(), "ids_per_line": float64(len(s.table.IDs)) / float64(s.table.NumLines()),
	}); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		f := strings.Fields(in.Text())
		switch {
		case len(f) == 2 && f[0] == "dump":
			err = s.dump(f[1])
		case len(f) == 4 && f[0] == "time":
			err = s.time(f[1], f[2], f[3])
		default:
			err = fmt.Errorf("no command: %q", in.Text())
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}

// batch is windows × steps lines of the texts in dir, from as many documents as
// there are.
func batch(dir string, inputSize int) (*model.Batch, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var documents []*model.Batch
	for _, name := range files[:min(windows, len(files))] {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		documents = append(documents, feature.Extract(text, yedda.Rows(text), inputSize, 1))
	}
	b := new(model.Batch)
	for i, found := 0, true; found; i++ { // a window of each document in turn
		found = false
		for _, from := range documents {
			if (i+1)*steps > from.NumLines() {
				continue
			}
			found = true
			b.Windows = append(b.Windows, model.ContextWindow{First: b.AppendLines(from, i*steps, steps), Len: steps})
			if len(b.Windows) == windows {
				return b, nil
			}
		}
	}
	return nil, fmt.Errorf("%s: %d windows of %d lines; %d are needed", dir, len(b.Windows), steps, windows)
}

// dump writes the batch and what Linnet says of it as safetensors.
func (s *server) dump(name string) error {
	b := s.table
	probs := make([]float32, b.NumSteps()*s.w.Config.NumOutputs())
	if err := s.scorer.Score(context.Background(), b, probs); err != nil {
		return err
	}
	lines := b.NumLines()
	var file safetensors.File
	add := func(name string, kind safetensors.DType, p unsafe.Pointer, rows, columns int) {
		file.Tensors = append(file.Tensors, safetensors.Tensor{
			Name: name, DType: kind, Shape: []uint64{uint64(rows), uint64(columns)},
			Data: unsafe.Slice((*byte)(p), 4*rows*columns), // every number has four bytes
		})
	}
	add("ids", safetensors.I32, unsafe.Pointer(&b.IDs[0]), 1, len(b.IDs))
	add("group_end", safetensors.I32, unsafe.Pointer(&b.GroupEnd[0]), lines, model.Groups)
	add("group_scale", safetensors.F32, unsafe.Pointer(&b.GroupScale[0]), lines, model.Groups)
	add("layout", safetensors.F32, unsafe.Pointer(&b.Layout[0]), lines, s.w.Config.LayoutSize)
	add("probs", safetensors.F32, unsafe.Pointer(&probs[0]), lines, s.w.Config.NumOutputs())
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := file.Serialize(out); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Close(); err != nil {
		return err
	}
	return answer(map[string]string{"dump": name})
}

// clip is where model/cpu cuts a standardised layout number.
const clip = 6

// vectors computes the line vectors of x, which has no ids, as model/cpu does.
func (s *server) vectors(layout, x []float32) {
	size := s.w.Config.LayoutSize
	for l := 0; l < windows*steps; l += windows {
		kernel.StandardiseRows(windows, layout, s.x.Layout[l*size:], s.w.LayoutMean, s.w.LayoutInvStd, clip)
		kernel.GemmBias(windows, layout, size, s.layout, s.w.LayoutBias, x, d)
		for i := range windows {
			kernel.Tanh(x[i*d:][:d])
		}
	}
}

// time answers the seconds a batch takes all callers together: a call's, at its
// median and its least, by the number of callers. Of x, what makes its line vectors is
// timed in turn with the whole, and its median and least are taken off.
func (s *server) time(what, callers, seconds string) error {
	n, err := strconv.Atoi(callers)
	if err != nil {
		return err
	}
	length, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	b, parts := s.table, 1
	switch what {
	case "table":
	case "x":
		b, parts = s.x, 2
	default:
		return fmt.Errorf("no such thing to time: %s", what)
	}
	runtime.GOMAXPROCS(n)
	times := make([][][]float64, n) // of a caller, part and call
	end := time.Now().Add(time.Duration(length * float64(time.Second)))
	var group errgroup.Group
	for i := range n {
		times[i] = make([][]float64, parts)
		group.Go(func() error {
			probs := make([]float32, windows*steps*s.w.Config.NumOutputs())
			layout, x := make([]float32, windows*s.w.Config.LayoutSize), make([]float32, windows*d)
			for first := true; first || time.Now().Before(end); first = false {
				begin := time.Now()
				if err := s.scorer.Score(context.Background(), b, probs); err != nil {
					return err
				}
				times[i][0] = append(times[i][0], time.Since(begin).Seconds())
				if parts > 1 {
					begin = time.Now()
					s.vectors(layout, x)
					times[i][1] = append(times[i][1], time.Since(begin).Seconds())
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	median, least, sign := 0., 0., 1.
	for j := range parts {
		var all []float64
		for i := range n {
			all = append(all, times[i][j]...)
		}
		slices.Sort(all)
		median += sign * all[len(all)/2]
		least += sign * all[0]
		sign = -1
	}
	return answer(map[string]any{"median": median / float64(n), "min": least / float64(n)})
}
