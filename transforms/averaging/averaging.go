// Package averaging trains one model by many workers, in rounds. A round is a
// pipeline of its own: Train hands each worker its number; the worker reads the
// state that the round begins with from a file, takes the round's steps on its
// share of every batch, and writes where it came to. Weights, moments and
// documents travel as files, on disks that all share or in gs:// buckets, so
// elements are numbers and nothing large crosses the runner.
//
// It promises that a worker's result depends on the state, its number and the
// documents alone: a retried bundle writes the same file again, and every
// runner gives the same weights on one instruction set.
package averaging

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/dustin/go-humanize/english"

	"github.com/linnet-ml/linnet/gpuinit"
	"github.com/linnet-ml/linnet/model/backend"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/feature"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/typeset"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// Job is what the workers of a training need to know, beside the state that a
// round begins with.
type Job struct {
	// Folder is where the files of the training lie; launcher and workers
	// reach it by the same name.
	Folder transforms.Path
	// InputSize is the number of rows of the embedding table.
	InputSize int
	// Cores that each worker uses, 0 for all of its machine.
	Cores int
	// Device of each worker: cuda for a GPU of its own, else the CPU.
	Device string
	// GPUMemory bounds what a worker takes of its GPU, in bytes; 0 is no bound.
	GPUMemory int64
	// Verbosity of what workers log: 2 adds a line a share.
	Verbosity int
}

// Document is one annotated document of the training or, where End is above 0, its
// lines [First, End) as a document, set anew (typeset.Vary) by Setting unless that is 0.
type Document struct {
	URI        transforms.Path // where it is read
	Name       transforms.Path
	First, End int
	Setting    uint64
}

// File names below Job.Folder.
const (
	documentsFile = "documents.json"
	stateFile     = "round.state"
	sharePrefix   = "share-"
)

func (j *Job) file(name string) string { return store.Join(string(j.Folder), name) }

// shareFile is where a worker writes what it came to by the end of a round.
func (j *Job) shareFile(end, worker int) string {
	return j.file(fmt.Sprintf(sharePrefix+"%d-%d.state", end, worker))
}

// Begin writes the list of the documents for the workers. docs are the same documents,
// already read, for workers in this process.
func (j *Job) Begin(ctx context.Context, list []Document, docs []train.Document) error {
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	docCache.Lock()
	docCache.key, docCache.docs = key(data, j.InputSize), docs
	docCache.Unlock()
	// A round that an earlier training left would be taken for one of this.
	if err := store.Delete(ctx, j.file(roundFile)); err != nil {
		return err
	}
	return store.Write(ctx, j.file(documentsFile), data)
}

// Round runs one round: it writes r's state, lets run run the pipeline to its
// end, and merges what the workers wrote, in their order.
func (j *Job) Round(ctx context.Context, r train.Round, run func(*beam.Pipeline) error) error {
	if err := store.Write(ctx, j.file(stateFile), r.State.Encode()); err != nil {
		return err
	}
	end := r.State.Step() + r.Steps
	if err := run(j.Pipeline(r.Workers, r.Steps)); err != nil {
		return err
	}
	for i := range r.Workers {
		path := j.shareFile(end, i)
		s, err := readState(ctx, path)
		if errors.Is(err, store.ErrNotExist) {
			return fmt.Errorf("averaging: worker %d left no %s; name a folder that workers share with this program, such as gs://bucket/model", i, path)
		}
		if err != nil {
			return err
		}
		if s.Step() != end {
			return fmt.Errorf("averaging: %s: it ends at step %d, not %d; is another training writing there?", path, s.Step(), end)
		}
		if err := r.Merge(s); err != nil {
			return err
		}
	}
	for i := range r.Workers {
		if err := store.Delete(ctx, j.shareFile(end, i)); err != nil {
			return err
		}
	}
	return nil
}

// Pipeline is a round of so many workers and steps as a pipeline.
func (j *Job) Pipeline(workers, steps int) *beam.Pipeline {
	p, s := beam.NewPipelineWithRoot()
	numbers := make([]int, workers)
	for i := range numbers {
		numbers[i] = i
	}
	Train(s, *j, workers, steps, beam.CreateList(s, numbers))
	return p
}

