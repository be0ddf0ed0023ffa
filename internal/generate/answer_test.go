package generate_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// Whatever the options, an answer to logits that something else computes is that of a
// generator: tokens, text, log-probabilities and end.
func TestAnswerIsTheGenerators(t *testing.T) {
	dev, m := open(t, llama)
	tok := words(t, llama)
	bytes, err := tok.TokenBytes()
	require.NoError(t, err)
	v, err := constrain.NewVocabulary(bytes)
	require.NoError(t, err)
	schema, err := constrain.Schema([]byte(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string","maxLength":6}},"required":["n"],"additionalProperties":false}`))
	require.NoError(t, err)
	g := generator(t, dev, m, nil, generate.Options{MaxLength: 60})
	reader := generator(t, dev, m, nil, generate.Options{MaxLength: 60})
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int32Range(0, int32(m.Config.VocabSize-1))
		prompt := rapid.SliceOfN(id, 1, 20).Draw(t, "prompt")
		given := options(t, id)
		if rapid.IntRange(0, 3).Draw(t, "grammar") == 0 {
			without := given
			given = func() generate.GenerateOptions {
				o := without()
				var err error
				o.Grammar, err = schema.Matcher(v)
				require.NoError(t, err)
				return o
			}
		}
		decoded := func() generate.GenerateOptions {
			o := given()
			o.Decoder = tok.NewStream(true)
			return o
		}
		g.Reset()
		var want []generate.Token
		r, err := g.Generate(ctx, prompt, decoded(), func(x generate.Token) error {
			want = append(want, x)
			return nil
		})
		failed := err
		if failed != nil {
			require.ErrorIs(t, failed, generate.ErrOption)
			require.ErrorContains(t, failed, "the grammar lets nothing follow but tokens that end the answer")
		}

		reader.Reset()
		a, err := generate.NewAnswer(m.Config.VocabSize, m.Config.EOS, 60-len(prompt), prompt, decoded())
		require.NoError(t, err)
		for i := 0; a.Finish() == ""; i++ {
			logits, err := reader.Read(ctx, a.Tokens())
			require.NoError(t, err)
			x, err := a.Next(logits)
			if err != nil {
				require.EqualError(t, err, failed.Error())
				break
			}
			require.Less(t, i, len(want))
			require.Equal(t, want[i].ID, x.ID)
			require.Equal(t, want[i].Text, x.Text)
			require.Equal(t, want[i].Logprobs, x.Logprobs)
			require.Greater(t, x.Prob(), float32(0))
			require.Equal(t, x.ID, a.Tokens()[len(prompt)+i], "it is there at once")
		}
		require.Equal(t, r.Finish, a.Finish())
		require.Equal(t, append(slices.Clone(prompt), r.IDs...), a.Tokens())
		got := a.Result()
		require.Equal(t, r.IDs, got.IDs)
		require.Equal(t, r.Text, got.Text)
		require.Equal(t, len(prompt), got.PromptTokens)
	})
}

// options draws options without decoder and grammar, that can be made again and again.
func options(t *rapid.T, id *rapid.Generator[int32]) func() generate.GenerateOptions {
	o := generate.GenerateOptions{
		MaxNewTokens: rapid.IntRange(0, 30).Draw(t, "max"),
		IncludeStop:  rapid.Bool().Draw(t, "include"),
		IgnoreEOS:    rapid.Bool().Draw(t, "ignore"),
		Logprobs:     rapid.Bool().Draw(t, "logprobs"),
		Sampler: sample.Sampler{
			Temperature:       rapid.SampledFrom([]float64{0, 0.5, 1, 2}).Draw(t, "temperature"),
			TopK:              rapid.IntRange(0, 40).Draw(t, "top_k"),
			TopP:              rapid.Float64Range(0, 1).Draw(t, "top_p"),
			RepetitionPenalty: rapid.SampledFrom([]float64{0, 1.2, 0.8}).Draw(t, "repetition"),
			FrequencyPenalty:  rapid.Float64Range(-2, 2).Draw(t, "frequency"),
			PresencePenalty:   rapid.Float64Range(-2, 2).Draw(t, "presence"),
			Bias:              rapid.MapOfN(id, rapid.Float32Range(-5, 5), 0, 4).Draw(t, "bias"),
			Seed:              rapid.Uint64().Draw(t, "seed"),
		},
	}
	if o.MaxNewTokens > 0 {
		o.MinNewTokens = rapid.IntRange(0, o.MaxNewTokens).Draw(t, "min")
	}
	if o.Logprobs {
		o.TopLogprobs = rapid.IntRange(0, 5).Draw(t, "top_logprobs")
	}
	if rapid.Bool().Draw(t, "own eos") {
		o.EOS = rapid.SliceOfN(id, 1, 60).Draw(t, "eos")
	}
	o.Stop = rapid.SliceOfN(rapid.SampledFrom([]string{"e", "z\x05", "in", "\x05z", " t", "never"}), 0, 3).Draw(t, "stop")
	return func() generate.GenerateOptions { return o }
}

// table is a decoder in which each token is a text of its own.
type table []string

