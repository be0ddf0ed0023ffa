package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tokenizer"
)

const chatTemplateFile = goldens + "/tokenizers/llama3/chat_template.jinja"

// generated runs generate on the small model and gives its JSON.
func generated(t testing.TB, args ...string) answer {
	return decode[answer](t, succeed(t, append([]string{"generate", "--json", "--model", llama}, args...)...))
}

func TestGenerateStreams(t *testing.T) {
	a := generated(t, "--prompt", "the quick", "-n", "12")
	assert.Len(t, a.IDs, 12)
	assert.Equal(t, 12, a.NewTokens)
	assert.EqualValues(t, "length", a.Finish)
	r := command(t, "", "generate", "--model", llama, "--prompt", "the quick", "-n", "12")
	assert.Equal(t, a.Text+"\n", r.stdout)
	assert.Regexp(t, `^\d+ tokens of prompt in [\d.]+ s, 12 of answer at [\d.]+ tokens/s\n$`, r.stderr)
	fromInput := command(t, "the quick\n", "generate", "--model", llama, "-n", "12")
	assert.Equal(t, a.Text+"\n", fromInput.stdout, "the last line break of the input is no part of the prompt")
	adapted := generated(t, "--prompt", "the quick", "-n", "12", "--adapter", llamaLoRA)
	assert.NotEqual(t, a.IDs, adapted.IDs)
	one := generated(t, "--prompt", "the quick", "-n", "12", "--threads", "1", "--backend", backend.CPU)
	assert.Equal(t, a.IDs, one.IDs)
}

func TestGenerateStops(t *testing.T) {
	a := generated(t, "--prompt", "the quick", "-n", "12")
	letters := []rune(a.Text)
	require.Greater(t, len(letters), 6)
	stop := string(letters[4:6])
	s := generated(t, "--prompt", "the quick", "-n", "12", "--stop", "never there", "--stop", stop)
	assert.EqualValues(t, "stop", s.Finish)
	want, _, _ := strings.Cut(a.Text, stop)
	assert.Equal(t, want, s.Text)
}

func TestGenerateSeeds(t *testing.T) {
	ids := map[string][]int32{}
	for _, seed := range []string{"1", "2", "1"} {
		got := generated(t, "--prompt", "x", "-n", "16", "--temperature", "1", "--seed", seed).IDs
		if ids[seed] != nil {
			assert.Equal(t, ids[seed], got)
		}
		ids[seed] = got
	}
	assert.NotEqual(t, ids["1"], ids["2"])
	greedy := generated(t, "--prompt", "x", "-n", "16").IDs
	assert.Equal(t, greedy, generated(t, "--prompt", "x", "-n", "16", "--temperature", "1", "--top-k", "1").IDs)
}

// TestGeneratePrompts: each line is answered as if it were alone.
func TestGeneratePrompts(t *testing.T) {
	lines := []string{`{"prompt": "the quick"}`, `{"prompt": "the slow"}`, ``, `{"messages": [{"role": "user", "content": "hi"}]}`}
	r := command(t, strings.Join(lines, "\n"), "generate", "--model", llama, "--chat-template", chatTemplateFile, "--prompts", "-", "-n", "8")
	require.Equal(t, ExitOK, r.status, r.stderr)
	var answers []answer
	for line := range strings.Lines(r.stdout) {
		answers = append(answers, decode[answer](t, line))
	}
	require.Len(t, answers, 3)
	assert.Equal(t, "the quick", *answers[0].Prompt)
	assert.Equal(t, generated(t, "--prompt", "the quick", "-n", "8").IDs, answers[0].IDs)
	assert.Equal(t, generated(t, "--prompt", "the slow", "-n", "8").IDs, answers[1].IDs)
	l := newLab(t)
	chat := l.file("chat.json", `{"messages": [{"role": "user", "content": "hi"}]}`)
	assert.Equal(t, generated(t, "--chat", chat, "--chat-template", chatTemplateFile, "-n", "8").IDs, answers[2].IDs)
	assert.JSONEq(t, `[{"role": "user", "content": "hi"}]`, string(answers[2].Messages))
}

