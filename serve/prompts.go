package serve

import "encoding/json"

// prompt is a text or a list of token IDs.
type prompt struct {
	text string
	ids  []int32 // nil for a text
}

// prompts are a string, a list of strings, a list of token IDs, or a list of such lists.
type prompts []prompt

// decodeField implements fieldDecoder.
func (p *prompts) decodeField(d *decoder, name string, raw json.RawMessage) {
	tokens := func(ids []int32) prompt {
		if len(ids) == 0 {
			d.fault(name, "a list of token ids is empty")
		}
		d.checkTokens(name, ids)
		return prompt{ids: ids}
	}
	var all []prompt
	var text string
	if json.Unmarshal(raw, &text) == nil {
		all = []prompt{{text: text}}
	} else if ids, ok := elements[int32](raw); ok {
		all = []prompt{tokens(ids)}
	} else if texts, ok := elements[string](raw); ok {
		for _, t := range texts {
			all = append(all, prompt{text: t})
		}
	} else if lists, ok := elements[json.RawMessage](raw); ok {
		for _, l := range lists {
			if ids, ok = elements[int32](l); !ok {
				all = nil
				break
			}
			all = append(all, tokens(ids))
		}
	}
	if len(all) == 0 {
		d.unexpected(name, raw, "a string, a list of strings, token ids, or a list of lists of token ids")
	}
	*p = all
}

// check returns an error if the field is missing or has too many prompts.
func (p prompts) check(name string, most int) error {
	switch {
	case len(p) == 0:
		return faulty(name, "is missing")
	case len(p) > most:
		return faulty(name, "found %d, expected %d or fewer", len(p), most)
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
		f := invalid(param, "%s: found a text of %d bytes; prompt and answer can have %d tokens", param, len(text), s.options.MaxLength)
		f.code = tooLong
		return nil, f
	}
	ids, err := s.tokenizer.Encode(text, special)
	if err != nil {
		return nil, invalidBecause(param, err)
	}
	return ids, nil
}
