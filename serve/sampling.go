package serve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// wish holds the sampling parameters of a request.
type wish struct {
	options generate.GenerateOptions // without settings of single answers
	n       int                      // answers per prompt
	// skipSpecial omits special tokens from the text.
	skipSpecial bool
	keep        []string           // special tokens that are kept nevertheless
	grammar     *constrain.Grammar // nil: no constraint
	salt        string

	logprobs       bool // of answer tokens
	top            int  // number of alternatives per token
	promptLogprobs int  // number of alternatives per prompt token; -1: no prompt logprobs
}

// wish reads the fields that chat and text completions have in common.
func (s *Server) wish(ctx context.Context, f *fields) *wish {
	o := &s.options
	vocab := o.Model.Config.VocabSize
	w := &wish{
		n:              f.integer("n", 1, 1, o.MaxAnswers),
		skipSpecial:    f.flag("skip_special_tokens", true),
		promptLogprobs: f.integer("prompt_logprobs", -1, 0, o.MaxTopLogprobs),
	}
	g := &w.options
	d := &s.defaults
	g.Sampler.Temperature = f.number("temperature", of(d.Temperature, 1), 0, math.MaxFloat32)
	if g.Sampler.TopK = f.integer("top_k", of(d.TopK, 0), -1, math.MaxInt32); g.Sampler.TopK < 0 {
		g.Sampler.TopK = 0
	}
	g.Sampler.TopP = f.number("top_p", of(d.TopP, 1), 0, 1)
	if g.Sampler.TopP == 0 {
		g.Sampler.TopP = 1e-6 // greedy: only the most likely token; 0 means off
	}
	g.Sampler.MinP = f.number("min_p", of(d.MinP, 0), 0, 1)
	g.Sampler.RepetitionPenalty = f.number("repetition_penalty", of(d.Repetition, 1), 0.01, 100)
	g.Sampler.FrequencyPenalty = f.number("frequency_penalty", 0, -2, 2)
	g.Sampler.PresencePenalty = f.number("presence_penalty", 0, -2, 2)
	g.Sampler.Bias = bias(f, vocab)
	g.Sampler.Seed = seed(f)

	g.Stop = stops(f)
	g.IncludeStop = f.flag("include_stop_str_in_output", false)
	g.MinNewTokens = f.integer("min_tokens", 0, 0, math.MaxInt32)
	g.EOS = slices.Clip(s.eos)
	if f.flag("ignore_eos", false) {
		g.EOS = nil
	}
	g.EOS = append(g.EOS, f.ids("stop_token_ids", vocab)...)
	g.IgnoreEOS = len(g.EOS) == 0

	if f.has("cache_salt") {
		if w.salt = f.text("cache_salt"); w.salt == "" {
			f.fault("cache_salt", "is empty")
		}
	}
	f.text("user")
	f.text("request_id")
	w.grammar = s.shape(ctx, f)
	return w
}

// bias reads logit_bias.
func bias(f *fields, vocab int) map[int32]float32 {
	var given map[string]json.RawMessage
	if !f.into("logit_bias", &given, "an object of token ids and numbers from -100 to 100") {
		return nil
	}
	all := make(map[int32]float32, len(given))
	for token, raw := range given {
		id, err := strconv.ParseInt(token, 10, 32)
		if err != nil || id < 0 || int(id) >= vocab {
			f.fault("logit_bias", "found %.40q, expected a token id below %d", token, vocab)
			return nil
		}
		x, err := strconv.ParseFloat(string(raw), 32)
		if err != nil || !(x >= -100 && x <= 100) {
			f.fault("logit_bias", "found %s for token %d, expected a number from -100 to 100", brief(raw), id)
			return nil
		}
		all[int32(id)] = float32(x)
	}
	return all
}

// seed returns the seed of the request, or a random one.
func seed(f *fields) uint64 {
	if v, ok := f.wholeNumber("seed", "a whole number of 64 bits", math.MinInt64, math.MaxInt64); ok {
		return uint64(v)
	}
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// maxStops is the maximum number of stop strings.
const maxStops = 64

// stops reads the stop strings: one string or a list.
func stops(f *fields) []string {
	raw := f.raw("stop")
	var all []string
	var one string
	switch {
	case raw == nil:
		return nil
	case json.Unmarshal(raw, &one) == nil:
		all = []string{one}
	default:
		all = list[string](f, "stop", "a string or a list of strings")
	}
	switch {
	case len(all) > maxStops:
		f.fault("stop", "found %d, expected %d or fewer", len(all), maxStops)
	case slices.Contains(all, ""):
		f.fault("stop", "a string is empty")
	}
	return all
}

// room sets the maximum number of answer tokens. given is the requested number, or -1 if the field
// param is absent.
func (s *Server) room(w *wish, prompt, given, normal int, param string) error {
	most := s.options.MaxLength - prompt
	long := func(param, format string, args ...any) error {
		f := invalid(param, format, args...)
		f.code = tooLong
		return f
	}
	switch {
	case prompt == 0:
		return invalid("", "the prompt has no tokens")
	case most < 1:
		return long("", "the prompt has %d tokens; prompt and answer can have %d together", prompt, s.options.MaxLength)
	case given > most:
		return long(param, "%s: found %d; the prompt has %d tokens, and prompt and answer can have %d together", param, given, prompt, s.options.MaxLength)
	case given < 0:
		given = most
		if normal > 0 {
			given = min(most, normal)
		}
	}
	w.options.MaxNewTokens = min(given, of(s.defaults.MaxNewTokens, given))
	if w.options.MinNewTokens > w.options.MaxNewTokens {
		return invalid("min_tokens", "min_tokens: found %d, expected no more than the %d tokens that the answer may have", w.options.MinNewTokens, w.options.MaxNewTokens)
	}
	return nil
}

// answers returns the generation options of each answer to one prompt.
func (s *Server) answers(w *wish) ([]generate.GenerateOptions, error) {
	w.options.Logprobs = w.logprobs || w.promptLogprobs >= 0
	w.options.TopLogprobs = max(w.top, w.promptLogprobs)
	all := make([]generate.GenerateOptions, w.n)
	for i := range all {
		o := w.options
		o.Sampler.Sequence = uint64(i)
		o.Decoder = s.tokenizer.NewStream(w.skipSpecial, w.keep...)
		if !o.IncludeStop {
			o.Decoder = silentEnd{o.Decoder, o.EOS}
		}
		if w.grammar != nil {
			v, err := s.vocabulary()
			if err == nil {
				o.Grammar, err = w.grammar.Matcher(v)
			}
			if err != nil {
				return nil, invalidBecause("response_format", err)
			}
		}
		all[i] = o
	}
	return all, nil
}

// silentEnd is a decoder that omits the text of end-of-sequence tokens.
type silentEnd struct {
	generate.Decoder
	ends []int32
}

// Push implements generate.Decoder.
func (d silentEnd) Push(id int32) (string, error) {
	if slices.Contains(d.ends, id) {
		return "", nil
	}
	return d.Decoder.Push(id)
}
