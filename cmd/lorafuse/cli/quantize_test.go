package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const quantized = goldens + "/quant"

// Quantised on load, the model of the example loses next to nothing: 0.5 % of
// perplexity in int8, 2 % in nf4, of all rows with LORAFUSE_LONG.
func TestQuantizeQuality(t *testing.T) {
	const example = "../../../examples/godoc/"
	raw, err := os.ReadFile(example + "eval.jsonl")
	require.NoError(t, err)
	rows := strings.SplitAfter(string(raw), "\n")
	if os.Getenv("LORAFUSE_LONG") == "" {
		rows = rows[:64]
	}
	file := newLab(t).file("eval.jsonl", strings.Join(rows, ""))
	perplexity := func(method string) float64 {
		var e evaluation
		out := succeed(t, "eval", "--model", example+"model", "--data", file, "--quantize", method, "--json")
		require.NoError(t, json.Unmarshal([]byte(out), &e))
		return float64(e.Perplexity)
	}
	plain := perplexity("none")
	for method, limit := range map[string]float64{"int8": 0.005, "nf4": 0.02} {
		p := perplexity(method)
		t.Logf("%s: perplexity %.4f, %+.2f %% of %.4f", method, p, 100*(p/plain-1), plain)
		require.NotEqual(t, plain, p)
		require.Less(t, math.Abs(p/plain-1), limit, method)
	}
}

func TestQuantizeGenerate(t *testing.T) {
	r := command(t, "", "generate", "--model", llama, "--adapter", llamaLoRA, "--prompt", "func main", "-n", "5", "--quantize", "int8")
	require.Equal(t, ExitOK, r.status, r.stderr)
	require.Contains(t, r.stderr, "quantize int8: 14 linear layers in 76.5 KiB, 144.0 KiB in 16 bits; embeddings, norms and the head as in the file")
	for _, name := range []string{"generate", "eval", "compare"} {
		require.Contains(t, succeed(t, name, "--help"), "--quantize")
	}
}

func TestQuantizeRefusals(t *testing.T) {
	for _, c := range []struct {
		says string
		args []string
	}{
		{`--quantize: found "nf5", expected none, int8, nf4 or fp8, did you mean "nf4"?`,
			[]string{"generate", "--model", llama, "--prompt", "x", "--quantize", "nf5"}},
		{"quantize: found weights that are stored as nf4, expected int8, or weights that are not quantised",
			[]string{"compare", "--model", quantized + "/nf4", "--golden", quantized + "/nf4/golden.safetensors", "--quantize", "int8"}},
		{"its weights are quantised: expected the unquantised model that it was made from",
			[]string{"merge", "--model", quantized + "/nf4-double", "--adapter", quantized + "/nf4-double/train/final", "--output", filepath.Join(t.TempDir(), "merged")}},
	} {
		r := command(t, "", c.args...)
		require.NotEqual(t, ExitOK, r.status)
		require.Contains(t, r.stderr, c.says)
		require.Equal(t, 1, strings.Count(strings.TrimSpace(r.stderr), "\n")+1, r.stderr)
	}
}

// Checkpoints that bitsandbytes has quantised are compared with the logits of
// their dequantised weights, and shown with the shapes that their codes are of.
func TestStoredQuantized(t *testing.T) {
	for _, name := range []string{"nf4-double", "fp4-odd", "int8", "int8-odd"} {
		dir := filepath.Join(quantized, name)
		r := command(t, "", "compare", "--model", dir, "--golden", filepath.Join(dir, "golden.safetensors"))
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.Contains(t, r.stderr, "quantize by bitsandbytes: ")
	}
	var i inspection
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "inspect", quantized+"/nf4", "--json")), &i))
	require.True(t, i.Model.Supported, i.Model.Reason)
	require.Empty(t, i.Model.Unused)
	require.Equal(t, 86336, i.Model.Parameters)
	require.Equal(t, "by bitsandbytes: 14 linear layers as nf4 in 40.5 KiB, 144.0 KiB in 16 bits", i.Model.Quantized)
	for _, x := range i.Tensors {
		if x.Name == "model.layers.0.mlp.down_proj.weight" {
			require.Equal(t, "nf4 [64 128]", x.Codes)
		}
	}
	require.Contains(t, succeed(t, "inspect", quantized+"/int8-odd"), "[82 50] of int8 [82 50]")
}
