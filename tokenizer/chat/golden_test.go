package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
)

const (
	fixtures = "../../testdata/tokenizers"
	goldens  = fixtures + "/chat"
)

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}

// The moment that the goldens were made in.
var then = time.Date(2024, 7, 6, 9, 5, 3, 0, time.UTC)

// The fixtures come from transformers: text and ids.
func TestFixtures(t *testing.T) {
	for _, name := range []string{"llama3", "qwen2"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(fixtures, name)
			tmpl, err := Load(dir)
			require.NoError(t, err)
			tok, err := tokenizer.Load(dir)
			require.NoError(t, err)
			var rows []struct {
				Messages            []Message
				AddGenerationPrompt bool `json:"add_generation_prompt"`
				Rendered            string
				IDs                 []int32
			}
			readJSON(t, filepath.Join(dir, "chat_golden.json"), &rows)
			require.NotEmpty(t, rows)
			for _, row := range rows {
				text, err := tmpl.Render(row.Messages, Options{AddGenerationPrompt: row.AddGenerationPrompt})
				require.NoError(t, err)
				assert.Equal(t, row.Rendered, text)
				ids, err := tok.Encode(text, false)
				require.NoError(t, err)
				assert.Equal(t, row.IDs, ids)
			}
		})
	}
}

type goldenOptions struct {
	AddGenerationPrompt bool              `json:"add_generation_prompt"`
	Tools               []json.RawMessage `json:"tools"`
	Extra               map[string]json.RawMessage
}

func (o *goldenOptions) UnmarshalJSON(b []byte) error {
	type plain goldenOptions
	if err := json.Unmarshal(b, (*plain)(o)); err != nil {
		return err
	}
	return json.Unmarshal(b, &o.Extra)
}

func (o goldenOptions) options() Options {
	opts := Options{AddGenerationPrompt: o.AddGenerationPrompt, Extra: map[string]any{}, Now: then}
	for _, tool := range o.Tools {
		opts.Tools = append(opts.Tools, tool)
	}
	for key, v := range o.Extra {
		if key != "tools" && key != "add_generation_prompt" {
			opts.Extra[key] = v
		}
	}
	return opts
}

type goldenFile struct {
	Tokens        map[string]string
	Conversations map[string][]Message
	Options       []goldenOptions
	Answers       [][2]json.RawMessage // conversation, texts
	Rows          [][4]json.RawMessage // template, conversation, options, text or null
}

// TestTemplates compares with transformers on templates in the manner of the model families;
// scripts/make_chat_goldens.py made the rows.
func TestTemplates(t *testing.T) {
	var f goldenFile
	readJSON(t, goldens+"/golden.json", &f)
	require.Greater(t, len(f.Rows), 300)
	templates := map[string]*Template{}
	for _, row := range f.Rows {
		var name, conversation string
		var option int
		var want *string
		for i, v := range []any{&name, &conversation, &option, &want} {
			require.NoError(t, json.Unmarshal(row[i], v))
		}
		if templates[name] == nil {
			source, err := os.ReadFile(filepath.Join(goldens, name+".jinja"))
			require.NoError(t, err)
			templates[name], err = New(string(source), f.Tokens)
			require.NoError(t, err, name)
		}
		got, err := templates[name].Render(f.Conversations[conversation], f.Options[option].options())
		if conversation == "parts" && templates[name].programs["default"].content == contentText {
			// transformers shows Python's text of the list, nothing of it, or fails.
			joined := []Message{{Role: "user", Content: "Look: \nx"}, {Role: "assistant", Content: "A cat."}}
			text, err := templates[name].Render(joined, f.Options[option].options())
			require.NoError(t, err)
			want = &text
		}
		if want == nil {
			assert.ErrorIs(t, err, ErrRender, "%s, %s, options %d", name, conversation, option)
			continue
		}
		if assert.NoError(t, err, "%s, %s, options %d", name, conversation, option) {
			assert.Equal(t, *want, got, "%s, %s, options %d", name, conversation, option)
		}
	}
}

// TestSnippets compares small pieces of template; null means that Jinja has an error too.
func TestSnippets(t *testing.T) {
	var f struct {
		Variables map[string]json.RawMessage
		Rows      [][2]*string
	}
	readJSON(t, goldens+"/snippets.json", &f)
	require.Greater(t, len(f.Rows), 600)
	opts := Options{Extra: map[string]any{}, Now: then}
	for key, v := range f.Variables {
		opts.Extra[key] = v
	}
	for _, row := range f.Rows {
		source, want := *row[0], row[1]
		tmpl, err := New(source, nil)
		got := ""
		if err == nil {
			got, err = tmpl.Render(nil, opts)
		}
		if want == nil {
			assert.Error(t, err, "%q gives %q", source, got)
			continue
		}
		if assert.NoError(t, err, "%q", source) {
			assert.Equal(t, *want, got, "%q", source)
		}
	}
}
