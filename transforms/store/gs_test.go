package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/auth"
	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// fakeGS is a stand-in for Cloud Storage that counts requests, pages lists by
// three and fails where a test wants it to.
type fakeGS struct {
	*fakestorage.Server

	mu       sync.Mutex
	requests []string
	sent     int64                     // bytes of bodies
	fault    func(r *http.Request) int // a status instead of an answer; 0 is none
	lose     func(r *http.Request) int // a status after the work was done; 200 cuts the answer short
}

func (f *fakeGS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	fault, lose := f.fault, f.lose
	f.mu.Unlock()
	query := r.URL.Query()
	if strings.HasSuffix(r.URL.Path, "/o") && r.Method == http.MethodGet {
		query.Set("maxResults", "3")
		r.URL.RawQuery = query.Encode()
	}
	fail := func(status int) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":"line 1\nline 2"}}`, status)
	}
	if fault != nil {
		if status := fault(r); status != 0 {
			fail(status)
			return
		}
	}
	if want := query.Get("ifGenerationMatch"); want != "" && r.Method == http.MethodDelete { // which the server lacks
		bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/storage/v1/b/"), "/o/")
		if o, err := f.GetObject(bucket, object); err == nil && strconv.FormatInt(o.Generation, 10) != want {
			fail(http.StatusPreconditionFailed)
			return
		}
	}
	if lose != nil {
		if status := lose(r); status != 0 {
			answer := httptest.NewRecorder()
			f.HTTPHandler().ServeHTTP(answer, r)
			if status == http.StatusOK {
				maps.Copy(w.Header(), answer.Header())
				w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
				w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
				panic(http.ErrAbortHandler)
			}
			fail(status)
			return
		}
	}
	f.HTTPHandler().ServeHTTP(countingWriter{w, f}, r)
}

type countingWriter struct {
	http.ResponseWriter
	f *fakeGS
}

func (w countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.sent += int64(n)
	return n, err
}

// times returns a fault or loss of the first n requests that match.
func times(n, status int, match func(*http.Request) bool) func(*http.Request) int {
	var mu sync.Mutex
	return func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || !match(r) {
			return 0
		}
		n--
		return status
	}
}

func upload(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/upload/") }
func always(*http.Request) bool   { return true }

// set changes what fails, and forgets the requests so far.
func (f *fakeGS) set(fault, lose func(*http.Request) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.lose, f.requests = fault, lose, nil
}

// add makes an object of bucket lab, whose Content-Encoding may be gzip.
func (f *fakeGS) add(name, encoding string, content []byte) {
	f.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "lab", Name: name, ContentEncoding: encoding}, Content: content})
}

func gzipped(content []byte) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(content)
	z.Close()
	return packed.Bytes()
}

func (f *fakeGS) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

// serveGS has a handler stand for Cloud Storage, and returns a Store there.
func serveGS(t *testing.T, handler http.Handler) *gs {
	t.Helper()
	listener := httptest.NewServer(handler)
	t.Cleanup(listener.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(listener.URL, "http://"))
	return storeFor(t, "gs://lab").(*gs)
}

// gsStore starts a stand-in with bucket lab, and returns it and a Store with
// short waits.
func gsStore(t *testing.T) (*fakeGS, *gs) {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		t.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "lab"})
	fake := &fakeGS{Server: server}
	g := serveGS(t, fake)
	g.backoff.Initial, g.backoff.Max = time.Millisecond, 2*time.Millisecond
	return fake, g
}

func TestGSReadWrite(t *testing.T) {
	_, s := gsStore(t)
	testReadWrite(t, s, "gs://lab/base")
}

// A browser shows a page, and saves an object of bytes.
func TestGSKinds(t *testing.T) {
	fake, s := gsStore(t)
	for name, want := range map[string]string{"out/html/n1.txt.html": "text/html; charset=utf-8", "out/n1.txt.ann": "application/octet-stream"} {
		for how, err := range map[string]error{
			"written/": s.Write(t.Context(), "gs://lab/written/"+name, []byte("text")),
			"created/": s.Create(t.Context(), "gs://lab/created/"+name, func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err }),
		} {
			if err != nil {
				t.Fatal(err)
			}
			if o, err := fake.GetObject("lab", how+name); err != nil || o.ContentType != want {
				t.Errorf("%s%s: got %q, want %q (%v)", how, name, o.ContentType, want, err)
			}
		}
	}
}

func TestGSSub(t *testing.T) {
	_, s := gsStore(t)
	testSub(t, s, "gs://lab/base")
	testSub(t, s, "gs://lab/base/")
}

