package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/linnet-ml/linnet/model"
)

// State is where a training stands between two steps: all that it needs to go
// on to the same weights, bit for bit, as if it had never been interrupted.
// Random numbers are drawn from the seed, the epoch and the step, so they need
// no more. It is a checkpoint, and what the workers of a distributed training
// are sent and send back.
type State struct {
	header
	// The arrays: dense parameters and embedding table, the two moments of
	// each, and the weights of the best epoch (empty before there is one).
	flat, m, v            []float32
	table, tableM, tableV []float32
	bestFlat, bestTable   []float32
	layoutMean, layoutStd []float32 // statistics of the training rows
}

// header is the part of a State that is not arrays.
type header struct {
	Training identity // what is trained
	Position position
}

// identity is what a State belongs to; all of it changes the weights.
type identity struct {
	Config model.Config // settled
	Train  string       // SHA-256 of documents: names, labels and features
	// Validation is that of the documents that choose the epoch.
	Validation    string
	Init          string   // hash of the model to begin with
	InitShare     float64  `json:",omitempty"`
	Teachers      []string `json:",omitempty"` // hashes of theirs
	Shards        int
	Workers       int // of a distributed training, 0 where there is none
	RoundSteps    int
	Best          bool
	EarlyStopping int
	Precision     string `json:",omitempty"` // of products, "" for float32
}

// position is how far a training is.
type position struct {
	Step    int
	Epoch   epochSums // of the epoch that has begun
	Epochs  []model.EpochStats
	Best    int     // epoch with the highest macro-F1, from 1; 0 before there is one
	Seconds float64 // of all steps and judgements
	Device  string
	// Of float16 alone: the loss scale, the steps since it changed, and those
	// that were skipped as their gradient was not finite.
	LossScale  float64 `json:",omitempty"`
	ScaleSteps int     `json:",omitempty"`
	Skipped    int     `json:",omitempty"`
}

// epochSums are sums over the steps of an epoch.
type epochSums struct {
	Steps        int
	Loss         float64
	Right, Lines int // of the main head; lines with a target that weighs
	Rows         int // lines, context included
	Seconds      float64
}

func (s *epochSums) loss() float64     { return s.Loss / float64(max(1, s.Steps)) }
func (s *epochSums) accuracy() float64 { return float64(s.Right) / float64(max(1, s.Lines)) }

// Step is the number of steps that were taken.
func (s *State) Step() int { return s.Position.Step }

// Epochs is the number of whole epochs.
func (s *State) Epochs() int { return len(s.Position.Epochs) }

// BatchSize is that of the training, in windows.
func (s *State) BatchSize() int { return s.Training.Config.BatchSize }

// ErrState is a checkpoint that is damaged, or no checkpoint.
var ErrState = errors.New("no whole checkpoint")

var errStateVersion = fmt.Errorf("train: %w: another version of this program wrote it", ErrState)

// ErrOther is a checkpoint of another training.
var ErrOther = errors.New("checkpoint of another training")

// stateMagic begins an encoded State, stateName that of any version.
const (
	stateName  = "linnet training state "
	stateMagic = stateName + "1\n"
)

func (s *State) arrays() []*[]float32 {
	return []*[]float32{&s.flat, &s.m, &s.v, &s.table, &s.tableM, &s.tableV, &s.bestFlat, &s.bestTable, &s.layoutMean, &s.layoutStd}
}

// Encode is the state as bytes: the header as JSON, the arrays as little-endian
// float32, each behind its length (64 bits), and the SHA-256 of all that.
func (s *State) Encode() []byte {
	head, err := json.Marshal(s.header)
	if err != nil {
		panic("train: state: " + err.Error()) // strings and finite numbers only
	}
	size := len(stateMagic) + 8 + len(head) + sha256.Size
	for _, a := range s.arrays() {
		size += 8 + 4*len(*a)
	}
	b := append(make([]byte, 0, size), stateMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(head)))
	b = append(b, head...)
	for _, a := range s.arrays() {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(*a)))
		b, _ = binary.Append(b, binary.LittleEndian, *a)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// DecodeState reads what Encode wrote; ErrState tells that b is not that, or
