package data

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJSONLText(t *testing.T) {
	d, err := load(t, "t.jsonl", "\xef\xbb\xbf{\"text\": \"ab\", \"id\": 7}\n\n{\"text\": \"\"}\n{\"text\": \"c\"}", Options{})
	require.NoError(t, err)
	assert.Equal(t, []Row{
		{idsOf("ab", eos), idsOf("ab", eos)},
		{idsOf("c", eos), idsOf("c", eos)},
	}, rowsOf(d))
	assert.Equal(t, Stats{Files: 1, Rows: 2, Tokens: 5, LossTokens: 3, Longest: 3, Empty: 1}, d.Stats())
}

// TestJSONLCompletion: prompt and completion are tokenised apart, the end
// token is learned, the begin token comes once.
func TestJSONLCompletion(t *testing.T) {
	const file = `{"prompt": "pa", "completion": "aé"}` + "\n"
	d, err := load(t, "t.jsonl", file, Options{Tokenizer: byteTokenizer{bos: true}})
	require.NoError(t, err)
	assert.Equal(t, []Row{{
		append([]int32{bos}, idsOf("paaé", eos)...),
		masked(3, idsOf("aé", eos)...),
	}}, rowsOf(d))
	assert.Equal(t, 4, d.Stats().LossTokens)

	d, err = load(t, "t.jsonl", file, Options{Tokenizer: pairTokenizer{}})
	require.NoError(t, err)
	assert.Equal(t, idsOf("paaé", eos), d.Row(0).IDs, "no token across the seam")

	d, err = load(t, "t.jsonl", file, Options{TrainOn: TrainOnAll})
	require.NoError(t, err)
	assert.Equal(t, []Row{{idsOf("paaé", eos), idsOf("paaé", eos)}}, rowsOf(d))
	assert.Equal(t, 5, d.Stats().LossTokens, "the first token of a row is never predicted")

	d, err = load(t, "t.jsonl", `{"prompt": "p", "completion": ""}`, Options{})
	require.NoError(t, err, "an empty completion teaches to stop")
	assert.Equal(t, []Row{{idsOf("p", eos), masked(1, eos)}}, rowsOf(d))
}

func TestJSONLMessages(t *testing.T) {
	const file = `{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "yz"},` +
		` {"role": "user", "content": "v"}, {"role": "assistant", "content": "w"}], "tools": [1]}`
	text := idsOf("TTTu:x;a:yz;u:v;a:w;")
	d, err := load(t, "t.jsonl", file, Options{Tokenizer: byteTokenizer{bos: true}})
	require.NoError(t, err)
	want := masked(9, idsOf("yz;")...)
	want = append(want, masked(6, idsOf("w;")...)...)
	assert.Equal(t, []Row{{text, want}}, rowsOf(d), "the template brings its own begin token")

	d, err = load(t, "t.jsonl", file, Options{TrainOn: TrainOnAll})
	require.NoError(t, err)
	assert.Equal(t, []Row{{text, text}}, rowsOf(d))
}

