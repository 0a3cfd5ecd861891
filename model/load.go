package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/maruel/safetensors"
)

// The files of a model's folder.
const (
	configFile   = "config.json"
	weightsFile  = "weights.safetensors"
	metadataFile = "metadata.json"
)

const (
	maxConfigBytes   = 1 << 20
	maxMetadataBytes = 1 << 24
	maxHeaderBytes   = 1 << 20 // of weights.safetensors
)

// Load reads the model in fsys: config.json and weights.safetensors, nothing
// else. It loads all of it or says in one line which file is wrong, how, and
// what to do, also where a Save replaces the model meanwhile. Memory taken is
// that of the file plus a little, and at most about 1 GiB whatever the files say.
func Load(fsys fs.FS) (*Weights, error) {
	w, err := load(fsys)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return w, nil
}

func load(fsys fs.FS) (*Weights, error) {
	text, err := readFile(fsys, configFile, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	w := new(Weights)
	if err := decodeConfig(text, &w.Config); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	tensors := w.tensors()
	file, err := readFile(fsys, weightsFile, weightsLimit(tensors))
	if err != nil {
		return nil, err
	}
	// Save takes config.json away before it brings other weights.
	again, err := readFile(fsys, configFile, maxConfigBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !bytes.Equal(again, text) {
		return nil, fmt.Errorf("%s: it changed while the weights were read: load it again", configFile)
	}
	if err := decodeWeights(file, tensors); err != nil {
		return nil, fmt.Errorf("%s: %w", weightsFile, err)
	}
	return w, nil
}

// decodeConfig reads config.json. A field it does not know is refused: it may
// be one that changes the result.
func decodeConfig(text []byte, c *Config) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		var version struct{ Format int }
		if json.Unmarshal(text, &version) == nil && version.Format > Format { // where no field means what it does here
			c.Format = version.Format
			return c.check()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("ends after %s bytes in the middle; copy the model again", comma(len(text)))
		}
		wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err)
		if ok && wrongType.Field == "" {
			return errors.New("it holds no object; mend it or copy the model again")
		}
		if ok {
			return fmt.Errorf("%s: a %s where it must be %s; mend it or copy the model again", wrongType.Field, wrongType.Value, wrongType.Type)
		}
		what := strings.TrimPrefix(oneLine(err), "json: ")
		if strings.HasPrefix(what, "unknown field") { // the model is whole
			return fmt.Errorf("%s; mend it, or use the program that the model came with", what)
		}
		return fmt.Errorf("%s; mend it or copy the model again", what)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more follows after byte %s; it must hold one object", comma(int(dec.InputOffset())))
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.LayoutSize != FeatureLayout {
		return fmt.Errorf("layout_size: %d, but this program's features have %d; train the model again or use the program it came with",
			c.LayoutSize, FeatureLayout)
	}
	return nil
}

// weightsLimit is the largest file that can hold tensors and nothing else.
func weightsLimit(tensors []tensor) int64 {
	n := int64(8 + maxHeaderBytes)
	for _, t := range tensors {
		n += t.bytes() + alignment
	}
	return n
}

// decodeWeights sets tensors from the bytes of weights.safetensors, which they
// share from then on.
func decodeWeights(file []byte, tensors []tensor) error {
	if err := checkLength(file, tensors); err != nil {
		return err
	}
	parsed, err := safetensors.Parse(file)
	if err != nil {
		return fmt.Errorf("%s; copy the model again", oneLine(err))
	}
	found := make(map[string]*safetensors.Tensor, len(parsed.Tensors))
	for i := range parsed.Tensors {
		t := &parsed.Tensors[i]
		if strings.HasPrefix(t.Name, padding) {
			continue
		}
		if found[t.Name] != nil {
			return fmt.Errorf("tensor %s stands there twice; copy the model again", quote(t.Name))
		}
		found[t.Name] = t
	}
	for i := range tensors {
		want := &tensors[i]
		got := found[want.name]
		if got == nil {
			return fmt.Errorf("no tensor %s; config.json and %s are not of one model: copy both again", want.name, weightsFile)
		}
		if string(got.DType) != want.dtype() {
			return fmt.Errorf("tensor %s: type %s; it must be %s", want.name, got.DType, want.dtype())
		}
		if !slices.EqualFunc(got.Shape, want.shape, func(g uint64, w int) bool { return g == uint64(w) }) {
			return fmt.Errorf("tensor %s: shape %s, but config.json asks for %v; they are not of one model: copy both again",
				want.name, shapeString(got.Shape), want.shape)
		}
		delete(found, want.name)
		want.setData(got.Data)
		if err := want.checkFinite(); err != nil {
			return err
		}
	}
	for name := range found {
		return fmt.Errorf("tensor %s is none of this model's; config.json and %s are not of one model: copy both again", quote(name), weightsFile)
	}
	return nil
}

// checkLength finds a file that was cut off before anything is read from it.
func checkLength(file []byte, tensors []tensor) error {
	have, want := uint64(len(file)), uint64(8)
	for _, t := range tensors {
		want += uint64(t.bytes())
	}
	if have < 8 {
		return fmt.Errorf("%d of more than %s bytes; copy the model again", have, comma(int(want)))
	}
	header := binary.LittleEndian.Uint64(file)
	if header > maxHeaderBytes {
		return fmt.Errorf("its header says %d bytes; this is no safetensors file: copy the model again", header)
	}
	want += header
	of := "at least "
	if have >= 8+header {
		// The header is whole and knows better, with the padding.
		var entries map[string]struct {
			DataOffsets [2]uint64 `json:"data_offsets"`
		}
		// An error here is Parse's to report; what was read still counts.
		_ = json.Unmarshal(file[8:8+header], &entries)
		var end uint64
		for _, e := range entries {
			end = max(end, e.DataOffsets[1])
		}
		if end > 0 && end <= maxBytes+maxHeaderBytes {
			want, of = 8+header+end, ""
		}
	}
	if have < want {
		return fmt.Errorf("%s of %s%s bytes; copy the model again", comma(int(have)), of, comma(int(want)))
	}
	return nil
}

// readFile reads a regular file of at most limit bytes.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, fileError(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file; a model's folder holds %s and %s", name, configFile, weightsFile)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s: %s bytes; at most %s are allowed for this model", name, comma(int(info.Size())), comma(int(limit)))
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fileError(name, err)
	}
	defer f.Close()
	b := make([]byte, info.Size())
	if n, err := io.ReadFull(f, b); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %s of %s bytes; it changed while it was read: load it again", name, comma(n), comma(len(b)))
		}
		return nil, fileError(name, err)
	}
	return b, nil
}

// fileError is err about a file, without its path, which name gives.
func fileError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w; a model's folder holds %s and %s", name, fs.ErrNotExist, configFile, weightsFile)
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	if _, ok := err.(syscall.Errno); ok && errors.Is(err, fs.ErrPermission) { // what gs:// says tells more
		return fmt.Errorf("%s: %w; allow reading it", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

func shapeString(shape []uint64) string {
	if len(shape) > 8 {
		return fmt.Sprintf("of %d dimensions", len(shape))
	}
	return fmt.Sprint(shape)
}

// oneLine is err's text in one line of bounded length.
func oneLine(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
