//go:build linux && (mpi || cuda)

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/dist"
)

func init() { dist.Register(&dist.Connector{Connect: connect, Exit: exit}) }

const (
	// hang is the time that MPI has to return from a call whose context has ended.
	hang = time.Second
	// abortTimeout limits MPI_Abort, which can wait for a host that cannot be reached.
	abortTimeout = 5 * time.Second
	// forward is the time that a launcher has to print the last lines of a rank before the
	// rank aborts: MPICH's does not read them after that.
	forward = 200 * time.Millisecond
)

// closeTimeout limits MPI_Finalize, which waits for the other ranks.
var closeTimeout = 10 * time.Second

var errClosed = errors.New("the World is closed")

// process is this process in an MPI job, which all its Worlds share. One goroutine, locked
// to a thread, makes all calls of the library (MPI_THREAD_FUNNELED).
type process struct {
	lib    *library
	calls  chan func()
	aborts chan int
	ended  chan struct{}         // closed when the goroutine ends
	failed atomic.Pointer[error] // the first failure
}

// connect initializes MPI and makes the World of all ranks.
func connect(ctx context.Context, launch *dist.Launch) (dist.World, error) {
	before := signalHandlers()
	lib, err := load(launch)
	if err != nil {
		return nil, err
	}
	p := &process{lib: lib, calls: make(chan func()), aborts: make(chan int, 1), ended: make(chan struct{})}
	go p.run()
	w := &world{process: p}
	if err := p.do(ctx, func() error { return p.init(w) }); err != nil {
		return nil, fmt.Errorf("%v, MPI does not start: %w", launch, err)
	}
	before.restore()
	if w.size != launch.Ranks && launch.Ranks > 0 || w.size == 1 && launch.Rank > 0 {
		err := fmt.Errorf("%w: %v, the MPI library %s sees %d: use the mpirun or mpiexec of this library, with Slurm the srun --mpi=… for it (pmix for Open MPI, pmi2 for MPICH), or set %s to the path of the launcher's libmpi", dist.ErrWrongLauncher, launch, lib.version, w.size, override)
		return nil, errors.Join(err, w.Close())
	}
	if err := w.locate(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// init starts MPI and makes w the World of all ranks. Errors of MPI are returned from
// then on instead of ending the process.
func (p *process) init(w *world) error {
	var provided, rank, size int32
	if err := p.lib.check("MPI_Init_thread", p.lib.initThread(0, 0, p.lib.funneled, &provided)); err != nil {
		return err
	}
	if provided < p.lib.funneled {
		return fmt.Errorf("the MPI library %s does not support threads", p.lib.path)
	}
	p.lib.version = p.lib.describe()
	w.comm = p.lib.world
	for function, code := range map[string]int32{
		"MPI_Comm_set_errhandler": p.lib.setErrhandler(w.comm, p.lib.errorsReturn),
		"MPI_Comm_rank":           p.lib.commRank(w.comm, &rank),
		"MPI_Comm_size":           p.lib.commSize(w.comm, &size),
	} {
		if err := p.lib.check(function, code); err != nil {
			return err
		}
	}
	w.rank, w.size = int(rank), int(size)
	return nil
}

// run makes the calls, until it is closed.
func (p *process) run() {
	runtime.LockOSThread()
	defer close(p.ended)
	for {
		select {
		case f := <-p.calls:
			if f == nil {
				return
			}
			f()
		case status := <-p.aborts:
			p.lib.abort(p.lib.world, int32(status))
			os.Exit(status)
		}
	}
}

// do runs f on the thread of MPI. f must return soon after ctx has ended. If MPI does not
// return to it, do gives it up.
func (p *process) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case p.calls <- func() { done <- f() }:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ended:
		return errClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(hang):
		return fmt.Errorf("MPI hangs: %w", context.Cause(ctx))
	}
}

// fail makes later calls fail and returns err.
func (p *process) fail(err error) error {
	p.failed.CompareAndSwap(nil, &err)
	return err
}

// abort ends all ranks through the launcher, and this one in any case.
func (p *process) abort(status int) {
	time.AfterFunc(abortTimeout, func() { os.Exit(status) })
	time.Sleep(forward)
	select {
	case p.aborts <- status:
	default: // a second call
	}
	select {}
}

// finalized is the library after MPI_Finalize.
var finalized atomic.Pointer[library]

// exit ends the process if MPI is finalized, after the exit handlers of its library.
func exit(status int) {
	if lib := finalized.Load(); lib != nil {
		time.AfterFunc(abortTimeout, func() { os.Exit(status) })
		lib.exit(int32(status))
	}
}

// close finalizes MPI. It waits for the other ranks to do the same.
func (p *process) close() error {
	if err := p.failed.Load(); err != nil {
		return fmt.Errorf("MPI is not finalized after a failed call: %w", *err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := p.do(ctx, func() error { return p.lib.check("MPI_Finalize", p.lib.finalize()) }); err != nil {
		if err == errClosed {
			return nil
		}
		return p.fail(fmt.Errorf("MPI_Finalize: %w", err))
	}
	p.calls <- nil
	finalized.Store(p.lib)
	return nil
}