func TestJSONLErrors(t *testing.T) {
	const ok = `{"text": "ab"}` + "\n"
	for _, c := range []struct {
		name string
		file string
		is   error
		text string
	}{
		{"no lines", "", ErrEmpty, "t.jsonl: no rows"},
		{"blank lines", "\n \n", ErrEmpty, "no rows"},
		{"short texts", `{"text": ""}`, ErrEmpty, "all 1 texts are too short"},
		{"not JSON", ok + "{\"text\": \"x\",}\n", ErrFormat, `t.jsonl:2: not valid JSON at byte`},
		{"bare word", "hello\n", ErrFormat, `t.jsonl:1: not valid JSON at byte 1: invalid character 'h'`},
		{"cut off", `{"text": "x`, ErrFormat, "not valid JSON: it ends within the object"},
		{"cut off between", `{"text": "x"`, ErrFormat, "not valid JSON: it ends within the object"},
		{"two objects", `{"text": "x"} {"text": "y"}`, ErrFormat, "found more behind the JSON object at byte 14"},
		{"an array in a line", ok + `[{"text": "x"}]`, ErrFormat, "t.jsonl:2: found an array, expected a JSON object"},
		{"a number", "17", ErrFormat, "found a number, expected a JSON object"},
		{"pairs", `{"anchor": "a", "positive": "b"}`, ErrKeys, "(pairs are learned with task: embedding)"},
		{"not UTF-8", ok + "{\"text\": \"\xff\"}", ErrUTF8, "t.jsonl:2: byte 11 is not UTF-8"},
		{"UTF-16", "\xff\xfe{\x00", ErrUTF8, "t.jsonl:1: the file is UTF-16, expected UTF-8"},
		{"a slip", `{"promt": "x", "completion": "y"}`, ErrKeys, `found ["promt" "completion"], expected "prompt" too as in prompt and completion; map other names with data.columns, such as {prompt: promt}`},
		{"another set's names", `{"ask": "x", "reply": "y"}`, ErrKeys, `expected text, prompt and completion, messages, instruction and output, conversations, question and answer, query and response, input and output or prompt and response; map other names with data.columns, such as {prompt: ask, completion: reply}`},
		{"no completion", `{"prompt": "x", "reply": "y"}`, ErrKeys, `expected "completion" too as in prompt and completion; map other names with data.columns, such as {completion: reply}`},
		{"no keys", `{}`, ErrKeys, "found no key, expected text"},
		{"many keys", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, ErrKeys, `found ["a" "b" "c" "d" "e" "f"] and 1 more keys`},
		{"two kinds", `{"text": "x", "messages": []}`, ErrKeys, `found ["text" "messages"], expected one kind of row: they fit text (text) and messages (messages); for text add data.ignore_columns: [messages]`},
		{"a label", ok + `{"text": "x", "label": 1}`, ErrIgnored, "t.jsonl:2: label: found a number beside text, which would be ignored: labels are learned with task: classification"},
		{"a label of a completion", `{"prompt": "x", "completion": "y", "label": false}`, ErrIgnored, "t.jsonl:1: label: found false beside prompt and completion"},
		{"a preference", `{"prompt": "x", "completion": "y", "rejected": "z"}`, ErrIgnored, "rejected: found text"},
		{"a weight", `{"messages": [{"role": "user", "content": "x"}], "weight": 0.5}`, ErrIgnored, "weight: found a number beside messages"},
		{"a weight of a message", `{"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]}`, ErrFormat, "messages[0]: weight: found 0.5, expected 0 for an answer that is not learned, or 1"},
		{"a weight of a question", `{"messages": [{"role": "user", "content": "x", "weight": 0}]}`, ErrIgnored, `messages[0]: weight: found 0 for the role "user"`},
		{"a message not to train on", `{"messages": [{"role": "assistant", "content": "x", "train": false}]}`, ErrIgnored, "messages[0]: train: found false, which would be ignored: give an answer that"},
		{"no answer that counts", `{"messages": [{"role": "assistant", "content": "x", "weight": 0}]}`, ErrNoTarget, "messages hold no answer of the assistant"},
		{"tools without messages", `{"prompt": "x", "completion": "y", "tools": [{}]}`, ErrIgnored, "tools go with messages"},
		{"a system prompt apart", `{"prompt": "x", "completion": "y", "system": "z"}`, ErrIgnored, `with the role "system"`},
		{"images", `{"text": "x", "images": ["a.png"]}`, ErrIgnored, "images: found an array"},
		{"a key twice", `{"text": "x", "text": "y"}`, ErrKeys, `found "text" twice`},
		{"kinds mixed", ok + ok + `{"prompt": "x", "completion": "y"}`, ErrMixed, "t.jsonl:3: found prompt and completion, expected text as in line 1"},
		{"text is null", `{"text": null}`, ErrFormat, "text: found null, expected text"},
		{"completion is a number", `{"prompt": "x", "completion": 4}`, ErrFormat, "completion: found a number, expected text"},
		{"messages is text", `{"messages": "hi"}`, ErrFormat, "messages: found text, expected an array of objects"},
		{"messages is null", `{"messages": null}`, ErrFormat, "messages: found null, expected an array"},
		{"no messages", `{"messages": []}`, ErrFormat, "messages: found an empty array"},
		{"a message is text", `{"messages": ["hi"]}`, ErrFormat, "messages[0]: found text, expected an object with role and content"},
		{"no role", `{"messages": [{"content": "x"}]}`, ErrKeys, "messages[0]: no role, expected one such as user"},
		{"ShareGPT messages", `{"messages": [{"from": "human", "value": "x"}]}`, ErrKeys, "a list with from and value is called conversations"},
		{"role is a number", `{"messages": [{"role": 1, "content": "x"}]}`, ErrFormat, "messages[0]: role: found a number"},
		{"no content", `{"messages": [{"role": "user"}]}`, ErrKeys, "messages[0]: no content"},
		{"content is a number", `{"messages": [{"role": "user", "content": 1}]}`, ErrFormat, "messages[0]: content: found a number"},
		{"content has a picture", `{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "image": "a.png"}]}]}`, ErrFormat, `messages[1].content[1].type: found "image", expected text`},
		{"tools is text", `{"messages": [{"role": "user", "content": "x"}], "tools": "t"}`, ErrFormat, "tools: found text, expected an array"},
		{"no answer", `{"messages": [{"role": "user", "content": "x"}]}`, ErrNoTarget, "t.jsonl:1: messages hold no answer of the assistant"},
		{"template refuses", `{"messages": [{"role": "robot", "content": "x"}]}`, errRole, "t.jsonl:1: messages: no such role: robot"},
		{"tokenizer refuses", ok + `{"text": "\u0000"}`, nil, "t.jsonl:2: tokenizer: a zero byte"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, "t.jsonl", c.file, Options{})
			require.Error(t, err)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			assert.Contains(t, err.Error(), c.text)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

// TestMetadata: keys that do not affect training are ignored, and so are empty ones that would.
func TestMetadata(t *testing.T) {
	const rows = `{"text": "ab", "id": 7, "source": "web", "score": 0.5, "label": null, "images": [], "tools": null, "weight": ""}` + "\n"
	d, err := load(t, "t.jsonl", rows, Options{})
	require.NoError(t, err)
	assert.Equal(t, 1, d.Len())
	_, err = load(t, "m.jsonl", `{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "weight": 1}]}`, Options{})
	require.NoError(t, err)
}

func TestMissingParts(t *testing.T) {
	path := write(t, "t.jsonl", `{"messages": [{"role": "user", "content": "x"}]}`)
	_, err := Load(t.Context(), []string{path}, Options{Tokenizer: byteTokenizer{}})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "messages need a chat template")

	_, err = Load(t.Context(), []string{path}, Options{})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "t.jsonl:1: messages needs a tokenizer")

	_, err = load(t, "t.jsonl", `{"prompt": "x", "completion": "y"}`, Options{Tokenizer: byteTokenizer{noEOS: true}})
	require.ErrorIs(t, err, ErrOption)
	assert.ErrorContains(t, err, "no end token")

	d, err := load(t, "t.jsonl", `{"text": "xy"}`, Options{Tokenizer: byteTokenizer{noEOS: true}})
	require.NoError(t, err)
	assert.Equal(t, idsOf("xy"), d.Row(0).IDs)

	_, err = load(t, "t.jsonl", `{"text": "x"}`, Options{Tokenizer: byteTokenizer{noEOS: true}})
	require.ErrorIs(t, err, ErrEmpty, "one token predicts nothing")
}

