package train

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/cpu"
)

// teachers trains n models of cfg on docs with seeds of their own.
func teachers(t *testing.T, cfg model.Config, docs []Document, n int) (ws []*model.Weights) {
	for i := range n {
		cfg.Seed = int64(100 + i)
		w, _ := run(t, Options{Config: cfg, Train: docs})
		ws = append(ws, w)
	}
	return ws
}

// said is what models say of a window of a document on average, [window.Len, K].
func said(t *testing.T, ws []*model.Weights, d Document, window model.ContextWindow) (mean []float64) {
	b := *d.Features
	b.Windows = []model.ContextWindow{window}
	for _, weights := range ws {
		scorer, err := cpu.New(weights)
		if err != nil {
			t.Fatal(err)
		}
		probs := make([]float32, window.Len*weights.Config.NumOutputs())
		if err := scorer.Score(t.Context(), &b, probs); err != nil {
			t.Fatal(err)
		}
		scorer.Close()
		if mean == nil {
			mean = make([]float64, len(probs))
		}
		for j, p := range probs {
			mean[j] += float64(p) / float64(len(ws))
		}
	}
	return mean
}

// Without dropout a step is taught what the teachers say of its windows as
// they stand in the documents.
func TestTaught(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(5, cfg.InputSize, 1)
	ws := teachers(t, cfg, docs, 2)
	cfg.Dropout = 0
	tr := trainerOf(t, Options{Config: cfg, Train: docs, Teachers: ws})
	s := tr.shards[0]
	batch := tr.epoch(0)[0][:s.windows]
	s.fill(tr, batch, 0, 0, [2]float64{1, 1})
	if err := s.teach(tr); err != nil {
		t.Fatal(err)
	}
	k := tr.config.NumOutputs()
	for i, w := range batch {
		want := said(t, ws, docs[w.doc], model.ContextWindow{First: w.first, Len: w.len})
		for step := range w.len {
			for j := range k {
				got := float64(s.taught[(step*s.windows+i)*k+j])
				if math.Abs(got-want[step*k+j]) > 1e-5 {
					t.Fatalf("window %d, line %d, column %d: taught %g, the teachers say %g", i, step, j, got, want[step*k+j])
				}
			}
		}
	}
}

// Under dropout teachers are given what the student is: the same ids, weighing
// the same, and the layout of the same windows, but for whole lines that the
// student alone must do without.
func TestLesson(t *testing.T) {
	cfg := smallConfig()
	cfg.BatchSize = 24
	docs := annotated(12, cfg.InputSize, 1)
	tr := trainerOf(t, Options{Config: cfg, Train: docs, Teachers: teachers(t, cfg, docs, 1)})
	s := tr.shards[0]
	d, l := cfg.EmbeddingSize, cfg.LayoutSize
	hidden, plain, fewer := 0, 0, 0
	for step := range 8 {
		batch := tr.epoch(0)[0]
		batch = batch[:min(s.windows, len(batch))]
		s.fill(tr, batch, step, 0, [2]float64{1, 1})
		used := map[uint32][]use{}
		for _, part := range s.used {
			for _, u := range part {
				used[u.row] = append(used[u.row], u)
			}
		}
		b := &s.lesson.batch
		for i, w := range batch {
			for at := range w.len {
				line, r := b.Windows[i].First+at, uint32(at*s.windows+i)
				var want []use
				from := b.FirstID(line)
				for g := line * model.Groups; g < (line+1)*model.Groups; g++ {
					for _, id := range b.IDs[from:b.GroupEnd[g]] {
						want = append(want, use{id, r, b.GroupScale[g]})
					}
					from = b.GroupEnd[g]
				}
				if slices.Max(s.maskX[int(r)*d:][:d]) == 0 {
					hidden++
					if len(used[r]) > 0 {
						t.Fatalf("row %d is dropped and used", r)
					}
					continue
				}
				order := func(a, b use) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.scale, b.scale)) }
				slices.SortFunc(want, order)
				slices.SortFunc(used[r], order)
				if !slices.Equal(used[r], want) {
					t.Fatalf("row %d: the student uses %v, the teachers are given %v", r, used[r], want)
				}
				all := docs[w.doc].Features
				fewer += int(all.FirstID(w.first+at+1)-all.FirstID(w.first+at)) - len(want)
				layout, own := b.Layout[line*l:][:l], docs[w.doc].Features.Layout[(w.first+at)*l:][:l]
				if slices.Max(s.layout[int(r)*l:][:l]) == 0 && slices.Min(s.layout[int(r)*l:][:l]) == 0 {
					plain++
					own = tr.layoutMean
				}
				if !slices.Equal(layout, own) {
					t.Fatalf("row %d: the teachers are given layout %v, not %v", r, layout, own)
				}
			}
		}
	}
	if hidden == 0 || plain == 0 || fewer == 0 {
		t.Errorf("%d lines hidden, %d plain, %d ids dropped: one of them was not tried", hidden, plain, fewer)
	}
}

