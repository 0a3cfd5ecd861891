package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/modeltest"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms/store"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// TestMain lets the test's own binary be the command train.
func TestMain(m *testing.M) { clitest.Main(m, map[string]func(){"train": main}) }

func TestScripts(t *testing.T) {
	setup := func(env *testscript.Env) error {
		err := os.WriteFile(filepath.Join(env.WorkDir, "utf16.txt"), []byte("\xff\xfeA\x00g\x00"), 0o666)
		return errors.Join(err, writeCorpus(filepath.Join(env.WorkDir, "corpus")))
	}
	clitest.Scripts(t, "", setup, nil)
}

// newCorpus is a folder with what writeCorpus writes.
func newCorpus(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := writeCorpus(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeCorpus writes four documents that a model can learn: 1.txt.ann …
// 4.txt.ann.
func writeCorpus(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for i := 1; i <= 4; i++ {
		var b bytes.Buffer
		for j := range 30 {
			fmt.Fprintf(&b, "[@Agaricus species%d sp. nov.#Nomenclature*]\n[@Pileus %d cm latus, stipes albus\nlamellae liberae#Description*]\n[@It was found in the woods of %d#Misc-exposition*]\n[@%d. Spores white#Key*]\n", i*j, j, 1900+j, j)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt.ann", i)), b.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// small makes a training of a moment.
var small = []string{"--input_size=512", "--embedding_size=8", "--hidden_size=6", "--epochs=2", "--batch_size=2"}

// trained runs train with small and more flags, and returns the model.
func trained(t *testing.T, corpus string, more ...string) *model.Weights {
	t.Helper()
	return trainedOn(t, corpus, filepath.Join(corpus, "4.txt.ann"), more...)
}

func trainedOn(t *testing.T, input, validation string, more ...string) *model.Weights {
	t.Helper()
	out := filepath.Join(t.TempDir(), "model")
	args := append([]string{"--input=" + input, "--validation=" + validation, "--model_out=" + out, "--verbosity=0"}, small...)
	cmd := exec.Command("train", append(args, more...)...)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("train %q: %v: %s", more, err, said)
	}
	w, err := model.Load(os.DirFS(out))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestBrat trains on the corpus as YEDDA and as brat's pairs, listed as a folder
// and by patterns, and judged on one that is named by its text or its annotation:
// it is one model.
func TestBrat(t *testing.T) {
	corpus, pairs := newCorpus(t), t.TempDir()
	for i := 1; i <= 4; i++ {
		d := yedda.Parse(clitest.ReadFile(t, filepath.Join(corpus, fmt.Sprintf("%d.txt.ann", i))))
		stem := filepath.Join(pairs, fmt.Sprint(i))
		err := errors.Join(os.WriteFile(stem+".txt", d.Text, 0o666), os.WriteFile(stem+".ann", yedda.WriteBrat(d.Text, d.Spans), 0o666))
		if err != nil {
			t.Fatal(err)
		}
	}
	want := trained(t, corpus).Hash()
	for _, names := range [][2]string{{"", "4.txt"}, {"", "4.ann"}, {"*.ann", "4.ann"}, {"*.ann", "4.txt"}, {"*", "4.*"}} {
		if got := trainedOn(t, filepath.Join(pairs, names[0]), filepath.Join(pairs, names[1])).Hash(); got != want {
			t.Errorf("%q give another model than YEDDA", names)
		}
	}
}

// TestFlags checks that every flag of the config is in the model's config and
// changes its hash, and that the same flags give the same model.
func TestFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes seconds")
	}
	corpus := newCorpus(t)
	base := trained(t, corpus)
	if again := trained(t, corpus); again.Hash() != base.Hash() {
		t.Error("the same flags give two models")
	}
	for flag, value := range map[string]string{
		"input_size": "1024", "embedding_size": "9", "hidden_size": "7", "num_layers": "2", "num_classes": "2",
		"dropout": "0.1", "window_size": "40", "prediction_batch_size": "3", "batch_size": "3", "epochs": "1",
		"learning_rate": "0.001", "weight_decay": "0.5", "class_weights": "balanced", "focal_labels": "Nomenclature", "seed": "2",
	} {
		t.Run(flag, func(t *testing.T) {
			w := trained(t, corpus, "--"+flag+"="+value)
			if w.Hash() == base.Hash() {
				t.Error("the model is the same")
			}
			text, err := json.Marshal(w.Config)
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]any
			if err := json.Unmarshal(text, &fields); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(fields[flag]); got != value {
				t.Errorf("the config has %s=%s, want %s", flag, got, value)
			}
		})
	}
	w := trained(t, corpus, "--window_size=40", "--prediction_stride=10")
	if w.Config.PredictionStride != 10 {
		t.Errorf("prediction_stride=%d, want 10", w.Config.PredictionStride)
	}
}

// TestSaveRefused saves a second model to a bucket that refuses its weights: no
// half of both is left that loads, and the next save makes it whole.
func TestSaveRefused(t *testing.T) {
	server := clitest.Storage(t, "out")
	refuse := ""
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse != "" && strings.HasPrefix(r.URL.Path, "/upload/") && strings.HasSuffix(r.URL.Query().Get("name"), refuse) {
			http.Error(w, "refused", http.StatusForbidden)
			return
		}
		server.HTTPHandler().ServeHTTP(w, r)
	})))

	const to = "gs://out/model"
	load := func() (*model.Weights, error) {
		fsys, err := store.Sub(t.Context(), to)
		if err != nil {
			return nil, err
		}
		return model.Load(fsys)
	}
	meta := &model.Metadata{Epochs: make([]model.EpochStats, 2)}
	cfg := modeltest.Config(64, 4, model.DefaultConfig().LayoutSize, 5, 1, 3, 0)
	if err := save(t.Context(), to, modeltest.Weights(cfg, 1), meta); err != nil {
		t.Fatal(err)
	}
	cfg.Classes = []string{cfg.Classes[1], cfg.Classes[0], cfg.Classes[2]}
	second := modeltest.Weights(cfg, 2)
	refuse = "weights.safetensors"
	if err := save(t.Context(), to, second, meta); err == nil {
		t.Fatal("saved, though the weights were refused")
	}
	if w, err := load(); err == nil {
		t.Errorf("a model of classes %v loads, though its weights were refused", w.Config.Classes)
	}
	refuse = ""
	if err := save(t.Context(), to, second, meta); err != nil {
		t.Fatal(err)
	}
	if w, err := load(); err != nil || w.Hash() != second.Hash() {
		t.Errorf("saved once more: %v; want the second model", err)
	}
}

func TestLabelMapGS(t *testing.T) {
	server := clitest.Storage(t)
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	clitest.Put(server, "in", "map.json", []byte(`{"Key": "Keys"}`))
	got, err := parseLabelMap([]string{"gs://in/map.json", "Holotype=Types"})
	if want := map[string]string{"Key": "Keys", "Holotype": "Types"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
