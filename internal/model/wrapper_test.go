package model_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// wrappers are the multimodal models of testdata/extra.
var wrappers = []string{
	"gemma3-whole", "gemma3-whole-untied", "mistral3", "mistral3-ministral3", "llava", "llava-pixtral", "llava-next", "llava-next-mistral", "aya-vision", "aya-vision-untied", "qwen2-vl", "qwen2-5-vl", "qwen3-vl", "qwen3-vl-untied", "qwen3-vl-moe", "qwen3-vl-moe-tied",
}

// TestWrapperNames: modules are called as in the whole model, whatever files call them, and what
// is not read is the vision part.
func TestWrapperNames(t *testing.T) {
	for _, name := range wrappers {
		for part, want := range map[model.Part]string{model.AsSaved: "model.language_model.layers.1.self_attn.q_proj", model.Body: "language_model.layers.1.self_attn.q_proj"} {
			m, err := model.OpenAs(filepath.Join("../../testdata/extra", name), part)
			require.NoError(t, err, name)
			var names []string
			for _, module := range m.Modules() {
				names = append(names, module.Name)
			}
			require.Contains(t, names, want, name)
			require.NotEmpty(t, m.UnreadLine(), name)
			require.Empty(t, m.UnreadLine(model.VisionTower), name)
			require.NoError(t, m.Close())
		}
	}
}

// TestWrapperConfigs: what the whole model says about its texts, and what text_config leaves out.
func TestWrapperConfigs(t *testing.T) {
	parse := func(text string) (*model.Config, error) { return model.ParseConfig([]byte(text)) }
	c, err := parse(`{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 106], "torch_dtype": "bfloat16",
		"text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}`)
	require.NoError(t, err)
	require.Equal(t, []any{262208, 34, 131072, true, []int32{1, 106}, int32(2), 0, "bfloat16"}, []any{c.VocabSize, c.Layers, c.MaxPositions, c.TiedEmbeddings, c.EOS, c.BOS, c.Padding, c.DType})

	c, err = parse(`{"model_type": "llava", "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064, "torch_dtype": "float16"}}`)
	require.NoError(t, err)
	require.Equal(t, []any{"LlavaForConditionalGeneration", 4096, 32, 4096, false, []int32{2}, "float16"}, []any{c.Architecture, c.HiddenSize, c.Layers, c.MaxPositions, c.TiedEmbeddings, c.EOS, c.DType})

	c, err = parse(`{"model_type": "mistral3", "text_config": {"model_type": "ministral3", "hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 26}}`)
	require.NoError(t, err)
	require.Equal(t, []any{131072, 11, true, 262144}, []any{c.VocabSize, c.Padding, c.TiedEmbeddings, c.MaxLength()})

	for config, want := range map[string]bool{ // tied
		`{"model_type": "aya_vision", "text_config": {"tie_word_embeddings": false}}`:                                                       true,
		`{"model_type": "aya_vision", "tie_word_embeddings": false, "text_config": {"model_type": "cohere"}}`:                               false,
		`{"model_type": "llava_next", "text_config": {"model_type": "granite", "tie_word_embeddings": true}}`:                               true,
		`{"model_type": "llava_next", "tie_word_embeddings": false, "text_config": {"model_type": "granite", "tie_word_embeddings": true}}`: false,
		`{"model_type": "llava_next", "text_config": {"model_type": "granite"}}`:                                                            false,
	} {
		c, err := parse(config)
		require.NoError(t, err)
		require.Equal(t, want, c.TiedEmbeddings, config)
	}

	for config, says := range map[string]string{
		`{"architectures": ["LlavaForConditionalGeneration"]}`:                                                                              "text_config: found nothing, expected an object",
		`{"architectures": ["LlavaForConditionalGeneration"], "text_config": {"model_type": "phi"}}`:                                        `text_config: unsupported model: model_type "phi"; supported: cohere, cohere2, gemma3_text, `,
		`{"architectures": ["LlavaForConditionalGeneration"], "text_config": {"mlp_bias": 3}}`:                                              "text_config: bad config.json: mlp_bias: found 3",
		`{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"use_bidirectional_attention": true}}`:                       "text_config: use_bidirectional_attention",
		`{"architectures": ["Qwen2_5_VLForConditionalGeneration"], "text_config": {"model_type": "llama"}}`:                                 "text_config: found another model",
		`{"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "ministral3", "rope_parameters": {"a": 1}}}`: "llama_4_scaling_beta and original_max_position_embeddings",
	} {
		_, err := parse(config)
		require.ErrorContains(t, err, says)
	}
}

// TestUntiedByDefault: a head of its own stays so if config.json leaves tying to the default.
func TestUntiedByDefault(t *testing.T) {
	const tied, untied = "../../testdata/extra/mistral3-ministral3", "../../testdata/extra/mistral3"
	for dir, want := range map[string]bool{tied: true, untied: false} {
		m, err := model.Open(reconfigured(t, dir, map[string]any{"tie_word_embeddings": nil}))
		require.NoError(t, err)
		require.Equal(t, want, m.Config.TiedEmbeddings)
		head := m.Modules()[len(m.Modules())-1]
		require.True(t, head.OutputEmbedding && strings.HasSuffix(head.Name, "lm_head") && (head.TiedTo != "") == want, "%+v", nn.Module(head))
		require.NoError(t, m.Close())
	}
}
