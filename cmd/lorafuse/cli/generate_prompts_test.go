package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// promptLines are lines of --prompts with prompts of many lengths, some of which begin as
// others do.
func promptLines(t testing.TB, n int) (lines, prompts []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 5))
	for i := range n {
		p := strings.Repeat("the quick brown fox ", r.IntN(5)) + fmt.Sprint("number ", i)
		raw, err := json.Marshal(map[string]string{"prompt": p})
		require.NoError(t, err)
		lines, prompts = append(lines, string(raw)), append(prompts, p)
	}
	return lines, prompts
}

// answersOf reads what --prompts writes.
func answersOf(t testing.TB, text string) (all []answer) {
	t.Helper()
	for l := range strings.Lines(text) {
		all = append(all, decode[answer](t, l))
	}
	return all
}

// A content in parts is the text that they make, and a part that is not text is named with its
// line and message.
func TestPromptsInParts(t *testing.T) {
	template := filepath.Join(t.TempDir(), "chat.jinja")
	require.NoError(t, os.WriteFile(template, []byte("{% for m in messages %}{{ m.content }}{% endfor %}"), 0o666))
	run := func(contents ...string) result {
		var lines strings.Builder
		for _, c := range contents {
			fmt.Fprintf(&lines, `{"messages": [{"role": "system", "content": "Hi."}, {"role": "user", "content": %s}]}`+"\n", c)
		}
		return command(t, lines.String(), "generate", "--model", llama, "--chat-template", template, "--prompts", "-", "-n", "2")
	}
	r := run(`"the\nquick"`, `[{"type": "text", "text": "the"}, {"type": "text", "text": "quick"}]`)
	require.Equal(t, ExitOK, r.status, r.stderr)
	answers := answersOf(t, r.stdout)
	require.Len(t, answers, 2)
	assert.Equal(t, answers[0].PromptTokens, answers[1].PromptTokens)
	assert.Equal(t, answers[0].IDs, answers[1].IDs)

	r = run(`"a"`, `[{"type": "image"}]`)
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, `standard input:2: generate: chat template failed: messages[1].content[0].type: found "image", expected text`)
}

