package merge

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestWrite expects W + scale·B·A of every target and all else as it was.
func TestWrite(t *testing.T) {
	s := open(t, llama, llamaLoRA)
	var progress []string
	dir, r := s.merged(t, Options{Progress: func(task string, done, total int) {
		assert.Equal(t, 21, total)
		if done == 1 || done == total {
			progress = append(progress, task)
		}
	}})
	assert.Equal(t, []string{"merging", "merging", "verifying", "verifying"}, progress)
	was, is := weightsOf(t, llama), weightsOf(t, dir)
	bytes := int64(0)
	for _, target := range s.plan.Targets {
		w, err := s.adapter.Weights(target)
		require.NoError(t, err)
		base, r := was[target.Name+".weight"], target.Rank
		for o := range target.Out {
			for i := range target.In {
				sum := float64(base[o*target.In+i])
				for k := range r {
					sum += target.Scale * float64(w[lora.RoleB][o*r+k]) * float64(w[lora.RoleA][k*target.In+i])
				}
				base[o*target.In+i] = float32(sum)
			}
		}
	}
	assert.Len(t, is, len(was))
	for name, want := range was {
		assert.InDeltaSlice(t, want, is[name], 1e-6, name)
		bytes += 4 * int64(len(want))
	}
	assert.Equal(t, &Result{Tensors: 21, Merged: 4, Bytes: bytes, Files: []string{"model.safetensors"}}, r)
}

// TestUnties: a tied head that the adapter changes becomes a weight of its
// own, and config.json says so.
// Experts are merged where they lie in the model's files: each has weights of its own.
func TestWriteExperts(t *testing.T) {
	for _, c := range []struct{ model, adapter, layer string }{
		{"mixtral", "mixtral-experts", "model.layers.1.block_sparse_moe."},
		{"qwen3-moe", "qwen3-moe-experts", "model.layers.1.mlp."},
	} {
		s := open(t, "../../testdata/extra/"+c.model, filepath.Join(peft, c.adapter, "adapter"))
		dir, r := s.merged(t, Options{DType: tensor.F32})
		before, after := weightsOf(t, s.model.Dir), weightsOf(t, dir)
		require.Equal(t, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)), "by the same names")
		changed := 0
		for name := range before {
			if !slices.Equal(before[name], after[name]) {
				changed++
			}
		}
		require.Equal(t, r.Merged, changed)
		want := weightsOf(t, onlyWeights(t, filepath.Join(peft, c.adapter, "merged.safetensors")))
		names := []string{"w1", "w3", "w2"}
		if c.model != "mixtral" {
			names = []string{"gate_proj", "up_proj", "down_proj"}
		}
		for stack, parts := range map[string][]string{"gate_up_proj": names[:2], "down_proj": names[2:]} {
			var got []float32
			for e := range s.model.Config.Mixture().Experts.Count {
				for _, part := range parts {
					got = append(got, after[fmt.Sprintf("%sexperts.%d.%s.weight", c.layer, e, part)]...)
				}
			}
			require.InDeltaSlice(t, want["model.layers.1.mlp.experts."+stack], got, 1e-6)
		}
		require.InDeltaSlice(t, want["model.layers.1.mlp.gate.weight"], after[c.layer+"gate.weight"], 1e-6)
	}
}

// onlyWeights is a folder with a copy of the file as the weights of a model.
func onlyWeights(t *testing.T, file string) string {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "model.safetensors"), readFile(t, file))
	return dir
}

func TestUnties(t *testing.T) {
	s := open(t, peft+"/base/small-qwen2", peft+"/saved-head-tied/adapter")
	dir, r := s.merged(t, Options{})
	assert.Equal(t, []string{"lm_head.weight"}, r.Untied)
	want, err := s.adapter.Float32s("base_model.model.lm_head.weight")
	require.NoError(t, err)
	is := weightsOf(t, dir)
	assert.Equal(t, want, is["lm_head.weight"])
	assert.Equal(t, weightsOf(t, s.model.Dir)["model.embed_tokens.weight"], is["model.embed_tokens.weight"])
	was := readObject(t, s.model.Dir+"/config.json")
	was["tie_word_embeddings"] = false
	assert.Equal(t, was, readObject(t, dir+"/config.json"), "nothing else of config.json may change")
}

