package service

import (
	"context"
	"errors"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// baseTrainer trains the runs of jobs on one device.
type baseTrainer struct{ *train.Base }

// New implements tuning.Trainer.
func (t baseTrainer) New(ctx context.Context, c *config.Config, o train.Observer) (tuning.Run, error) {
	r, err := t.Base.New(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// balancedTrainer trains each run on one of several devices: the one with the fewest runs that is not
// lost.
type balancedTrainer struct {
	devices []*trainerDevice
	mu      sync.Mutex // guards the counts and errors of devices
}

// trainerDevice is a device of a balancedTrainer.
type trainerDevice struct {
	tuning.Trainer
	runs int
	lost error
}

// New implements tuning.Trainer.
func (t *balancedTrainer) New(ctx context.Context, c *config.Config, o train.Observer) (tuning.Run, error) {
	for {
		d, err := t.take()
		if err != nil {
			return nil, err
		}
		r, err := d.New(ctx, c, o)
		if err == nil {
			return &balancedRun{Run: r, trainer: t, device: d}, nil
		}
		t.release(d)
		if !t.note(d, err) {
			return nil, err
		}
	}
}

// take counts a run on a device, or returns why there is none.
func (t *balancedTrainer) take() (best *trainerDevice, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.devices {
		if d.lost != nil {
			err = d.lost
		} else if best == nil || d.runs < best.runs {
			best = d
		}
	}
	if best == nil {
		return nil, err
	}
	best.runs++
	return best, nil
}

func (t *balancedTrainer) release(d *trainerDevice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.runs--
}

// note records the loss of a device if err is its error, and reports whether it is.
func (t *balancedTrainer) note(d *trainerDevice, err error) bool {
	if !errors.Is(err, backend.ErrLost) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d.lost = err
	return true
}

// balancedRun is a run of a balancedTrainer.
type balancedRun struct {
	tuning.Run
	trainer *balancedTrainer
	device  *trainerDevice
}

// Train implements tuning.Run.
func (r *balancedRun) Train(ctx context.Context) (*train.Summary, error) {
	s, err := r.Run.Train(ctx)
	r.trainer.note(r.device, err)
	return s, err
}

// Close implements tuning.Run.
func (r *balancedRun) Close() {
	r.Run.Close()
	r.trainer.release(r.device)
}
