package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
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
