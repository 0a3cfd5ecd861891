package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"
	"google.golang.org/api/option/internaloption"
	htransport "google.golang.org/api/transport/http"
)

// gsClients holds the process's one client. It is made anew when the emulator's
// address changes, as tests do.
var gsClients struct {
	sync.Mutex
	client *storage.Client
	host   string
}

// forGS returns the store with the process's client; a failure is not kept.
// Where STORAGE_EMULATOR_HOST names a stand-in, no credentials are needed.
func forGS(ctx context.Context, uri string) (Store, error) {
	if _, _, err := splitGS(uri); err != nil {
		return nil, err
	}
	c := &gsClients
	c.Lock()
	defer c.Unlock()
	host := os.Getenv("STORAGE_EMULATOR_HOST")
	if c.client == nil || c.host != host {
		// The client outlives ctx, and takes its credentials when it is used.
		client, err := newClient(context.WithoutCancel(ctx), host)
		if err != nil {
			return nil, &gsError{fmt.Sprintf("store: %s: no access to Google Cloud Storage: %s; run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS", quote(uri), oneLine(err)), fmt.Errorf("%w: %w", fs.ErrPermission, err)}
		}
		c.client, c.host = client, host
	}
	return newGS(c.client), nil
}

// newClient has the client's own transport, with a bound on waiting.
func newClient(ctx context.Context, emulator string) (*storage.Client, error) {
	access := option.WithScopes(storage.ScopeFullControl, "https://www.googleapis.com/auth/cloud-platform")
	if emulator != "" {
		access = option.WithoutAuthentication()
	}
	web, _, err := htransport.NewClient(ctx, access, internaloption.EnableNewAuthLibrary())
	if err != nil {
		return nil, err
	}
	web.Transport = timeoutTransport{web.Transport, gsIdle}
	return storage.NewClient(ctx, option.WithHTTPClient(web), storage.WithJSONReads(), storage.WithDisabledClientMetrics())
}

// gsIdle is how long storage may be silent.
var gsIdle = time.Minute

// timeoutTransport cancels a request when nothing of its response comes for limit; the
// client then tries again. It leaves a request with a body alone: that is a write, whose
// time timeoutWriter bounds.
type timeoutTransport struct {
	http.RoundTripper
	limit time.Duration
}

func (a timeoutTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		return a.RoundTripper.RoundTrip(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(a.limit, func() { cancel(errTimeout(a.limit)) })
	res, err := a.RoundTripper.RoundTrip(req.WithContext(ctx))
	timer.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, timeoutCause(ctx, err)
	}
	res.Body = &timeoutBody{res.Body, ctx, cancel, timer, a.limit}
	return res, nil
}

// timeoutBody is the body of a response. The time runs while Read waits for a piece of
// it.
type timeoutBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

func (a *timeoutBody) Read(p []byte) (int, error) {
	a.timer.Reset(a.limit)
	n, err := a.ReadCloser.Read(p)
	a.timer.Stop()
	if err != nil && err != io.EOF {
		err = timeoutCause(a.ctx, err)
	}
	return n, err
}

func (a *timeoutBody) Close() error {
	defer a.cancel(nil)
	return a.ReadCloser.Close()
}

// errTimeout is an error that the client and retry take for worth another try.
func errTimeout(limit time.Duration) error {
	return fmt.Errorf("no answer for %v: %w", limit, os.ErrDeadlineExceeded)
}

// timeoutCause is the error that ended ctx where that is errTimeout's, else err.
func timeoutCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, os.ErrDeadlineExceeded) {
		return cause
	}
	return err
}
