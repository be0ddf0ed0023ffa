package model_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
)

// TestNames: at least 91 of 100 names of models that people fine-tune have a supported class.
func TestNames(t *testing.T) {
	raw, err := os.ReadFile("testdata/names.txt")
	require.NoError(t, err)
	known := model.Architectures()
	open, all := 0, map[string]bool{}
	var refused []string
	for line := range bytes.Lines(raw) {
		if bytes.HasPrefix(line, []byte("#")) {
			continue
		}
		class, names, ok := strings.Cut(strings.TrimSpace(string(line)), ": ")
		require.True(t, ok, "%.40s", line)
		supported := slices.Contains(known, class)
		if !supported {
			refused = append(refused, class)
		}
		for name := range strings.FieldsSeq(names) {
			require.False(t, all[name], name)
			all[name] = true
			if supported {
				open++
			}
		}
	}
	require.Len(t, all, 937)
	share := float64(open) / float64(len(all))
	t.Logf("%d of %d names, %.1f %%; refused: %s", open, len(all), 100*share, strings.Join(refused, "; "))
	require.GreaterOrEqual(t, share, 0.91)
}

// TestNearest: an unsupported class is answered with the nearest ones of its kind.
func TestNearest(t *testing.T) {
	for class, says := range map[string]string{
		"Qwen3NextForCausalLM":                   "of its kind: Qwen3ForCausalLM, Qwen3MoeForCausalLM, Qwen2ForCausalLM, ",
		"Gemma3nForConditionalGeneration":        "of its kind: Gemma3ForConditionalGeneration, ",
		"LlavaOnevisionForConditionalGeneration": "of its kind: LlavaForConditionalGeneration, ",
		"DebertaForSequenceClassification":       "ForSequenceClassification, ",
		"MllamaForConditionalGeneration":         "of its kind: Mistral3ForConditionalGeneration, ",
		"Qwen2MoeForSequenceClassification":      "of its kind: Qwen2ForSequenceClassification, ",
		"SomethingElse":                          "SmolLM3",
		"FalconForQuestionAnswering":             "",
		"JambaForCausalLM":                       "ForCausalLM",
		"Qwen3OmniMoeForConditionalGeneration":   "of its kind: Qwen3VLForConditionalGeneration, ",
	} {
		_, err := model.ParseConfig([]byte(`{"architectures": ["` + class + `"]}`))
		require.ErrorIs(t, err, model.ErrUnsupported)
		require.ErrorContains(t, err, says)
		require.Less(t, len(err.Error()), 420)
	}
}
