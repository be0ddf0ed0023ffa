//go:build linux && (mpi || cuda)

package mpi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
)

// Environment variables of the tests. scripts/test_mpi.sh sets the first two.
const (
	launcherVariable = "LORAFUSE_TEST_MPIRUN"    // mpirun or mpiexec; unset skips the tests that need it
	otherVariable    = "LORAFUSE_TEST_OTHER_MPI" // a libmpi that is not the launcher's
	scenarioVariable = "LORAFUSE_TEST_SCENARIO"  // what this process does as a rank
	jobVariable      = "LORAFUSE_TEST_JOB"       // marks the processes of a job
)

// crashed is the exit status of a launcher that a signal has ended.
const crashed = -1

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		dist.Exit(rank(name))
	}
	os.Exit(m.Run())
}

// launch runs a scenario on ranks, fails if a process is left, and returns exit status and
// output.
func launch(t testing.TB, ranks int, scenario string, env ...string) (status int, output string) {
	t.Helper()
	launcher := os.Getenv(launcherVariable)
	if launcher == "" {
		t.Skip("needs MPI: make test-mpi")
	}
	version, err := exec.Command(launcher, "--version").CombinedOutput()
	require.NoError(t, err, string(version))
	args := []string{"-n", fmt.Sprint(ranks), os.Args[0]}
	if !bytes.Contains(version, []byte("HYDRA")) {
		args = append([]string{"--bind-to", "none", "--oversubscribe"}, args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, launcher, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	job := fmt.Sprintf("%s=%d-%d", jobVariable, os.Getpid(), time.Now().UnixNano())
	cmd.Env = append(os.Environ(), append(env, job, scenarioVariable+"="+scenario)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "the job does not end:\n%s", out)
	require.Eventually(t, func() bool { return !running(job) }, 10*time.Second, 20*time.Millisecond, "processes of the job are left")
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// running reports whether there is a process with a variable in its environment.
func running(variable string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if env, _ := os.ReadFile(f); bytes.Contains(env, []byte(variable+"\x00")) {
			return true
		}
	}
	return false
}

// TestWorld: every method works on 1 to 4 ranks, with messages in one part and in many, for
// the library found by itself.
func TestWorld(t *testing.T) {
	for ranks := 1; ranks <= 4; ranks++ {
		status, out := launch(t, ranks, "check")
		require.Zero(t, status, out)
		require.Equal(t, ranks, strings.Count(out, "checked"), out)
	}
}

// TestKilled: the launcher ends the job when a rank is killed.
func TestKilled(t *testing.T) {
	status, out := launch(t, 3, "kill")
	require.NotZero(t, status, out)
	require.Contains(t, out, "killing rank 1")
}

// TestStopped: a rank that does not answer is named at the deadline, later calls fail with
// the same error, and Abort ends the job with its status. The launcher of Open MPI 5.0.11
// itself crashes in one of ten runs when it kills a stopped process.
func TestStopped(t *testing.T) {
	status, out := launch(t, 3, "stop")
	require.Contains(t, []int{75, crashed}, status, out)
	require.Contains(t, out, "all-gather: rank 1 did not answer: context deadline exceeded", out)
}

// TestWaiting: another goroutine learns which rank a call waits for.
func TestWaiting(t *testing.T) {
	status, out := launch(t, 3, "wait")
	require.Contains(t, []int{75, crashed}, status, out)
	require.Contains(t, out, "all-gather: rank 1 did not answer: context canceled")
	require.NotContains(t, out, "still waiting")
}

// TestStoppedInClose: Close gives up if a rank never calls it.
func TestStoppedInClose(t *testing.T) {
	status, out := launch(t, 2, "stop in close")
	require.Contains(t, []int{75, crashed}, status, out)
	require.Contains(t, out, "MPI_Finalize: MPI hangs: context deadline exceeded", out)
}

// TestAbort: a rank that aborts ends ranks that wait for it, also while another goroutine
// of it is in a call.
func TestAbort(t *testing.T) {
	for _, scenario := range []string{"abort", "abort during a call"} {
		status, out := launch(t, 3, scenario)
		require.Equal(t, 42, status, out)
	}
}

// TestLengths: a message that is longer or shorter than expected is an error.
func TestLengths(t *testing.T) {
	status, out := launch(t, 2, "lengths")
	require.Zero(t, status, out)
	require.Contains(t, out, "all-gather: rank 0 did not answer: rank 0 sends 3 bytes, 4 are expected")
	status, out = launch(t, 2, "longer")
	require.Zero(t, status, out)
	require.Regexp(t, "all-gather: rank 0 did not answer: MPI_Test: .*[Tt]runcat", out)
}

// TestOtherCalls: ranks that make different calls do not read each other's bytes.
func TestOtherCalls(t *testing.T) {
	status, out := launch(t, 2, "other calls")
	require.Equal(t, 75, status, out)
	require.Contains(t, out, "all-to-all: rank 0 did not answer: context deadline exceeded")
}

// TestWrongLauncher: a library that does not see the ranks of the launcher is refused.
func TestWrongLauncher(t *testing.T) {
	if os.Getenv(otherVariable) == "" {
		t.Skip("needs a second MPI: scripts/test_mpi.sh all")
	}
	status, out := launch(t, 2, "check", override+"="+os.Getenv(otherVariable))
	require.NotZero(t, status, out)
	if !strings.Contains(out, "unsupported PMI version") { // MPICH 5 recognizes PMIx and aborts by itself
		require.Regexp(t, `wrong MPI launcher: the launcher started 2 ranks \(\w+=2\), the MPI library .* sees 1: use the mpirun`, out)
	}
	require.NotContains(t, out, "checked")
}

// TestLoad: the library of the launcher comes first, and errors name what was tried.
func TestLoad(t *testing.T) {
	t.Setenv(override, "")
	require.Equal(t, "libmpi.so.40", filepath.Base(candidates(true)[0]))
	require.Equal(t, "libmpi.so.12", filepath.Base(candidates(false)[0]))
	t.Setenv(override, "/no/libmpi.so")
	require.Equal(t, []string{"/no/libmpi.so"}, candidates(true))
	_, err := connect(context.Background(), &dist.Launch{Ranks: 2, Source: "PMI_SIZE=2"})
	require.ErrorContains(t, err, "the launcher started 2 ranks (PMI_SIZE=2), but no MPI library can be loaded (set LORAFUSE_LIBMPI to the path of the launcher's libmpi): /no/libmpi.so")
	t.Setenv(override, "libc.so.6")
	_, err = connect(context.Background(), &dist.Launch{Ranks: 2, Source: "PMI_SIZE=2"})
	require.ErrorContains(t, err, "libc.so.6 is no MPI library: it lacks MPI_")
}
