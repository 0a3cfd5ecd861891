// Package bundled is the model that travels in the binary, so that a worker
// needs no file. The README's model card says what it was trained on.
package bundled

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/linnet-ml/linnet/model"
)

//go:embed config.json weights.safetensors metadata.json
var files embed.FS

// FS is the model's folder.
func FS() fs.FS { return files }

// Weights are those of the bundled model, loaded once. Nobody may change them.
var Weights = sync.OnceValues(func() (*model.Weights, error) { return model.Load(files) })
