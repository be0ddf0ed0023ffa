package tokenizer

import "encoding/json"

// A postProcessor adds the special tokens around a text.
type postProcessor interface {
	process(ids []int32) []int32
}

var postProcessorNames = []string{"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}

// readPostProcessor reads the "post_processor" of a tokenizer.json; null gives nil.
func readPostProcessor(raw json.RawMessage) (postProcessor, error) {
	kind, err := componentType("post_processor", raw)
	if err != nil || kind == "" {
		return nil, err
	}
	switch kind {
	case "ByteLevel": // concerns offsets only
		return template{{}}, nil
	case "TemplateProcessing":
		return readTemplate(raw)
	case "BertProcessing", "RobertaProcessing":
		var c struct {
			CLS tokenAndID `json:"cls"`
			SEP tokenAndID `json:"sep"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, malformed("post_processor %s: %v", kind, err)
		}
		return template{{special: []int32{c.CLS.id}}, {}, {special: []int32{c.SEP.id}}}, nil
	case "Sequence":
		var c struct {
			Processors []json.RawMessage `json:"processors"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, malformed("post_processor Sequence: %v", err)
		}
		var seq postProcessorSequence
		for _, raw := range c.Processors {
			p, err := readPostProcessor(raw)
			if err != nil {
				return nil, err
			}
			if p != nil {
				seq = append(seq, p)
			}
		}
		return seq, nil
	}
	return nil, unsupported("post_processor", kind, postProcessorNames...)
}

type postProcessorSequence []postProcessor

func (seq postProcessorSequence) process(ids []int32) []int32 {
	for _, p := range seq {
		ids = p.process(ids)
	}
	return ids
}

// template lists what the result consists of.
type template []templatePart

// templatePart is special tokens, or the text where there are none.
type templatePart struct{ special []int32 }

func readTemplate(raw json.RawMessage) (postProcessor, error) {
	var c struct {
		Single []struct {
			Sequence     *struct{ ID string }
			SpecialToken *struct{ ID string }
		} `json:"single"`
		SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("post_processor TemplateProcessing: %v", err)
	}
	var t template
	for _, part := range c.Single {
		switch {
		case part.SpecialToken != nil:
			special, ok := c.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return nil, malformed("post_processor TemplateProcessing: special token %q has no ids", part.SpecialToken.ID)
			}
			if len(special.IDs) > 0 {
				t = append(t, templatePart{special.IDs})
			}
		case part.Sequence != nil && part.Sequence.ID == "A":
			t = append(t, templatePart{})
		default:
			return nil, malformed("post_processor TemplateProcessing: a part of single is neither SpecialToken nor Sequence A")
		}
	}
	return t, nil
}

func (t template) process(ids []int32) []int32 {
	if len(t) == 1 && t[0].special == nil {
		return ids
	}
	out := make([]int32, 0, len(ids)+len(t))
	for _, part := range t {
		if part.special != nil {
			out = append(out, part.special...)
		} else {
			out = append(out, ids...)
		}
	}
	return out
}

// tokenAndID is written as ["token", id].
type tokenAndID struct {
	token string
	id    int32
}

func (t *tokenAndID) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[2]any{&t.token, &t.id})
}
