//go:build cuda && linux

package cuda_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
)

// envAlone names the test that a process was started for.
const envAlone = "LORAFUSE_CUDA_ALONE"

// alone runs the calling test again in a process of its own, with these
// variables: the simulator reads its settings once. It is true in that process,
// and false in the one that only waits for it. What the process wrote is
// checked for leaks.
func alone(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(envAlone) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), envAlone+"="+t.Name(), "LFSIM_LEAKS=1", "LFSIM_KEEP=")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v\n%s", env, out)
	require.NotContains(t, string(out), "leak:", "%v", env)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

// onSimulator is alone with the simulated driver. On a real one, which takes no
// orders to fail, it skips the test.
func onSimulator(t *testing.T, env ...string) bool {
	t.Helper()
	simtest.Need(t)
	if path, _ := simtest.Find(); !simtest.Simulated(path) {
		t.Skip("for the simulated driver only: ", path, " is a real one")
	}
	return alone(t, env...)
}