// TestGSSubGzip has a file that is stored as gzip: its size is that of its content.
func TestGSSubGzip(t *testing.T) {
	fake, _ := gsStore(t)
	content := strings.Repeat("content ", 100)
	fake.add("m/x", "gzip", gzipped([]byte(content)))
	fsys, err := Sub(t.Context(), "gs://lab/m")
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(fsys, "x")
	if err != nil || string(data) != content {
		t.Errorf("%q, %v", data, err)
	}
	_, err = Read(t.Context(), "gs://lab/m/x", 100)
	if large, ok := errors.AsType[*TooLarge](err); !ok || large.Size != -1 || large.Limit != 100 {
		t.Errorf("got %v, want TooLarge of unknown size", err)
	}
	wantError(t, err, ErrTooLarge, "gs://lab/m/x: more than 100 bytes, the limit is 100: too large")
	info, err := fs.Stat(fsys, "x")
	if err != nil || info.Size() != int64(len(content)) {
		t.Errorf("%v, %v; want %d bytes", info, err, len(content))
	}
}

// TestGSTooLarge shows that an object over the limit is not fetched.
func TestGSTooLarge(t *testing.T) {
	fake, s := gsStore(t)
	const size = 64 << 20
	fake.add("big", "", make([]byte, size))
	_, err := s.Read(t.Context(), "gs://lab/big", size-1)
	wantError(t, err, ErrTooLarge)
	time.Sleep(10 * time.Millisecond)
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if fake.sent > size/2 {
		t.Errorf("%d bytes were sent", fake.sent)
	}
}

// TestGSTooLargeUnpacked has a small object that unpacks to a large one: no more than
// the limit is taken.
func TestGSTooLargeUnpacked(t *testing.T) {
	fake, s := gsStore(t)
	fake.add("bomb", "gzip", gzipped(make([]byte, 1<<20)))
	_, err := s.Read(t.Context(), "gs://lab/bomb", 1<<20-1)
	wantError(t, err, ErrTooLarge)
	if data, err := s.Read(t.Context(), "gs://lab/bomb", 1<<20); err != nil || len(data) != 1<<20 {
		t.Errorf("at the limit: %d bytes, %v", len(data), err)
	}
}

// TestGSOneClient shows that For makes one client a process.
func TestGSOneClient(t *testing.T) {
	_, g := gsStore(t)
	if storeFor(t, "gs://other/x").(*gs).client != g.client {
		t.Error("a second client")
	}
}

func TestGSNames(t *testing.T) {
	_, s := gsStore(t)
	var want []string
	for _, name := range nasty {
		uri := "gs://lab/in/" + name
		if !utf8.ValidString(name) || strings.ContainsAny(name, "\r\n") {
			wantError(t, s.Write(t.Context(), uri, nil), ErrName, "gs://lab/in/")
			_, err := s.Read(t.Context(), uri, 0)
			wantError(t, err, ErrName)
			wantError(t, s.Delete(t.Context(), uri), ErrName)
			wantError(t, s.List(t.Context(), uri, nil), ErrName)
			continue
		}
		mustWrite(t, s, uri, name)
		wantContent(t, s, uri, name)
		got, objects := list(t, s, uri)
		wantPaths(t, "object", got, []string{uri})
		if objects[0].InFolder {
			t.Errorf("%q was named itself", uri)
		}
		want = append(want, uri)
	}
	slices.Sort(want)
	for _, uri := range []string{"gs://lab/in", "gs://lab/in/", "gs://lab", "gs://lab/"} {
		got, objects := list(t, s, uri)
		wantPaths(t, uri, got, want)
		for _, o := range objects {
			name := strings.TrimPrefix(o.Path, "gs://lab/in/")
			if !o.InFolder || o.Err != nil || o.Size != int64(len(name)) || time.Since(o.Modified) > time.Minute {
				t.Errorf("%+v", o)
			}
		}
	}
	got, _ := list(t, s, "gs://lab/in/*")
	wantPaths(t, "pattern", got, want)
	wantError(t, s.Write(t.Context(), "gs://lab/"+strings.Repeat("n", 1025), nil), ErrName)
	wantError(t, s.Write(t.Context(), "gs://lab", nil), nil, "names a bucket")
	_, err := s.Read(t.Context(), "gs://lab/", 0)
	wantError(t, err, nil, "names a bucket")
}

