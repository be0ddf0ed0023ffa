package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// brokenRun is a run of ranks that is broken off, and what it leaves without that.
type brokenRun struct {
	*cluster
	file             string
	steps, saveSteps int
	want             map[string]string
}

func newBrokenRun(t *testing.T, steps, saveSteps int) *brokenRun {
	c := newCluster(t)
	if c.hydra {
		t.Skip("needs Open MPI, whose ranks this test tells apart")
	}
	file := c.config(llama, c.rows(40, completions), "eval_steps: 10\neval_batch_size: 2\nlog: {plot: false, tensorboard: false}\ndistributed_timeout: 2s\n")
	b := &brokenRun{cluster: c, file: file, steps: steps, saveSteps: saveSteps}
	b.want = b.last(b.alone(b.args()...))
	return b
}

func (b *brokenRun) args(more ...string) []string {
	args := []string{b.file}
	for _, set := range []string{fmt.Sprint("steps=", b.steps), fmt.Sprint("save_steps=", b.saveSteps), "adapter.lora_dropout=0.1", "data.eval=" + b.path("rows.jsonl")} {
		args = append(args, "--set", set)
	}
	return append(args, more...)
}

// last leaves out of the files of a run the checkpoints, which depend on where it was broken off.
func (b *brokenRun) last(files map[string]string) map[string]string {
	for name := range files {
		if strings.HasPrefix(name, "checkpoint-") {
			delete(files, name)
		}
	}
	return files
}

// done returns the number of steps that the run has recorded.
func (b *brokenRun) done() int { return stepsOf(filepath.Join(b.output(), "metrics.jsonl")) }

// saved returns the steps of the checkpoints, in order.
func (b *brokenRun) saved() (steps []int) {
	paths, err := filepath.Glob(filepath.Join(b.output(), "checkpoint-*"))
	require.NoError(b.t, err)
	for _, p := range paths {
		n, err := strconv.Atoi(p[strings.LastIndex(p, "-")+1:])
		require.NoError(b.t, err)
		steps = append(steps, n)
	}
	slices.Sort(steps)
	return steps
}

// requireSaved requires that the last complete step is saved. Its evaluation can be missing, and
// with it the record.
func (b *brokenRun) requireSaved(out string) {
	b.t.Helper()
	saved := b.saved()
	require.NotEmpty(b.t, saved, out)
	require.Contains(b.t, []int{b.done(), b.done() + 1}, saved[len(saved)-1], out)
}

// begin starts the run on ranks and waits until it has recorded so many steps.
func (b *brokenRun) begin(size, steps int) *job {
	b.t.Helper()
	require.NoError(b.t, os.RemoveAll(b.output()))
	j := b.train(size, b.args()...)
	if !assert.Eventually(b.t, func() bool { return b.done() >= steps || j.ended() }, time.Minute, time.Millisecond) {
		for rank := range size {
			j.signal(rank, syscall.SIGQUIT) // prints the goroutines
		}
		time.Sleep(time.Second)
	}
	require.GreaterOrEqual(b.t, b.done(), steps, j.output())
	return j
}

// resume completes the run on another number of ranks and compares what it leaves.
func (b *brokenRun) resume(size int) {
	b.t.Helper()
	var more []string
	if len(b.saved()) > 0 {
		more = append(more, "--resume")
	}
	status, out := b.train(size, b.args(more...)...).wait()
	require.Zero(b.t, status, out)
	require.Equal(b.t, b.want, b.last(b.files()), "resumed on %d ranks", size)
}

// long returns the number of repetitions of a test.
func long(short, long int) int {
	if os.Getenv("LORAFUSE_LONG") != "" {
		return long
	}
	return short
}

// TestRanksKilled: after kill -9 of a rank, no process is left. Unless rank 0 was killed, it has
// saved the last complete step and named the lost rank. Another number of ranks goes on to the
// same bytes.
func TestRanksKilled(t *testing.T) {
	b := newBrokenRun(t, 60, 10)
	for i := range long(5, 20) {
		size := 2 + rand.IntN(3)
		rank, steps := rand.IntN(size)*min(i, 1), rand.IntN(b.steps*3/4)
		j := b.begin(size, steps)
		time.Sleep(rand.N(30 * time.Millisecond))
		began := time.Now()
		j.signal(rank, syscall.SIGKILL)
		status, out := j.wait()
		t.Logf("rank %d of %d killed after step %d: ended %.1f s later with status %d, saved %d", rank, size, b.done(), time.Since(began).Seconds(), status, b.saved())
		require.NotZero(t, status, out)
		if rank > 0 && steps > 0 {
			require.Regexp(t, fmt.Sprintf(`(waiting  for|lost rank:) .*rank %d on .* in all-\S+( of step \d+|: )`, rank), out)
			b.requireSaved(out)
		}
		b.resume(1 + size%4)
	}
}

// TestRanksStopped: if a rank hangs, rank 0 saves the last complete step after the deadline and
// names it, and all processes end with status 75.
func TestRanksStopped(t *testing.T) {
	b := newBrokenRun(t, 60, 0)
	for _, rank := range []int{1, 0}[:long(1, 2)] {
		j := b.begin(2, 5)
		began := time.Now()
		j.signal(rank, syscall.SIGSTOP)
		status, out := j.wait()
		t.Logf("rank %d stopped: ended %.1f s later", rank, time.Since(began).Seconds())
		require.Equal(t, ExitLost, status, out)
		require.Regexp(t, fmt.Sprintf(`lorafuse: train: step \d+: lost rank: rank %d on \S+ in all-\S+: no answer within distributed_timeout`, rank), out)
		if rank > 0 {
			b.requireSaved(out)
		}
		b.resume(3)
	}
}

// TestRanksInterrupted: SIGINT of mpirun, and SIGTERM of any rank, end the run after one
// checkpoint.
func TestRanksInterrupted(t *testing.T) {
	b := newBrokenRun(t, 400, 0) // Open MPI waits a second before it sends signals
	for rank := -1; rank < long(1, 3); rank++ {
		j := b.begin(3, 5)
		if rank < 0 {
			require.NoError(t, j.cmd.Process.Signal(os.Interrupt))
		} else {
			j.signal(rank, syscall.SIGTERM)
		}
		status, out := j.wait()
		if rank >= 0 {
			require.Equal(t, ExitInterrupted, status, out)
			require.Regexp(t, `lorafuse: train: interrupted after step \d+ of \d+; go on with --resume: lorafuse train `, out)
			require.Equal(t, 1, strings.Count(out, "lorafuse: "), out)
		}
		require.Equal(t, 1, strings.Count(out, "saved    "), out)
		b.requireSaved(out)
		t.Logf("signal to rank %d (−1: mpirun): ended with status %d", rank, status)
		b.resume(2)
	}
}
