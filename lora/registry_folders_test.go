package lora_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// Folders lists what can be loaded, and Skipped what cannot, with the reason.
func TestFoldersSkipped(t *testing.T) {
	const good = "../testdata/lm/llama/adapters/lora"
	root := t.TempDir()
	put := func(name, file, text string) {
		dir := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.CopyFS(dir, os.DirFS(good)))
		if file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666))
		}
	}
	weights, err := os.ReadFile(filepath.Join(good, lora.WeightsFile))
	require.NoError(t, err)
	nan := string(weights[:len(weights)-4]) + "\xff\xff\xff\xff"
	put("good", "", "")
	put("nan", lora.WeightsFile, nan)
	put("empty", lora.WeightsFile, "")
	put("ia3", lora.ConfigFile, `{"peft_type":"IA3"}`)
	put("ünï", "", "")
	put("ns/deep/x", "", "")
	put(".git/x", "", "")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "other"), 0o777))

	m, err := model.Open("../testdata/lm/llama/model")
	require.NoError(t, err)
	defer m.Close()
	r, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), lora.RegistryOptions{Root: root})
	require.NoError(t, err)
	defer r.Close()
	folder := func(name string) string { return filepath.Join(root, name) }
	assert.Equal(t, map[string]string{"good": folder("good"), "nan": folder("nan")}, r.Folders())
	skipped := r.Skipped()
	require.Len(t, skipped, 4)
	assert.ErrorIs(t, skipped["ünï"], lora.ErrName)
	assert.ErrorContains(t, skipped["ns/deep/x"], "not directly")
	assert.ErrorContains(t, skipped["ia3"], "IA3")
	assert.Error(t, skipped["empty"])

	_, err = r.Acquire(t.Context(), "nan")
	var unusable *lora.UnusableError
	require.ErrorAs(t, err, &unusable)
	require.ErrorIs(t, err, lora.ErrNotFinite)
	assert.NotContains(t, unusable.Reason(), root)
	assert.Contains(t, unusable.Reason(), "adapter nan")
	assert.Equal(t, map[string]string{"good": folder("good")}, r.Folders(), "without the one that has failed")
	assert.ErrorIs(t, r.Skipped()["nan"], lora.ErrNotFinite)
	put("nan", "", "")
	assert.Equal(t, map[string]string{"good": folder("good"), "nan": folder("nan")}, r.Folders(), "its files have changed")

	require.NoError(t, os.Rename(root, root+".away"))
	_, err = r.Acquire(t.Context(), "good")
	require.Error(t, err)
	require.NotErrorAs(t, err, &unusable, "the adapter is not to blame")
	require.NoError(t, os.Rename(root+".away", root))
}
