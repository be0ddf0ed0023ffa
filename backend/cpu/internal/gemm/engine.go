package gemm

import (
	"os"
	"sync"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// mode holds the settings that an engine applies to all calls.
type mode struct {
	bf16      bool // operands may be rounded, and values may be stored as bfloat16
	invariant bool // every call is as with Invariant
}

// Engine computes Calls. It keeps the memory it packs into, so that a warm
// engine allocates nothing.
//
// Its methods are safe for concurrent use, Serial with different workers.
type Engine struct {
	pool *pool.Pool
	k    *kernels
	own  []worker // for Serial

	panelsMost int  // floats of A that are packed at a time
	mode       mode // see SetPrecision and SetInvariant

	mu    sync.Mutex
	jobs  []*job     // idle
	spare []*scratch // idle, for the tasks of Run

	groups sync.Mutex // held by the RunAll that has group
	group  group
}

// panelsMost bounds the memory for A to 32 MiB, enough rows of any model for
// the packing of B not to be felt.
const panelsMost = 8 << 20

// New returns an engine on the workers of p with the instruction set that EnvCPU selects. If Select refuses it, New
// uses the fastest one; to report the error, call Select first.
func New(p *pool.Pool) *Engine {
	isa, err := Select(os.Getenv(EnvCPU))
	if err != nil {
		isa, _ = Select("")
	}
	return NewISA(p, isa)
}

// NewISA returns an engine with the given instruction set, which must be Supported.
func NewISA(p *pool.Pool, isa ISA) *Engine {
	e := &Engine{pool: p, k: kernelsOf(isa), own: make([]worker, p.Workers()), panelsMost: panelsMost}
	for i := range e.own {
		e.own[i].job = newJob(e)
	}
	return e
}

// SetPrecision sets how operands may be rounded before they are multiplied: F32, the default, does not round; BF16
// rounds to bfloat16, which loses 16 bits and is done only if it is faster on the machine. With BF16 values may also
// be stored as bfloat16 (see Stored). Sums are float32 in both cases. It must not be called during a call.
func (e *Engine) SetPrecision(p Elem) { e.mode.bf16 = p == BF16 }

// Rounds reports whether some products are of operands rounded to bfloat16.
func (e *Engine) Rounds() bool { return e.mode.bf16 && e.k.pairs != nil }

// Isa returns the name of the instruction set in use.
func (e *Engine) Isa() string { return e.k.isa.String() }

// Fetch prefetches x into the second-level cache, if the instruction set can.
func (e *Engine) Fetch(x []float32) {
	e.FetchBytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)))
}

// FetchBytes prefetches b like Fetch. It reports whether the instruction set can.
func (e *Engine) FetchBytes(b []byte) bool {
	if e.k.fetch == nil {
		return false
	}
	if len(b) > 0 {
		e.k.fetch(unsafe.Pointer(&b[0]), len(b))
	}
	return true
}

// Run computes c on all workers. It may be called from inside a task of the
// pool; it then runs on the calling goroutine alone.
//
// A Call that does not fit its slices is a bug of the caller: Run panics.
func (e *Engine) Run(c *Call) {
	c.check()
	j := e.job(c)
	e.divideWork(j)
	j.run()
	e.release(j)
}

// divideWork assigns a job as many workers as it can use efficiently.
func (e *Engine) divideWork(j *job) {
	j.workers = e.pool.Workers()
	least := serialFlops
	if j.c.M > rowsFew {
		least *= 2 // a few rows wait for memory, these do not
	}
	if j.c.flops() < least {
		j.workers = 1
	}
}

// Serial computes c on the calling goroutine with the scratch memory of
// worker w, as pool.RunWorker numbers them: no two calls with the same w may
// run at the same time. For a w that is none of the pool's workers it borrows
// scratch memory.
//
// The result equals that of Run bit for bit.
func (e *Engine) Serial(w int, c *Call) {
	c.check()
	if w < 0 || w >= len(e.own) {
		j := e.job(c)
		j.workers = 1
		j.run()
		e.release(j)
		return
	}
	j := e.own[w].job
	j.c, j.workers, j.local = c, 1, &e.own[w].scratch
	j.run()
	j.c, j.local, j.panels.kept = nil, nil, kept{}
}

// serialFlops is the work below which waking the workers costs more than it
// gains.
const serialFlops = 1 << 18

// flops returns the number of multiplications and additions of c.
func (c *Call) flops() int {
	k := 0
	for i := range c.Pairs {
		k += c.Pairs[i].K
	}
	return 2 * c.M * c.N * k
}

// job returns an idle job or a new one.
func (e *Engine) job(c *Call) *job {
	e.mu.Lock()
	defer e.mu.Unlock()
	var j *job
	if n := len(e.jobs); n > 0 {
		j, e.jobs = e.jobs[n-1], e.jobs[:n-1]
	} else {
		j = newJob(e)
	}
	j.c = c
	return j
}

// release makes j idle.
func (e *Engine) release(j *job) {
	j.c, j.local, j.panels.kept = nil, nil, kept{}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, j)
}

// borrow returns idle scratch memory or allocates it.
func (e *Engine) borrow() *scratch {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.spare); n > 0 {
		s := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return s
	}
	return new(scratch)
}

// giveBack makes s idle.
func (e *Engine) giveBack(s *scratch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spare = append(e.spare, s)
}
