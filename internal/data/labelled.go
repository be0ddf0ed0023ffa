package data

import (
	"context"
	"encoding/json"
	"fmt"
)

const (
	kindLabelled     kind = "text and label"
	kindLabelledPair kind = "text, text_pair and label"
)

// labelledSynonyms maps key names of other datasets to the keys of labelled rows.
var labelledSynonyms = map[string]string{
	"sentence": "text", "sentence1": "text", "premise": "text", "question": "text", "question1": "text", "text1": "text", "content": "text", "document": "text", "review": "text",
	"sentence2": "text_pair", "hypothesis": "text_pair", "question2": "text_pair", "text2": "text_pair", "passage": "text_pair",
	"labels": "label", "class": "label", "category": "label", "target": "label", "score": "label", "output": "label",
}

// secondTexts maps key names for a second text to text_pair, for lines with a text.
var secondTexts = map[string]string{
	"sentence": "text_pair", "sentence1": "text_pair", "premise": "text_pair", "question": "text_pair", "question1": "text_pair", "text1": "text_pair",
	"sentence2": "text_pair", "hypothesis": "text_pair", "question2": "text_pair", "text2": "text_pair", "passage": "text_pair", "context": "text_pair",
}

// labelledAdvice maps unsupported keys that change what is learned to advice, for labelled rows.
var labelledAdvice = map[string]string{
	"labels":        `what is to be learned is called "label" here`,
	"weight":        weightAdvice,
	"weights":       weightAdvice,
	"sample_weight": weightAdvice,
	"loss_weight":   weightAdvice,
	"image":         mediaAdvice,
	"images":        mediaAdvice,
	"audio":         mediaAdvice,
	"video":         mediaAdvice,
}

// parseLabelled parses a line with a label.
func parseLabelled(fields map[string]json.RawMessage, keys []string, p Problem) (r record, err error) {
	r.kind = kindLabelled
	for _, key := range []string{"text", "text_pair"} {
		if raw, has := fields[key]; key == "text_pair" && (!has || string(raw) == "null") {
			continue
		}
		text, err := wholeField(fields, keys, key, "text and label, and perhaps text_pair", labelledSynonyms)
		if err != nil {
			return record{}, err
		}
		r.texts = append(r.texts, text)
	}
	if len(r.texts) == 2 {
		r.kind = kindLabelledPair
	}
	raw, has := fields["label"]
	if !has {
		return record{}, problem(ErrKeys, "%s, expected label too%s", listKeys(keys), wholeHint(keys, "label", labelledSynonyms))
	}
	if err := refuseKeys(fields, keys, "text_pair", secondTexts, labelledAdvice); err != nil {
		return record{}, err
	}
	r.label, err = parseLabel(raw, p)
	return r, err
}

// Unlabelled tokenizes texts for a classifier. Their labels have no meaning.
func Unlabelled(ctx context.Context, texts []string, o Options) (*Dataset, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := loading{encoder: encoder{o}, set: newDataset()}
	rows := func(yield func(int, error) bool) {
		for i := range texts {
			if !yield(i, nil) {
				return
			}
		}
	}
	err = inOrder(ctx, o.Workers, rows, func(i int) (sample, error) {
		s, err := l.encoder.labelled(record{kind: kindLabelled, texts: texts[i : i+1], label: &label{numbers: []float64{0}}})
		if err != nil {
			err = fmt.Errorf("data: text %d: %w", i, err)
		}
		return s, err
	}, l.add)
	if err == nil {
		l.set.labels, err = convertLabels(l.labels, o)
	}
	return l.set, err
}

// labelled tokenizes a row with a label.
func (e encoder) labelled(r record) (sample, error) {
	if e.Texts == nil {
		return sample{}, problem(ErrOption, "%s needs a tokenizer", r.kind)
	}
	key := "text"
	if len(r.texts) == 2 {
		key = "text and text_pair"
	}
	ids, types, cut, err := e.Texts.EncodeJoined(r.texts, e.most())
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", key, err)
	}
	s, err := e.wholeText(sample{types: types, label: r.label}, key, ids, cut)
	if err != nil || s.dropped {
		return s, err
	}
	for _, t := range types {
		if e.Types > 0 && int(t) >= e.Types {
			return s, problem(ErrTokenID, "%s: token of type %d, expected 0 to %d as the model has them", key, t, e.Types-1)
		}
	}
	return s, nil
}
