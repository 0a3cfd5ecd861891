package store

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
)

// gs is Google Cloud Storage.
type gs struct {
	client   *storage.Client
	attempts int           // of one request, when the answer is 429, 5xx or nothing
	backoff  gax.Backoff   // between them
	idle     time.Duration // how long a write waits for the storage to take a piece, or to answer; timeoutTransport bounds other requests
	renew    time.Duration // of a lock
	stale    time.Duration // when a lock that was not renewed is free
}

func newGS(client *storage.Client) *gs {
	return &gs{
		client:   client,
		attempts: 6,
		backoff:  gax.Backoff{Initial: 250 * time.Millisecond, Max: 16 * time.Second, Multiplier: 2},
		renew:    30 * time.Second,
		stale:    5 * time.Minute,
		idle:     gsIdle,
	}
}

// splitGS splits gs://bucket/object; the object may be empty.
func splitGS(uri string) (bucket, object string, err error) {
	_, rest, _ := strings.Cut(uri, "://")
	bucket, object, _ = strings.Cut(rest, "/")
	if schemeOf(uri) != "gs" || bucket == "" {
		return "", "", fmt.Errorf("store: %s: no bucket in it; give gs://bucket/object", quote(uri))
	}
	if !utf8.ValidString(uri) || len(object) > 1024 || strings.ContainsAny(uri, "\r\n") || object == "." || object == ".." {
		return "", "", fmt.Errorf("store: %s: %w: gs:// takes up to 1,024 bytes of UTF-8 without line ends", quote(uri), ErrName)
	}
	return bucket, object, nil
}

// object returns the handle of a URI that must name an object.
func (g *gs) object(uri string) (*storage.ObjectHandle, error) {
	bucket, object, err := splitGS(uri)
	if err == nil && object == "" {
		err = fmt.Errorf("store: %s: names a bucket; give gs://bucket/object", quote(uri))
	}
	if err != nil {
		return nil, err
	}
	return g.bucket(bucket).Object(object), nil
}

// bucket returns a handle that retries everything: all that this package asks
// for may be asked twice.
func (g *gs) bucket(name string) *storage.BucketHandle {
	return g.client.Bucket(name).Retryer(
		storage.WithPolicy(storage.RetryAlways), storage.WithMaxAttempts(g.attempts), storage.WithBackoff(g.backoff))
}

// gsError is one line for the client's errors, which have many.
type gsError struct {
	text string
	err  error
}

func (e *gsError) Error() string { return e.text }
func (e *gsError) Unwrap() error { return e.err }

// errGS says what a failed request means, and what to do.
func errGS(uri string, err error) error {
	bucket, _, _ := splitGS(uri)
	fail := func(format string, args ...any) error {
		return &gsError{fmt.Sprintf("store: %s: %s", quote(uri), fmt.Sprintf(format, args...)), err}
	}
	switch code := statusOf(err); {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fail("%s", oneLine(err))
	case errors.Is(err, storage.ErrBucketNotExist):
		err = fmt.Errorf("%w: %w: %w", ErrNotExist, ErrNoBucket, err)
		return fail("there is no bucket %s (404); check the name", bucket)
	case errors.Is(err, storage.ErrObjectNotExist) || code == http.StatusNotFound:
		err = fmt.Errorf("%w: %w", ErrNotExist, err)
		return fail("there is no such object, or no bucket %s (404)", bucket)
	case code == http.StatusForbidden: // for a lack of rights, mostly; also for a retention policy, a hold or an unpaid bill
		said := oneLine(err)
		err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
		return fail("permission denied (403); give this account the role Storage Object User on bucket %s, or choose another with GOOGLE_APPLICATION_CREDENTIALS; storage says: %s", bucket, said)
	case code == http.StatusUnauthorized:
		err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
		return fail("not signed in (401); run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS")
	case code == http.StatusPreconditionFailed: // at each of replace's tries
		return fail("others write it at the same time (412); let one run write there at a time")
	case storage.ShouldRetry(err) || errors.Is(err, errIdle) || err == errBroken:
		status := ""
		if code != 0 {
			status = fmt.Sprintf("status %d: ", code)
		}
		return fail("%s%s; storage fails just now, try again later", status, oneLine(err))
	case code != 0:
		return fail("status %d: %s", code, oneLine(err))
	}
	if _, ok := errors.AsType[*auth.Error](err); ok { // the credentials have expired, or were withdrawn
		why := oneLine(err)
		err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
		return fail("not signed in (%s); run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS", why)
	}
	if _, ok := errors.AsType[*url.Error](err); ok { // no answer, and no other try would bring one
		return fail("%s; storage cannot be reached, check the network and its proxy", oneLine(err))
	}
	return fail("%s", oneLine(err))
}

