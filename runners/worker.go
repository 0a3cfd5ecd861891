package runners

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/apache/beam/sdks/v2/go/container/tools"
	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/harness"
	fnpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/fnexecution_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// A pipeline's program is its own boot program, where it lies on the worker
// already: a runner starts it with these flags (--environment_type=process), or
// asks a pool of it to do so (external). It then works in that very process, so
// nothing is fetched or copied, a signal reaches the worker, and the process
// ends with its job.
var (
	provisionEndpoint = flag.String("provision_endpoint", "", "set by a runner that starts this program as a worker")
	_                 = flag.String("artifact_endpoint", "", "set by a runner that starts this program as a worker; not needed")
	poolAddress       address
)

const defaultPool = "localhost:50000"

func init() {
	flag.Var(&poolAddress, "worker_pool", "start workers for --environment_type=external jobs, which ask for them at this `address` (localhost:50000 without one; whoever reaches it, and so every user of the machine, can start workers)")
}

// address is a flag that may stand alone: --worker_pool, --worker_pool=host:port.
type address string

func (a *address) String() string   { return string(*a) }
func (a *address) IsBoolFlag() bool { return true }

func (a *address) Set(v string) error {
	switch v {
	case "true":
		v = defaultPool
	case "false":
		v = ""
	default:
		if !strings.Contains(v, ":") {
			v = "localhost:" + v
		}
		_, port, err := net.SplitHostPort(v)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		if err != nil || port == "" { // a variable that is not set: the system would choose one
			return fmt.Errorf("not an address such as %s", defaultPool)
		}
	}
	*a = address(v)
	return nil
}

// Boot makes this process a worker, or a pool of workers, where its flags say
// so, and returns when there is no more work or ctx ends. It returns false at
// once in a launcher, and in a worker that Beam's own boot program started.
func Boot(ctx context.Context) (bool, error) {
	switch {
	case *provisionEndpoint != "":
		return true, work(ctx, flag.Lookup("id").Value.String(), *provisionEndpoint)
	case poolAddress != "":
		return true, servePool(ctx, string(poolAddress))
	}
	return false, nil
}

// work is a worker from its beginning to its end.
func work(ctx context.Context, id, endpoint string) error {
	ctx = grpcx.WriteWorkerID(ctx, id)
	info, err := tools.ProvisionInfo(ctx, endpoint)
	if err != nil {
		return fmt.Errorf("runners: worker %s: asking %s what to do: %w", id, endpoint, err)
	}
	var options runtime.RawOptionsWrapper
	if err := tools.ProtoToOptions(info.GetPipelineOptions(), &options); err != nil {
		return fmt.Errorf("runners: worker %s: pipeline options: %w", id, err)
	}
	runtime.GlobalOptions.Import(options.Options)
	beam.Init()
	err = harness.MainWithOptions(ctx, info.GetLoggingEndpoint().GetUrl(), info.GetControlEndpoint().GetUrl(), harness.Options{
		RunnerCapabilities: info.GetRunnerCapabilities(),
		StatusEndpoint:     info.GetStatusEndpoint().GetUrl(),
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("runners: worker %s: %w", id, err)
	}
	return nil
}

// pool starts this program once for every worker that a runner asks for, and
// kills those that it no longer wants.
type pool struct {
	fnpb.UnimplementedBeamFnExternalWorkerPoolServer
	ctx     context.Context // workers die with it
	program string
	mu      sync.Mutex
	workers map[string]context.CancelFunc // by workerKey
	running sync.WaitGroup
}

// workerKey tells workers apart: the TaskManagers that share a pool count theirs
// alike, but each asks for a worker and gives it up over a connection of its own.
// Where that was made anew meanwhile the worker ends by itself, with its job.
func workerKey(ctx context.Context, id string) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String() + " " + id
	}
	return id
}

// servePool serves a pool on an address until ctx ends and its workers with it.
// Beam's own pool listens on every interface and cannot be told otherwise.
func servePool(ctx context.Context, on string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("runners: --worker_pool: %w", err)
	}
	listener, err := net.Listen("tcp", on)
	if err != nil {
		return fmt.Errorf("runners: --worker_pool: %w", err)
	}
	p := &pool{ctx: ctx, program: program, workers: map[string]context.CancelFunc{}}
	server := grpc.NewServer()
	fnpb.RegisterBeamFnExternalWorkerPoolServer(server, p)
	defer context.AfterFunc(ctx, server.Stop)()
	fmt.Fprintf(os.Stderr, "starting workers for --environment_type=external --environment_config=%s\n", listener.Addr())
	err = server.Serve(listener)
	p.running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// StartWorker implements BeamFnExternalWorkerPoolServer.
func (p *pool) StartWorker(asked context.Context, req *fnpb.StartWorkerRequest) (*fnpb.StartWorkerResponse, error) {
	id := req.GetWorkerId()
	key := workerKey(asked, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.workers[key]; ok {
		return &fnpb.StartWorkerResponse{Error: fmt.Sprintf("worker %s is there already", id)}, nil
	}
	if req.GetProvisionEndpoint().GetUrl() == "" {
		return &fnpb.StartWorkerResponse{Error: fmt.Sprintf("worker %s has no provision endpoint", id)}, nil
	}
	ctx, kill := context.WithCancel(p.ctx)
	cmd := exec.CommandContext(ctx, p.program, "--id="+id, "--provision_endpoint="+req.GetProvisionEndpoint().GetUrl())
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		kill()
		return &fnpb.StartWorkerResponse{Error: fmt.Sprintf("worker %s: %v", id, err)}, nil
	}
	p.workers[key] = kill
	p.running.Go(func() {
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "linnet: worker %s, process %d: %v\n", id, cmd.Process.Pid, err)
		}
		kill()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.workers, key)
	})
	return &fnpb.StartWorkerResponse{}, nil
}

// StopWorker implements BeamFnExternalWorkerPoolServer. That a worker ended by
// itself is no error.
func (p *pool) StopWorker(asked context.Context, req *fnpb.StopWorkerRequest) (*fnpb.StopWorkerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kill, ok := p.workers[workerKey(asked, req.GetWorkerId())]; ok {
		kill()
	}
	return &fnpb.StopWorkerResponse{}, nil
}
