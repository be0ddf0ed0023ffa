package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
)

// TestSpecialTokens: those that the folder names, by the names of chat templates.
func TestSpecialTokens(t *testing.T) {
	const model = "../testdata/lm/llama/model"
	tok, err := tokenizer.Load(model)
	require.NoError(t, err)
	raw, err := os.ReadFile(model + "/tokenizer.json")
	require.NoError(t, err)
	dir, named := t.TempDir(), map[string]string{}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), raw, 0o666))
	for i, name := range []string{"bos_token", "eos_token", "pad_token", "unk_token"} {
		named[name], _ = tok.Token(int32(10 + i))
		config, err := json.Marshal(named)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), config, 0o666))
		some, err := tokenizer.Load(dir)
		require.NoError(t, err)
		assert.Equal(t, named, some.SpecialTokens())
	}
}

// TestKeptTokens: special tokens are left out but for those to keep.
func TestKeptTokens(t *testing.T) {
	tok, err := tokenizer.Load("../testdata/tokenizers/llama3")
	require.NoError(t, err)
	ids, err := tok.Encode("<|im_start|>a<|im_end|>b<|im_start|>", false)
	require.NoError(t, err)
	for _, c := range []struct {
		skip bool
		keep []string
		want string
	}{{true, nil, "ab"}, {true, []string{"<|im_start|>"}, "<|im_start|>ab<|im_start|>"}, {true, []string{"x", "<|im_end|>"}, "a<|im_end|>b"}, {false, nil, "<|im_start|>a<|im_end|>b<|im_start|>"}} {
		s, text := tok.NewStream(c.skip, c.keep...), ""
		for _, id := range ids {
			part, err := s.Push(id)
			require.NoError(t, err)
			text += part
		}
		assert.Equal(t, c.want, text+s.Flush())
	}
}
