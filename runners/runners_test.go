package runners

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/metrics"
	fnpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/fnexecution_v1"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) {
	Define(flag.CommandLine)
	flag.Parse()
	Init(1)
	os.Exit(m.Run())
}

// set gives flags values until the test ends.
func set(t *testing.T, flags map[string]string) {
	t.Helper()
	for name, value := range flags {
		f := flag.Lookup(name)
		if f == nil {
			t.Fatalf("no flag --%s", name)
		}
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Value.Set(before) })
	}
}

func TestCheck(t *testing.T) {
	type flags = map[string]string
	cases := map[string]struct {
		flags flags
		want  string // of the error; "" for none
	}{
		"default":                    {flags{}, ""},
		"direct":                     {flags{"runner": "DirectRunner"}, ""},
		"prism":                      {flags{"runner": "prism"}, ""},
		"direct, async":              {flags{"async": "true"}, "--async"},
		"prism, async":               {flags{"runner": "prism", "async": "true"}, "--async"},
		"prism elsewhere, async":     {flags{"runner": "prism", "async": "true", "endpoint": "x:1"}, ""},
		"direct, parallelism":        {flags{"parallelism": "2"}, "--parallelism is for a job elsewhere"},
		"prism, parallelism":         {flags{"runner": "prism", "parallelism": "2"}, "--parallelism"},
		"direct, endpoint":           {flags{"endpoint": "x:1"}, "--endpoint"},
		"direct, environment":        {flags{"environment_type": "LOOPBACK"}, "--environment_type"},
		"direct, configured":         {flags{"environment_config": "x:2"}, "--environment_config"},
		"prism, loopback":            {flags{"runner": "prism", "environment_type": "LOOPBACK"}, ""},
		"prism, process":             {flags{"runner": "prism", "environment_type": "PROCESS"}, "--environment_type is for a job elsewhere"},
		"prism, configured":          {flags{"runner": "prism", "environment_type": "LOOPBACK", "environment_config": "x:2"}, "--environment_config"},
		"unknown":                    {flags{"runner": "spark"}, "--runner=spark is none; it must be direct, prism, flink, dataflow or universal"},
		"flink alone":                {flags{"runner": "flink"}, "--endpoint"},
		"flink, no port":             {flags{"runner": "flink", "endpoint": "x", "environment_type": "LOOPBACK"}, "--endpoint=host:port"},
		"flink, no number":           {flags{"runner": "flink", "endpoint": "x:", "environment_type": "LOOPBACK"}, "--endpoint=host:port"},
		"prism elsewhere, no port":   {flags{"runner": "prism", "endpoint": "x"}, "--endpoint=host:port"},
		"flink, no environment":      {flags{"runner": "FlinkRunner", "endpoint": "x:1"}, "--environment_type"},
		"flink, mistyped":            {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "lopback"}, "--environment_type=lopback"},
		"flink, loopback":            {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK"}, ""},
		"universal, process":         {flags{"runner": "PortableRunner", "endpoint": "x:1", "environment_type": "process"}, "--environment_config"},
		"universal, external":        {flags{"runner": "universal", "endpoint": "x:1", "environment_type": "external"}, "worker pool"},
		"external, no port":          {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "x"}, "worker pool"},
		"external, no host":          {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": ":2"}, "worker pool"},
		"external, no number":        {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:abc"}, "worker pool"},
		"external, no such port":     {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:99999"}, "worker pool"},
		"external, port alone":       {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "50000"}, "worker pool"},
		"external, http":             {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "external", "environment_config": "http://x:2"}, "worker pool"},
		"flink, process, no command": {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "process", "environment_config": "/bin/predict"}, `{"command":`},
		"flink, process":             {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "PROCESS", "environment_config": `{"command":"/bin/predict"}`}, ""},
		"flink, loopback, async":     {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "loopback", "async": "true"}, "--async"},
		"universal, configured":      {flags{"runner": "universal", "endpoint": "x:1", "environment_type": "external", "environment_config": "x:2"}, ""},
		"flink, 0 at a time":         {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "parallelism": "0"}, "--parallelism=0: it must be 1"},
		"flink, below 0":             {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "parallelism": "-2"}, "--parallelism=-2"},
		"flink, named":               {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "job_name": "a b/c_1"}, ""},
		"flink, umlaut":              {flags{"runner": "flink", "endpoint": "x:1", "environment_type": "LOOPBACK", "job_name": "nächtlich"}, "--job_name="},
		"prism, umlaut":              {flags{"runner": "prism", "job_name": "nächtlich"}, "--job_name="},
		"prism, two lines":           {flags{"runner": "prism", "job_name": "a\nb"}, "--job_name="},
		"dataflow alone":             {flags{"runner": "dataflow"}, "--project"},
		"dataflow, no region":        {flags{"runner": "dataflow", "project": "p"}, "--region"},
		"dataflow, no staging":       {flags{"runner": "dataflow", "project": "p", "region": "r"}, "--staging_location"},
		"dataflow, local folder":     {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "/tmp"}, "--staging_location"},
		"dataflow":                   {flags{"runner": "DataflowRunner", "project": "p", "region": "r", "staging_location": "gs://b/x"}, ""},
		"dry run, dataflow":          {flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x", "dry_run": "true"}, ""},
		"dry run, direct":            {flags{"dry_run": "true"}, "--dry_run"},
		"labels, direct":             {flags{"labels": `{"a":"b"}`}, ""},
		"labels of lines":            {flags{"labels": "Nomenclature"}, "--label_set's"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			set(t, c.flags)
			err := Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if f := flag.Lookup("runner"); f.DefValue != Direct || f.Value.String() != Direct {
		t.Errorf("--runner is %s by default, and %s", f.DefValue, f.Value)
	}
}

func TestCause(t *testing.T) {
	cases := map[string]struct{ in, want string }{
		"of a DoFn":                {"while executing\n\tcaused by:\nDoFn[UID:3, PID:x] failed:\nlinnet: write: no space left\ngoroutine 7 [running]:\nmain.f()\n\t/x/y.go:1", "write: no space left"},
		"the last one":             {"linnet: a\nlinnet: b\nc", "b"},
		"escaped":                  {`rpc error: "linnet: read: x\nFull error:\ny"`, "read: x"},
		"of a path of Windows":     {"DoFn[UID:3, Name: \"x\"] failed:\nlinnet: write: store: C:\\Users\\nina\\x: no space left\nFull error:\ny", `write: store: C:\Users\nina\x: no space left`},
		"escaped, of such a path":  {`rpc error "linnet: write: store: C:\\new\\a: no space left\nFull error:\ny"`, `write: store: C:\new\a: no space left`},
		"escaped, with a quote":    {`rpc error "failed: linnet: open \"C:\\new\": not found\nFull error:\ny"`, `open "C:\new": not found`},
		"escaped, cut short":       {`rpc error "linnet: read: x\nFull err`, "read: x"},
		"behind a quotation":       {"Name: \"x\": linnet: open \"C:\\new\": no y\nz", `open "C:\new": no y`},
		"of Beam":                  {"job job-001 failed:\nno such endpoint", "no such endpoint"},
		"of Beam, with its parts":  {"no such endpoint\nFull error:\nwhile dialling\n\tcaused by:\nrefused", "no such endpoint"},
		"of Java":                  {"org.apache.flink.runtime.JobException: Recovery is suppressed\n\tat org.apache.X.f(X.java:1)\nCaused by: java.lang.Exception: The user defined 'open()' method failed\n\t... 3 more\nCaused by: a.b.UncheckedExecutionException: java.io.IOException: Cannot run program \"/x/y\": error=2, No such file or directory\n\tat a.B.f(B.java:9)\nCaused by: java.io.IOException: error=2, No such file or directory\n\tat a.B.g(B.java:9)\n\t... 16 more", `Cannot run program "/x/y": error=2, No such file or directory`},
		"of Java, as it began":     {"java.lang.Exception: The user defined 'open()' method caused an exception: java.lang.IllegalStateException: Process died with exit code 2\n\tat a.B.f(B.java:9)", "Process died with exit code 2"},
		"of Java, with an address": {"Caused by: a.b$AnnotatedConnectException: a.b$AnnotatedConnectException: Connection refused: localhost/127.0.0.1:50000\nCaused by: java.net.ConnectException: Connection refused", "Connection refused: localhost/127.0.0.1:50000"},
		"an error of Java":         {"java.lang.OutOfMemoryError: Java heap space", "java.lang.OutOfMemoryError: Java heap space"},
		"of Java, no message":      {"Caused by: java.util.concurrent.TimeoutException", "java.util.concurrent.TimeoutException"},
		"of a DoFn, of a file":     {"caused by:\nDoFn[UID:1, PID:x] failed:\nno genus in vol/1.txt (line 3)", "no genus in vol/1.txt (line 3)"},
		"before a stack":           {"no such endpoint\ngithub.com/a/b.(*T).f(0x1, {0x2, 0x3})\n\t/x/y.go:1", "no such endpoint"},
		"a panic":                  {"bundle inst002 stage-002 failed:process bundle failed using plan stage-002 : panic: boom\nin two lines\nFull error:\nwhile executing\n\tcaused by:\npanic: boom\nin two lines goroutine 1 [running]:\nruntime/debug.Stack()\n\t/go/stack.go:26 +0x5e\npanic({0x1, 0x2})\n\t/go/panic.go:860 +0x13a\nmain.f({0x1})\n\t/x/y.go:29 +0x25\nreflect.Value.call()\n\t/go/value.go:586 +0xf", "panic: boom in two lines (y.go:29)"},
		"a panic of the runtime":   {"panic: runtime error: index out of range\nFull error:\nwhile executing\npanic: runtime error: index out of range goroutine 1 [running]:\npanic({0x1, 0x2})\n\t/go/panic.go:860 +0x13a\nruntime.goPanicIndex(0x7, 0x0)\n\t/go/panic.go:115 +0x74\nmain.f(...)\n\tC:/x/y.go:31", "panic: runtime error: index out of range (y.go:31)"},
		"a panic behind others":    {"retry of panic: none\nbundle failed: panic: first\nFull error:\npanic: first goroutine 1 [running]:\npanic({0x1, 0x2})\n\t/go/panic.go:860\nmain.f({0x1})\n\t/x/first.go:1\nbundle failed: panic: last panic: none\nFull error:\npanic: last panic: none goroutine 2 [running, locked to thread]:\npanic({0x1, 0x2})\n\t/go/panic.go:860\nmain.g({0x1})\n\t/x/last.go:2", "panic: last panic: none (last.go:2)"},
		"a panic, cut short":       {"panic: boom\nFull error:\nwhile exec", "panic: boom"},
		"nothing":                  {"", "the run failed without a reason"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := causeOf(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

var (
	countedCounter = beam.NewCounter("runners_test", "counted")
	sizes          = beam.NewDistribution("runners_test", "sizes")
)

var tempDir atomic.Value // while countFn ran

func countFn(ctx context.Context, x int) error {
	tempDir.Store(os.TempDir())
	countedCounter.Inc(ctx, int64(x))
	sizes.Update(ctx, int64(x))
	if x < 0 {
		return errors.New("linnet: test: negative\nsecond line")
	}
	return nil
}

func countAgainFn(ctx context.Context, x int) error { return countFn(ctx, x) }

func init() {
	beam.RegisterFunction(countFn)
	beam.RegisterFunction(countAgainFn)
	beam.RegisterFunction(strangerFn)
	beam.RegisterFunction(endpointFn)
}

// capture is what f writes to standard error.
func capture(t *testing.T, f func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = before; file.Close() }()
	f()
	data, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRun(t *testing.T) {
	for _, runner := range []string{"direct", "prism"} {
		t.Run(runner, func(t *testing.T) {
			set(t, map[string]string{"runner": runner, "endpoint": "", "environment_type": ""})
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			if !Local() {
				t.Error("it is not local")
			}
			said := capture(t, func() {
				p, s := beam.NewPipelineWithRoot()
				beam.ParDo0(s, countFn, beam.Create(s, 2, 3))
				beam.ParDo0(s, countAgainFn, beam.Create(s, 1, 3, 4)) // direct forgets the numbers of a function's second place
				res, err := Run(context.Background(), p, "runners_test", 1)
				if err != nil {
					t.Fatal(err)
				}
				want := metrics.DistributionValue{Count: 5, Sum: 13, Min: 1, Max: 4}
				if res.Running || res.Counters["counted"] != 13 || res.Distributions["sizes"] != want {
					t.Errorf("got %+v, want counted: 13, sizes: %+v", res, want)
				}

				if own := tempDir.Load() != tmp; own != (runner != "direct") { // which a kill would leave
					t.Errorf("temporary files in %s of %s", tempDir.Load(), tmp)
				}

				p, s = beam.NewPipelineWithRoot()
				beam.ParDo0(s, countFn, beam.Create(s, -1))
				_, err = Run(context.Background(), p, "runners_test", 1)
				if err == nil || err.Error() != "test: negative" {
					t.Errorf("got %v, want test: negative", err)
				}
			})
			if said != "" {
				t.Errorf("standard error has %q", said)
			}
			left, err := os.ReadDir(tmp)
			if err != nil || len(left) > 0 {
				t.Errorf("temporary files are left: %v, %v", left, err)
			}
		})
	}
}

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

// jobs is a job service whose jobs ended so.
type jobs struct {
	jobpb.UnimplementedJobServiceServer
	state     jobpb.JobState_Enum
	cancelled []string
	options   []string // of its jobs
	prepared  *structpb.Struct
}

func (j *jobs) Prepare(_ context.Context, req *jobpb.PrepareJobRequest) (*jobpb.PrepareJobResponse, error) {
	j.prepared = req.PipelineOptions
	return &jobpb.PrepareJobResponse{}, nil
}

func (j *jobs) DescribePipelineOptions(context.Context, *jobpb.DescribePipelineOptionsRequest) (*jobpb.DescribePipelineOptionsResponse, error) {
	var all []*jobpb.PipelineOptionDescriptor
	for _, name := range j.options {
		all = append(all, &jobpb.PipelineOptionDescriptor{Name: name})
	}
	return &jobpb.DescribePipelineOptionsResponse{Options: all}, nil
}

func (j *jobs) GetState(context.Context, *jobpb.GetJobStateRequest) (*jobpb.JobStateEvent, error) {
	return &jobpb.JobStateEvent{State: j.state}, nil
}

func (j *jobs) Cancel(_ context.Context, req *jobpb.CancelJobRequest) (*jobpb.CancelJobResponse, error) {
	j.cancelled = append(j.cancelled, req.JobId)
	return &jobpb.CancelJobResponse{State: jobpb.JobState_CANCELLED}, nil
}

// serveJobs serves j at --endpoint, and page at --flink_rest, until the test
// ends.
func serveJobs(t *testing.T, j *jobs, page http.Handler) {
	t.Helper()
	lis, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	jobpb.RegisterJobServiceServer(srv, j)
	go srv.Serve(lis)
	t.Cleanup(srv.Stop)
	web := httptest.NewServer(page)
	t.Cleanup(web.Close)
	set(t, map[string]string{"runner": "flink", "endpoint": lis.Addr().String(), "flink_rest": strings.TrimPrefix(web.URL, "http://")})
}

// refusing is flinkPage, but for a status with which it answers who cancels a job.
func refusing(status int) http.Handler {
	page := flinkPage(nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			w.WriteHeader(status)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// flinkPage is Flink's REST interface with two jobs of one name, of which the
// later one failed.
func flinkPage(cancelled *[]string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jobs/overview", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"jobs":[{"jid":"old","name":"my_job","start-time":1},{"jid":"new","name":"my_job","start-time":2},{"jid":"x","name":"my","start-time":3}]}`))
	})
	mux.HandleFunc("GET /jobs/new/exceptions", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"root-exception":"java.io.IOException: lost\n\tat a.b(C.java:1)\nCaused by: Connection reset\n",
			"exceptionHistory":{"entries":[{"stacktrace":"x\ncaused by:\nlinnet: write: no space left\nFull error:\ny"}]}}`))
	})
	mux.HandleFunc("PATCH /jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		*cancelled = append(*cancelled, r.PathValue("id")+"?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusAccepted)
	})
	return mux
}

// TestJudge checks that only DONE is no error, and that Flink is asked why.
func TestJudge(t *testing.T) {
	for state, ok := range map[jobpb.JobState_Enum]bool{
		jobpb.JobState_DONE: true, jobpb.JobState_CANCELLED: false, jobpb.JobState_FAILED: false, jobpb.JobState_RUNNING: false,
	} {
		t.Run(state.String(), func(t *testing.T) {
			serveJobs(t, &jobs{state: state}, flinkPage(nil))
			for job, cause := range map[string]string{"my_job_1-2-3": "write: no space left", "other_1": "the runner's log has the reason"} {
				err := judge(context.Background(), Flink, job)
				if want := "runners: job " + job + " ended " + state.String() + ": " + cause; (err == nil) != ok || err != nil && err.Error() != want {
					t.Errorf("got %v, want an error: %t: %s", err, !ok, want)
				}
			}
		})
	}
}

// TestFlinkCause wants what to do where Flink does not say it, and no failure
// that a job survived before somebody cancelled it.
func TestFlinkCause(t *testing.T) {
	for _, c := range []struct{ state, root, want string }{
		{"FAILED", "x.Y: java.lang.Exception: z\nCaused by: a.b.NoResourceAvailableException: Could not acquire the minimum required resources.\n", "Could not acquire the minimum required resources.; Flink has too few free slots: lower --parallelism"},
		{"FAILED", `Caused by: java.io.IOException: Cannot run program "/x/y": error=13, Permission denied`, `Cannot run program "/x/y": error=13, Permission denied; the program of --environment_config must lie there`},
		{"FAILED", "Caused by: java.lang.IllegalStateException: Process died with exit code 2", "Process died with exit code 2; the program of --environment_config must be this one"},
		{"FAILED", "Caused by: a.b.AbstractChannel$AnnotatedConnectException: finishConnect(..) failed: Connection refused: localhost/127.0.0.1:50000", "finishConnect(..) failed: Connection refused: localhost/127.0.0.1:50000; if that is the address in --environment_config"},
		{"FAILED", "Caused by: a.b.Http2Exception: First received frame was not SETTINGS. Hex dump for first 5 bytes: 485454502f", "First received frame was not SETTINGS. Hex dump for first 5 bytes: 485454502f; something else listens there; if that is the address in --environment_config"},
		{"FAILED", "Caused by: a.b.StatusRuntimeException: UNAVAILABLE: Unable to resolve host pool", "UNAVAILABLE: Unable to resolve host pool; the TaskManagers' machines do not know that host"},
		{"FAILED", "Caused by: a.b.StatusRuntimeException: UNIMPLEMENTED: Method not found: a.BeamFnExternalWorkerPool/StartWorker", "UNIMPLEMENTED: Method not found: a.BeamFnExternalWorkerPool/StartWorker; if that is the address in --environment_config"},
		{"FAILED", "Caused by: java.lang.RuntimeException: Error received from SDK harness for instruction 1: ProcessBundle failed: \tinvalid bundle desc: 12-3\nbad element\n\tcaused by:\n\tdecoding type kind:EXTERNAL external_key:\"main.scoreFn\"\nexternal key not found main.scoreFn\n\t... 1 more\n", "external key not found main.scoreFn; the workers run another program than this one"},
		{"CANCELED", "a.bException: TaskManager with id localhost:1-2 is no longer reachable.", "the job was cancelled in Flink, and not by this program"},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /jobs/overview", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"jobs":[{"jid":"a","name":"my_job","state":%q,"start-time":1}]}`, c.state)
		})
		mux.HandleFunc("GET /jobs/a/exceptions", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"root-exception":%q}`, c.root)
		})
		serveJobs(t, &jobs{}, mux)
		if got, err := flinkCause(t.Context(), "my_job_1-2"); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s, %s: got %q, %v, want %q", c.state, c.root, got, err, c.want)
		}
	}
}

// TestFlinkNotAsked wants it said that Flink knows more, where Beam's job server tells
// the last of Java's causes, and not beside an error of a DoFn.
func TestFlinkNotAsked(t *testing.T) {
	const java = "job my_job_1 failed:\njava.io.IOException: error=2, No such file or directory"
	const more = "error=2, No such file or directory; Flink may know more, name its web page by --flink_rest: "
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>Sign in") })
	for _, c := range []struct {
		web        http.Handler
		beam, want string
	}{
		{http.NotFoundHandler(), java, more + "http://"},
		{page, java, more + "http://"},
		{http.NotFoundHandler(), "job my_job_1 failed:\nlinnet: write: no space left", "write: no space left"},
	} {
		serveJobs(t, &jobs{}, c.web)
		got := explain(t.Context(), Flink, "my_job_1", true, errors.New(c.beam)).Error()
		if !strings.HasPrefix(got, c.want) || strings.Contains(c.beam, errorMark) && got != c.want {
			t.Errorf("%q: got %q, want %q", c.beam, got, c.want)
		}
	}
}

// TestNoJobManager wants it said who is not reached where Java only says that a
// connection was refused: Flink does not know the job, or is not there.
func TestNoJobManager(t *testing.T) {
	serveJobs(t, &jobs{}, flinkPage(nil))
	for _, more := range []string{"", notAsked} {
		err := errors.New("job none_1 failed:\njava.net.ConnectException: Connection refused")
		got := explain(t.Context(), Flink, "none_1", true, err).Error()
		if !strings.Contains(got, "does not reach Flink's JobManager: Connection refused; ") || !strings.Contains(got, more) {
			t.Errorf("got %q, want that the job server does not reach Flink, and %q", got, more)
		}
		set(t, map[string]string{"flink_rest": "http://localhost:1/"})
	}
}

// TestRefusedWithoutReason wants it said who knows why a job was not taken.
func TestRefusedWithoutReason(t *testing.T) {
	serveJobs(t, &jobs{}, flinkPage(nil))
	err := errors.New("failed to submit job\n\tcaused by:\nrpc error: code = Internal desc = ")
	got := explain(t.Context(), Flink, "", true, err).Error()
	if !strings.Contains(got, "does not say why (rpc error: code = Internal); its log does") {
		t.Errorf("got %q", got)
	}
}

// TestBroken wants it said that a job may still run whose launcher lost the job server
// for a moment, or for good.
func TestBroken(t *testing.T) {
	lost := fmt.Errorf("beam: %w", status.Error(codes.Unavailable, "error reading from server: EOF"))
	serveJobs(t, &jobs{state: jobpb.JobState_RUNNING}, flinkPage(nil)) // which knows of a failure before
	for _, want := range []string{"broke, or that was started anew: ", "no job server at --endpoint=localhost:1: "} {
		got := explain(t.Context(), Flink, "my_job_1", true, lost).Error()
		if !strings.Contains(got, want) || !strings.HasSuffix(got, "; job my_job_1 may still run; let it end, or cancel it, before you run again") {
			t.Errorf("got %q, want %q, and that it may still run", got, want)
		}
		set(t, map[string]string{"endpoint": "localhost:1"})
	}
}

// TestTellWaiting wants it said once that a job waits for slots, and again after
// it ran meanwhile; not of one that has only begun.
func TestTellWaiting(t *testing.T) {
	defer func(before time.Duration) { slotsPoll = before }(slotsPoll)
	slotsPoll = time.Millisecond
	looks := []string{"scheduled", "running", "scheduled", "scheduled", "scheduled", "running", "scheduled", "scheduled", "finished"}
	over, n := make(chan struct{}), 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jobs/overview", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"jobs":[{"jid":"a","name":"my_job","state":"RUNNING","start-time":1,"tasks":{%q:5}}]}`, looks[min(n, len(looks)-1)])
		if n++; n == len(looks) {
			close(over)
		}
	})
	mux.HandleFunc("GET /overview", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{"slots-total":2}`)) })
	serveJobs(t, &jobs{}, mux)
	watch := &watcher{job: "my_job_1-2", submitted: make(chan struct{})}
	close(watch.submitted)
	said := capture(t, func() { warnOfWaiting(t.Context(), watch, over) })
	want := "linnet: the job waits, Flink has too few free slots for it, of 2 in all: " + moreSlots + "\n"
	if said != want+want {
		t.Errorf("it says %q", said)
	}
}

// TestFlinkOptions has a job take along what Beam's Go has no flag for, until it is over.
func TestFlinkOptions(t *testing.T) {
	var j jobs
	serveJobs(t, &j, nil)
	prepared := func() string {
		cc, err := grpcx.Dial(t.Context(), flag.Lookup("endpoint").Value.String(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		options := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		if _, err := jobpb.NewJobServiceClient(cc).Prepare(t.Context(), &jobpb.PrepareJobRequest{PipelineOptions: options}); err != nil {
			t.Fatal(err)
		}
		got := j.prepared.GetFields()
		return got["beam:option:checkpointing_interval:v1"].GetStringValue() + " " + got["beam:option:options_id:v1"].GetStringValue()
	}
	over := giveOptions()
	if got := prepared(); got != "2000 1" {
		t.Errorf("a checkpoint each %q ms and a number, want 2000 1", got)
	}
	over()
	if got := prepared(); got != " " {
		t.Errorf("then %q", got)
	}
}

func TestCancel(t *testing.T) {
	var j jobs
	var patched []string
	serveJobs(t, &j, flinkPage(&patched))
	if err := cancelJob(context.Background(), "my_job_1-2-3"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(j.cancelled, []string{"my_job_1-2-3"}) || !slices.Equal(patched, []string{"new?mode=cancel"}) {
		t.Errorf("cancelled %q in the job service, %q in Flink", j.cancelled, patched)
	}
	if err := cancelJob(context.Background(), "none_1"); err == nil || !strings.Contains(err.Error(), "may still run") || !strings.Contains(err.Error(), "--flink_rest") {
		t.Errorf("got %v, want that Flink knows no such job", err)
	}
}

// TestCancelEnded cancels a job that ended a moment before, which Flink answers
// with 409.
func TestCancelEnded(t *testing.T) {
	serveJobs(t, &jobs{}, refusing(http.StatusConflict))
	if err := cancelJob(t.Context(), "my_job_1-2-3"); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestCancelSilent cancels a job whose job server does not answer.
func TestCancelSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	set(t, map[string]string{"endpoint": silent.Addr().String()})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	want := "no job server at --endpoint=" + silent.Addr().String() + ": context deadline exceeded"
	if err := cancelJob(ctx, "my_job_1"); !errors.Is(err, ErrNotCancelled) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %q, want %q", err, want)
	}
}

// TestBrowserAddress has --flink_rest as a browser shows the address of Flink's page.
func TestBrowserAddress(t *testing.T) {
	var patched []string
	serveJobs(t, &jobs{}, flinkPage(&patched))
	set(t, map[string]string{"flink_rest": "http://" + flag.Lookup("flink_rest").Value.String() + "/#/job/running"})
	if err := cancelJob(t.Context(), "my_job_1-2-3"); err != nil || len(patched) != 1 {
		t.Errorf("got %v, cancelled %q in Flink", err, patched)
	}
}

// TestCancelRefused has a Flink that refuses to cancel, and one that cannot be
// asked: the job may still run, and the error says so.
func TestCancelRefused(t *testing.T) {
	serveJobs(t, &jobs{}, refusing(http.StatusForbidden))
	for _, want := range []string{"403", "localhost:1"} {
		err := cancelJob(t.Context(), "my_job_1-2-3")
		if !errors.Is(err, ErrNotCancelled) || !strings.Contains(err.Error(), "job my_job_1-2-3 may still run") || !strings.Contains(err.Error(), "--flink_rest") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that the job may still run: %s", err, want)
		}
		if cause, err := flinkCause(t.Context(), "none_1"); cause != "" || (err != nil) != (want == "localhost:1") {
			t.Errorf("a cause of what is not known: %q, %v", cause, err)
		}
		set(t, map[string]string{"flink_rest": "http://localhost:1/"})
	}
}

// TestReach wants an error at once where no job server listens.
func TestReach(t *testing.T) {
	set(t, map[string]string{"runner": "flink", "endpoint": "localhost:1", "environment_type": "loopback"})
	p, s := beam.NewPipelineWithRoot()
	beam.ParDo0(s, countFn, beam.Create(s, 1))
	_, err := Run(context.Background(), p, "runners_test", 1)
	if err == nil || !strings.Contains(err.Error(), "no job server at --endpoint=localhost:1") {
		t.Errorf("got %v", err)
	}
}

// TestReachOther wants it said soon that a web page is no job server.
func TestReachOther(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	endpoint := web.Listener.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := checkEndpoint(ctx, endpoint); err == nil || !strings.Contains(err.Error(), "no job server at --endpoint="+endpoint+": ") {
		t.Errorf("got %v", err)
	}
	for _, flink := range []bool{false, true} {
		j := &jobs{options: []string{"job_name"}}
		if flink {
			j.options = append(j.options, "flink_master")
		}
		serveJobs(t, j, http.NotFoundHandler())
		if got, err := checkEndpoint(ctx, flag.Lookup("endpoint").Value.String()); err != nil || got != flink {
			t.Errorf("a job server: Flink's: %t, want %t: %v", got, flink, err)
		}
	}
}

// TestCancelEarly cancels a job that Flink hears of a moment later.
func TestCancelEarly(t *testing.T) {
	var patched []string
	page, asked := flinkPage(&patched), 0
	serveJobs(t, &jobs{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 {
			w.Write([]byte(`{"jobs":[]}`))
			return
		}
		page.ServeHTTP(w, r)
	}))
	if err := cancelJob(t.Context(), "my_job_1-2-3"); err != nil || !slices.Equal(patched, []string{"new?mode=cancel"}) {
		t.Errorf("got %v, cancelled %q in Flink", err, patched)
	}
}

func TestSurvives(t *testing.T) {
	for env, want := range map[string]bool{"PROCESS": true, "LOOPBACK": false} {
		set(t, map[string]string{"runner": "flink", "endpoint": "localhost:1", "environment_type": env})
		if Survives() != want {
			t.Errorf("%s: got %t", env, !want)
		}
	}
}

// TestOtherBuild sends jobs to workers that are this program, and to others.
func TestOtherBuild(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := func(command string) string { return fmt.Sprintf(`{"command":%q}`, command) }
	for _, c := range []struct {
		runner, env, config, binary, gpus string
		want                              bool
	}{
		{runner: "direct"}, {runner: "prism"},
		{runner: "flink", env: "LOOPBACK"},
		{runner: "flink", env: "EXTERNAL", config: "localhost:50000", want: true},
		{runner: "universal", env: "external", config: "localhost:50000", want: true},
		{runner: "flink", env: "PROCESS", config: process(self)},
		{runner: "flink", env: "PROCESS", config: process("/opt/predict-cuda"), want: true},
		{runner: "flink", env: "DOCKER", config: "image"},
		{runner: "flink", env: "DOCKER", config: "image", binary: "predict-cuda", want: true},
		{runner: "dataflow"},
		{runner: "dataflow", gpus: "1", want: true},
		{runner: "dataflow", binary: "predict-cuda", want: true},
	} {
		set(t, map[string]string{
			"runner": c.runner, "endpoint": "", "environment_type": c.env, "environment_config": c.config, "worker_binary": c.binary, "worker_gpu": cmp.Or(c.gpus, "0"),
		})
		if got := OtherBuild(); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
}

func TestWorkerBinary(t *testing.T) {
	for env, empty := range map[string]bool{"process": true, "EXTERNAL": true, "loopback": false} {
		set(t, map[string]string{"environment_type": env, "worker_binary": ""})
		if err := workerBinary(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		binary := flag.Lookup("worker_binary").Value.String()
		info, err := os.Stat(binary)
		if empty != (err == nil) || err == nil && info.Size() > 0 {
			t.Errorf("%s: worker binary %q: %v", env, binary, err)
		}
		set(t, map[string]string{"worker_binary": "/mine"})
		if err := workerBinary(t.Context(), "/none"); err != nil || flag.Lookup("worker_binary").Value.String() != "/mine" {
			t.Errorf("%s: --worker_binary is not kept: %v", env, err)
		}
	}
}

// TestBuildWorker starts what containers get of a program that is linked with libraries.
func TestBuildWorker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "worker")
	if err := buildWorker(t.Context(), file, "github.com/linnet-ml/linnet/examples/linear"); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		if out, err := exec.Command(file, "--help").CombinedOutput(); !strings.Contains(string(out), "-input") {
			t.Errorf("the worker is no program: %v, %s", err, out)
		}
	}
	const library, none = "github.com/linnet-ml/linnet/model", "example.org/none"
	for pkg, want := range map[string]string{library: "(it is no program)", none: "(no required module provides package " + none} {
		err := buildWorker(t.Context(), file, pkg)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "go build -o worker "+pkg+", and add --worker_binary=worker") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", pkg, err, want)
		}
	}
}

// TestHints has Check refuse what Beam panics at when the job is made.
func TestHints(t *testing.T) {
	t.Cleanup(func() { jobopts.ResourceHints, jobopts.SdkHarnessContainerImageOverrides = nil, nil })
	for override, want := range map[string]string{".*beam_go.*,mine:1": "", "mine:1": "--sdk_harness_container_image_override=mine:1: it must be"} {
		jobopts.SdkHarnessContainerImageOverrides = []string{override}
		if err := Check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", override, err, want)
		}
	}
	jobopts.SdkHarnessContainerImageOverrides = nil
	for hint, want := range map[string]string{
		"min_ram=4GB": "", "beam:resources:x:v1=y": "",
		"x": `runners: --resource_hints: unparsable resource hint: "x"; name hints`, "ram=4GB": "unknown resource hint: ram=4GB", "min_ram=much": "unable to parse \"much\"",
	} {
		jobopts.ResourceHints = []string{hint}
		if err := Check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", hint, err, want)
		}
	}
}

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

func TestWatcher(t *testing.T) {
	w := &watcher{quiet: true, announce: true, submitted: make(chan struct{})}
	select {
	case <-w.submitted:
		t.Error("submitted before it is")
	default:
	}
	said := capture(t, func() {
		w.Log(context.Background(), 0, 0, "Pipeline: a dump")
		w.Log(context.Background(), 0, 0, "Submitted job: job-7")
	})
	if said != "Submitted job: job-7\n" || w.jobID() != "job-7" {
		t.Errorf("it says %q of job %q", said, w.jobID())
	}
	select {
	case <-w.submitted: // who cancels waits for it
	default:
		t.Error("nobody hears that the job is submitted")
	}
}
