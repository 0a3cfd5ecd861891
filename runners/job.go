package runners

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
)

var flinkREST = flag.String("flink_rest", "localhost:8081", "`address` of Flink's web page, asked why a job failed, and to cancel it")

// onJob calls f with the job service that --endpoint names.
func onJob(ctx context.Context, f func(jobpb.JobServiceClient) error) error {
	cc, err := grpcx.Dial(ctx, *jobopts.Endpoint, 30*time.Second)
	if err != nil {
		return err
	}
	defer cc.Close()
	return f(jobpb.NewJobServiceClient(cc))
}

// Cancel asks the runner to end a job, by the number in Result.JobID, and
// returns once it said that it will. Beam's job server for Flink only forgets a
// batch job, so Flink is asked as well.
func Cancel(ctx context.Context, job string) error {
	err := onJob(ctx, func(c jobpb.JobServiceClient) error {
		_, err := c.Cancel(ctx, &jobpb.CancelJobRequest{JobId: job})
		return err
	})
	if name, _ := Name(); err == nil && name == Flink {
		var id string
		id, err = flinkJob(ctx, job)
		for end := time.Now().Add(3 * time.Second); errors.Is(err, errNoJob) && time.Now().Before(end); id, err = flinkJob(ctx, job) {
			time.Sleep(100 * time.Millisecond) // the job server is about to submit it
		}
		if err == nil {
			err = flinkCall(ctx, http.MethodPatch, "/jobs/"+url.PathEscape(id)+"?mode=cancel", nil)
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
	err := onJob(ctx, func(c jobpb.JobServiceClient) error {
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
		if c := flinkCause(ctx, job); c != "" {
			cause = c
		}
	}
	return fmt.Errorf("runners: job %s ended %s: %s", job, state, cause)
}

// flinkCause is why Flink says that a job failed, in one line; "" where it does
// not say.
func flinkCause(ctx context.Context, job string) string {
	id, err := flinkJob(ctx, job)
	if err != nil {
		return ""
	}
	var exceptions struct {
		Root    string `json:"root-exception"`
		History struct {
			Entries []struct{ Stacktrace string }
		} `json:"exceptionHistory"`
	}
	if err := flinkCall(ctx, http.MethodGet, "/jobs/"+url.PathEscape(id)+"/exceptions", &exceptions); err != nil {
		return ""
	}
	// The last failure comes first; of a lost connection an older one may know more.
	texts := []string{exceptions.Root}
	for _, e := range exceptions.History.Entries {
		texts = append(texts, e.Stacktrace)
	}
	for _, text := range texts {
		if strings.Contains(text, mark) {
			return Cause(text)
		}
	}
	if exceptions.Root == "" {
		return ""
	}
	return Cause(exceptions.Root)
}

var errNoJob = errors.New("knows no job")

// flinkJob is Flink's own number of a job of the job service: its name is the
// number's part before the last underscore.
func flinkJob(ctx context.Context, job string) (string, error) {
	name := job
	if i := strings.LastIndex(job, "_"); i >= 0 {
		name = job[:i]
	}
	var all struct {
		Jobs []struct {
			ID    string `json:"jid"`
			Name  string
			Start int64 `json:"start-time"`
		}
	}
	if err := flinkCall(ctx, http.MethodGet, "/jobs/overview", &all); err != nil {
		return "", err
	}
	id, start := "", int64(-1)
	for _, j := range all.Jobs {
		if j.Name == name && j.Start > start {
			id, start = j.ID, j.Start
		}
	}
	if id == "" {
		return "", fmt.Errorf("--flink_rest=%s %w of the name %s", *flinkREST, errNoJob, name)
	}
	return id, nil
}

// flinkCall calls Flink's REST interface; into may be nil.
func flinkCall(ctx context.Context, method, path string, into any) error {
	base := *flinkREST
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("--flink_rest: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("--flink_rest: %s: %s", req.URL, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
