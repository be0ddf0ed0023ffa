package image

import (
	"bytes"
	"context"
	"debug/elf"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// EnvSteps has this test take the steps of the Dockerfile, as
// scripts/docker_steps.sh does: "all", or names of targets with commas between
// them. That takes minutes where nothing has been built.
const EnvSteps = "LORAFUSE_DOCKER_STEPS"

// TestSteps takes the steps of the Dockerfile and starts what comes out of them.
func TestSteps(t *testing.T) {
	wanted := os.Getenv(EnvSteps)
	if wanted == "" {
		t.Skip(EnvSteps + "=all takes the steps of the Dockerfile")
	}
	work := t.TempDir()
	for _, target := range []string{"cpu", "cuda"} {
		if wanted != "all" && !slices.Contains(strings.Split(wanted, ","), target) {
			continue
		}
		t.Run(target, func(t *testing.T) {
			m := built(t, work, target, runtime.GOARCH)
			starts(t, m)
		})
	}
	if wanted == "all" || strings.Contains(wanted, "arm64") {
		t.Run("cpu for arm64", func(t *testing.T) {
			m := built(t, t.TempDir(), "cpu", "arm64")
			f, err := elf.Open(m.path("/usr/local/bin/lorafuse"))
			require.NoError(t, err)
			defer f.Close()
			assert.Equal(t, elf.EM_AARCH64, f.Machine)
			assert.Nil(t, f.Section(".interp"), "static")
		})
	}
}

// steps are the lines of a log that say what was done, without what it printed.
var steps = regexp.MustCompile(`(?m)^[a-z-]+:(\d+: [A-Z]+ .*| .* (is there already|taken from this machine))$`)

// built takes the steps of a target.
func built(t *testing.T, work, target, arch string) *Image {
	t.Helper()
	seeds := map[string]string{"kernels:output/cuda": filepath.Join(root(t), "output/cuda"), "kernels:kernels/cuda/build": filepath.Join(root(t), "kernels/cuda/build")}
	var log bytes.Buffer
	m, err := Build(t.Context(), dockerfile(t), Options{
		Target: target, Folder: root(t), Files: slices.Sorted(maps.Keys(sent(t))), Work: work, Arch: arch, Seeds: seeds, Log: &log,
		Env: []string{"GOFLAGS=-buildvcs=false", "MAKEFLAGS=", "CGO_CFLAGS=", "CGO_LDFLAGS="},
	})
	require.NoError(t, err, "%s", log.String())
	for _, line := range steps.FindAllString(log.String(), -1) {
		t.Log(line)
	}
	for _, dir := range []string{"/models", "/data"} {
		info, err := os.Stat(m.path(dir))
		require.NoError(t, err)
		assert.Equal(t, os.ModeSticky|0o777, info.Mode()&^os.ModeDir, "%s: any --user may write to it", dir)
	}
	return m
}

// starts runs the image as a container engine would: as its user, in its root,
// without a GPU, and with a driver as the container runtime mounts one.
func starts(t *testing.T, m *Image) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: chroot is for root: the image was built, and not started")
	}
	if m.From != "scratch" {
		needed, err := m.AddLibraries("/usr/local/bin/lorafuse")
		require.NoError(t, err)
		assert.Subset(t, []string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, needed, "of the base image it needs the C library")
	}
	assert.Contains(t, inside(t, m), "Usage:")
	inside(t, m, m.Healthcheck...)
	program := m.Entrypoint[0]
	assert.Contains(t, inside(t, m, program, "devices"), "cpu:0")

	// The shipped model as what somebody mounts at /data.
	require.NoError(t, copyTree(filepath.Join(root(t), "examples/godoc/model"), m.path("/data/model"), owner{}))
	rows := strings.Repeat("{\"text\": \"Float64 returns the number as a float64.\"}\n", 4)
	require.NoError(t, os.WriteFile(m.path("/data/rows.jsonl"), []byte(rows), 0o644))
	settings := "model: model\noutput_dir: output\ndata: {train: rows.jsonl, max_length: 32}\nadapter: {r: 4, lora_alpha: 8, target_modules: all-linear}\nbatch_size: 2\nsteps: 2\nlearning_rate: 1e-3\n"
	require.NoError(t, os.WriteFile(m.path("/data/train.yaml"), []byte(settings), 0o644))
	inside(t, m, program, "train", "train.yaml", "--metrics-addr", "127.0.0.1:0")
	info, err := os.Stat(m.path("/data/output/adapter/adapter_model.safetensors"))
	require.NoError(t, err)
	assert.Positive(t, info.Size())
	if m.From == "scratch" {
		return
	}

	generate := []string{program, "generate", "--model", "model", "--adapter", "output/adapter", "--prompt", "func Float64() float64", "--max-new-tokens", "2", "--backend"}
	auto := inside(t, m, append(generate, "auto")...)
	_, err = outputOf(t, m, append(generate, "cuda")...)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "no CUDA driver", "it says why")

	simulator := filepath.Join(root(t), "kernels/sim/build/libcuda_sim.so")
	if _, err := os.Stat(simulator); err != nil {
		t.Log("SKIPPED: no simulated driver to mount: make sim builds it")
		return
	}
	driver := filepath.Join(filepath.Dir(libraryOf(t, m)), "libcuda.so.1")
	require.NoError(t, copyFile(simulator, m.path(driver), owner{}))
	_, err = m.AddLibraries(driver)
	require.NoError(t, err)
	assert.Contains(t, inside(t, m, program, "devices"), "cuda:0")
	inside(t, m, m.Healthcheck...)
	assert.Equal(t, auto, inside(t, m, append(generate, "cuda")...), "the same text, by the device")
}

// libraryOf is where the image has its C library.
func libraryOf(t *testing.T, m *Image) string {
	t.Helper()
	for _, dir := range libraryFolders {
		if name := filepath.Join(dir, "libc.so.6"); fileIsThere(m.path(name)) {
			return name
		}
	}
	t.Fatal("no libc.so.6")
	return ""
}

func fileIsThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// inside runs a program of the image, which must succeed, and gives what it
// prints.
func inside(t *testing.T, m *Image, args ...string) string {
	t.Helper()
	out, err := outputOf(t, m, args...)
	require.NoError(t, err)
	return out
}

func outputOf(t *testing.T, m *Image, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := m.Command(ctx, args...)
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return stdout.String(), &failed{err, c.Args, stderr.String()}
	}
	return stdout.String(), nil
}

// failed is a program of the image that did.
type failed struct {
	err    error
	args   []string
	stderr string
}

func (f *failed) Error() string {
	return f.err.Error() + ": " + strings.Join(f.args, " ") + ": " + f.stderr
}
