package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
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
		if filepath.Base(dir) == "lora-bias" {
			merged := command(t, "", "merge", "--model", base, "--adapter", adapter, "--output", t.TempDir()+"/merged")
			assert.Equal(t, ExitUsage, merged.status)
			assert.Contains(t, merged.stderr, "has no bias to merge that of B into")
			continue
		}
		mergeAndCompare(t, base, adapter, dir+"/golden.safetensors")
	}
}

func mergeAndCompare(t *testing.T, base, adapter, golden string) {
	l := newLab(t)
	r := decode[mergeResult](t, succeed(t, "merge", "--json", "--model", base, "--adapter", adapter, "--output", l.path("merged"), "--max-shard-size", "100kB"))
	assert.Positive(t, r.Merged)
	assert.True(t, r.Verified)
	assert.Greater(t, len(r.Files), 0)
	c := decode[comparison](t, succeed(t, "compare", "--json", "--model", l.path("merged"), "--golden", golden))
	assert.Less(t, c.Relative, 1e-5, adapter)
	// Nothing of the model is lost, and no tensor is there that nobody reads.
	i := decode[inspection](t, succeed(t, "inspect", "--json", l.path("merged")))
	assert.Empty(t, i.Model.Unused)
	assert.Equal(t, len(r.Untied) == 0, i.Model.Tied == decode[inspection](t, succeed(t, "inspect", "--json", base)).Model.Tied)
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

// TestMergeLeavesStaleCopiesOut: a file that holds a copy of a tied weight
// must not keep the old one when both change alike.
func TestMergeLeavesStaleCopiesOut(t *testing.T) {
	l := newLab(t)
	dir := goldens + "/peft/tokens-tied"
	base := l.copy(filepath.Join(dir, readJSON[struct{ Base string }](t, dir+"/case.json").Base), "model")
	f, err := safetensors.Open(weights(base))
	require.NoError(t, err)
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		entries = append(entries, v.Entry())
		if name == "model.embed_tokens.weight" {
			e := v.Entry()
			e.Name = "lm_head.weight"
			entries = append(entries, e)
		}
	}
	require.NoError(t, safetensors.WriteFile(weights(base), entries, nil))
	require.NoError(t, f.Close())
	succeed(t, "merge", "--model", base, "--adapter", dir+"/adapter", "--output", l.path("merged"))
	merged, err := safetensors.Open(weights(l.path("merged")))
	require.NoError(t, err)
	defer merged.Close()
	assert.False(t, merged.Has("lm_head.weight"))
	succeed(t, "compare", "--model", l.path("merged"), "--golden", dir+"/golden.safetensors")
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

// TestMergeCopiesFiles: what stands beside the weights comes along, old
// weights and hidden files do not, and the same command gives the same bytes.
func TestMergeCopiesFiles(t *testing.T) {
	l := newLab(t)
	base := l.model()
	for _, name := range []string{
		"LICENSE", "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
		"pytorch_model.bin", "consolidated.00.pth", "original/params.json", ".gitattributes",
	} {
		l.file("model/"+name, "contents of "+name)
	}
	merged := func(name string) string {
		succeed(t, "merge", "--model", base, "--adapter", llamaLoRA, "--output", l.path(name), "--max-shard-size", "200kB")
		return l.path(name)
	}
	a, b := merged("a"), merged("b")
	var names []string
	for path, content := range (&lab{t, a}).tree() {
		rel, err := filepath.Rel(a, path)
		require.NoError(t, err)
		if content == "folder" {
			continue
		}
		names = append(names, rel)
		other, err := os.ReadFile(filepath.Join(b, rel))
		require.NoError(t, err)
		assert.Equal(t, content, string(other), rel)
	}
	assert.ElementsMatch(t, []string{
		"LICENSE", "chat_template.jinja", "additional_chat_templates/tool_use.jinja", "config.json", "config.transformers4.json",
		"generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", "model.safetensors.index.json",
	}, names)
	same, err := os.ReadFile(a + "/config.json")
	require.NoError(t, err)
	want, err := os.ReadFile(base + "/config.json")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(same))
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

// TestVerify damages the written weights and expects merge to notice.
func TestVerify(t *testing.T) {
	a := &app{out: &output{}, err: os.Stderr}
	m, err := a.openModel(t.Context(), &modelFlags{model: llama})
	require.NoError(t, err)
	defer m.Close()
	adapter, plan, err := a.openAdapter(llamaLoRA, m)
	require.NoError(t, err)
	defer adapter.Close()
	merger, err := lora.NewMerger(adapter, plan)
	require.NoError(t, err)
	w := &merging{app: a, model: m, merger: merger}
	l := newLab(t)
	require.NoError(t, w.write(t.Context(), l.dir))
	require.NoError(t, w.verify(t.Context(), l.dir))
	raw, err := os.ReadFile(weights(l.dir))
	require.NoError(t, err)
	raw[len(raw)-1] ^= 1
	require.NoError(t, os.WriteFile(weights(l.dir), raw, 0o666))
	assert.ErrorContains(t, w.verify(t.Context(), l.dir), "is not what was written")
}

func TestChangeJSON(t *testing.T) {
	out, err := changeJSON([]byte(`{"b": 1.0, "dtype": "x", "a": {"z": [1, 2]}}`), map[string]string{"dtype": `"bfloat16"`, "tie_word_embeddings": "false"})
	require.NoError(t, err)
	var compact map[string]any
	require.NoError(t, json.Unmarshal(out, &compact))
	assert.Regexp(t, `(?s)"b": 1\.0,.*"dtype": "bfloat16",.*"a": .*"tie_word_embeddings": false\s*}\n$`, string(out))
	_, err = changeJSON([]byte(`[1]`), map[string]string{"dtype": "1"})
	assert.Error(t, err)
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"5GB": 5e9, "500mb": 500e6, "2GiB": 2 << 30, "1.5 kB": 1500, "1024": 1024, "7b": 7} {
		n, err := parseSize(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, n, s)
	}
	for _, s := range []string{"", "GB", "0", "-5GB", "5 PB", "1e3", "99999999999TB", "NaN"} {
		_, err := parseSize(s)
		assert.Error(t, err, s)
	}
}

// FuzzChangeJSON: any object comes back with the change and all else as it was.
func FuzzChangeJSON(f *testing.F) {
	f.Add([]byte(`{"a": 1, "dtype": "x", "b": {"c": [1.50, null]}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"a": 1} trailing`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := changeJSON(raw, map[string]string{"dtype": `"bfloat16"`})
		var want, got map[string]any
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &got))
		want["dtype"] = "bfloat16"
		require.Equal(t, want, got)
	})
}

// FuzzParseSize: what is accepted is a number of bytes.
func FuzzParseSize(f *testing.F) {
	f.Add("5GB")
	f.Add("1.5 kib")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil {
			require.Positive(t, n, s)
		}
	})
}
