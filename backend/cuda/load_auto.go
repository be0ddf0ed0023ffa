//go:build cuda && linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// Parameters of mode auto.
const (
	// worthTrials is the number of trials that the cargo must be enough for.
	worthTrials = 6
	// ringDisadvantage is the speedup over the ring that another mode must reach to be chosen. Registering keeps pages
	// of the file in memory, and both other modes make the device's goroutine wait for the disk.
	ringDisadvantage = 1.15
)

// choose selects the mode of a load: the ring, unless another mode is supported and faster for the first bytes. It
// returns the remaining cargo.
func (l *loading) choose(ctx context.Context, all []cargo) (backend.LoadMode, []cargo, error) {
	if l.total == 0 {
		return backend.LoadRing, all, nil
	}
	if err := l.openRing(); errors.Is(err, backend.ErrOutOfMemory) {
		l.stats.Mode, l.stats.Why = backend.LoadPlain, "no ring: "+err.Error()
		return backend.LoadPlain, all, nil
	} else if err != nil {
		return 0, nil, err
	}
	l.stats.Mode = backend.LoadRing
	modes, why := l.dev.ways()
	switch {
	case len(modes) == 1:
		l.stats.Why = why
	case bytesOf(all) < worthTrials*l.dev.trial:
		l.stats.Why = "too little for trials"
		if l.total > 2*bytesOf(all) {
			l.stats.Why = "there are no trials of what is converted"
		}
		modes = modes[:1]
	}
	if len(modes) == 1 {
		return backend.LoadRing, all, nil
	}
	for _, mode := range modes {
		var some []cargo
		some, all = split(all, l.dev.trial)
		left, err := l.try(ctx, mode, some)
		if err != nil {
			return 0, nil, err
		}
		all = slices.Concat(left, all)
	}
	l.stats.Mode, l.stats.Why = judge(l.stats.Trials, l.dev.trial)
	return l.stats.Mode, all, nil
}

// ways returns the modes that the device may support, the ring first, and the reason that others are missing.
func (d *Device) ways() (modes []backend.LoadMode, why string) {
	modes = []backend.LoadMode{backend.LoadRing}
	if d.has(attributeReadOnlyRegister) {
		modes = append(modes, backend.LoadRegister)
	}
	if d.has(attributeHostPageTables) {
		modes = append(modes, backend.LoadPlain)
	}
	return modes, "the device cannot pin memory that is only read, and does not read pages of the host (attributes 113 and 100 are 0)"
}

// try loads some of the cargo in one mode and records its speed. If the cargo cannot be registered, the trial records
// that and the cargo is returned.
func (l *loading) try(ctx context.Context, mode backend.LoadMode, some []cargo) (left []cargo, err error) {
	t := backend.LoadTrial{Mode: mode, Bytes: bytesOf(some)}
	s := &shipment{loading: l, block: l.block, cargo: some, given: make([]int64, len(some))}
	began := time.Now()
	switch mode {
	case backend.LoadRegister:
		err = s.register(ctx)
	case backend.LoadPlain:
		err = s.plain(ctx)
	default:
		err = s.byRing(ctx)
	}
	if errors.Is(err, errRegister) {
		t.Failure, left, err = err.Error(), s.left(), nil
	} else {
		t.BytesPerSecond = float64(t.Bytes) / max(time.Since(began), 1).Seconds()
	}
	l.stats.Trials = append(l.stats.Trials, t)
	return left, err
}

// judge returns the fastest mode and the reason for it.
func judge(trials []backend.LoadTrial, bytes int64) (best backend.LoadMode, why string) {
	var said []string
	rate := 0.0
	for _, t := range trials {
		if t.Failure != "" {
			said = append(said, fmt.Sprintf("%v: %s", t.Mode, t.Failure))
			continue
		}
		said = append(said, fmt.Sprintf("%v %.2f GB/s", t.Mode, t.BytesPerSecond/1e9))
		worth := t.BytesPerSecond
		if t.Mode != backend.LoadRing {
			worth /= ringDisadvantage
		}
		if worth > rate {
			best, rate = t.Mode, worth
		}
	}
	return best, fmt.Sprintf("the first %s: %s", bytesize.Binary(bytes), strings.Join(said, ", "))
}

func bytesOf(all []cargo) (n int64) {
	for _, c := range all {
		n += int64(c.view.Len())
	}
	return n
}

// split removes the given number of bytes from the front of the cargo. It may cut the last tensor between two rows.
func split(all []cargo, bytes int64) (some, rest []cargo) {
	for i, c := range all {
		n := int64(c.view.Len())
		if n <= bytes {
			bytes -= n
			continue
		}
		some, rest = slices.Clone(all[:i]), all[i:]
		front, back, ok := cut(c, bytes)
		if ok {
			some, rest = append(some, front), append([]cargo{back}, rest[1:]...)
		} else if bytes > 0 {
			some, rest = append(some, c), rest[1:]
		}
		return some, rest
	}
	return all, nil
}

// cut divides a tensor after the row that contains the given byte.
func cut(c cargo, bytes int64) (front, back cargo, ok bool) {
	if len(c.view.Shape) == 0 || c.view.Shape[0] == 0 {
		return c, c, false
	}
	rows := c.view.Shape[0]
	row := int64(c.view.Len() / rows)
	if row == 0 || bytes < row || bytes/row >= int64(rows) {
		return c, c, false
	}
	at := int(bytes / row)
	head, err := c.view.Rows(0, at)
	if err != nil {
		return c, c, false
	}
	tail, err := c.view.Rows(at, rows)
	if err != nil {
		return c, c, false
	}
	return cargo{head, c.off}, cargo{tail, c.off + head.Len()}, true
}