// TestGenerateChatAdapters: a chat goes on with another adapter, and without
// one; an adapter that does not fit ends one that is read from a file.
func TestGenerateChatAdapters(t *testing.T) {
	args := []string{"generate", "--model", llama, "--chat-template", chatTemplateFile, "-n", "6", "-i"}
	alone := func(more ...string) string {
		r := command(t, "hello", append(args, more...)...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		return r.stdout
	}
	plain, adapted := alone(), alone("--adapter", llamaLoRA)
	require.NotEqual(t, plain, adapted)
	r := command(t, "hello\n/new\n/adapter "+llamaLoRA+"\nhello\n/new\n/adapter\nhello\n", args...)
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, plain+adapted+plain, r.stdout)
	assert.Contains(t, r.stderr, "adapter  "+llamaLoRA+", in ")
	assert.Contains(t, r.stderr, "adapter  none, in ")
	r = command(t, "/adapter /no/such/adapter\nhello", args...)
	assert.NotEqual(t, ExitOK, r.status)
	assert.Contains(t, r.stderr, "/no/such/adapter")
	assert.Empty(t, r.stdout)

	l := newLab(t)
	m, own := l.model(), l.adapter()
	template, err := os.ReadFile(chatTemplateFile)
	require.NoError(t, err)
	l.file("model/chat_template.jinja", string(template))
	l.file("adapter/chat_template.jinja", "the quick {{ messages[0].content }}")
	args = []string{"generate", "--model", m, "-n", "6", "-i"}
	adapted = alone("--adapter", own)
	r = command(t, "hello\n/new\n/adapter "+own+"\nhello\n/new\n/adapter\nhello\n", args...)
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, plain+adapted+plain, r.stdout, "with the template of the adapter")
	assert.NotEqual(t, adapted, alone("--adapter", llamaLoRA))
}

// TestGenerateChat: an interactive chat renders what was said before, and a
// template from a file does the same as one in the model's folder.
func TestGenerateChat(t *testing.T) {
	args := []string{"generate", "--model", llama, "--chat-template", chatTemplateFile, "-n", "6"}
	r := command(t, "hello\n\nwho?\n/new\nhello\n/exit\nnever", append(args, "-i", "--system", "Be brief.")...)
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, 3, strings.Count(r.stderr, "tokens of prompt"))
	first := generated(t, "--prompt", "hello", "--system", "Be brief.", "--chat-template", chatTemplateFile, "-n", "6")
	require.True(t, strings.HasPrefix(r.stdout, first.Text))
	assert.True(t, strings.HasSuffix(strings.TrimSuffix(r.stdout, "\n"), strings.TrimSuffix(first.Text, "\n")))

	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	raw, err := json.Marshal([]message{{"system", "Be brief."}, {"user", "hello"}, {"assistant", first.Text}, {"user", "who?"}})
	require.NoError(t, err)
	second := command(t, string(raw), append(args, "--chat", "-", "--json")...)
	require.Equal(t, ExitOK, second.status, second.stderr)
	assert.Contains(t, r.stdout, decode[answer](t, second.stdout).Text)

	l := newLab(t)
	m := l.model()
	template, err := os.ReadFile(chatTemplateFile)
	require.NoError(t, err)
	l.file("model/chat_template.jinja", string(template))
	own := command(t, string(raw), "generate", "--model", m, "--chat", "-", "--json", "-n", "6")
	assert.Equal(t, decode[answer](t, second.stdout).IDs, decode[answer](t, own.stdout).IDs)
}

