package cli

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

func TestConvert(t *testing.T) {
	l := newLab(t)
	out := succeed(t, "convert", llama, l.path("bf16"), "--dtype", "bf16", "--max-shard-size", "100kB", "--keep", "*norm*", "--keep", "lm_head.weight")
	assert.Regexp(t, `^input +`+llama+`\n`, out)
	assert.Regexp(t, `(?m)^output +`+l.path("bf16")+`: 21 tensors, .* in \d files; read back and verified$`, out)
	assert.Regexp(t, `(?m)^type +F32 to BF16: 15 tensors, rounded by at most 0\.00\d+, 0\.00\d+ of the largest value of a tensor$`, out)
	assert.Contains(t, out, "tokenizer.json")
	i := decode[inspection](t, succeed(t, "inspect", l.path("bf16"), "--json", "--verify"))
	kept := 0
	for _, x := range i.Tensors {
		if strings.Contains(x.Name, "norm") || x.Name == "lm_head.weight" {
			assert.Equal(t, "F32", x.DType)
			kept++
		} else {
			assert.Equal(t, "BF16", x.DType)
		}
	}
	assert.Equal(t, 6, kept)
	d := differing(t, ExitOK, llama, l.path("bf16"), "--tolerance", "0.005")
	assert.Equal(t, 21, d.Compared)
	// What runs with the one runs with the other.
	succeed(t, "compare", "--model", l.path("bf16"), "--golden", llamaGolden, "--tolerance", "0.05")
}

// TestConvertShards goes from shards to one file and back, without a change.
func TestConvertShards(t *testing.T) {
	l := newLab(t)
	sharded := goldens + "/lm/qwen2/model-sharded"
	r := decode[conversion](t, succeed(t, "convert", sharded, l.path("one.safetensors"), "--json"))
	assert.Equal(t, []string{"one.safetensors"}, r.Files)
	assert.True(t, r.Verified)
	assert.Empty(t, r.Changes)
	assert.Equal(t, r.BytesIn, r.BytesOut)
	assert.True(t, differing(t, ExitOK, sharded, l.path("one.safetensors")).Equal)
	r = decode[conversion](t, succeed(t, "convert", l.path("one.safetensors"), l.path("many"), "--json", "--max-shard-size", "64KiB", "--stem", "diffusion_pytorch_model", "--verify=false"))
	assert.Greater(t, len(r.Files), 3)
	assert.False(t, r.Verified)
	assert.Equal(t, "diffusion_pytorch_model-00001-of-0000", r.Files[0][:37])
	assert.True(t, differing(t, ExitOK, sharded, l.path("many")).Equal)
	assert.Contains(t, succeed(t, "convert", l.path("many")+"/diffusion_pytorch_model.safetensors.index.json", l.path("again"), "--verify=false"), "; not read back\n")
	assert.FileExists(t, l.path("again/diffusion_pytorch_model.safetensors"))
}

// TestConvertWarns of numbers that do not fit, and of what the index promises.
func TestConvertWarns(t *testing.T) {
	l := newLab(t)
	path := l.write("x.safetensors", floats("small", []float32{1e-30, 1}, 2), floats("large", []float32{1e30, -math.MaxFloat32, 1}, 3), ints("ids", []int64{1}, 1))
	out := succeed(t, "convert", path, l.path("f16.safetensors"), "--dtype", "F16")
	assert.Contains(t, out, "warning  2 of 5 numbers are beyond F16 and became infinite, first in large\n")
	assert.Contains(t, out, "note     1 of 5 numbers were too small for F16 and became 0\n")
	for dtype, what := range map[string]string{"f8_e4m3": "its largest number", "f8_e5m2": "infinite"} {
		assert.Contains(t, succeed(t, "convert", path, l.path(dtype+".safetensors"), "--dtype", dtype), "became "+what+", first in large\n")
	}
	assert.Contains(t, succeed(t, "convert", path, l.path("f64.safetensors"), "--dtype", "f64"), "type    F32 to F64: 2 tensors, exact\n")

	m := l.copy(goldens+"/lm/qwen2/model-sharded", "model")
	l.setIndex(m, func(_, shards map[string]any) { shards["model.absent"] = "model-00001-of-00005.safetensors" })
	l.tensors(m+"/model-00001-of-00005.safetensors", func(*safetensors.Entry) bool { return true })
	r := decode[conversion](t, succeed(t, "convert", m, l.path("out"), "--json"))
	assert.Equal(t, []string{"model.absent"}, r.Absent)
	assert.Contains(t, r.Copied, "config.json")
}

