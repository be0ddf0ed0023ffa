package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loadGolden(t *testing.T, name string) (*Template, goldenFile) {
	t.Helper()
	var f goldenFile
	readJSON(t, goldens+"/golden.json", &f)
	source, err := os.ReadFile(filepath.Join(goldens, name+".jinja"))
	require.NoError(t, err)
	tmpl, err := New(string(source), f.Tokens)
	require.NoError(t, err)
	return tmpl, f
}

// answersOf cuts the spans out of the text, having checked that they are in order.
func answersOf(t *testing.T, text string, spans []Span) []string {
	t.Helper()
	answers, end := []string{}, 0
	for _, sp := range spans {
		require.LessOrEqual(t, end, sp.Start)
		require.LessOrEqual(t, sp.Start, sp.End)
		require.LessOrEqual(t, sp.End, len(text))
		answers = append(answers, text[sp.Start:sp.End])
		end = sp.End
	}
	return answers
}

// transformers says what its generation tags enclose.
func TestGenerationTags(t *testing.T) {
	tmpl, f := loadGolden(t, "generation")
	require.NotEmpty(t, f.Answers)
	for _, row := range f.Answers {
		var name string
		var want []string
		require.NoError(t, json.Unmarshal(row[0], &name))
		require.NoError(t, json.Unmarshal(row[1], &want))
		if name == "parts" { // whose list transformers shows as Python's text
			want = []string{"A cat.<|end|>\n"}
		}
		text, spans, err := tmpl.RenderSpans(f.Conversations[name], Options{})
		require.NoError(t, err)
		assert.Equal(t, want, answersOf(t, text, spans), name)
	}
}

func TestAnswersByPrefixes(t *testing.T) {
	call := `{"name": "get_weather", "arguments": {"city": "Köln", "n": 1, "x": 1.5, "l": [1, {"a": null, "b": true}]}}`
	for name, conversations := range map[string]map[string][]string{
		"chatml":         {"turns": {"b<|im_end|>", "d<|im_end|>"}, "system": {"4<|im_end|>"}, "user": {}, "disorder": {"x<|im_end|>", "y<|im_end|>"}},
		"gemma3_style":   {"turns": {"b<end_of_turn>", "d<end_of_turn>"}, "parts": {"A cat.<end_of_turn>"}},
		"mistral_style":  {"turns": {" b</s>", " d</s>"}, "system": {"4</s>"}},
		"phi_style":      {"turns": {"b<|end|>", "d<|end|>\n</s>"}},
		"llama31_style":  {"turns": {"b<|eot_id|>", "d<|eot_id|>"}, "tool_text": {`{"name": "get_weather", "parameters": "{\"city\": \"K\"}"}<|eot_id|>`}},
		"deepseek_style": {"turns": {"b<｜end▁of▁sentence｜>", "d<｜end▁of▁sentence｜>"}},
		"qwen3_style": {
			// Thoughts vanish from earlier answers, and only in the longer text.
			"turns":   {"b<|im_end|>", "<think>\n\n</think>\n\nd<|im_end|>"},
			"thought": {"a1<|im_end|>", "<think>\nwell\n</think>\n\na2<|im_end|>"},
			"tool":    {"<tool_call>\n" + call + "\n</tool_call><|im_end|>", "Cold.<|im_end|>"},
		},
	} {
		tmpl, f := loadGolden(t, name)
		for conversation, want := range conversations {
			text, spans, err := tmpl.RenderSpans(f.Conversations[conversation], Options{})
			if !assert.NoError(t, err, "%s, %s", name, conversation) {
				continue
			}
			assert.Equal(t, want, answersOf(t, text, spans), "%s, %s", name, conversation)
			plain, err := tmpl.Render(f.Conversations[conversation], Options{})
			require.NoError(t, err)
			assert.Equal(t, plain, text)
		}
	}
}

// The end of a turn that only the last answer has is no part of the others.
func TestAnswersWithoutTurnEnd(t *testing.T) {
	tmpl, err := New("{% for m in messages %}{{ m.content }}{% if not loop.last %}  {% endif %}{% endfor %}{{ eos_token }}", map[string]string{"eos_token": "</s>"})
	require.NoError(t, err)
	text, spans, err := tmpl.RenderSpans([]Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}, {Role: "user", Content: "c"}, {Role: "assistant", Content: "d"}}, Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "d</s>"}, answersOf(t, text, spans))
}

func TestAnswersThatAreNotThere(t *testing.T) {
	tmpl, err := New("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}{{ messages|length }}", nil)
	require.NoError(t, err)
	_, _, err = tmpl.RenderSpans([]Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}, {Role: "user", Content: "c"}}, Options{})
	require.ErrorIs(t, err, ErrSpans)
	assert.ErrorContains(t, err, "message 1")
	assert.False(t, strings.Contains(err.Error(), "\n"))
}

// A prompt that asks for a thought has more than the header of an answer in it.
func TestAnswersBehindAnotherPrompt(t *testing.T) {
	tmpl, err := New("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}</think>{% endif %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}", nil)
	require.NoError(t, err)
	text, spans, err := tmpl.RenderSpans([]Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}, Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"</think>b<end>"}, answersOf(t, text, spans))
}

// Answers that are left out are those of their messages, and no others.
func TestAnswersLeftOut(t *testing.T) {
	for name, conversation := range map[string]string{"chatml": "disorder", "qwen3_style": "thought", "generation": "turns"} {
		tmpl, f := loadGolden(t, name)
		messages := f.Conversations[conversation]
		text, all, err := tmpl.RenderSpans(messages, Options{})
		require.NoError(t, err)
		n := 0
		for i, m := range messages {
			if m.Role != "assistant" {
				continue
			}
			same, left, err := tmpl.RenderSpans(messages, Options{}, i)
			require.NoError(t, err)
			assert.Equal(t, text, same)
			assert.Equal(t, slices.Delete(slices.Clone(all), n, n+1), append([]Span{}, left...), "%s, message %d", name, i)
			n++
		}
		require.Greater(t, n, 1, name)
	}
	tmpl, err := New("{% for m in messages %}{% if loop.last %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}", nil)
	require.NoError(t, err)
	_, _, err = tmpl.RenderSpans([]Message{{Role: "assistant", Content: "a"}, {Role: "assistant", Content: "b"}}, Options{}, 0)
	require.ErrorIs(t, err, ErrSpans)
}
