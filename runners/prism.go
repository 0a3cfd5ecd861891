package runners

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Beam's prism listens on every interface, cannot be told otherwise, and starts
// whatever program a job names, for whoever sends one; the service of its workers
// in this process is open to every user of the machine. gRPC's options for all its
// servers and clients are the only way to both, and it keeps these for
// observability, which lies in a module of its own.
var (
	//go:linkname addServerOptions google.golang.org/grpc/internal.AddGlobalServerOptions
	addServerOptions any // func(...grpc.ServerOption)
	//go:linkname clearServerOptions google.golang.org/grpc/internal.ClearGlobalServerOptions
	clearServerOptions func()
	//go:linkname addDialOptions google.golang.org/grpc/internal.AddGlobalDialOptions
	addDialOptions any // func(...grpc.DialOption)
	//go:linkname clearDialOptions google.golang.org/grpc/internal.ClearGlobalDialOptions
	clearDialOptions func()
)

// passHeader is what calls within this process carry.
const passHeader = "linnet-pass"

// closed counts the runs for which this process's services answer it alone.
var closed struct {
	sync.Mutex
	runs int
}

// closeToOthers makes gRPC's servers answer this process alone: those that start until
// open is called, to the clients that are made until then.
func closeToOthers() (open func()) {
	closed.Lock()
	defer closed.Unlock()
	if closed.runs++; closed.runs == 1 { // a second handle would be a panic of gRPC's
		addServerOptions.(func(...grpc.ServerOption))(grpc.InTapHandle(own.check))
		addDialOptions.(func(...grpc.DialOption))(grpc.WithPerRPCCredentials(own))
	}
	return func() {
		closed.Lock()
		defer closed.Unlock()
		if closed.runs--; closed.runs == 0 {
			clearServerOptions()
			clearDialOptions()
		}
	}
}

// pass is the secret of the services in a process.
type pass string

var own = pass(rand.Text())

// ownPrism is the address of the prism in this process, once a run has started it. Nothing
// stops one, so all runs share it: each kept a port for good.
var ownPrism string

// usePrism gives the flags of a run the prism that an earlier one left; the function it
// returns leaves the run's.
func usePrism() (leave func()) {
	closed.Lock()
	defer closed.Unlock()
	if ownPrism != "" {
		*jobopts.Endpoint, *jobopts.EnvironmentType = ownPrism, "loopback"
	}
	return func() {
		closed.Lock()
		defer closed.Unlock()
		ownPrism = cmp.Or(*jobopts.Endpoint, ownPrism)
	}
}

// checkLocalhost finds out at once what prism, which this process talks to over localhost,
// ends with after two minutes, and then in no words of use.
func checkLocalhost() error {
	l, err := net.Listen("tcp", "localhost:0")
	if err == nil {
		defer l.Close()
		var c net.Conn
		if c, err = net.DialTimeout("tcp", l.Addr().String(), 10*time.Second); err == nil {
			c.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("runners: --runner=prism needs localhost: %w; have the interface lo up (ip link set lo up) and localhost in /etc/hosts, or take --runner=direct (not for a watch)", err)
	}
	return nil
}

// check lets in a call, of which nothing but the header was read yet.
func (p pass) check(ctx context.Context, call *tap.Info) (context.Context, error) {
	shown := strings.Join(call.Header.Get(passHeader), "")
	if subtle.ConstantTimeCompare([]byte(shown), []byte(p)) != 1 {
		return nil, status.Error(codes.PermissionDenied, "this service is its own process's alone")
	}
	return ctx, nil
}

// GetRequestMetadata and RequireTransportSecurity implement
// credentials.PerRPCCredentials.
func (p pass) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{passHeader: string(p)}, nil
}

func (pass) RequireTransportSecurity() bool { return false }
