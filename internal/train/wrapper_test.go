package train_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// TestWrappedModel: an adapter on the text model of a multimodal one has the module names of
// the whole model, and keeps PEFT from adding layers to the vision parts.
func TestWrappedModel(t *testing.T) {
	out := t.TempDir()
	c, err := config.Parse("test", nil, "model=../../testdata/extra/gemma3-whole", "output_dir="+out, "steps=1", "batch_size=2", "log.plot=false",
		"data.train=../../testdata/peft/gemma3-whole/train/batches.safetensors", "adapter.target_modules=[q_proj]")
	require.NoError(t, err)
	losses(t, c)
	a, err := lora.Load(filepath.Join(out, train.AdapterDir))
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, lora.VisionModules, a.Config.ExcludeModules.Pattern)
	require.Contains(t, a.Names(), "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight")
}