// Answers to many prompts are those of a generator that answers one after the other,
// draws and all, in the order of the prompts, whatever ends each.
func TestPromptsAreTheGenerators(t *testing.T) {
	lines, prompts := promptLines(t, 100)
	dev, err := backend.Open(backend.CPU, backend.Options{BatchInvariant: true})
	require.NoError(t, err)
	defer dev.Close()
	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	tok, err := tokenizer.Load(llama)
	require.NoError(t, err)
	for name, adapter := range map[string]string{"model": "", "adapter": llamaLoRA} {
		var state *lora.State
		args := []string{"generate", "--model", llama, "--prompts", "-", "--batch-invariant", "-n", "24", "--temperature", "1.5", "--seed", "3", "--stop", "e"}
		if adapter != "" {
			args = append(args, "--adapter", adapter)
			state, err = lora.LoadState(adapter, m, m.Config.ModelType, m.Modules())
			require.NoError(t, err)
		}
		r := command(t, strings.Join(lines, "\n\n"), args...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		assert.Empty(t, r.stderr)
		answers := answersOf(t, r.stdout)
		require.Len(t, answers, len(prompts))
		g, err := generate.New(t.Context(), dev, m, state, generate.Options{})
		require.NoError(t, err)
		finishes := map[generate.Finish]int{}
		for i, a := range answers {
			ids, err := tok.Encode(prompts[i], true)
			require.NoError(t, err)
			o := generate.GenerateOptions{MaxNewTokens: 24, Stop: []string{"e"}, Decoder: tok.NewStream(true)}
			o.Sampler.Temperature, o.Sampler.TopK, o.Sampler.TopP, o.Sampler.RepetitionPenalty = 1.5, 50, 1, 1
			o.Sampler.Seed, o.Sampler.Sequence = 3, uint64(i)
			g.Reset()
			want, err := g.Generate(t.Context(), ids, o, nil)
			require.NoError(t, err)
			require.Equal(t, prompts[i], *a.Prompt, name)
			require.Equal(t, want.IDs, a.IDs, "%s: prompt %d", name, i)
			require.Equal(t, want.Text, a.Text)
			require.Equal(t, want.Finish, a.Finish)
			require.Equal(t, len(ids), a.PromptTokens)
			require.Equal(t, len(want.IDs), a.NewTokens)
			require.Positive(t, a.PromptSeconds)
			require.Equal(t, a.NewTokens > 1, a.TokensPerSecond > 0)
			finishes[a.Finish]++
		}
		g.Close()
		assert.Positive(t, finishes[generate.FinishStop], "%v", finishes)
		assert.Positive(t, finishes[generate.FinishLength], "%v", finishes)
	}
}

// A prompt that the cache has no room for is answered all the same, up to what the model
// takes; one that is longer than that is an error, behind all answers before it.
func TestPromptsGrow(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.setJSON(m+"/config.json", map[string]any{"max_position_embeddings": 3000})
	long := func(words int) string { return fmt.Sprintf(`{"prompt": %q}`, strings.Repeat("fox ", words)) }
	lines := []string{`{"prompt": "a"}`, long(100), long(700), `{"prompt": "b"}`, long(5000), `{"prompt": "never"}`}
	args := []string{"generate", "--model", m, "--batch-invariant", "-n", "9"}
	r := command(t, strings.Join(lines, "\n"), append(args, "--prompts", "-")...)
	assert.Equal(t, ExitUsage, r.status)
	assert.Regexp(t, `^lorafuse: standard input:5: generate: .* the prompt has \d+, and prompt and answer can have 3000\n$`, r.stderr)
	answers := answersOf(t, r.stdout)
	require.Len(t, answers, 4)
	require.Greater(t, answers[2].PromptTokens, 2*shortestRoom)
	for i, a := range answers {
		one := command(t, "", append(args, "--json", "--prompt", *a.Prompt)...)
		require.Equal(t, ExitOK, one.status, one.stderr)
		assert.Equal(t, decode[answer](t, one.stdout).IDs, a.IDs, "prompt %d", i)
	}
	r = command(t, lines[0], "generate", "--model", m, "--prompts", "-", "-n", "9223372036854775807", "--stop", " ")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Len(t, answersOf(t, r.stdout), 1)
}

// The first line that is wrong ends the run, with its number, behind the answers to all
// lines before it and without one behind it.
func TestPromptsErrors(t *testing.T) {
	lines, prompts := promptLines(t, 40)
	for name, c := range map[string]struct {
		line, says string
	}{
		"JSON":     {`{"prompt": `, `standard input:31: not {"prompt": "..."} or {"messages": [...]}: `},
		"key":      {`{"promt": "x"}`, "standard input:31: found neither prompt nor messages"},
		"both":     {`{"prompt": "x", "messages": []}`, "standard input:31: found prompt and messages"},
		"template": {`{"messages": [{"role": "user", "content": "x"}]}`, "standard input:31: generate: the model has "},
	} {
		with := append(append(append([]string{}, lines[:30]...), c.line), lines[30:]...)
		r := command(t, strings.Join(with, "\n"), "generate", "--model", llama, "--prompts", "-", "-n", "4")
		assert.Equal(t, ExitUsage, r.status, name)
		assert.True(t, strings.HasPrefix(r.stderr, "lorafuse: "+c.says), "%s: %s", name, r.stderr)
		answers := answersOf(t, r.stdout)
		require.Len(t, answers, 30, name)
		for i, a := range answers {
			require.Equal(t, prompts[i], *a.Prompt, name)
		}
	}
	r := command(t, "", "generate", "--model", llama, "--prompts", "-")
	assert.Equal(t, result{status: ExitOK}, r, "nothing is asked")
	r = command(t, "x", "generate", "--model", llama, "--prompts", newLab(t).dir)
	assert.NotEqual(t, ExitOK, r.status)
	assert.Contains(t, r.stderr, "is a directory")
}

// What breaks under way is said of the line that it is about.
func TestPromptsBreak(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.tensors(weightsFile(m), nan("model.norm.weight"))
	lines, _ := promptLines(t, 20)
	r := command(t, strings.Join(lines, "\n"), "generate", "--model", m, "--prompts", "-")
	assert.Equal(t, ExitFailure, r.status)
	assert.Empty(t, r.stdout)
	assert.Regexp(t, `^lorafuse: standard input:1: generate: token \d+: .*\n$`, r.stderr)
}

// lineByLine gives a line with each read, and notes how many are under way.
type lineByLine struct {
	lines       []string
	given, most int
	written     atomic.Int64
}

func (l *lineByLine) Read(p []byte) (int, error) {
	if l.given == len(l.lines) {
		return 0, io.EOF
	}
	l.given++
	l.most = max(l.most, l.given-int(l.written.Load()))
	return copy(p, l.lines[l.given-1]+"\n"), nil
}

func (l *lineByLine) Write(p []byte) (int, error) {
	l.written.Add(int64(strings.Count(string(p), "\n")))
	return len(p), nil
}

// However many lines there are, a few are in memory.
func TestPromptsAreBounded(t *testing.T) {
	lines, _ := promptLines(t, 400)
	l := &lineByLine{lines: lines}
	var errs strings.Builder
	status := Run(t.Context(), []string{"generate", "--model", llama, "--prompts", "-", "-n", "12"}, l, l, &errs)
	require.Equal(t, ExitOK, status, errs.String())
	assert.EqualValues(t, len(lines), l.written.Load())
	assert.LessOrEqual(t, l.most, linesUnderWay+3, "and those that are read ahead")
	assert.Greater(t, l.most, 1)
}

// An answer is written as soon as it is there, though the input goes on; an interruption
// ends a run that waits for more of it, and one that has much to do.
func TestPromptsStream(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	var errs strings.Builder
	status := make(chan int, 1)
	go func() {
		status <- Run(ctx, []string{"generate", "--model", llama, "--prompts", "-", "-n", "5"}, in, out, &errs)
		out.Close()
	}()
	said := bufio.NewReader(answers)
	for _, p := range []string{"one", "two", "three"} {
		_, err := fmt.Fprintf(ask, "{\"prompt\": %q}\n", p)
		require.NoError(t, err)
		text, err := said.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, p, *decode[answer](t, text).Prompt)
	}
	cancel()
	assert.Equal(t, ExitInterrupted, <-status)
	assert.Equal(t, "lorafuse: interrupted\n", errs.String())
	ask.Close()
}