// not all of it.
func DecodeState(b []byte) (*State, error) {
	rest, ok := bytes.CutPrefix(b, []byte(stateMagic))
	if !ok && len(b) > len(stateMagic) && bytes.HasPrefix(b, []byte(stateName)) {
		return nil, errStateVersion
	}
	if !ok || len(rest) < sha256.Size {
		return nil, fmt.Errorf("train: %w: %d bytes that do not begin like one", ErrState, len(b))
	}
	end := len(b) - sha256.Size
	if sha256.Sum256(b[:end]) != [sha256.Size]byte(b[end:]) {
		return nil, fmt.Errorf("train: %w: its %d bytes do not match their checksum", ErrState, len(b))
	}
	rest = rest[:len(rest)-sha256.Size]
	take := func(width int) (part []byte) { // a length, and so many numbers behind it
		if len(rest) < 8 {
			ok = false
			return nil
		}
		n := binary.LittleEndian.Uint64(rest)
		if n > uint64(len(rest)-8)/uint64(width) {
			ok = false
			return nil
		}
		part = rest[8 : 8+int(n)*width]
		rest = rest[8+len(part):]
		return part
	}
	s := new(State)
	head := take(1)
	for _, a := range s.arrays() {
		bits := take(4)
		*a = make([]float32, len(bits)/4)
		binary.Decode(bits, binary.LittleEndian, *a)
	}
	fields := json.NewDecoder(bytes.NewReader(head))
	fields.DisallowUnknownFields() // one may change the weights
	if !ok || len(rest) > 0 || fields.Decode(&s.header) != nil {
		return nil, errStateVersion
	}
	return s, nil
}

// state copies where t stands.
func (t *trainer) state() *State {
	return &State{
		header: header{t.identity, t.position.clone()},
		flat:   slices.Clone(t.net.flat), m: slices.Clone(t.m), v: slices.Clone(t.v),
		table: slices.Clone(t.table), tableM: slices.Clone(t.tableM), tableV: slices.Clone(t.tableV),
		bestFlat: slices.Clone(t.bestFlat), bestTable: slices.Clone(t.bestTable),
		layoutMean: slices.Clone(t.layoutMean), layoutStd: slices.Clone(t.layoutInvStd),
	}
}

func (p *position) clone() position {
	c := *p
	c.Epochs = slices.Clone(p.Epochs)
	return c
}

// restore lets t stand where s does. ErrOther tells that s is of another
// training, and what differs.
func (t *trainer) restore(s *State) error {
	if what := s.Training.difference(&t.identity); what != "" {
		return fmt.Errorf("train: %w: %s", ErrOther, what)
	}
	dense, sparse, layout := len(t.net.flat), len(t.table), len(t.layoutMean)
	bestDense, bestSparse := dense, sparse
	if s.Position.Best == 0 {
		bestDense, bestSparse = 0, 0
	}
	for i, want := range []int{dense, dense, dense, sparse, sparse, sparse, bestDense, bestSparse, layout, layout} {
		if got := len(*s.arrays()[i]); got != want {
			return fmt.Errorf("train: %w: array %d has %d numbers, not %d", ErrState, i, got, want)
		}
	}
	p, n := &s.Position, len(s.Position.Epochs)
	if n+1 >= len(t.bounds) || p.Step < t.bounds[n] || p.Step > t.bounds[n+1] || p.Best < 0 || p.Best > n {
		return fmt.Errorf("train: %w: its epochs have other steps", ErrOther)
	}
	t.position = p.clone()
	copy(t.net.flat, s.flat)
	copy(t.m, s.m)
	copy(t.v, s.v)
	copy(t.table, s.table)
	copy(t.tableM, s.tableM)
	copy(t.tableV, s.tableV)
	t.bestFlat, t.bestTable = slices.Clone(s.bestFlat), slices.Clone(s.bestTable)
	t.layoutMean, t.layoutInvStd = slices.Clone(s.layoutMean), slices.Clone(s.layoutStd)
	return nil
}

