package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestMergeGoldens merges every recorded adapter and expects of the merged
// model what PEFT's model with the adapter gave.
func TestMergeGoldens(t *testing.T) {
	for _, golden := range cases(t, "lm/*/adapters/*/golden.safetensors") {
		dir := filepath.Dir(golden)
		mergeAndCompare(t, filepath.Dir(filepath.Dir(dir))+"/model", dir, golden)
	}
}

// TestMergePEFT does the same for adapters of every other kind.
func TestMergePEFT(t *testing.T) {
	for _, path := range cases(t, "peft/*/case.json") {
		dir := filepath.Dir(path)
		c := readJSON[struct{ Base string }](t, path)
		adapter, base := dir+"/adapter", filepath.Join(dir, c.Base)
		r := command(t, "", "inspect", adapter, "--model", base)
		if r.status != ExitOK {
			t.Logf("%s: %s", filepath.Base(dir), r.stderr)
			continue // lora's own tests say why
		}
		if strings.Contains(r.stdout+r.stderr, "such an adapter cannot be merged") {
			merged := command(t, "", "merge", "--model", base, "--adapter", adapter, "--output", t.TempDir()+"/merged")
			assert.Equal(t, ExitUsage, merged.status)
			assert.Contains(t, merged.stderr, "has no bias to merge that of B into")
			continue
		}
		mergeAndCompare(t, base, adapter, dir+"/golden.safetensors")
	}
}

// mergeAndCompare merges in f32: a base of bf16 would round what is merged.
func mergeAndCompare(t *testing.T, base, adapter, golden string) {
	l := newLab(t)
	r := decode[mergeResult](t, succeed(t, "merge", "--json", "--model", base, "--adapter", adapter, "--output", l.path("merged"), "--dtype", "f32", "--max-shard-size", "100kB"))
	assert.Positive(t, r.Merged)
	assert.True(t, r.Verified)
	assert.Greater(t, len(r.Files), 0)
	c := decode[comparison](t, succeed(t, "compare", "--json", "--model", l.path("merged"), "--golden", golden))
	assert.Less(t, c.Relative, 1e-5, adapter)
	// Nothing of the model is lost, and no tensor is there that nobody reads.
	before := decode[inspection](t, succeed(t, "inspect", "--json", base)).Model
	after := decode[inspection](t, succeed(t, "inspect", "--json", l.path("merged"))).Model
	assert.ElementsMatch(t, before.Unused, after.Unused) // the vision parts of multimodal models
	assert.Equal(t, len(r.Untied) == 0, after.Tied == before.Tied)
}

// TestMergeUnties: a tied head that the adapter changes becomes a weight of
// its own, and config.json says so.
func TestMergeUnties(t *testing.T) {
	l := newLab(t)
	dir := goldens + "/peft/saved-head-tied"
	base := filepath.Join(dir, readJSON[struct{ Base string }](t, dir+"/case.json").Base)
	out := succeed(t, "merge", "--model", base, "--adapter", dir+"/adapter", "--output", l.path("merged"))
	assert.Contains(t, out, "untied lm_head.weight")
	was, is := readJSON[map[string]any](t, base+"/config.json"), readJSON[map[string]any](t, l.path("merged/config.json"))
	assert.Equal(t, true, was["tie_word_embeddings"])
	was["tie_word_embeddings"] = false
	assert.Equal(t, was, is, "nothing else of config.json may change")
	f, err := safetensors.Open(l.path("merged/model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	assert.True(t, f.Has("lm_head.weight"))
	assert.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
}

// TestMergeDTypes converts all weights and says so in config.json, by the key
// that the file has.
func TestMergeDTypes(t *testing.T) {
	for _, c := range []struct{ dtype, stored, name string }{{"bf16", "BF16", "bfloat16"}, {"f16", "F16", "float16"}, {"F32", "F32", "float32"}} {
		l := newLab(t)
		base := l.model()
		key := "dtype"
		if c.dtype == "f16" {
			key = "torch_dtype"
			l.setJSON(base+"/config.json", map[string]any{"dtype": nil, key: "float32"})
		}
		succeed(t, "merge", "--model", base, "--adapter", llamaLoRA, "--output", l.path("merged"), "--dtype", c.dtype)
		i := decode[inspection](t, succeed(t, "inspect", "--json", l.path("merged")))
		for _, x := range i.Tensors {
			assert.Equal(t, c.stored, x.DType, x.Name)
		}
		assert.Equal(t, c.name, readJSON[map[string]any](t, l.path("merged/config.json"))[key])
		succeed(t, "compare", "--model", l.path("merged"), "--golden", llamaLoRA+"/golden.safetensors", "--tolerance", "0.02")
	}
}

// TestMergeKeepsDType: a bf16 model stays one.
func TestMergeKeepsDType(t *testing.T) {
	l := newLab(t)
	succeed(t, "merge", "--model", goldens+"/lm/llama/model-bf16", "--adapter", llamaLoRA, "--output", l.path("merged"))
	d := command(t, "", "diff", "--json", goldens+"/lm/llama/model-bf16", l.path("merged"))
	require.Equal(t, ExitDifferent, d.status)
	r := decode[difference](t, d.stdout)
	assert.Empty(t, append(r.OnlyA, r.OnlyB...))
	assert.Len(t, r.Tensors, 4, "q_proj and v_proj of two layers")
	for _, x := range r.Tensors {
		assert.Equal(t, [2]string{"BF16", "BF16"}, x.DTypes)
	}
}

// TestMergeForce replaces a folder, whole.
func TestMergeForce(t *testing.T) {
	l := newLab(t)
	l.file("merged/notes.txt", "old")
	succeed(t, "merge", "--model", llama, "--adapter", llamaLoRA, "--output", l.path("merged"), "--force")
	assert.NoFileExists(t, l.path("merged/notes.txt"))
	assert.FileExists(t, l.path("merged/model.safetensors"))
	entries, err := os.ReadDir(l.dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left beside the folder")
}
