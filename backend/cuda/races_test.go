//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
)

// unlaunched are kernels that no test of this package launches in the short form
// in which TestEveryKernel runs it; unwatched are those that are also in no launch
// that the race detector could follow. They are what is left to do; no kernel is added.
var (
	unlaunched = strings.Fields(`
		attention_decode_128_4 attention_decode_128_8 attention_decode_256_1 attention_decode_256_4 attention_decode_64_8
		binary_add_u32 binary_max_u32 binary_min_u32 binary_mul_i32 binary_mul_u32 binary_sub_u32 compare_equal_u32
		compare_greater_u32 compare_less_u32 compare_lessequal_u32 compare_notequal_u32 copy_b1 gemm_f32_parts_bf16
		gemm_f32_parts_nf4 reduce_max_row_f32 transpose_b8 update_rows_b1 update_rows_b8`)
	unwatched = strings.Fields(`
		attention_dkv_f32_128 attention_dkv_f32_256 binary_add_u32
		binary_max_u32 binary_min_u32 binary_mul_i32 binary_mul_u32 binary_sub_u32 cast_fp4_f32 cast_nf4_f32 cast_q8_f32
		compare_equal_u32 compare_greater_u32 compare_less_u32 compare_lessequal_u32 compare_notequal_u32 copy_b1
		gemm_f32_parts_bf16 gemm_f32_parts_nf4 reduce_max_row_f32 transpose_b8
		update_rows_b1 update_rows_b8`)

	// addressed are kernels that read the addresses of their operands from a table in
	// memory. A kept launch of theirs cannot be repeated, because the addresses mean
	// nothing in another process. Cases of kernels/cuda watch them.
	addressed = strings.Fields(`
		adamw_table_f32 adamw8_table_f32 squares_table_f32 copy_table_b4 sum_table_f32`)
)

// TestEveryKernel runs the tests of kernels with the threads of a block in a
// random order, and has the race detector repeat a launch of each kernel that
// they made; what they launch only in sizes that it cannot follow has a case of
// its own in kernels/cuda. No kernel is left out of either.
func TestEveryKernel(t *testing.T) {
	simtest.Need(t)
	long(t)
	if err := osexec.Command("setarch", "-R", "true").Run(); err != nil {
		t.Skip("SKIPPED: setarch -R does not work here: ", err)
	}
	out, err := osexec.Command("sh", "../../scripts/cuda_sim.sh", "race").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const race = "../../kernels/sim/build/race/race"
	all := names(t, race, "--kernels")
	require.Greater(t, len(all), 200)

	dir := t.TempDir()
	for _, args := range [][]string{
		{"-test.run", "^TestConformance$/^(device|value|grad)$|^TestRounded$/^(value|peak)$|^TestStored$/^(value|inputs|outputs)$"},
		{"-test.skip", "^(" + strings.Join([]string{ // what launches nothing else, and takes long
			t.Name(), "TestCounts", "TestConformance", "TestRounded", "TestStored", "TestOrders", "TestLaunchByLaunch", "TestAllocations", "TestFailedAllocations", "TestRestless", "TestLargeCopies",
		}, "|") + ")$"},
	} {
		cmd := osexec.Command(os.Args[0], append(args, "-rapid.seed=7")...) // or what is launched were a matter of luck
		cmd.Env = append(os.Environ(), "LFSIM_ORDER=random", "LFSIM_SEED=11", "LFSIM_KEEP="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	var kept, seen, watched []string
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		if name, marked := strings.CutSuffix(f.Name(), ".seen"); marked {
			seen = append(seen, name)
		} else if !slices.Contains(addressed, f.Name()) {
			kept = append(kept, filepath.Join(dir, f.Name()))
		}
	}
	for files := range slices.Chunk(kept, 40) { // the detector remembers all threads of a process
		watched = append(watched, names(t, race, append([]string{"--repeat"}, files...)...)...)
	}
	for _, c := range names(t, race, "--list") {
		if !strings.HasPrefix(c, "planted_") && !strings.HasPrefix(c, "right_") {
			watched = append(watched, names(t, race, c)...)
		}
	}
	for _, kernel := range all {
		if strings.HasPrefix(kernel, "probe_") {
			continue // the probes are for the tests of the simulator
		}
		if !slices.Contains(seen, kernel) && !slices.Contains(unlaunched, kernel) {
			t.Errorf("%s: no test of this package launches it", kernel)
		}
		if !slices.Contains(watched, kernel) && !slices.Contains(unwatched, kernel) {
			t.Errorf("%s: no launch was watched for races: tests launch it with more than 2048 threads if at all, and no LF_RACE_CASE has it", kernel)
		}
	}
	t.Logf("%d kernels, %d launches kept", len(all), len(kept))
}

// names runs the race detector's program, and gives the words that it prints.
func names(t *testing.T, race string, args ...string) []string {
	t.Helper()
	cmd := osexec.Command("setarch", append([]string{"-R", race}, args...)...)
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=report_thread_leaks=0 history_size=4")
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	require.NoError(t, cmd.Run(), "%s\n%s", &out, &err)
	return strings.Fields(out.String())
}
