package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// TestTorchGoldens: every file that torch.save has written becomes what Python
// has made of it.
func TestTorchGoldens(t *testing.T) {
	paths, err := filepath.Glob("../../safetensors/torchfile/testdata/read/*.pt")
	require.NoError(t, err)
	require.Greater(t, len(paths), 20)
	dir := t.TempDir()
	for _, path := range paths {
		twin := strings.TrimSuffix(path, ".pt") + ".safetensors"
		if _, err := os.Stat(twin); err != nil {
			continue
		}
		out := filepath.Join(dir, filepath.Base(twin))
		_, err := File(t.Context(), out, open(t, path), Options{})
		require.NoError(t, err, path)
		assert.Equal(t, content(t, twin), content(t, out), path)
		r, err := File(t.Context(), out, open(t, path), Options{DType: tensor.BF16, Replace: true})
		require.NoError(t, err, path)
		assert.True(t, r.Verified)
	}
}
