package runners

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

var flinkREST = flag.String("flink_rest", "localhost:8081", "`address` of Flink's web page, asked why a job failed, and to cancel it")

// checkEndpoint finds out in seconds what Beam's client takes two minutes for and reports
// without a name: that nothing listens at endpoint, or nothing that is a job server. It
// returns whether that is Flink's.
func checkEndpoint(ctx context.Context, endpoint string) (flink bool, err error) {
	asked, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(asked, "tcp", endpoint)
	if err == nil {
		conn.Close()
		flink, err = checkJobService(asked, endpoint)
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, fmt.Errorf("runners: no job server at --endpoint=%s: %w", endpoint, err)
	}
	return flink, nil
}

// checkJobService asks for something that any job server is asked, and finds options of
// Flink's among those of a job. An error from the server will do as an answer: only
// silence, or no connection, is an error here.
func checkJobService(ctx context.Context, endpoint string) (flink bool, err error) {
	cc, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer cc.Close()
	options, err := jobpb.NewJobServiceClient(cc).DescribePipelineOptions(ctx, &jobpb.DescribePipelineOptionsRequest{})
	switch said, _ := status.FromError(err); said.Code() {
	case codes.Unavailable:
		return false, errors.New(said.Message())
	case codes.DeadlineExceeded:
		return false, errors.New("what listens there does not answer")
	}
	return slices.ContainsFunc(options.GetOptions(), func(o *jobpb.PipelineOptionDescriptor) bool { return o.GetName() == "flink_master" }), nil
}

// withJobService calls f with the job service that --endpoint names.
func withJobService(ctx context.Context, f func(jobpb.JobServiceClient) error) error {
	cc, err := grpcx.Dial(ctx, *jobopts.Endpoint, 30*time.Second)
	if err != nil { // of several lines
		return fmt.Errorf("no job server at --endpoint=%s: %s", *jobopts.Endpoint, causeOf(err.Error()))
	}
	defer cc.Close()
	return f(jobpb.NewJobServiceClient(cc))
}

// cancelAtEnd cancels the job whose number watch logged when ctx ends before the run
// is over.
func cancelAtEnd(ctx context.Context, watch *watcher, over chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-over:
		return nil
	case <-watch.submitted:
	}
	return cancelJob(context.WithoutCancel(ctx), watch.jobID())
}

// cancelJob asks the runner to end a job, by the number in Result.JobID, and
// returns once it said that it will. Beam's job server for Flink only forgets a
// batch job, so Flink is asked as well.
func cancelJob(ctx context.Context, job string) error {
	var err error
	name, _ := Name()
	if name == Dataflow {
		err = cancelDataflow(ctx, job)
	} else {
		err = withJobService(ctx, func(c jobpb.JobServiceClient) error {
			_, err := c.Cancel(ctx, &jobpb.CancelJobRequest{JobId: job})
			return err
		})
	}
	if err == nil && name == Flink {
		var j flinkState
		j, err = flinkJob(ctx, job)
		for end := time.Now().Add(3 * time.Second); errors.Is(err, errNoJob) && time.Now().Before(end); j, err = flinkJob(ctx, job) {
			time.Sleep(100 * time.Millisecond) // the job server is about to submit it
		}
		if err == nil {
			err = flinkCall(ctx, http.MethodPatch, "/jobs/"+url.PathEscape(j.ID)+"?mode=cancel", nil)
		}
	}
	if err != nil {
		return fmt.Errorf("runners: job %s may still run, it %w: %w", job, ErrNotCancelled, err)
	}
	return nil
}

// judge asks the job service how the job ended, because Beam's client reports
// a cancelled one as a success.
func judge(ctx context.Context, name, job string) error {
	var state jobpb.JobState_Enum
	err := withJobService(ctx, func(c jobpb.JobServiceClient) error {
		resp, err := c.GetState(ctx, &jobpb.GetJobStateRequest{JobId: job})
		state = resp.GetState()
		return err
	})
	if err != nil {
		return fmt.Errorf("runners: job %s: how it ended is not known: %w", job, err)
	}
	if state == jobpb.JobState_DONE {
		return nil
	}
	cause := "the runner's log has the reason"
	if name == Flink {
		switch c, err := flinkCause(ctx, job); {
		case c != "":
			cause = c
		case err != nil:
			cause += notAsked + err.Error()
		}
	}
	return fmt.Errorf("runners: job %s ended %s: %s", job, state, cause)
}

const notAsked = "; Flink may know more, name its web page by " // --flink_rest, with which the error begins

// flinkCause is why Flink says that a job failed, in one line; "" where it does
// not say. It is an error where Flink cannot be asked.
func flinkCause(ctx context.Context, job string) (string, error) {
	j, err := flinkJob(ctx, job)
	switch {
	case errors.Is(err, errNoJob): // it did not come so far
		return "", nil
	case err != nil:
		return "", err
	case j.State == "CANCELED" || j.State == "CANCELLING": // whatever it survived before
		return "the job was cancelled in Flink, and not by this program", nil
	}
	var exceptions struct {
		Root    string `json:"root-exception"`
		History struct {
			Entries []struct{ Stacktrace string }
		} `json:"exceptionHistory"`
	}
	if err := flinkCall(ctx, http.MethodGet, "/jobs/"+url.PathEscape(j.ID)+"/exceptions", &exceptions); err != nil {
		return "", err
	}
	// The last failure comes first; of a lost connection an older one may know more.
	texts := []string{exceptions.Root}
	for _, e := range exceptions.History.Entries {
		texts = append(texts, e.Stacktrace)
	}
	for _, text := range texts {
		if strings.Contains(text, errorMark) {
			return causeOf(text), nil
		}
	}
	if exceptions.Root == "" {
		return "", nil
	}
	return withRemedy(causeOf(exceptions.Root)), nil
}