func TestPromptsInterrupted(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.setJSON(m+"/config.json", map[string]any{"max_position_embeddings": 1 << 16})
	file := l.file("prompts.jsonl", strings.Repeat(`{"prompt": "x"}`+"\n", 1000))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	var out, errs strings.Builder
	status := Run(ctx, []string{"generate", "--model", m, "--prompts", file, "-n", "60000"}, os.Stdin, &out, &errs)
	assert.Equal(t, ExitInterrupted, status)
	assert.Equal(t, "lorafuse: interrupted\n", errs.String())
	assert.Empty(t, out.String())
}

// The tokenizer and the chat template in the folder of an adapter are those of its chats.
func TestTextsOfAdapter(t *testing.T) {
	l := newLab(t)
	model, adapter := l.model(), l.adapter()
	require.NoError(t, os.WriteFile(filepath.Join(adapter, "chat_template.jinja"), []byte("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"), 0o666))
	chat := l.file("chat.json", `[{"role": "user", "content": "the quick"}]`)
	rows := l.file("rows.jsonl", `{"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "quick brown"}]}`+"\n")
	run := func(more ...string) result {
		return command(t, "", append([]string{"generate", "--model", model, "--chat", chat, "--json", "-n", "2"}, more...)...)
	}
	assert.Contains(t, run().stderr, "no chat template")
	r := run("--adapter", adapter)
	require.Equal(t, ExitOK, r.status, r.stderr)
	template := l.file("other.jinja", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
	assert.Equal(t, decode[answer](t, r.stdout).IDs, decode[answer](t, run("--adapter", adapter, "--chat-template", template).stdout).IDs)
	succeed(t, "eval", "--model", model, "--adapter", adapter, "--data", rows, "--train-on", "all")

	words := readText(t, filepath.Join(model, "tokenizer.json"))
	require.NoError(t, os.WriteFile(filepath.Join(adapter, "tokenizer.json"), []byte(strings.Replace(words, `"added_tokens": [`, `"added_tokens": [{"id": 512, "content": "<more>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},`, 1)), 0o666))
	r = run("--adapter", adapter)
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, `more tokens than embeddings: token "<more>" has id 512, the model has 512 embeddings`)
}

// An answer that ends at the longest text of the model is reported, once for all prompts; one that ends at
// --max-new-tokens is not.
func TestPromptsReachTheLimit(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.setJSON(m+"/config.json", map[string]any{"max_position_embeddings": 12, "eos_token_id": nil})
	l.setJSON(m+"/generation_config.json", map[string]any{"eos_token_id": nil})
	const note = "prompt and answer reached 12 tokens, the most that the model takes (max_position_embeddings)"
	r := command(t, `{"prompt": "a"}`+"\n"+`{"prompt": "b"}`, "generate", "--model", m, "--prompts", "-", "-n", "40")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, 1, strings.Count(r.stderr, note), r.stderr)
	r = command(t, "", "generate", "--model", m, "--prompt", "a", "-n", "40")
	assert.Equal(t, 1, strings.Count(r.stderr, note), r.stderr)
	r = command(t, "", "generate", "--model", m, "--prompt", "a", "-n", "2")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.NotContains(t, r.stderr, note)
}
