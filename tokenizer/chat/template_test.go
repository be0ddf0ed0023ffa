package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func render(t *testing.T, source string, opts Options, messages ...Message) string {
	t.Helper()
	tmpl, err := New(source, nil)
	require.NoError(t, err)
	text, err := tmpl.Render(messages, opts)
	require.NoError(t, err)
	return text
}

func TestMessageKeepsItsFields(t *testing.T) {
	const source = `{"z":1,"role":"assistant","tool_calls":[{"b":1.0,"a":{"y":2,"x":[true,null]}}],"content":null,"name":"<é>"}`
	var m Message
	require.NoError(t, json.Unmarshal([]byte(source), &m))
	assert.Equal(t, "assistant", m.Role)
	assert.Empty(t, m.Content)
	const all = "{{ messages[0] | tojson }}"
	want := `{"z": 1, "role": "assistant", "tool_calls": [{"b": 1.0, "a": {"y": 2, "x": [true, null]}}], "name": "<é>"}`
	assert.Equal(t, want, render(t, all, Options{}, m))

	m.Content, m.Role = "now", "user"
	m.Fields = map[string]any{"y": 2, "w": json.RawMessage(`{"d":1,"c":2}`), "n": nil}
	want = `{"z": 1, "role": "user", "tool_calls": [{"b": 1.0, "a": {"y": 2, "x": [true, null]}}], "content": "now", "name": "<é>", "w": {"d": 1, "c": 2}, "y": 2}`
	assert.Equal(t, want, render(t, all, Options{}, m))

	data, err := json.Marshal(m)
	require.NoError(t, err)
	var again Message
	require.NoError(t, json.Unmarshal(data, &again))
	assert.Equal(t, want, render(t, all, Options{}, again))

	assert.Equal(t, `{"role": "user", "content": ""}`, render(t, all, Options{}, Message{Role: "user"}))
	parts := Message{Role: "user", Fields: map[string]any{"content": []any{map[string]string{"text": "a"}, "b"}}}
	assert.Equal(t, `{"role": "user", "content": "a\nb"}`, render(t, all, Options{}, parts))
	data, err = json.Marshal(parts)
	require.NoError(t, err)
	assert.Equal(t, `{"role":"user","content":[{"text":"a"},"b"]}`, string(data))

	for _, bad := range []string{`[]`, `{"content":"x"}`, `{"role":1}`, `{"role":"user","n":123456789012345678901234567890}`} {
		assert.Error(t, json.Unmarshal([]byte(bad), &m), bad)
	}
}

func TestVariables(t *testing.T) {
	tmpl, err := New("{{ bos_token }}|{{ x.b }}{{ x.a }}|{{ tools }}|{{ documents }}|{{ add_generation_prompt }}|{{ y is defined }}", map[string]string{"bos_token": "<s>"})
	require.NoError(t, err)
	type pair struct {
		B int `json:"b"`
		A int `json:"a"`
	}
	text, err := tmpl.Render(nil, Options{Extra: map[string]any{"x": pair{1, 2}}, AddGenerationPrompt: true})
	require.NoError(t, err)
	assert.Equal(t, "<s>|12|None|None|True|False", text)
	text, err = tmpl.Render(nil, Options{Extra: map[string]any{"x": map[string]int{}, "bos_token": "B", "y": nil}, Tools: []any{}})
	require.NoError(t, err)
	assert.Equal(t, "B||[]|None|False|True", text)
	_, err = tmpl.Render(nil, Options{Extra: map[string]any{"x": func() {}}})
	assert.ErrorIs(t, err, ErrRender)
	assert.ErrorContains(t, err, `"x"`)
}

