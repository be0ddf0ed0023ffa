package train_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// trainJobsOn trains jobs on the ranks of a World, and returns the SHA-256 of the adapters by the
// names of the jobs, as rank 0 reports them.
func trainJobsOn(t *testing.T, worlds []dist.World, c *config.Config, ctx func(rank int) context.Context, step func(train.Report)) (map[string]string, []error) {
	outcomes, errs := make([][]train.Outcome, len(worlds)), make([]error, len(worlds))
	var wg sync.WaitGroup
	for rank, w := range worlds {
		wg.Go(func() {
			own := *c
			j, err := train.NewJobsRank(context.Background(), w, &own, func(string) train.Observer { return train.Observer{Step: step} })
			if err != nil {
				errs[rank] = err
				return
			}
			defer j.Close()
			outcomes[rank], errs[rank] = j.Train(ctx(rank))
		})
	}
	wg.Wait()
	sums := map[string]string{}
	for _, x := range outcomes[0] {
		if x.Err == nil {
			sums[x.Name] = adapterSum(t, x.Summary.Adapter)
		}
	}
	return sums, errs
}

// eightJobs differ in data, steps, rank and dropout.
var eightJobs = []string{
	"steps: 3", "steps: 9, adapter: {r: 2}", "steps: 1", "steps: 5, adapter: {lora_dropout: 0.2}",
	"steps: 2, learning_rate: 0.02", "steps: 4, gradient_accumulation_steps: 2", "steps: 6, seed: 3", "steps: 2, batch_size: 3",
}

// TestShareOfJobs: jobs on any number of ranks give the adapters of jobs in one process.
func TestShareOfJobs(t *testing.T) {
	w := newWorkshop(t, tinyModel, "save_steps=2", "threads=1", "gradient_accumulation_steps=4")
	for _, c := range []struct {
		jobs  []string
		sizes []int
	}{{eightJobs, []int{2, 3, 4}}, {eightJobs[:2], []int{3, 4}}} {
		together := w.together(c.jobs)
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
		want, _, err := w.train(together)
		require.NoError(t, err)
		require.Len(t, want, len(c.jobs))
		if os.Getenv("LORAFUSE_LONG") == "" {
			c.sizes = c.sizes[1:2]
		}
		for _, size := range c.sizes {
			require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
			got, errs := trainJobsOn(t, local.New(size), together, background, nil)
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, want, got, "%d jobs on %d ranks", len(c.jobs), size)
		}
	}
	// In one process on several devices.
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
	together := w.together(eightJobs[:3])
	want, _, err := w.train(together)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
	j, err := train.NewJobsOnDevices(together, 0, 0)
	require.NoError(t, err)
	all, err := j.Train(context.Background())
	j.Close()
	require.NoError(t, err)
	for _, x := range all {
		require.Equal(t, want[x.Name], adapterSum(t, x.Summary.Adapter))
	}
}

// TestShareOfJobsInterrupted: an interruption of one rank is one of all, and another number of
// ranks goes on to the same adapters.
func TestShareOfJobsInterrupted(t *testing.T) {
	w := newWorkshop(t, tinyModel, "save_steps=2", "threads=1", "gradient_accumulation_steps=4")
	for _, jobs := range [][]string{eightJobs[:5], eightJobs[:2]} {
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
		c := w.together(jobs)
		want, _, err := w.train(c)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
		ctx, cancel := context.WithCancel(context.Background())
		_, errs := trainJobsOn(t, local.New(3), c, func(rank int) context.Context {
			if rank == 1 {
				return ctx
			}
			return context.Background()
		}, func(r train.Report) {
			if r.Step == 2 {
				cancel()
			}
		})
		require.ErrorIs(t, errs[0], train.ErrInterrupted)
		again := w.together(jobs, "resume=latest")
		got, errs := trainJobsOn(t, local.New(2), again, background, nil)
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, want, got)
	}
}

// TestShareOfJobsLost: a rank that stops answering ends the jobs of all, which are saved.
func TestShareOfJobsLost(t *testing.T) {
	w := newWorkshop(t, tinyModel, "save_steps=0", "threads=1", "distributed_timeout=1s")
	c := w.together([]string{"steps: 100000", "steps: 100000"})
	worlds := local.New(2)
	worlds[1] = &deaf{World: worlds[1], gathers: 24}
	_, errs := trainJobsOn(t, worlds, c, background, nil)
	for _, err := range errs {
		require.ErrorIs(t, err, dist.ErrLost)
	}
	for i := range 2 {
		path, err := train.LatestCheckpoint(filepath.Join(w.dir, "jobs", fmt.Sprintf("job%d", i)))
		require.NoError(t, err)
		require.NotEmpty(t, path)
	}
}

// TestAssign: the longest jobs come first, and each rank has one.
func TestAssign(t *testing.T) {
	require.Equal(t, []int{0, 1, 2, 2, 1}, train.Assign([]float64{10, 7, 5, 4, 3}, 3))
	require.Equal(t, []int{0, 1, 2}, train.Assign([]float64{0, 0, 0}, 3))
	require.Equal(t, []int{1, 0, 1, 1}, train.Assign([]float64{1, 9, 2, 3}, 2))
}
