package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms"
)

// TestGS labels documents of one bucket into another, with a model of a third,
// and compares the result with that of local files.
func TestGS(t *testing.T) {
	server := clitest.Storage(t, "out")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	put := func(bucket, name string, data []byte) {
		server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: bucket, Name: name}, Content: data})
	}
	in := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": "Agaricus \xff nov.\n", "sub/b.txt.ann": "[@Boletus#Nomenclature*]\nPileus\n", "sub/deep/c.txt": "x\r\ny",
	} {
		put("in", "docs/"+name, []byte(text))
		path := filepath.Join(in, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put("in", "docs/notes.md", []byte("no document"))
	for _, name := range []string{"config.json", "weights.safetensors"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "model", "bundled", name))
		if err != nil {
			t.Fatal(err)
		}
		put("models", "m/"+name, data)
	}
	local := filepath.Join(t.TempDir(), "out")
	if _, stderr, status := predict(t, "--input="+in, "--output="+local); status != 0 {
		t.Fatal(stderr)
	}
	want, err := outputs(local)
	if err != nil {
		t.Fatal(err)
	}

	for i, args := range [][]string{{"--runner=direct"}, {"--runner=prism", "--force"}, {"--runner=direct"}} {
		input := "gs://in/docs"
		switch i {
		case 1:
			input = "gs://in/docs/**/*.txt*"
		case 2:
			input = "gs://in/docs/"
		}
		stdout, stderr, status := predict(t, append(args, "--input="+input, "--output=gs://out/labelled", "--model_uri=gs://models/m")...)
		if status != 0 {
			t.Fatalf("run %d: exit status %d: %s%s", i, status, stdout, stderr)
		}
		if i == 2 && !strings.Contains(stdout, "3 documents done before") {
			t.Errorf("the last run says %s", stdout)
		}
		listed, err := server.ListObjectsWithOptionsPaginated("out", fakestorage.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, o := range listed.Objects {
			name := strings.TrimPrefix(o.Name, "labelled/")
			if name == transforms.LockFile {
				t.Error("the lock is still there")
			}
			if strings.HasPrefix(name, "_") {
				continue
			}
			object, err := server.GetObject("out", o.Name)
			if err != nil {
				t.Fatal(err)
			}
			got[filepath.FromSlash(name)] = string(object.Content)
		}
		if err := difference(got, want); err != nil {
			t.Errorf("run %d: %v", i, err)
		}
	}
	stdout, stderr, status := predict(t, "--input=gs://in/nothing", "--output=gs://out/labelled")
	if status != 2 || !strings.Contains(stderr, "no document in gs://in/nothing") {
		t.Errorf("exit status %d: %s%s; want 2 and the missing folder", status, stdout, stderr)
	}
	stdout, stderr, status = predict(t, "--input=gs://in/docs", "--model_uri=gs://models/none", "--output=gs://out/labelled")
	if status != 1 || !strings.Contains(stderr, "gs://models/none") {
		t.Errorf("exit status %d: %s%s; want 1 and the missing model", status, stdout, stderr)
	}
}

// TestGSLockLost has another run take the lock in mid-run: what is done stays, and
// the end is an error.
func TestGSLockLost(t *testing.T) {
	server := clitest.Storage(t, "out")
	var once sync.Once
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.String(), transforms.DoneFolder) {
			once.Do(func() {
				server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "out", Name: "o/" + transforms.LockFile}, Content: []byte("process 2 on elsewhere\n")})
			})
		}
		if req.Method == http.MethodDelete && strings.Contains(req.URL.String(), transforms.LockFile) { // the stand-in compares no generations
			http.Error(w, "conditionNotMet", http.StatusPreconditionFailed)
			return
		}
		server.HTTPHandler().ServeHTTP(w, req)
	})))
	_, stderr, status := predict(t, "--input="+manyDocuments(t, 2), "--output=gs://out/o", "--verbosity=0")
	if status != 1 || !strings.HasPrefix(stderr, "linnet: store: gs://out/o/_lock: the lock was lost") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit status %d, %q; want 1 and a line about the lock", status, stderr)
	}
	if _, err := server.GetObject("out", "o/"+transforms.ManifestFile); err != nil {
		t.Error(err)
	}
}
