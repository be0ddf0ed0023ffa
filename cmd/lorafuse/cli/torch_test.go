package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files of torch.save are taken where there are no others, and that is said.
func TestTorchFiles(t *testing.T) {
	base, adapter := filepath.FromSlash(goldens+"/peft/base/small-llama"), filepath.FromSlash(goldens+"/peft/file-bin/adapter")
	r := command(t, "", "merge", "--model", base, "--adapter", adapter, "--output", t.TempDir()+"/merged")
	require.Equal(t, ExitOK, r.status)
	require.Contains(t, r.stderr, "note     reading "+filepath.Join(adapter, "adapter_model.bin")+": the folder has no adapter_model.safetensors\n")
	mergeAndCompare(t, base, adapter, goldens+"/peft/file-bin/golden.safetensors")

	l := newLab(t)
	l.copy("../../../internal/model/testdata/torch", "torch")
	config, err := os.ReadFile(goldens + "/extra/linear/config.json")
	require.NoError(t, err)
	l.file("torch/config.json", string(config))
	r = command(t, "", "compare", "--json", "--model", l.path("torch"), "--golden", goldens+"/extra/linear/golden.safetensors")
	require.Equal(t, ExitOK, r.status, r.stderr)
	require.Contains(t, r.stderr, "pytorch_model.bin.index.json: the folder has no model.safetensors\n")
	require.Less(t, decode[comparison](t, r.stdout).Relative, 1e-5)
}
