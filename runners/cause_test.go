package runners

import (
	"testing"
)

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
