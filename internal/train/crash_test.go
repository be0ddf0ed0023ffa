package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

// A checkpoint with a bit that has turned over is refused, and the run goes on
// from the one before as if the later had never been: also where it is then
// interrupted again.
func TestDamagedCheckpoint(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"eval_steps=2", "steps=6", "save_steps=2"})
	s, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	want := outcomeOf(t, c, s)

	newest := filepath.Join(c.OutputDir, "checkpoint-4", "optimizer.safetensors")
	raw, err := os.ReadFile(newest)
	require.NoError(t, err)
	raw[len(raw)-1] ^= 1
	require.NoError(t, os.WriteFile(newest, raw, 0o666))
	again := *c
	again.Resume = "latest"
	_, err = train.New(context.Background(), &again, train.Observer{})
	require.ErrorIs(t, err, train.ErrCheckpoint)
	require.ErrorContains(t, err, "checkpoint-4: unusable checkpoint: damaged: the checksum of optimizer.safetensors was crc32c ")

	again.Resume = filepath.Join(c.OutputDir, "checkpoint-2")
	ctx, cancel := context.WithCancel(context.Background())
	r, err := train.New(context.Background(), &again, train.Observer{Step: func(train.Report) { cancel() }})
	require.NoError(t, err)
	_, err = r.Train(ctx)
	r.Close()
	require.ErrorIs(t, err, train.ErrInterrupted)
	require.NoDirExists(t, filepath.Join(c.OutputDir, "checkpoint-4"))
	again.Resume = "latest"
	s, err = trainUntil(t, context.Background(), &again)
	require.NoError(t, err)
	require.Equal(t, want, outcomeOf(t, c, s))

	again.Resume = filepath.Join(t.TempDir(), "checkpoint-2")
	require.NoError(t, os.CopyFS(again.Resume, os.DirFS(filepath.Join(c.OutputDir, "checkpoint-2"))))
	_, err = train.New(context.Background(), &again, train.Observer{})
	require.ErrorContains(t, err, "has checkpoints of its own")
}

// A run that is killed between any two things that it tells of goes on to the
// same end, whatever lies there: the leavings of a write, a line cut short.
func TestKilledBetween(t *testing.T) {
	dir := t.TempDir()
	c := interruptibleRun(t, dir, []string{"eval_steps=2", "steps=4", "save_steps=1", "save_limit=2"})
	var states []string
	keep := func() {
		state := filepath.Join(dir, fmt.Sprintf("state-%d", len(states)))
		require.NoError(t, os.CopyFS(state, os.DirFS(c.OutputDir)))
		states = append(states, state)
	}
	r, err := train.New(context.Background(), c, train.Observer{Note: func(string) { keep() }, Step: func(train.Report) { keep() }})
	require.NoError(t, err)
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	r.Close()
	keep()
	want := outcomeOf(t, c, s)
	require.Greater(t, len(states), 8)
	for _, state := range states {
		require.NoError(t, os.MkdirAll(filepath.Join(state, ".tmp-0123456789ab-checkpoint-3"), 0o777))
		if f, err := os.OpenFile(filepath.Join(state, "metrics.jsonl"), os.O_WRONLY|os.O_APPEND, 0); err == nil {
			_, err = f.WriteString(`{"step":4,"lo`)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		again := *c
		again.OutputDir, again.Resume = state, "latest"
		s, err := trainUntil(t, context.Background(), &again)
		require.NoError(t, err, state)
		require.Equal(t, want, outcomeOf(t, &again, s), state)
		require.NoDirExists(t, filepath.Join(state, ".tmp-0123456789ab-checkpoint-3"))
	}
}