// TestConvertForce replaces what is there, whole, and no more than that.
func TestConvertForce(t *testing.T) {
	l := newLab(t)
	path := l.write("x.safetensors", floats("w", []float32{1}, 1))
	l.file("out/notes.txt", "old")
	l.file("file.safetensors", "old")
	for _, output := range []string{"out", "file.safetensors"} {
		r := command(t, "", "convert", path, l.path(output))
		assert.Equal(t, ExitUsage, r.status)
		assert.Contains(t, r.stderr, "--force")
		succeed(t, "convert", path, l.path(output), "--force")
	}
	assert.NoFileExists(t, l.path("out/notes.txt"))
	assert.FileExists(t, l.path("out/model.safetensors"))
	entries, err := os.ReadDir(l.dir)
	require.NoError(t, err)
	assert.Len(t, entries, 3, "nothing is left beside them")
}

func TestGlob(t *testing.T) {
	for pattern, names := range map[string][2]string{
		"*":               {"", "a.b\nc"},
		"*norm*":          {"norm", "model.norm.weight"},
		"layers.?.weight": {"layers.0.weight", "layers.x.weight"},
		"a[b].c":          {"a[b].c", "a[b].c"},
	} {
		for _, n := range names {
			assert.True(t, newGlob(pattern).matches(n), "%s %s", pattern, n)
		}
	}
	assert.False(t, newGlob("layers.?.weight").matches("layers.10.weight"))
	assert.False(t, newGlob("a.b").matches("axb"))
	assert.False(t, newGlob("norm").matches("model.norm"))
}

const torchFiles = "../../../safetensors/torchfile/testdata/read/"

// TestConvertTorch says what a PyTorch file holds beside tensors, and which of
// them are one.
func TestConvertTorch(t *testing.T) {
	l := newLab(t)
	out := succeed(t, "convert", torchFiles+"nested.pt", l.path("nested.safetensors"))
	assert.Contains(t, out, "nested.pt (torch zip)\n")
	assert.Contains(t, out, "dropped  ")
	assert.True(t, differing(t, ExitOK, torchFiles+"nested.pt", l.path("nested.safetensors")).Equal)
	assert.Contains(t, succeed(t, "inspect", torchFiles+"nested.pt", "--verify"), "no problems")

	// A folder of PEFT, from PyTorch to safetensors.
	bin := goldens + "/peft/file-bin/adapter"
	out = succeed(t, "convert", bin, l.path("adapter"))
	assert.Contains(t, out, " (torch zip: the folder has no adapter_model.safetensors)\n")
	assert.FileExists(t, l.path("adapter/adapter_model.safetensors"))
	assert.NoFileExists(t, l.path("adapter/adapter_model.bin"))
	assert.True(t, differing(t, ExitOK, bin, l.path("adapter")).Equal)
	assert.Equal(t, "adapter", decode[inspection](t, succeed(t, "inspect", l.path("adapter"), "--json")).Kind)
	assert.Equal(t, "torch zip", decode[inspection](t, succeed(t, "inspect", bin, "--json")).Format)

	shared := decode[conversion](t, succeed(t, "convert", torchFiles+"legacy_shared.pt", l.path("shared.safetensors"), "--json"))
	require.NotEmpty(t, shared.Tied)
	less := decode[conversion](t, succeed(t, "convert", torchFiles+"legacy_shared.pt", l.path("less.safetensors"), "--json", "--drop-tied"))
	assert.Less(t, less.Tensors, shared.Tensors)
	i := decode[inspection](t, succeed(t, "inspect", l.path("less.safetensors"), "--json"))
	assert.Equal(t, shared.Tied[0][0], i.Metadata[shared.Tied[0][1]])
}
