package lora_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/lora"
)

// TestFormerSpellings: an adapter for a text model within a multimodal model that is named as in
// transformers 4 gives PEFT's logits, and is saved and merged with its names.
func TestFormerSpellings(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	inText := strings.NewReplacer("language_model.embed_tokens", "language_model.model.embed_tokens", "language_model.norm", "language_model.model.norm", `|lm_head"`, `|language_model.lm_head"`)
	plain := strings.NewReplacer("language_model.norm", "model.norm", ".*language_model.*", `model\\.layers.*`)
	for _, c := range []struct {
		name, former string
		config       *strings.Replacer
	}{
		{"gemma3-whole", "language_model.model.", inText},
		{"mistral3", "language_model.model.", inText},
		{"llava", "language_model.model.", inText},
		{"llava-next", "language_model.model.", inText},
		{"aya-vision", "language_model.model.", inText},
		{"qwen2-vl", "model.", plain},
		{"qwen3-vl", "model.", plain},
	} {
		t.Run(c.name, func(t *testing.T) {
			const prefix, current = "base_model.model.", "base_model.model.model.language_model."
			dir := filepath.Join("../testdata/peft", c.name)
			now, m := load(t, filepath.Join(dir, "adapter")), openModel(t, filepath.Join("../testdata/extra", c.name))
			text, err := os.ReadFile(filepath.Join(dir, "adapter", lora.ConfigFile))
			require.NoError(t, err)
			config, err := lora.ParseConfig([]byte(c.config.Replace(string(text))))
			require.NoError(t, err)
			var tensors []lora.Tensor
			var keys []string
			for _, key := range now.Names() {
				v, _ := now.Tensor(key)
				if rest, ok := strings.CutPrefix(key, current); ok {
					key = prefix + c.former + rest
				} else if c.former != "model." {
					key = strings.Replace(key, prefix+"lm_head", prefix+"language_model.lm_head", 1)
				}
				tensors, keys = append(tensors, lora.Tensor{Key: key, Tensor: v}), append(keys, key)
			}
			former := t.TempDir()
			require.NoError(t, lora.Save(former, config, tensors))
			s, err := lora.LoadState(former, m, m.Config.ModelType, m.Modules())
			require.NoError(t, err)
			f := openFile(t, filepath.Join(dir, "golden.safetensors"))
			ids := tokenRows(t, f, "input_ids")
			got := logits(t, dev, m, s, ids)
			requireLogits(t, floats(t, f, "logits"), got, 1e-5)
			same, err := lora.LoadState(filepath.Join(dir, "adapter"), m, m.Config.ModelType, m.Modules())
			require.NoError(t, err)
			require.Equal(t, logits(t, dev, m, same, ids), got)

			saved := t.TempDir()
			require.NoError(t, s.Save(saved, false))
			again := load(t, saved)
			slices.Sort(keys)
			require.Equal(t, keys, slices.Sorted(slices.Values(again.Names())))
			require.Equal(t, string(config.JSON()), string(again.Config.JSON()))
			require.LessOrEqual(t, relative(got, logits(t, dev, merged(t, m, again, s.Placement), nil, ids)), 5e-6)

			const eye = prefix + "visual.blocks.0.attn.qkv.lora_A.weight"
			tensors = append(tensors, lora.Tensor{Key: eye, Tensor: ramp(t, 2, 8)}, lora.Tensor{Key: strings.Replace(eye, "_A", "_B", 1), Tensor: ramp(t, 8, 2)})
			require.NoError(t, lora.Save(former, config, tensors))
			_, err = lora.LoadState(former, m, m.Config.ModelType, m.Modules())
			require.ErrorIs(t, err, lora.ErrUnmatched)
			require.ErrorContains(t, err, eye+": tensor matches no target: it adapts the vision part, and only the text model is read; it is one of [\""+eye)
		})
	}
}
