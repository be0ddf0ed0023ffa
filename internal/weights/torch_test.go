package weights

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// pt copies a file that torch.save has written.
func pt(t testing.TB, name, to string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../safetensors/torchfile/testdata/read", name))
	require.NoError(t, err)
	text(t, to, string(raw))
}

// TestTorchFolders: files of PyTorch are opened where there is nothing else, and
// the set says so.
func TestTorchFolders(t *testing.T) {
	for name, want := range map[string]struct{ stem, why string }{
		"pytorch_model.bin":           {"pytorch_model", "the folder has no model.safetensors"},
		"adapter_model.bin":           {"adapter_model", "the folder has no adapter_model.safetensors"},
		"diffusion_pytorch_model.bin": {"diffusion_pytorch_model", "the folder has no diffusion_pytorch_model.safetensors"},
		"epoch=3.ckpt":                {"epoch=3", ""},
	} {
		dir := t.TempDir()
		pt(t, "nested.pt", filepath.Join(dir, name))
		text(t, filepath.Join(dir, "optimizer.bin"), "not looked at")
		s, err := Open(dir)
		require.NoError(t, err, name)
		assert.Equal(t, []string{filepath.Join(dir, name), want.stem, want.why}, []string{s.Path(), s.Stem, s.Why()})
		assert.Equal(t, []string{"torch zip"}, s.Formats())
		assert.True(t, s.IsTorch(0))
		scalars, err := s.Scalars()
		require.NoError(t, err)
		assert.NotEmpty(t, scalars)
		metadata, conflicts := s.Metadata()
		assert.Equal(t, map[string]string{"format": "pt"}, metadata)
		assert.Empty(t, conflicts)
		require.NoError(t, s.Close())
		// A safetensors file is preferred, and a broken one is no reason to go on.
		text(t, filepath.Join(dir, "model.safetensors"), "broken")
		_, err = Open(dir)
		assert.ErrorIs(t, err, safetensors.ErrHeaderTooSmall, name)
	}
}

func TestTorchTwin(t *testing.T) {
	dir := t.TempDir()
	pt(t, "nested.pt", filepath.Join(dir, "x.pt"))
	s, err := Open(filepath.Join(dir, "x.safetensors"))
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, []string{filepath.Join(dir, "x.pt"), "x", "x.safetensors does not exist"}, []string{s.Path(), s.Stem, s.Why()})
	assert.True(t, s.Source(0).Fallback)
}

// TestTorchIndex opens shards of PyTorch by their index.
func TestTorchIndex(t *testing.T) {
	dir := t.TempDir()
	pt(t, "bare_tensor.pt", filepath.Join(dir, "pytorch_model-00001-of-00002.bin"))
	pt(t, "nested.pt", filepath.Join(dir, "pytorch_model-00002-of-00002.bin"))
	text(t, filepath.Join(dir, "pytorch_model.bin.index.json"), `{"metadata": {"total_size": 1}, "weight_map": {"tensor": "pytorch_model-00001-of-00002.bin", "x": "pytorch_model-00002-of-00002.bin"}}`)
	for _, path := range []string{dir, filepath.Join(dir, "pytorch_model.bin.index.json")} {
		s, err := Open(path)
		require.NoError(t, err)
		assert.Len(t, s.Files(), 2)
		assert.Equal(t, "pytorch_model", s.Stem)
		assert.Equal(t, []string{"x"}, s.Absent())
		assert.Contains(t, s.Disagreements()[0], "pytorch_model-00002-of-00002.bin is not in pytorch_model.bin.index.json")
		assert.Equal(t, path == dir, s.Why() == "the folder has no model.safetensors")
		require.NoError(t, s.Close())
	}
}
