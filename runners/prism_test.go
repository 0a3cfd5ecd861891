package runners

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	_ "unsafe" // for go:linkname

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// TestPrismStays wants runs in one process, of which a training has one a round, to share
// a prism: nothing stops one.
func TestPrismStays(t *testing.T) {
	set(t, map[string]string{"runner": "prism", "endpoint": "", "environment_type": ""})
	var first string
	for range 3 {
		p, s := beam.NewPipelineWithRoot()
		beam.ParDo0(s, endpointFn, beam.Create(s, 1))
		if _, err := Run(t.Context(), p, "runners_test", 1); err != nil {
			t.Fatal(err)
		}
		got := endpoint.Load().(string)
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("a second prism, at %s beside %s", got, first)
		}
		if *jobopts.Endpoint != "" || *jobopts.EnvironmentType != "" || !Local() {
			t.Errorf("after a run --endpoint=%s --environment_type=%s, local: %t", *jobopts.Endpoint, *jobopts.EnvironmentType, Local())
		}
	}
}

var endpoint atomic.Value

func endpointFn(int) { endpoint.Store(*jobopts.Endpoint) }

// TestPrismIsClosed has a pipeline on prism that calls prism's service as a stranger would,
// any program of whose job it would start.
func TestPrismIsClosed(t *testing.T) {
	set(t, map[string]string{"runner": "prism", "endpoint": "", "environment_type": ""})
	other := closeToOthers() // as a run beside this one does
	p, s := beam.NewPipelineWithRoot()
	beam.ParDo0(s, strangerFn, beam.Create(s, 1))
	if _, err := Run(t.Context(), p, "runners_test", 1); err != nil {
		t.Fatal(err)
	}
	other()
	// What comes after, such as a LOOPBACK worker of Flink's, is open again.
	serveJobs(t, &jobs{}, http.NotFoundHandler())
	if err := asStranger(t.Context(), *jobopts.Endpoint); status.Code(err) != codes.Unimplemented {
		t.Errorf("a service after the run: got %v, want Unimplemented", err)
	}
}

//go:linkname disableDialOptions google.golang.org/grpc/internal.DisableGlobalDialOptions
var disableDialOptions any // func() grpc.DialOption

// asStranger asks a job service for its jobs without the pass of this process.
func asStranger(ctx context.Context, endpoint string) error {
	cc, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), disableDialOptions.(func() grpc.DialOption)())
	if err != nil {
		return err
	}
	defer cc.Close()
	_, err = jobpb.NewJobServiceClient(cc).GetJobs(ctx, &jobpb.GetJobsRequest{})
	return err
}

func strangerFn(ctx context.Context, _ int) error {
	if err := asStranger(ctx, *jobopts.Endpoint); status.Code(err) != codes.PermissionDenied {
		return fmt.Errorf("test: prism answers a stranger: %v", err)
	}
	return nil
}
