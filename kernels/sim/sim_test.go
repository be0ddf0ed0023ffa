package sim

import (
	"bufio"
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// build makes targets of the Makefile and gives the folder they lie in.
func build(t *testing.T, targets ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skipf("SKIPPED: the simulator runs on linux, on amd64 and arm64, not on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("SKIPPED: the simulator is built with make, which is not installed")
	}
	if os.Getenv("CXX") == "" {
		if _, err := exec.LookPath("g++"); err != nil {
			if _, err := exec.LookPath("clang++"); err != nil {
				t.Skip("SKIPPED: the simulator needs g++ or clang++, neither is installed")
			}
		}
	}
	skipUnlessBuilt(t, "build/libcuda_sim.so", "make sim")
	sources(t) // a change of any makes go test run this again
	out, err := exec.Command("sh", append([]string{"../../scripts/cuda_sim.sh"}, targets...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return "build"
}

// skipUnlessBuilt skips a test that would compile for minutes, unless that has been done before or LORAFUSE_LONG is
// set.
func skipUnlessBuilt(t *testing.T, library, command string) {
	t.Helper()
	if _, err := os.Stat(library); err != nil && os.Getenv("LORAFUSE_LONG") == "" {
		t.Skipf("SKIPPED: %s has not built %s, and LORAFUSE_LONG is not set", command, library)
	}
}

// sources reads all C++ and CUDA sources.
func sources(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range []string{"../cuda", "."} {
		require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "build" {
				if err == nil {
					err = fs.SkipDir
				}
				return err
			}
			switch filepath.Ext(name) {
			case ".cu", ".cuh", ".h", ".cpp", ".m", ".metal":
				raw, err := os.ReadFile(name)
				found[name] = string(raw)
				return err
			}
			return nil
		}))
	}
	return found
}

// run runs a program, which must end in ten minutes: the longest takes half a
// minute on a quiet machine.
func run(t *testing.T, environment []string, program string, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LFSIM_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, environment...)
	return cmd.CombinedOutput()
}

// Each case is a process: an error of a launch stays until the end of one.
// What is right must be so in every order of threads, with copies as late and
// as early as can be, and with streams that run when they like or when they must.
func TestCases(t *testing.T) {
	selftest := filepath.Join(build(t, "selftest"), "selftest")
	list, err := run(t, nil, selftest, "--list")
	require.NoError(t, err)
	modes := map[string][]string{
		"forward": {"LFSIM_ORDER=forward", "LFSIM_THREADS=2"},
		"reverse": {"LFSIM_ORDER=reverse", "LFSIM_STREAMS=lazy"},
		"random":  {"LFSIM_ORDER=random", "LFSIM_SEED=3", "LFSIM_THREADS=1"},
		"eager":   {"LFSIM_ORDER=random", "LFSIM_SEED=4", "LFSIM_EAGER_CP=1"},
	}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); n++ {
		name, environment, _ := strings.Cut(lines.Text(), " ")
		for mode, settings := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				// The case's own settings come last and win.
				out, err := run(t, append(settings[:len(settings):len(settings)], strings.Fields(environment)...), selftest, name)
				require.NoError(t, err, "%s", out)
			})
		}
	}
	require.Greater(t, n, 50)
}

// A mistake in the environment is an error that names it.
func TestSettings(t *testing.T) {
	selftest := filepath.Join(build(t, "selftest"), "selftest")
	for setting, want := range map[string]string{
		"LFSIM_ORDER=backward":   "LFSIM_ORDER=backward: expected forward, reverse or random",
		"LFSIM_EAGER_CP=yes":     "LFSIM_EAGER_CP=yes: expected 0 or 1",
		"LFSIM_MEM=12X":          "LFSIM_MEM=12X: expected a number, K, M or G behind it",
		"LFSIM_FAIL=allocs:1":    "LFSIM_FAIL=allocs:1: expected entries kind[:name][:n[+]]",
		"LFSIM_STREAMS=sometime": "LFSIM_STREAMS=sometime: expected eager or lazy",
		"LFSIM_COUNT=counts":     "LFSIM_COUNT=counts: expected the library libcuda_count.so",
		"LFSIM_CC=3":             "LFSIM_CC=3: expected a compute capability such as 8.0 or 90",
	} {
		out, err := run(t, []string{setting}, selftest, "memory/poisoned")
		require.Error(t, err, setting)
		require.Contains(t, string(out), want)
	}
}
