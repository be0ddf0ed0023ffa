package serve

import (
	"encoding/json"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// prompt is a text or a list of token IDs.
type prompt struct {
	text string
	ids  []int32 // nil for a text
}

// prompts are a string, a list of strings, a list of token IDs, or a list of such lists.
type prompts []prompt

// DecodeField implements web.FieldDecoder.
func (p *prompts) DecodeField(d *web.Decoder, name string, raw json.RawMessage) {
	tokens := func(ids []int32) prompt {
		if len(ids) == 0 {
			d.Fault(name, "a list of token ids is empty")
		}
		checkTokens(d, name, ids)
		return prompt{ids: ids}
	}
	var all []prompt
	var text string
	if json.Unmarshal(raw, &text) == nil {
		all = []prompt{{text: text}}
	} else if ids, ok := web.Elements[int32](raw); ok {
		all = []prompt{tokens(ids)}
	} else if texts, ok := web.Elements[string](raw); ok {
		for _, t := range texts {
			all = append(all, prompt{text: t})
		}
	} else if lists, ok := web.Elements[json.RawMessage](raw); ok {
		for _, l := range lists {
			if ids, ok = web.Elements[int32](l); !ok {
				all = nil
				break
			}
			all = append(all, tokens(ids))
		}
	}
	if len(all) == 0 {
		d.Unexpected(name, raw, "a string, a list of strings, token ids, or a list of lists of token ids")
	}
	*p = all
}

// check returns an error if the field is missing or has too many prompts.
func (p prompts) check(name string, most int) error {
	switch {
	case len(p) == 0:
		return web.Faulty(name, "is missing")
	case len(p) > most:
		return web.Faulty(name, "found %d, expected %d or fewer", len(p), most)
	}
	return nil
}

// encode returns the tokens of a prompt.
func (s *Server) encode(p prompt, special bool) ([]int32, error) {
	if p.ids != nil {
		return p.ids, nil
	}
	return s.tokens("prompt", p.text, special)
}

// maxTokenBytes is an upper limit for the bytes of a token. A text that is certainly too long is
// refused without tokenizing it.
const maxTokenBytes = 256

// tokens tokenizes the text of a field.
func (s *Server) tokens(param, text string, special bool) ([]int32, error) {
	if len(text)/maxTokenBytes > s.options.MaxLength {
		f := web.Invalid(param, "%s: found a text of %d bytes; prompt and answer can have %d tokens", param, len(text), s.options.MaxLength)
		f.Code = tooLong
		return nil, f
	}
	ids, err := s.tokenizer.Encode(text, special)
	if err != nil {
		return nil, invalidBecause(param, err)
	}
	return ids, nil
}

// tokenIDs are token IDs of the model's vocabulary.
type tokenIDs []int32

// DecodeField implements web.FieldDecoder.
func (t *tokenIDs) DecodeField(d *web.Decoder, name string, raw json.RawMessage) {
	all, ok := web.Elements[int32](raw)
	if !ok {
		d.Unexpected(name, raw, "a list of token ids")
		return
	}
	checkTokens(d, name, all)
	*t = all
}

// checkTokens records an error unless all IDs are of the vocabulary.
func checkTokens(d *web.Decoder, name string, ids []int32) {
	vocab := d.Limit(vocabLimit)
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			d.Fault(name, "found %d, expected a token id below %d", id, vocab)
		}
	}
}
