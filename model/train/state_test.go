package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/model"
)

// resumable is a training with everything that a checkpoint has to carry.
func resumable() Options {
	cfg := smallConfig()
	cfg.Epochs, cfg.WindowSize, cfg.LearningRate = 4, 10, .03
	return Options{Config: cfg, Train: annotated(12, cfg.InputSize, 1), Validation: annotated(3, cfg.InputSize, 2), Best: true, CheckpointSteps: 3}
}

// epochLengths are the steps of each epoch.
func epochLengths(t *testing.T, o Options) (n []int) {
	tr := trainerOf(t, o)
	for epoch := range o.Config.Epochs {
		n = append(n, len(tr.epoch(epoch)))
	}
	return n
}

var errKilled = errors.New("killed")

// killed trains until so many steps are taken, and returns the last checkpoint
// as it would lie on a disk.
func killed(t *testing.T, o Options, after int) []byte {
	t.Helper()
	var last []byte
	o.Checkpoint = func(_ context.Context, s *State) error { last = s.Encode(); return nil }
	ctx, cancel := context.WithCancelCause(context.Background())
	o.Progress = func(p Progress) {
		if p.Step >= after && !p.EpochEnd {
			cancel(errKilled)
		}
	}
	if _, _, err := Run(ctx, o); err == nil {
		t.Fatalf("ended, though it was to stop after step %d", after)
	}
	if last == nil {
		t.Fatalf("no checkpoint in %d steps", after)
	}
	return last
}

func resume(t *testing.T, o Options, checkpoint []byte) (*model.Weights, *model.Metadata) {
	t.Helper()
	o.Resume = decoded(t, checkpoint)
	return run(t, o)
}

func decoded(t *testing.T, checkpoint []byte) *State {
	t.Helper()
	s, err := DecodeState(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A training that was ended at any point, in the middle of an epoch too, and
// resumed, ends with the weights and the figures of one that was not.
func TestResume(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"best epoch", func(*Options) {}},
		{"last epoch", func(o *Options) { o.Best = false }},
		{"begins with a model", func(o *Options) {
			o.Init, _ = run(t, Options{Config: o.Config, Train: o.Train[:6]})
			o.Config.FullClasses = o.Init.Config.FullClasses
		}},
		{"keeps a share of that", func(o *Options) {
			o.Init, _ = run(t, Options{Config: o.Config, Train: o.Train[:6]})
			o.Config.FullClasses, o.InitShare = o.Init.Config.FullClasses, .5
		}},
		{"early stopping", func(o *Options) { o.Best, o.EarlyStopping, o.Config.Epochs = false, 1, 30 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			c.change(&o)
			w, m := run(t, o)
			n := epochLengths(t, o)
			if n[0] < 7 || len(m.Epochs) < 2 {
				t.Fatalf("epochs of %d steps, %d of them: too few to stop inside", n, len(m.Epochs))
			}
			for name, after := range map[string]int{
				"inside the first epoch": 5, "at the end of the first epoch": n[0], "right behind it": n[0] + 1, "inside the second epoch": n[0] + 5,
			} {
				got, meta := resume(t, o, killed(t, o, after))
				if fingerprint(got) != fingerprint(w) {
					t.Errorf("%s: other weights", name)
				}
				if a, b := figures(m), figures(meta); a != b {
					t.Errorf("%s: figures\n%s, want\n%s", name, b, a)
				}
			}
		})
	}
}

// Checkpoints come after so many steps, after each round, and after each epoch but
// the last.
func TestCheckpoints(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"steps":  func(o *Options) { o.CheckpointSteps = 3 },
		"epochs": func(o *Options) { o.CheckpointSteps = 0 },
		"rounds": func(o *Options) {
			o.CheckpointSteps, o.Distributed, o.RoundSteps, o.Round = 0, 1, 4, rounds(o.Train)
		},
	} {
		o := resumable()
		change(&o)
		var want, got []int
		step := 0
		lengths := epochLengths(t, o)
		for epoch, n := range lengths {
			for i := 1; i <= n; i++ {
				step++
				if name == "steps" && step%3 == 0 || name == "rounds" && (i%4 == 0 || i == n) {
					want = append(want, step)
				}
			}
			if epoch < len(lengths)-1 {
				want = append(want, step)
			}
		}
		o.Checkpoint = func(_ context.Context, s *State) error { got = append(got, s.Step()); return nil }
		run(t, o)
		if !slices.Equal(got, want) {
			t.Errorf("%s: checkpoints at %v, want %v", name, got, want)
		}
	}
}

