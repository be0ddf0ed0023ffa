//go:build linux && (mpi || cuda)

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/lorafuse/lorafuse/dev/disttest"
	"github.com/lorafuse/lorafuse/dist"
)

// rank runs a scenario as a rank of a job and returns the exit status.
func rank(name string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := open(ctx)
	if err == nil {
		err = scenarios[name](ctx, w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// open connects the ranks of the launcher, even if it is only one.
func open(ctx context.Context) (dist.World, error) {
	w, err := dist.FromEnv(ctx)
	if w == nil && err == nil {
		return connect(ctx, &dist.Launch{Ranks: 1, OpenMPI: os.Getenv("OMPI_COMM_WORLD_SIZE") != ""})
	}
	return w, err
}

// soon is a context for a call that fails.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 500*time.Millisecond)
}

// gather makes calls until one fails.
func gather(ctx context.Context, w dist.World) (err error) {
	for err == nil {
		_, err = dist.Gather(ctx, w, []byte("hello"))
	}
	return err
}

// scenarios are what ranks do, by name.
var scenarios = map[string]func(context.Context, dist.World) error{
	"check": func(ctx context.Context, w dist.World) error {
		if w.LocalSize() != w.Size() || w.LocalRank() != w.Rank() {
			return fmt.Errorf("rank %d of %d on one host: local rank %d of %d", w.Rank(), w.Size(), w.LocalRank(), w.LocalSize())
		}
		for _, maxMessage = range []int{maxMessage, 777} {
			if err := disttest.Check(ctx, w); err != nil {
				return err
			}
		}
		if recovered := fault(); recovered == nil {
			return errors.New("a fault is no panic")
		}
		fmt.Fprintf(os.Stderr, "checked %s\n", w.(*world).lib.version)
		return nil
	},
	"kill": func(ctx context.Context, w dist.World) error {
		if _, err := dist.Gather(ctx, w, nil); err != nil {
			return err
		}
		if w.Rank() == 1 {
			fmt.Fprintln(os.Stderr, "killing rank 1")
			time.Sleep(forward)
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return gather(ctx, w)
	},
	"stop": func(ctx context.Context, w dist.World) error {
		if _, err := dist.Gather(ctx, w, nil); err != nil {
			return err
		}
		if w.Rank() == 1 {
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		short, cancel := soon(ctx)
		defer cancel()
		err := gather(short, w)
		fmt.Fprintln(os.Stderr, err)
		var lost *dist.LostError
		if !errors.As(err, &lost) || !errors.Is(w.AllToAll(ctx, make([][]byte, 3), make([][]byte, 3)), err) || w.Close() == nil {
			return errors.New("calls go on after a lost rank")
		}
		w.Abort(75)
		return nil
	},
	"wait": func(ctx context.Context, w dist.World) error {
		if _, err := dist.Gather(ctx, w, nil); err != nil {
			return err
		}
		if w.Rank() == 1 {
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		known, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			for ctx.Err() == nil {
				if call, ranks := w.(dist.Waiter).Waiting(); call == allGather && slices.Equal(ranks, []int{1}) {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		fmt.Fprintln(os.Stderr, gather(known, w))
		if call, ranks := w.(dist.Waiter).Waiting(); call != "" || ranks != nil {
			fmt.Fprintln(os.Stderr, "still waiting")
		}
		w.Abort(75)
		return nil
	},
	"stop in close": func(ctx context.Context, w dist.World) error {
		if w.Rank() == 1 {
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		closeTimeout = 100 * time.Millisecond
		fmt.Fprintln(os.Stderr, w.Close())
		w.Abort(75)
		return nil
	},
	"abort": func(ctx context.Context, w dist.World) error {
		if w.Rank() == 2 {
			w.Abort(42)
		}
		return gather(ctx, w)
	},
	"abort during a call": func(ctx context.Context, w dist.World) error {
		if w.Rank() == 2 {
			time.Sleep(time.Minute)
		}
		if w.Rank() == 0 {
			time.AfterFunc(100*time.Millisecond, func() { w.Abort(42) })
		}
		return gather(ctx, w)
	},
	"lengths": func(ctx context.Context, w dist.World) error { return sendThree(ctx, w, 4) },
	"longer":  func(ctx context.Context, w dist.World) error { return sendThree(ctx, w, 2) },
	"other calls": func(ctx context.Context, w dist.World) error {
		short, cancel := soon(ctx)
		defer cancel()
		if w.Rank() == 0 {
			if err := w.AllGather(short, [][]byte{{1}, {2}}); err == nil {
				return errors.New("no error")
			}
			time.Sleep(time.Minute)
		}
		fmt.Fprintln(os.Stderr, w.AllToAll(short, [][]byte{{1}, {2}}, [][]byte{{1}, {2}}))
		w.Abort(75)
		return nil
	},
}

// fault dereferences nil and returns the panic.
func fault() (recovered any) {
	defer func() { recovered = recover() }()
	var p *world
	p.rank++
	return nil
}

// sendThree sends three bytes from rank 0, of which rank 1 expects another number.
func sendThree(ctx context.Context, w dist.World, expected int) error {
	parts := [][]byte{make([]byte, 3), make([]byte, 1)}
	if w.Rank() == 1 {
		parts[0] = make([]byte, expected)
	}
	if err := w.AllGather(ctx, parts); w.Rank() == 1 {
		fmt.Fprintln(os.Stderr, err)
		w.(*world).failed.Store(nil) // the error is known, and MPI works
	} else if err != nil {
		return err
	}
	return nil
}