func (d table) Push(id int32) (string, error) { return d[id], nil }
func (d table) Flush() string                 { return "" }

// mute has no text of any token.
type mute struct{ table }

var errMute = errors.New("mute")

func (mute) Push(int32) (string, error) { return "", errMute }

// chosen gives the largest logit to a token.
func chosen(id int32, vocab int) []float32 {
	logits := make([]float32, vocab)
	logits[id] = 1
	return logits
}

// A stop string ends the answer where it ends first behind the text of the tokens that
// do not end it, and is shown if it is asked for: held against a search of the whole text.
func TestStopStringsByTheWholeText(t *testing.T) {
	texts := table{"a", "b", "c", "ab", "bca", "", "cc"}
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, int32(len(texts)-1)), 1, 30).Draw(t, "ids")
		word := rapid.StringMatching("[abc]{1,5}")
		o := generate.GenerateOptions{
			MaxNewTokens: len(ids), MinNewTokens: rapid.IntRange(0, len(ids)).Draw(t, "min"), Decoder: texts,
			Stop: rapid.SliceOfN(word, 1, 4).Draw(t, "stop"), IncludeStop: rapid.Bool().Draw(t, "include"),
		}
		text, first, finish := "", 0, generate.FinishLength
		for i, id := range ids {
			text += texts[id]
			if i < o.MinNewTokens {
				first = len(text)
			}
		}
		for end := first + 1; end <= len(text); end++ {
			if short := before(text[:end], o.Stop); len(short) < end {
				finish = generate.FinishStop
				if text = text[:end]; !o.IncludeStop {
					text = short
				}
				break
			}
		}
		a, err := generate.NewAnswer(len(texts), nil, 100, []int32{0}, o)
		require.NoError(t, err)
		shown := ""
		for i := 0; a.Finish() == ""; i++ {
			x, err := a.Next(chosen(ids[i], len(texts)))
			require.NoError(t, err)
			shown += x.Text
			require.True(t, strings.HasPrefix(text, shown), "%q was shown of %q", shown, text)
		}
		require.Equal(t, text, shown)
		require.Equal(t, text, a.Result().Text)
		require.Equal(t, finish, a.Finish())
		require.GreaterOrEqual(t, len(a.Result().IDs), o.MinNewTokens)
	})
}

// The tokens that end an answer are not chosen among the first ones, and the others are
// chosen as if they were not there.
func TestMinNewTokens(t *testing.T) {
	const vocab = 12
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.SliceOfN(rapid.Float32Range(-9, 9), vocab, vocab), 10, 10).Draw(t, "logits")
		eos := rapid.SliceOfN(rapid.Int32Range(-1, vocab-2), 1, 6).Draw(t, "eos") // one is none of them
		o := generate.GenerateOptions{MaxNewTokens: len(rows), MinNewTokens: rapid.IntRange(0, len(rows)).Draw(t, "min"), EOS: eos}
		a, err := generate.NewAnswer(vocab, nil, 100, []int32{0}, o)
		require.NoError(t, err)
		for i := 0; a.Finish() == ""; i++ {
			want := int32(-1)
			for id, x := range rows[i] {
				if i < o.MinNewTokens && slices.Contains(eos, int32(id)) {
					continue
				}
				if want < 0 || x > rows[i][want] {
					want = int32(id)
				}
			}
			before := slices.Clone(rows[i])
			x, err := a.Next(rows[i])
			require.NoError(t, err)
			require.Equal(t, want, x.ID)
			require.Equal(t, before, rows[i])
			finish := generate.Finish("")
			switch {
			case slices.Contains(eos, want):
				finish = generate.FinishEOS
			case i+1 == len(rows):
				finish = generate.FinishLength
			}
			require.Equal(t, finish, a.Finish())
		}
		require.GreaterOrEqual(t, len(a.Result().IDs), o.MinNewTokens)
	})
	a, err := generate.NewAnswer(2, []int32{0, 1}, 9, []int32{0}, generate.GenerateOptions{MinNewTokens: 1})
	require.NoError(t, err)
	_, err = a.Next([]float32{1, 2})
	require.ErrorIs(t, err, sample.ErrLogits, "nothing is left to choose")
}