func TestErrorsNameTheCulprit(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ x | nope }}": `line 2: unknown filter "nope"; known are abs, attr`,
		"{{ x | round }}":   `line 1: unknown filter "round"; known are abs, attr`,
		"{{ x is nope }}":   `line 1: unknown test "nope"; known are !=`,
		"{% include 'x' %}": `unknown or misplaced tag "include"; known are break`,
		"\n\n{% if x %}":    `line 3: the template ends where "endif" was expected`,
		"{{ 'a }}":          "line 1: string without end",
		"{{ " + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + " }}": "nested deeper than 200",
		strings.Repeat("{% if a %}", 300):                                         "nested deeper than 200",
	} {
		_, err := New(source, nil)
		if assert.ErrorIs(t, err, ErrTemplate, source) {
			assert.ErrorContains(t, err, want)
		}
	}
	for source, want := range map[string]string{
		"a\n{{ x.y }}":                   "'x' is undefined (template line 2)",
		"{{ messages[0].role + 1 }}":     "+ does not go with str and int (template line 1)",
		"{{ raise_exception('no: 5') }}": "no: 5",
		"{{ 9223372036854775807 + 1 }}":  "too large",
		"{{ 'x' * 999999999 * 9 }}":      "bytes of text and values",
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "beyond the limit of a rendering",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                                "nested deeper than",
		"{{ range(1000000) }}":     "range of more than",
		"{{ messages.append(1) }}": "which changes a list",
		"{{ strftime_now('%Q') }}": "%Q",
		"{{ 'x'.zfill(3) }}":       "'str' attribute 'zfill' is undefined",
		"{{ '{:.2f}'.format(1) }}": "the field {:.2f} of a format; known are {}, {0} and {name}, with !s or !r",
	} {
		tmpl, err := New(source, nil)
		require.NoError(t, err, source)
		_, err = tmpl.Render([]Message{{Role: "user"}}, Options{})
		if assert.ErrorIs(t, err, ErrRender, source) {
			assert.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "\n")
		}
	}
	tmpl, err := New("{{ raise_exception('x') }}", nil)
	require.NoError(t, err)
	_, err = tmpl.Render(nil, Options{})
	assert.ErrorIs(t, err, ErrRefused)
}

func TestLoad(t *testing.T) {
	write := func(t *testing.T, dir, name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	text := func(t *testing.T, dir string, opts Options) string {
		t.Helper()
		tmpl, err := Load(dir)
		require.NoError(t, err)
		s, err := tmpl.Render(nil, opts)
		require.NoError(t, err)
		return s
	}
	dir := t.TempDir()
	_, err := Load(dir)
	require.ErrorIs(t, err, ErrNoTemplate)
	assert.ErrorContains(t, err, dir)

	write(t, dir, "chat_template.json", `{"chat_template":"from json"}`)
	assert.Equal(t, "from json", text(t, dir, Options{}))
	write(t, dir, "tokenizer_config.json", `{"chat_template":"config {{ bos_token }}{{ eos_token }}","bos_token":"<s>","eos_token":{"content":"</s>"},"unk_token":null}`)
	assert.Equal(t, "config <s></s>", text(t, dir, Options{}))
	write(t, dir, "special_tokens_map.json", `{"bos_token":"<b>"}`)
	assert.Equal(t, "config <b></s>", text(t, dir, Options{}), "without added_tokens_decoder")
	write(t, dir, "tokenizer_config.json", `{"chat_template":"{{ bos_token }}","bos_token":"<s>","added_tokens_decoder":{}}`)
	assert.Equal(t, "<s>", text(t, dir, Options{}))
	write(t, dir, "tokenizer_config.json", `{"chat_template":[{"name":"default","template":"plain"},{"name":"tool_use","template":"tools"},{"name":"rag","template":"rag"}]}`)
	assert.Equal(t, "plain", text(t, dir, Options{}))
	assert.Equal(t, "tools", text(t, dir, Options{Tools: []any{map[string]any{}}}))
	assert.Equal(t, "rag", text(t, dir, Options{Name: "rag"}))
	tmpl, err := Load(dir)
	require.NoError(t, err)
	_, err = tmpl.Render(nil, Options{Name: "other"})
	require.ErrorIs(t, err, ErrNoTemplate)
	assert.ErrorContains(t, err, "default, rag, tool_use")
	write(t, dir, "chat_template.jinja", "file\n")
	assert.Equal(t, "file", text(t, dir, Options{}))
	write(t, dir, "additional_chat_templates/tool_use.jinja", "more")
	assert.Equal(t, "more", text(t, dir, Options{Tools: []any{1}}))
	write(t, dir, "chat_template.jinja", "{{")
	_, err = Load(dir)
	require.ErrorIs(t, err, ErrTemplate)
	write(t, dir, "tokenizer_config.json", `{`)
	_, err = Load(dir)
	assert.ErrorContains(t, err, "tokenizer_config.json")
}

func TestConcurrentRendering(t *testing.T) {
	tmpl, f := loadGolden(t, "macros")
	want, err := tmpl.Render(f.Conversations["tool"], f.Options[2].options())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				got, err := tmpl.Render(f.Conversations["tool"], f.Options[2].options())
				assert.NoError(t, err)
				assert.Equal(t, want, got)
			}
		})
	}
	wg.Wait()
}