func TestGSPatterns(t *testing.T) {
	fake, s := gsStore(t)
	for _, name := range []string{"a.txt", "b.txt", "a[1].txt", "a1.txt", "c.ann", "s/d.txt", "s/t/e.txt", "f[2]/f.txt", "f2/g.txt", "x//y.txt", "placeholder/"} {
		fake.add("p/"+name, "", []byte(name))
	}
	tests := []struct {
		pattern string
		want    []string
	}{
		{"*.txt", []string{"a.txt", "a1.txt", "a[1].txt", "b.txt"}},
		{"a[1].txt", []string{"a[1].txt"}}, // exists by that name
		{"[ab].txt", []string{"a.txt", "b.txt"}},
		{"**/*.txt", []string{"a.txt", "a1.txt", "a[1].txt", "b.txt", "f2/g.txt", "f[2]/f.txt", "s/d.txt", "s/t/e.txt", "x//y.txt"}},
		{"s/**", []string{"s/d.txt", "s/t/e.txt"}},
		{"s/**/e.txt", []string{"s/t/e.txt"}},
		{"*/*.txt", []string{"f2/g.txt", "f[2]/f.txt", "s/d.txt"}},
		{"f[2]", []string{"f[2]/f.txt"}}, // the folder exists by that name
		{"f[23]/*", []string{"f2/g.txt"}},
		{`a\[1].txt`, []string{"a[1].txt"}},
		{"x", []string{"x//y.txt"}},
	}
	for _, test := range tests {
		got, _ := list(t, s, "gs://lab/p/"+test.pattern)
		wantPaths(t, test.pattern, got, in("gs://lab/p", test.want...))
	}
	for _, none := range []string{"*.pdf", "none/*.txt", "s/*/*/*", "?"} {
		err := s.List(t.Context(), "gs://lab/p/"+none, func(o Object) error { t.Errorf("%s found %s", none, o.Path); return nil })
		wantError(t, err, ErrNotExist, "gs://lab/p/"+none, "nothing matches")
	}
	wantError(t, s.List(t.Context(), "gs://lab/none", nil), ErrNotExist, "gs://lab/none: there is no such object or folder")
	wantError(t, s.List(t.Context(), "gs://none", nil), ErrNotExist, "no bucket none (404)")
	if err := s.List(t.Context(), "gs://lab/p/placeholder/", nil); err != nil {
		t.Errorf("empty folder: %v", err)
	}

	for _, name := range []string{".b.txt", ".git/c.txt"} {
		fake.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "other", Name: "h/" + name}})
	}
	for uri, want := range map[string]int{"h": 2, "h/.git": 0, "h/.b.txt": 0, "h/**": 2, "h/**/.*.txt": 0, "h/.*/*.txt": 0} {
		hidden := 0
		if err := s.List(t.Context(), "gs://other/"+uri, func(o Object) error {
			if o.Hidden {
				hidden++
			}
			return nil
		}); err != nil || hidden != want {
			t.Errorf("%s: %d hidden, %v, want %d", uri, hidden, err, want)
		}
	}

	// One name is an object's and a folder's; who may not list gets the object.
	for _, name := range []string{"both", "both/a.txt", "both/", "both2"} {
		fake.add(name, "", nil)
	}
	both, objects := list(t, s, "gs://lab/both")
	wantPaths(t, "both", both, []string{"gs://lab/both", "gs://lab/both/a.txt"})
	if len(objects) == 2 && (objects[0].InFolder || !objects[1].InFolder) {
		t.Errorf("%+v", objects)
	}
	fake.set(times(1e9, 403, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/o") }), nil)
	both, _ = list(t, s, "gs://lab/both")
	wantPaths(t, "without listing", both, []string{"gs://lab/both"})

	// A pattern of one folder does not list those below it.
	for i := range 100 {
		fake.add(fmt.Sprintf("p/deep/%d", i), "", nil)
	}
	fake.set(nil, nil)
	got, _ := list(t, s, "gs://lab/p/*.txt")
	if n := fake.count(); len(got) != 4 || n > 10 {
		t.Errorf("%d requests for %q, want at most 10", n, got)
	}
	// Pages come as they are wanted.
	fake.set(nil, nil)
	enough := errors.New("enough")
	if err := s.List(t.Context(), "gs://lab/p/deep/", func(Object) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want fn's error", err)
	}
	if got := fake.count(); got != 1 {
		t.Errorf("%d requests for one object, want 1", got)
	}
}

func TestGSRetries(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/x.txt"
	for _, status := range []int{429, 500, 503} {
		fake.set(times(3, status, always), nil)
		mustWrite(t, s, uri, "text")
		fake.set(times(3, status, always), nil)
		wantContent(t, s, uri, "text")
		fake.set(times(3, status, always), nil)
		if got, _ := list(t, s, "gs://lab/*"); len(got) != 1 {
			t.Errorf("status %d: listed %q", status, got)
		}
		fake.set(times(3, status, always), nil)
		if err := s.Delete(t.Context(), uri); err != nil {
			t.Errorf("status %d: Delete: %v", status, err)
		}
	}
	fake.set(times(1e9, 503, always), nil)
	wantError(t, s.Write(t.Context(), uri, nil), nil, uri+": status 503: ", "; storage fails just now, try again later")
	if got := fake.count(); got != s.attempts {
		t.Errorf("%d requests, want %d", got, s.attempts)
	}
	_, err := s.Read(t.Context(), uri, 0)
	wantError(t, err, nil, uri+": status 503: ")
	wantError(t, s.List(t.Context(), uri, nil), nil, uri+": status 503: ")
	wantError(t, s.Delete(t.Context(), uri), nil, uri+": status 503: ")
	fake.set(func(*http.Request) int { panic(http.ErrAbortHandler) }, nil)
	for _, err := range []error{s.Write(t.Context(), uri, nil), s.Delete(t.Context(), uri), s.List(t.Context(), uri, nil)} {
		wantError(t, err, nil, uri+": ", "EOF; storage fails just now, try again later")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.attempts = 1e6
	if err := s.Write(ctx, uri, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// slowWriter takes some time over each write and its end.
type slowWriter struct{ takes time.Duration }

func (w slowWriter) Write(p []byte) (int, error) { time.Sleep(w.takes); return len(p), nil }
func (w slowWriter) Close() error                { time.Sleep(w.takes); return nil }

// TestTimeoutWriter has a minute for each piece: what is slow to come, and what has many
// pieces, is not late.
func TestTimeoutWriter(t *testing.T) {
	for takes, wantLate := range map[time.Duration]int64{50 * time.Second: 0, 70 * time.Second: 5} {
		synctest.Test(t, func(t *testing.T) {
			var late atomic.Int64
			w := timeoutWriter{slowWriter{takes}, time.Minute, func() { late.Add(1) }}
			for _, size := range []int{0, 1, 2<<20 + 1} {
				time.Sleep(time.Hour)
				if n, err := w.Write(make([]byte, size)); n != size || err != nil {
					t.Errorf("%d of %d bytes, %v", n, size, err)
				}
			}
			time.Sleep(time.Hour)
			w.Close()
			time.Sleep(time.Hour)
			if got := late.Load(); got != wantLate {
				t.Errorf("pieces of %v: %d were late, want %d", takes, got, wantLate)
			}
		})
	}
}

// TestGSCreateEnds has storage that takes nothing any more: the client would try
// again without end.
func TestGSCreateEnds(t *testing.T) {
	fake, s := gsStore(t)
	s.idle = 300 * time.Millisecond
	for _, pieces := range []int{1, 3} {
		fake.set(times(1e9, 503, always), nil)
		err := s.Create(t.Context(), "gs://lab/x.txt", func(w io.Writer) error {
			for range pieces {
				if _, err := w.Write(make([]byte, 10<<20)); err != nil {
					return err
				}
			}
			return nil
		})
		wantError(t, err, nil, "gs://lab/x.txt: ", "; storage fails just now, try again later")
	}
	s.idle = time.Minute
	// All is stored, and its answer cut short: it is sent again.
	fake.set(nil, times(1, http.StatusOK, upload))
	if err := s.Create(t.Context(), "gs://lab/y.txt", func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err }); err != nil {
		t.Errorf("after an answer cut short: %v", err)
	}
	wantContent(t, s, "gs://lab/y.txt", "text")
	fake.set(nil, nil)
	// What writes fails, be it for a lack of storage: it has had its own tries, and fails once.
	for _, want := range []error{errors.New("no more"), io.ErrUnexpectedEOF} {
		calls := 0
		err := s.Create(t.Context(), "gs://lab/x.txt", func(io.Writer) error { calls++; return want })
		if err != want || calls != 1 {
			t.Errorf("%v after %d calls, want %v after 1, the error of what writes", err, calls, want)
		}
	}
	for _, pieces := range []int{1, 3} {
		fake.set(times(1e9, 403, always), nil)
		err := s.Create(t.Context(), "gs://lab/x.txt", func(w io.Writer) error {
			for range pieces {
				if _, err := w.Write(make([]byte, 10<<20)); err != nil {
					return fmt.Errorf("stopped: %w", err)
				}
			}
			return nil
		})
		wantError(t, err, fs.ErrPermission, "store: gs://lab/x.txt: permission denied (403)")
	}
}

func TestGSWrite(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/out/x.txt"
	mustWrite(t, s, uri, "one")
	if got := fake.count(); got != 1 {
		t.Errorf("%d requests for a new object, want 1", got)
	}
	// The answer is lost, not the request: the second try finds its own work.
	fake.set(nil, times(1, 503, upload))
	mustWrite(t, s, uri, "two")
	wantContent(t, s, uri, "two")
	fake.set(nil, times(1, 503, upload))
	mustWrite(t, s, "gs://lab/out/new.txt", "new")
	wantContent(t, s, "gs://lab/out/new.txt", "new")
	// And what it has to find out then is asked again, too.
	fake.set(times(2, 503, func(r *http.Request) bool { return r.Method == http.MethodGet }), times(1, 503, upload))
	mustWrite(t, s, uri, "three")
	wantContent(t, s, uri, "three")
	// Another writer comes in between, once and each time.
	meddle := func(r *http.Request) bool {
		if upload(r) && r.URL.Query().Get("ifGenerationMatch") != "0" {
			fake.add("out/x.txt", "", []byte("theirs"))
			return true
		}
		return false
	}
	fake.set(times(1, 0, meddle), nil)
	mustWrite(t, s, uri, "mine")
	wantContent(t, s, uri, "mine")
	fake.set(times(1e9, 0, meddle), nil)
	wantError(t, s.Write(t.Context(), uri, []byte("mine")), nil, uri+": others write it at the same time (412); ")
	fake.set(nil, nil)

	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			if err := s.Write(t.Context(), "gs://lab/out/race.txt", []byte(strconv.Itoa(i))); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
}

func TestGSAdd(t *testing.T) {
	fake, s := gsStore(t)
	add := func(uri, text string) {
		t.Helper()
		if _, err := s.Add(t.Context(), uri, []byte(text)); err != nil {
			t.Error(err)
		}
		wantContent(t, s, uri, text)
	}
	if _, err := s.Add(t.Context(), "gs://lab/x.txt", []byte("one")); err != nil || fake.count() != 1 {
		t.Errorf("%v, %d requests for a new object, want 1", err, fake.count())
	}
	// The answer is lost, not the request: the second try finds its own work.
	fake.set(nil, times(1, 503, upload))
	add("gs://lab/new.txt", "new")
	// Another deletes it in between.
	mustWrite(t, s, "gs://lab/x.txt", "two")
	var once sync.Once
	fake.set(func(r *http.Request) int {
		if r.Method == http.MethodGet {
			once.Do(func() {
				if err := s.Delete(t.Context(), "gs://lab/x.txt"); err != nil {
					t.Error(err)
				}
			})
		}
		return 0
	}, nil)
	add("gs://lab/x.txt", "one")
	// So it does, or the beginning was there, and a third one comes before the next write.
	for _, there := range []string{"two", "o"} {
		mustWrite(t, s, "gs://lab/x.txt", there)
		uploads := 0
		fake.set(func(r *http.Request) int {
			switch {
			case upload(r):
				if uploads++; uploads == 2 {
					fake.add("x.txt", "", []byte("theirs"))
				}
			case there == "two" && uploads == 1 && r.Method == http.MethodGet:
				if err := s.Delete(t.Context(), "gs://lab/x.txt"); err != nil {
					t.Error(err)
				}
			}
			return 0
		}, nil)
		_, err := s.Add(t.Context(), "gs://lab/x.txt", []byte("one"))
		wantError(t, err, ErrTaken, "gs://lab/x.txt")
		wantContent(t, s, "gs://lab/x.txt", "theirs")
	}
}

// TestGSWriteUnanswered has uploads that come and are never answered: the first,
// and then all.
func TestGSWriteUnanswered(t *testing.T) {
	fake, s := gsStore(t)
	s.idle = 100 * time.Millisecond
	over := make(chan struct{})
	defer close(over)
	unanswered := func(n int) func(*http.Request) int {
		hang := times(n, 1, upload)
		return func(r *http.Request) int {
			if hang(r) != 0 {
				io.Copy(io.Discard, r.Body)
				select {
				case <-r.Context().Done():
				case <-over:
				}
				panic(http.ErrAbortHandler)
			}
			return 0
		}
	}
	fake.set(unanswered(1), nil)
	attempts := s.attempts
	s.attempts = 1e6 // whatever holds this machine up
	done := make(chan error, 1)
	go func() { done <- s.Write(t.Context(), "gs://lab/x.txt", []byte("text")) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("Write waits for an answer without end")
	}
	wantContent(t, s, "gs://lab/x.txt", "text")
	fake.set(unanswered(1e9), nil)
	s.idle, s.attempts = time.Second, attempts // none is to be given up before it comes
	wantError(t, s.Write(t.Context(), "gs://lab/x.txt", nil), nil, "gs://lab/x.txt: no answer for 1s: ", "; storage fails just now, try again later")
	if got := fake.count(); got != s.attempts {
		t.Errorf("%d requests, want %d", got, s.attempts)
	}
}

// TestGSUnanswered has requests that come and are never answered, and answers of
// which nothing more comes: the first, and then all. What comes slowly is waited for.
func TestGSUnanswered(t *testing.T) {
	const idle = 200 * time.Millisecond
	before := gsIdle
	defer func() { gsIdle = before }()
	gsIdle = idle
	fake, s := gsStore(t)
	uri := "gs://lab/x.txt"
	over := make(chan struct{})
	var silent, begin, slow, pause atomic.Int64 // requests to come; bytes before the silence, -1 without headers; pieces of an answer, ns between them
	mustWrite(t, s, uri, strings.Repeat("content ", 100))
	g := serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hang := silent.Add(-1) >= 0
		if !hang || begin.Load() >= 0 {
			answer := httptest.NewRecorder()
			fake.ServeHTTP(answer, r)
			maps.Copy(w.Header(), answer.Header())
			w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
			w.WriteHeader(answer.Code)
			w.(http.Flusher).Flush()
			rest := answer.Body.Bytes()
			if hang {
				rest = rest[:begin.Load()]
			}
			for n := len(rest)/int(slow.Load()) + 1; len(rest) > n; rest = rest[n:] {
				w.Write(rest[:n])
				w.(http.Flusher).Flush()
				time.Sleep(time.Duration(pause.Load()))
			}
			w.Write(rest)
			w.(http.Flusher).Flush()
		}
		if hang {
			select {
			case <-r.Context().Done():
			case <-over:
			}
			panic(http.ErrAbortHandler)
		}
	}))
	defer close(over)
	g.backoff = s.backoff
	calls := map[string]func() error{
		"Read":   func() error { _, err := g.Read(t.Context(), uri, 0); return err },
		"Stat":   func() error { _, err := g.Stat(t.Context(), uri); return err },
		"List":   func() error { return g.List(t.Context(), "gs://lab/", func(Object) error { return nil }) },
		"Delete": func() error { return g.Delete(t.Context(), "gs://lab/none") },
	}
	call := func(name string) error {
		done := make(chan error, 1)
		go func() { done <- calls[name]() }()
		select {
		case err := <-done:
			return err
		case <-time.After(5 * time.Minute):
			t.Fatalf("%s waits for an answer without end", name)
			return nil
		}
	}
	for name := range calls {
		slow.Store(1)
		for n := range int64(3) {
			if begin.Store(n - 1); n > 0 && name == "Delete" {
				break // its answer is empty
			}
			silent.Store(1)
			g.attempts = 1e6 // whatever holds this machine up
			if err := call(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n == 2 {
				break // always some more
			}
			silent.Store(1e9)
			g.attempts = 3
			want := "no answer for 200ms: i/o timeout"
			if name == "Read" && n == 1 {
				want = errBroken.Error()
			}
			wantError(t, call(name), nil, "gs://lab/", ": "+want+"; storage fails just now, try again later")
		}
		silent.Store(0)
		slow.Store(10)
		// Ten pauses of a quarter are longer than storage may be silent. Where this
		// machine stands still for as long, storage may be silent for longer.
		one := g
		for gsIdle = idle; ; gsIdle *= 4 {
			client, err := newClient(t.Context(), os.Getenv("STORAGE_EMULATOR_HOST"))
			if err != nil {
				t.Fatal(err)
			}
			g = newGS(client)
			g.attempts = 1
			pause.Store(int64(gsIdle / 4))
			if err = call(name); err == nil {
				break
			}
			if gsIdle > 10*time.Second {
				t.Errorf("%s of a slow answer: %v", name, err)
				break
			}
		}
		g = one
	}
}

// TestGSWriteAborted cancels an upload in its middle: nothing may be there.
func TestGSWriteAborted(t *testing.T) {
	fake, s := gsStore(t)
	for _, before := range []string{"", "before"} {
		uri := "gs://lab/x.txt"
		if before != "" {
			mustWrite(t, s, uri, before)
		}
		ctx, cancel := context.WithCancel(t.Context())
		fake.set(func(r *http.Request) int {
			if upload(r) {
				io.CopyN(io.Discard, r.Body, 1<<20) // of more
				cancel()
			}
			return 0
		}, nil)
		if err := s.Write(ctx, uri, make([]byte, 16<<20)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		fake.set(nil, nil)
		time.Sleep(20 * time.Millisecond)
		got, err := s.Read(t.Context(), uri, 0)
		if before == "" && !errors.Is(err, ErrNotExist) || before != "" && string(got) != before {
			t.Errorf("%d bytes, %v after an aborted upload; want %q", len(got), err, before)
		}
	}
}

// TestGSChecksum has bytes change on their way, with their number unchanged.
func TestGSChecksum(t *testing.T) {
	fake, s := gsStore(t)
	mustWrite(t, s, "gs://lab/x", "content")
	other := serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		fake.HTTPHandler().ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		w.Write(bytes.Replace(answer.Body.Bytes(), []byte("content"), []byte("c0ntent"), 1))
	}))
	data, err := other.Read(t.Context(), "gs://lab/x", 0)
	wantError(t, err, nil, "gs://lab/x", "CRC")
	if len(data) > 0 {
		t.Errorf("it returned %q", data)
	}
}

