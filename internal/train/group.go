package train

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
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrElsewhere is wrapped by the error of a run that ends because of another rank, or that
// all ranks have: rank 0 reports it.
var ErrElsewhere = errors.New("reported by rank 0")

// errTimeout is the cause of exchanges that take too long.
var errTimeout = errors.New("no answer within distributed_timeout")

// group is the part of a run in a World, whose ranks share the steps. The nil group is a run
// alone.
//
// Ranks agree before each exchange of data: a rank with an error, or one that is interrupted,
// makes the same call as the others, and all end together.
type group struct {
	world   dist.World
	timeout time.Duration
	hosts   []string // of the ranks
	step    int      // for errors
	pending chan error
	sum     *dist.Sum
	vector  []float32 // of a micro-batch, and then of the step
}

// timeoutOf returns how long ranks wait for one another.
func timeoutOf(c *config.Config) time.Duration { return time.Duration(c.DistributedTimeout) }

// newGroup returns the group of a World after the ranks have met.
func newGroup(ctx context.Context, w dist.World, timeout time.Duration) (*group, error) {
	if w == nil || w.Size() == 1 {
		return nil, nil
	}
	g := &group{world: w, timeout: timeout}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return g, g.exchange(ctx, nil, func(ctx context.Context) error {
		all, err := dist.Gather(ctx, w, []byte(host))
		for _, h := range all {
			g.hosts = append(g.hosts, string(h))
		}
		return err
	})
}

// leads reports whether this rank writes the output and reports.
func (g *group) leads() bool { return g == nil || g.world.Rank() == 0 }

// exchange makes a call of the World within the timeout, whatever becomes of ctx: the ranks
// must agree on an interruption. When ctx ends meanwhile, rescue is called, unless it is nil,
// for the launcher may kill this process soon.
func (g *group) exchange(ctx context.Context, rescue func(), call func(ctx context.Context) error) error {
	g.start(ctx, call)
	return g.finish(ctx, rescue)
}

// start begins an exchange, which finish ends.
func (g *group) start(ctx context.Context, call func(ctx context.Context) error) {
	done := make(chan error, 1)
	g.pending = done
	go func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), g.timeout, errTimeout)
		defer cancel()
		done <- call(ctx)
	}()
}

// graceTime is how long an exchange may take after an interruption before the run is saved.
const graceTime = 200 * time.Millisecond