// Of documents read whole the teachers say what they say of each one, on average,
// whatever is dropped from what the student sees.
func TestReadWhole(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(5, cfg.InputSize, 1)
	ws := teachers(t, cfg, docs, 2)
	cfg.WindowSize = 16 // is the student's
	tr := trainerOf(t, Options{Config: cfg, Train: docs[:3], Crops: docs[3:], Teachers: ws})
	if err := tr.readWhole(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	k := tr.config.NumOutputs()
	want := make([][]float64, len(docs))
	for i, d := range docs {
		want[i] = said(t, ws, d, model.ContextWindow{Len: d.Features.NumLines()})
	}
	s := tr.shards[0]
	seen := map[int]bool{}
	for step := range 8 {
		batch := tr.epoch(step)[0]
		batch = batch[:min(s.windows, len(batch))]
		s.fill(tr, batch, step, 0, [2]float64{1, 1})
		for i, w := range batch {
			seen[w.doc] = true
			for row := range w.len {
				for j := range k {
					got, want := float64(s.taught[(row*s.windows+i)*k+j]), want[w.doc][(w.first+row)*k+j]
					if math.Abs(got-want) > 1e-5 {
						t.Fatalf("document %d, line %d, column %d: taught %g, the teachers say %g", w.doc, w.first+row, j, got, want)
					}
				}
			}
		}
	}
	if len(seen) < len(docs) {
		t.Errorf("%d of %d documents were taught", len(seen), len(docs))
	}
}

// A twin says what the model to begin with says, but is another one: alone it is asked
// at each step, beside the model itself not.
func TestOwnTeacher(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(12, cfg.InputSize, 1)
	own := teachers(t, cfg, docs, 1)[0]
	twin := *own
	twin.Config.Seed++
	student := func(ws ...*model.Weights) string {
		w, meta := run(t, Options{Config: cfg, Train: docs, Init: own, Teachers: ws})
		if loss := meta.Epochs[0].Loss; loss < .1 { // what has nothing to say is learnt at once
			t.Errorf("the loss is %g", loss)
		}
		return fingerprint(w)
	}
	want := student(own)
	if student(own, &twin) != want {
		t.Error("a twin besides changes what a model learns from itself")
	}
	if student(&twin) == want {
		t.Error("a model reads documents whole for its twin as for itself")
	}
}

// A student learns from its teachers alone: other labels on the same lines
// give the same weights, another teacher gives others, and so do the labels
// themselves.
func TestStudent(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(12, cfg.InputSize, 1)
	ws := teachers(t, cfg, docs, 3)
	student := func(docs []Document, ws []*model.Weights, workers int) (string, *model.Metadata) {
		w, m := run(t, Options{Config: cfg, Train: docs, Teachers: ws, Machine: Machine{Cores: workers}})
		return fingerprint(w), m
	}
	want, meta := student(docs, ws[:2], 1)
	if first, last := meta.Epochs[0].Loss, meta.Epochs[len(meta.Epochs)-1].Loss; last >= first {
		t.Errorf("the loss went from %g to %g", first, last)
	}
	if got, _ := student(docs, ws[:2], 3); got != want {
		t.Error("three workers give other weights than one")
	}
	var swapped []Document
	for _, d := range docs {
		labels := make([]string, len(d.Labels))
		for i, l := range d.Labels {
			labels[i] = l
			switch l {
			case "Nomenclature":
				labels[i] = "Description"
			case "Description":
				labels[i] = "Nomenclature"
			}
		}
		swapped = append(swapped, Document{d.Name, d.Features, labels})
	}
	if got, _ := student(swapped, ws[:2], 1); got != want {
		t.Error("the labels change what is learnt from teachers")
	}
	cfg.ClassWeights = "Nomenclature=2,Misc-exposition=0"
	if got, m := student(docs, ws[:2], 1); got != want || m.Epochs[0].Accuracy != meta.Epochs[0].Accuracy {
		t.Error("class weights change what is learnt from teachers, or its accuracy")
	}
	cfg.ClassWeights = "none"
	if got, _ := student(docs, ws[1:], 1); got == want {
		t.Error("another teacher gives the same weights")
	}
	if got, _ := student(docs, nil, 1); got == want {
		t.Error("labels give the weights that teachers give")
	}
}

func TestTeachersThatDoNotFit(t *testing.T) {
	cfg := smallConfig()
	docs := annotated(12, cfg.InputSize, 1)
	ws := teachers(t, cfg, docs, 1)
	for _, c := range []struct {
		name, want string
		change     func(*Options)
	}{
		{"classes", "its classes lack", func(o *Options) { o.Config.LabelSet = model.Full }},
		{"rows", "input_size", func(o *Options) { o.Config.InputSize = 1 << 12 }},
		{"workers", "one process", func(o *Options) {
			o.Distributed, o.Round = 2, func(context.Context, Round) error { return fmt.Errorf("a round") }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Config: cfg, Train: docs, Teachers: ws}
			c.change(&o)
			refused(t, o, c.want)
		})
	}
	// What was begun with teachers does not go on without them.
	o := resumable()
	ws = teachers(t, o.Config, o.Train, 1)
	o.Teachers = ws
	var checkpoint []byte
	for _, o.Init = range []*model.Weights{ws[0], nil} {
		checkpoint = killed(t, o, 5)
		want, _ := run(t, o)
		if got, _ := resume(t, o, checkpoint); fingerprint(got) != fingerprint(want) {
			t.Errorf("a student that was interrupted has other weights, its own teacher: %t", o.Init != nil)
		}
	}
	o.Teachers = nil
	o.Resume = decoded(t, checkpoint)
	refused(t, o, "the teachers are others")
}
