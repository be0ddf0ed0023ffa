package batching_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve/batching"
)

func TestOneRequest(t *testing.T) {
	b := newBench(t, llama, map[string]string{"lora": "../../testdata/lm/llama/adapters/lora"}, batching.Options{})
	for _, adapter := range []string{"", "lora"} {
		r := greedy(adapter, prompt(b.m, 1, 9), 12)
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, []answer{b.expected(r)}, got)
	}
}
