//go:build cgo && metal && metalfake

package metal_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// envAlone names the test that a process was started for.
const envAlone = "LORAFUSE_METAL_ALONE"

// alone runs the calling test again in a process of its own, with these variables of the
// stand-in for Metal. It is true in that process, and false in the one that only waits
// for it.
func alone(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(envAlone) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), envAlone+"="+t.Name()), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v\n%s", env, out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}
