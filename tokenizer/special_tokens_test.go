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
