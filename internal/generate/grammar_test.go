package generate_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// Answers of a model that knows nothing of JSON fulfil a schema, however tokens are
// chosen, and end where they are whole.
func TestGrammar(t *testing.T) {
	dev, m := open(t, llama)
	tok := words(t, llama)
	bytes, err := tok.TokenBytes()
	require.NoError(t, err)
	v, err := constrain.NewVocabulary(bytes)
	require.NoError(t, err)
	schema, err := constrain.Schema([]byte(`{"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer","minimum":0,"maximum":150}},"required":["name","age"],"additionalProperties":false}`))
	require.NoError(t, err)
	g := generator(t, dev, m, nil, generate.Options{})
	prompt := tokens(m, 9)
	ask := func(grammar *constrain.Grammar, o generate.GenerateOptions) generate.Result {
		o.Grammar, err = grammar.Matcher(v)
		require.NoError(t, err)
		o.Decoder = tok.NewStream(true)
		r, err := g.Generate(ctx, prompt, o, nil)
		require.NoError(t, err)
		return r
	}
	for seed := range uint64(20) {
		for _, s := range []sample.Sampler{
			{}, {RepetitionPenalty: 1.3}, {Temperature: 1}, {Temperature: 2, TopK: 3}, {Temperature: 1, TopP: 0.5}, {Temperature: 1, MinP: 0.5, TopK: 50},
		} {
			s.Seed = seed
			r := ask(schema, generate.GenerateOptions{Sampler: s})
			require.Equal(t, generate.FinishGrammar, r.Finish)
			var got struct {
				Name *string
				Age  *int
			}
			require.NoError(t, json.Unmarshal([]byte(r.Text), &got), r.Text)
			require.NotNil(t, got.Name, r.Text)
			require.NotNil(t, got.Age, r.Text)
			require.True(t, 0 <= *got.Age && *got.Age <= 150, r.Text)
			require.LessOrEqual(t, len([]rune(*got.Name)), 8, r.Text)
		}
	}

	// A number may end or go on: the end is the model's, and never before it is one.
	number, err := constrain.Schema([]byte(`{"type":"integer","minimum":100}`))
	require.NoError(t, err)
	ended := 0
	for seed := range uint64(30) {
		r := ask(number, generate.GenerateOptions{Sampler: sample.Sampler{Temperature: 3, Seed: seed}, EOS: []int32{0}})
		var n json.Number
		require.NoError(t, json.Unmarshal([]byte(r.Text), &n), r.Text)
		require.GreaterOrEqual(t, len(n), 3)
		if r.Finish == generate.FinishEOS {
			ended++
			assert.Equal(t, int32(0), r.IDs[len(r.IDs)-1])
		}
	}
	assert.Positive(t, ended)

	// Cut short, an answer is a beginning.
	r := ask(schema, generate.GenerateOptions{MaxNewTokens: 5})
	assert.Equal(t, generate.FinishLength, r.Finish)
	assert.Len(t, r.IDs, 5)
	assert.False(t, json.Valid([]byte(r.Text)))

	large, err := constrain.NewVocabulary(append(bytes, make([][]byte, m.Config.VocabSize)...))
	require.NoError(t, err)
	matcher, err := schema.Matcher(large)
	require.NoError(t, err)
	_, err = g.Generate(ctx, prompt, generate.GenerateOptions{Grammar: matcher}, nil)
	require.ErrorIs(t, err, generate.ErrOption)
	assert.ErrorContains(t, err, "that of the model 512")
}
