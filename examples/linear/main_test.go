package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMain lets the test's own binary be the command linear, and its worker.
func TestMain(m *testing.M) {
	if os.Getenv("LINEAR") == "main" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The same answers, failures and metrics on every runner. Flink is tried where
// LINNET_FLINK names the endpoint of its job server, such as localhost:8099.
func TestRunners(t *testing.T) {
	dir := t.TempDir()
	var lines, want, failed []string
	for i := range 500 {
		line := fmt.Sprintf("%d,%g", i, float64(i)/4)
		switch {
		case i%50 == 7:
			line += ",1"
			failed = append(failed, line+"\t3 numbers, the model takes 2")
		case i%50 == 8:
			line = fmt.Sprintf("%d,x", i)
			failed = append(failed, line+"\tstrconv.ParseFloat: parsing \"x\": invalid syntax")
		default:
			want = append(want, fmt.Sprintf("%s,%s", line, strconv.FormatFloat(0.5+2*float64(i)-float64(i)/4, 'g', -1, 64)))
		}
		lines = append(lines, line)
	}
	input := filepath.Join(dir, "rows.csv")
	err := errors.Join(
		os.WriteFile(input, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "model.json"), []byte(`{"weights": [2, -1], "bias": 0.5}`), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"direct": {"--runner=direct"},
		"prism":  {"--runner=prism"},
		"flink": {"--runner=flink", "--parallelism=2", "--environment_type=PROCESS",
			fmt.Sprintf(`--environment_config={"command":%q,"env":{"LINEAR":"main"}}`, self)},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "flink" {
				endpoint := os.Getenv("LINNET_FLINK")
				if endpoint == "" {
					t.Skip("LINNET_FLINK names no job server, so Flink was not tried; see scripts/flink")
				}
				args = append(args, "--endpoint="+endpoint)
			}
			output := filepath.Join(dir, name)
			if err := os.Mkdir(output, 0o700); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--input="+input, "--output="+output, "--model="+filepath.Join(dir, "*.json"))
			cmd := exec.Command(self, args...)
			cmd.Env = append(os.Environ(), "LINEAR=main")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for file, want := range map[string][]string{"results.csv": want, "failed.tsv": failed} {
				data, err := os.ReadFile(filepath.Join(output, file))
				if err != nil {
					t.Fatal(err)
				}
				got := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d lines differ from the %d wanted, first %q", file, len(got), len(want), got[0])
				}
			}
			t.Logf("%s", out)
			metric := func(name string) int {
				m := regexp.MustCompile(`(?m)^` + name + ` (?:count \d+ sum )?(\d+)`).FindSubmatch(out)
				if m == nil {
					t.Errorf("no metric %s", name)
					return -1
				}
				n, _ := strconv.Atoi(string(m[1]))
				return n
			}
			for name, want := range map[string]int{
				"num_inferences":            len(want),
				"failed_inferences_counter": len(failed),
			} {
				if got := metric(name); got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			}
			// A batch of failures alone has no size; whether there is one is chance.
			size, bytes := metric("inference_request_batch_size"), metric("inference_request_batch_byte_size")
			all := !strings.Contains(string(out), "failed_batches_counter")
			if size < len(want) || size > len(lines) || all && (size != len(lines) || bytes != len(strings.Join(lines, ""))) {
				t.Errorf("batches of %d items and %d bytes, want %d to %d items", size, bytes, len(want), len(lines))
			}
			for _, name := range []string{"inference_batch_latency_micro_secs", "model_byte_size", "load_model_latency_milli_secs"} {
				metric(name)
			}
			if got := metric("model_byte_size"); got%24 != 0 || got == 0 {
				t.Errorf("model_byte_size is %d, want 24 a load", got)
			}
		})
	}
}

// An input that is not there is told: Beam's textio passes it over.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "--input="+filepath.Join(dir, "rows.csv"), "--output="+dir, "--model="+filepath.Join(dir, "*.json"))
	cmd.Env = append(os.Environ(), "LINEAR=main")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "linear: no file matches --input="+dir) {
		t.Errorf("got %v\n%s", err, out)
	}
}

// An output of the run before that is this one's input stays.
func TestOutputAsInput(t *testing.T) {
	dir := t.TempDir()
	rows := filepath.Join(dir, failures)
	if err := os.WriteFile(rows, []byte("3,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "--input=./*.tsv", "--output="+dir, "--model="+filepath.Join(dir, "*.json"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LINEAR=main")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "linear: "+rows+" is an input") {
		t.Errorf("got %v\n%s", err, out)
	}
	if got, err := os.ReadFile(rows); string(got) != "3,4\n" || err != nil {
		t.Errorf("the input is %q, error %v", got, err)
	}
}

// The CR of CR LF is no part of a line, and a run leaves nothing of the one before in
// its outputs.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.json"), []byte(`{"weights": [2, -1], "bias": 0.5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct{ input, results, failed string }{
		{"3,4\r\n5,x\r\n", "3,4,2.5\n", "5,x\tstrconv.ParseFloat: parsing \"x\": invalid syntax\n"},
		{"3,5\n", "3,5,1.5\n", ""},
		{"5\n", "", "5\t1 numbers, the model takes 2\n"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "rows.csv"), []byte(run.input), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "--input="+filepath.Join(dir, "rows.csv"), "--output="+dir, "--model="+filepath.Join(dir, "*.json"))
		cmd.Env = append(os.Environ(), "LINEAR=main")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for name, want := range map[string]string{results: run.results, failures: run.failed} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil && want != "" {
				t.Errorf("input %q: %s has %q, want %q, error %v", run.input, name, got, want, err)
			}
		}
	}
}