// withRemedy is a cause and what to do about it, where that is known.
func withRemedy(cause string) string {
	for _, r := range remedies {
		if strings.Contains(cause, r.of) {
			return cause + "; " + r.is
		}
	}
	return cause
}

const moreSlots = "lower --parallelism, start more TaskManagers, or wait for other jobs to end"

const notAPool = "if that is the address in --environment_config, start this program with --worker_pool there, on every machine of the cluster"

const noProgram = "the program of --environment_config must lie there on every machine of the cluster, and be executable"

// remedies are what to do about errors that do not say it.
var remedies = []struct{ of, is string }{
	{"bundle checkpoint handler", "this runner takes no work back, which --watch needs; run without it, as often as documents come"},
	{"Could not acquire the minimum required resources", "Flink has too few free slots: " + moreSlots},
	{"ExecutorLostFailure", "an executor was killed; if it took too much memory, give it more beside Java's (scripts/spark MASTER --conf spark.executor.memoryOverhead=1g)"},
	{"error=2, No such file", noProgram},
	{"Cannot run program ", noProgram},
	{"BeamFnExternalWorkerPool/StartWorker", notAPool},
	{"finishConnect(..) failed: Connection refused: ", notAPool},
	{"First received frame was not SETTINGS", "something else listens there; if that is the address in --environment_config, name the port of this program with --worker_pool, on every machine of the cluster"},
	{"UNAVAILABLE: Unable to resolve host ", "the cluster's machines do not know that host; if it is that of --environment_config, name one that they do, such as localhost with a pool on each"},
	{"external key not found ", "the workers run another program than this one, or another version of it; --environment_config must name this one, or a pool or an image of it"},
	{"Process died with exit code ", "the program of --environment_config must be this one, built for the cluster's machines; the log there has what it said"},
}

// slotsPoll is the time from one look at a job to the next; a test has another.
var slotsPoll = 5 * time.Second

// warnOfWaiting warns once the job whose number watch logged has waited for slots at two
// looks in a row: a batch job may wait for ever, and Flink does not say so.
func warnOfWaiting(ctx context.Context, watch *watcher, over chan struct{}) {
	select {
	case <-over:
		return
	case <-watch.submitted:
	}
	for waited := 0; ; {
		select {
		case <-over:
			return
		case <-time.After(slotsPoll):
		}
		j, err := flinkJob(ctx, watch.jobID())
		if t := j.Tasks; err != nil || t.Scheduled == 0 || t.Deploying+t.Initializing+t.Running > 0 {
			waited = 0
			continue
		}
		if waited++; waited != 2 {
			continue
		}
		var cluster struct {
			Slots int `json:"slots-total"`
		}
		if err := flinkCall(ctx, http.MethodGet, "/overview", &cluster); err != nil {
			waited = 0
			continue
		}
		fmt.Fprintf(os.Stderr, "linnet: the job waits, Flink has too few free slots for it, of %d in all: %s\n", cluster.Slots, moreSlots)
	}
}

var errNoJob = errors.New("knows no job")

// flinkState is what Flink tells of a job.
type flinkState struct {
	ID          string `json:"jid"`
	Name, State string
	Start       int64 `json:"start-time"`
	Tasks       struct{ Scheduled, Deploying, Initializing, Running int }
}

// flinkJob is Flink's own of a job of the job service: its name is the number's
// part before the last underscore.
func flinkJob(ctx context.Context, job string) (flinkState, error) {
	name := job
	if i := strings.LastIndex(job, "_"); i >= 0 {
		name = job[:i]
	}
	var all struct{ Jobs []flinkState }
	if err := flinkCall(ctx, http.MethodGet, "/jobs/overview", &all); err != nil {
		return flinkState{}, err
	}
	last := flinkState{Start: -1}
	for _, j := range all.Jobs {
		if j.Name == name && j.Start > last.Start {
			last = j
		}
	}
	if last.ID == "" {
		return last, fmt.Errorf("--flink_rest=%s %w of the name %s", *flinkREST, errNoJob, name)
	}
	return last, nil
}

// flinkCall calls Flink's REST interface; into may be nil.
func flinkCall(ctx context.Context, method, path string, into any) error {
	base, _, _ := strings.Cut(*flinkREST, "#") // a browser's address has the page behind it
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("--flink_rest: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("--flink_rest: %w", err)
	}
	defer resp.Body.Close()
	if method == http.MethodPatch && resp.StatusCode == http.StatusConflict {
		return nil // nothing to cancel: the job has just ended
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("--flink_rest: %s: %s", req.URL, resp.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil { // a page to sign in at, perhaps
		return fmt.Errorf("--flink_rest: %s: %w", req.URL, err)
	}
	return nil
}
