package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/linnet-ml/linnet/model/bundled"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms"
)

// TestGS labels documents of one bucket into another, with a model of a third,
// and compares the result with that of local files.
func TestGS(t *testing.T) {
	server := clitest.Storage(t, "out")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	put := func(bucket, name, content string) { clitest.Put(server, bucket, name, []byte(content)) }
	docs := fstest.MapFS{
		"a.txt": {Data: []byte("Agaricus \xff nov.\n")}, "sub/b.txt.ann": {Data: []byte("[@Boletus#Nomenclature*]\nPileus\n")}, "sub/deep/c.txt": {Data: []byte("x\r\ny")},
	}
	clitest.PutFS(t, server, "in", "docs", docs)
	in := t.TempDir()
	if err := os.CopyFS(in, docs); err != nil {
		t.Fatal(err)
	}
	put("in", "docs/notes.md", "no document")
	clitest.PutFS(t, server, "models", "m", bundled.FS())
	local := filepath.Join(t.TempDir(), "out")
	if _, stderr, status := predict(t, "--input="+in, "--output="+local); status != 0 {
		t.Fatal(stderr)
	}
	want := clitest.OutputsOf(t, local)

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
		objects, err := clitest.Objects(server, "out", "labelled/")
		if err != nil {
			t.Fatal(err)
		}
		if _, there := objects[transforms.LockFile]; there {
			t.Error("the lock is still there")
		}
		got := map[string]string{}
		for name, content := range objects {
			if !strings.HasPrefix(name, "_") {
				got[filepath.FromSlash(name)] = content
			}
		}
		if err := difference(got, want); err != nil {
			t.Errorf("run %d: %v", i, err)
		}
	}
	put("in", "docs/labelled/d.txt", "no input")
	stdout, stderr, status := predict(t, "--input=gs://in/docs", "--output=gs://in/docs/labelled", "--plan")
	if status != 0 || !strings.HasPrefix(stdout, "3 documents, ") {
		t.Errorf("exit status %d: %s%s; want 3 documents, none of those below --output", status, stdout, stderr)
	}
	// Somebody's own in the place of an output stays, and other settings write anew.
	put("in", "docs/d.txt", "Boletus\n")
	put("out", "labelled/d.txt.ann", "mine")
	for _, c := range []struct {
		args   []string
		status int
		own    bool
	}{{nil, 3, true}, {[]string{"--label_set=full"}, 3, true}, {[]string{"--label_set=full", "--force"}, 0, false}} {
		stdout, stderr, status := predict(t, append(c.args, "--input=gs://in/docs", "--output=gs://out/labelled", "--model_uri=gs://models/m")...)
		o, err := server.GetObject("out", "labelled/d.txt.ann")
		if err != nil || status != c.status || (string(o.Content) == "mine") != c.own {
			t.Errorf("%q: exit status %d, %q, %v: %s%s", c.args, status, o.Content, err, stdout, stderr)
		}
	}
	stdout, stderr, status = predict(t, "--input=gs://in/nothing", "--output=gs://out/labelled")
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
		if req.Method == http.MethodPost && strings.Contains(req.URL.String(), transforms.DoneFolder) { // the first record
			once.Do(func() {
				clitest.Put(server, "out", "o/"+transforms.LockFile, []byte("process 2 on elsewhere\n"))
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

// TestGSNames has what a disk cannot have: objects whose names differ in slashes
// alone, one beside a folder of its name, and a name that says not whether it is a
// folder's; and a bucket that is none.
func TestGSNames(t *testing.T) {
	server := clitest.Storage(t, "in", "out")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	for _, name := range []string{"twins/a/x.txt", "twins/a//x.txt", "both", "both/y.txt", "notes.md", "f[1].txt/z.txt"} {
		clitest.Put(server, "in", name, []byte("Boletus\n"))
	}
	for _, c := range []struct {
		input string
		want  []string // below the output folder, or what is told
	}{
		{"gs://in/twins", []string{"two inputs, one output: a/x.txt.ann of gs://in/twins/a/", " and of gs://in/twins/a/"}},
		{"gs://none/x", []string{"there is no bucket none (404)"}},
		{"gs://in/both", []string{"both.ann", "y.txt.ann"}},
		{"gs://in/notes.md", []string{"notes.md.ann"}},
		{"GS://in/f[1].txt/", []string{"z.txt.ann"}},
	} {
		output := filepath.Join(t.TempDir(), "out")
		_, stderr, status := predict(t, "--input="+c.input, "--output="+output)
		if !strings.HasSuffix(c.want[0], ".ann") {
			if status != 2 || !strings.Contains(stderr, c.want[0]) {
				t.Errorf("%s: exit status %d: %s; want 2 and %s", c.input, status, stderr, c.want[0])
			}
			continue
		}
		got, err := clitest.Outputs(output)
		if names := slices.Sorted(maps.Keys(got)); status != 0 || err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%s: exit status %d, %v: %s; %q, want %q", c.input, status, err, stderr, names, c.want)
		}
	}
}

// TestGSNamesElsewhere has names that the other side cannot hold: these documents
// are rejected, and tried again by --retry_rejected.
func TestGSNamesElsewhere(t *testing.T) {
	server := clitest.Storage(t, "out")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, server.HTTPHandler()))
	in := t.TempDir()
	for _, name := range []string{"a\x00b.txt", "ok.txt"} {
		clitest.Put(server, "in", name, []byte("Boletus\n"))
	}
	for _, name := range []string{strings.Repeat("n", 200) + ".txt", "ok.txt"} {
		if err := os.WriteFile(filepath.Join(in, name), []byte("Boletus\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--input=gs://in", "--output=" + filepath.Join(t.TempDir(), "out")}, {"--input=" + in, "--output=gs://out/" + strings.Repeat("o", 880)}} {
		if stdout, stderr, status := predict(t, args...); status != 3 || !strings.Contains(stdout, "1 document rejected") {
			t.Errorf("%s: exit status %d: %s%s", args, status, stdout, stderr)
		}
		_, stderr, status := predict(t, append(args, "--retry_rejected", "--verbosity=0")...)
		if status != 3 || !strings.Contains(stderr, "linnet: 1 of 2 documents rejected") || !strings.Contains(stderr, "impossible name") {
			t.Errorf("%s again: exit status %d: %s", args, status, stderr)
		}
	}
}

// TestGSLockStays has the lock not go at the end: the run says so.
func TestGSLockStays(t *testing.T) {
	server := clitest.Storage(t, "out")
	t.Setenv("STORAGE_EMULATOR_HOST", clitest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodDelete && strings.Contains(req.URL.String(), transforms.LockFile) {
			http.Error(w, "retentionPolicyNotMet", http.StatusForbidden)
			return
		}
		server.HTTPHandler().ServeHTTP(w, req)
	})))
	_, stderr, status := predict(t, "--input="+manyDocuments(t, 1), "--output=gs://out/o")
	if status != 0 || !strings.Contains(stderr, "linnet: store: gs://out/o/_lock: permission denied (403)") || !strings.Contains(stderr, "the lock stays") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}
