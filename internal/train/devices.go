package train

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/train/config"
)

// selected returns the indices of the devices that a configuration selects; nil is the first.
func selected(c *config.Config) ([]int, error) {
	if c.Devices == "" {
		return nil, nil
	}
	n, err := backend.Count(c.Backend)
	if err != nil {
		return nil, err
	}
	indices, err := backend.ParseDevices(string(c.Devices), n)
	if err != nil {
		return nil, fmt.Errorf("train: devices: %w", err)
	}
	return indices, nil
}

// deviceOf returns the device of a rank: the one that its number among the ranks of its host
// selects. Ranks on a CPU share it.
func deviceOf(w dist.World, c *config.Config) (int, error) {
	indices, err := selected(c)
	if err != nil {
		return 0, err
	}
	index, err := backend.OfRank(c.Backend, indices, w.LocalRank(), w.LocalSize())
	if err != nil {
		return 0, fmt.Errorf("train: devices: %w", err)
	}
	return index, nil
}

// sharedModel is a model that ranks of one process open once.
type sharedModel struct {
	mu sync.Mutex
	m  *model.Model
}

func (s *sharedModel) close() {
	if s.m != nil {
		s.m.Close()
	}
}

// newOnDevices opens a run whose ranks are devices of this process. It returns that of rank 0,
// which owns the others.
func newOnDevices(ctx context.Context, c *config.Config, indices []int, d Data, o Observer) (*Run, error) {
	if err := alike(c.Backend, indices); err != nil {
		return nil, err
	}
	runs, errs := make([]*Run, len(indices)), make([]error, len(indices))
	shared := &sharedModel{}
	each(local.New(len(indices)), func(rank int, w dist.World) {
		own := *c
		r := &Run{Setup: Setup{cfg: &own, data: d, index: indices[rank], shared: shared}}
		if rank == 0 {
			r.cfg, r.observer = c, o
		}
		if r.group, errs[rank] = ranks.New(ctx, w, "train", timeoutOf(c)); errs[rank] == nil {
			runs[rank], errs[rank] = r.open(ctx, rank == 0)
		}
	})
	if err := firstOf(errs); err != nil {
		for _, r := range runs {
			if r != nil {
				r.Close()
			}
		}
		shared.close()
		return nil, err
	}
	runs[0].others = runs[1:]
	return runs[0], nil
}

// alike returns an error if devices of a backend are of different kinds, which round differently.
func alike(name string, indices []int) error {
	name, err := backend.Selected(name)
	if err != nil {
		return err
	}
	infos, err := backend.Devices(name)
	if err != nil {
		return err
	}
	first := infos[indices[0]]
	for _, i := range indices[1:] {
		if x := infos[i]; x.Detail != first.Detail {
			return fmt.Errorf("train: devices: found %v, %s (%s), and %v, %s (%s), expected devices of one kind; list some of one kind, such as devices: [%d]",
				first, first.Name, first.Detail, x, x.Name, x.Detail, indices[0])
		}
	}
	return nil
}

// each runs f for every rank at the same time.
func each[W any](worlds []W, f func(rank int, w W)) {
	var all sync.WaitGroup
	for rank, w := range worlds {
		all.Go(func() { f(rank, w) })
	}
	all.Wait()
}

// firstOf returns the error of rank 0, or else one that it does not report.
func firstOf(errs []error) error {
	if errs[0] != nil {
		return errs[0]
	}
	for _, err := range errs[1:] {
		if err != nil && !errors.Is(err, ErrElsewhere) {
			return err
		}
	}
	return nil
}
