package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// split saves a tokenizer as older programs do: vocab.json and merges.txt, and the class in
// the configuration.
func split(t *testing.T, from, class string, config map[string]any) string {
	var f struct {
		AddedTokens []addedToken `json:"added_tokens"`
		Model       struct {
			Vocab  map[string]int32
			Merges []json.RawMessage
		}
	}
	readJSON(t, filepath.Join(from, tokenizerFile), &f)
	dir := t.TempDir()
	write := func(name string, v any) {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), raw, 0o666))
	}
	merges := "#version: 0.2\n"
	for _, m := range f.Model.Merges {
		var pair []string
		var joined string
		if json.Unmarshal(m, &pair) != nil {
			require.NoError(t, json.Unmarshal(m, &joined))
			pair = []string{joined}
		}
		merges += strings.Join(pair, " ") + "\n"
	}
	write(vocabularyFile, f.Model.Vocab)
	require.NoError(t, os.WriteFile(filepath.Join(dir, mergesFile), []byte(merges), 0o666))
	all := map[string]any{}
	readJSON(t, filepath.Join(from, configFile), &all)
	all["tokenizer_class"] = class
	decoder := map[string]addedToken{}
	for _, x := range f.AddedTokens {
		raw, err := json.Marshal(x.ID)
		require.NoError(t, err)
		decoder[string(raw)] = x
	}
	all["added_tokens_decoder"] = decoder
	for key, v := range config {
		if all[key] = v; v == nil {
			delete(all, key)
		}
	}
	write(configFile, all)
	return dir
}

// Tokenizers of which vocab.json and merges.txt are saved are those of their tokenizer.json.
func TestVocabularies(t *testing.T) {
	clip, qwen := "../testdata/dit/tokenizer-clip", filepath.Join(fixtures, "qwen2")
	for _, c := range []struct {
		from, class string
		config      map[string]any
	}{
		{clip, "CLIPTokenizer", nil},
		{clip, "CLIPTokenizerFast", map[string]any{"added_tokens_decoder": nil}},
		{clip, "CLIPTokenizer", map[string]any{"bos_token": nil, "added_tokens_decoder": nil}},
		{qwen, "Qwen2Tokenizer", nil},
		{qwen, "Qwen2TokenizerFast", nil},
	} {
		var rows []struct {
			Text string
			IDs  []int32
		}
		readJSON(t, filepath.Join(c.from, "golden.json"), &rows)
		require.NotEmpty(t, rows)
		whole, tok := load(t, c.from), load(t, split(t, c.from, c.class, c.config))
		for _, row := range rows {
			want, err := whole.Encode(row.Text, true)
			require.NoError(t, err)
			got, err := tok.Encode(row.Text, true)
			require.NoError(t, err)
			assert.Equal(t, want, got, row.Text)
			assert.Equal(t, row.IDs[:min(len(row.IDs), len(got))], got[:min(len(row.IDs), len(got))], row.Text)
			text, err := tok.Decode(got, false)
			require.NoError(t, err)
			wanted, err := whole.Decode(want, false)
			require.NoError(t, err)
			assert.Equal(t, wanted, text)
		}
		a, ok := whole.PAD()
		b, same := tok.PAD()
		assert.Equal(t, ok, same)
		assert.Equal(t, a, b)
	}
}

func TestVocabularyErrors(t *testing.T) {
	from := "../testdata/dit/tokenizer-clip"
	dir := split(t, from, "GPT2Tokenizer", nil)
	_, err := Load(dir)
	require.ErrorIs(t, err, ErrUnsupported)
	assert.ErrorContains(t, err, dir+": unsupported tokenizer feature: without tokenizer.json a tokenizer of class \"GPT2Tokenizer\"; supported are CLIPTokenizer, Qwen2Tokenizer")
	dir = split(t, from, "CLIPTokenizer", map[string]any{"eos_token": "<end>"})
	_, err = Load(dir)
	require.ErrorIs(t, err, ErrFormat)
	assert.ErrorContains(t, err, `vocab.json: it has no "<end>"`)
	dir = split(t, from, "CLIPTokenizer", nil)
	require.NoError(t, os.WriteFile(filepath.Join(dir, vocabularyFile), []byte("[]"), 0o666))
	_, err = Load(dir)
	require.ErrorIs(t, err, ErrFormat)
	require.NoError(t, os.Remove(filepath.Join(dir, mergesFile)))
	_, err = Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "tokenizer.json")
}
