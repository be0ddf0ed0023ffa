package merge

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestCutShort: a model or an adapter that is cut short after it was opened is
// an error that names the file, and nothing is written, not even beside it.
func TestCutShort(t *testing.T) {
	for _, short := range []string{"model.safetensors", "adapter_model.safetensors"} {
		model, adapter := copyFolder(t, llama), copyFolder(t, llamaLoRA)
		s := open(t, model, adapter)
		path := filepath.Join(model, short)
		if short != "model.safetensors" {
			path = filepath.Join(adapter, short)
		}
		require.NoError(t, os.Truncate(path, 0))
		dir := t.TempDir()
		_, err := s.write(t, dir, Options{})
		require.ErrorIs(t, err, safetensors.ErrFault, short)
		assert.ErrorContains(t, err, path)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}
