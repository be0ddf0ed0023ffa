package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
)

var _ Tokenizer = (*tokenizer.Tokenizer)(nil)

// TestGoldenText: rows hold the ids that Hugging Face's tokenizers gives, and
// the end token.
func TestGoldenText(t *testing.T) {
	for _, dir := range []string{"../../testdata/tokenizers/llama3", "../../testdata/tokenizers/qwen2"} {
		tok, err := tokenizer.Load(dir)
		require.NoError(t, err)
		var golden []struct {
			Text string
			IDs  []int32
		}
		readJSON(t, filepath.Join(dir, "golden.json"), &golden)
		end, ok := tok.EOS()
		require.True(t, ok)

		var lines []byte
		var want [][]int32
		for _, g := range golden {
			line, err := json.Marshal(map[string]string{"text": g.Text})
			require.NoError(t, err)
			lines = append(append(lines, line...), '\n')
			ids := g.IDs
			if len(ids) > 0 && ids[len(ids)-1] != end {
				ids = append(ids, end)
			}
			if len(ids) > 1 {
				want = append(want, ids)
			}
		}
		d, err := load(t, "t.jsonl", string(lines), Options{Tokenizer: tok, VocabSize: tok.VocabSize()})
		require.NoError(t, err)
		require.Equal(t, len(want), d.Len())
		for r, ids := range want {
			assert.Equal(t, ids, d.Row(r).IDs)
		}
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, v))
}
