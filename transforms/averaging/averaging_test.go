package averaging

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	//lint:ignore SA1019 it fuses a pipeline without gRPC
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/direct"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/train"
	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/internal/beamtest"
)

func TestMain(m *testing.M) { beamtest.Main(m) }

// corpus writes and reads a few documents.
func corpus(t *testing.T) (list []Document, docs []train.Document) {
	t.Helper()
	dir := t.TempDir()
	for i := range 5 {
		var b strings.Builder
		for j := range 12 {
			fmt.Fprintf(&b, "[@Boletus no. %d sp. nov.#Nomenclature*]\n[@Pileus %d cm latus\nhymenium album#Description*]\n[@Seen in %d#Notes*]\n", i*j, j, 1900+i)
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.txt.ann", i))
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		d := Document{URI: transforms.Path(path), Name: transforms.Path(fmt.Sprintf("%d.txt", i))}
		doc, err := (&Reader{InputSize: 256}).Read(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		list, docs = append(list, d), append(docs, doc)
	}
	return list, docs
}

func options(docs []train.Document) train.Options {
	cfg := model.DefaultConfig()
	cfg.InputSize, cfg.EmbeddingSize, cfg.HiddenSize, cfg.WindowSize = 256, 6, 5, 8
	cfg.Epochs, cfg.BatchSize, cfg.NumClasses = 3, 4, 0
	return train.Options{Config: cfg, Train: docs}
}

// distributed trains by two workers on a runner and returns the model's hash.
func distributed(t *testing.T, runner string, j *Job, list []Document, docs []train.Document, after func()) (string, error) {
	t.Helper()
	ctx := t.Context()
	if err := j.Begin(ctx, list, docs); err != nil {
		t.Fatal(err)
	}
	o := options(docs)
	o.Distributed, o.RoundSteps = 2, 4
	o.Round = func(ctx context.Context, r train.Round) error {
		return j.Round(ctx, r, func(p *beam.Pipeline) error {
			_, err := beam.Run(ctx, runner, p)
			if n := len(glob(string(j.Folder), sharePrefix+"*")); n > 2 {
				return fmt.Errorf("%d shares lie there after a round of 2 workers", n)
			}
			after()
			return err
		})
	}
	w, _, err := train.Run(ctx, o)
	if err != nil {
		return "", err
	}
	return w.Hash(), j.End(ctx)
}

// byHand is the hash of a model that workers train by Shares called here.
func byHand(t *testing.T, docs []train.Document, workers int) string {
	t.Helper()
	o := options(docs)
	o.Distributed, o.RoundSteps = workers, 4
	return ofShares(t, docs, o)
}

// ofShares is byHand by any options.
func ofShares(t *testing.T, docs []train.Document, o train.Options) string {
	t.Helper()
	o.Round = func(ctx context.Context, r train.Round) error {
		for i := range r.Workers {
			s, err := train.Share(ctx, docs, r.State, i, r.Workers, r.Steps, train.Machine{Cores: 1})
			if err := errors.Join(err, r.Merge(s)); err != nil {
				return err
			}
		}
		return nil
	}
	w, _, err := train.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return w.Hash()
}

// Workers come to the weights of Shares that were called by hand, whether they
// read the documents themselves or not, and leave nothing behind.
func TestRound(t *testing.T) {
	list, docs := corpus(t)
	want := byHand(t, docs, 2)
	for _, c := range []struct {
		name, runner string
		after        func()
	}{
		{"direct", "direct", func() {}},
		{"prism", "prism", func() {}},
		{"documents read by the worker", "direct", func() { docCache.key = [sha256.Size]byte{} }},
		{"documents of before an edit", "direct", func() { docCache.docs = slices.Repeat(docs[:1], len(docs)) }},
	} {
		j := &Job{Folder: transforms.Path(t.TempDir()), InputSize: 256}
		got, err := distributed(t, c.runner, j, list, docs, c.after)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got != want {
			t.Errorf("%s: other weights than by hand", c.name)
		}
		left, err := os.ReadDir(string(j.Folder))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v %v", c.name, left, err)
		}
	}
}

// What goes wrong in a folder that is not shared, or shared with others.
func TestRoundErrors(t *testing.T) {
	list, docs := corpus(t)
	for _, c := range []struct {
		name string
		harm func(dir string)
		want string
	}{
		{"nothing there", func(dir string) {
			for _, f := range glob(dir, "share-4-1.state") {
				os.Remove(f)
			}
		}, "worker 1 left no "},
		{"half of it", func(dir string) {
			for _, f := range glob(dir, "share-4-0.state") {
				os.Truncate(f, 500)
			}
		}, "share-4-0.state: train: no whole checkpoint"},
		{"another round's", func(dir string) {
			data, err := os.ReadFile(filepath.Join(dir, stateFile))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range glob(dir, "share-4-0.state") {
				if err := os.WriteFile(f, data, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}, "it ends at step 0, not 4"},
		{"a document changed", func(dir string) {
			docCache.key = [sha256.Size]byte{}
			if err := os.WriteFile(string(list[2].URI), []byte("[@Boletus#Nomenclature*]\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, "worker 0: checkpoint of another training: its documents are others than the launcher's"},
		{"a document the worker does not see", func(dir string) {
			docCache.key = [sha256.Size]byte{}
			os.Remove(string(list[2].URI))
		}, "no such file or directory; workers must reach documents and model by the same names"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &Job{Folder: transforms.Path(t.TempDir()), InputSize: 256}
			_, err := distributed(t, "direct", j, list, docs, func() { c.harm(string(j.Folder)) })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func glob(dir, pattern string) []string {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		panic(err)
	}
	return files
}

// TestReadPart reads lines of a document as one of their own.
func TestReadPart(t *testing.T) {
	list, docs := corpus(t)
	r := Reader{InputSize: 256}
	for _, c := range []struct {
		first, end int
		ok         bool
	}{{3, 9, true}, {0, 1, true}, {40, 48, true}, {40, 49, false}, {9, 3, false}, {-1, 2, false}} {
		d := list[1]
		d.First, d.End = c.first, c.end
		got, err := r.Read(t.Context(), d)
		if (err == nil) != c.ok {
			t.Fatalf("lines %d to %d: error %v", c.first, c.end, err)
		}
		if c.ok && (!slices.Equal(got.Labels, docs[1].Labels[c.first:c.end]) || got.Features.NumLines() != c.end-c.first) {
			t.Errorf("lines %d to %d: labels %v of %d lines", c.first, c.end, got.Labels, got.Features.NumLines())
		}
	}
	settings := map[int]bool{} // their numbers of lines
	for seed := range uint64(20) {
		d := list[1]
		d.First, d.End, d.Setting = 3, 40, seed
		got, err := r.Read(t.Context(), d)
		if err != nil || got.Features.NumLines() != len(got.Labels) {
			t.Fatalf("setting %d: %d lines, %d labels, error %v", seed, got.Features.NumLines(), len(got.Labels), err)
		}
		settings[len(got.Labels)] = true
	}
	if len(settings) < 3 {
		t.Errorf("20 settings have lines by number %v", settings)
	}
}