// TestGSBroken has answers that break off, and gzip that is none: the client asks
// for the rest without a pause and without end.
func TestGSBroken(t *testing.T) {
	fake, s := gsStore(t)
	fake.add("z", "gzip", []byte("no gzip"))
	_, err := s.Read(t.Context(), "gs://lab/z", 0)
	wantError(t, err, nil, "gs://lab/z: ", "its Content-Encoding is gzip")
	if got := fake.count(); got > s.attempts+1 {
		t.Errorf("%d requests", got)
	}
	mustWrite(t, s, "gs://lab/x", "content")
	var brings atomic.Int64 // bytes of each answer
	other := serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(brings.Load())
		answer := httptest.NewRecorder()
		fake.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()[:n])
		w.(http.Flusher).Flush()
		if n < answer.Body.Len() {
			panic(http.ErrAbortHandler)
		}
	}))
	fake.set(nil, nil)
	_, err = other.Read(t.Context(), "gs://lab/x", 0)
	wantError(t, err, nil, "gs://lab/x: one answer after the other broke off; storage fails just now, try again later")
	if got := fake.count(); got > s.attempts+1 {
		t.Errorf("%d requests", got)
	}
	brings.Store(1)
	wantContent(t, other, "gs://lab/x", "content")
	// Another takes its place before the rest is asked for.
	var once sync.Once
	fake.set(func(r *http.Request) int {
		if r.URL.Query().Has("generation") {
			once.Do(func() { fake.add("x", "", []byte("theirs")) })
		}
		return 0
	}, nil)
	wantContent(t, other, "gs://lab/x", "theirs")
}

