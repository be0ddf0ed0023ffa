package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuiltIn: the built-in templates print conversations as the models that they are named for.
func TestBuiltIn(t *testing.T) {
	tokens := map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
	messages := []Message{{Role: "system", Content: "S"}, {Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}, {Role: "user", Content: "c"}, {Role: "assistant", Content: "d"}}
	want := map[string]struct {
		text, prompt string
		answers      []string
	}{
		"chatml": {
			"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n",
			"<|im_start|>assistant\n", []string{"b<|im_end|>", "d<|im_end|>"},
		},
		"llama3": {
			"<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nd<|eot_id|>",
			"<|start_header_id|>assistant<|end_header_id|>\n\n", []string{"b<|eot_id|>", "d<|eot_id|>"},
		},
		"gemma": {
			"<s><start_of_turn>user\nS\n\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\nd<end_of_turn>\n",
			"<start_of_turn>model\n", []string{"b<end_of_turn>", "d<end_of_turn>"},
		},
		"mistral": {"<s>[INST] S\n\na [/INST] b</s>[INST] c [/INST] d</s>", "", []string{" b</s>", " d</s>"}},
	}
	require.Len(t, want, len(BuiltIn()))
	for _, name := range BuiltIn() {
		template, err := Find(name, tokens)
		require.NoError(t, err, name)
		text, spans, err := template.RenderSpans(messages, Options{})
		require.NoError(t, err, name)
		require.Equal(t, want[name].text, text, name)
		var answers []string
		for _, s := range spans {
			answers = append(answers, text[s.Start:s.End])
		}
		require.Equal(t, want[name].answers, answers, name)
		prompt, err := template.Render(messages[:2], Options{AddGenerationPrompt: true})
		require.NoError(t, err, name)
		before, err := template.Render(messages[:2], Options{})
		require.NoError(t, err, name)
		require.Equal(t, before+want[name].prompt, prompt, name)
		for bad, o := range map[string]Options{"tools": {Tools: []any{map[string]any{}}}} {
			_, err = template.Render(messages, o)
			require.ErrorContains(t, err, "the built-in template "+name+" has no tools", bad)
		}
		_, err = template.Render(append(messages[:2:2], Message{Role: "tool", Content: "x"}), Options{})
		require.ErrorContains(t, err, "the built-in template "+name, name)
	}
	_, err := Find("./chatml", tokens)
	require.Error(t, err, "a path is a file")
}
