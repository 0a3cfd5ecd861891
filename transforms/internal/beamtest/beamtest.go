// Package beamtest is what tests of pipelines share.
package beamtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/testing/ptest"
)

// Main is ptest.Main without Beam's plans, which are long, and with a TMPDIR of
// its own: Beam leaves an empty file there for every pipeline on prism.
func Main(m *testing.M) {
	log.LogLevel = "error"
	dir, err := os.MkdirTemp("", "linnet-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("TMPDIR", dir)
	status := ptest.MainRet(m)
	os.RemoveAll(dir)
	os.Exit(status)
}

// PanicOf is what f panics with when it builds a pipeline.
func PanicOf(f func(beam.Scope)) (got string) {
	defer func() { got = fmt.Sprint(recover()) }()
	f(beam.NewPipeline().Root())
	return ""
}
