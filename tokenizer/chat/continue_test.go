package chat_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// The texts are those of transformers with continue_final_message.
func TestContinueFinalMessage(t *testing.T) {
	render := func(source, messages string) (string, error) {
		x, err := chat.New(source, nil)
		require.NoError(t, err)
		var list []chat.Message
		require.NoError(t, json.Unmarshal([]byte(messages), &list))
		return x.Render(list, chat.Options{ContinueFinalMessage: true})
	}
	chatml, err := os.ReadFile("../../testdata/tokenizers/chat/chatml.jinja")
	require.NoError(t, err)
	const trims = `{% for m in messages %}{{ m.role }}:{{ m.content | trim }};{% endfor %}`
	const parts = `{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}`
	for _, c := range []struct{ source, messages, want string }{
		{string(chatml), `[{"role":"user","content":"a"},{"role":"assistant","content":"b c"}]`, "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb c"},
		{string(chatml), `[{"role":"user","content":"a"},{"role":"assistant","content":" b \n"}]`, "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb"}, // it trims
		{trims, `[{"role":"user","content":"a"},{"role":"assistant","content":" b "}]`, "user:a;assistant:b"},
		{parts, `[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b "}]}]`, "assistant:ab "},
		{`{% for m in messages %}{{ m.content }};{% endfor %}`, `[{"role":"assistant","content":" b \n"}]`, " b \n"},
		{trims, `[{"role":"user","content":"CONTINUE_FINAL_MESSAGE_TAG x"}]`, "user:CONTINUE_FINAL_MESSAGE_TAG x"},
	} {
		got, err := render(c.source, c.messages)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	for messages, want := range map[string]string{
		`[]`: "there are no messages",
		`[{"role":"assistant","content":null,"tool_calls":[]}]`: "it has tool calls after its content",
		`[{"role":"assistant"}]`:                                "it has no text",
		`[{"role":"hidden","content":"a"}]`:                     "the template leaves out its content",
	} {
		_, err := render(`{% for m in messages if m.role != "hidden" %}{{ m.content }}{% endfor %}`, messages)
		assert.ErrorIs(t, err, chat.ErrRender)
		assert.ErrorContains(t, err, want)
	}
}
