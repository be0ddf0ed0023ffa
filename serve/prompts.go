package serve

import "encoding/json"

// prompt is a text or a list of token IDs.
type prompt struct {
	text string
	ids  []int32 // nil for a text
}

// prompts reads a string, a list of strings, a list of token IDs, or a list of such lists.
func (s *Server) prompts(f *fields, name string, most int) []prompt {
	raw := f.raw(name)
	if raw == nil {
		f.fault(name, "is missing")
		return nil
	}
	vocab := s.options.Model.Config.VocabSize
	tokens := func(ids []int32) prompt {
		if len(ids) == 0 {
			f.fault(name, "a list of token ids is empty")
		}
		for _, id := range ids {
			if id < 0 || int(id) >= vocab {
				f.fault(name, "found %d, expected a token id below %d", id, vocab)
			}
		}
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
		f.unexpected(name, "a string, a list of strings, token ids, or a list of lists of token ids")
	}
	if len(all) > most {
		f.fault(name, "found %d, expected %d or fewer", len(all), most)
	}
	return all
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