// statusOf is the HTTP status of the client's error, or 0.
func statusOf(err error) int {
	if e, ok := errors.AsType[*googleapi.Error](err); ok {
		return e.Code
	}
	return 0
}

// oneLine shortens an error to one line, without the request's address, which is
// as long as that.
func oneLine(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

func (g *gs) List(ctx context.Context, uri string, fn func(Object) error) error {
	bucket, object, err := splitGS(uri)
	if err != nil {
		return err
	}
	folder := object
	named := object == "" || strings.HasSuffix(object, "/")
	itself := false // and there may be a folder of that name, too
	if !named {
		o, err := g.Stat(ctx, uri)
		switch itself = err == nil; {
		case itself:
			if err := fn(o); err != nil {
				return err
			}
		case !errors.Is(err, ErrNotExist):
			return err
		}
		folder += "/"
	}
	found := object == "" // an empty bucket is a folder
	err = g.pages(ctx, uri, bucket, &storage.Query{Prefix: folder}, func(attrs *storage.ObjectAttrs) error {
		found = true
		if strings.HasSuffix(attrs.Name, "/") {
			return nil // stands for a folder
		}
		o := gsObject(bucket, attrs, true)
		o.Hidden = pattern(nil).hidden(attrs.Name[len(folder):])
		return fn(o)
	})
	switch {
	case itself && !found && errors.Is(err, fs.ErrPermission):
		return nil // who may read an object need not be allowed to list
	case err != nil || found || itself:
		return err
	case named || !hasMeta(object):
		return fmt.Errorf("store: %s: there is no such object or folder: %w", quote(uri), ErrNotExist)
	}
	return g.match(ctx, uri, bucket, parsePattern(object), fn)
}

// match is List of a pattern of objects.
func (g *gs) match(ctx context.Context, uri, bucket string, p pattern, fn func(Object) error) error {
	head := p.literals()
	prefix, _ := p[:head].literalText()
	query := &storage.Query{Prefix: prefix}
	if !p[head:].crossesFolders() {
		query.Delimiter = "/" // only what is in this folder
	}
	found := false
	err := g.pages(ctx, uri, bucket, query, func(attrs *storage.ObjectAttrs) error {
		if attrs.Name == "" || strings.HasSuffix(attrs.Name, "/") || !p.match(attrs.Name) {
			return nil
		}
		found = true
		o := gsObject(bucket, attrs, false)
		o.Hidden = p.hidden(attrs.Name)
		return fn(o)
	})
	if err == nil && !found {
		err = fmt.Errorf("store: %s: nothing matches the pattern: %w", quote(uri), ErrNotExist)
	}
	return err
}

func (g *gs) Stat(ctx context.Context, uri string) (Object, error) {
	o, err := g.object(uri)
	if err != nil {
		return Object{}, err
	}
	attrs, err := o.Attrs(ctx)
	if err != nil {
		return Object{}, errGS(uri, err)
	}
	return gsObject(o.BucketName(), attrs, false), nil
}

// Look is Stat: on gs:// there is nothing but files.
func (g *gs) Look(ctx context.Context, uri string) (Object, error) { return g.Stat(ctx, uri) }

// pages calls fn with each object of a query for uri, page by page.
func (g *gs) pages(ctx context.Context, uri, bucket string, query *storage.Query, fn func(*storage.ObjectAttrs) error) error {
	query.Projection = storage.ProjectionNoACL
	if err := query.SetAttrSelection([]string{"Name", "Size", "Updated"}); err != nil {
		return errGS(uri, err)
	}
	it := g.bucket(bucket).Objects(ctx, query)
	for {
		attrs, err := it.Next()
		if err == iterator.Done {
			return nil
		}
		if err != nil {
			return errGS(uri, err)
		}
		if err := fn(attrs); err != nil {
			return err
		}
	}
}

func gsObject(bucket string, attrs *storage.ObjectAttrs, inFolder bool) Object {
	return Object{Path: "gs://" + bucket + "/" + attrs.Name, Size: attrs.Size, Modified: attrs.Updated, InFolder: inFolder}
}

func (g *gs) Read(ctx context.Context, uri string, limit int64) ([]byte, error) {
	content, _, err := g.read(ctx, uri, limit)
	return content, err
}

// read is Read, and tells of which generation the content is.
func (g *gs) read(ctx context.Context, uri string, limit int64) (content []byte, generation int64, err error) {
	for try := 1; ; try++ {
		content, generation, err = g.readOnce(ctx, uri, limit)
		if !errors.Is(err, ErrChanged) || try == g.attempts {
			return content, generation, err
		}
	}
}

func (g *gs) readOnce(ctx context.Context, uri string, limit int64) (content []byte, generation int64, err error) {
	o, err := g.object(uri)
	if err != nil {
		return nil, 0, err
	}
	r, err := g.open(ctx, o)
	if err != nil {
		return nil, 0, errGS(uri, err)
	}
	defer r.Close()
	size := r.Attrs.Size // -1 where a gzip object is unpacked on the way
	if limit > 0 && size > limit {
		return nil, 0, &TooLarge{uri, size, limit}
	}
	var from io.Reader = r
	if limit > 0 {
		from = io.LimitReader(r, limit+1)
	}
	var b bytes.Buffer
	if size > 0 {
		b.Grow(int(size) + bytes.MinRead)
	}
	_, err = b.ReadFrom(from) // at the end the client compares checksums
	switch {
	case errors.Is(err, storage.ErrObjectNotExist): // the rest of an answer that broke off, of a generation that went meanwhile
		return nil, 0, fmt.Errorf("store: %s: %w", quote(uri), ErrChanged)
	case err != nil:
		return nil, 0, errGS(uri, err)
	}
	if limit > 0 && int64(b.Len()) > limit {
		return nil, 0, &TooLarge{uri, -1, limit}
	}
	return b.Bytes(), r.Attrs.Generation, nil
}

// reader is the client's, which asks for the rest of an answer that breaks off
// without a pause and without end. This one gives up where as many answers in a
// row as a request has tries brought nothing.
type reader struct {
	*storage.Reader
	ctx     context.Context
	cancel  context.CancelCauseFunc
	answers atomic.Int64 // since something came
}

var errBroken = errors.New("one answer after the other broke off")

func (g *gs) open(ctx context.Context, o *storage.ObjectHandle) (*reader, error) {
	r := new(reader)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	var err error
	r.Reader, err = o.NewReader(httptrace.WithClientTrace(r.ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() {
		if r.answers.Add(1) > int64(g.attempts) {
			r.cancel(errBroken)
		}
	}}))
	if err != nil {
		r.cancel(nil)
		return nil, err
	}
	return r, nil
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.answers.Store(0)
	}
	if err != nil && context.Cause(r.ctx) == errBroken {
		err = errBroken
		if r.Attrs.Decompressed {
			err = fmt.Errorf("%w; its Content-Encoding is gzip: see that it unpacks, or store it again without", errBroken)
		}
	}
	return n, err
}