// FuzzParseRecord: every line gives a record or a one-line error.
func FuzzParseRecord(f *testing.F) {
	for _, line := range []string{
		`{"text": "ab"}`, `{"prompt": "x", "completion": ""}`, `{"text": 1, "a": [{}]}`, "[1]", "{\"\n\":\xff}",
		`{"messages": [{"role": "user", "content": [{"type": "text"}]}], "tools": null}`,
		`{"messages": [{"role": "assistant", "content": null, "tool_calls": []}]}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := encoder{}.parse(line, false)
		if err == nil {
			require.NotEmpty(t, r.kind)
			return
		}
		if e, ok := err.(*Error); !ok || e.Kind == nil || strings.ContainsAny(e.Problem, "\n\r") {
			t.Fatalf("not a one-line *Error: %#v", err)
		}
	})
}

// TestWeights: answers of weight 0 carry no loss, whatever else does.
func TestWeights(t *testing.T) {
	const row = `{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "weight": 0}, {"role": "user", "content": "z"}, {"role": "assistant", "content": "v", "weight": 1}, {"role": "assistant", "content": "w", "weight": 0}]}`
	for on, want := range map[TrainOn][]int32{
		TrainOnAnswer: append(masked(14), append(idsOf("v;"), masked(4)...)...),
		TrainOnAll:    append(idsOf("u:x;a:"), append(masked(2), append(idsOf("u:z;a:v;a:"), masked(2)...)...)...),
	} {
		d, err := load(t, "t.jsonl", row, Options{TrainOn: on})
		require.NoError(t, err)
		assert.Equal(t, Row{idsOf("u:x;a:y;u:z;a:v;a:w;"), want}, d.Row(0), on)
	}
}
