//go:build linux && (mpi || cuda)

package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/dist"
)

// world is a communicator.
type world struct {
	*process
	comm       handle
	rank, size int
	local      int // LocalRank
	localSize  int
	partial    bool // made by Split
	calls      uint32
	awaited    atomic.Pointer[awaited]
}

// awaited holds the ranks that a call in progress waits for.
type awaited struct {
	call  string
	ranks []int
}

// Names of calls in errors.
const (
	allToAll  = "all-to-all"
	allGather = "all-gather"
	split     = "split"
)

// Rank implements dist.World, as do the following methods.
func (w *world) Rank() int { return w.rank }

// Size returns the number of ranks.
func (w *world) Size() int { return w.size }

// LocalRank returns the number of this rank on its host.
func (w *world) LocalRank() int { return w.local }

// LocalSize returns the number of ranks on this host.
func (w *world) LocalSize() int { return w.localSize }

// locate finds the ranks on this host. A host is a host name and a boot of a kernel: hosts
// of a cluster can have one name, and containers of a host have devices of their own.
func (w *world) locate(ctx context.Context) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // the name has to do without
	own := name + "\n" + string(boot)
	hosts, err := dist.Gather(ctx, w, []byte(own))
	if err != nil {
		return err
	}
	for rank, host := range hosts {
		if string(host) != own {
			continue
		}
		if w.localSize++; rank < w.rank {
			w.local++
		}
	}
	return nil
}

// AllToAll sends send[i] to rank i and receives recv[i] from it.
func (w *world) AllToAll(ctx context.Context, recv, send [][]byte) error {
	if len(recv) != w.size || len(send) != w.size || len(recv[w.rank]) != len(send[w.rank]) {
		return w.lost(allToAll, nil, fmt.Errorf("buffers for %d and %d ranks of %d, or of different lengths for this one", len(recv), len(send), w.size))
	}
	copy(recv[w.rank], send[w.rank])
	return w.exchange(ctx, allToAll, recv, func(rank int) []byte { return send[rank] })
}

// AllGather sends parts[Rank()] to every rank and receives the other parts.
func (w *world) AllGather(ctx context.Context, parts [][]byte) error {
	if len(parts) != w.size {
		return w.lost(allGather, nil, fmt.Errorf("buffers for %d ranks of %d", len(parts), w.size))
	}
	return w.exchange(ctx, allGather, parts, func(int) []byte { return parts[w.rank] })
}

// Split makes a communicator. MPI_Comm_split cannot be given up, so it is called when all
// ranks have told their colors.
func (w *world) Split(ctx context.Context, color int) (dist.World, error) {
	colors, err := dist.Gather(ctx, w, binary.LittleEndian.AppendUint64(nil, uint64(color)))
	if err != nil {
		return nil, err
	}
	part := &world{process: w.process, partial: true, local: w.local, localSize: w.localSize}
	first := -1 // rank of this color, which stands for it: MPI allows no negative colors
	for rank, c := range colors {
		if binary.LittleEndian.Uint64(c) != uint64(color) {
			continue
		}
		if first < 0 {
			first = rank
		}
		if part.size++; rank < w.rank {
			part.rank++
		}
	}
	if err := w.do(ctx, func() error {
		return w.lib.check("MPI_Comm_split", w.lib.commSplit(w.comm, int32(first), int32(w.rank), &part.comm))
	}); err != nil {
		return nil, w.lost(split, nil, err)
	}
	return part, nil
}

// Waiting implements dist.Waiter. It knows the ranks soon after the call has begun.
func (w *world) Waiting() (call string, ranks []int) {
	if a := w.awaited.Load(); a != nil {
		return a.call, a.ranks
	}
	return "", nil
}

// Abort ends all ranks with the status, and does not return.
func (w *world) Abort(status int) { w.abort(status) }

// Close finalizes MPI. A World made by Split is left with the whole one.
func (w *world) Close() error {
	if w.partial {
		return nil
	}
	return w.close()
}

// lost returns the error of a call, and makes later calls fail.
func (w *world) lost(call string, missing []int, cause error) error {
	return w.fail(&dist.LostError{Call: call, Ranks: missing, Cause: cause})
}