func TestGSErrors(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/x.txt"
	all := func(t *testing.T, sentinel error, want string) {
		t.Helper()
		_, err := s.Read(t.Context(), uri, 0)
		wantError(t, err, sentinel, uri, want)
		wantError(t, s.List(t.Context(), uri, nil), sentinel, uri, want)
		wantError(t, s.List(t.Context(), uri+"/", nil), sentinel, uri, want)
		wantError(t, s.Write(t.Context(), uri, nil), sentinel, uri, want)
		wantError(t, s.Delete(t.Context(), uri), sentinel, uri, want)
		_, err = s.Lock(t.Context(), uri)
		wantError(t, err, sentinel, uri, want)
		fsys, err := Sub(t.Context(), uri)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = fs.ReadFile(fsys, "config.json")
		wantError(t, err, sentinel, uri+"/config.json", want)
	}
	fake.set(times(1e9, 403, always), nil)
	all(t, fs.ErrPermission, "permission denied (403); give this account the role Storage Object User on bucket lab")
	if got := fake.count(); got != 7 {
		t.Errorf("%d requests, want 7: 403 is not tried again", got)
	}
	all(t, fs.ErrPermission, ", or choose another with GOOGLE_APPLICATION_CREDENTIALS; storage says: googleapi: ") // of a retention policy, say
	fake.set(times(1e9, 401, always), nil)
	all(t, fs.ErrPermission, "not signed in (401)")
	fake.set(times(1e9, 400, always), nil)
	all(t, nil, "status 400: ")
	fake.set(nil, nil)

	late := net.Dialer{Deadline: time.Now().Add(-time.Second)}
	_, err := late.Dial("tcp", "127.0.0.1:1")
	wantError(t, errGS(uri, &url.Error{Op: "Post", URL: "x", Err: err}), context.DeadlineExceeded, uri+": ", "i/o timeout; storage fails just now, try again later")

	nowhere := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}}
	wantError(t, errGS(uri, &url.Error{Op: "Post", URL: "x", Err: nowhere}), nil, uri+": dial: lookup x: no such host; storage cannot be reached, check the network and its proxy")

	revoked := &auth.Error{Response: &http.Response{StatusCode: 400}, Body: []byte(`{"error":"invalid_grant"}`)}
	wantError(t, errGS(uri, &url.Error{Op: "Get", URL: "x", Err: revoked}), fs.ErrPermission, uri+": not signed in (auth: cannot fetch token: 400 Response: ", "run `gcloud auth application-default login`")

	_, err = s.Read(t.Context(), "gs://lab/none", 0)
	wantError(t, err, ErrNotExist, "gs://lab/none: there is no such object, or no bucket lab (404)")
	for _, err := range []error{
		s.Write(t.Context(), "gs://none/x", nil),
		s.Create(t.Context(), "gs://none/x", func(io.Writer) error { return nil }),
		s.List(t.Context(), "gs://none/x", nil),
	} {
		wantError(t, err, ErrNotExist, "gs://none/x: there is no bucket none (404); check the name")
		wantError(t, err, ErrNoBucket)
	}
}

