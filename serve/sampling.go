package serve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/serve/web"
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

// samplingRequest holds the fields that chat and text completions have in common.
type samplingRequest struct {
	Model             *string   `json:"model"`
	N                 int       `json:"n" in:"1,answers"`
	SkipSpecial       bool      `json:"skip_special_tokens"`
	PromptLogprobs    *int      `json:"prompt_logprobs" in:"0,logprobs"`
	Temperature       float64   `json:"temperature" in:"0,"`
	TopK              int       `json:"top_k" in:"-1,"`
	TopP              float64   `json:"top_p" in:"0,1"`
	MinP              float64   `json:"min_p" in:"0,1"`
	RepetitionPenalty float64   `json:"repetition_penalty" in:"0.01,100"`
	FrequencyPenalty  float64   `json:"frequency_penalty" in:"-2,2"`
	PresencePenalty   float64   `json:"presence_penalty" in:"-2,2"`
	Bias              logitBias `json:"logit_bias"`
	Seed              *int64    `json:"seed" expected:"a whole number of 64 bits"`
	Stop              stops     `json:"stop"`
	IncludeStop       bool      `json:"include_stop_str_in_output"`
	MinTokens         int       `json:"min_tokens" in:"0,"`
	IgnoreEOS         bool      `json:"ignore_eos"`
	StopTokens        tokenIDs  `json:"stop_token_ids"`
	CacheSalt         *string   `json:"cache_salt"`
	User              string    `json:"user"`
	RequestID         string    `json:"request_id"`
	shapeRequest

	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options"`
}

type streamOptions struct {
	Usage bool `json:"include_usage"`
}

// newSamplingRequest returns the defaults of a request.
func (s *Server) newSamplingRequest() samplingRequest {
	d := &s.defaults
	return samplingRequest{
		N: 1, SkipSpecial: true, Temperature: of(d.Temperature, 1), TopK: of(d.TopK, 0), TopP: of(d.TopP, 1), MinP: of(d.MinP, 0),
		RepetitionPenalty: of(d.Repetition, 1),
	}
}

// wish returns the sampling parameters of a request. more are constraints from fields of the endpoint.
func (s *Server) wish(ctx context.Context, r *samplingRequest, more ...answerShape) (*wish, error) {
	w := &wish{n: r.N, skipSpecial: r.SkipSpecial, promptLogprobs: of(r.PromptLogprobs, -1), options: generate.GenerateOptions{
		Stop: r.Stop, IncludeStop: r.IncludeStop, MinNewTokens: r.MinTokens, EOS: slices.Clip(s.eos),
		Sampler: sample.Sampler{
			Temperature: r.Temperature, TopK: max(0, r.TopK), TopP: r.TopP, MinP: r.MinP, RepetitionPenalty: r.RepetitionPenalty,
			FrequencyPenalty: r.FrequencyPenalty, PresencePenalty: r.PresencePenalty, Bias: r.Bias, Seed: seed(r.Seed),
		},
	}}
	g := &w.options
	if g.Sampler.TopP == 0 {
		g.Sampler.TopP = 1e-6 // greedy: only the most likely token; 0 means off
	}
	if r.IgnoreEOS {
		g.EOS = nil
	}
	g.EOS = append(g.EOS, r.StopTokens...)
	g.IgnoreEOS = len(g.EOS) == 0
	if r.CacheSalt != nil {
		if w.salt = *r.CacheSalt; w.salt == "" {
			return nil, web.Faulty("cache_salt", "is empty")
		}
	}
	switch {
	case r.StreamOptions != nil && !r.Stream:
		return nil, web.Faulty("stream_options", "goes with stream: true")
	case r.Stream && r.PromptLogprobs != nil:
		return nil, web.Faulty("prompt_logprobs", "do not go with stream: true")
	}
	var err error
	w.grammar, err = s.shape(ctx, &r.shapeRequest, more)
	return w, err
}

// logitBias maps token IDs to summands of their logits.
type logitBias map[int32]float32

// DecodeField implements web.FieldDecoder.
func (b *logitBias) DecodeField(d *web.Decoder, name string, raw json.RawMessage) {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		d.Unexpected(name, raw, "an object of token ids and numbers from -100 to 100")
		return
	}
	*b = make(logitBias, len(given))
	for token, raw := range given {
		id, err := strconv.ParseInt(token, 10, 32)
		if vocab := d.Limit(vocabLimit); err != nil || id < 0 || int(id) >= vocab {
			d.Fault(name, "found %.40q, expected a token id below %d", token, vocab)
			return
		}
		x, err := strconv.ParseFloat(string(raw), 32)
		if err != nil || !(x >= -100 && x <= 100) {
			d.Fault(name, "found %s for token %d, expected a number from -100 to 100", web.Brief(raw), id)
			return
		}
		(*b)[int32(id)] = float32(x)
	}
}

// seed returns the seed of the request, or a random one.
func seed(given *int64) uint64 {
	if given != nil {
		return uint64(*given)
	}
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// maxStops is the maximum number of stop strings.
const maxStops = 64

// stops are stop strings: one string or a list.
type stops []string

// DecodeField implements web.FieldDecoder.
func (s *stops) DecodeField(d *web.Decoder, name string, raw json.RawMessage) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*s = stops{one}
	} else if all, ok := web.Elements[string](raw); ok {
		*s = all
	} else {
		d.Unexpected(name, raw, "a string or a list of strings")
	}
	switch {
	case len(*s) > maxStops:
		d.Fault(name, "found %d, expected %d or fewer", len(*s), maxStops)
	case slices.Contains(*s, ""):
		d.Fault(name, "a string is empty")
	}
}

// room sets the maximum number of answer tokens. given is the requested number, or -1 if the field
// param is absent.
func (s *Server) room(w *wish, prompt, given, normal int, param string) error {
	most := s.options.MaxLength - prompt
	long := func(param, format string, args ...any) error {
		f := web.Invalid(param, format, args...)
		f.Code = tooLong
		return f
	}
	switch {
	case prompt == 0:
		return web.Invalid("", "the prompt has no tokens")
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
		return web.Invalid("min_tokens", "min_tokens: found %d, expected no more than the %d tokens that the answer may have", w.options.MinNewTokens, w.options.MaxNewTokens)
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
