package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linnet-ml/linnet/pipelines/internal/clitest"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// TestOwnLabels takes labels that Linnet does not know from annotation to a
// model, to predictions in every format and to a report.
func TestOwnLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what builds programs")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	run := func(name string, args ...string) string {
		t.Helper()
		text, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", filepath.Base(name), args, err, text)
		}
		return string(text)
	}
	run("go", "build", "-o", dir, "../predict", "../evaluate")

	// Six raw labels, four classes. A map that names every label leaves none to
	// the class of the rest, so there is none.
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	classes := []string{"Range", "Shell", "Taxon", "Voucher"}
	write("map.json", `{"Genus-head": "Taxon", "Species-head": "Taxon", "Whorls": "Shell", "Aperture": "Shell", "Range": "Range", "Voucher": "Voucher"}`)
	for i := range 8 {
		var b strings.Builder
		for j := range 12 {
			fmt.Fprintf(&b, "[@Helixa no. %d#Genus-head*]\n[@Helixa fictia var. %d#Species-head*]\n\n[@Shell with %d whorls, umbilicate\nwhorls convex, striate#Whorls*]\n[@Aperture lunate, lip white#Aperture*]\n"+
				"[@Islands of the north, %d m above the sea#Range*]\n[@Museum no. %d, leg. Somebody#Voucher*]\n\n", i*j, j, 3+j%4, 100*j, 1000*i+j)
		}
		name := fmt.Sprintf("gold/%d.txt.ann", i)
		if i >= 6 {
			name = fmt.Sprintf("test/%d.txt.ann", i)
			write(fmt.Sprintf("plain/%d.txt", i), string(yedda.Parse([]byte(b.String())).Text))
		}
		write(name, b.String())
	}
	said := run("train", "--input="+at("gold"), "--validation="+at("test"), "--model_out="+at("model"), "--label_map="+at("map.json"),
		"--class_weights=Shell=2,Taxon=0.5", "--focal_labels=Range", "--input_size=1024", "--embedding_size=16", "--hidden_size=16", "--epochs=20",
		"--learning_rate=0.02", "--window_size=20", "--batch_size=4")
	if !strings.Contains(said, "classes: Range, Shell, Taxon, Voucher; ") || strings.Contains(said, "warning: --label_map") {
		t.Errorf("train says %s", said)
	}

	formats := []string{"yedda", "brat", "jsonl", "csv", "tsv", "html"}
	run(at("predict"), "--input="+at("plain"), "--output="+at("out"), "--model_uri="+at("model"), "--format="+strings.Join(formats, ","), "--probabilities")
	for _, file := range []string{"6.txt.ann", "brat/6.ann", "6.txt.jsonl", "6.txt.csv", "6.txt.tsv", "html/6.txt.html", "_manifest.jsonl"} {
		data, err := os.ReadFile(at("out/" + file))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, class := range classes {
			if !strings.Contains(string(data), class) {
				t.Errorf("%s has no %s", file, class)
			}
		}
		for _, other := range []string{"Misc-exposition", "Nomenclature", "Description"} {
			if strings.Contains(string(data), "#"+other) || strings.Contains(string(data), `"`+other+`"`) {
				t.Errorf("%s has %s", file, other)
			}
		}
	}

	// Judged by the model, and by the files that it wrote.
	for _, args := range [][]string{{"--model_uri=" + at("model")}, {"--predictions=" + at("out"), "--label_set=full"}} {
		input := at("test")
		if args[0] != "--model_uri="+at("model") {
			for i := 6; i < 8; i++ { // gold in the classes, as the files have them
				data := clitest.ReadFile(t, at(fmt.Sprintf("test/%d.txt.ann", i)))
				write(fmt.Sprintf("mapped/%d.txt.ann", i), strings.NewReplacer("#Genus-head", "#Taxon", "#Species-head", "#Taxon", "#Whorls", "#Shell", "#Aperture", "#Shell").Replace(string(data)))
			}
			input = at("mapped")
		}
		if said := run(at("evaluate"), append(args, "--input="+input, "--report="+at("report"))...); strings.Contains(said, "warning") {
			t.Errorf("%s: evaluate says %s", args, said)
		}
		data := clitest.ReadFile(t, at("report/report.json"))
		var report struct {
			Report struct {
				Classes []struct {
					Class string
					F1    float64
					Gold  int
				}
				MacroF1 float64 `json:"macro_f1"`
			}
		}
		if err := json.Unmarshal(data, &report); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range report.Report.Classes {
			if c.Gold == 0 || c.F1 < .9 {
				t.Errorf("%s: %+v", args, c)
			}
			names = append(names, c.Class)
		}
		if strings.Join(names, " ") != strings.Join(classes, " ") || report.Report.MacroF1 < .9 {
			t.Errorf("%s: classes %v, macro-F1 %v", args, names, report.Report.MacroF1)
		}
		page := clitest.ReadFile(t, at("report/report.html"))
		for _, class := range classes {
			if !strings.Contains(string(page), class) {
				t.Errorf("%s: the page has no %s", args, class)
			}
		}
	}

	// What * takes is no news, neither to evaluate nor to a training that goes on.
	write("odd/9.txt.ann", "[@Helixa no. 9#Genus-head*]\n[@Eggs white, round#Eggs*]\n")
	small := []string{"--input=" + at("gold") + "," + at("odd"), "--model_out=" + at("rest"), "--input_size=1024", "--embedding_size=8", "--hidden_size=8", "--epochs=1"}
	run("train", append(small, "--label_map=Genus-head=Taxon,Species-head=Taxon,*=Rest")...)
	if said := run(at("evaluate"), "--input="+at("odd"), "--model_uri="+at("rest")); strings.Contains(said, "warning") {
		t.Errorf("*: evaluate says %s", said)
	}
	for range 2 {
		if said := run("train", append(small, "--init_model="+at("rest"))...); strings.Contains(said, "warning") {
			t.Errorf("*: train says %s", said)
		}
	}
	if said := run("train", append(small, "--init_model="+at("rest"), "--label_map=Genus-head=Taxon,Species-head=Taxon,*=Rest")...); strings.Contains(said, "warning") {
		t.Errorf("*: train with the map again says %s", said)
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
