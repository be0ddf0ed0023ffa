package generate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/model"
)

func TestSamplingIsReproducible(t *testing.T) {
	dev, m := open(t, llama)
	g := generator(t, dev, m, nil, generate.Options{})
	prompt := tokens(m, 12)
	draw := func(s sample.Sampler) []int32 {
		g.Reset()
		r, err := g.Generate(ctx, prompt, generate.GenerateOptions{MaxNewTokens: 24, Sampler: s, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		require.Len(t, r.IDs, 24)
		require.Equal(t, generate.FinishLength, r.Finish)
		return r.IDs
	}
	settings := sample.Sampler{Temperature: 1, TopK: 50, TopP: 0.95, RepetitionPenalty: 1.1, Seed: 7}
	first := draw(settings)
	draw(sample.Sampler{Temperature: 2, Seed: 1})
	assert.Equal(t, first, draw(settings), "whatever was drawn in between")
	settings.Seed++
	assert.NotEqual(t, first, draw(settings))
	settings.Seed--
	settings.Sequence++
	assert.NotEqual(t, first, draw(settings))
}

// The text comes in whole characters, and together it is the text of all tokens.
func TestStreaming(t *testing.T) {
	dev, m := open(t, llama)
	tok := words(t, llama)
	g := generator(t, dev, m, nil, generate.Options{})
	var ids []int32
	var text strings.Builder
	r, err := g.Generate(ctx, tokens(m, 5), generate.GenerateOptions{
		MaxNewTokens: 100, Sampler: sample.Sampler{Temperature: 1, Seed: 3}, Decoder: tok.NewStream(true), IgnoreEOS: true,
	}, func(x generate.Token) error {
		ids = append(ids, x.ID)
		text.WriteString(x.Text)
		assert.True(t, utf8.ValidString(x.Text))
		assert.Greater(t, x.Prob(), float32(0))
		assert.LessOrEqual(t, x.Prob(), float32(1))
		return nil
	})
	require.NoError(t, err)
	want, err := tok.Decode(ids, true)
	require.NoError(t, err)
	assert.Equal(t, want, text.String())
	assert.Equal(t, want, r.Text)
	assert.Equal(t, ids, r.IDs)
	assert.Positive(t, r.PromptTime)
	assert.Positive(t, r.TokenTime)
	assert.Positive(t, r.TokensPerSecond())
}

// Any part of the text is a stop string, wherever tokens end in it: the answer
// ends before it, and nothing of it is shown.
func TestStopStrings(t *testing.T) {
	dev, m := open(t, llama)
	tok := words(t, llama)
	g := generator(t, dev, m, nil, generate.Options{})
	prompt := tokens(m, 5)
	o := generate.GenerateOptions{MaxNewTokens: 30, IgnoreEOS: true}
	whole, err := g.Generate(ctx, prompt, o, nil)
	require.NoError(t, err)
	text, err := tok.Decode(whole.IDs, true)
	require.NoError(t, err)
	require.Greater(t, len(text), 30)
	rapid.Check(t, func(t *rapid.T) {
		o := o
		for range rapid.IntRange(1, 3).Draw(t, "stops") {
			from := rapid.IntRange(0, len(text)-1).Draw(t, "from")
			n := rapid.IntRange(1, min(12, len(text)-from)).Draw(t, "length")
			stop := text[from : from+n]
			if rapid.Bool().Draw(t, "missing") {
				stop += "\x00" // begins like the text, and never comes
			}
			o.Stop = append(o.Stop, stop)
		}
		o.Decoder = tok.NewStream(true)
		var shown strings.Builder
		r, err := g.Generate(ctx, prompt, o, func(x generate.Token) error {
			shown.WriteString(x.Text)
			return nil
		})
		require.NoError(t, err)
		want, finish := text, generate.FinishLength
		if end := firstEnd(text, o.Stop); end >= 0 {
			want, finish = before(text[:end], o.Stop), generate.FinishStop
		}
		assert.Equal(t, want, shown.String())
		assert.Equal(t, want, r.Text)
		assert.Equal(t, finish, r.Finish)
		assert.Equal(t, whole.IDs[:len(r.IDs)], r.IDs)
		upTo, err := tok.Decode(r.IDs, true)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(upTo), len(want))
	})
}

// firstEnd is where the first stop string is complete, or -1.
func firstEnd(text string, stops []string) int {
	for end := range len(text) + 1 {
		for _, stop := range stops {
			if strings.HasSuffix(text[:end], stop) {
				return end
			}
		}
	}
	return -1
}

// before is text without the longest stop string at its end.
func before(text string, stops []string) string {
	short := text
	for _, stop := range stops {
		if s, ok := strings.CutSuffix(text, stop); ok && len(s) < len(short) {
			short = s
		}
	}
	return short
}

// The pieces in which text comes make no difference.
func TestStopperAndPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]string{"a", "b", "c"})
		word := func(name string, most int) string {
			return strings.Join(rapid.SliceOfN(letters, 1, most).Draw(t, name), "")
		}
		text := word("text", 30)
		var stops []string
		for range rapid.IntRange(0, 3).Draw(t, "stops") {
			stops = append(stops, word("stop", 4))
		}
		want, stop := text, false
		if end := firstEnd(text, stops); end >= 0 {
			want, stop = before(text[:end], stops), true
		}
		push, flush := generate.StopAt(stops...)
		got, rest, stopped := "", text, false
		for rest != "" && !stopped {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			var show string
			show, stopped = push(rest[:n])
			got, rest = got+show, rest[n:]
			assert.True(t, strings.HasPrefix(want, got), "%q was shown of %q", got, want)
		}
		if !stopped {
			got += flush()
		}
		assert.Equal(t, want, got)
		assert.Equal(t, stop, stopped)
	})
}

