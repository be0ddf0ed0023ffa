package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// connect joins the ranks that a launcher such as mpirun has started, if there is one. Rank 0
// reports what keeps all from it.
func (a *app) connect(ctx context.Context) (err error) {
	if a.world != nil {
		return nil
	}
	a.world, err = dist.FromEnv(ctx)
	if err == nil {
		return nil
	}
	if launch, _ := dist.Launched(); launch != nil && launch.Rank > 0 && (errors.Is(err, dist.ErrNoMPI) || errors.Is(err, dist.ErrWrongLauncher) && launch.Ranks > 0) {
		time.Sleep(time.Second) // the launcher ends all ranks, rank 0 too, when one has exited
		return fmt.Errorf("%w: %w", train.ErrElsewhere, err)
	}
	return err
}

// leads reports whether this process prints: the only one, or rank 0.
func (a *app) leads() bool { return a.world == nil || a.world.Rank() == 0 }

// silent reports whether another rank prints an error.
func (a *app) silent(err error) bool {
	if errors.Is(err, train.ErrElsewhere) {
		return true
	}
	var lost *dist.LostError
	if a.world == nil || !errors.As(err, &lost) {
		return false
	}
	for rank := range a.world.Rank() {
		if !slices.Contains(lost.Ranks, rank) {
			return true
		}
	}
	return false
}

// saveTime is how long the other ranks wait after a lost rank, while rank 0 saves the last
// complete step. Rank 0 then ends all of them.
const saveTime = 4 * time.Second

// leave ends the part of this process among the ranks. abort ends all of them.
func (a *app) leave(status int, abort bool) {
	switch {
	case a.world == nil:
	case abort:
		if status == ExitLost && !a.leads() {
			time.Sleep(saveTime)
		}
		a.world.Abort(status)
	default:
		_ = a.world.Close() // whose error has nobody to act on it
	}
	a.world = nil
}

// follow trains as a rank that writes nothing.
func (a *app) follow(ctx context.Context, c *config.Config) error {
	if err := train.Ready(ctx, a.world, nil); err != nil {
		return err
	}
	r, err := train.NewRank(ctx, a.world, c, train.Observer{})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := train.Ready(ctx, a.world, nil); err != nil {
		return err
	}
	if _, err = r.Train(ctx); err != nil && !errors.Is(err, train.ErrInterrupted) {
		err = &failure{err}
	}
	return err
}

// followJobs trains jobs as a rank that prints nothing.
func (a *app) followJobs(ctx context.Context, c *config.Config) error {
	if err := train.Ready(ctx, a.world, nil); err != nil {
		return err
	}
	j, err := train.NewJobsRank(ctx, a.world, c, func(string) train.Observer { return train.Observer{} })
	if err != nil {
		return err
	}
	defer j.Close()
	if _, err = j.Train(ctx); err != nil && !errors.Is(err, train.ErrInterrupted) {
		err = &failure{err}
	}
	return err
}