func (r *reader) Close() error {
	r.cancel(nil)
	return r.Reader.Close()
}

func (g *gs) Write(ctx context.Context, uri string, data []byte) error {
	return g.replace(ctx, uri, func(o *storage.ObjectHandle, generation int64) error {
		_, err := g.put(ctx, o, data, generation)
		return err
	})
}

func (g *gs) Add(ctx context.Context, uri string, data []byte) (bool, error) {
	o, err := g.object(uri)
	if err != nil {
		return false, err
	}
	var generation int64 // to replace
	for range g.attempts {
		if _, err = g.put(ctx, o, data, generation); statusOf(err) != http.StatusPreconditionFailed {
			return true, errGS(uri, err)
		}
		content, there, e := g.read(ctx, uri, int64(len(data))+1)
		switch {
		case errors.Is(e, ErrNotExist): // deleted in between
			generation = 0
			continue
		case e != nil && !errors.Is(e, ErrTooLarge):
			return false, e
		}
		if e := taken(uri, data, content, e); e != nil || len(content) == len(data) { // or it is there by a request whose answer was lost
			return false, e
		}
		generation = there
	}
	return false, errGS(uri, err)
}

// Create sends the object in pieces of 16 MiB; it is there when the last one
// is. The client sends a lost piece again; where the last answer is lost, all is
// sent again.
func (g *gs) Create(ctx context.Context, uri string, write func(io.Writer) error) error {
	var failed error // of write, which is no error of the store's
	err := g.replace(ctx, uri, func(o *storage.ObjectHandle, generation int64) error {
		return g.retry(ctx, func() (err error) {
			failed, err = g.createOnce(ctx, o, write, generation)
			return err
		})
	})
	return cmp.Or(failed, err)
}

// errIdle ends a Create, whose pieces the client has tried again all the while.
var errIdle = errors.New("nothing could be sent")

// kindOf is an object's type: a page opens in a browser, all else is bytes, which
// nobody is to change on the way.
func kindOf(name string) string {
	if strings.HasSuffix(name, ".html") {
		return "text/html; charset=utf-8"
	}
	return "application/octet-stream"
}