func TestEndOfText(t *testing.T) {
	dev, m := open(t, llama)
	require.NotEmpty(t, m.Config.EOS)
	g := generator(t, dev, m, nil, generate.Options{MaxLength: 64})
	prompt := tokens(m, 9)
	free, err := g.Generate(ctx, prompt, generate.GenerateOptions{IgnoreEOS: true}, nil)
	require.NoError(t, err)
	assert.Len(t, free.IDs, 64-9, "as many as there is room for")
	assert.Equal(t, generate.FinishLength, free.Finish)
	end := firstOf(free.IDs, free.IDs[20])
	r, err := g.Generate(ctx, prompt, generate.GenerateOptions{EOS: []int32{-1, free.IDs[20]}}, nil)
	require.NoError(t, err)
	assert.Equal(t, free.IDs[:end+1], r.IDs)
	assert.Equal(t, generate.FinishEOS, r.Finish)
	m.Config.EOS = []int32{free.IDs[20]}
	r, err = g.Generate(ctx, prompt, generate.GenerateOptions{}, nil)
	require.NoError(t, err)
	assert.Equal(t, free.IDs[:end+1], r.IDs, "the model's own")
}

func firstOf(ids []int32, id int32) int {
	for i := range ids {
		if ids[i] == id {
			return i
		}
	}
	return -1
}

// A context that ends, and an error of the caller, end the answer; the
// generator goes on as if nothing had been.
func TestCancel(t *testing.T) {
	dev, m := open(t, llama)
	g := generator(t, dev, m, nil, generate.Options{PrefillChunk: 4})
	prompt := tokens(m, 30)
	o := generate.GenerateOptions{MaxNewTokens: 20, IgnoreEOS: true}
	want, err := g.Generate(ctx, prompt, o, nil)
	require.NoError(t, err)

	g.Reset()
	short, cancel := context.WithCancel(ctx)
	n := 0
	r, err := g.Generate(short, prompt, o, func(generate.Token) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, generate.FinishCancelled, r.Finish)
	assert.Equal(t, want.IDs[:5], r.IDs)

	r, err = g.Generate(short, prompt, o, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, r.IDs)

	enough := errors.New("enough")
	r, err = g.Generate(ctx, prompt, o, func(generate.Token) error { return enough })
	require.ErrorIs(t, err, enough)
	assert.Equal(t, generate.FinishError, r.Finish)
	assert.Equal(t, want.IDs[:1], r.IDs)

	r, err = g.Generate(ctx, prompt, o, nil)
	require.NoError(t, err)
	assert.Equal(t, want.IDs, r.IDs)
	assert.Equal(t, 29, r.CachedTokens)
}

