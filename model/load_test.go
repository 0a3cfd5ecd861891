package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
	"unsafe"

	"github.com/maruel/safetensors"
)

// saved is the folder that Save makes of w.
func saved(t testing.TB, w *Weights) fstest.MapFS {
	t.Helper()
	dir := t.TempDir()
	if err := Save(dir, w, &Metadata{Data: "made up", Parameters: w.Config.NumParameters()}); err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for _, name := range []string{configFile, weightsFile, metadataFile} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: b}
	}
	return files
}

func TestSaveLoad(t *testing.T) {
	w := testWeights(testConfig())
	w.Config.LabelMap = map[string]string{"Holotype": Description, "Key": MiscExposition}
	dir := filepath.Join(t.TempDir(), "new", "model")
	meta := &Metadata{
		Data: "made up", Seed: 3, Epochs: []EpochStats{{Loss: 1.5}}, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Validation: &Accuracy{Accuracy: 0.9, F1: map[string]float64{Description: 0.8}},
	}
	if err := Save(dir, w, meta); err != nil {
		t.Fatal(err)
	}
	got, err := Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, w) {
		t.Errorf("what was loaded is not what was saved")
	}
	gotMeta, err := LoadMetadata(os.DirFS(dir))
	if err != nil || !reflect.DeepEqual(gotMeta, meta) {
		t.Errorf("LoadMetadata() = %+v, %v, want %+v", gotMeta, err, meta)
	}
	// Saving over it and over what a kill left leaves the three files and nothing else.
	for _, name := range []string{configFile, metadataFile, weightsFile} {
		if err := os.WriteFile(filepath.Join(dir, tempPrefix(name)+"123"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := Save(dir, w, meta); err != nil {
		t.Fatal(err)
	}
	if names := listDir(t, dir); !slices.Equal(names, []string{configFile, metadataFile, weightsFile}) {
		t.Errorf("the folder holds %q", names)
	}
	if err := Save(dir, w, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadMetadata(os.DirFS(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("metadata of the model before is still there: %v", err)
	}
}

func listDir(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSaveRefusesInvalid(t *testing.T) {
	w := testWeights(testConfig())
	w.OutputBias[0] = float32(math.Inf(1))
	dir := filepath.Join(t.TempDir(), "model")
	checkError(t, Save(dir, w, nil), "model: output.bias: number 0 is +Inf")
	if _, err := os.Stat(dir); err == nil {
		t.Error("Save made a folder for weights it refused")
	}
}

func TestSaveFailsWhole(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, weightsFile), 0o777); err != nil { // nothing can be renamed onto it
		t.Fatal(err)
	}
	if err := Save(dir, testWeights(testConfig()), nil); err == nil {
		t.Fatal("no error")
	}
	if names := listDir(t, dir); !slices.Equal(names, []string{weightsFile}) {
		t.Errorf("a failed Save leaves %q", names)
	}
}

func TestTensorsAreAligned(t *testing.T) {
	for classes := 1; classes <= 20; classes++ { // headers of different lengths
		c := testConfig()
		c.FullClasses = nil
		c.Classes = c.Classes[:1]
		c.OtherClass = ""
		for len(c.Classes) < classes {
			c.Classes = append(c.Classes, strings.Repeat("x", len(c.Classes)))
		}
		c.NumClasses = classes
		c.LayoutSize = classes
		file := new(bytes.Buffer)
		if err := testWeights(c).encodeWeights(file); err != nil {
			t.Fatal(err)
		}
		b := file.Bytes()
		parsed, err := safetensors.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range parsed.Tensors {
			at := uintptr(unsafe.Pointer(&tensor.Data[0])) - uintptr(unsafe.Pointer(&b[0]))
			if at%alignment != 0 && !strings.HasPrefix(tensor.Name, padding) {
				t.Errorf("%d classes: tensor %s stands at %d, no multiple of %d", classes, tensor.Name, at, alignment)
			}
		}
	}
}

func TestHash(t *testing.T) {
	w := testWeights(testConfig())
	files := saved(t, w)
	sum := sha256.Sum256(slices.Concat(files[configFile].Data, files[weightsFile].Data))
	if got, want := w.Hash(), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("Hash() = %s, want that of the files, %s", got, want)
	}
	loaded, err := Load(files)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Hash() != w.Hash() {
		t.Error("Hash changes when a model is saved and loaded")
	}
	before := w.Hash()
	w.OutputBias[0] += 1
	if w.Hash() == before {
		t.Error("Hash does not see the weights")
	}
	w.OutputBias[0] = loaded.OutputBias[0]
	w.Config.Seed++
	if w.Hash() == before {
		t.Error("Hash does not see the config")
	}
}

func TestLoadErrors(t *testing.T) {
	good := saved(t, testWeights(testConfig()))
	size := len(good[weightsFile].Data)
	// setJSON changes one field of config.json.
	setJSON := func(field string, value any) func(fstest.MapFS) {
		return func(files fstest.MapFS) {
			var m map[string]any
			if err := json.Unmarshal(files[configFile].Data, &m); err != nil {
				t.Fatal(err)
			}
			m[field] = value
			b, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			files[configFile] = &fstest.MapFile{Data: b}
		}
	}
	// rewrite changes the tensors of weights.safetensors.
	rewrite := func(change func(f *safetensors.File)) func(fstest.MapFS) {
		return func(files fstest.MapFS) {
			f, err := safetensors.Parse(bytes.Clone(files[weightsFile].Data))
			if err != nil {
				t.Fatal(err)
			}
			change(f)
			var b bytes.Buffer
			if err := f.Serialize(&b); err != nil {
				t.Fatal(err)
			}
			files[weightsFile] = &fstest.MapFile{Data: b.Bytes()}
		}
	}
	setFile := func(name string, data []byte) func(fstest.MapFS) {
		return func(files fstest.MapFS) { files[name] = &fstest.MapFile{Data: data} }
	}
	remove := func(name string) func(fstest.MapFS) {
		return func(files fstest.MapFS) { delete(files, name) }
	}
	cut := func(n int) func(fstest.MapFS) { return setFile(weightsFile, good[weightsFile].Data[:n]) }
	find := func(f *safetensors.File, name string) *safetensors.Tensor {
		for i := range f.Tensors {
			if f.Tensors[i].Name == name {
				return &f.Tensors[i]
			}
		}
		t.Fatalf("no tensor %s", name)
		return nil
	}
	cases := map[string]struct {
		change func(fstest.MapFS)
		want   string
	}{
		"empty folder":     {func(f fstest.MapFS) { clear(f) }, "model: config.json: file does not exist; a model's folder holds config.json and weights.safetensors"},
		"no weights":       {remove(weightsFile), "model: weights.safetensors: file does not exist;"},
		"config empty":     {setFile(configFile, nil), "model: config.json: ends after 0 bytes"},
		"config cut":       {setFile(configFile, good[configFile].Data[:99]), "model: config.json: ends after 99 bytes"},
		"config no JSON":   {setFile(configFile, []byte("input_size=3\n")), "model: config.json: invalid character"},
		"config large":     {setFile(configFile, make([]byte, 1<<20+1)), "model: config.json: 1,048,577 bytes; at most 1,048,576"},
		"config goes on":   {setFile(configFile, append(bytes.Clone(good[configFile].Data), '{')), "model: config.json: more follows after byte"},
		"config is array":  {setFile(configFile, []byte("[]")), "model: config.json: it holds no object; mend it"},
		"a long one":       {setJSON(strings.Repeat("é", 200), true), `model: config.json: unknown field "` + strings.Repeat("é", 89) + "…; mend it"}, // no half of a letter
		"unknown field":    {setJSON("crf", true), `model: config.json: unknown field "crf"; mend it, or use the program that the model came with`},
		"wrong JSON type":  {setJSON("input_size", "many"), "model: config.json: input_size: a string where it must be int;"},
		"format":           {setJSON("format", 2), "model: config.json: format: 2, but this program reads 1"},
		"later format":     {setFile(configFile, []byte(`{"crf": true, "format": 2, "input_size": "64k"}`)), "model: config.json: format: 2, but this program reads 1; use the program that the model came with"},
		"feature_version":  {setJSON("feature_version", 7), "model: config.json: feature_version: 7, but this program makes 1; train the model again"},
		"feature_hash":     {setJSON("feature_hash", "crc"), `model: config.json: feature_hash: "crc"`},
		"layout_size":      {setJSON("layout_size", 3), "model: config.json: layout_size: 3, but this program's features have 51"},
		"classes twice":    {setJSON("classes", []string{"A", "A", "B"}), "model: config.json: classes: A stands there twice"},
		"huge table":       {setJSON("input_size", 1<<30), "model: config.json: input_size: 1,073,741,824; it must be"},
		"large table":      {setJSON("input_size", 1<<24), "model: weights.safetensors: tensor table: shape [50 5], but config.json asks for [16777216 5]"},
		"weights empty":    {cut(0), "model: weights.safetensors: 0 of more than"},
		"weights 7 bytes":  {cut(7), "model: weights.safetensors: 7 of more than"},
		"cut in header":    {cut(100), "model: weights.safetensors: 100 of at least"},
		"cut in data":      {cut(size - 64), "model: weights.safetensors: " + comma(size-64) + " of " + comma(size) + " bytes; copy the model again"},
		"cut by a byte":    {cut(size - 1), "model: weights.safetensors: " + comma(size-1) + " of " + comma(size) + " bytes"},
		"weights go on":    {setFile(weightsFile, append(bytes.Clone(good[weightsFile].Data), 0)), "model: weights.safetensors: metadata incomplete buffer"},
		"weights large":    {setFile(weightsFile, make([]byte, 2<<20)), "model: weights.safetensors: 2,097,152 bytes; at most"},
		"weights are text": {setFile(weightsFile, bytes.Repeat([]byte("text "), 1000)), "model: weights.safetensors: its header says"},
		"no tensor": {rewrite(func(f *safetensors.File) { find(f, "layout.bias").Name = "layout.b" }),
			"model: weights.safetensors: no tensor layout.bias;"},
		"tensor too many": {rewrite(func(f *safetensors.File) {
			f.Tensors = append(f.Tensors, safetensors.Tensor{Name: "crf", DType: safetensors.U8, Shape: []uint64{1}, Data: []byte{0}})
		}), `model: weights.safetensors: tensor "crf" is none of this model's`},
		"tensor twice": {rewrite(func(f *safetensors.File) { f.Tensors = append(f.Tensors, *find(f, "table")) }),
			`model: weights.safetensors: tensor "table" stands there twice`},
		"wrong shape": {rewrite(func(f *safetensors.File) { find(f, "table").Shape = []uint64{5, 50} }),
			"model: weights.safetensors: tensor table: shape [5 50], but config.json asks for [50 5]"},
		"other shape": {setJSON("hidden_size", 2), "model: weights.safetensors: tensor layers.0.forward.input_weights: shape [5 12], but config.json asks for [5 8]"},
		"wrong dtype": {rewrite(func(f *safetensors.File) { find(f, "table").DType = safetensors.U8 }),
			"model: weights.safetensors: tensor table: type U8; it must be I8"},
		"NaN": {rewrite(func(f *safetensors.File) {
			binary.LittleEndian.PutUint32(find(f, "table_scale").Data[4:], math.Float32bits(float32(math.NaN())))
		}), "model: weights.safetensors: table_scale: number 1 is NaN; the model is damaged"},
		"Inf": {rewrite(func(f *safetensors.File) {
			binary.LittleEndian.PutUint32(find(f, "output.bias").Data, math.Float32bits(float32(math.Inf(-1))))
		}), "model: weights.safetensors: output.bias: number 0 is -Inf"},
		"folder for a file": {func(f fstest.MapFS) { f[weightsFile] = &fstest.MapFile{Mode: fs.ModeDir} }, "model: weights.safetensors: not a regular file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			maps.Copy(files, good)
			tc.change(files)
			w, err := Load(files)
			checkError(t, err, tc.want)
			if w != nil {
				t.Error("weights and an error")
			}
			if strings.Contains(tc.want, "does not exist") && !errors.Is(err, fs.ErrNotExist) {
				t.Error("the error does not wrap fs.ErrNotExist")
			}
		})
	}
}

// shrinking is a folder whose weights lose their end once their size is known.
type shrinking struct{ fstest.MapFS }

func (s shrinking) Open(name string) (fs.File, error) {
	f, err := s.MapFS.Open(name)
	if name == weightsFile {
		short := *s.MapFS[name]
		short.Data = short.Data[:len(short.Data)-4]
		return fstest.MapFS{name: &short}.Open(name)
	}
	return f, err
}

func (s shrinking) Stat(name string) (fs.FileInfo, error) { return s.MapFS.Stat(name) }

// TestLoadShrinking must not take zeros for what is missing.
func TestLoadShrinking(t *testing.T) {
	files := saved(t, testWeights(testConfig()))
	size := len(files[weightsFile].Data)
	_, err := Load(shrinking{files})
	checkError(t, err, fmt.Sprintf("model: weights.safetensors: %s of %s bytes; it changed while it was read", comma(size-4), comma(size)))
}

// closed is a folder whose weights may not be opened, as err says.
type closed struct {
	fstest.MapFS
	err error
}

func (c closed) Open(name string) (fs.File, error) {
	if name == weightsFile {
		return nil, &fs.PathError{Op: "open", Path: name, Err: c.err}
	}
	return c.MapFS.Open(name)
}

// TestLoadClosed has what to do from the system's error, and not where the store says it.
func TestLoadClosed(t *testing.T) {
	files := saved(t, testWeights(testConfig()))
	for err, want := range map[error]string{
		syscall.EACCES:                          "model: weights.safetensors: " + syscall.EACCES.Error() + "; allow reading it",
		fmt.Errorf("403: %w", fs.ErrPermission): "model: weights.safetensors: 403: permission denied",
	} {
		if _, got := Load(closed{files, err}); got == nil || got.Error() != want || !errors.Is(got, fs.ErrPermission) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// replaced is a folder that Save begins to write over once its config is read:
// then has what stands there from then on.
type replaced struct {
	fstest.MapFS
	then fstest.MapFS
	read bool
}

func (r *replaced) Open(name string) (fs.File, error) {
	if r.read {
		return r.then.Open(name)
	}
	r.read = name == configFile
	return r.MapFS.Open(name)
}

func (r *replaced) Stat(name string) (fs.FileInfo, error) {
	if r.read {
		return r.then.Stat(name)
	}
	return r.MapFS.Stat(name)
}

// TestLoadReplaced must not take the weights of a new model for those of an old
// one's config.
func TestLoadReplaced(t *testing.T) {
	w := testWeights(testConfig())
	before := saved(t, w)
	w.Config.Classes = slices.Clone(w.Config.Classes)
	slices.Reverse(w.Config.Classes)
	after := saved(t, w)
	half := fstest.MapFS{weightsFile: after[weightsFile]}
	for name, then := range map[string]fstest.MapFS{"whole": after, "half": half} {
		_, err := Load(&replaced{MapFS: before, then: then})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		checkError(t, err, "model: config.json: it changed while the weights were read: load it again")
	}
	if _, err := Load(&replaced{MapFS: before, then: before}); err != nil {
		t.Errorf("with the same config: %v", err)
	}
}

// TestLoadUnaligned loads what other programs write: no padding, a header of
// any length.
func TestLoadUnaligned(t *testing.T) {
	w := testWeights(testConfig())
	files := saved(t, w)
	f, err := safetensors.Parse(files[weightsFile].Data)
	if err != nil {
		t.Fatal(err)
	}
	f.Tensors = slices.DeleteFunc(f.Tensors, func(t safetensors.Tensor) bool { return strings.HasPrefix(t.Name, padding) })
	f.Metadata = nil
	var b bytes.Buffer
	if err := f.Serialize(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Load(fstest.MapFS{configFile: files[configFile], weightsFile: &fstest.MapFile{Data: b.Bytes()}})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, w) {
		t.Error("what was loaded is not what was saved")
	}
	for _, tensor := range got.tensors() {
		if tensor.f32 != nil && uintptr(unsafe.Pointer(&(*tensor.f32)[0]))%4 != 0 {
			t.Errorf("the numbers of %s do not stand at a multiple of 4 bytes", tensor.name)
		}
	}
}

// FuzzConfig holds the reading of config.json to one line of error, or to a
// Config that is valid, bounded and the same when it is written and read again.
func FuzzConfig(f *testing.F) {
	good := saved(f, testWeights(testConfig()))[configFile].Data
	f.Add(good)
	f.Add([]byte(`{"format":1}`))
	f.Add(bytes.Replace(good, []byte(`"hidden_size": 3`), []byte(`"hidden_size": 4096`), 1))
	f.Add(bytes.Replace(good, []byte(`"input_size": 50`), []byte(`"input_size": 1e30`), 1))
	f.Add([]byte("[[[[[[[[[[[["))
	f.Fuzz(func(t *testing.T, text []byte) {
		w := new(Weights)
		if err := decodeConfig(text, &w.Config); err != nil {
			if msg := err.Error(); strings.ContainsAny(msg, "\n\r") || msg == "" {
				t.Errorf("error %q is not one line", msg)
			}
			return
		}
		if err := w.Config.Validate(); err != nil {
			t.Errorf("it was read, and Validate refuses it: %v", err)
		}
		if limit := weightsLimit(w.tensors()); limit < 0 || limit > 2*maxBytes {
			t.Errorf("it allows %d bytes of weights", limit)
		}
		again, err := json.Marshal(&w.Config)
		if err != nil {
			t.Fatal(err)
		}
		var c Config
		if err := decodeConfig(again, &c); err != nil {
			t.Fatalf("written again as %s: %v", again, err)
		}
		twice, err := json.Marshal(&c)
		if err != nil || !bytes.Equal(again, twice) {
			t.Errorf("written again as %s, then as %s, %v", again, twice, err)
		}
	})
}

// FuzzWeights holds Load to an error or valid weights, whatever
// weights.safetensors holds: no panic, no memory that the file does not explain.
func FuzzWeights(f *testing.F) {
	c := testConfig()
	c.InputSize, c.NumLayers = 3, 1
	good := saved(f, testWeights(c))
	config, weights := good[configFile], good[weightsFile].Data
	f.Add(weights)
	f.Add(weights[:100])
	f.Add(bytes.Replace(weights, []byte(`"shape":[3,5]`), []byte(`"shape":[9,9]`), 1))
	f.Add(bytes.Replace(weights, []byte(`"shape":[3,5]`), []byte(`"shape":[4294967296,4294967296]`), 1))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, weights []byte) {
		w, err := Load(fstest.MapFS{configFile: config, weightsFile: &fstest.MapFile{Data: weights}})
		if err != nil {
			if msg := err.Error(); strings.ContainsAny(msg, "\n\r") || !strings.HasPrefix(msg, "model: ") {
				t.Errorf("error %q is not one line of package model", msg)
			}
			return
		}
		if err := w.Validate(); err != nil {
			t.Errorf("Load gave weights that Validate refuses: %v", err)
		}
	})
}

// TestLoadAllocates holds Load to the size of the files, whatever config.json
// claims.
func TestLoadAllocates(t *testing.T) {
	files := saved(t, testWeights(testConfig()))
	files[configFile].Data = bytes.Replace(files[configFile].Data, []byte(`"input_size": 50`), []byte(`"input_size": 16777216`), 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Load(files); err == nil {
		t.Fatal("no error")
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 1<<20 {
		t.Errorf("Load of small files allocates %d bytes", allocated)
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	c := DefaultConfig()
	if err := Save(dir, testWeights(c), nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(c.parameterBytes())
	for b.Loop() {
		if _, err := Load(os.DirFS(dir)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	c := DefaultConfig()
	w := testWeights(c)
	b.SetBytes(c.parameterBytes())
	for b.Loop() {
		w.Hash()
	}
}
