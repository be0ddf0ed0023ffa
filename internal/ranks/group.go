// Package ranks lets the ranks of a dist.World agree on errors and interruptions, so that all
// of them end together.
package ranks

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/dist"
)

// ErrElsewhere is wrapped by the error of a run that ends because of another rank, or that
// all ranks have: rank 0 reports it.
var ErrElsewhere = errors.New("reported by rank 0")

// ErrInterrupted is wrapped by the errors of work that was interrupted.
var ErrInterrupted = errors.New("interrupted")

// errTimeout is the cause of exchanges that take too long.
var errTimeout = errors.New("no answer within distributed_timeout")

// Group is the part of this process in work that the ranks of a World share. The nil Group is
// work alone.
//
// Ranks agree before each exchange of data: a rank with an error, or one that is interrupted,
// makes the same call as the others, and all end together.
type Group struct {
	World   dist.World
	Hosts   []string      // of the ranks
	Timeout time.Duration // of an exchange

	task    string // for errors
	pending chan error

	// Status, if not nil, returns the exit status of an error, for RemoteError.
	Status func(err error) int

	// Place is the part of the work in progress, for errors, such as step 3.
	Place string
}

// New returns the group of a World after the ranks have met. task, such as train, begins its
// errors.
func New(ctx context.Context, w dist.World, task string, timeout time.Duration) (*Group, error) {
	if w == nil || w.Size() == 1 {
		return nil, nil
	}
	g := &Group{World: w, Timeout: timeout, task: task}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return g, g.Exchange(ctx, nil, func(ctx context.Context) error {
		all, err := dist.Gather(ctx, w, []byte(host))
		for _, h := range all {
			g.Hosts = append(g.Hosts, string(h))
		}
		return err
	})
}

// Leads reports whether this rank writes the output and reports.
func (g *Group) Leads() bool { return g == nil || g.World.Rank() == 0 }

// Exchange makes a call of the World within the timeout, whatever becomes of ctx: the ranks
// must agree on an interruption. If ctx ends first, Exchange calls rescue, unless it is nil,
// for the launcher may kill this process soon.
func (g *Group) Exchange(ctx context.Context, rescue func(), call func(ctx context.Context) error) error {
	g.Start(ctx, call)
	return g.Finish(ctx, rescue)
}

// Start starts an exchange, which Finish waits for.
func (g *Group) Start(ctx context.Context, call func(ctx context.Context) error) {
	done := make(chan error, 1)
	g.pending = done
	go func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), g.Timeout, errTimeout)
		defer cancel()
		done <- call(ctx)
	}()
}

// graceTime is the time that an exchange may take after an interruption before the run is saved.
const graceTime = 200 * time.Millisecond

// Finish waits for the exchange that Start has begun, if any.
func (g *Group) Finish(ctx context.Context, rescue func()) error {
	if g == nil || g.pending == nil {
		return nil
	}
	done := g.pending
	g.pending = nil
	interrupted, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case err := <-done:
			return g.locate(err)
		case <-interrupted:
			interrupted = nil
			if rescue != nil {
				late = time.After(graceTime)
			}
		case <-late:
			late = nil
			rescue()
		}
	}
}

// Waiting describes the ranks that the exchange in progress waits for, and the call; "" if
// unknown.
func (g *Group) Waiting() string {
	w, ok := g.World.(dist.Waiter)
	if !ok {
		return ""
	}
	call, ranks := w.Waiting()
	if len(ranks) == 0 {
		return ""
	}
	return fmt.Sprintf("%s in %s", g.places(ranks), call)
}

// places returns the names of ranks with their hosts.
func (g *Group) places(ranks []int) string {
	var all []string
	for _, r := range ranks {
		all = append(all, g.Name(r))
	}
	return strings.Join(all, ", ")
}

// Name returns the name of a rank with its host.
func (g *Group) Name(rank int) string {
	if rank < len(g.Hosts) {
		return fmt.Sprintf("rank %d on %s", rank, g.Hosts[rank])
	}
	return fmt.Sprintf("rank %d", rank)
}

// locate adds the place and the hosts to the error of an exchange.
func (g *Group) locate(err error) error {
	var lost *dist.LostError
	if !errors.As(err, &lost) {
		return err
	}
	at := g.task
	if g.Place != "" {
		at += ": " + g.Place
	}
	who := cmp.Or(g.places(lost.Ranks), "a rank")
	return &lostAt{fmt.Sprintf("%s: %v: %s in %s: %v", at, dist.ErrLost, who, lost.Call, lost.Cause), lost}
}

// lostAt is a lost rank with the place and the hosts.
type lostAt struct {
	text string
	lost *dist.LostError
}

func (l *lostAt) Error() string { return l.text }
func (l *lostAt) Unwrap() error { return l.lost }

// Outcome tells how the part of a rank ended.
type Outcome byte

// Outcomes.
const (
	Fine Outcome = iota
	Failed
	Stopped
	busy // it has not ended
)

// agreed is an error that all ranks know.
type agreed struct{ error }

func (a *agreed) Unwrap() error { return a.error }

// IsAgreed reports whether the ranks know an error, or can no longer be told.
func IsAgreed(err error) bool {
	var a *agreed
	return errors.As(err, &a) || errors.Is(err, dist.ErrLost)
}

// Agree exchanges whether the ranks have an error. If one has, all return an error: rank 0
// that of the first rank with one, the others one that wraps ErrElsewhere. An interruption of
// any rank is one of all: the error wraps context.Canceled.
func (g *Group) Agree(ctx context.Context, rescue func(), err error) error {
	if g == nil || IsAgreed(err) {
		return err
	}
	var told error
	lost := g.Exchange(ctx, rescue, func(ctx context.Context) error {
		var fault error
		told, fault = g.Tell(ctx, err)
		return fault
	})
	return cmp.Or(lost, told)
}