// End removes what Begin, Round and Lead wrote, and shares that a killed leader
// did not take.
func (j *Job) End(ctx context.Context) error {
	docCache.Lock()
	docCache.docs = nil
	docCache.Unlock()
	err := errors.Join(store.Delete(ctx, j.file(roundFile)), store.Delete(ctx, j.file(stateFile)), store.Delete(ctx, j.file(documentsFile)))
	st, e := store.For(ctx, string(j.Folder))
	if e != nil {
		return e
	}
	e = st.List(ctx, string(j.Folder)+"/", func(o store.Object) error {
		if strings.HasPrefix(o.Path, j.file(sharePrefix)) {
			return st.Delete(ctx, o.Path)
		}
		return nil
	})
	if errors.Is(e, store.ErrNotExist) {
		e = nil
	}
	return errors.Join(err, e)
}

// Train is PCollection<int> of the workers' numbers, from 0, to no elements:
// each worker takes steps from the state in j.Folder and leaves a file there.
func Train(s beam.Scope, j Job, workers, steps int, numbers beam.PCollection) {
	s = s.Scope("linnet.Train")
	// Without it one worker would get all numbers, as the one that made them.
	numbers = beam.Reshuffle(s, numbers)
	beam.ParDo0(s, &shareFn{Job: j, Workers: workers, Steps: steps}, numbers)
}

type shareFn struct {
	Job            Job
	Workers, Steps int
}

var sharesCounter = beam.NewCounter(transforms.Namespace, "shares")

func (f *shareFn) ProcessElement(ctx context.Context, worker int) error {
	s, err := f.Job.trainShare(ctx, worker, f.Workers, f.Steps)
	if errors.Is(err, store.ErrNotExist) { // the launcher has it
		err = fmt.Errorf("%w; workers must reach documents and model by the same names as the launcher, on a shared disk or gs://", err)
	}
	if err == nil {
		err = store.Write(ctx, f.Job.shareFile(s.Step(), worker), s.Encode())
	}
	if err != nil {
		return fmt.Errorf("linnet: %w", err) // the mark that runners look for
	}
	sharesCounter.Inc(ctx, 1)
	return nil
}

// trainShare trains a worker's share of a round and returns the state at its end.
func (j *Job) trainShare(ctx context.Context, worker, workers, steps int) (*train.State, error) {
	s, err := readState(ctx, j.file(stateFile))
	if err != nil {
		return nil, err
	}
	docs, err := j.documents(ctx)
	if err != nil {
		return nil, err
	}
	machine := train.Machine{Cores: j.Cores, Memory: j.GPUMemory}
	if j.Device == backend.CUDA {
		gpus, err := gpuinit.Init(ctx, gpuinit.Options{Devices: 1, Wait: true, Log: func(level int, format string, args ...any) {
			if level <= j.Verbosity {
				log.Infof(ctx, format, args...)
			}
		}})
		if err != nil {
			return nil, fmt.Errorf("worker %d: %w", worker, err)
		}
		defer gpus.Close()
		machine.GPUs = gpus.Devices
	}
	share, err := train.Share(ctx, docs, s, worker, workers, steps, machine)
	if errors.Is(err, train.ErrOther) { // docs may be from before somebody edited them and trained anew
		docCache.Lock()
		docCache.docs = nil
		docCache.Unlock()
		if docs, err = j.documents(ctx); err != nil {
			return nil, err
		}
		share, err = train.Share(ctx, docs, s, worker, workers, steps, machine)
	}
	if err != nil {
		return nil, err
	}
	if j.Verbosity >= 2 {
		log.Infof(ctx, "worker %d of %d: at step %d", worker, workers, share.Step())
	}
	return share, nil
}

// docCache has the documents of the last training that this process worked for.
var docCache struct {
	sync.Mutex
	key  [sha256.Size]byte
	docs []train.Document
}

func key(list []byte, inputSize int) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d %s", inputSize, list))
}

