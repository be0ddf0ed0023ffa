package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ThreadSanitizer watches small launches of kernels, each CUDA thread as a thread. Cases
// called planted_… must race, and those called right_… must not. TestEveryKernel of
// backend/cuda runs the cases of the kernels.
func TestRaces(t *testing.T) {
	if os.Getenv("LORAFUSE_LONG") == "" {
		t.Skip("LORAFUSE_LONG=1 looks for races in kernels")
	}
	// The sanitizer needs addresses where it expects them.
	if err := exec.Command("setarch", "-R", "true").Run(); err != nil {
		t.Skip("SKIPPED: setarch -R does not work here: ", err)
	}
	race := filepath.Join(build(t, "race"), "race", "race")
	list, err := run(t, nil, race, "--list")
	require.NoError(t, err)
	cases := strings.Fields(string(list))
	require.Contains(t, cases, "probe_gemm_bf16")
	for _, name := range cases {
		if !strings.HasPrefix(name, "planted_") && !strings.HasPrefix(name, "right_") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			out, err := run(t, []string{"TSAN_OPTIONS=report_thread_leaks=0 history_size=4"}, "setarch", "-R", race, name)
			if strings.HasPrefix(name, "planted_") {
				require.Error(t, err, "the race was not seen")
				require.Contains(t, string(out), "ThreadSanitizer: data race")
				return
			}
			require.NoError(t, err, "%s", out)
		})
	}
}
