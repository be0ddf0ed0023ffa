package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

const (
	fluxModel   = goldens + "/dit/flux/transformer"
	fluxAdapter = goldens + "/dit/flux/train/final.safetensors"
)

// TestAdapterConvert: an adapter goes through all forms and comes back as it was.
func TestAdapterConvert(t *testing.T) {
	l := newLab(t)
	last := fluxAdapter
	for _, step := range []struct{ form, output string }{
		{"kohya", "kohya.safetensors"}, {"comfyui", "comfy.safetensors"}, {"peft", "peft"}, {"diffusers", "out"},
	} {
		out := l.path(step.output)
		r := decode[adapterConversion](t, succeed(t, "adapter", "convert", last, out, "--model", fluxModel, "--to", step.form, "--json"))
		assert.Equal(t, 14, r.Modules)
		assert.Equal(t, 28, r.Tensors)
		assert.Equal(t, 4, r.Rank)
		assert.EqualValues(t, 4, r.Alpha)
		assert.Equal(t, []string{"to_k", "to_out.0", "to_q", "to_v"}, r.Targets)
		last = out
	}
	first, err := safetensors.Open(fluxAdapter)
	require.NoError(t, err)
	defer first.Close()
	again, err := safetensors.Open(filepath.Join(last, dialects.File))
	require.NoError(t, err)
	defer again.Close()
	const key = "transformer.single_transformer_blocks.1.attn.to_v.lora"
	for was, is := range map[string]string{key + ".down.weight": key + "_A.weight", key + ".up.weight": key + "_B.weight"} {
		want, err := first.Lookup(was)
		require.NoError(t, err)
		found, err := again.Lookup(is)
		require.NoError(t, err)
		assert.Equal(t, want.Bytes(), found.Bytes())
	}
	assert.Contains(t, again.Metadata()["lora_adapter_metadata"], `"transformer.lora_alpha": 4`)

	r := command(t, "", "adapter", "convert", fluxAdapter, last, "--model", fluxModel)
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, "--force overwrites it")
	out := succeed(t, "adapter", "convert", fluxAdapter, last, "--model", fluxModel, "--force")
	assert.Equal(t, "wrote 14 modules of rank 4 and alpha 4 into "+filepath.Join(last, dialects.File)+", in the form of diffusers\n", out)
}

// TestAdapterConvertErrors: one line that says what is wrong.
func TestAdapterConvertErrors(t *testing.T) {
	l := newLab(t)
	require.NoError(t, os.WriteFile(l.path("junk.safetensors"), []byte("{"), 0o666))
	for text, args := range map[string][]string{
		"--model is missing":                                {fluxAdapter, l.path("x.safetensors")},
		`did you mean "diffusers"?`:                         {fluxAdapter, l.path("x"), "--model", fluxModel, "--to", "difusers"},
		"is one file":                                       {fluxAdapter, l.path("x"), "--model", fluxModel, "--to", "kohya"},
		"PEFT's form is a folder":                           {fluxAdapter, l.path("x.safetensors"), "--model", fluxModel, "--to", "peft"},
		"--modelfile: found --to kohya, expected --to gguf": {fluxAdapter, l.path("x.safetensors"), "--model", fluxModel, "--to", "kohya", "--modelfile"},
		"junk.safetensors":                                  {l.path("junk.safetensors"), l.path("x"), "--model", fluxModel},
		"no such file":                                      {l.path("none.safetensors"), l.path("x"), "--model", fluxModel},
		"matches no target":                                 {goldens + "/dit/lora-dialects/kohya-qwen.safetensors", l.path("x"), "--model", fluxModel},
		lora.ConfigFile:                                     {l.path(""), l.path("x"), "--model", fluxModel},
	} {
		r := command(t, "", append([]string{"adapter", "convert"}, args...)...)
		assert.Equal(t, ExitUsage, r.status, text)
		assert.Contains(t, r.stderr, text)
	}
	assert.NoDirExists(t, l.path("x"))
}
