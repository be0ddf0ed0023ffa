package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestQwenVLWindows: where config.json does not say from which layer on windows slide, it is
// from one that small models do not have.
func TestQwenVLWindows(t *testing.T) {
	for more, want := range map[string]int{"": 0, `, "max_window_layers": 1`: 16} {
		c, err := ParseConfig([]byte(`{"architectures": ["Qwen2_5_VLTextModel"], "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 40,
			"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 99, "use_sliding_window": true, "sliding_window": 16` + more + `}`))
		require.NoError(t, err)
		windows := c.Family.(*qwen2).Windows
		assert.Equal(t, []int{0, want}, []int{windows[0], windows[39]})
	}
}
