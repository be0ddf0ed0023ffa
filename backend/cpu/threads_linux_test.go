package cpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
)

// threadsEnv makes TestThreadsOfAProcess print what a device of its process has.
const threadsEnv = "LORAFUSE_TEST_THREADS"

// TestThreadsOfAProcess: a device has as many workers as Go runs goroutines at
// once, which obeys GOMAXPROCS, the processors that the process may run on, and
// (since the go line of go.mod is above 1.24) the quota of its cgroup.
func TestThreadsOfAProcess(t *testing.T) {
	if os.Getenv(threadsEnv) != "" {
		dev, err := cpu.Open(backend.Options{})
		require.NoError(t, err)
		defer dev.Close()
		fmt.Println(dev.Info().Detail)
		return
	}
	detail := func(env ...string) string {
		c := exec.Command(os.Args[0], "-test.run=^TestThreadsOfAProcess$")
		c.Env = append(os.Environ(), append(env, threadsEnv+"=1")...)
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.SplitN(string(out), "\n", 2)[0]
	}
	require.Contains(t, detail("GOMAXPROCS=5"), ", 5 threads")
	require.Contains(t, detail("GOMAXPROCS="), fmt.Sprintf(", %d threads", runtime.NumCPU()))

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, first unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	for i := 0; first.Count() == 0; i++ {
		if all.IsSet(i) {
			first.Set(i)
		}
	}
	require.NoError(t, unix.SchedSetaffinity(0, &first))
	alone := detail("GOMAXPROCS=")
	require.NoError(t, unix.SchedSetaffinity(0, &all))
	require.Contains(t, alone, ", 1 threads")

	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`(?m)^go 1\.(2[5-9]|[3-9]\d)`), string(mod), "older ones do not see the quota of a cgroup")
	require.NotContains(t, string(mod), "containermaxprocs")
}
