// Package simtest finds the simulated driver for the tests of the CUDA backend.
package simtest

import (
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// EnvLibrary names the driver that tests run on.
const EnvLibrary = "LORAFUSE_LIBCUDA"

// EnvRequired, set to 1, makes a missing simulator a failure.
const EnvRequired = "LORAFUSE_CUDA_TEST"

// Built returns the path of the simulator if it has been built.
func Built() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../../kernels/sim/build/libcuda_sim.so")
}

// Find returns the driver to test with: the one that the environment names, or else the simulator if it is built.
func Find() (path string, ok bool) {
	path = os.Getenv(EnvLibrary)
	if path == "" {
		path = Built()
	}
	_, err := os.Stat(path)
	return path, err == nil
}

// Simulated reports whether the driver at path is the simulator, which exports an extra function.
func Simulated(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	return err == nil && slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "lfsim_leaks" })
}

// Need sets the environment for a test on the simulator, and skips the test if the simulator is missing.
func Need(t testing.TB) {
	t.Helper()
	path, ok := Find()
	if !ok {
		const why = "no simulated driver at %s: make sim builds it"
		if os.Getenv(EnvRequired) == "1" {
			t.Fatalf(why, path)
		}
		t.Skipf(why, path)
	}
	t.Setenv(EnvLibrary, path)
}