// TestSettle holds the choice of tokens against what transformers does.
func TestSettle(t *testing.T) {
	greedy := sample.Sampler{RepetitionPenalty: 1}
	for _, c := range []struct {
		name, file string
		flags      []string
		want       sample.Sampler
		tokens     int
	}{
		{"no file says greedy", "", nil, greedy, 256},
		{"settings without do_sample do nothing", `{"temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 2]}`, nil, greedy, 256},
		{"do_sample has the defaults of transformers", `{"do_sample": true}`, nil,
			sample.Sampler{Temperature: 1, TopK: 50, TopP: 1, RepetitionPenalty: 1}, 256},
		{"the file's values", `{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.05, "max_new_tokens": 99}`, nil,
			sample.Sampler{Temperature: 0.6, TopK: 20, TopP: 0.95, MinP: 0.1, RepetitionPenalty: 1.05}, 99},
		{"flags win", `{"do_sample": true, "temperature": 0.6, "top_k": 20, "max_new_tokens": 99}`, []string{"--temperature=0.2", "--top-k=0", "-n=7", "--seed=5"},
			sample.Sampler{Temperature: 0.2, TopP: 1, RepetitionPenalty: 1, Seed: 5}, 7},
		{"temperature 0 is greedy", `{"do_sample": true, "top_k": 20}`, []string{"--temperature=0", "--top-p=0.5"}, greedy, 256},
		{"a flag asks for draws", "", []string{"--top-p=0.5"}, sample.Sampler{Temperature: 1, TopK: 50, TopP: 0.5, RepetitionPenalty: 1}, 256},
		{"the penalty acts on greedy choice", `{"repetition_penalty": 1.2}`, nil, sample.Sampler{RepetitionPenalty: 1.2}, 256},
	} {
		l := newLab(t)
		if c.file != "" {
			l.file("generation_config.json", c.file)
		}
		a := &app{out: &output{}, err: os.Stderr}
		f := generateFlags{}
		cmd := a.generateCommand(&f)
		require.NoError(t, cmd.ParseFlags(c.flags))
		f.given = cmd.Flags().Changed
		w := &writer{app: a, flags: &f}
		require.NoError(t, w.settle(l.dir), c.name)
		assert.Equal(t, c.want, w.sampler, c.name)
		assert.Equal(t, c.tokens, w.newTokens, c.name)
	}
}

// TestIgnoredSettings: what is not honoured is said.
func TestIgnoredSettings(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.setJSON(m+"/generation_config.json", map[string]any{"num_beams": 4, "no_repeat_ngram_size": 0, "typical_p": 1.0, "suppress_tokens": []int{1}})
	r := command(t, "", "generate", "--model", m, "--prompt", "x", "-n", "2")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Contains(t, r.stderr, "num_beams: 4 is not honoured")
	assert.Contains(t, r.stderr, "suppress_tokens: [1] is not honoured")
	assert.NotContains(t, r.stderr, "ngram")
	assert.NotContains(t, r.stderr, "typical_p")
}

// TestGenerateRaw: special tokens are neither added nor hidden.
func TestGenerateRaw(t *testing.T) {
	l := newLab(t)
	m := l.model()
	// A model that writes its end token at once: all logits but that one are 0.
	l.tensors(weightsFile(m), func(e *safetensors.Entry) bool {
		if e.Name == "lm_head.weight" {
			clear(e.Data)
		}
		return true
	})
	tok, err := tokenizer.Load(m)
	require.NoError(t, err)
	end, ok := tok.Token(0)
	require.True(t, ok)
	plain := command(t, "", "generate", "--model", m, "--prompt", "x", "-n", "3")
	assert.Equal(t, "\n", plain.stdout, "equal logits give token 0, which ends the text and is not shown")
	raw := command(t, "", "generate", "--model", m, "--prompt", "x", "-n", "3", "--raw")
	assert.Equal(t, end+"\n", raw.stdout)
}

// TestGenerateEnd: where the model names no token that ends a text, the tokenizer's does.
func TestGenerateEnd(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.tensors(weightsFile(m), func(e *safetensors.Entry) bool {
		if e.Name == "lm_head.weight" {
			clear(e.Data) // equal logits give token 0
		}
		return true
	})
	for _, file := range []string{"config.json", "generation_config.json"} {
		l.setJSON(m+"/"+file, map[string]any{"eos_token_id": nil})
	}
	tok, err := tokenizer.Load(m)
	require.NoError(t, err)
	end, ok := tok.EOS()
	require.True(t, ok)
	require.Zero(t, end)
	r := command(t, "", "generate", "--model", m, "--prompt", "x", "-n", "3", "--json")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, []int32{0}, decode[answer](t, r.stdout).IDs)
	l.setJSON(m+"/tokenizer_config.json", map[string]any{"eos_token": nil})
	r = command(t, "", "generate", "--model", m, "--prompt", "x", "-n", "3", "--json")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, []int32{0, 0, 0}, decode[answer](t, r.stdout).IDs)
}
