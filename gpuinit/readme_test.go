package gpuinit

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's table of GPU troubles quotes what this package and model/cuda
// say: every message in its first column, with … for what varies, stands in the
// sources.
func TestREADMEQuotes(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(readme), "\n## When something goes wrong\n")
	if !ok {
		t.Fatal("the README has no section of that name")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join("..", "model", "cuda", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, more...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(data)
	}
	verb := regexp.MustCompile(`%[a-z]`)
	varies := regexp.MustCompile(`…([. ,]*…)*`)
	plain := func(s string) string { return varies.ReplaceAllString(verb.ReplaceAllString(s, "…"), "…") }
	said := plain(sources.String())
	quotes := 0
	for row := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		for i, quote := range strings.Split(cells[1], "`") {
			if i%2 == 0 {
				continue
			}
			quotes++
			if !strings.Contains(said, strings.Trim(plain(quote), "… ")) {
				t.Errorf("nothing here says %q", quote)
			}
		}
	}
	if quotes < 10 {
		t.Errorf("the table quotes %d messages, too few to be the right one", quotes)
	}
}
