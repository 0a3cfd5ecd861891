package main

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test's own binary be the command evaluate.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"evaluate": main}) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: testdata,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": status, "golden": golden, "alike": alike, "page": wellFormed,
		},
	})
}

// status runs a command and wants an exit status of it, and no stack.
func status(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
	for _, line := range strings.Split(strings.TrimSpace(ts.ReadFile("stderr")), "\n") {
		if line != "" && !strings.HasPrefix(line, "linnet: ") && !strings.HasPrefix(line, "evaluating ") {
			ts.Fatalf("the line %q does not begin with linnet: ", line)
		}
	}
}
