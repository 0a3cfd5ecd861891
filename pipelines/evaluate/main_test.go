package main

import (
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test's own binary be the command evaluate.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"evaluate": main}) }

func TestScripts(t *testing.T) {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		t.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "lab"})
	listener := httptest.NewServer(server.HTTPHandler())
	// Scripts run in parallel, after this function is through.
	t.Cleanup(listener.Close)
	setup := func(env *testscript.Env) error {
		env.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(listener.URL, "http://"))
		return testdata(env)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("LINNET_UPDATE") != "", // goldens, with a new Beam
		Setup:         setup,
		Cmds: clitest.With("evaluating ", map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"golden": golden, "alike": alike, "page": wellFormed,
			"objects": func(ts *testscript.TestScript, neg bool, args []string) { objects(ts, server, args) },
		}),
	})
}

// objects wants the bucket to hold these objects and no others, and writes each
// into the script's folder.
func objects(ts *testscript.TestScript, server *fakestorage.Server, want []string) {
	all, err := server.ListObjectsWithOptionsPaginated("lab", fakestorage.ListOptions{})
	ts.Check(err)
	var got []string
	for _, o := range all.Objects {
		got = append(got, o.Name)
		content, err := server.GetObject("lab", o.Name)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(path.Base(o.Name)), content.Content, 0o666))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		ts.Fatalf("the bucket holds %q, want %q", got, want)
	}
}
