// Package dist connects the ranks of one training run or of one distributed inference: the
// goroutines of a process (dist/local) or the processes of an MPI job (dist/mpi).
//
// A [World] moves bytes and never adds. Sums over ranks are made by [Sum], in the order of
// the terms and not of the ranks, so that every number of ranks computes the same bytes.
package dist

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// World is the set of ranks that compute together, seen from one of them. All ranks make
// the same calls in the same order, one at a time. A call that fails on one rank, because
// its context ended or a peer is lost, leaves the World unusable: later calls fail too.
type World interface {
	// Rank returns the number of this rank, from 0.
	Rank() int
	// Size returns the number of ranks.
	Size() int
	// LocalRank returns the number of this rank on its host, from 0. It selects the
	// device, and Split does not renumber it.
	LocalRank() int
	// LocalSize returns the number of ranks on this host.
	LocalSize() int
	// AllToAll sends send[i] to rank i and receives recv[i] from it. The receiver knows the
	// lengths: len(recv[i]) here is len(send[Rank()]) of rank i. An empty slice sends nothing.
	AllToAll(ctx context.Context, recv, send [][]byte) error
	// AllGather sends parts[Rank()] to every rank and receives each other parts[i] from
	// rank i. All ranks know all lengths.
	AllGather(ctx context.Context, parts [][]byte) error
	// Split returns the World of the ranks that give the same color, in the order of
	// their ranks here. Every rank must call it.
	Split(ctx context.Context, color int) (World, error)
	// Abort ends the job because of a failure of this rank: calls of its peers fail, and
	// ranks that are processes exit with the status.
	Abort(status int)
	// Close leaves the World after its last call. Other ranks can go on until their own.
	Close() error
}

// Waiter is implemented by Worlds that know which ranks a call in progress waits for.
type Waiter interface {
	// Waiting returns the name of the call that this rank is in and the ranks whose messages
	// have not arrived or ended. Without a call it returns "" and nil. It may be called from
	// any goroutine.
	Waiting() (call string, ranks []int)
}

// ErrLost reports that ranks of a World did not take part in a call.
var ErrLost = errors.New("lost rank")

// LostError is the error of a call in which ranks did not take part before its context
// ended or one of them aborted. It matches [ErrLost] and its cause.
type LostError struct {
	Call  string // name of the call, e.g. "all-to-all"
	Ranks []int  // ranks that are missing; empty if unknown
	Cause error
}

// Error names the call, the missing ranks and the cause.
func (e *LostError) Error() string {
	var who string
	switch len(e.Ranks) {
	case 0:
		who = "a rank"
	case 1:
		who = fmt.Sprintf("rank %d", e.Ranks[0])
	default:
		who = "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Ranks), " ", ", "), "[]")
	}
	return fmt.Sprintf("%s: %s did not answer: %v", e.Call, who, e.Cause)
}

// Unwrap returns ErrLost and the cause.
func (e *LostError) Unwrap() []error { return []error{ErrLost, e.Cause} }

// Bounds returns the first element of part i when n elements are cut into size parts whose
// lengths differ by at most one. Part i ends at Bounds(n, i+1, size).
func Bounds(n, i, size int) int { return n/size*i + min(i, n%size) }

// Broadcast returns the message of rank root on every rank. The others pass nil.
func Broadcast(ctx context.Context, w World, root int, message []byte) ([]byte, error) {
	if w.Rank() != root {
		message = nil
	}
	all, err := Gather(ctx, w, message)
	if err != nil {
		return nil, err
	}
	return all[root], nil
}

// Gather returns the messages of all ranks, whose lengths may differ, on every rank.
func Gather(ctx context.Context, w World, message []byte) ([][]byte, error) {
	lengths, err := Lengths(ctx, w, len(message))
	if err != nil {
		return nil, err
	}
	messages := make([][]byte, w.Size())
	for i, n := range lengths {
		messages[i] = make([]byte, n)
	}
	messages[w.Rank()] = message
	if err := w.AllGather(ctx, messages); err != nil {
		return nil, err
	}
	return messages, nil
}

// Lengths returns the numbers of all ranks, such as the lengths of what they send next.
func Lengths(ctx context.Context, w World, own int) ([]int, error) {
	parts, lengths := make([][]byte, w.Size()), make([]int, w.Size())
	for i := range parts {
		parts[i] = make([]byte, 8)
	}
	binary.LittleEndian.PutUint64(parts[w.Rank()], uint64(own))
	if err := w.AllGather(ctx, parts); err != nil {
		return nil, err
	}
	for i, part := range parts {
		lengths[i] = int(binary.LittleEndian.Uint64(part))
	}
	return lengths, nil
}
