package gpucheck

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every part ends within its time even if each of its steps takes all of its own,
// and benchmarks come before what takes long.
func TestParts(t *testing.T) {
	r := &runner{pack: &Pack{Tests: []Program{{Name: "backend/cuda"}, {Name: "model", Golden: true}, {Name: "train", Golden: true}}}}
	took, at := map[int]time.Duration{}, map[string]int{}
	for i, s := range r.steps() {
		at[s.name] = i
		if took[s.part] += s.limit; s.name != first {
			assert.Positive(t, s.part, s.name)
			assert.Positive(t, s.limit, s.name)
		}
	}
	for part := 1; part < len(took); part++ {
		assert.LessOrEqual(t, took[part]+took[0], MostPart, "part %d", part)
		assert.Positive(t, took[part], "part %d", part)
	}
	assert.Less(t, at["values bf16"], at["bench products bf16"])
	for name, i := range at {
		if strings.HasPrefix(name, "bench ") {
			assert.Less(t, i, at["tests backend/cuda"], name)
			assert.Less(t, i, at["goldens model"], name)
			assert.Less(t, i, at["racecheck bf16"], name)
		}
	}
	assert.Equal(t, "racecheck f32", r.steps()[len(at)-1].name)
}

// A part runs its own steps alone.
func TestOnePart(t *testing.T) {
	o := pack(t, nil)
	o.Part = 2
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	ran := 0
	for _, s := range r.Steps[1:] {
		if s.Part == 2 {
			ran++
			assert.NotEqual(t, NotRun, s.Status, s.Name)
		} else {
			assert.Equal(t, NotRun, s.Status, s.Name)
		}
	}
	assert.Positive(t, ran)
	assert.Contains(t, r.Markdown(), "| 2 | ")
	o.Part = 99
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "found part 99, expected one of 1 to ")
}

// While a step runs, the report has what it has come to, and one that is ended
// keeps it.
func TestSavesUnderWay(t *testing.T) {
	often = 20 * time.Millisecond
	t.Cleanup(func() { often = 3 * time.Second })
	o := pack(t, map[string]string{"lorafuse": `case $1 in devices) ` + lists + ` ;; bench)
		while [ $# -gt 1 ]; do [ "$1" = --save ] && f=$2; shift; done
		echo '{"rows": [{"group": "g", "median_s": 0.5}]}' >"$f.new"; mv "$f.new" "$f"; sleep 60 ;; esac`})
	o.Only = []string{"bench attention"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // whoever looks sees the row, and takes the machine away
		for ctx.Err() == nil {
			if r, err := ReadReport(filepath.Join(o.Out, JSONFile)); err == nil && r.result("bench attention").Bench != nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	x := r.result("bench attention")
	assert.Equal(t, Interrupted, x.Status)
	require.NotNil(t, x.Bench)
	assert.Equal(t, 0.5, x.Bench.Rows[0].Median)
}

// Values on the tensor cores that have launched none of their kernels have shown
// nothing.
func TestKernelsAreMissed(t *testing.T) {
	o := pack(t, map[string]string{"backend_cuda.test": passes + "; echo kernels: gemm_mma_128"})
	o.Only = []string{"values bf16", "values f32"}
	r, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrSteps)
	assert.Equal(t, "it has launched no kernel attention_bf16_…", r.result("values bf16").Reason)
	assert.Equal(t, Passed, r.result("values f32").Status)
}

// Of several drivers the first that this machine can load is taken, unless only a
// later one finds a device.
func TestFindsDriver(t *testing.T) {
	if runtime.GOOS != "linux" || machines[runtime.GOARCH] == 0 {
		t.Skip("drivers are for Linux on amd64 and arm64")
	}
	before := driverPlaces
	t.Cleanup(func() { driverPlaces = before })
	driverPlaces = nil
	dir := t.TempDir()
	library := func(name string, class elf.Class, machine elf.Machine) string {
		header := make([]byte, 64)
		copy(header, elf.ELFMAG)
		header[4], header[5], header[6] = byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
		header[16], header[18], header[20] = byte(elf.ET_DYN), byte(machine), byte(elf.EV_CURRENT)
		path := filepath.Join(dir, name, "libcuda.so.1")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, header, 0o644))
		return path
	}
	narrow := library("narrow", elf.ELFCLASS32, elf.EM_386)
	right := library("right", elf.ELFCLASS64, machines[runtime.GOARCH])
	compat := library("compat", elf.ELFCLASS64, machines[runtime.GOARCH])
	o := pack(t, map[string]string{"lorafuse": `case $LORAFUSE_LIBCUDA in */compat/*) ` + lists + ` ;; *) echo '{}' ;; esac`})
	t.Setenv(EnvLibrary, "")
	ldconfig := func(paths ...string) {
		text := "#!/bin/sh\n"
		for _, p := range paths {
			text += "echo '\tlibcuda.so.1 (libc6) => " + p + "'\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ldconfig"), []byte(text), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	ldconfig(right, narrow, compat)
	found, err := findDrivers()
	require.NoError(t, err)
	assert.Equal(t, []string{right, compat}, found)
	r := &runner{work: t.TempDir()}
	require.NoError(t, os.Symlink(filepath.Join(filepath.Dir(o.From), "bin"), filepath.Join(r.work, binFolder)))
	require.NoError(t, r.chooseDriver(t.Context()))
	assert.Equal(t, compat, r.driver, "the other one lists no device")
	ldconfig(narrow)
	require.ErrorContains(t, r.chooseDriver(t.Context()), "no CUDA driver: ldconfig knows no libcuda.so.1 for this machine")
}

// A pack and the checkout that goes with it are measured together.
func TestCheckoutCounts(t *testing.T) {
	o := pack(t, nil)
	bin := filepath.Join(filepath.Dir(o.From), "bin")
	root := t.TempDir()
	f, err := os.Create(filepath.Join(root, "large"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(MostBytes))
	require.NoError(t, f.Close())
	require.ErrorContains(t, Build(t.TempDir(), bin, root, []string{"large"}, true), "and the checkout beside it 67108864, at most 67108864 can be carried together")
}
