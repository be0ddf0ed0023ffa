package tinker

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// What ends an answer: the model's own tokens where nothing is said, else what is said and
// nothing beside it.
func TestStops(t *testing.T) {
	for stop, want := range map[string]generate.GenerateOptions{
		`{}`: {}, `{"stop":null}`: {}, `{"stop":[]}`: {EOS: []int32{}, IgnoreEOS: true},
		`{"stop":[5,0]}`: {EOS: []int32{5, 0}}, `{"stop":"a"}`: {Stop: []string{"a"}, IgnoreEOS: true},
		`{"stop":["a","b"]}`: {Stop: []string{"a", "b"}, IgnoreEOS: true}, `{"max_tokens":7}`: {MaxNewTokens: 7},
	} {
		var p params
		require.NoError(t, json.Unmarshal([]byte(stop), &p))
		o, err := p.options()
		require.NoError(t, err, stop)
		want.Sampler = sample.Sampler{Temperature: 1, TopP: 1}
		assert.Equal(t, want, o, stop)
	}
}

func TestSamplerSettings(t *testing.T) {
	for text, want := range map[string]sample.Sampler{
		`{"temperature":0,"top_k":5,"top_p":0.5}`: {TopK: 5, TopP: 0.5}, `{"top_k":-1,"top_p":0}`: {Temperature: 1, TopP: math.SmallestNonzeroFloat32},
	} {
		var p params
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		o, err := p.options()
		require.NoError(t, err)
		assert.Equal(t, want, o.Sampler, text)
	}
}
