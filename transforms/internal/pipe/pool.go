// Package pipe gives a Beam DoFn its parallelism: a Pipe maps elements on the
// cores of the process, a few bytes ahead of the caller, and hands the results
// back in order on the caller's goroutine, where Beam wants them emitted.
//
// All pipes of a process share one pool of GOMAXPROCS workers, so that stages
// and DoFn instances together use each core once. Work that mostly waits for
// storage goes to a second pool (NewIO), so that waiting holds no core. Workers
// start with the work and end when there is none.
package pipe

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// ioWorkers bounds what waits for storage at once: 32 requests a core, of 50 ms
// each, are 640 a second, which is what a core labels (small documents take
// four). Each may have a file open; half of the limit is for the rest of the process.
func ioWorkers() int { return max(1, min(32*runtime.GOMAXPROCS(0), 512, openFiles()/2)) }

var (
	cpuPool = &pool{workers: func() int { return runtime.GOMAXPROCS(0) }}
	ioPool  = &pool{workers: ioWorkers}
)

// pool runs tasks in the order of their coming on at most workers() goroutines.
type pool struct {
	workers func() int

	mu      sync.Mutex
	queue   []func()
	running int // workers
	pending int // tasks
}

// submit queues task.
func (p *pool) submit(task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, task)
	p.pending++
	if p.running < p.workers() {
		p.running++
		go p.work()
	}
}

func (p *pool) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && p.running <= p.workers() {
		task := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		task()
		p.mu.Lock()
		p.pending--
	}
	p.running--
}

// Go runs task on the pool of cores, after those that came before it. The task
// must not panic, nor wait for another task that has not begun.
func Go(task func()) { cpuPool.submit(task) }

// Busy is the number of tasks that run or wait on the pool of cores; below
// GOMAXPROCS a core is free.
func Busy() int {
	cpuPool.mu.Lock()
	defer cpuPool.mu.Unlock()
	return cpuPool.pending
}

// Panic is the error that a panic becomes.
type Panic struct {
	Value any
	Stack string // of the goroutine that panicked
}

// Error is one line: the value and where it was raised.
func (p *Panic) Error() string {
	return strings.ReplaceAll(fmt.Sprintf("panic: %v%s", p.Value, p.origin()), "\n", " ")
}

// Unwrap is the panic's value where that is an error.
func (p *Panic) Unwrap() error { err, _ := p.Value.(error); return err }

// origin is " (file.go:line)" of the frame that panicked.
func (p *Panic) origin() string {
	lines := strings.Split(p.Stack, "\n")
	last := -1 // a panic raised again has several; the last in the stack is the first raised
	for i, l := range lines {
		if strings.HasPrefix(l, "panic(") {
			last = i
		}
	}
	// Under "panic(…)" and its place stand the runtime's own frames, if any,
	// then function and place of the one that panicked.
	for i := last + 2; last >= 0 && i+1 < len(lines); i += 2 {
		if strings.HasPrefix(lines[i], "runtime.") {
			continue
		}
		place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
		return " (" + place[strings.LastIndexByte(place, '/')+1:] + ")"
	}
	return ""
}

// Catch calls f and turns a panic of it into a *Panic.
func Catch(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := make([]byte, 16<<10)
			err = &Panic{Value: v, Stack: string(stack[:runtime.Stack(stack, false)])}
		}
	}()
	return f()
}
