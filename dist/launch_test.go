package dist_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// setLauncher sets variables of a launcher and clears those of all others.
func setLauncher(t *testing.T, env map[string]string) {
	t.Helper()
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "RANK", "WORLD_SIZE",
		"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_PROCID"} {
		t.Setenv(name, env[name])
		delete(env, name)
	}
	require.Empty(t, env)
}

type env = map[string]string

// TestLaunched: the launcher is recognized by its variables, the innermost one counts, and
// shells of Slurm are not ranks.
func TestLaunched(t *testing.T) {
	for name, c := range map[string]struct {
		env  env
		want *dist.Launch
	}{
		"none":    {env{}, nil},
		"mpirun":  {env{"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"}, &dist.Launch{Ranks: 4, Rank: 3, Source: "OMPI_COMM_WORLD_SIZE=4", OpenMPI: true}},
		"mpiexec": {env{"PMI_SIZE": "2", "PMI_RANK": "0"}, &dist.Launch{Ranks: 2, Source: "PMI_SIZE=2"}},
		"srun pmix": {env{"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_ID": "0", "SLURM_PROCID": "7", "SLURM_NTASKS": "16", "PMIX_RANK": "7"},
			&dist.Launch{Ranks: 8, Rank: 7, Source: "SLURM_STEP_NUM_TASKS=8", OpenMPI: true}},
		"srun without an MPI": {env{"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_ID": "2", "SLURM_PROCID": "7"}, &dist.Launch{Ranks: 8, Rank: 7, Source: "SLURM_STEP_NUM_TASKS=8"}},
		"mpirun in a step": {env{"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "1", "SLURM_PROCID": "0"},
			&dist.Launch{Ranks: 4, Rank: 1, Source: "OMPI_COMM_WORLD_SIZE=4", OpenMPI: true}},
		"PMIx alone":              {env{"PMIX_RANK": "2"}, &dist.Launch{Rank: 2, Source: "PMIX_RANK=2", OpenMPI: true}},
		"script of sbatch":        {env{"SLURM_NTASKS": "16", "SLURM_PROCID": "0"}, nil},
		"shell of salloc":         {env{"SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}, nil},
		"srun --pty bash":         {env{"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "PMIX_RANK": "0"}, nil},
		"one rank":                {env{"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, nil},
		"torchrun with one":       {env{"RANK": "0", "WORLD_SIZE": "1"}, nil},
		"WORLD_SIZE below mpirun": {env{"RANK": "0", "WORLD_SIZE": "2", "PMI_SIZE": "2", "PMI_RANK": "1"}, &dist.Launch{Ranks: 2, Rank: 1, Source: "PMI_SIZE=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			setLauncher(t, c.env)
			got, err := dist.Launched()
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	for want, env := range map[string]env{
		`OMPI_COMM_WORLD_SIZE of the MPI launcher: found "many", expected a number from 1`:                                                     {"OMPI_COMM_WORLD_SIZE": "many", "OMPI_COMM_WORLD_RANK": "0"},
		`PMI_SIZE of the MPI launcher: found "2", expected a number from 3`:                                                                    {"PMI_SIZE": "2", "PMI_RANK": "2"},
		`PMI_RANK of the MPI launcher: found "", expected a number from 0`:                                                                     {"PMI_SIZE": "2"},
		"torchrun, accelerate launch or a Kubeflow torch policy, which do not start MPI: start lorafuse-mpi with mpirun --bind-to none -np 4,": {"RANK": "1", "WORLD_SIZE": "4"},
	} {
		setLauncher(t, env)
		_, err := dist.Launched()
		require.ErrorContains(t, err, want)
	}
}

// TestFromEnv: without a launcher nothing is connected, a build without MPI refuses one,
// and a build with MPI connects what the launcher started.
func TestFromEnv(t *testing.T) {
	defer dist.Unregister()()
	setLauncher(t, env{})
	w, err := dist.FromEnv(context.Background())
	require.NoError(t, err)
	require.Nil(t, w)

	setLauncher(t, env{"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"})
	_, err = dist.FromEnv(context.Background())
	require.ErrorIs(t, err, dist.ErrNoMPI)
	require.EqualError(t, err, "this build has no MPI, but the launcher started 2 ranks (OMPI_COMM_WORLD_SIZE=2): run lorafuse-mpi (make build-mpi) or lorafuse-cuda")

	broken := errors.New("no libmpi")
	dist.Register(&dist.Connector{Connect: func(_ context.Context, l *dist.Launch) (dist.World, error) {
		if l.Rank == 0 {
			return nil, broken
		}
		return local.New(l.Ranks)[l.Rank], nil
	}})
	w, err = dist.FromEnv(context.Background())
	require.NoError(t, err)
	require.Equal(t, 2, w.Size())
	t.Setenv("OMPI_COMM_WORLD_RANK", "0")
	_, err = dist.FromEnv(context.Background())
	require.ErrorIs(t, err, broken)
	require.Panics(t, func() { dist.Register(nil) })
}

// TestThreads: a rank gets its share of the cores, or what the launcher allows.
func TestThreads(t *testing.T) {
	for _, c := range []struct{ ranks, allowed, cores, want int }{
		{1, 8, 8, 8}, {2, 8, 8, 4}, {3, 8, 8, 2}, {16, 8, 8, 1}, {2, 4, 8, 4},
	} {
		n, note := dist.ThreadsOf(c.ranks, c.allowed, c.cores)
		require.Equal(t, c.want, n, c)
		require.Empty(t, note, c)
	}
	n, note := dist.ThreadsOf(2, 1, 8)
	require.Equal(t, 1, n)
	require.Equal(t, "the launcher lets this rank use 1 of 8 cores, 4 would be its share of 2 ranks on this host: start mpirun with --bind-to none, srun with --cpu-bind=none", note)
	n, _ = dist.Threads(1)
	require.Positive(t, n)
}
