package lora_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// TestCutShort: an adapter that is cut short after it was opened is an error of
// everything that reads its values.
func TestCutShort(t *testing.T) {
	const original = "../testdata/lm/llama/adapters/lora"
	dir := filepath.Join(t.TempDir(), "adapter")
	require.NoError(t, os.CopyFS(dir, os.DirFS(original)))
	a, err := lora.Load(dir)
	require.NoError(t, err)
	defer a.Close()
	p, err := lora.NewPlacement(a.Config, readModel(t, "../testdata/lm/llama/model"))
	require.NoError(t, err)
	path := filepath.Join(dir, lora.WeightsFile)
	require.NoError(t, os.Truncate(path, 0))

	_, err = a.Float32s(a.Names()[0])
	require.ErrorIs(t, err, safetensors.ErrFault)
	assert.ErrorContains(t, err, path)
	_, err = a.Weights(p.Targets[0])
	require.ErrorIs(t, err, safetensors.ErrFault)
	err = a.Check(p, lora.CheckOptions{}).Err()
	require.ErrorIs(t, err, safetensors.ErrFault)
	assert.ErrorContains(t, err, path)
}
