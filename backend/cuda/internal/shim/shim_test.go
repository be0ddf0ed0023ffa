//go:build cuda && linux

package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
)

// A driver that is open stays open, so what a process can do once is done in
// processes of their own: this binary, told by this variable what to do.
const envRole = "LORAFUSE_SHIM_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "":
		os.Exit(m.Run())
	case "load":
		err := Load()
		path, lacks := Loaded()
		fmt.Println(err, path, lacks, Load())
	case "calls":
		if err := Load(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(call(index("cuMemAlloc_v2")), call(index("cuMemFree_v2")), call(index("cuCtxSynchronize")))
	}
}

// names are those of symbols.txt.
func names(t testing.TB) []string {
	raw, err := os.ReadFile("symbols.txt")
	require.NoError(t, err)
	return strings.Fields(string(raw))
}

func index(name string) int {
	raw, err := os.ReadFile("symbols.txt")
	if err != nil {
		panic(err)
	}
	return slices.Index(strings.Fields(string(raw)), name)
}

// again runs this binary in a role with a driver.
func again(t *testing.T, role, library string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+role, EnvLibrary+"="+library)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// library compiles a driver of a few lines.
func library(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "fake.c"), filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(c, []byte(source), 0o666))
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip("needs a C compiler: ", err)
	}
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", so, c).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return so
}

// Without a driver every function answers that it is not initialised.
func TestNotLoaded(t *testing.T) {
	path, _ := Loaded()
	require.Empty(t, path)
	require.Equal(t, len(names(t)), symbols(), "symbols.h is out of date: go generate")
	for i := range symbols() {
		require.Equal(t, 3, call(i), names(t)[i])
	}
}

// A failure says what was tried and why it is of no use, and leaves everything
// as it was.
func TestNoDriver(t *testing.T) {
	t.Setenv(EnvLibrary, filepath.Join(t.TempDir(), "libcuda.so.1"))
	for range 2 {
		err := Load()
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Len(t, e.Tried, 1, "the one place that is named")
		assert.ErrorContains(t, err, "no CUDA driver: ")
		assert.ErrorContains(t, err, os.Getenv(EnvLibrary))
		assert.ErrorContains(t, err, "No such file")
	}
	require.Equal(t, 3, call(0))

	for source, want := range map[string]string{
		"int x;": "no cuInit in it",
		"int cuInit(unsigned f) { return 100; } int cuGetErrorName(int e, const char **s) { *s = \"CUDA_ERROR_NO_DEVICE\"; return 0; }": "cuInit: CUDA_ERROR_NO_DEVICE (100)",
	} {
		so := library(t, source)
		t.Setenv(EnvLibrary, so)
		err := Load()
		assert.ErrorContains(t, err, so)
		assert.ErrorContains(t, err, want)
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o666))
	t.Setenv(EnvLibrary, text)
	require.ErrorContains(t, Load(), text)
}

// The usual places are all named in the error of a host without a GPU.
func TestPlaces(t *testing.T) {
	t.Setenv(EnvLibrary, "")
	var e *Error
	if err := Load(); err == nil || !errors.As(err, &e) {
		t.Skip("this host has a driver")
	}
	for _, p := range places {
		assert.ErrorContains(t, e, p)
	}
}

// An older driver has functions under their first names, and lacks others.
func TestOldDriver(t *testing.T) {
	so := library(t, "int cuInit(unsigned f) { return 0; } int cuMemAlloc(void) { return 77; } int cuMemFree(void) { return 1; } int cuMemFree_v2(void) { return 2; }")
	require.Equal(t, "77 2 801", again(t, "calls", so))
	require.Equal(t, fmt.Sprintf("<nil> %s %d <nil>", so, len(names(t))-2), again(t, "load", so))
}

func TestSimulator(t *testing.T) {
	simtest.Need(t)
	path, _ := simtest.Find()
	out := again(t, "load", path)
	require.Regexp(t, `^<nil> \S+ \d+ <nil>$`, out)
}

// A program with the shim needs no driver to be linked or to start, and leaves
// no function of the driver open.
func TestLinked(t *testing.T) {
	if _, err := exec.LookPath("nm"); err != nil {
		t.Skip("needs nm")
	}
	for _, args := range [][]string{{"-D"}, {}} {
		out, err := exec.Command("nm", append(args, "--undefined-only", os.Args[0])...).Output()
		require.NoError(t, err)
		require.NotRegexp(t, `(?m)^\s+U cu[A-Z]`, string(out))
	}
}