// difference names what tells a from b, "" where nothing does.
func (a *identity) difference(b *identity) string {
	fields := func(c *model.Config) (m map[string]json.RawMessage) {
		text, err := json.Marshal(c)
		if err != nil || json.Unmarshal(text, &m) != nil {
			panic("train: a config that is no JSON")
		}
		for _, made := range []string{"classes", "full_classes", "num_classes", "other_class"} { // of the rest
			delete(m, made)
		}
		return m
	}
	was, is := fields(&a.Config), fields(&b.Config)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was, is := string(was[name]), string(is[name]); was != is {
			if name == "label_map" && a.Config.NumClasses != b.Config.NumClasses && len(a.Config.LabelMap) == len(b.Config.LabelMap) {
				name = "label_map, or what num_classes leaves of it,"
			}
			return fmt.Sprintf("%s was %s, not %s", name, cmp.Or(was, "none"), cmp.Or(is, "none"))
		}
	}
	switch {
	case a.Init != b.Init:
		return "init_model is another"
	case a.InitShare != b.InitShare:
		return fmt.Sprintf("init_share was %g, not %g", a.InitShare, b.InitShare)
	case a.Config.OtherClass != b.Config.OtherClass && a.Config.OtherClass != "" && b.Config.OtherClass != "": // without one, documents leave no label to it
		return fmt.Sprintf("what label_map does not name became %s, not %s", a.Config.OtherClass, b.Config.OtherClass)
	case !slices.Equal(a.Config.Classes, b.Config.Classes): // and so are crops
		return "the classes are others, by num_classes or the training documents"
	case a.Train != b.Train, !slices.Equal(a.Config.FullClasses, b.Config.FullClasses), a.Config.OtherClass != b.Config.OtherClass:
		return "the training documents are others or in another order, or crop_share is another"
	case a.Validation != b.Validation:
		return "the validation documents are others or in another order"
	case !slices.Equal(a.Teachers, b.Teachers):
		return "the teachers are others"
	case a.Shards != b.Shards:
		return fmt.Sprintf("shards were %d, not %d", a.Shards, b.Shards)
	case a.Workers != b.Workers:
		return fmt.Sprintf("workers were %d, not %d", a.Workers, b.Workers)
	case a.RoundSteps != b.RoundSteps:
		return fmt.Sprintf("round_steps was %d, not %d", a.RoundSteps, b.RoundSteps)
	case a.Precision != b.Precision:
		return fmt.Sprintf("mixed_precision was %s, not %s", cmp.Or(a.Precision, "off"), cmp.Or(b.Precision, "off"))
	case a.Best != b.Best:
		kept := map[bool]string{true: "best", false: "last"}
		return fmt.Sprintf("keep was %s, not %s", kept[a.Best], kept[b.Best])
	case a.EarlyStopping != b.EarlyStopping:
		return fmt.Sprintf("early_stopping was %d, not %d", a.EarlyStopping, b.EarlyStopping)
	}
	return ""
}

// digest is the SHA-256 of documents: names, labels and features.
func digest(docs []Document) string {
	if len(docs) == 0 {
		return ""
	}
	h := sha256.New()
	var b []byte
	for _, d := range docs {
		b = fmt.Appendf(b[:0], "%q %q ", d.Name, d.Labels)
		f := cmp.Or(d.Features, new(model.Batch))                                  // newCorpus tells of a document without
		for _, numbers := range []any{f.IDs, f.GroupEnd, f.GroupScale, f.Layout} { // of four bytes
			b = binary.LittleEndian.AppendUint64(b, uint64(binary.Size(numbers)/4))
			b, _ = binary.Append(b, binary.LittleEndian, numbers)
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
