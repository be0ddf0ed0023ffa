package backend_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestParseLoad(t *testing.T) {
	for _, name := range []string{"auto", "ring", "register", "plain"} {
		l, err := backend.ParseLoadMode(name)
		require.NoError(t, err)
		require.Equal(t, name, l.String())
		text, err := json.Marshal(l)
		require.NoError(t, err)
		var again backend.LoadMode
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, l, again)
	}
	_, err := backend.ParseLoadMode("fast")
	require.ErrorContains(t, err, `found "fast", expected auto, ring, register or plain`)
	require.Error(t, json.Unmarshal([]byte(`"fast"`), new(backend.LoadMode)))
	require.Equal(t, "Load(9)", backend.LoadMode(9).String())
}

func TestLoadStatsAdd(t *testing.T) {
	var s backend.LoadStats
	s.Add(backend.LoadStats{Mode: backend.LoadRegister, Why: "faster", Bytes: 3e9, Seconds: 1, Copies: 7, Pinned: 5, Read: "mmap"})
	s.Add(backend.LoadStats{Mode: backend.LoadRing, Why: "small", Bytes: 1e9, Seconds: 1, Copies: 1, Pinned: 9, Converted: 2, Trials: []backend.LoadTrial{{}}})
	require.Equal(t, backend.LoadStats{
		Mode: backend.LoadRegister, Why: "faster", Bytes: 4e9, Seconds: 2, BytesPerSecond: 2e9, Copies: 8, Pinned: 9, Converted: 2, Read: "mmap", Trials: []backend.LoadTrial{{}},
	}, s)
	require.Equal(t, "4000.0 MB to the device in 2s: 2.00 GB/s by register (faster)", s.String())
}

// TestConverts: blocks are made of floats.
func TestConverts(t *testing.T) {
	i := backend.Info{Quantizes: []tensor.DType{tensor.Q8}}
	for _, from := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		assert.True(t, i.Converts(from, tensor.Q8))
		assert.False(t, i.Converts(from, tensor.NF4))
		assert.False(t, backend.Info{}.Converts(from, tensor.Q8))
	}
	assert.False(t, i.Converts(tensor.I8, tensor.Q8))
	assert.False(t, i.Converts(tensor.Q8, tensor.Q8))
}