// TestLeavesStaleCopiesOut: a file that holds a copy of a tied weight must not
// keep the old one when both change alike.
func TestLeavesStaleCopiesOut(t *testing.T) {
	const small, adapter = peft + "/base/small-qwen2", peft + "/tokens-tied/adapter"
	base := copyFolder(t, small)
	rewrite(t, base+"/model.safetensors", func(e safetensors.Entry) []safetensors.Entry {
		if e.Name != "model.embed_tokens.weight" {
			return []safetensors.Entry{e}
		}
		head := e
		head.Name = "lm_head.weight"
		return []safetensors.Entry{e, head}
	})
	require.Contains(t, weightsOf(t, base), "lm_head.weight")
	want, _ := open(t, small, adapter).merged(t, Options{})
	got, r := open(t, base, adapter).merged(t, Options{})
	assert.Empty(t, r.Untied)
	assert.NotContains(t, weightsOf(t, got), "lm_head.weight")
	assert.Equal(t, readFile(t, want+"/model.safetensors"), readFile(t, got+"/model.safetensors"))
}

// TestDTypes converts all weights; config.json says so by the key that it has.
func TestDTypes(t *testing.T) {
	exact, _ := open(t, llama, llamaLoRA).merged(t, Options{})
	want := weightsOf(t, exact)
	for _, c := range []struct {
		d         tensor.DType
		key, name string
		epsilon   float64
	}{
		{tensor.F32, "dtype", "float32", 0},
		{tensor.BF16, "dtype", "bfloat16", 1.0 / (1 << 8)},
		{tensor.F16, "torch_dtype", "float16", 1.0 / (1 << 11)},
	} {
		base := copyFolder(t, llama)
		config := base + "/config.json"
		writeFile(t, config, strings.Replace(readFile(t, config), `"dtype"`, `"`+c.key+`"`, 1))
		dir, r := open(t, base, llamaLoRA).merged(t, Options{DType: c.d})
		assert.Equal(t, c.name, readObject(t, dir+"/config.json")[c.key])
		elements := int64(0)
		for name, got := range weightsOf(t, dir) {
			elements += int64(len(got))
			for i, x := range want[name] {
				if diff := math.Abs(float64(got[i] - x)); diff > c.epsilon*math.Abs(float64(x))+1e-7 {
					t.Fatalf("%v: %s[%d] is %v, expected %v", c.d, name, i, got[i], x)
				}
			}
		}
		assert.Equal(t, elements*int64(c.d.Size()), r.Bytes)
	}
}

// TestOverflow: f16 has no room for a weight of the model.
func TestOverflow(t *testing.T) {
	base := copyFolder(t, llama)
	rewrite(t, base+"/model.safetensors", func(e safetensors.Entry) []safetensors.Entry {
		if e.Name == "model.norm.weight" {
			copy(e.Data[4:], []byte{0, 0x24, 0x74, 0x49}) // 1e6
		}
		return []safetensors.Entry{e}
	})
	dir := t.TempDir()
	_, err := open(t, base, llamaLoRA).write(t, dir, Options{DType: tensor.F16})
	assert.ErrorIs(t, err, lora.ErrNotFinite)
	assert.ErrorContains(t, err, `tensor "model.norm.weight": element 1 is 1e+06, more than f16 holds`)
	assert.Empty(t, names(t, dir))
}

// TestCopiesFiles: what stands beside the weights comes along, old weights and
// hidden files do not, and the same arguments give the same bytes.
func TestCopiesFiles(t *testing.T) {
	base := copyFolder(t, llama)
	for _, name := range []string{
		"LICENSE", "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
		"pytorch_model.bin", "consolidated.00.pth", "original/params.json", ".gitattributes",
	} {
		writeFile(t, filepath.Join(base, name), "contents of "+name)
	}
	a, r := open(t, base, llamaLoRA).merged(t, Options{MaxShardSize: 200e3})
	b, _ := open(t, base, llamaLoRA).merged(t, Options{MaxShardSize: 200e3})
	shards := []string{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"}
	assert.Equal(t, shards, r.Files)
	assert.ElementsMatch(t, append(shards,
		"LICENSE", "chat_template.jinja", "additional_chat_templates/tool_use.jinja", "config.json", "config.transformers4.json",
		"generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json",
	), names(t, a))
	for _, name := range names(t, a) {
		assert.Equal(t, readFile(t, filepath.Join(a, name)), readFile(t, filepath.Join(b, name)), name)
	}
	assert.Equal(t, readFile(t, base+"/config.json"), readFile(t, a+"/config.json"))
	assert.Equal(t, "contents of LICENSE", readFile(t, a+"/LICENSE"))
}

// TestVerify damages the written weights and expects it to be noticed.
func TestVerify(t *testing.T) {
	s := open(t, llama, llamaLoRA)
	merger, err := lora.NewMerger(s.adapter, s.plan)
	require.NoError(t, err)
	w := &writer{model: s.model, merger: merger}
	dir := t.TempDir()
	require.NoError(t, w.write(t.Context(), dir))
	require.NoError(t, w.verify(t.Context(), dir))
	path := filepath.Join(dir, "model.safetensors")
	raw := []byte(readFile(t, path))
	raw[len(raw)-1] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o666))
	err = w.verify(t.Context(), dir)
	assert.ErrorIs(t, err, ErrVerify)
	assert.ErrorContains(t, err, `tensor "model.norm.weight" is not what was written`)
	rewrite(t, path, func(e safetensors.Entry) []safetensors.Entry {
		if e.Name == "model.norm.weight" {
			return nil
		}
		return []safetensors.Entry{e}
	})
	err = w.verify(t.Context(), dir)
	assert.ErrorIs(t, err, ErrVerify)
	assert.ErrorContains(t, err, "20 tensors, expected 21")
}

