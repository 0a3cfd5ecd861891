package runners

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	fnpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/fnexecution_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/grpc/peer"
)

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{"true": "localhost:50000", "false": "", "50001": "localhost:50001", ":50001": ":50001", "10.0.0.1:5": "10.0.0.1:5", "a:b:c": "error", "": "error", "localhost:": "error", ":": "error"} {
		var a address
		if err := a.Set(in); err != nil {
			a = "error"
		}
		if string(a) != want {
			t.Errorf("%s: got %q, want %q", in, a, want)
		}
	}
}

// TestBoot has workers and pools that cannot begin.
func TestBoot(t *testing.T) {
	if worker, err := Boot(t.Context()); worker || err != nil {
		t.Errorf("a launcher: %t, %v", worker, err)
	}
	lis, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct{ flag, value, want string }{
		{"worker_pool", lis.Addr().String(), "runners: --worker_pool: "},
		{"provision_endpoint", "localhost:1", "asking localhost:1 what to do: "},
	} {
		t.Run(c.flag, func(t *testing.T) {
			set(t, map[string]string{c.flag: c.value})
			if worker, err := Boot(ended); !worker || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %t, %v, want %q", worker, err, c.want)
			}
		})
	}
}

// TestPool has a pool start sleeping programs: each once, and none outlives it.
func TestPool(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "worker")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$@\" > "+dir+"/$$\nexec sleep 1000\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	started := func() (ids []int) {
		files, _ := filepath.Glob(dir + "/[0-9]*")
		for _, f := range files {
			id, _ := strconv.Atoi(filepath.Base(f))
			ids = append(ids, id)
		}
		return ids
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	alive := func(id int) bool {
		p, err := os.FindProcess(id)
		return err == nil && p.Signal(syscall.Signal(0)) == nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pool{ctx: ctx, program: script, workers: map[string]context.CancelFunc{}}
	from := func(port int) context.Context {
		return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}})
	}
	asked := from(1)
	ask := func(id, endpoint string) string {
		resp, err := p.StartWorker(asked, &fnpb.StartWorkerRequest{WorkerId: id, ProvisionEndpoint: &pipepb.ApiServiceDescriptor{Url: endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Error
	}
	if e := ask("1", "h:1") + ask("2", "h:2"); e != "" {
		t.Fatal(e)
	}
	if e := ask("1", "h:1"); !strings.Contains(e, "there already") {
		t.Errorf("a second worker 1: %q", e)
	}
	if e := ask("3", ""); !strings.Contains(e, "no provision endpoint") {
		t.Errorf("without an endpoint: %q", e)
	}
	wait("two workers do not start", func() bool { return len(started()) == 2 })
	first := started()[0]
	wait("no arguments", func() bool { data, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(first))); return len(data) > 0 })
	data, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(first)))
	if got := string(data); got != "--id=1 --provision_endpoint=h:1\n" && got != "--id=2 --provision_endpoint=h:2\n" {
		t.Errorf("a worker's arguments are %q", got)
	}
	asked = from(2) // another TaskManager, which calls its worker the same
	if e := ask("1", "h:3"); e != "" {
		t.Fatal(e)
	}
	for _, id := range []string{"1", "none"} {
		if resp, err := p.StopWorker(from(1), &fnpb.StopWorkerRequest{WorkerId: id}); err != nil || resp.Error != "" {
			t.Errorf("stopping %s: %v %v", id, resp, err)
		}
	}
	wait("worker 1 is still there", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.workers) == 2 })
	if e := ask("1", "h:3"); !strings.Contains(e, "there already") {
		t.Errorf("the other's worker 1 was stopped: %q", e)
	}
	cancel()
	p.running.Wait()
	for _, id := range started() {
		if alive(id) {
			t.Errorf("process %d outlives its pool", id)
		}
	}
}
