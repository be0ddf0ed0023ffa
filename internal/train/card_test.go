package train_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/train"
)

// card trains with settings and returns the model card.
func card(t *testing.T, dir string, sets ...string) string {
	c := configure(t, dir, countingRows(16), append([]string{"steps=2", "log.tensorboard=false"}, sets...)...)
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(s.Adapter, "README.md"))
	require.NoError(t, err)
	return string(raw)
}

func TestCard(t *testing.T) {
	dir := t.TempDir()
	text := card(t, dir, "data.eval_fraction=0.25", "adapter.r=5", "adapter.lora_alpha=10", "schedule=cosine")
	front, body, ok := strings.Cut(strings.TrimPrefix(text, "---\n"), "---\n")
	require.True(t, ok)
	var meta map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(front), &meta))
	assert.Equal(t, map[string]any{
		"library_name": "peft", "pipeline_tag": "text-generation", "tags": []any{"lora", "lorafuse", "transformers"},
	}, meta, "the Hub refuses a folder as base_model")
	for _, part := range []string{
		"# LoRA adapter for model\n", "| training data | `rows.jsonl` |", "| evaluation data | 0.25 of the rows, drawn by seed |",
		"| r | 5 |", "| target modules | down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj |", "| lora_alpha | 10 (scale lora_alpha/r) |", "| learning rate | 0.01, cosine |", "| steps | 2 |", "| batch | 8 rows × 1 accumulated |",
		"| training | ", "| evaluation | ", `PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("model", dtype="auto"), "this-folder")`,
		"vllm serve model --enable-lora --max-lora-rank 8 --lora-modules", "lorafuse generate --model model --adapter this-folder",
	} {
		assert.Contains(t, body, part)
	}
	assert.NotContains(t, text, dir)

	// Another run replaces the card, unless somebody has edited it.
	path := filepath.Join(dir, "out", "adapter", "README.md")
	assert.Contains(t, card(t, dir, "adapter.use_dora=true"), "vLLM does not load adapters with DoRA")
	require.NoError(t, os.WriteFile(path, []byte(text+"Mine."), 0o666))
	assert.Equal(t, text+"Mine.", card(t, dir))
}
