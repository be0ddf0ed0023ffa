package tokenizer

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// config holds the relevant fields of tokenizer_config.json.
type config struct {
	Class              string                `json:"tokenizer_class"`
	AddedTokensDecoder map[string]addedToken `json:"added_tokens_decoder"` // by id
	BOS                specialToken          `json:"bos_token"`
	EOS                specialToken          `json:"eos_token"`
	UNK                specialToken          `json:"unk_token"`
	SEP                specialToken          `json:"sep_token"`
	PAD                specialToken          `json:"pad_token"`
	CLS                specialToken          `json:"cls_token"`
	Mask               specialToken          `json:"mask_token"`
	Extra              json.RawMessage       `json:"extra_special_tokens"`
	Additional         []specialToken        `json:"additional_special_tokens"` // the older name
	AddBOS             json.RawMessage       `json:"add_bos_token"`
	AddEOS             json.RawMessage       `json:"add_eos_token"`
	Cleanup            bool                  `json:"clean_up_tokenization_spaces"`
	TruncationSide     string                `json:"truncation_side"`
	ModelInputs        []string              `json:"model_input_names"`

	extra []specialToken
}

// specialToken is encoded as its content or as an object with the flags of an added token.
type specialToken struct{ addedToken }

func (s *specialToken) UnmarshalJSON(b []byte) error {
	*s = specialToken{}
	if len(b) > 0 && b[0] == '{' {
		s.Normalized = true // the default of an added token
		return json.Unmarshal(b, &s.addedToken)
	}
	return json.Unmarshal(b, &s.Content) // null leaves it empty
}

func readConfig(data, special []byte) (*config, error) {
	c := &config{}
	if len(data) > 0 {
		if err := json.Unmarshal(data, c); err != nil {
			return nil, malformed("%s: %v", configFile, err)
		}
	}
	if len(special) > 0 && c.AddedTokensDecoder == nil {
		if err := json.Unmarshal(special, c); err != nil {
			return nil, malformed("%s: %v", specialFile, err)
		}
	}
	if !isNull(c.Extra) {
		if err := json.Unmarshal(c.Extra, &c.extra); err != nil {
			var named map[string]specialToken
			if err := json.Unmarshal(c.Extra, &named); err != nil {
				return nil, malformed("%s: extra_special_tokens: %v", configFile, err)
			}
			for _, s := range named {
				c.extra = append(c.extra, s)
			}
			slices.SortFunc(c.extra, func(a, b specialToken) int { return cmp.Compare(a.Content, b.Content) })
		}
	}
	c.extra = append(c.extra, c.Additional...)
	return c, nil
}

// plainClasses lists tokenizer classes that produce no token_type_ids in
// transformers 5: the classes without a model, and one for a model that is not BERT
// but uses its tokenizer.
var plainClasses = []string{"TokenizersBackend", "PreTrainedTokenizer", "DistilBertTokenizer"}

// untyped reports whether the tokenizer produces no token_type_ids.
func (c *config) untyped() bool {
	if c.ModelInputs != nil {
		return !slices.Contains(c.ModelInputs, "token_type_ids")
	}
	return slices.Contains(plainClasses, strings.TrimSuffix(c.Class, "Fast"))
}

func (c *config) named() []specialToken {
	return []specialToken{c.BOS, c.EOS, c.UNK, c.SEP, c.PAD, c.CLS, c.Mask}
}

// addedTokens returns the added tokens of tokenizer.json, followed by the added tokens of
// the configuration: with other flags, or new. transformers adds them in this order.
func (c *config) addedTokens(tokens []addedToken) []addedToken {
	named := append(c.named(), c.extra...)
	isNamed := map[string]bool{}
	for _, s := range c.named() {
		isNamed[s.Content] = true
	}
	listed := slices.Clone(tokens)
	if c.AddedTokensDecoder != nil {
		listed = nil
		for id, t := range c.AddedTokensDecoder {
			t.ID = noID
			if n, err := strconv.ParseInt(id, 10, 32); err == nil {
				t.ID = int32(n)
			}
			listed = append(listed, t)
		}
		slices.SortFunc(listed, func(a, b addedToken) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Content, b.Content))
		})
	}
	known := map[string]bool{}
	for _, t := range tokens {
		known[t.Content] = true
	}
	for _, t := range listed {
		t.Special = t.Special || isNamed[t.Content]
		tokens = append(tokens, t)
		known[t.Content] = true
	}
	for _, s := range named {
		if s.Content != "" && !known[s.Content] {
			known[s.Content] = true
			s.Special = true
			tokens = append(tokens, s.addedToken)
		}
	}
	return tokens
}

// honoursAddBOS lists the classes whose post-processor is derived from add_bos_token and
// add_eos_token, if the configuration sets these. Others (GPT2Tokenizer, Qwen2Tokenizer,
// PreTrainedTokenizerFast, …) keep the post-processor of tokenizer.json, as transformers 5
// does in any case.
var honoursAddBOS = map[string]bool{
	"LlamaTokenizer": true, "CodeLlamaTokenizer": true, "GemmaTokenizer": true, "CohereTokenizer": true, "GPTNeoXTokenizer": true,
}

// apply applies the configuration to t.
func (c *config) apply(t *Tokenizer) error {
	t.cutLeft = c.TruncationSide == "left"
	t.untyped = c.untyped()
	for _, s := range []struct {
		id    *int32
		token specialToken
	}{{&t.bos, c.BOS}, {&t.eos, c.EOS}, {&t.pad, c.PAD}, {&t.unk, c.UNK}} {
		*s.id = noID
		if s.token.Content != "" {
			*s.id = t.added.byContent[s.token.Content]
		}
	}
	// transformers does not clean up after BPE, whose spaces are significant.
	if _, isBPE := t.model.(*bpe); c.Cleanup && !isBPE {
		t.decoders = append(slices.Clip(t.decoders), fuser{})
		for _, r := range textCleanup {
			t.decoders = append(t.decoders, replaceDecoder{literal(r[0]), r[1]})
		}
	}
	return nil
}

// template returns the post-processor implied by the configuration; nil keeps the
// post-processor of tokenizer.json.
func (c *config) template(t *Tokenizer) (postProcessor, error) {
	if !honoursAddBOS[strings.TrimSuffix(c.Class, "Fast")] || c.AddBOS == nil && c.AddEOS == nil {
		return nil, nil
	}
	var bos, eos bool
	for _, flag := range []struct {
		raw json.RawMessage
		set *bool
	}{{c.AddBOS, &bos}, {c.AddEOS, &eos}} {
		if isNull(flag.raw) {
			continue
		}
		if err := json.Unmarshal(flag.raw, flag.set); err != nil {
			return nil, malformed("%s: add_bos_token, add_eos_token: %v", configFile, err)
		}
	}
	var tmpl template
	for text := range 2 {
		var one []templatePart
		typ := int32(text)
		if bos && t.bos != noID {
			one = append(one, templatePart{special: []int32{t.bos}, typ: typ})
		}
		one = append(one, templatePart{piece: text, typ: typ})
		if eos && t.eos != noID {
			one = append(one, templatePart{special: []int32{t.eos}, typ: typ})
		}
		if text == 0 {
			tmpl.single = one
		}
		tmpl.pair = append(tmpl.pair, one...)
	}
	return tmpl, nil
}