func TestGSNoCredentials(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", t.TempDir()+"/none.json")
	os.Unsetenv("STORAGE_EMULATOR_HOST")
	_, err := For(t.Context(), "gs://lab/x")
	wantError(t, err, fs.ErrPermission, "gs://lab/x: no access to Google Cloud Storage", "gcloud auth application-default login")
}

func TestGSLock(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/out/_lock"
	unlock := locked(t, s, uri)
	_, err := s.Lock(t.Context(), uri)
	wantError(t, err, ErrLocked, uri, "process "+strconv.Itoa(os.Getpid())+" on ")
	for range 2 {
		if err := unlock(); err != nil {
			t.Errorf("unlock: %v", err)
		}
	}
	if _, err := s.Read(t.Context(), uri, 0); !errors.Is(err, ErrNotExist) {
		t.Errorf("after unlock: %v", err)
	}
	// A lost answer is no lock of another's.
	fake.set(nil, times(1, 503, upload))
	unlock = locked(t, s, uri)
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestGSLockRenews(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/_lock"
	s.renew = 2 * time.Millisecond
	unlock := locked(t, s, uri)
	renewed := func() {
		t.Helper()
		generations := make(map[int64]bool)
		for begin := time.Now(); len(generations) < 4; time.Sleep(time.Millisecond) {
			o, err := fake.GetObject("lab", "_lock")
			if err != nil {
				t.Fatal(err)
			}
			generations[o.Generation] = true
			if time.Since(begin) > time.Minute {
				t.Fatal("the lock is not renewed")
			}
		}
	}
	renewed()
	fake.set(nil, times(3, 503, upload)) // lost answers
	renewed()
	fake.set(times(20, 503, upload), nil) // storage is away for some ticks
	renewed()
	if err := unlock(); err != nil {
		t.Error(err)
	}
	// A request under way may still arrive, but then there is none.
	for begin, n := time.Now(), -1; fake.count() != n; time.Sleep(50 * s.renew) {
		n = fake.count()
		if time.Since(begin) > time.Minute {
			t.Fatal("renewed after unlock")
		}
	}
}

// lockOf makes a lock that another process took or renewed so long ago.
func lockOf(fake *fakeGS, holder string, ago time.Duration) {
	fake.CreateObject(fakestorage.Object{
		ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "lab", Name: "_lock", Updated: time.Now().Add(-ago)},
		Content:     []byte(holder + "\n"),
	})
}

