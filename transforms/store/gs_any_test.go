package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"pgregory.net/rapid"
)

// TestGSAny has several programs at work on a few objects at once. Chance says whose request
// comes next and what becomes of it: it is refused, done and not answered, answered in part
// or wrongly, or its caller gives up. What a call says must be true of what stood there
// meanwhile, and it changes nothing but what it may.
func TestGSAny(t *testing.T) {
	fake, _ := gsStore(t)
	programs := make([]*program, 3)
	for i := range programs {
		p := &program{requests: make(chan request), over: make(chan struct{})}
		p.gs = serveGS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // or nobody notices that the caller goes
			r.Body = io.NopCloser(bytes.NewReader(body))
			answer := make(chan func(http.ResponseWriter), 1)
			select {
			case p.requests <- request{r, answer}:
				select {
				case f := <-answer:
					f(w)
				case <-r.Context().Done():
				}
			case <-r.Context().Done():
			}
		}))
		p.gs.attempts, p.gs.renew = 4, time.Hour
		p.gs.backoff.Initial, p.gs.backoff.Max = time.Microsecond, time.Microsecond
		programs[i] = p
	}
	buckets := 0
	rapid.Check(t, func(t *rapid.T) {
		buckets++
		s := &storm{T: t, fake: fake, bucket: fmt.Sprint("b", buckets), states: []map[string]held{{}}, tasks: []string{"lock", "lock", "lock", "die"}}
		if rapid.IntRange(0, 3).Draw(t, "texts") > 0 {
			s.tasks = []string{"write", "write", "add", "add", "add", "read", "read", "read", "create", "fail", "delete", "delete", "stat", "list"}
		}
		fake.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: s.bucket})
		ctx, end := context.WithCancel(t.Context())
		for _, p := range programs {
			p.task, p.lock = nil, nil
		}
		defer func() {
			end()
			for _, p := range programs {
				if p.task != nil {
					<-p.over
				}
			}
		}()
		for step, busy := 0, 0; step < 80 || busy > 0; step++ {
			p := programs[rapid.IntRange(0, len(programs)-1).Draw(t, "program")]
			switch {
			case p.task != nil:
				s.serve(p)
			case step >= 80 || !s.begin(ctx, p):
				continue
			default:
				busy++
			}
			select {
			case p.task.request = <-p.requests:
			case <-p.over:
				done := p.task
				p.task = nil
				busy--
				s.check(p, done)
			case <-time.After(time.Minute):
				t.Fatalf("%s hangs", p.task.what)
			}
		}
	})
}

// program does one task at a time.
type program struct {
	gs       *gs
	requests chan request
	over     chan struct{} // a task is
	task     *task
	lock     *task // that took the lock
}

type request struct {
	*http.Request
	answer chan func(http.ResponseWriter)
}

// task is a call of the store.
type task struct {
	request                // the one that waits
	what, name, uri, data  string
	limit, from, faults    int    // from is the state at its begin
	dead                   string // the lock that was free then
	giveUp                 func()
	gaveUp, cheated, added bool
	did                    []held // what it made of the object
	err                    error
	unlock                 func() error
	ok                     func(held) bool // where this stood there meanwhile, it says what is so
}

// held is what stands at a name, or nothing.
type held struct {
	content    string
	generation int64
}

// storm is a bucket.
type storm struct {
	*rapid.T
	fake   *fakeGS
	bucket string
	tasks  []string          // to choose from
	states []map[string]held // by name, after each change
	dead   string            // content of the lock whose program died
}

var errOwn = errors.New("no more")

func (s *storm) now(name string) held { return s.states[len(s.states)-1][name] }