// createOnce returns an error of write's own as failed, and one of the store's as err.
func (g *gs) createOnce(ctx context.Context, o *storage.ObjectHandle, write func(io.Writer) error, generation int64) (failed, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := o.If(generationIs(generation)).NewWriter(ctx)
	w.ContentType = kindOf(o.ObjectName())
	// The client tries a piece that fails again without end.
	in := timeoutWriter{w, g.idle, func() { cancel(fmt.Errorf("%w for %v", errIdle, g.idle)) }}
	b := bufio.NewWriterSize(in, 64<<10) // a record each would be a timer and a hand-over each
	failed = write(b)
	if _, err = b.Write(nil); err != nil { // which write handed on
		failed = nil
	} else if failed == nil {
		err = b.Flush()
	}
	if e := cmp.Or(failed, err); e != nil {
		cancel(e) // Close alone would store what was sent so far
	}
	err = cmp.Or(err, in.Close())
	switch cause := context.Cause(ctx); {
	case err != nil && errors.Is(cause, errIdle):
		return nil, cause
	case failed != nil:
		return failed, nil
	}
	return nil, err
}

// timeoutWriter writes to w, and calls late where w takes longer than limit over a piece
// or over Close. The time between the calls does not count.
type timeoutWriter struct {
	w     io.WriteCloser
	limit time.Duration
	late  func()
}

func (w timeoutWriter) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, 1<<20) {
		timer := time.AfterFunc(w.limit, w.late)
		some, err := w.w.Write(piece)
		timer.Stop()
		n += some
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (w timeoutWriter) Close() error {
	defer time.AfterFunc(w.limit, w.late).Stop()
	return w.w.Close()
}

// replace has an object written, on condition that it is of the generation that
// was looked at, 0 for none. Most are new; another writer in between means to
// look again.
func (g *gs) replace(ctx context.Context, uri string, write func(o *storage.ObjectHandle, generation int64) error) error {
	o, err := g.object(uri)
	if err != nil {
		return err
	}
	var generation int64
	for range g.attempts {
		err = write(o, generation)
		if statusOf(err) != http.StatusPreconditionFailed {
			break
		}
		attrs, e := o.Attrs(ctx)
		switch {
		case e == nil:
			generation = attrs.Generation
		case errors.Is(e, storage.ErrObjectNotExist):
			generation = 0
		default:
			return errGS(uri, e)
		}
	}
	return errGS(uri, err)
}

func generationIs(generation int64) storage.Conditions {
	return storage.Conditions{GenerationMatch: generation, DoesNotExist: generation == 0}
}

// put writes an object in one request, in place of the given generation, or
// where there is none (0). Trying again after a lost answer may find the
// generation gone, by its own doing: then the status is 412 too.
func (g *gs) put(ctx context.Context, o *storage.ObjectHandle, data []byte, generation int64) (written int64, err error) {
	err = g.retry(ctx, func() (err error) {
		written, err = g.putOnce(ctx, o, data, generation)
		return err
	})
	return written, err
}

// retry calls try, which writes, until it succeeds or fails for good. A write that gets
// status 404 misses the bucket, as the object need not exist.
func (g *gs) retry(ctx context.Context, try func() error) error {
	backoff := g.backoff
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || attempt >= g.attempts || !storage.ShouldRetry(err) {
			if statusOf(err) == http.StatusNotFound {
				err = fmt.Errorf("%w: %w", storage.ErrBucketNotExist, err)
			}
			return err
		}
		if err := gax.Sleep(ctx, backoff.Pause()); err != nil {
			return err
		}
	}
}

func (g *gs) putOnce(ctx context.Context, o *storage.ObjectHandle, data []byte, generation int64) (written int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A handle of its own: o.Retryer would change o's retries, too.
	once := g.client.Bucket(o.BucketName()).Object(o.ObjectName()).Retryer(storage.WithPolicy(storage.RetryNever))
	w := once.If(generationIs(generation)).NewWriter(ctx)
	w.ChunkSize = 0 // one request, which is atomic
	w.ContentType = kindOf(o.ObjectName())
	w.CRC32C, w.SendCRC32C = crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)), true
	in := timeoutWriter{w, g.idle, func() { cancel(errTimeout(g.idle)) }} // which retry then repeats
	if _, err = in.Write(data); err != nil {
		cancel(err) // Close alone would store what was sent so far
	}
	if err = cmp.Or(err, in.Close()); err == nil {
		return w.Attrs().Generation, nil
	}
	return 0, timeoutCause(ctx, err)
}

func (g *gs) Delete(ctx context.Context, uri string) error {
	o, err := g.object(uri)
	if err != nil {
		return err
	}
	if err := o.Delete(ctx); err != nil && !errors.Is(err, storage.ErrObjectNotExist) {
		return errGS(uri, err)
	}
	return nil
}