// TestNoLanguage: models that continue no texts are refused before anything is built.
func TestNoLanguage(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for dir, says := range map[string]string{"../../testdata/encoders/mpnet": `MPNetModel: the architecture does not have it: the task "next token"; it has none`, "../../testdata/tasks/classes-llama/merged": `it has "classification"`} {
		m, err := model.Open(dir)
		require.NoError(t, err)
		defer m.Close()
		_, err = generate.New(t.Context(), dev, m, nil, generate.Options{})
		require.ErrorIs(t, err, model.ErrTask)
		require.ErrorContains(t, err, says)
		s, err := generate.NewScorer(dev, m, nil, 8)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Logits(t.Context(), [][]int32{{1, 2}})
		require.ErrorContains(t, err, says)
		_, err = s.Loss(t.Context(), &data.Batch{})
		require.ErrorContains(t, err, says)
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	dev, m := open(t, llama)
	for _, o := range []generate.Options{{MaxLength: -1}, {PrefillChunk: -1}} {
		_, err := generate.New(ctx, dev, m, nil, o)
		assert.ErrorIs(t, err, generate.ErrOption)
	}
	_, err := generate.New(ctx, dev, m, nil, generate.Options{MaxLength: 129})
	require.ErrorIs(t, err, generate.ErrTooLong)
	assert.ErrorContains(t, err, "129")
	assert.ErrorContains(t, err, "128 (max_position_embeddings)")

	g := generator(t, dev, m, nil, generate.Options{})
	for name, c := range map[string]struct {
		prompt []int32
		o      generate.GenerateOptions
		is     error
		text   string
	}{
		"nothing":     {nil, generate.GenerateOptions{}, generate.ErrToken, "the prompt has none"},
		"too long":    {tokens(m, 128), generate.GenerateOptions{}, generate.ErrTooLong, "the prompt has 128, and prompt and answer can have 128"},
		"vocabulary":  {[]int32{3, 512}, generate.GenerateOptions{}, generate.ErrToken, "id 512 at position 1, the model's vocabulary has 512"},
		"negative":    {[]int32{-1}, generate.GenerateOptions{}, generate.ErrToken, "id -1 at position 0"},
		"new tokens":  {[]int32{3}, generate.GenerateOptions{MaxNewTokens: -2}, generate.ErrOption, "-2 new tokens"},
		"no decoder":  {[]int32{3}, generate.GenerateOptions{Stop: []string{"x"}}, generate.ErrOption, "without a decoder"},
		"empty stop":  {[]int32{3}, generate.GenerateOptions{Stop: []string{""}, Decoder: words(t, llama).NewStream(true)}, generate.ErrOption, "empty"},
		"least":       {[]int32{3}, generate.GenerateOptions{MinNewTokens: -1}, generate.ErrOption, "at least -1 new tokens"},
		"least most":  {[]int32{3}, generate.GenerateOptions{MinNewTokens: 5, MaxNewTokens: 4}, generate.ErrOption, "at least 5 new tokens and at most 4"},
		"top":         {[]int32{3}, generate.GenerateOptions{TopLogprobs: -1, Logprobs: true}, generate.ErrOption, "the -1 most likely"},
		"top alone":   {[]int32{3}, generate.GenerateOptions{TopLogprobs: 2}, generate.ErrOption, "without that of the token"},
		"bias":        {[]int32{3}, generate.GenerateOptions{Sampler: sample.Sampler{Bias: map[int32]float32{512: 1}}}, sample.ErrSetting, "logit_bias of token 512, expected ids from 0 to 511"},
		"temperature": {[]int32{3}, generate.GenerateOptions{Sampler: sample.Sampler{Temperature: -1}}, sample.ErrSetting, "temperature"},
	} {
		r, err := g.Generate(ctx, c.prompt, c.o, nil)
		require.ErrorIs(t, err, c.is, name)
		assert.ErrorContains(t, err, c.text, name)
		assert.Equal(t, generate.FinishError, r.Finish, name)
	}
	r, err := g.Generate(ctx, tokens(m, 127), generate.GenerateOptions{}, nil)
	require.NoError(t, err)
	assert.Len(t, r.IDs, 1, "the last place")

	_, err = generate.NewScorer(dev, m, nil, 0)
	require.ErrorIs(t, err, generate.ErrOption)
	s := scorer(t, dev, m, nil, 4)
	_, err = s.Logits(ctx, [][]int32{{1}, {1, 2, 3, 4, 5}})
	require.ErrorIs(t, err, generate.ErrTooLong)
	_, err = s.Hidden(ctx, [][]int32{{1, 600}})
	require.ErrorIs(t, err, generate.ErrToken)
}
