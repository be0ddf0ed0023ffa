package data

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// TestGoldenChat: conversations become the ids that transformers'
// apply_chat_template gives, and the loss is on the answers with the token
// that ends their turn.
func TestGoldenChat(t *testing.T) {
	for _, dir := range []string{"../../testdata/tokenizers/llama3", "../../testdata/tokenizers/qwen2"} {
		tok, err := tokenizer.Load(dir)
		require.NoError(t, err)
		template, err := chat.Load(dir)
		require.NoError(t, err)
		var golden []struct {
			Messages            json.RawMessage
			AddGenerationPrompt bool `json:"add_generation_prompt"`
			IDs                 []int32
		}
		readJSON(t, filepath.Join(dir, "chat_golden.json"), &golden)
		answered := 0
		for _, g := range golden {
			if g.AddGenerationPrompt {
				continue
			}
			line, err := json.Marshal(map[string]any{"messages": g.Messages})
			require.NoError(t, err)
			o := Options{Tokenizer: tok, Template: Chat(template), TrainOn: TrainOnAll}
			d, err := load(t, "t.jsonl", string(line), o)
			require.NoError(t, err)
			assert.Equal(t, g.IDs, d.Row(0).IDs)

			var messages []chat.Message
			require.NoError(t, json.Unmarshal(g.Messages, &messages))
			want := ""
			for _, m := range messages {
				if m.Role == "assistant" {
					want += m.Content + "<|im_end|>"
				}
			}
			o.TrainOn = TrainOnAnswer
			d, err = load(t, "t.jsonl", string(line), o)
			if want == "" {
				require.ErrorIs(t, err, ErrNoTarget)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, g.IDs, d.Row(0).IDs)
			var learned []int32
			for _, label := range d.Row(0).Labels {
				if label != Ignore {
					learned = append(learned, label)
				}
			}
			text, err := tok.Decode(learned, false)
			require.NoError(t, err)
			assert.Equal(t, want, text)
			answered++
		}
		assert.Positive(t, answered, dir)
	}
}

func TestChatErrors(t *testing.T) {
	template, err := chat.New("{{ raise_exception('no ' + messages[0]['role']) }}", nil)
	require.NoError(t, err)
	_, err = load(t, "t.jsonl", `{"messages": [{"role": "user", "content": "x"}]}`, Options{Template: Chat(template)})
	require.ErrorIs(t, err, chat.ErrRefused)
	assert.ErrorContains(t, err, "t.jsonl:1: messages: ")
	assert.ErrorContains(t, err, "no user")
	assert.NotContains(t, err.Error(), "\n")
}

// TestTools: tools reach the template, and no date but the fixed one.
func TestTools(t *testing.T) {
	template, err := chat.New("{{ tools | length }}{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }}{% endfor %}", nil)
	require.NoError(t, err)
	d, err := load(t, "t.jsonl", `{"messages": [{"role": "user", "content": "x"}], "tools": [{}, {}]}`, Options{Template: Chat(template), TrainOn: TrainOnAll})
	require.NoError(t, err)
	assert.Equal(t, idsOf("22024-07-26x"), d.Row(0).IDs)
}

// TestParts learns the text of parts like the string that the template would show. It names the line and message of a
// part that is not text.
func TestParts(t *testing.T) {
	template, err := chat.New("{% for m in messages %}{{ m.role[0] }}:{{ m.content | trim }};{% endfor %}", nil)
	require.NoError(t, err)
	o := Options{Template: Chat(template)}
	file := func(answer string) string {
		return `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ` + answer + `}]}` + "\n"
	}
	want, err := load(t, "t.jsonl", file(`"a\nb"`), o)
	require.NoError(t, err)
	got, err := load(t, "t.jsonl", file(`[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]`), o)
	require.NoError(t, err)
	assert.Equal(t, want.Row(0), got.Row(0))

	_, err = load(t, "t.jsonl", file(`"a"`)+file(`[{"type": "text", "text": "a"}, {"type": "audio", "audio": "a.wav"}]`), o)
	require.ErrorIs(t, err, ErrFormat)
	assert.ErrorContains(t, err, `t.jsonl:2: messages[1].content[1].type: found "audio", expected text`)

	o.Rows = PreferenceRows
	_, err = load(t, "t.jsonl", `{"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": [{"type": "image"}]}]}`, o)
	assert.ErrorContains(t, err, `t.jsonl:1: rejected[0].content[0].type: found "image", expected text`)
}
