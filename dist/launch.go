package dist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Launch is the part that a launcher has given this process in an MPI job, according to
// the environment.
type Launch struct {
	Ranks   int    // number of ranks; 0 if the launcher does not tell
	Rank    int    // number of this rank
	Source  string // the variable that tells, e.g. "OMPI_COMM_WORLD_SIZE=4"
	OpenMPI bool   // whether the launcher is Open MPI's or offers PMIx, which Open MPI uses
}

// launchers lists the variables that launchers of MPI ranks set. Slurm comes after the
// launchers that can run inside its allocations, whose ranks have both.
var launchers = []struct{ size, rank string }{
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, // mpirun of Open MPI
	{"PMI_SIZE", "PMI_RANK"},                         // mpiexec of MPICH, Intel MPI and Flux, srun --mpi=pmi2
	{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},         // srun
	{"", "PMIX_RANK"},                                // other launchers with PMIx
}

// firstSpecialStep is the lowest ID of Slurm steps that srun does not start as ranks, such
// as the shell of salloc.
const firstSpecialStep = 0xfffffff0

// Launched detects the MPI launcher of this process. It returns nil if there is none, or
// if it started a single rank, which needs no MPI. torchrun and its relatives are an error.
//
// The script of an sbatch job has SLURM_NTASKS but is not a rank. Only srun sets
// SLURM_STEP_NUM_TASKS.
func Launched() (*Launch, error) {
	for _, l := range launchers {
		if os.Getenv(l.size) == "" && os.Getenv(l.rank) == "" {
			continue
		}
		if l.size == "SLURM_STEP_NUM_TASKS" {
			step, err := strconv.ParseUint(os.Getenv("SLURM_STEP_ID"), 10, 32)
			if os.Getenv(l.size) == "" || err != nil || step >= firstSpecialStep {
				continue
			}
		}
		launch := &Launch{OpenMPI: l.size == "OMPI_COMM_WORLD_SIZE" || os.Getenv("PMIX_RANK") != ""}
		var err error
		if launch.Rank, err = number(l.rank, 0); err != nil {
			return nil, err
		}
		launch.Source = l.rank + "=" + os.Getenv(l.rank)
		if l.size == "" {
			return launch, nil
		}
		if launch.Ranks, err = number(l.size, launch.Rank+1); err != nil {
			return nil, err
		}
		launch.Source = l.size + "=" + os.Getenv(l.size)
		if launch.Ranks == 1 {
			return nil, nil
		}
		return launch, nil
	}
	if os.Getenv("RANK") != "" && os.Getenv("WORLD_SIZE") != "" && os.Getenv("WORLD_SIZE") != "1" {
		return nil, fmt.Errorf("RANK and WORLD_SIZE=%s are set, as by torchrun, accelerate launch or a Kubeflow torch policy, which do not start MPI: start lorafuse-mpi with mpirun --bind-to none -np %[1]s, or train on the GPUs of one host with devices: all", os.Getenv("WORLD_SIZE"))
	}
	return nil, nil
}

// number returns the value of an environment variable, which must be a number from least.
func number(name string, least int) (int, error) {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < least {
		return 0, fmt.Errorf("environment variable %s of the MPI launcher: found %q, expected a number from %d", name, os.Getenv(name), least)
	}
	return n, nil
}

// String describes the launch in errors, e.g. "the launcher started 4 ranks (PMI_SIZE=4)".
func (l *Launch) String() string {
	if l.Ranks == 0 {
		return fmt.Sprintf("a launcher started this process (%s)", l.Source)
	}
	return fmt.Sprintf("the launcher started %d ranks (%s)", l.Ranks, l.Source)
}

// ErrNoMPI reports that an MPI launcher started a build that cannot connect its ranks.
var ErrNoMPI = errors.New("this build has no MPI")

// ErrWrongLauncher reports that the MPI library does not see the ranks that the launcher
// started, because they are of different MPIs.
var ErrWrongLauncher = errors.New("wrong MPI launcher")

// Connector connects the ranks that a launcher started.
type Connector struct {
	// Connect makes the World of these ranks.
	Connect func(context.Context, *Launch) (World, error)
	// Exit ends the process, see [Exit]. It returns if it has nothing to do.
	Exit func(status int)
}

var connector *Connector

// Register sets the connector. Package dist/mpi calls it in builds that include it.
func Register(c *Connector) {
	if connector != nil {
		panic("dist: two connectors")
	}
	connector = c
}

// FromEnv connects this process to the ranks that its launcher started. It returns nil,
// and loads no library, if there is no launcher or it started one rank. It returns an
// error that matches [ErrNoMPI] in a build without MPI, and one that matches
// [ErrWrongLauncher] if every rank would be alone. It may be called once.
func FromEnv(ctx context.Context) (World, error) {
	launch, err := Launched()
	if launch == nil || err != nil {
		return nil, err
	}
	if connector == nil {
		return nil, fmt.Errorf("%w, but %v: run lorafuse-mpi (make build-mpi) or lorafuse-cuda", ErrNoMPI, launch)
	}
	return connector.Connect(ctx, launch)
}

// Exit ends the process. A program that calls [FromEnv] uses it instead of os.Exit, which
// does not run the exit handlers of C libraries: MPICH tells its launcher in one that this
// rank has ended well, and the launcher would kill the other ranks.
func Exit(status int) {
	if connector != nil {
		connector.Exit(status)
	}
	os.Exit(status)
}
