package weights

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// folder makes files: after = is what a file holds, else it is one of torchfile's.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range files {
		if from[0] == '=' {
			text(t, filepath.Join(dir, name), from[1:])
		} else {
			pt(t, from, filepath.Join(dir, name))
		}
	}
	return dir
}

// TestOpenModel: the file that transformers would take, whatever is wrong with it.
func TestOpenModel(t *testing.T) {
	const index = `={"metadata":{},"weight_map":{"0":"m-1.bin","a":"m-2.bin","gone":"m-2.bin"}}`
	shards := map[string]string{"m-1.bin": "bare_list.pt", "m-2.bin": "legacy_two.pt", TorchModelIndex: index}
	with := func(files map[string]string, name, from string) map[string]string {
		all := maps.Clone(files)
		all[name] = from
		return all
	}
	const missed = "the folder has no model.safetensors"
	for name, c := range map[string]struct {
		files   map[string]string
		opened  string
		format  string
		why     string // or what the error says
		tensors []string
	}{
		"safetensors":             {with(shards, "model.safetensors", "bare_list.safetensors"), "model.safetensors", "safetensors", "", []string{"0", "1"}},
		"shards of safetensors":   {map[string]string{"model.safetensors.index.json": `={"weight_map":{"0":"m.safetensors"}}`, "m.safetensors": "bare_list.safetensors", TorchModelFile: "=corrupt"}, "model.safetensors.index.json", "safetensors", "", []string{"0", "1"}},
		"beside an adapter":       {with(shards, AdapterFile, "legacy_two.safetensors"), TorchModelIndex, "torch zip, torch legacy", missed, []string{"0", "1", "a"}},
		"one file":                {with(shards, TorchModelFile, "bare_list.pt"), TorchModelFile, "torch zip", missed, []string{"0", "1"}},
		"safetensors by content":  {with(shards, TorchModelFile, "bare_list.safetensors"), TorchModelFile, "safetensors", missed + "; pytorch_model.bin is a safetensors file by its content", []string{"0", "1"}},
		"shards":                  {shards, TorchModelIndex, "torch zip, torch legacy", missed, []string{"0", "1", "a"}},
		"corrupt":                 {with(shards, "model.safetensors", "=corrupt"), "", "", "header", nil},
		"corrupt index":           {with(shards, "model.safetensors.index.json", "=corrupt"), "", "", "JSON", nil},
		"corrupt file":            {with(shards, TorchModelFile, "=corrupt"), "", "", "corrupt", nil},
		"missing shard":           {map[string]string{TorchModelIndex: index, "m-1.bin": "bare_list.pt"}, "", "", "m-2.bin", nil},
		"missing shard, twin":     {map[string]string{"model.safetensors.index.json": `={"weight_map":{"0":"m.safetensors"}}`, "m.bin": "bare_list.pt"}, "", "", "m.safetensors", nil},
		"corrupt shard":           {with(shards, "m-2.bin", "=corrupt"), "", "", "m-2.bin", nil},
		"twice":                   {with(shards, "m-2.bin", "bare_list.pt"), "", "", "in ", nil},
		"shard of safetensors":    {with(shards, TorchModelIndex, `={"weight_map":{"0":"m-1.safetensors"}}`), "", "", ".bin", nil},
		"shard in another folder": {with(shards, TorchModelIndex, `={"weight_map":{"0":"../m-1.bin"}}`), "", "", "../m-1.bin", nil},
		"nothing":                 {map[string]string{"x.pt": "bare_list.pt"}, "", "", "found none of model.safetensors, model.safetensors.index.json, pytorch_model.bin and pytorch_model.bin.index.json", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, c.files)
			set, err := OpenModel(dir)
			if c.opened == "" {
				require.ErrorContains(t, err, c.why)
				assert.Nil(t, set)
				assert.Equal(t, name == "twice", errors.Is(err, safetensors.ErrDuplicateTensor))
				assert.Equal(t, name == "nothing", errors.Is(err, ErrNoWeights))
				assert.Equal(t, name == "nothing" || name == "missing shard" || name == "missing shard, twin", errors.Is(err, fs.ErrNotExist))
				return
			}
			require.NoError(t, err)
			defer set.Close()
			assert.Equal(t, Source{Path: filepath.Join(dir, c.opened), Format: c.format, Fallback: c.why != "", Why: c.why}, set.Origin())
			assert.Equal(t, dir, set.Folder)
			require.Equal(t, c.tensors, set.Names())
			v, err := set.Lookup(c.tensors[0])
			require.NoError(t, err)
			assert.Len(t, v.Bytes(), v.Len())
			if name == "shards" {
				assert.Equal(t, []string{"gone"}, set.Absent())
			}
		})
	}
}

// TestOpenAdapter: PEFT's two files and nothing else.
func TestOpenAdapter(t *testing.T) {
	dir := folder(t, map[string]string{"model.safetensors": "bare_list.safetensors", "adapter_model.safetensors.index.json": "={}"})
	_, err := OpenAdapter(dir)
	require.ErrorIs(t, err, ErrNoWeights)
	require.ErrorContains(t, err, "found none of adapter_model.safetensors and adapter_model.bin")
	pt(t, "legacy_two.pt", filepath.Join(dir, TorchAdapterFile))
	s, err := OpenAdapter(dir)
	require.NoError(t, err)
	assert.Equal(t, Source{Path: filepath.Join(dir, TorchAdapterFile), Format: "torch legacy", Fallback: true, Why: "the folder has no adapter_model.safetensors"}, s.Origin())
	require.NoError(t, s.Close())
	pt(t, "bare_list.safetensors", filepath.Join(dir, AdapterFile))
	s, err = OpenAdapter(dir)
	require.NoError(t, err)
	assert.Equal(t, Source{Path: filepath.Join(dir, AdapterFile), Format: "safetensors"}, s.Origin())
	require.NoError(t, s.Close())
	text(t, filepath.Join(dir, AdapterFile), "12345678")
	_, err = OpenAdapter(dir)
	require.Error(t, err, "a broken file is not passed over")
	require.NoError(t, os.Remove(filepath.Join(dir, AdapterFile)))
	if os.Symlink("nowhere", filepath.Join(dir, AdapterFile)) == nil {
		_, err = OpenAdapter(dir)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotErrorIs(t, err, ErrNoWeights)
	}
	_, err = OpenAdapter(filepath.Join(dir, TorchAdapterFile)) // a path through a file
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}

// TestVerify: files of torch.save have checksums.
func TestVerify(t *testing.T) {
	dir := folder(t, map[string]string{"a.pt": "bare_list.pt", "b.safetensors": "bare_list.safetensors"})
	for _, name := range []string{"a.pt", "b.safetensors"} {
		s, err := Open(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Empty(t, s.Verify(), name)
		require.NoError(t, s.Close())
	}
}
