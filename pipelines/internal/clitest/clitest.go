// Package clitest has what the tests of the pipelines share, such as their testscripts'
// commands and a stand-in for Google Cloud Storage.
package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/linnet-ml/linnet/model"
	"github.com/linnet-ml/linnet/model/bundled"
)

// Main is testscript.Main with a TMPDIR of its own: a command that a test kills
// leaves its folder there.
func Main(m *testing.M, commands map[string]func()) { testscript.Main(tidy{m}, commands) }

type tidy struct{ *testing.M }

func (m tidy) Run() int {
	dir, err := os.MkdirTemp("", "linnet-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("TMPDIR", dir)
	return m.M.Run()
}

// Command is one of a testscript's.
type Command = func(ts *testscript.TestScript, neg bool, args []string)

// Scripts runs those of testdata/script, for a pipeline whose first words on
// standard error begin with firstWords; LINNET_UPDATE renews their goldens. They
// have the pipeline's own commands and
//
//	status 2 predict --format=pdf    runs it and wants that exit status
//	job FILE                         writes the job that --dry_run printed to FILE,
//	                                 less what changes from run to run
//	onehead FOLDER [LABEL…]          writes the bundled model without full labels, with these classes
func Scripts(t *testing.T, firstWords string, setup func(*testscript.Env) error, own map[string]Command) {
	commands := map[string]Command{
		"status":  func(ts *testscript.TestScript, _ bool, args []string) { status(ts, firstWords, args) },
		"job":     job,
		"onehead": oneHead,
	}
	maps.Copy(commands, own)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", Setup: setup, Cmds: commands,
		UpdateScripts: os.Getenv("LINNET_UPDATE") != "", // with a new Beam
	})
}

// status runs a command. Whatever its status, no stack and no dump of Beam's
// may show; at 1 and 2 there is one line that begins "linnet: ", and nothing
// else but the first words.
func status(ts *testscript.TestScript, firstWords string, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
	errors := ts.ReadFile("stderr")
	for _, bad := range []string{"goroutine", "panic", "Plan[", "level=", "DoFn["} {
		if strings.Contains(errors, bad) {
			ts.Fatalf("%q shows", bad)
		}
	}
	told := 0
	for line := range strings.Lines(errors) {
		if strings.HasPrefix(line, "linnet: ") {
			told++
		} else if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, firstWords) {
			ts.Fatalf("the line %q does not begin with linnet: ", line)
		}
	}
	if failed := want == 1 || want == 2; failed && told != 1 {
		ts.Fatalf("%d lines begin with linnet: at exit status %d", told, want)
	}
}

func oneHead(ts *testscript.TestScript, _ bool, args []string) {
	w, err := bundled.Weights()
	ts.Check(err)
	head, err := w.Head("")
	ts.Check(err)
	if len(args) > 1 {
		head.Config.Classes = args[1:]
	}
	ts.Check(model.Save(ts.MkAbs(args[0]), head, new(model.Metadata)))
}

var (
	jobName  = regexp.MustCompile(`go-job-\d+-\d+`)
	jobStage = regexp.MustCompile(`go-\d+-\d{10,}`)
)

// job writes what the last command printed to the file named, sorted, without
// numbers of that run and without the SDK's lists.
func job(ts *testscript.TestScript, _ bool, args []string) {
	text := jobStage.ReplaceAllString(jobName.ReplaceAllString(ts.ReadFile("stdout"), "go-job-N"), "go-N")
	var whole map[string]any
	ts.Check(json.Unmarshal([]byte(text), &whole))
	environment := whole["environment"].(map[string]any)
	options := environment["sdkPipelineOptions"].(map[string]any)
	delete(options, "display_data") // the same options once more, in any order
	delete(options["options"].(map[string]any), "pipelineProtoHash")
	for _, pool := range environment["workerPools"].([]any) {
		for _, image := range pool.(map[string]any)["sdkHarnessContainerImages"].([]any) {
			delete(image.(map[string]any), "capabilities")
		}
	}
	out, err := json.MarshalIndent(whole, "", "  ")
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), append(out, '\n'), 0o666))
}

// ReadFile is what a file holds that must be there.
func ReadFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Outputs are the files of an output folder of predict, by name, without records, whose
// times differ from run to run.
func Outputs(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "_"):
			return fs.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), "_"):
			return nil
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = string(data)
		return err
	})
	return files, err
}

// OutputsOf are the Outputs of a folder that must be there.
func OutputsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := Outputs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Storage is a stand-in for Google Cloud Storage with these buckets. It answers
// where its HTTPHandler is served.
func Storage(t *testing.T, buckets ...string) *fakestorage.Server {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range buckets {
		server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: name})
	}
	return server
}

// Put makes an object, and its bucket where that is missing.
func Put(server *fakestorage.Server, bucket, name string, content []byte) {
	server.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: bucket, Name: name}, Content: content})
}

// PutFS makes objects of the files of fsys, called prefix/path.
func PutFS(t *testing.T, server *fakestorage.Server, bucket, prefix string, fsys fs.FS) {
	t.Helper()
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		Put(server, bucket, prefix+"/"+path, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Objects are the contents of a bucket's objects whose names begin with prefix, by
// the rest of their names.
func Objects(server *fakestorage.Server, bucket, prefix string) (map[string]string, error) {
	listed, err := server.ListObjectsWithOptionsPaginated(bucket, fakestorage.ListOptions{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	contents := map[string]string{}
	for _, o := range listed.Objects {
		object, err := server.GetObject(bucket, o.Name)
		if err != nil {
			return nil, err
		}
		contents[strings.TrimPrefix(o.Name, prefix)] = string(object.Content)
	}
	return contents, nil
}

// Serve serves h until the test ends, and returns the address, as
// STORAGE_EMULATOR_HOST takes it.
func Serve(t *testing.T, h http.Handler) string {
	listener := httptest.NewServer(h)
	t.Cleanup(listener.Close)
	return listener.Listener.Addr().String()
}