// The metadata name a device once for all resumes on it that follow one another.
func TestResumeDevice(t *testing.T) {
	o := resumable()
	o.Cores = 1
	checkpoint := killed(t, o, 4)
	o.Cores = 2
	o.Resume = decoded(t, checkpoint)
	_, m := resume(t, o, killed(t, o, 8))
	if one, two, ok := strings.Cut(m.Device, "; then "); !ok || !strings.HasSuffix(one, ", 1 thread") || !strings.HasSuffix(two, ", 2 threads") || strings.Contains(two, "; then ") {
		t.Errorf("device %q, want 1 thread and then 2", m.Device)
	}
}

// figures is what of the metadata does not depend on the clock.
func figures(m *model.Metadata) string {
	c := *m
	c.Seconds, c.Epochs = 0, slices.Clone(m.Epochs)
	for i := range c.Epochs {
		c.Epochs[i].Seconds, c.Epochs[i].TrainingSeconds = 0, 0
	}
	return fmt.Sprint(c.Epochs, c.BestEpoch, *c.Training, *c.Validation)
}

// A checkpoint is refused where the training is another one, and what differs
// is said.
func TestResumeRefuses(t *testing.T) {
	o := resumable()
	checkpoint := killed(t, o, 8)
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"config", func(o *Options) { o.Config.LearningRate = .02 }, "learning_rate was 0.03, not 0.02"},
		{"seed", func(o *Options) { o.Config.Seed = 5 }, "seed was 1, not 5"},
		{"label map", func(o *Options) { o.Config.LabelMap = map[string]string{"Key": "Description"} }, "label_map was none"},
		{"label", func(o *Options) {
			o.Train = annotated(12, o.Config.InputSize, 1)
			o.Train[3].Labels[2] = "Description"
		}, "training documents"},
		{"feature", func(o *Options) {
			o.Train = annotated(12, o.Config.InputSize, 1)
			o.Train[11].Features.Layout[0]++
		}, "training documents"},
		{"document", func(o *Options) { o.Train = o.Train[1:] }, "training documents"},
		{"order", func(o *Options) { o.Train = append(o.Train[1:], o.Train[0]) }, "training documents are others or in another order"},
		{"validation's order", func(o *Options) { slices.Reverse(o.Validation) }, "validation documents are others or in another order"},
		{"rare label", func(o *Options) { o.Config.FullClasses = []string{"Figure", "Key"} }, "training documents are others"},
		{"crops", func(o *Options) { o.Crops = o.Train[:1] }, "crop_share"},
		{"validation", func(o *Options) { o.Validation = o.Validation[1:] }, "validation documents"},
		{"shards", func(o *Options) { o.shards = 2 }, "shards were 4, not 2"},
		{"best", func(o *Options) { o.Best = false }, "keep was best, not last"},
		{"early stopping", func(o *Options) { o.EarlyStopping = 2 }, "early_stopping was 0, not 2"},
		{"init", func(o *Options) { o.Init, _ = run(t, Options{Config: o.Config, Train: o.Train}) }, "init_model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			c.change(&o)
			o.Resume, _ = DecodeState(checkpoint)
			_, _, err := Run(context.Background(), o)
			if !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want ErrOther with %q", err, c.want)
			}
		})
	}
}