// documents reads the documents of the training, once a process.
func (j *Job) documents(ctx context.Context) ([]train.Document, error) {
	data, err := store.Read(ctx, j.file(documentsFile), 0)
	if err != nil {
		return nil, err
	}
	docCache.Lock()
	defer docCache.Unlock()
	if k := key(data, j.InputSize); k != docCache.key || docCache.docs == nil {
		var list []Document
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("averaging: %s: %w", j.file(documentsFile), err)
		}
		docCache.docs = nil
		var docs []train.Document
		reader := Reader{InputSize: j.InputSize}
		for _, d := range list {
			doc, err := reader.Read(ctx, d)
			if err != nil {
				return nil, err
			}
			docs = append(docs, doc)
		}
		docCache.key, docCache.docs = k, docs
	}
	return docCache.docs, nil
}

// Reader reads annotated documents and extracts their features. It keeps their
// texts, for one may come again, in parts.
type Reader struct {
	InputSize int
	// Warnings tell what is wrong with documents that were read all the same.
	Warnings []string
	parsed   map[transforms.Path]annotated
}

type annotated struct {
	text   []byte
	rows   []yedda.Line
	labels []string // of rows
}

// Read reads a document, or the lines of it that d says.
func (r *Reader) Read(ctx context.Context, d Document) (train.Document, error) {
	uri := string(d.URI)
	whole, ok := r.parsed[d.URI]
	if !ok {
		data, err := store.Read(ctx, uri, 0)
		if err != nil {
			return train.Document{}, err
		}
		parsed, _, err := input.Parse(ctx, uri, data, true, 0)
		if err != nil {
			return train.Document{}, fmt.Errorf("%s: %w", uri, err)
		}
		for _, w := range parsed.Warnings {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s:%d: %s", d.Name, w.Line, w.What))
		}
		if foreign, latin := input.Foreign(parsed.Text); latin && foreign {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: not in UTF-8, most likely in Latin-1", d.Name))
		} else if foreign {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: not in UTF-8", d.Name))
		}
		rows := yedda.Rows(parsed.Text)
		whole = annotated{parsed.Text, rows, parsed.LineLabels(rows)}
		if n := unheard(parsed, rows, whole.labels); n > 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %s inside lines of which most is not theirs, so they label none", d.Name, english.Plural(n, "span", "")))
		}
		if r.parsed == nil {
			r.parsed = map[transforms.Path]annotated{}
		}
		r.parsed[d.URI] = whole
	}
	text, rows, labels := whole.text, whole.rows, whole.labels
	if d.End > 0 {
		if d.First < 0 || d.First >= d.End || d.End > len(rows) {
			return train.Document{}, fmt.Errorf("%s: it has %d lines, and not line %d; leave documents as they are while a training goes on", uri, len(rows), d.End)
		}
		text, labels = text[rows[d.First].Start:rows[d.End-1].End], labels[d.First:d.End]
		if rows = yedda.Rows(text); d.Setting != 0 {
			text, labels = typeset.Vary(text, rows, labels, d.Setting)
			rows = yedda.Rows(text)
		}
	}
	return train.Document{
		Name:     string(d.Name),
		Features: feature.Extract(text, rows, r.InputSize, runtime.GOMAXPROCS(0)),
		Labels:   labels,
	}, nil
}

// unheard counts the spans inside a line that has another label, or none.
func unheard(d *yedda.Document, rows []yedda.Line, labels []string) (n int) {
	i := 0
	for _, s := range d.Spans {
		for i < len(rows) && rows[i].End <= s.Start {
			i++
		}
		if i < len(rows) && s.Start >= rows[i].Start && s.End <= rows[i].End && s.Label != labels[i] &&
			len(bytes.TrimSpace(d.Text[s.Start:s.End])) > 0 {
			n++
		}
	}
	return n
}

func readState(ctx context.Context, path string) (*train.State, error) {
	data, err := store.Read(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	s, err := train.DecodeState(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func init() { beam.RegisterDoFn(&shareFn{}) }