// begin has p begin a task, or die and leave its lock.
func (s *storm) begin(ctx context.Context, p *program) bool {
	what := rapid.SampledFrom(s.tasks).Draw(s.T, "what")
	t := &task{what: what, name: rapid.SampledFrom([]string{"a b.txt", "#1?%41.txt"}).Draw(s.T, "name"), from: len(s.states) - 1, dead: s.dead}
	t.data = strings.Repeat(fmt.Sprintf("%04d ", t.from), rapid.IntRange(0, 4).Draw(s.T, "size"))
	t.limit = rapid.SampledFrom([]int{0, 10, 100}).Draw(s.T, "limit")
	if what == "add" && t.limit > 0 { // to what is there, or that
		t.data = s.now(t.name).content + t.data[:len(t.data)*t.limit/100]
	}
	switch {
	case what == "lock" && p.lock != nil:
		t.name, t.what = "_lock", "unlock"
	case what == "lock":
		t.name = "_lock"
	case what == "die" && p.lock != nil:
		o, err := s.fake.GetObject(s.bucket, "_lock")
		if err != nil {
			s.Fatal(err)
		}
		o.Updated = time.Now().Add(-time.Hour)
		s.fake.CreateObject(o)
		s.dead, p.lock = string(o.Content), nil
		return false
	case what == "die":
		return false
	}
	folder := "gs://" + s.bucket + "/"
	t.uri = folder + t.name
	ctx, t.giveUp = context.WithCancel(ctx)
	t.ok = func(held) bool { return len(t.did) > 0 }
	p.task = t
	go func() {
		switch t.what {
		case "write":
			t.err = p.gs.Write(ctx, t.uri, []byte(t.data))
		case "add":
			if t.added, t.err = p.gs.Add(ctx, t.uri, []byte(t.data)); !t.added {
				t.ok = func(h held) bool { return h.generation != 0 && h.content == t.data }
			}
		case "create", "fail":
			t.err = p.gs.Create(ctx, t.uri, func(w io.Writer) error {
				_, err := io.WriteString(w, t.data)
				if err == nil && t.what == "fail" {
					err = errOwn
				}
				return err
			})
		case "read":
			var got []byte
			got, t.err = p.gs.Read(ctx, t.uri, int64(t.limit))
			t.ok = func(h held) bool { return h.generation != 0 && h.content == string(got) }
		case "stat":
			var o Object
			o, t.err = p.gs.Stat(ctx, t.uri)
			t.ok = func(h held) bool { return h.generation != 0 && int64(len(h.content)) == o.Size }
		case "delete":
			t.err = p.gs.Delete(ctx, t.uri)
			t.ok = func(h held) bool { return h == held{} }
		case "list":
			sizes := map[string]int64{}
			t.err = p.gs.List(ctx, folder, func(o Object) error { sizes[o.Path] = o.Size; return nil })
			size, listed := sizes[t.uri]
			t.ok = func(h held) bool { return listed == (h.generation != 0) && int64(len(h.content)) == size }
		case "lock":
			t.unlock, t.err = p.gs.Lock(ctx, t.uri)
			t.ok = func(held) bool { return len(t.did) > 0 && s.now(t.name) == t.did[0] }
		case "unlock":
			t.err = p.lock.unlock()
			t.ok = func(held) bool { return s.now(t.name) != p.lock.did[0] }
		}
		t.giveUp()
		p.over <- struct{}{}
	}()
	return true
}

