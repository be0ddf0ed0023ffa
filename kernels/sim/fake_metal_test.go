package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildMetal makes targets of the Makefile that are the fake Metal's, and gives the
// folder they lie in.
func buildMetal(t *testing.T, targets ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skipf("SKIPPED: the fake Metal runs on linux, on amd64 and arm64, not on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	clang := os.Getenv("CLANG")
	if clang == "" {
		clang = "clang-19"
	}
	for _, program := range []string{"make", clang} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: the fake Metal is built with %s, which is not installed", program)
		}
	}
	if _, err := os.Stat("/usr/include/GNUstep/Foundation/Foundation.h"); err != nil {
		t.Skip("SKIPPED: the fake Metal is built with GNUstep's Foundation, which is not installed")
	}
	skipUnlessBuilt(t, "build/libmetal_sim.so", "make metal-sim")
	sources(t) // a change of any makes go test run this again
	out, err := exec.Command("sh", append([]string{"../../scripts/metal_sim.sh"}, targets...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return "build"
}

// Each case is a process, since most of them must end it: with the message that
// stands behind their names.
func TestFakeMetal(t *testing.T) {
	program := filepath.Join(buildMetal(t, "metaltest"), "metaltest")
	list, err := run(t, nil, program)
	require.NoError(t, err, "%s", list)
	right, wrong := 0, 0
	for line := range strings.Lines(string(list)) {
		name, message, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		t.Run(name, func(t *testing.T) {
			if message != "" {
				wrong++
				out, err := run(t, nil, program, name)
				require.Error(t, err, "%s", out)
				require.Contains(t, string(out), message)
				return
			}
			right++
			for _, order := range []string{"forward", "reverse", "random"} {
				out, err := run(t, []string{"LFSIM_ORDER=" + order, "LFSIM_THREADS=2"}, program, name)
				require.NoError(t, err, "%s: %s", order, out)
			}
		})
	}
	require.Greater(t, right, 30)
	require.GreaterOrEqual(t, wrong, 50)
}

// What runs side by side must do so again and again.
func TestFakeMetalUnderLoad(t *testing.T) {
	times := 3
	if os.Getenv("LORAFUSE_LONG") != "" {
		times = 100
	}
	program := filepath.Join(buildMetal(t, "metaltest"), "metaltest")
	for i := range times {
		for _, name := range []string{"threads_and_queues", "events_between_queues", "nothing_is_left", "handlers"} {
			out, err := run(t, nil, program, name)
			require.NoError(t, err, "%s, time %d: %s", name, i, out)
		}
	}
}