// What tells the trainings of workers and of GPUs apart is said, too.
func TestDifference(t *testing.T) {
	for want, change := range map[string]func(*identity){
		"":                                      func(*identity) {},
		"init_share was 0, not 0.5":             func(id *identity) { id.InitShare = .5 },
		"workers were 0, not 2":                 func(id *identity) { id.Workers = 2 },
		"round_steps was 0, not 4":              func(id *identity) { id.RoundSteps = 4 },
		"mixed_precision was off, not bfloat16": func(id *identity) { id.Precision = "bfloat16" },
		"what label_map does not name became Rest, not Misc-exposition": func(id *identity) {
			id.Config.OtherClass, id.Config.Classes, id.Train = "Misc-exposition", []string{"Key", "Misc-exposition"}, "other crops"
		},
		`label_map, or what num_classes leaves of it, was {"Key":"Key"}, not {"Key":"Rest"}`: func(id *identity) {
			id.Config.LabelMap, id.Config.Classes, id.Config.NumClasses = map[string]string{"Key": "Rest"}, []string{"Rest"}, 1
		},
		"the classes are others, by num_classes or the training documents": func(id *identity) { // which leave no label to it
			id.Config.OtherClass, id.Config.Classes = "", []string{"Key"}
		},
	} {
		was := identity{Config: model.Config{OtherClass: "Rest", Classes: []string{"Key", "Rest"}, NumClasses: 2, LabelMap: map[string]string{"Key": "Key"}}}
		is := was
		change(&is)
		if got := was.difference(&is); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Whatever of the documents changes, their digest does.
func TestDigest(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(docs []Document){
		"":         func([]Document) {},
		"a name":   func(docs []Document) { docs[1].Name = "other.txt" },
		"a label":  func(docs []Document) { docs[1].Labels[2] = "Table" },
		"an id":    func(docs []Document) { docs[1].Features.IDs[5] ^= 1 },
		"a group":  func(docs []Document) { docs[1].Features.GroupEnd[5] ^= 1 },
		"a scale":  func(docs []Document) { docs[1].Features.GroupScale[5]++ },
		"a layout": func(docs []Document) { docs[1].Features.Layout[5]++ },
		"an order": func(docs []Document) { docs[0], docs[1] = docs[1], docs[0] },
	} {
		docs := annotated(2, 1<<10, 1)
		change(docs)
		sum := digest(docs)
		if other, ok := seen[sum]; ok {
			t.Errorf("with %q and with %q changed the digest is the same", name, other)
		}
		seen[sum] = name
	}
}

// A checkpoint that is cut off or changed anywhere is no checkpoint.
func TestDecodeState(t *testing.T) {
	o := resumable()
	b := killed(t, o, 14)
	s := decoded(t, b)
	if s.Step() < 12 || s.Step() > 14 || !slices.Equal(s.Encode(), b) {
		t.Errorf("step %d; encoded again it is the same: %v", s.Step(), slices.Equal(s.Encode(), b))
	}
	for _, n := range []int{0, 5, len(stateMagic), len(stateMagic) + 40, len(b) / 2, len(b) - 1} {
		if _, err := DecodeState(b[:n]); !errors.Is(err, ErrState) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	for _, at := range []int{3, len(stateMagic) + 2, len(stateMagic) + 100, len(b) / 2, len(b) - 3} {
		damaged := slices.Clone(b)
		damaged[at] ^= 4
		if _, err := DecodeState(damaged); !errors.Is(err, ErrState) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
	// What another version writes may hold what changes the weights.
	for name, change := range map[string]func(head []byte) (magic string, changed []byte){
		"other magic": func(head []byte) (string, []byte) { return "linnet training state 2\n", head },
		"a field of the identity more": func(head []byte) (string, []byte) {
			return stateMagic, bytes.Replace(head, []byte(`"Shards"`), []byte(`"Warmup":100,"Shards"`), 1)
		},
		"a field of the config more": func(head []byte) (string, []byte) {
			return stateMagic, bytes.Replace(head, []byte(`"seed"`), []byte(`"warmup":100,"seed"`), 1)
		},
	} {
		at := len(stateMagic) + 8
		n := int(binary.LittleEndian.Uint64(b[at-8:]))
		magic, head := change(b[at:][:n])
		other := binary.LittleEndian.AppendUint64([]byte(magic), uint64(len(head)))
		other = slices.Concat(other, head, b[at+n:len(b)-sha256.Size])
		sum := sha256.Sum256(other)
		if _, err := DecodeState(append(other, sum[:]...)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A checkpoint that is whole, but of a place where this training never stands, as a version
// with other windows would write it, is refused.
func TestRestorePosition(t *testing.T) {
	o := resumable()
	b := killed(t, o, epochLengths(t, o)[0]+5)
	for name, change := range map[string]func(*position){
		"a step of the epoch before":   func(p *position) { p.Step = 3 },
		"a step of the epoch behind":   func(p *position) { p.Step *= 3 },
		"more epochs":                  func(p *position) { p.Epochs = append(p.Epochs, make([]model.EpochStats, 4)...) },
		"a best epoch that is to come": func(p *position) { p.Best = 3 },
		"a best epoch below 0":         func(p *position) { p.Best = -1 },
	} {
		s := decoded(t, b)
		change(&s.Position)
		o.Resume = decoded(t, s.Encode())
		if _, _, err := Run(context.Background(), o); !errors.Is(err, ErrOther) {
			t.Errorf("%s: got %v, want ErrOther", name, err)
		}
	}
}

// rounds shares each round out to workers, by way of bytes.
func rounds(docs []Document) func(context.Context, Round) error {
	return func(ctx context.Context, r Round) error {
		for i := range r.Workers {
			s, err := DecodeState(r.State.Encode())
			if err != nil {
				return err
			}
			if s, err = Share(ctx, docs, s, i, r.Workers, r.Steps, Machine{Cores: 1 + i%2}); err != nil {
				return err
			}
			if err := r.Merge(s); err != nil {
				return err
			}
		}
		return nil
	}
}

// One worker is the same as none, bit for bit, however long a round is, also where
// the model to begin with has the statistics of other documents.
func TestOneWorker(t *testing.T) {
	o := resumable()
	w, m := run(t, o)
	for _, steps := range []int{0, 5, 6} {
		if steps == 6 {
			o.Init, _ = run(t, Options{Config: o.Config, Train: o.Train[:6]})
			o.InitShare = .5
			w, m = run(t, o)
		}
		d := o
		d.Distributed, d.RoundSteps, d.Round = 1, steps, rounds(o.Train)
		got, meta := run(t, d)
		if fingerprint(got) != fingerprint(w) || figures(meta) != figures(m) {
			t.Errorf("rounds of %d steps: other weights or figures:\n%s, want\n%s", steps, figures(meta), figures(m))
		}
		if meta.WorldSize != 1 {
			t.Errorf("world size %d", meta.WorldSize)
		}
	}
}

// Each shard of each worker drops other features.
func TestDropoutOfWorkers(t *testing.T) {
	o := resumable()
	o.Distributed, o.Round = 2, func(context.Context, Round) error { return nil }
	seen := map[string]bool{}
	for worker := range o.Distributed {
		tr := trainerOf(t, o)
		tr.worker = worker
		if _, err := tr.train(tr.epoch(0)[0][:3], nil); err != nil {
			t.Fatal(err)
		}
		for i, s := range tr.shards {
			mask := fmt.Sprint(s.maskH)
			if seen[mask] {
				t.Errorf("shard %d of worker %d drops what another one does", i, worker)
			}
			seen[mask] = true
		}
	}
}

// Several workers learn as well, always come to the same, and go on from the
// last round.
func TestWorkers(t *testing.T) {
	o := resumable()
	o.Train, o.CheckpointSteps = annotated(40, o.Config.InputSize, 1), 0
	o.Config.Epochs = 12
	_, alone := run(t, o)
	for _, workers := range []int{2, 3} {
		d := o
		d.Distributed, d.RoundSteps, d.Round = workers, 4, rounds(o.Train)
		w, m := run(t, d)
		if m.Validation.MacroF1 < alone.Validation.MacroF1-.05 || m.WorldSize != workers {
			t.Errorf("%d workers: macro-F1 %.3f, alone %.3f; world size %d", workers, m.Validation.MacroF1, alone.Validation.MacroF1, m.WorldSize)
		}
		if !strings.HasSuffix(m.Device, fmt.Sprintf(", %d workers", workers)) {
			t.Errorf("%d workers: on %s", workers, m.Device)
		}
		if m.Epochs[0].Loss <= 0 || m.Epochs[11].Loss >= m.Epochs[0].Loss || m.Epochs[11].Accuracy <= m.Epochs[0].Accuracy || m.Epochs[11].Accuracy > 1 {
			t.Errorf("%d workers: epochs %+v", workers, m.Epochs)
		}
		got, _ := resume(t, d, killed(t, d, 18))
		if fingerprint(got) != fingerprint(w) {
			t.Errorf("%d workers: resumed, other weights", workers)
		}
	}
}

// A batch with fewer windows than there are workers has the loss that one
// worker finds.
func TestLossOfEmptyShares(t *testing.T) {
	o := Options{Config: smallConfig(), Train: annotated(2, 1<<10, 1)}
	o.Config.Epochs, o.Config.BatchSize, o.Config.Dropout, o.Config.LearningRate = 1, 16, 0, 1e-9
	_, alone := run(t, o)
	o.Distributed, o.Round = 8, rounds(o.Train)
	_, m := run(t, o)
	if got, want := m.Epochs[0].Loss, alone.Epochs[0].Loss; math.Abs(got-want) > .1*want {
		t.Errorf("loss %v of 8 workers, %v of one", got, want)
	}
}

// The mean of two workers, by hand: dense numbers over both, a row of the table
// over those that used it.
func TestAverage(t *testing.T) {
	o := resumable()
	tr := trainerOf(t, o)
	d := o.Config.EmbeddingSize
	for i := range tr.table {
		tr.table[i] = 8
	}
	a, b := tr.state(), tr.state()
	a.flat[3], b.flat[3] = 1, 4
	a.table[2*d], b.table[2*d+1] = 2, 4 // both use row 2
	b.tableV[5*d+2] = 6                 // one uses row 5
	tr.position.Skipped = 1
	a.Position.Skipped, b.Position.Skipped = 3, 2
	a.Position.LossScale, b.Position.LossScale = 8, 4
	sum := average{t: tr, before: tr.position.clone()}
	for _, s := range []*State{a, b} {
		if err := sum.add(s); err != nil {
			t.Fatal(err)
		}
	}
	sum.finish(7)
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"dense", tr.net.flat[3], 2.5}, {"row of both", tr.table[2*d], 5}, {"row of both", tr.table[2*d+1], 6},
		{"row of one", tr.tableV[5*d+2], 6}, {"row of one", tr.table[5*d+2], 8}, {"row of none", tr.table[7*d], 8},
	} {
		if math.Float32bits(c.got) != math.Float32bits(c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if p := &tr.position; p.Step != 7 || p.Skipped != 3 || p.LossScale != 4 {
		t.Errorf("step %d, %d skipped, loss scale %v; want 7, 3 and 4", p.Step, p.Skipped, p.LossScale)
	}
	b.Training.Config.Seed++
	if err := sum.add(b); !errors.Is(err, ErrOther) {
		t.Errorf("a worker of another training: %v", err)
	}
}

// Wrong workers and documents are refused.
func TestShareErrors(t *testing.T) {
	o := resumable()
	o.Distributed, o.Round = 2, func(context.Context, Round) error { return nil }
	refused(t, o, "0 of 2 workers came back")
	o.Distributed = 7
	refused(t, o, "7 workers: there must be from 1 to batch_size, 6")
	o.Distributed = 2
	tr := trainerOf(t, o)
	if _, err := Share(context.Background(), o.Train[1:], tr.state(), 0, 2, 1, Machine{Cores: 1}); !errors.Is(err, ErrOther) {
		t.Errorf("other documents: %v", err)
	}
	if _, err := Share(context.Background(), o.Train, tr.state(), 2, 2, 1, Machine{Cores: 1}); err == nil {
		t.Error("worker 2 of 2 went to work")
	}
}
