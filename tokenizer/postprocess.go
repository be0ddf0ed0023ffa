package tokenizer

import (
	"encoding/json"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// A postProcessor adds special tokens around a text, or around and between two.
type postProcessor interface {
	// arrange returns the pieces of one or two texts with special tokens added.
	arrange(pieces []layout) ([]layout, error)
}

var postProcessorNames = []string{"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}

// readPostProcessor parses the "post_processor" of a tokenizer.json; null gives
// nil.
func readPostProcessor(raw json.RawMessage) (postProcessor, error) {
	kind, err := componentType("post_processor", raw)
	if err != nil || kind == "" {
		return nil, err
	}
	switch kind {
	case "ByteLevel": // affects offsets only
		return postProcessorSequence{}, nil
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
		return frame{c.CLS.id, c.SEP.id, kind == "RobertaProcessing"}, nil
	case "Sequence":
		var c struct {
			Processors []json.RawMessage `json:"processors"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, malformed("post_processor Sequence: %v", err)
		}
		seq := postProcessorSequence{}
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

func (seq postProcessorSequence) arrange(pieces []layout) (_ []layout, err error) {
	for _, p := range seq {
		if pieces, err = p.arrange(pieces); err != nil {
			return nil, err
		}
	}
	return pieces, nil
}

// frame adds a token before the first text and one after each text. The variant of
// RoBERTa adds one more between two texts and has a single token type.
type frame struct {
	cls, sep int32
	roberta  bool
}

func (f frame) arrange(pieces []layout) ([]layout, error) {
	out := make([]layout, len(pieces))
	for i, piece := range pieces {
		before, end := []int32{f.cls}, part{special: []int32{f.sep}}
		switch {
		case f.roberta:
			piece = piece.typed(0)
			if i > 0 {
				before = []int32{f.sep}
			}
		case i > 0:
			before, end.typ = nil, 1
		}
		if before != nil {
			out[i] = layout{{special: before}}
		}
		out[i] = append(append(out[i], piece...), end)
	}
	return out, nil
}

// template lists the parts of the result, for one text and for two.
type template struct{ single, pair []templatePart }

// templatePart is a sequence of special tokens or, if special is nil, one of
// the pieces.
type templatePart struct {
	special []int32
	piece   int
	typ     int32 // token type id
}

// templateJSON is the representation of a template in tokenizer.json.
type templateJSON struct {
	Single, Pair  []templatePartJSON
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
}

type templatePartJSON struct {
	Sequence, SpecialToken *struct {
		ID     string
		TypeID int32 `json:"type_id"`
	}
}

func readTemplate(raw json.RawMessage) (postProcessor, error) {
	var c templateJSON
	err := json.Unmarshal(raw, &c)
	if err != nil {
		return nil, malformed("post_processor TemplateProcessing: %v", err)
	}
	var t template
	if t.single, err = c.parts("single", c.Single, "A"); err != nil {
		return nil, err
	}
	t.pair, err = c.parts("pair", c.Pair, "A", "B")
	return t, err
}

// parts parses a template of the given sequences.
func (c templateJSON) parts(name string, list []templatePartJSON, sequences ...string) (parts []templatePart, err error) {
	seen := map[string]bool{}
	for _, p := range list {
		var at templatePart
		switch {
		case p.SpecialToken != nil:
			token, ok := c.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return nil, malformed("post_processor TemplateProcessing: special token %q has no ids", p.SpecialToken.ID)
			}
			if len(token.IDs) == 0 {
				continue
			}
			at = templatePart{special: token.IDs, typ: p.SpecialToken.TypeID}
		case p.Sequence != nil && slices.Contains(sequences, p.Sequence.ID):
			if seen[p.Sequence.ID] {
				return nil, unsupported("post_processor TemplateProcessing: "+name+" with two of Sequence", p.Sequence.ID, "one of each")
			}
			seen[p.Sequence.ID] = true
			at = templatePart{piece: slices.Index(sequences, p.Sequence.ID), typ: p.Sequence.TypeID}
		default:
			return nil, malformed("post_processor TemplateProcessing: a part of %s is neither SpecialToken nor Sequence %s", name, suggest.Or(sequences))
		}
		if at.typ < 0 {
			return nil, malformed("post_processor TemplateProcessing: type_id %d in %s", at.typ, name)
		}
		parts = append(parts, at)
	}
	return parts, nil
}

func (t template) arrange(pieces []layout) ([]layout, error) {
	parts := t.single
	switch {
	case len(pieces) == 2 && t.pair == nil:
		return nil, malformed("post_processor TemplateProcessing without a pair, which joins two texts")
	case len(pieces) == 2:
		parts = t.pair
	case len(pieces) != 1:
		return nil, malformed("post_processor TemplateProcessing behind one that makes %d pieces of a text, expected 1 or 2", len(pieces))
	}
	out := make([]layout, len(parts))
	for i, p := range parts {
		if p.special != nil {
			out[i] = layout{{special: p.special, typ: p.typ}}
		} else {
			out[i] = pieces[p.piece].typed(p.typ)
		}
	}
	return out, nil
}

// tokenAndID is encoded as ["token", id].
type tokenAndID struct {
	token string
	id    int32
}

func (t *tokenAndID) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[2]any{&t.token, &t.id})
}
