// Package bundled is the model that travels in the binary, so that a worker
// needs no file. The README's model card says what it was trained on.
package bundled

import (
	"embed"
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/linnet-ml/linnet/model"
)

//go:embed config.json weights.safetensors metadata.json
var files embed.FS

// FS is the model's folder.
func FS() fs.FS { return files }

// labels are the classes of both label sets.
var labels = sync.OnceValue(func() []string {
	text, err := files.ReadFile("config.json")
	var c model.Config
	if err != nil || json.Unmarshal(text, &c) != nil {
		panic("bundled: config.json is no config")
	}
	return append(c.Classes, c.FullClasses...)
})

// Known are the labels of the annotation that a model of config c knows: its
// classes, what its map names and, where its own are all among the bundled
// model's, those too. A label that is none of them may be misspelt. It is nil where
// the map names the rest, "*": no label is unknown.
func Known(c *model.Config) []string {
	if c.LabelMap["*"] != "" {
		return nil
	}
	named := slices.AppendSeq(slices.Clone(c.Classes), maps.Keys(c.LabelMap))
	known := slices.Concat(named, c.FullClasses)
	if slices.ContainsFunc(named, func(l string) bool { return !slices.Contains(labels(), l) }) {
		return known
	}
	return append(known, labels()...)
}

// Weights are those of the bundled model, loaded once. Nobody may change them.
var Weights = sync.OnceValues(func() (*model.Weights, error) { return model.Load(files) })
