package transforms_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	//lint:ignore SA1019 it needs no server, and the output comes in order
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/direct"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"

	"github.com/linnet-ml/linnet/transforms"
	"github.com/linnet-ml/linnet/transforms/input"
	"github.com/linnet-ml/linnet/transforms/yedda"
)

// The DoFns of the examples: what someone else's pipeline does with the
// elements.

func printDocument(d transforms.Document) {
	fmt.Printf("%s: %d bytes, %d lines to label, %d spans\n", d.Name, len(d.Text), len(d.Rows), len(d.Spans))
}

func printExample(e transforms.Example) {
	fmt.Printf("%s: features of %d lines\n", e.Name, e.Features.NumLines())
}

func printLabelled(l transforms.Labelled) {
	for i := range l.Rows {
		p := l.Probs[i*len(l.Classes)+int(l.Labels[i])]
		fmt.Printf("%s, line %d: has a label: %t, at least as probable as chance: %t\n",
			l.Name, i+1, l.Classes[l.Labels[i]] != "", p >= 1/float32(len(l.Classes)))
	}
}

func printName(name []byte) { fmt.Printf("%s is written\n", name) }

func printBase(path []byte) { fmt.Println(filepath.Base(string(path))) }

func printRejection(r transforms.Rejection) { fmt.Printf("%s: rejected by %s\n", r.Name, r.Stage) }

func init() {
	beam.RegisterFunction(printDocument)
	beam.RegisterFunction(printExample)
	beam.RegisterFunction(printLabelled)
	beam.RegisterFunction(printName)
	beam.RegisterFunction(printBase)
	beam.RegisterFunction(printRejection)
}

// protologue is a document that someone's pipeline made.
func protologue() transforms.Document {
	text := "Agaricus linnetii sp. nov.\n\nPileus 3–5 cm latus, convexus.\n"
	return transforms.Document{
		URI: []byte("protologue"), Name: []byte("protologue.txt"),
		Text: []byte(text), Rows: yedda.Rows([]byte(text)),
	}
}

// folder makes a new folder with files in it.
func folder(files map[string]string) string {
	dir, err := os.MkdirTemp("", "")
	for name, text := range files {
		err = cmp.Or(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	if err != nil {
		panic(err)
	}
	return dir
}

func run(p *beam.Pipeline) {
	if _, err := beam.Run(context.Background(), "direct", p); err != nil {
		fmt.Println(err)
	}
}

func ExampleList() {
	dir := folder(map[string]string{"b.txt": "", "a.txt": "", "a.pdf": ""})
	defer os.RemoveAll(dir)
	set, err := input.New([]string{dir}, "", false)
	if err != nil {
		fmt.Println(err)
		return
	}

	p, s := beam.NewPipelineWithRoot()
	beam.ParDo0(s, printBase, transforms.List(s, transforms.Options{}, set))
	run(p)
	// Unordered output:
	// a.txt
	// b.txt
}

// What comes into a folder is labelled until the program is interrupted.
func ExampleWatch() {
	beam.Init() // first of all in main, which prism wants
	set, err := input.New([]string{"journals"}, "annotated", false)
	if err != nil {
		fmt.Println(err)
		return
	}
	// A document that was rejected and then mended goes off the list (Rejections).
	opts := transforms.Options{Base: transforms.Path(set.Base), Output: "annotated", Rejections: true}
	p, s := beam.NewPipelineWithRoot()
	paths := transforms.Watch(s, opts, set, 5*time.Second)
	docs, r1 := transforms.Read(s, opts, paths)
	examples, r2 := transforms.Featurize(s, opts, docs)
	labelled, r3 := transforms.Predict(s, opts, examples)
	_, r4 := transforms.Write(s, opts, labelled)
	transforms.WriteRejected(s, opts, r1, r2, r3, r4)
	if _, err := beam.Run(context.Background(), "prism", p); err != nil {
		fmt.Println(err)
	}
}

func ExampleWriteRejected() {
	dir := folder(nil)
	defer os.RemoveAll(dir)

	p, s := beam.NewPipelineWithRoot()
	opts := transforms.Options{Output: transforms.Path(dir), Tries: 1}
	docs, rejected := transforms.Read(s, opts, beam.Create(s, []byte("/nowhere/lost.txt")))
	beam.ParDo0(s, printDocument, docs)
	transforms.WriteRejected(s, opts, rejected)
	run(p)

	// The launcher gathers the records of all workers.
	if err := transforms.Merge(context.Background(), dir); err != nil {
		fmt.Println(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, transforms.RejectedFile))
	if err != nil {
		fmt.Println(err)
	}
	var r transforms.Reject
	if err := json.Unmarshal(data, &r); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s was rejected by %s\n", r.Input, r.Stage)
	// Output: /nowhere/lost.txt was rejected by read
}

func ExampleRead() {
	dir := folder(map[string]string{"protologue.txt.ann": "[@Agaricus linnetii sp. nov.#Nomenclature*]\nPileus convexus.\n"})
	defer os.RemoveAll(dir)

	p, s := beam.NewPipelineWithRoot()
	paths := beam.Create(s, []byte(filepath.Join(dir, "protologue.txt.ann")), []byte(filepath.Join(dir, "missing.txt")))
	docs, rejected := transforms.Read(s, transforms.Options{Base: transforms.Path(dir), Tries: 1}, paths)
	beam.ParDo0(s, printDocument, docs)
	beam.ParDo0(s, printRejection, rejected)
	run(p)
	// Output:
	// protologue.txt: 44 bytes, 2 lines to label, 1 spans
	// missing.txt: rejected by read
}

func ExampleFeaturize() {
	p, s := beam.NewPipelineWithRoot()
	docs := beam.Create(s, protologue())
	examples, _ := transforms.Featurize(s, transforms.Options{}, docs)
	beam.ParDo0(s, printExample, examples)
	run(p)
	// Output: protologue.txt: features of 2 lines
}

func ExamplePredict() {
	p, s := beam.NewPipelineWithRoot()
	opts := transforms.Options{} // the bundled model, on the CPU
	examples, _ := transforms.Featurize(s, opts, beam.Create(s, protologue()))
	labelled, _ := transforms.Predict(s, opts, examples)
	beam.ParDo0(s, printLabelled, labelled)
	run(p)
	// Output:
	// protologue.txt, line 1: has a label: true, at least as probable as chance: true
	// protologue.txt, line 2: has a label: true, at least as probable as chance: true
}

func ExampleWrite() {
	dir := folder(nil)
	defer os.RemoveAll(dir)

	// Labels that come from elsewhere: a person's, say.
	labelled := transforms.Labelled{
		Document: protologue(),
		Classes:  []string{"Nomenclature", "Description"},
		Labels:   []uint16{0, 1},
	}
	p, s := beam.NewPipelineWithRoot()
	written, _ := transforms.Write(s, transforms.Options{Output: transforms.Path(dir)}, beam.Create(s, labelled))
	beam.ParDo0(s, printName, written)
	run(p)

	data, err := os.ReadFile(filepath.Join(dir, "protologue.txt.ann"))
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s", data)
	// Output:
	// protologue.txt is written
	// [@Agaricus linnetii sp. nov.#Nomenclature*]
	//
	// [@Pileus 3–5 cm latus, convexus.#Description*]
}
