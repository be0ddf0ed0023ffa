package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// A device that is lost does not come back. When none is left, that ends the server, for one who starts it
// again; before, each loss is in the log once.
func TestServeNoticesLostDevices(t *testing.T) {
	var log bytes.Buffer
	lost := make(chan error, 1)
	devices := []error{nil, fmt.Errorf("cuda:1: %w", backend.ErrLost)}
	o := &watched{
		lost: lost, devices: func() []error { return devices }, logger: slog.New(slog.NewTextHandler(&log, nil)), logged: map[int]bool{},
		submit: func(context.Context, batching.Request) iter.Seq2[batching.Token, error] {
			return func(yield func(batching.Token, error) bool) {
				yield(batching.Token{}, fmt.Errorf("run: %w", backend.ErrLost))
			}
		},
	}
	ask := func() {
		for _, err := range o.Submit(t.Context(), batching.Request{}) {
			require.ErrorIs(t, err, backend.ErrLost)
		}
	}
	for range 2 {
		ask()
	}
	assert.Empty(t, lost)
	assert.Equal(t, 1, strings.Count(log.String(), "a device is lost"))
	assert.Contains(t, log.String(), "cuda:1")
	devices[0] = fmt.Errorf("cuda:0: %w", backend.ErrLost)
	for range 2 {
		ask()
	}
	require.ErrorIs(t, <-lost, backend.ErrLost)
	assert.Equal(t, 2, strings.Count(log.String(), "a device is lost"))
}

// fakeTrainer is a device on which runs are opened and trained with an error.
type fakeTrainer struct {
	open, train error
	opened      int
}

// New implements tuning.Trainer.
func (f *fakeTrainer) New(context.Context, *config.Config, train.Observer) (tuning.Run, error) {
	if f.open != nil {
		return nil, f.open
	}
	f.opened++
	return fakeRun{f}, nil
}

type fakeRun struct{ *fakeTrainer }

func (f fakeRun) Train(context.Context) (*train.Summary, error) { return nil, f.train }
func (fakeRun) Close()                                          {}

// Jobs go to the device with the fewest of them, and to no device that is lost.
func TestBalancedTrainer(t *testing.T) {
	devices := []*fakeTrainer{{}, {}, {}}
	trainer := &balancedTrainer{}
	for _, d := range devices {
		trainer.devices = append(trainer.devices, &trainerDevice{Trainer: d})
	}
	begin := func() tuning.Run {
		t.Helper()
		r, err := trainer.New(t.Context(), nil, train.Observer{})
		require.NoError(t, err)
		return r
	}
	opened := func() (n []int) {
		for _, d := range devices {
			n = append(n, d.opened)
		}
		return n
	}
	begin()
	second := begin()
	begin()
	assert.Equal(t, []int{1, 1, 1}, opened())
	second.Close()
	second = begin()
	assert.Equal(t, []int{1, 2, 1}, opened())

	devices[1].train = fmt.Errorf("run: %w", backend.ErrLost)
	_, err := second.Train(t.Context())
	require.ErrorIs(t, err, backend.ErrLost)
	second.Close()
	devices[0].open = fmt.Errorf("upload: %w", backend.ErrLost)
	begin()
	assert.Equal(t, []int{1, 2, 2}, opened(), "the others are lost")

	why := errors.New("why")
	devices[2].open = why
	_, err = trainer.New(t.Context(), nil, train.Observer{})
	require.ErrorIs(t, err, why)
	devices[2].open = nil
	begin()
	devices[2].open = backend.ErrLost
	for range 2 {
		_, err = trainer.New(t.Context(), nil, train.Observer{})
		require.ErrorIs(t, err, backend.ErrLost)
	}
	assert.Equal(t, 3, trainer.devices[2].runs)
}
