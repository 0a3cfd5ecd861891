package model

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/maruel/safetensors"
)

// alignment is that of each tensor in the file, in bytes: a cache line.
// Safetensors allows no holes, so small tensors whose names begin with padding
// fill up; the key pad of the metadata does so for the header.
const (
	alignment = 64
	padding   = "padding."
	padKey    = "pad"
)

// Save writes w to the folder dir, which it makes where it is missing:
// weights.safetensors, metadata.json (none where meta is nil) and config.json.
// Each file is written whole under another name and renamed; config.json goes
// first and comes last, so that nobody loads half of a new model and half of
// an old one. What a Save that was killed has left there is removed, so no two
// may save into one folder at once.
func Save(dir string, w *Weights, meta *Metadata) error {
	if err := w.Validate(); err != nil {
		return err
	}
	if err := save(dir, w, meta); err != nil {
		return fmt.Errorf("model: save: %w", err)
	}
	return nil
}

func save(dir string, w *Weights, meta *Metadata) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range left {
		for _, name := range []string{weightsFile, metadataFile, configFile} {
			if strings.HasPrefix(entry.Name(), tempPrefix(name)) {
				os.Remove(filepath.Join(dir, entry.Name()))
			}
		}
	}
	weights, err := writeTemp(dir, weightsFile, w.encodeWeights)
	if err != nil {
		return err
	}
	defer os.Remove(weights) // nothing to remove once it is renamed
	var metadata string
	if meta != nil {
		metadata, err = writeTemp(dir, metadataFile, func(out io.Writer) error { return encodeJSON(out, meta) })
		if err != nil {
			return err
		}
		defer os.Remove(metadata)
	}
	config, err := writeTemp(dir, configFile, func(out io.Writer) error { return encodeJSON(out, &w.Config) })
	if err != nil {
		return err
	}
	defer os.Remove(config)

	for _, name := range []string{configFile, metadataFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(weights, filepath.Join(dir, weightsFile)); err != nil {
		return err
	}
	if meta != nil {
		if err := os.Rename(metadata, filepath.Join(dir, metadataFile)); err != nil {
			return err
		}
	}
	return os.Rename(config, filepath.Join(dir, configFile))
}

// tempPrefix begins the name of a file that is to become name.
func tempPrefix(name string) string { return "." + name + "." }

// writeTemp writes a file beside name, down to the disk, and returns its path.
func writeTemp(dir, name string, write func(io.Writer) error) (path string, err error) {
	f, err := os.OpenFile(filepath.Join(dir, tempPrefix(name)+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	defer func() {
		err = cmp.Or(err, f.Close())
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// Hash is the SHA-256, in hex, of config.json followed by weights.safetensors
// as Save writes them (`cat config.json weights.safetensors | sha256sum`). It
// is computed from what w holds at each call, in about a millisecond a MB. w
// must be valid.
func (w *Weights) Hash() string {
	h := sha256.New()
	if encodeJSON(h, &w.Config) != nil || w.encodeWeights(h) != nil {
		panic("model: Hash of invalid weights")
	}
	return hex.EncodeToString(h.Sum(nil))
}

func encodeJSON(out io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(b, '\n'))
	return err
}

// encodeWeights writes weights.safetensors; the same weights make the same
// bytes.
func (w *Weights) encodeWeights(out io.Writer) error {
	file := safetensors.File{Metadata: map[string]string{"format": "linnet " + strconv.Itoa(Format), padKey: ""}}
	var zeros [alignment]byte
	for _, t := range w.tensors() {
		data := t.data()
		shape := make([]uint64, len(t.shape))
		for i, s := range t.shape {
			shape[i] = uint64(s)
		}
		file.Tensors = append(file.Tensors, safetensors.Tensor{Name: t.name, DType: safetensors.DType(t.dtype()), Shape: shape, Data: data})
		if over := len(data) % alignment; over > 0 {
			n := alignment - over
			file.Tensors = append(file.Tensors, safetensors.Tensor{
				Name: padding + t.name, DType: safetensors.U8, Shape: []uint64{uint64(n)}, Data: zeros[:n],
			})
		}
	}
	// The library rounds the header to 8 bytes; the rest of the way goes
	// through the metadata, once its length is known.
	var probe headerProbe
	if err := file.Serialize(&probe); err != nil {
		return err
	}
	if over := (8 + probe.header) % alignment; over > 0 {
		file.Metadata[padKey] = strings.Repeat(" ", alignment-over)
	}
	return file.Serialize(out)
}

// headerProbe is a writer that keeps the length of the header, the first eight
// bytes, and drops the rest.
type headerProbe struct {
	header int
	seen   bool
}

func (p *headerProbe) Write(b []byte) (int, error) {
	if !p.seen {
		p.header, p.seen = int(binary.LittleEndian.Uint64(b)), true
	}
	return len(b), nil
}