func TestGSLockStale(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/_lock"
	lockOf(fake, "process 1 on elsewhere", 4*time.Minute)
	_, err := s.Lock(t.Context(), uri)
	wantError(t, err, ErrLocked, "process 1 on elsewhere", "after a kill it is free in 5 minutes")

	// Many take a stale lock: one gets it.
	lockOf(fake, "process 1 on elsewhere", 6*time.Minute)
	var mu sync.Mutex
	var unlocks []func() error
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			unlock, err := s.Lock(t.Context(), uri)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				unlocks = append(unlocks, unlock)
			} else if !errors.Is(err, ErrLocked) {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if len(unlocks) != 1 {
		t.Fatalf("%d got the lock, want 1", len(unlocks))
	}
	if err := unlocks[0](); err != nil {
		t.Error(err)
	}
}

// TestGSLockClock has storage and this machine differ by 10 minutes: a lock's age is that
// by storage's clock.
func TestGSLockClock(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		fake, _ := gsStore(t)
		s := serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			fake.ServeHTTP(w, r)
		}))
		uri := "gs://lab/_lock"
		lockOf(fake, "process 1 on elsewhere", 4*time.Minute-ahead)
		_, err := s.Lock(t.Context(), uri)
		wantError(t, err, ErrLocked, "process 1 on elsewhere")
		lockOf(fake, "process 1 on elsewhere", 6*time.Minute-ahead)
		if err := locked(t, s, uri)(); err != nil {
			t.Error(err)
		}
	}
}

