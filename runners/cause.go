package runners

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
	"google.golang.org/grpc/status"
)

// explain is the error of a run in one line, as whoever knows most says it: Flink,
// a job service that is gone, or Beam.
func explain(ctx context.Context, name, job string, service bool, err error) error {
	said := causeOf(err.Error())
	if _, broke := status.FromError(err); broke && service && job != "" { // of a job that ended Beam tells otherwise
		_, gone := checkEndpoint(ctx, *jobopts.Endpoint)
		if gone == nil {
			gone = fmt.Errorf("runners: the connection to --endpoint=%s broke, or that was started anew: %s", *jobopts.Endpoint, said)
		}
		return fmt.Errorf("%w; job %s may still run; let it end, or cancel it, before you run again", gone, job)
	}
	if name == Flink && said == "Connection refused" { // the last of Java's causes alone; a worker's has an address
		said = fmt.Sprintf("the job server at --endpoint=%s does not reach Flink's JobManager: %s; start that, or the job server with its address (--flink-master)", *jobopts.Endpoint, said)
	}
	if service && strings.HasSuffix(said, "desc =") { // Java had an exception without a message
		said = fmt.Sprintf("the job server at --endpoint=%s does not take the job and does not say why (%s); its log does", *jobopts.Endpoint, strings.TrimSuffix(said, " desc ="))
	}
	if name == Flink && job != "" {
		switch cause, unasked := flinkCause(ctx, job); {
		case cause != "":
			return errors.New(cause)
		case unasked != nil && !strings.Contains(err.Error(), errorMark): // the last of Java's causes alone
			said += notAsked + unasked.Error()
		}
	}
	if service && name != Flink && job != "" && !strings.Contains(err.Error(), errorMark) { // the last of Java's causes alone
		said = fmt.Sprintf("%s; the log of the job server at --endpoint=%s may say more", withRemedy(said), *jobopts.Endpoint)
	}
	return errors.New(said)
}

// errorMark begins the errors of this project's DoFns, wherever they stand in what
// Beam and a runner wrap around them.
const errorMark = "linnet: "

// javaClass is what Java puts before what an exception says. Errors keep theirs.
var javaClass = regexp.MustCompile(`^(Caused by: )?([\w.$]+Exception: |The user defined 'open\(\)' method caused an exception: )*`)

// goFrame is a function of a Go stack: its path has no blank before the arguments.
var goFrame = regexp.MustCompile(`^\S+/\S*\(.*\)$`)

// panicked is the last of DoFns' panics as Beam tells it: what was raised, once more before
// its stack and, there, below the runtime's own frames, where.
var panicked = regexp.MustCompile(`(?s)^.*\nFull error:\n.*?\bpanic: (.*?) goroutine \d+ \[running.*\npanic\([^\n]*\n[^\n]*\n(?:runtime\.[^\n]*\n[^\n]*\n)*[^\n]*\n\s[^\n]*/([^/\n]+:\d+)`)

// causeOf is the one line of a runner's error that says what happened: from the
// last errorMark to the end of that line, or a panic and its place, or the executor that
// Spark lost, or the last line that is not of a stack. What a runner has quoted is unquoted first.
func causeOf(text string) string {
	if i := strings.LastIndex(text, errorMark); i >= 0 {
		said := text[i+len(errorMark):]
		quote := strings.LastIndex(text[:i], "\n") + 1
		for {
			found := strings.IndexByte(text[quote:i], '"')
			if found < 0 {
				break
			}
			whole, err := strconv.QuotedPrefix(text[quote+found:])
			if err != nil { // cut short
				said, _, _ = strings.Cut(said, `\n`)
				break
			}
			if quote += found + len(whole); quote > i {
				inner, _ := strconv.Unquote(whole)
				return causeOf(inner)
			}
		}
		said, _, _ = strings.Cut(said, "\n")
		return strings.TrimSpace(said)
	}
	if p := panicked.FindStringSubmatch(text); p != nil {
		return fmt.Sprintf("panic: %s (%s)", strings.Join(strings.Fields(p[1]), " "), p[2])
	}
	if i := strings.LastIndex(text, "ExecutorLostFailure"); i >= 0 { // Spark says how, and then what came of it
		said, _, _ := strings.Cut(text[i:], "\n")
		return strings.TrimSpace(said)
	}
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "Full error:") || strings.HasPrefix(trimmed, "goroutine ") {
			break
		}
		said := trimmed[len(javaClass.FindString(trimmed)):]
		switch {
		case said == "" || strings.HasPrefix(line, "\t"):
		case said == "Driver stacktrace:" || strings.HasPrefix(said, "."): // Spark's, and the end of the line before
		case goFrame.MatchString(said) && !strings.Contains(said, ": "):
		case !strings.Contains(last, said): // or an outer error says the same and more
			last = said
		}
	}
	if last == "" {
		return "the run failed without a reason"
	}
	return last
}
