package kernels_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ptx and report are what nvcc -keep and ptxas -v write of four kernels.
const (
	ptx = `.visible .entry unary_sin_f32(
.maxntid 256, 1, 1
.visible .entry gemm(
	.param .u64 gemm_param_0
)
.maxntid 256, 1, 1
.minnctapersm 1
.visible .entry framed(
.maxntid 8, 8, 1
.visible .entry spilled(
.maxntid 128, 1, 1
`
	head = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'unary_sin_f32' for 'sm_90a'
ptxas info    : Function properties for unary_sin_f32
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers, 32 bytes cumulative stack size
ptxas info    : Compile time = 16.970 ms
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 49152 bytes smem
`
	framed = `ptxas info    : Compiling entry function 'framed' for 'sm_89'
ptxas info    : Function properties for framed
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers
`
	spilled = `ptxas info    : Compiling entry function 'spilled' for 'sm_80'
ptxas info    : Function properties for spilled
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40960 bytes smem
`
)

// A kernel that spills, or has a stack frame and no leave to have one, fails the table. Occupancy is that of the
// scarcest of registers, shared memory and warps.
func TestKernelTable(t *testing.T) {
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("SKIPPED: needs awk")
	}
	const (
		rows        = "unary_sin_f32 sm_90a 28 registers 32 stack 0 spilled 0 shared 256 threads 100%\ngemm sm_90a 168 registers 0 stack 0 spilled 49152 shared 256 threads 12%\n"
		framedRow   = "framed sm_89 16 registers 16 stack 0 spilled 0 shared 64 threads 100%\n"
		spilledRow  = "spilled sm_80 255 registers 0 stack 20 spilled 40960 shared 128 threads 12%\n"
		sine, frame = "unary_sin_f32", "unary_sin_f32 framed"
	)
	for name, c := range map[string]struct {
		allowed, report, want string
		good                  bool
	}{
		"right":     {sine, head, rows, true},
		"frame":     {sine, head + framed, rows + framedRow, false},
		"forgotten": {"", head, rows, false},
		"spill":     {frame, head + framed + spilled, rows + framedRow + spilledRow, false},
		"allowed":   {frame, head + framed, rows + framedRow, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, log := filepath.Join(dir, "x.ptx"), filepath.Join(dir, "x.log")
			require.NoError(t, os.WriteFile(source, []byte(ptx), 0o600))
			require.NoError(t, os.WriteFile(log, []byte(c.report), 0o600))
			out, err := exec.Command("awk", "-v", "framed="+c.allowed, "-f", "../scripts/cuda_table.awk", source, log).CombinedOutput()
			require.Equal(t, c.want, spaces.ReplaceAllString(string(out), " "))
			require.Equal(t, c.good, err == nil, "%v", err)
		})
	}
}
