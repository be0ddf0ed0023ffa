package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConfigs compares with transformers on what tokenizer_config.json says;
// scripts/make_tokenizer_config_goldens.py made the rows.
func TestConfigs(t *testing.T) {
	dir := filepath.Join(fixtures, "families")
	var cases []struct {
		Family string
		Config json.RawMessage
		Size   int
		Named  [4]*int32
		Rows   [][5]json.RawMessage
	}
	readJSON(t, filepath.Join(dir, "configs.json"), &cases)
	require.NotEmpty(t, cases)
	for _, c := range cases {
		name := c.Family + " " + string(c.Config)
		data, err := os.ReadFile(filepath.Join(dir, c.Family+".json"))
		require.NoError(t, err)
		tok, err := Parse(data, c.Config)
		require.NoError(t, err, name)
		assert.Equal(t, c.Size, tok.VocabSize(), name)
		for i, get := range []func() (int32, bool){tok.BOS, tok.EOS, tok.PAD, tok.UNK} {
			id, ok := get()
			if assert.Equal(t, c.Named[i] != nil, ok, "%s: named token %d", name, i) && ok {
				assert.Equal(t, *c.Named[i], id, "%s: named token %d", name, i)
			}
		}
		for _, row := range c.Rows {
			var text, decoded, skipped string
			var ids, plain []int32
			for i, v := range []any{&text, &ids, &plain, &decoded, &skipped} {
				require.NoError(t, json.Unmarshal(row[i], v))
			}
			got, err := tok.Encode(text, true)
			require.NoError(t, err)
			assert.Equal(t, ids, got, "%s: %q", name, text)
			got, err = tok.Encode(text, false)
			require.NoError(t, err)
			assert.Equal(t, plain, got, "%s: %q without special tokens", name, text)
			for skip, want := range map[bool]string{false: decoded, true: skipped} {
				s, err := tok.Decode(ids, skip)
				require.NoError(t, err)
				assert.Equal(t, want, s, "%s: %q", name, text)
				assert.Equal(t, want, streamed(t, tok, ids, skip), "%s: streaming %q", name, text)
			}
		}
	}
}
