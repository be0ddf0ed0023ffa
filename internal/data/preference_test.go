package data

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loadPreferences(t testing.TB, o Options, rows string) (*Dataset, error) {
	o.Rows = PreferenceRows
	return load(t, "t.jsonl", rows, o)
}

// TestPreferences: the formats of TRL and OpenAI give the same two texts, with loss on the answers.
func TestPreferences(t *testing.T) {
	talk := []Row{
		{idsOf("u:x;a:y;u:z;a:good;"), append(masked(14), idsOf("good;")...)},
		{idsOf("u:x;a:y;u:z;a:bad;"), append(masked(14), idsOf("bad;")...)},
	}
	tools := []Row{{IDs: idsOf("TT" + "u:x;a:1;"), Labels: append(masked(8), idsOf("1;")...)}, {IDs: idsOf("TT" + "u:x;a:2;"), Labels: append(masked(8), idsOf("2;")...)}}
	const prompt = `{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}`
	const good, bad = `{"role": "assistant", "content": "good"}`, `{"role": "assistant", "content": "bad"}`
	for name, c := range map[string]struct {
		line string
		want []Row
	}{
		"text": {`{"prompt": "ab", "chosen": "cd", "rejected": "e", "id": 3, "score_chosen": 9, "label": null}`,
			[]Row{{idsOf("abcd", eos), append(masked(2), idsOf("cd", eos)...)}, {idsOf("abe", eos), append(masked(2), idsOf("e", eos)...)}}},
		"messages": {`{"prompt": [` + prompt + `], "chosen": [` + good + `], "rejected": [` + bad + `], "tools": null}`, talk},
		"implicit": {`{"chosen": [` + prompt + `, ` + good + `], "rejected": [` + strings.ReplaceAll(prompt, ": ", ":") + `, ` + bad + `]}`, talk},
		"repeated": {`{"prompt": "z", "chosen": [` + prompt + `, ` + good + `], "rejected": [` + prompt + `, ` + bad + `], "messages": []}`, talk},
		"OpenAI":   {`{"input": {"messages": [` + prompt + `], "parallel_tool_calls": true}, "preferred_output": [` + good + `], "non_preferred_output": [` + bad + `]}`, talk},
		"tools":    {`{"input": {"messages": [{"role": "user", "content": "x"}], "tools": "T"}, "preferred_output": [{"role": "assistant", "content": "1"}], "non_preferred_output": [{"role": "assistant", "content": "2"}]}`, nil},
		"more tools": {`{"input": {"messages": [{"role": "user", "content": "x"}], "tools": []}, "preferred_output": [{"role": "assistant", "content": "1"}], "non_preferred_output": [{"role": "assistant", "content": "2"}]}`,
			tools},
		"a silent answer": {`{"prompt": [{"role": "user", "content": "x"}], "chosen": [{"role": "assistant", "content": "1", "weight": 0}, {"role": "assistant", "content": "2"}], "rejected": [{"role": "assistant", "content": "3"}]}`,
			[]Row{{idsOf("u:x;a:1;a:2;"), append(masked(10), idsOf("2;")...)}, {idsOf("u:x;a:3;"), append(masked(6), idsOf("3;")...)}}},
	} {
		d, err := loadPreferences(t, Options{}, c.line)
		if c.want == nil {
			require.ErrorContains(t, err, "tools: found text, expected an array", name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, 1, d.Len())
		assert.Equal(t, 2, d.Texts())
		row := Row{append(c.want[0].IDs, c.want[1].IDs...), append(c.want[0].Labels, c.want[1].Labels...)}
		assert.Equal(t, row, d.Row(0), name)
		assert.Equal(t, Stats{Files: 1, Rows: 1, Tokens: len(row.IDs), LossTokens: 1, Longest: max(len(c.want[0].IDs), len(c.want[1].IDs))}, d.Stats(), name)
	}
}

// TestPreferenceBatches: both answers of a row are in one micro-batch, each as a document. Its labels are the next
// tokens of the answer, and a row counts once.
func TestPreferenceBatches(t *testing.T) {
	d, err := loadPreferences(t, Options{}, `{"prompt": "a", "chosen": "bc", "rejected": "d"}
{"prompt": "e", "chosen": "", "rejected": "f"}
{"prompt": "g", "chosen": "h", "rejected": "i"}
`)
	require.NoError(t, err)
	require.NoError(t, d.SetNumbers("n", []float32{1, 2, 3, 4, 5, 6}))
	require.ErrorIs(t, d.SetNumbers("n", make([]float32, 3)), ErrOption)
	l, err := NewLoader(d, LoaderConfig{BatchSize: 2})
	require.NoError(t, err)
	assert.Equal(t, 2, l.StepsPerEpoch())
	assert.Equal(t, 4, l.MaxDocuments())
	b, err := l.Batch(0, 0)
	require.NoError(t, err)
	assert.Equal(t, []int32{0, 4, 7, 9, 12}, b.Starts)
	assert.Equal(t, []int32{'b', 'c', eos, Ignore, 'd', eos, Ignore, eos, Ignore, 'f', eos, Ignore}, b.Labels())
	assert.Equal(t, 2, b.LossTokens)
	n, _ := b.Array("n")
	assert.Len(t, n, 16)
	require.NoError(t, l.Fill(b, 1, 0))
	assert.Equal(t, []float32{5, 6}, b.named("n").Floats)

	other, err := loadPreferences(t, Options{}, `{"prompt": "ab", "chosen": "c", "rejected": "d"}`+"\n")
	require.NoError(t, err)
	same, err := loadPreferences(t, Options{}, `{"prompt": "a", "chosen": "bc", "rejected": "bd"}`+"\n")
	require.NoError(t, err)
	assert.NotEqual(t, other.Digest(), same.Digest())
}

func TestLongPreferences(t *testing.T) {
	const rows = `{"prompt": "abc", "chosen": "d", "rejected": "efghi"}` + "\n" + `{"prompt": "a", "chosen": "b", "rejected": "c"}` + "\n"
	d, err := loadPreferences(t, Options{MaxLength: 6, OnTooLong: Drop}, rows)
	require.NoError(t, err)
	assert.Equal(t, 1, d.Len())
	assert.Equal(t, 1, d.Stats().Dropped)
	d, err = loadPreferences(t, Options{MaxLength: 6}, rows)
	require.NoError(t, err)
	assert.Equal(t, append(idsOf("abcd", eos), idsOf("abcefg")...), d.Row(0).IDs)
	assert.Equal(t, 1, d.Stats().Truncated)
	_, err = loadPreferences(t, Options{MaxLength: 6, OnTooLong: RefuseLong}, rows)
	require.ErrorIs(t, err, ErrTooLong)
	assert.ErrorContains(t, err, "t.jsonl:1: rejected: 9 tokens")
	_, err = loadPreferences(t, Options{MaxLength: 3}, rows)
	require.ErrorIs(t, err, ErrNoTarget)
	assert.ErrorContains(t, err, "t.jsonl:1: chosen: 5 tokens, cut to max_length 3")
}

func TestPreferenceErrors(t *testing.T) {
	const user, answer = `{"role": "user", "content": "x"}`, `{"role": "assistant", "content": "y"}`
	for _, c := range []struct {
		name, line string
		is         error
		text       string
	}{
		{"language", `{"prompt": "a", "completion": "b"}`, ErrKeys, `found ["prompt" "completion"], expected prompt, chosen and rejected, or`},
		{"one answer", `{"prompt": "a", "chosen": "b"}`, ErrKeys, "expected prompt, chosen and rejected"},
		{"another name", `{"prompt": "a", "chosen": "b", "dispreferred": "c"}`, ErrKeys, `("dispreferred" is called "rejected" here)`},
		{"a slip", `{"prompt": "a", "choosen": "b", "rejected": "c"}`, ErrKeys, `did you mean "chosen"?`},
		{"no prompt", `{"chosen": "b", "rejected": "c"}`, ErrKeys, "expected prompt too"},
		{"no prompt of messages", `{"chosen": [` + answer + `], "rejected": [` + answer + `]}`, ErrKeys, "expected a prompt that both begin with"},
		{"a text and messages", `{"prompt": "a", "chosen": "b", "rejected": [` + answer + `]}`, ErrFormat, "rejected: found an array, expected text"},
		{"messages and a text", `{"prompt": [` + user + `], "chosen": [` + answer + `], "rejected": "b"}`, ErrFormat, "rejected: found text, expected an array of objects"},
		{"no messages", `{"prompt": [` + user + `], "chosen": [], "rejected": [` + answer + `]}`, ErrFormat, "chosen: found an empty array"},
		{"no role", `{"prompt": [` + user + `], "chosen": [{"content": "y"}], "rejected": [` + answer + `]}`, ErrKeys, "chosen[0]: no role"},
		{"no answer", `{"prompt": [` + user + `], "chosen": [` + answer + `], "rejected": [` + user + `]}`, ErrNoTarget, "t.jsonl:1: rejected: messages hold no answer of the assistant"},
		{"half of OpenAI's", `{"input": {"messages": [` + user + `]}, "preferred_output": [` + answer + `]}`, ErrKeys, `expected "non_preferred_output" too`},
		{"OpenAI's without messages", `{"input": {}, "preferred_output": [` + answer + `], "non_preferred_output": [` + answer + `]}`, ErrKeys, "input: no messages"},
		{"OpenAI's with text", `{"input": "x", "preferred_output": [` + answer + `], "non_preferred_output": [` + answer + `]}`, ErrFormat, "input: found text, expected an object with messages"},
		{"a label", `{"prompt": "a", "chosen": "b", "rejected": "c", "label": true}`, ErrIgnored, "label: found true, which would be ignored"},
		{"tools of text", `{"prompt": "a", "chosen": "b", "rejected": "c", "tools": [{}]}`, ErrIgnored, "tools: found an array"},
		{"mixed", `{"prompt": "a", "chosen": "b", "rejected": "c"}` + "\n" + `{"prompt": [` + user + `], "chosen": [` + answer + `], "rejected": [` + answer + `]}`, ErrMixed, "t.jsonl:2: found chosen and rejected messages, expected prompt, chosen and rejected as in line 1"},
	} {
		_, err := loadPreferences(t, Options{}, c.line)
		require.ErrorIs(t, err, c.is, c.name)
		assert.ErrorContains(t, err, c.text, c.name)
		assert.NotContains(t, err.Error(), "\n")
	}
	_, err := load(t, "t.jsonl", `{"chosen": [], "rejected": []}`, Options{})
	assert.ErrorContains(t, err, "(preferences are learned with task: preference)")
	_, err = load(t, "t.txt", "ab", Options{Rows: PreferenceRows})
	assert.ErrorContains(t, err, "expected rows (JSON, CSV or Parquet)")
}

// FuzzPreference: no line makes the reader panic, and every accepted line has two texts with an answer each.
func FuzzPreference(f *testing.F) {
	f.Add([]byte(`{"prompt": "ab", "chosen": "cd", "rejected": "e"}`))
	f.Add([]byte(`{"chosen": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "rejected": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "z", "weight": 0}]}`))
	f.Add([]byte(`{"input": {"messages": [{"role": "user", "content": "x"}], "tools": [{}]}, "preferred_output": [{"role": "assistant", "content": "y"}], "non_preferred_output": [{"role": "assistant", "content": "z"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e := encoder{Options{Rows: PreferenceRows, Tokenizer: byteTokenizer{}, Template: chatTemplate{}}}
		r, err := e.parse(line, false)
		if err != nil {
			return
		}
		s, err := r.sample(e)
		if err != nil {
			return
		}
		require.Len(t, s.texts, 2)
		for i, spans := range s.answers {
			require.Positive(t, sample{ids: s.texts[i], loss: spans}.targets())
		}
	})
}
