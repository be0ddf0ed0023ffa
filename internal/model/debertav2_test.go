package model

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Distances have the rows that make_log_bucket_position of transformers gives them: the checksums
// are FNV-1a of its rows for the distances -(n-1) to n-1.
func TestDistanceRows(t *testing.T) {
	for _, c := range []struct {
		n, buckets, farthest int
		sum                  uint64
	}{
		{512, 256, 512, 18371289793704056701},
		{512, 32, 128, 16288198817297646691},
		{64, 5, 64, 1532969799929681302},
		{512, 256, 300, 5802845731891744689},
		{24, 2, 24, 16699467156355316327},
	} {
		s := debertaSettings{Span: c.buckets, Buckets: c.buckets, Farthest: c.farthest}
		sum := uint64(14695981039346656037)
		for apart := 1 - c.n; apart < c.n; apart++ {
			sum = (sum ^ uint64(s.row(apart))) * 1099511628211
		}
		require.Equal(t, c.sum, sum, c)
	}
	s := debertaSettings{Span: 6, Farthest: 6}
	for apart, row := range map[int]int{-100: 0, -6: 0, -5: 1, 0: 6, 5: 11, 6: 11, 100: 11} {
		require.Equal(t, row, s.row(apart))
	}
}

// Settings of DeBERTa that are not computed are refused by name.
func TestDebertaErrors(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		says  string
	}{
		{"conv_kernel_size", 3, `conv_kernel_size "3"; supported: 0`},
		{"embedding_size", 12, `embedding_size "12"; supported: 24`},
		{"pooler_hidden_size", 12, `pooler_hidden_size "12"; supported: 24`},
		{"attention_head_size", 4, `attention_head_size "4"; supported: 8`},
		{"pos_att_type", "p2c|p2p", `pos_att_type "p2p"; supported: c2p, p2c`},
		{"pos_att_type", []string{"c2c"}, `pos_att_type "c2c"; supported: c2p, p2c`},
		{"pos_att_type", 3, "pos_att_type: found 3, expected a list of strings"},
		{"norm_rel_ebd", "rms_norm", `norm_rel_ebd "rms_norm"; supported: layer_norm, none`},
		{"position_buckets", 1, "position_buckets: found 1, expected 2 or more"},
		{"position_buckets", 200, "position_buckets: found 200, expected 2 or more, and half of it less than max_relative_positions - 1"},
		{"pooler_hidden_act", "mish", `pooler_hidden_act "mish"`},
		{"max_relative_positions", 1 << 25, "max_relative_positions: found 33554432"},
	} {
		raw, err := os.ReadFile("../../testdata/encoders/deberta-v2/config.json")
		require.NoError(t, err)
		var config map[string]any
		require.NoError(t, json.Unmarshal(raw, &config))
		config[c.key] = c.value
		raw, err = json.Marshal(config)
		require.NoError(t, err)
		_, err = ParseConfig(raw)
		require.ErrorContains(t, err, c.says)
	}
}
