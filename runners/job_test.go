package runners

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// jobs is a job service whose jobs ended so.
type jobs struct {
	jobpb.UnimplementedJobServiceServer
	jobpb.UnimplementedArtifactStagingServiceServer
	state     jobpb.JobState_Enum
	cancelled []string
	options   []string // of its jobs
	prepared  *structpb.Struct
	address   string
	run       func()        // while a job is submitted
	says      []string      // its messages, before it is done
	last      time.Duration // from these to its end
}

func (j *jobs) Prepare(_ context.Context, req *jobpb.PrepareJobRequest) (*jobpb.PrepareJobResponse, error) {
	j.prepared = req.PipelineOptions
	return &jobpb.PrepareJobResponse{ArtifactStagingEndpoint: &pipepb.ApiServiceDescriptor{Url: j.address}}, nil
}

func (j *jobs) ReverseArtifactRetrievalService(s jobpb.ArtifactStagingService_ReverseArtifactRetrievalServiceServer) error {
	_, err := s.Recv() // it has all artifacts
	return err
}

func (j *jobs) Run(context.Context, *jobpb.RunJobRequest) (*jobpb.RunJobResponse, error) {
	j.run()
	return &jobpb.RunJobResponse{JobId: "my_job_1-2-3"}, nil
}

func (j *jobs) GetMessageStream(_ *jobpb.JobMessagesRequest, s jobpb.JobService_GetMessageStreamServer) error {
	for _, text := range j.says {
		message := &jobpb.JobMessage{MessageText: text, Importance: jobpb.JobMessage_JOB_MESSAGE_BASIC}
		if err := s.Send(&jobpb.JobMessagesResponse{Response: &jobpb.JobMessagesResponse_MessageResponse{MessageResponse: message}}); err != nil {
			return err
		}
	}
	time.Sleep(j.last)
	return s.Send(&jobpb.JobMessagesResponse{Response: &jobpb.JobMessagesResponse_StateResponse{StateResponse: &jobpb.JobStateEvent{State: j.state}}})
}

func (j *jobs) GetJobMetrics(context.Context, *jobpb.GetJobMetricsRequest) (*jobpb.GetJobMetricsResponse, error) {
	return &jobpb.GetJobMetricsResponse{Metrics: &jobpb.MetricResults{}}, nil
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
	j.address = lis.Addr().String()
	jobpb.RegisterJobServiceServer(srv, j)
	jobpb.RegisterArtifactStagingServiceServer(srv, j)
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
		{"FAILED", "Caused by: a.b.StatusRuntimeException: UNAVAILABLE: Unable to resolve host pool", "UNAVAILABLE: Unable to resolve host pool; the cluster's machines do not know that host"},
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

// TestOtherRunner wants it said where more is to be read than the last of Java's causes,
// but not of an error that is whole, and what a runner without checkpoints cannot do.
func TestOtherRunner(t *testing.T) {
	serveJobs(t, &jobs{}, nil)
	for in, want := range map[string]string{
		"failed:\njava.io.IOException: error=2, No such file or directory": "error=2, No such file or directory; the program of --environment_config must lie there on every machine of the cluster, and be executable; the log of the job server at --endpoint=",
		"failed:\norg.apache.spark.SparkException: Application a_1 failed 2 times due to AM Container\nExit code: 1\n\nFor more detailed output, check the application tracking page: http://x:8088/a_1 Then click on links to logs of each attempt.\n. Failing the application.": "For more detailed output, check the application tracking page: http://x:8088/a_1 Then",
		"failed:\norg.apache.spark.SparkException: Job aborted due to stage failure: Lost task 1.3 (localhost executor 4): ExecutorLostFailure (executor 4 exited) Reason: Exit status: 137. \n[16:05]Killed by external signal\n.\nDriver stacktrace:\n":                         "ExecutorLostFailure (executor 4 exited) Reason: Exit status: 137.; an executor was killed; ",
		"failed:\norg.apache.spark.SparkException: Job aborted due to stage failure: Lost task 1.3: x\n\tat a.b(C.java:1)\n\nDriver stacktrace:\n":                                                                                                                                "Job aborted due to stage failure: Lost task 1.3: x; ",
		"failed:\nlinnet: write: no space left": "write: no space left",
		"failed:\njava.lang.UnsupportedOperationException: The ActiveBundle does not have a registered bundle checkpoint handler.": "The ActiveBundle does not have a registered bundle checkpoint handler.; this runner takes no work back, which --watch needs; ",
	} {
		got := explain(t.Context(), Spark, "my_job_1", true, errors.New("job my_job_1 "+in)).Error()
		if !strings.HasPrefix(got, want) || strings.Contains(in, errorMark) && got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
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

// TestCancelAsync interrupts a launcher of --async, while it submits and not at all.
func TestCancelAsync(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var patched []string
		j := &jobs{run: func() {
			if Submitted() {
				t.Error("submitted before it is")
			}
			if interrupted {
				cancel(errors.New("interrupted"))
			}
		}}
		serveJobs(t, j, flinkPage(&patched))
		set(t, map[string]string{"async": "true", "environment_type": "process", "environment_config": `{"command":"/x"}`, "worker_binary": ""})
		p, s := beam.NewPipelineWithRoot()
		beam.ParDo0(s, countFn, beam.Create(s, 1))
		result, err := Run(ctx, p, "runners_test", 0)
		switch {
		case !Submitted():
			t.Error("it is submitted, and not told")
		case interrupted && (err == nil || err.Error() != "interrupted: job my_job_1-2-3 is cancelled; run again to go on" || len(patched) != 1 || len(j.cancelled) != 1):
			t.Errorf("interrupted: %+v, %v; cancelled %q, in Flink %q", result, err, j.cancelled, patched)
		case !interrupted && (err != nil || !result.Running || result.JobID != "my_job_1-2-3" || len(patched)+len(j.cancelled) > 0):
			t.Errorf("submitted: %+v, %v; cancelled %q, in Flink %q", result, err, j.cancelled, patched)
		}
	}
}

// TestSilentPage ends a run while Flink's web page is asked, and does not answer; and has
// the job server's messages be no other job's number.
func TestSilentPage(t *testing.T) {
	defer func(before time.Duration) { slotsPoll = before }(slotsPoll)
	slotsPoll = time.Millisecond
	page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	j := &jobs{state: jobpb.JobState_DONE, run: func() {}, says: []string{"Submitted job: other_9"}, last: 200 * time.Millisecond}
	serveJobs(t, j, page)
	set(t, map[string]string{"environment_type": "process", "environment_config": `{"command":"/x"}`, "worker_binary": ""})
	p, s := beam.NewPipelineWithRoot()
	beam.ParDo0(s, countFn, beam.Create(s, 1))
	begin := time.Now()
	said := capture(t, func() {
		if result, err := Run(t.Context(), p, "runners_test", 1); err != nil || result.JobID != "my_job_1-2-3" {
			t.Errorf("got %+v, %v", result, err)
		}
	})
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it ends after %v", took)
	}
	if said != "Submitted job: my_job_1-2-3\n" {
		t.Errorf("it says %q", said)
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
