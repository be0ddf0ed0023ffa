package sim

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kernels whose source shows what they do are counted so, in any order of threads.
func TestCounts(t *testing.T) {
	program := filepath.Join(build(t, "counttest"), "counttest")
	for _, order := range []string{"forward", "reverse", "random"} {
		out, err := run(t, []string{"LFSIM_ORDER=" + order, "LFSIM_SEED=5"}, program)
		require.NoError(t, err, "%s\n%s", order, out)
		require.GreaterOrEqual(t, strings.Count(string(out), "ok "), 15)
	}
}
