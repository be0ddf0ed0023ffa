package merge

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChangeJSON(t *testing.T) {
	out, err := changeJSON([]byte(`{"b": 1.0, "dtype": "x", "a": {"z": [1, 2]}}`), map[string]string{"dtype": `"bfloat16"`, "tie_word_embeddings": "false"})
	require.NoError(t, err)
	var compact map[string]any
	require.NoError(t, json.Unmarshal(out, &compact))
	assert.Regexp(t, `(?s)"b": 1\.0,.*"dtype": "bfloat16",.*"a": .*"tie_word_embeddings": false\s*}\n$`, string(out))
	_, err = changeJSON([]byte(`[1]`), map[string]string{"dtype": "1"})
	assert.Error(t, err)
}

// FuzzChangeJSON: any object comes back with the change and all else as it was.
func FuzzChangeJSON(f *testing.F) {
	f.Add([]byte(`{"a": 1, "dtype": "x", "b": {"c": [1.50, null]}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"a": 1} trailing`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := changeJSON(raw, map[string]string{"dtype": `"bfloat16"`})
		var want, got map[string]any
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &got))
		want["dtype"] = "bfloat16"
		require.Equal(t, want, got)
	})
}
