package transforms

import (
	"cmp"
	"encoding/base64"
	"runtime"
	"time"
)

// Path is a path or address of any bytes. In JSON, as which DoFns travel, it
// is base64, because a file name need not be UTF-8.
type Path string

// MarshalText implements encoding.TextMarshaler.
func (p Path) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(p)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Path) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	*p = Path(b)
	return err
}

// Options configure the transforms; each uses the fields that its comment
// names. The zero value labels with the bundled model and skips nothing.
type Options struct {
	// Run names the Progress that the transforms report to in this process. A process
	// of several pipelines gives each its own: those of one Run, "" too, share what
	// MaxRejected judges.
	Run string
	// Verbosity of what workers log: 2 adds the device, 3 each batch.
	Verbosity int
	// InFlight bounds the bytes of documents and their features that Predict holds
	// in a process; the other stages hold a fixed part of that. 0 stands for 24 MiB
	// a core and at least 64 MiB: with half as much, cores wait for the oldest
	// document a quarter of the time; under a limit of memory it is a sixteenth of
	// that, if that is less. With Deferred, Predict takes two thirds of this
	// default, since documents wait without features then.
	InFlight int64
	// Deferred leaves the features of all but the longest documents to Predict, which
	// makes them document by document while it scores a batch. On the CPU that is
	// faster and takes less memory; with GPUs, features are better made while these
	// compute. A worker whose Device auto falls back on the CPU works as with
	// Deferred (Featurize, Predict).
	Deferred bool
	// MemoryLimit becomes Go's memory limit of every worker, in bytes (Read). 0
	// stands for three quarters of what a worker's container may take and at least
	// 128 MiB, which GOMEMLIMIT overrides; outside of one for no limit.
	MemoryLimit int64

	// Base is the folder that names of documents are relative to (Read).
	Base Path
	// Annotated takes the spans of brat's pairs, X.txt with X.ann (Read).
	Annotated bool
	// Output is the folder of outputs and records (Read, Write, WriteRejected). Read
	// without it skips nothing.
	Output Path
	// MaxDocumentBytes is the largest document that Read reads, 0 for
	// DefaultMaxDocumentBytes.
	MaxDocumentBytes int64
	// Force labels documents again that are done (Read), and writes over what stands in
	// the place of an output (Write).
	Force bool
	// Rejections says that there are records of rejections from before, or of a Watch's
	// own, which are deleted when their document is done (Read, Write). Without it such
	// a document stays rejected, too.
	Rejections bool
	// Again says that there are Done records from before: a document's is deleted
	// before its outputs are written again (Write).
	Again bool
	// Began, where not 0, is when the run began, in nanoseconds since 1970, by the clock
	// that gives files of Output their times: on a runner that tries bundles again, an
	// output without a record counts as the run's own where it is younger (Write), and a
	// watch waits by handing back (Watch).
	Began int64
	// unwritten has Read and Write write and delete nothing, for Plan.
	unwritten bool
	// RetryRejected takes only documents with a record of rejection, of their own or of
	// a folder above them (Read).
	RetryRejected bool
	// Tries of reading a document, 0 for 3, with pauses of Pause, 2·Pause, …
	// (0 for 100 ms) between them (Read).
	Tries int
	Pause time.Duration

	// ModelURI is a model's folder, empty for the bundled one (Predict).
	ModelURI Path
	// ModelHash, where not empty, is the hash that the model must have
	// (Predict) and with which a document counts as done (Read, Write).
	ModelHash string
	// InputSize is the model's: rows of its embedding table (Featurize). 0
	// stands for the bundled model's.
	InputSize int
	// Device is cpu (the default), auto or cuda (Predict; auto: Featurize too).
	Device string
	// WorkersPerGPU is how many processes may share a GPU, 0 for 1; GPUs how
	// many this process takes at most, 0 for all that no other holds; GPUMemory
	// how many bytes it takes of each, 0 for what it needs (Predict).
	WorkersPerGPU, GPUs int
	GPUMemory           int64
	// GPUTimeout is how long a GPU may take over a batch, or to start, before it counts
	// as lost; 0 for 5 minutes, and 30 s for the driver to start (Predict).
	GPUTimeout time.Duration
	// Hybrid, with Device auto, lets the CPU score what the GPUs have no time for
	// where that is faster (Predict). Which lines these are depends on timing.
	Hybrid bool
	// Precision of the products on a GPU: float16, which "" stands for, with
	// sums in float32, or float32 (Predict). That of the CPU is kernel.Precision.
	Precision string
	// LabelSet is collapsed or full; empty for the model's first, which of the bundled
	// one is collapsed (Predict).
	LabelSet string
	// WindowSize and PredictionStride of the context windows, in lines. Where
	// WindowSize is negative both are the model's; a WindowSize of 0 stands for whole
	// documents, a PredictionStride of 0 for WindowSize (Predict).
	WindowSize, PredictionStride int
	// PredictionBatchSize is the number of windows in a batch, 0 for the
	// model's choice (Predict). It changes no result.
	PredictionBatchSize int

	// Formats to write, of those that Formats lists; none stands for yedda
	// (Write).
	Formats []string
	// Probabilities adds those of every class to the formats that have room
	// for them: jsonl and csv (Write).
	Probabilities bool
	// Settings names, in one line, all that changes a result beside model and
	// input; a document done under other settings is done again (Read, Write).
	Settings string
	// Versions tells of the device, precision, instruction set and program in
	// records (Write). They make nothing stale.
	Versions string
	// MaxRejected is the share of rejected documents above which a Run fails,
	// judged in each process once 100 documents were tried, of those that Read
	// or Write counts; 0 for no limit, less than 0 for no rejection at all (WriteRejected).
	MaxRejected float64
}

// DefaultMaxDocumentBytes is that of Options.
const DefaultMaxDocumentBytes = 64 << 20

func (o *Options) inFlight() int64 {
	if o.InFlight > 0 {
		return o.InFlight
	}
	held := max(64, 24*int64(runtime.GOMAXPROCS(0))) << 20
	if limit := o.memoryLimit(); limit > 0 {
		held = min(held, max(8<<20, limit/16))
	}
	return held
}

func (o *Options) memoryLimit() int64 {
	if limit := containerMemory(); o.MemoryLimit <= 0 && limit > 0 {
		return max(128<<20, limit/4*3)
	}
	return max(o.MemoryLimit, 0)
}

// inPredict is inFlight of Predict, by whether it makes the features: as much as the
// other cores need to go on with while one has the oldest batch.
func (o *Options) inPredict(deferred bool) int64 {
	if deferred && o.InFlight <= 0 {
		return o.inFlight() * 2 / 3
	}
	return o.inFlight()
}

func (o *Options) maxDocumentBytes() int64 {
	return cmp.Or(max(o.MaxDocumentBytes, 0), DefaultMaxDocumentBytes)
}