// Tell does the work of Agree inside of an exchange. It returns the error that all ranks know,
// and the error of the exchange.
func (g *Group) Tell(ctx context.Context, err error) (told, fault error) {
	_, told, fault = g.report(ctx, OutcomeOf(err), err)
	return told, fault
}

// report does the work of Tell for a rank with an outcome, and reports whether ranks are busy.
func (g *Group) report(ctx context.Context, own Outcome, err error) (anyBusy bool, told, fault error) {
	flags := make([][]byte, g.World.Size())
	for i := range flags {
		flags[i] = make([]byte, 1)
	}
	rank := g.World.Rank()
	flags[rank][0] = byte(own)
	if fault := g.World.AllGather(ctx, flags); fault != nil {
		return false, nil, fault
	}
	firstWith := func(o Outcome) int {
		return slices.IndexFunc(flags, func(f []byte) bool { return f[0] == byte(o) })
	}
	first := firstWith(Failed)
	if first < 0 {
		first = firstWith(Stopped)
	}
	if first < 0 {
		return firstWith(busy) >= 0, nil, nil
	}
	message := []byte{0}
	if err != nil {
		if g.Status != nil {
			message[0] = byte(g.Status(err))
		}
		message = append(message, err.Error()...)
	}
	messages, fault := dist.Gather(ctx, g.World, message)
	if fault != nil {
		return false, nil, fault
	}
	switch {
	case flags[first][0] == byte(Stopped):
		err = fmt.Errorf("%s: %s: %w", g.task, g.Name(first), context.Canceled)
	case rank != first:
		m := messages[first]
		err = &RemoteError{
			Status: int(m[0]),
			text:   fmt.Sprintf("%s: %s: %s", g.task, g.Name(first), strings.TrimPrefix(string(m[1:]), g.task+": ")),
		}
	}
	return false, g.Told(err), nil
}

// RemoteError is an error of another rank.
type RemoteError struct {
	Status int // of the error there; 0 if the Group has no Status
	text   string
}

// Error returns the message with the rank and its host.
func (e *RemoteError) Error() string { return e.text }

// OutcomeOf returns the outcome of a part that ended with err.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Fine
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return Stopped
	}
	return Failed
}

// Share returns the text of rank 0 on all ranks, or the error of any. text is called on rank 0
// alone.
func (g *Group) Share(ctx context.Context, text func() ([]byte, error)) (raw []byte, err error) {
	if g.Leads() {
		raw, err = text()
	}
	if err := g.Agree(ctx, nil, err); err != nil {
		return nil, err
	}
	return raw, g.Exchange(ctx, nil, func(ctx context.Context) error {
		raw, err = dist.Broadcast(ctx, g.World, 0, raw)
		return err
	})
}

// Same returns an error if a rank has other values than rank 0.
func (g *Group) Same(ctx context.Context, rescue func(), values map[string]string) error {
	if g == nil {
		return nil
	}
	var all [][]byte
	if err := g.Exchange(ctx, rescue, func(ctx context.Context) (err error) {
		all, err = dist.Gather(ctx, g.World, encodeSettings(values))
		return err
	}); err != nil {
		return err
	}
	var err error
	first := decodeSettings(all[0])
	for rank := 1; rank < len(all) && err == nil; rank++ {
		err = g.compare(rank, first, decodeSettings(all[rank]))
	}
	if err == nil {
		return nil
	}
	return g.Told(err)
}

// compare returns an error if a rank has other values than rank 0.
func (g *Group) compare(rank int, first, values map[string]string) error {
	keys := maps.Clone(first)
	maps.Copy(keys, values)
	var different []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if a, b := first[key], values[key]; a != b {
			different = append(different, fmt.Sprintf("%s is %s there, %s here", key, cmp.Or(b, "not given"), cmp.Or(a, "not given")))
		}
	}
	if len(different) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s differs from %s: %s; start all ranks with the same program, settings and files", g.task, g.Name(rank), g.Name(0), strings.Join(different, "; "))
}

// Told marks an error that all ranks know.
func (g *Group) Told(err error) error {
	if !g.Leads() {
		err = fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return &agreed{err}
}

// Round exchanges numbers of the ranks, unless one has an error. A group of one returns its own.
func (g *Group) Round(ctx context.Context, rescue func(), own []float64, err error) ([][]float64, error) {
	if g == nil {
		return [][]float64{own}, err
	}
	all, parts := make([][]float64, g.Size()), make([][]byte, g.Size())
	for i := range all {
		all[i], parts[i] = make([]float64, len(own)), make([]byte, 8*len(own))
	}
	for i, x := range own {
		binary.LittleEndian.PutUint64(parts[g.Rank()][8*i:], math.Float64bits(x))
	}
	var told error
	fault := g.Exchange(ctx, rescue, func(ctx context.Context) (fault error) {
		if told, fault = g.Tell(ctx, err); told != nil || fault != nil {
			return fault
		}
		return g.World.AllGather(ctx, parts)
	})
	for i, part := range parts {
		for k := range all[i] {
			all[i][k] = math.Float64frombits(binary.LittleEndian.Uint64(part[8*k:]))
		}
	}
	return all, cmp.Or(fault, told)
}

// Rank returns the number of this rank, 0 for work alone.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.World.Rank()
}

// Size returns the number of ranks, 1 for work alone.
func (g *Group) Size() int {
	if g == nil {
		return 1
	}
	return g.World.Size()
}

func encodeSettings(values map[string]string) []byte {
	raw, _ := json.Marshal(values) // which cannot fail for text
	return raw
}

func decodeSettings(raw []byte) (values map[string]string) {
	_ = json.Unmarshal(raw, &values)
	return values
}