// TestRefusals: what may not be replaced stays as it is.
func TestRefusals(t *testing.T) {
	base := copyFolder(t, llama)
	s := open(t, base, llamaLoRA)
	parent := t.TempDir()
	path := func(name string) string { return filepath.Join(parent, name) }
	writeFile(t, path("file"), "mine")
	writeFile(t, path("folder/notes.txt"), "mine")
	for _, c := range []struct {
		dir, says string
		options   Options
		is        error
	}{
		{dir: path("no/such"), says: "there is no folder " + path("no")},
		{dir: path("file"), says: "there is a file of that name", options: Options{Replace: true}},
		{dir: path("folder"), says: "it is not empty", is: ErrNotEmpty},
		{dir: base, says: "it is the folder that is read", options: Options{Replace: true}, is: ErrSource},
		{dir: llamaLoRA, says: "it is the folder that is read", options: Options{Replace: true}, is: ErrSource},
	} {
		_, err := Write(t.Context(), c.dir, s.model, s.adapter, s.plan, c.options)
		var output *OutputError
		require.ErrorAs(t, err, &output, c.dir)
		assert.Equal(t, c.dir, output.Dir)
		assert.ErrorContains(t, err, "merge: output "+c.dir+": ")
		assert.ErrorContains(t, err, c.says)
		if c.is != nil {
			assert.ErrorIs(t, err, c.is)
		}
	}
	_, err := s.write(t, parent, Options{DType: tensor.I64})
	assert.ErrorIs(t, err, ErrOptions)
	assert.ElementsMatch(t, []string{"file", "folder/notes.txt"}, names(t, parent))
	assert.Equal(t, "mine", readFile(t, path("file")))
}

// TestNoName: no name is not the name of the folder that one is in.
func TestNoName(t *testing.T) {
	s := open(t, copyFolder(t, llama), llamaLoRA)
	t.Chdir(t.TempDir())
	_, err := Write(t.Context(), "", s.model, s.adapter, s.plan, Options{Replace: true})
	var output *OutputError
	require.ErrorAs(t, err, &output)
	assert.ErrorContains(t, err, "the name of the folder is missing")
}

// TestReplace replaces a folder, whole, and not at all where it is cancelled
// on the way.
func TestReplace(t *testing.T) {
	s := open(t, llama, llamaLoRA)
	parent := t.TempDir()
	dir := filepath.Join(parent, "merged")
	writeFile(t, dir+"/notes.txt", "old")
	for _, at := range []string{"merging", "verifying"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Write(ctx, dir, s.model, s.adapter, s.plan, Options{Replace: true, Progress: func(task string, done, _ int) {
			if task == at && done == 3 {
				cancel()
			}
		}})
		cancel()
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, []string{"merged/notes.txt"}, names(t, parent))
	}
	_, err := s.write(t, parent, Options{Replace: true})
	require.NoError(t, err)
	assert.NotContains(t, names(t, parent), "merged/notes.txt")
	assert.Contains(t, names(t, parent), "merged/model.safetensors")
}

// TestBiasWithoutPlace: the adapter has a bias, the layer none to add it to.
func TestBiasWithoutPlace(t *testing.T) {
	s := open(t, llama, peft+"/lora-bias/adapter")
	_, err := s.write(t, t.TempDir(), Options{})
	assert.ErrorIs(t, err, lora.ErrUnsupported)
	assert.ErrorContains(t, err, "has no bias to merge that of B into")
}

// names lists the files below a folder.
func names(t testing.TB, dir string) (files []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	return files
}