// serve does the request of p that waits, in some way.
func (s *storm) serve(p *program) {
	t := p.task
	fault := "none"
	if t.faults < 6 {
		fault = rapid.SampledFrom([]string{"none", "none", "none", "none", "none", "503", "429", "drop", "done 408", "done drop", "cut", "cut", "cheat", "give up", "done give up"}).Draw(s.T, "fault")
	}
	if fault != "none" {
		t.faults++
	}
	query := t.URL.Query()
	if fault == "cheat" { // as a cache that knows no generations
		query.Del("generation")
		t.URL.RawQuery = query.Encode()
	}
	answer := httptest.NewRecorder()
	if how, done := strings.CutPrefix(fault, "done "); done || strings.Contains("none cut cheat", fault) {
		s.fake.ServeHTTP(answer, t.Request)
		s.changed(p)
		fault = how
	}
	body := answer.Body.Bytes()
	if fault == "cheat" && query.Get("alt") == "media" {
		t.cheated = true
		body = body[:len(body)-len(body)/4]
	}
	if fault == "give up" {
		t.gaveUp = true
		t.giveUp()
	}
	t.answer <- func(w http.ResponseWriter) {
		status, err := strconv.Atoi(fault)
		switch {
		case err == nil:
			http.Error(w, "line 1\nline 2", status)
			return
		case fault == "drop" || fault == "give up":
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(answer.Code)
		if fault == "cut" {
			w.Write(body[:len(body)/2])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Write(body)
	}
}

// changed looks at what the request of p changed, and whether it may.
func (s *storm) changed(p *program) {
	t, now, before := p.task, map[string]held{}, s.states[len(s.states)-1]
	for _, name := range []string{"a b.txt", "#1?%41.txt", "_lock"} {
		if o, err := s.fake.GetObject(s.bucket, name); err == nil {
			now[name] = held{string(o.Content), o.Generation}
		}
	}
	if maps.Equal(now, before) {
		return
	}
	s.states = append(s.states, now)
	was, is := before[t.name], now[t.name]
	t.did = append(t.did, is)
	wrote := is.generation != 0 && is.content == t.data
	if may := map[string]bool{
		"write": wrote, "create": wrote, "add": wrote && strings.HasPrefix(t.data, was.content), "delete": is == held{},
		"lock": is != held{} && (was == held{} || was.content == s.dead), "unlock": is == held{} && p.lock != nil && was == p.lock.did[0],
	}; !may[t.what] {
		s.Fatalf("%s of %q at %s made %+v of %+v", t.what, t.data, t.uri, is, was)
	}
}

// check looks whether what p's task t said at its end is so.
func (s *storm) check(p *program, t *task) {
	some := func(is func(held) bool) bool {
		return slices.ContainsFunc(s.states[t.from:], func(state map[string]held) bool { return is(state[t.name]) })
	}
	ok := false
	switch err := t.err; {
	case err == nil:
		ok = t.what != "fail" && some(t.ok)
	case err == errOwn:
		ok = t.what == "fail"
	case strings.Contains(err.Error(), "\n"), t.what != "list" && !strings.Contains(err.Error(), t.uri+": "):
	case errors.Is(err, ErrNotExist):
		ok = (t.what == "read" || t.what == "stat") && some(func(h held) bool { return h == held{} })
	case errors.Is(err, ErrTaken):
		ok = t.what == "add" && some(func(h held) bool { return !strings.HasPrefix(t.data, h.content) })
	case errors.Is(err, ErrTooLarge):
		ok = t.what == "read" && t.limit > 0 && some(func(h held) bool { return len(h.content) > t.limit })
	case errors.Is(err, ErrLocked):
		ok = t.what == "lock" && some(func(h held) bool { return h.generation != 0 && h.content != t.dead })
	case errors.Is(err, ErrLost): // its answer was lost, and another took the lock before it asked again
		ok = t.what == "unlock" && len(t.did) > 0 && some(func(h held) bool { return h != held{} && h != p.lock.did[0] })
	default:
		others := len(s.states) - 1 - t.from - len(t.did)
		ok = t.gaveUp || t.cheated || t.faults+others >= p.gs.attempts
	}
	if !ok {
		s.Fatalf("%s of %q at %s, limit %d: added %t, error %v, after %d faults; it made %+v, and there were %+v", t.what, t.data, t.uri, t.limit, t.added, t.err, t.faults, t.did, s.states[t.from:])
	}
	switch t.what {
	case "lock":
		if p.lock = nil; t.err == nil {
			p.lock = t
		}
	case "unlock":
		p.lock = nil
	}
}