// A grammar is stronger than the least length: where it lets nothing but the end follow,
// the answer ends.
func TestMinNewTokensWithGrammar(t *testing.T) {
	bytes := make([][]byte, 257)
	for i := range 256 {
		bytes[i] = []byte{byte(i)}
	}
	v, err := constrain.NewVocabulary(bytes)
	require.NoError(t, err)
	write := func(schema string, eos int32, likely string) generate.Result {
		g, err := constrain.Schema([]byte(schema))
		require.NoError(t, err)
		matcher, err := g.Matcher(v)
		require.NoError(t, err)
		a, err := generate.NewAnswer(len(bytes), []int32{eos}, 99, []int32{0}, generate.GenerateOptions{MinNewTokens: 4, MaxNewTokens: 8, Grammar: matcher})
		require.NoError(t, err)
		for a.Finish() == "" {
			logits := chosen(eos, len(bytes))
			for i := range likely {
				logits[likely[i]] = 0.5
			}
			_, err := a.Next(logits)
			require.NoError(t, err)
		}
		return a.Result()
	}
	r := write(`{"type":"integer"}`, 256, "7")
	assert.Equal(t, []int32{'7', '7', '7', '7', 256}, r.IDs, "it may end behind each digit, and does where it can be")
	assert.Equal(t, generate.FinishEOS, r.Finish)

	r = write(`{"enum":[true]}`, 256, "")
	assert.Equal(t, "true", text(r.IDs))
	assert.Equal(t, generate.FinishGrammar, r.Finish)
	r = write(`{"enum":[12]}`, 256, "")
	assert.Equal(t, "12", text(r.IDs), "shorter than asked for, since it is whole")
	assert.Equal(t, generate.FinishGrammar, r.Finish)

	// Behind 1 only 2 could follow, and that is what ends the answer.
	r = write(`{"enum":[1,12]}`, '2', "1")
	assert.Equal(t, "12", text(r.IDs))
	assert.Equal(t, generate.FinishEOS, r.Finish)
}

// A token that the grammar needs cannot be one that ends the answer.
func TestGrammarThatCannotGoOn(t *testing.T) {
	v, err := constrain.NewVocabulary([][]byte{[]byte("1"), []byte("2"), []byte("3")})
	require.NoError(t, err)
	g, err := constrain.Schema([]byte(`{"enum":[123]}`))
	require.NoError(t, err)
	matcher, err := g.Matcher(v)
	require.NoError(t, err)
	a, err := generate.NewAnswer(3, []int32{1}, 9, []int32{0}, generate.GenerateOptions{Grammar: matcher})
	require.NoError(t, err)
	x, err := a.Next(make([]float32, 3))
	require.NoError(t, err)
	require.EqualValues(t, 0, x.ID)
	_, err = a.Next(make([]float32, 3))
	require.ErrorIs(t, err, generate.ErrOption)
	require.ErrorContains(t, err, "token 2: bad option: the grammar lets nothing follow")
	require.Equal(t, []int32{0, 0}, a.Tokens())
}

func text(ids []int32) string {
	b := make([]byte, len(ids))
	for i, id := range ids {
		b[i] = byte(id)
	}
	return string(b)
}

// An error ends an answer, and there is nothing behind the end.
func TestAnswerErrors(t *testing.T) {
	begin := func(o generate.GenerateOptions) *generate.Answer {
		a, err := generate.NewAnswer(3, []int32{2}, 5, []int32{0, 1}, o)
		require.NoError(t, err)
		return a
	}
	for want, logits := range map[string][]float32{
		"token 2: unusable logits: 4 of them, the vocabulary has 3": {1, 2, 3, 4},
		"token 2: unusable logits: 0 of them":                       nil,
		"the first is that of token 1 (NaN)":                        {0, float32(math.NaN()), 2},
		"the first is that of token 2 (+Inf)":                       {0, 1, float32(math.Inf(1))},
	} {
		for _, o := range []generate.GenerateOptions{{}, {MinNewTokens: 1}, {Logprobs: true, TopLogprobs: 2}, {Sampler: sample.Sampler{Temperature: 1, PresencePenalty: 1}}} {
			a := begin(o)
			_, err := a.Next(logits)
			require.ErrorIs(t, err, sample.ErrLogits)
			require.ErrorContains(t, err, want)
			require.Equal(t, generate.FinishError, a.Finish())
			require.Equal(t, []int32{0, 1}, a.Tokens())
			_, err = a.Next([]float32{1, 2, 3})
			require.ErrorIs(t, err, generate.ErrOption)
			require.ErrorContains(t, err, "has ended (error)")
		}
	}
	a := begin(generate.GenerateOptions{})
	_, err := a.Next([]float32{0, 0, 1})
	require.NoError(t, err)
	require.Equal(t, generate.FinishEOS, a.Finish())
	_, err = a.Next([]float32{0, 0, 1})
	require.ErrorContains(t, err, "has ended (eos)")

	a = begin(generate.GenerateOptions{Decoder: mute{}})
	_, err = a.Next([]float32{0, 1, 0})
	require.ErrorIs(t, err, errMute)
	require.Equal(t, generate.FinishError, a.Finish())
	require.Equal(t, []int32{0, 1, 1}, a.Tokens(), "it was chosen")
}

// Penalties look at the answer, not at the prompt, and nobody else writes in its tokens.
func TestAnswerHasItsTokens(t *testing.T) {
	prompt := []int32{0, 1}
	a, err := generate.NewAnswer(3, nil, 9, prompt, generate.GenerateOptions{Sampler: sample.Sampler{PresencePenalty: 2}})
	require.NoError(t, err)
	prompt[0] = 2
	for range 6 {
		before := append(a.Tokens(), 7)
		_, err := a.Next([]float32{0, 3, 2})
		require.NoError(t, err)
		require.EqualValues(t, 7, before[len(before)-1], "an append is the caller's")
	}
	require.Equal(t, []int32{0, 1, 1, 2, 1, 1, 1, 1}, a.Tokens())
}