// TestGSLockRenewedUnheard releases a lock that was renewed by a request whose answer
// came too late: it is this run's still, and goes.
func TestGSLockRenewedUnheard(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/_lock"
	s.renew = time.Hour
	unlock := locked(t, s, uri)
	content, err := s.Read(t.Context(), uri, 0)
	if err != nil {
		t.Fatal(err)
	}
	lockOf(fake, strings.TrimSuffix(string(content), "\n"), 0)
	fake.set(nil, times(1, 503, func(r *http.Request) bool { return r.Method == http.MethodDelete })) // and that answer is lost, too
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(t.Context(), uri, 0); !errors.Is(err, ErrNotExist) {
		t.Errorf("after unlock: %v", err)
	}
}

// TestGSLockLost takes a lock by force: its holder hears of it at the end, and
// leaves the new one alone.
func TestGSLockLost(t *testing.T) {
	fake, s := gsStore(t)
	uri := "gs://lab/_lock"
	// A lost answer to the last request, which removes it, tells of nobody else.
	s.renew = time.Hour
	unlock := locked(t, s, uri)
	if err := s.Delete(t.Context(), uri); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	for _, s.renew = range []time.Duration{time.Millisecond, time.Hour} {
		unlock := locked(t, s, uri)
		lockOf(fake, "process 2 on elsewhere", 0)
		time.Sleep(20 * time.Millisecond)
		wantError(t, unlock(), ErrLost, uri)
		wantContent(t, s, uri, "process 2 on elsewhere\n")
		if err := s.Delete(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
	}
}