// finish waits for the exchange that start has begun, if any.
func (g *group) finish(ctx context.Context, rescue func()) error {
	if g == nil || g.pending == nil {
		return nil
	}
	done := g.pending
	g.pending = nil
	interrupted, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case err := <-done:
			return g.name(err)
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

// waiting describes the ranks that the exchange in progress waits for, and the call; "" if
// unknown.
func (g *group) waiting() string {
	w, ok := g.world.(dist.Waiter)
	if !ok {
		return ""
	}
	call, ranks := w.Waiting()
	if len(ranks) == 0 {
		return ""
	}
	return fmt.Sprintf("%s in %s", g.places(ranks), call)
}

// places names ranks with their hosts.
func (g *group) places(ranks []int) string {
	var all []string
	for _, r := range ranks {
		all = append(all, g.place(r))
	}
	return strings.Join(all, ", ")
}

func (g *group) place(rank int) string {
	if rank < len(g.hosts) {
		return fmt.Sprintf("rank %d on %s", rank, g.hosts[rank])
	}
	return fmt.Sprintf("rank %d", rank)
}

// name adds the step and the hosts to the error of an exchange.
func (g *group) name(err error) error {
	var lost *dist.LostError
	if !errors.As(err, &lost) {
		return err
	}
	who := cmp.Or(g.places(lost.Ranks), "a rank")
	return &lostInStep{fmt.Sprintf("train: step %d: %v: %s in %s: %v", g.step+1, dist.ErrLost, who, lost.Call, lost.Cause), lost}
}

// lostInStep is a lost rank with the step and the hosts.
type lostInStep struct {
	text string
	lost *dist.LostError
}

func (l *lostInStep) Error() string { return l.text }
func (l *lostInStep) Unwrap() error { return l.lost }

// Outcomes of the part of a rank.
const (
	fine = iota
	failed
	stopped
)

// agreed is an error that all ranks know.
type agreed struct{ error }

func (a *agreed) Unwrap() error { return a.error }

// isAgreed reports whether the ranks know an error, or can no longer be told.
func isAgreed(err error) bool {
	var a *agreed
	return errors.As(err, &a) || errors.Is(err, dist.ErrLost)
}

// agree exchanges whether the ranks have an error. If one has, all return an error: rank 0
// that of the first rank with one, the others one that wraps ErrElsewhere. An interruption of
// any rank is one of all: the error wraps context.Canceled.
func (g *group) agree(ctx context.Context, rescue func(), err error) error {
	if g == nil || isAgreed(err) {
		return err
	}
	var told error
	lost := g.exchange(ctx, rescue, func(ctx context.Context) error {
		var fault error
		told, fault = g.tell(ctx, err)
		return fault
	})
	return cmp.Or(lost, told)
}

// tell is agree inside of an exchange: it returns the error that all ranks know, and that of
// the exchange.
func (g *group) tell(ctx context.Context, err error) (told, fault error) {
	flags := make([][]byte, g.world.Size())
	for i := range flags {
		flags[i] = make([]byte, 1)
	}
	rank := g.world.Rank()
	flags[rank][0] = outcome(err)
	if fault := g.world.AllGather(ctx, flags); fault != nil {
		return nil, fault
	}
	first := slices.IndexFunc(flags, func(f []byte) bool { return f[0] == failed })
	if first < 0 {
		if first = slices.IndexFunc(flags, func(f []byte) bool { return f[0] == stopped }); first < 0 {
			return nil, nil
		}
	}
	var message []byte
	if err != nil {
		message = []byte(err.Error())
	}
	texts, fault := dist.Gather(ctx, g.world, message)
	if fault != nil {
		return nil, fault
	}
	switch {
	case flags[first][0] == stopped:
		err = fmt.Errorf("train: %s: %w", g.place(first), context.Canceled)
	case rank != first:
		err = fmt.Errorf("train: %s: %s", g.place(first), strings.TrimPrefix(string(texts[first]), "train: "))
	}
	return g.told(err), nil
}

func outcome(err error) byte {
	switch {
	case err == nil:
		return fine
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return stopped
	}
	return failed
}

// share returns the text of rank 0 on all ranks, or the error of any. text is called on rank 0
// alone.
func (g *group) share(ctx context.Context, text func() ([]byte, error)) (raw []byte, err error) {
	if g.leads() {
		raw, err = text()
	}
	if err := g.agree(ctx, nil, err); err != nil {
		return nil, err
	}
	return raw, g.exchange(ctx, nil, func(ctx context.Context) error {
		raw, err = dist.Broadcast(ctx, g.world, 0, raw)
		return err
	})
}

// same fails if values of the ranks differ from those of rank 0.
func (g *group) same(ctx context.Context, values map[string]string) error {
	if g == nil {
		return nil
	}
	var all [][]byte
	if err := g.exchange(ctx, nil, func(ctx context.Context) (err error) {
		all, err = dist.Gather(ctx, g.world, encodeSettings(values))
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
	return g.told(err)
}

// compare fails if the values of a rank differ from those of rank 0.
func (g *group) compare(rank int, first, values map[string]string) error {
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
	return fmt.Errorf("train: %s differs from %s: %s; start all ranks with the same program, settings and files", g.place(rank), g.place(0), strings.Join(different, "; "))
}

// told marks an error that all ranks know.
func (g *group) told(err error) error {
	if !g.leads() {
		err = fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return &agreed{err}
}

// round exchanges numbers of the ranks, unless one has an error. A group of one returns its own.
func (g *group) round(ctx context.Context, rescue func(), own []float64, err error) ([][]float64, error) {
	if g == nil {
		return [][]float64{own}, err
	}
	all, parts := make([][]float64, g.size()), make([][]byte, g.size())
	for i := range all {
		all[i], parts[i] = make([]float64, len(own)), make([]byte, 8*len(own))
	}
	for i, x := range own {
		binary.LittleEndian.PutUint64(parts[g.rank()][8*i:], math.Float64bits(x))
	}
	var told error
	fault := g.exchange(ctx, rescue, func(ctx context.Context) (fault error) {
		if told, fault = g.tell(ctx, err); told != nil || fault != nil {
			return fault
		}
		return g.world.AllGather(ctx, parts)
	})
	for i, part := range parts {
		for k := range all[i] {
			all[i][k] = math.Float64frombits(binary.LittleEndian.Uint64(part[8*k:]))
		}
	}
	return all, cmp.Or(fault, told)
}

func (g *group) rank() int {
	if g == nil {
		return 0
	}
	return g.world.Rank()
}

func (g *group) size() int {
	if g == nil {
		return 1
	}
	return g.world.Size()
}

func encodeSettings(values map[string]string) []byte {
	raw, _ := json.Marshal(values) // which cannot fail for text
	return raw
}

func decodeSettings(raw []byte) (values map[string]string) {
	_ = json.Unmarshal(raw, &values)
	return values
}
