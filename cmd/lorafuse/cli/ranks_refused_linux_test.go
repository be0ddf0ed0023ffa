package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// onRank1 is a program that makes a change on rank 1 and becomes the one that follows it.
func onRank1(change string) []string {
	return []string{"/bin/sh", "-c", "case $OMPI_COMM_WORLD_RANK in 1) " + change + ";; esac; exec \"$0\" \"$@\""}
}

// TestRanksRefused: what would make the ranks train apart, or compute different steps, is
// refused before the first step, in one line of rank 0.
func TestRanksRefused(t *testing.T) {
	c := newCluster(t)
	if c.hydra {
		t.Skip("needs Open MPI, whose ranks this test tells apart")
	}
	file := c.config(c.model(), c.rows(20, completions), "")
	rows, model := c.file("other.jsonl", strings.Repeat(`{"prompt": "other", "completion": "rows"}`+"\n", 20)), c.copy(llama, "other")
	c.tensors(filepath.Join(model, "model.safetensors"), nan("model.norm.weight"))
	const there = `rank 1 on \S+ differs from rank 0 on \S+: `
	for name, r := range map[string]struct {
		size    int
		program []string
		args    []string
		want    string
	}{
		"static program":    {3, []string{c.static}, nil, `this build has no MPI, but the launcher started 3 ranks \(OMPI_COMM_WORLD_SIZE=3\): run lorafuse-mpi`},
		"mixed builds":      {2, append(onRank1("exec "+c.program("lorafuse-other")+` "$@"`), c.ranks), nil, there + `build is .*-tags=mpi,other .* there, .*-tags=mpi .* here; start all ranks with the same program`},
		"instruction sets":  {2, append(onRank1("export LORAFUSE_CPU=avx2"), c.ranks), nil, there + `.*device is .*avx2.* there, .* here`},
		"data of one rank":  {2, append(onRank1(`set -- "$@" --set data.train=`+rows), c.ranks), nil, there + `.*data.train is .* there, .* here`},
		"weights":           {2, append(onRank1(`set -- "$@" --set model=`+model), c.ranks), nil, there + `weights is sha256 \w+ there, sha256 \w+ here`},
		"settings":          {2, append(onRank1(`set -- "$@" --set seed=7`), c.ranks), nil, there + `.*seed is 7 there, 42 here`},
		"no data":           {2, append(onRank1(`set -- "$@" --set data.train=none.jsonl`), c.ranks), nil, `rank 1 on \S+: .*none.jsonl`},
		"key of one rank":   {2, append(onRank1(`set -- "$@" --set sed=7`), c.ranks), nil, `rank 1 on \S+: .*sed.*did you mean "seed"`},
		"more ranks":        {4, []string{c.ranks}, []string{"--set", "gradient_accumulation_steps=3"}, `gradient_accumulation_steps: found 3, 3 micro-batches of a step, for 4 ranks, expected at least as many micro-batches as ranks; raise it`},
		"model of no rank":  {2, []string{c.ranks}, []string{"--set", "model=none"}, `none`},
		"rows of a dry run": {2, []string{c.ranks}, []string{"--set", "data.train=none.jsonl", "--dry-run"}, `none.jsonl`},
	} {
		t.Run(name, func(t *testing.T) {
			status, out := c.start(r.size, nil, append(append(r.program, "train", file), r.args...)...).wait()
			c.refused(t, status, out, r.want)
		})
	}

	t.Run("output folder in use", func(t *testing.T) {
		other := exec.Command(c.static, "train", file, "--set", "steps=1000000", "--set", "log.plot=false")
		require.NoError(t, other.Start())
		defer other.Wait()
		defer other.Process.Kill()
		metrics := filepath.Join(c.output(), "metrics.jsonl")
		require.Eventually(t, func() bool { return stepsOf(metrics) > 0 }, time.Minute, time.Millisecond)
		status, out := c.train(2, file).wait()
		require.NoError(t, os.Remove(metrics))
		c.refused(t, status, out, `another run is under way`)
	})

	t.Run("another launcher", func(t *testing.T) {
		launcher, err := exec.LookPath("mpiexec.mpich")
		if err != nil {
			t.Skip("needs MPICH: scripts/test_mpi.sh all")
		}
		d := *c
		d.launcher, d.hydra = launcher, true
		status, out := d.start(3, []string{"LORAFUSE_LIBMPI=libmpi.so.40"}, c.ranks, "train", file).wait()
		c.refused(t, status, out, `the launcher started 3 ranks \(PMI_SIZE=3\), .* sees 1: use the mpirun or mpiexec of this library`)
	})
}

// refused requires that a job has ended before its first step with one line about the reason.
func (c *cluster) refused(t *testing.T, status int, out, want string) {
	t.Helper()
	require.NotZero(t, status, out)
	lines := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "lorafuse: ") {
			lines++
			require.Regexp(t, want, line)
		}
	}
	require.Equal(t, 1, lines, out)
	require.NoFileExists(t, filepath.Join(c.output(), "metrics.jsonl"), fmt.Sprint(out))
}
