package data

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Rows is a kind of rows in JSON lines. It determines what is learned.
type Rows string

// Kinds of rows. All but LanguageRows belong to whole-row tasks: a row counts once, regardless of its number of tokens.
const (
	// LanguageRows are texts whose tokens are predicted: text, prompt and completion, or messages.
	LanguageRows Rows = "language"
	// PairRows are matching texts: anchor, positive and, in all rows or in none, a non-matching negative.
	PairRows Rows = "pairs"
	// LabelledRows are texts, or pairs of texts, with a label: text, label and, in all rows of a file or in none,
	// text_pair.
	LabelledRows Rows = "labelled"
	// PreferenceRows are two answers to one prompt; the first is preferred. They are in the format of TRL (prompt,
	// chosen and rejected, each as text or messages, or both as conversations with a common start) or of OpenAI (input,
	// preferred_output and non_preferred_output).
	PreferenceRows Rows = "preferences"
)

// TextTokenizer is the interface of a tokenizer for whole-row tasks. It must be safe for concurrent use.
type TextTokenizer interface {
	// EncodeWithin returns the ids of a text with its special tokens, truncated to at most most ids.
	EncodeWithin(text string, most int) (ids []int32, cut bool, err error)
	// EncodeJoined returns the ids of one text or of a pair of texts, truncated likewise, and the type of each token.
	EncodeJoined(texts []string, most int) (ids, types []int32, cut bool, err error)
}

const (
	kindPair   kind = "anchor and positive"
	kindTriple kind = "anchor, positive and negative"
)

var pairKeys = []string{"anchor", "positive", "negative"}

// pairSynonyms maps key names of other datasets to the keys of pairs.
var pairSynonyms = map[string]string{
	"query": "anchor", "question": "anchor", "sentence1": "anchor", "sentence_A": "anchor", "text1": "anchor", "premise": "anchor", "title": "anchor",
	"pos": "positive", "answer": "positive", "passage": "positive", "document": "positive", "sentence2": "positive", "sentence_B": "positive", "text2": "positive", "entailment": "positive",
	"neg": "negative", "hard_negative": "negative", "negatives": "negative", "contradiction": "negative", "negative_1": "negative",
}

// pairAdvice maps unsupported keys that change what is learned to advice, for pairs.
var pairAdvice = map[string]string{
	"label":  "each row is a pair that belongs together: leave out those that do not, or give their second text as negative",
	"labels": "each row is a pair that belongs together: leave out those that do not, or give their second text as negative",
	"score":  "each row is a pair that belongs together: leave out those that do not, or give their second text as negative",
	"weight": weightAdvice,
}

// parsePair parses a line of a pair.
func parsePair(fields map[string]json.RawMessage, keys []string) (record, error) {
	if err := refuseKeys(fields, keys, "negative", pairSynonyms, pairAdvice); err != nil {
		return record{}, err
	}
	r := record{kind: kindPair}
	for _, key := range pairKeys {
		if raw, has := fields[key]; key == "negative" && (!has || string(raw) == "null") {
			continue
		}
		text, err := wholeField(fields, keys, key, "anchor and positive, and perhaps negative", pairSynonyms)
		if err != nil {
			return record{}, err
		}
		r.texts = append(r.texts, text)
	}
	if len(r.texts) == len(pairKeys) {
		r.kind = kindTriple
	}
	return r, nil
}

// refuseKeys returns an error for an unsupported key with a value. Unsupported are keys with advice, and synonyms of
// the optional key if that is absent.
func refuseKeys(fields map[string]json.RawMessage, keys []string, optional string, synonyms, advice map[string]string) error {
	for _, key := range keys {
		text, means := advice[key]
		if raw, there := fields[optional]; optional != "" && synonyms[key] == optional && !means && (!there || string(raw) == "null") {
			means, text = true, fmt.Sprintf("it is called %q here", optional)
		}
		if means && !saysNothing(fields[key]) {
			return problem(ErrIgnored, "%s: found %s, which would be ignored: %s", key, describe(fields[key]), text)
		}
	}
	return nil
}

// wholeField returns the text of a required key.
func wholeField(fields map[string]json.RawMessage, keys []string, key, expected string, synonyms map[string]string) (string, error) {
	raw, ok := fields[key]
	if !ok {
		return "", problem(ErrKeys, "%s, expected %s%s", listKeys(keys), expected, wholeHint(keys, key, synonyms))
	}
	return textValue(key, raw)
}

// wholeHint returns a hint about a key that was probably meant as key.
func wholeHint(keys []string, key string, synonyms map[string]string) string {
	for _, k := range keys {
		if synonyms[k] == key {
			return fmt.Sprintf(" (%q is called %q here)", k, key)
		}
	}
	for _, k := range keys {
		if hint := suggest.DidYouMean(k, []string{key}); hint != "" {
			return hint
		}
	}
	return ""
}

// whole tokenizes each text of a row separately.
func (e encoder) whole(r record) (sample, error) {
	if e.Texts == nil {
		return sample{}, problem(ErrOption, "%s needs a tokenizer", r.kind)
	}
	s := sample{}
	for i, text := range r.texts {
		ids, cut, err := e.Texts.EncodeWithin(text, e.most())
		if err != nil {
			return s, fmt.Errorf("%s: %w", pairKeys[i], err)
		}
		if s, err = e.wholeText(s, pairKeys[i], ids, cut); err != nil || s.dropped {
			return s, err
		}
	}
	return s, nil
}

// most returns the maximum number of tokens of a text.
func (e encoder) most() int {
	if e.MaxLength == 0 {
		return math.MaxInt
	}
	return e.MaxLength
}

// wholeText appends a text to a row.
func (e encoder) wholeText(s sample, key string, ids []int32, cut bool) (sample, error) {
	switch {
	case len(ids) == 0:
		return s, problem(ErrNoTarget, "%s: the text has no tokens", key)
	case cut && e.OnTooLong == Drop:
		return sample{dropped: true}, nil
	case cut && e.OnTooLong == RefuseLong:
		return s, problem(ErrTooLong, "%s: more tokens than the %d that a text may have", key, e.MaxLength)
	}
	s.texts, s.truncated = append(s.texts, slices.Clip(ids)), s.truncated || cut
	return s, e.checkIDs(ids)
}

// refuseFormat returns an error, because whole-row tasks need rows.
func (l *loading) refuseFormat(f Format) error {
	return problem(ErrFormat, "found the format %s, expected rows (JSON, CSV or Parquet) with %s", f, l.encoder.Rows.keys())
}

// keys returns the keys of a row for error messages.
func (r Rows) keys() string {
	switch r {
	case PairRows:
		return "anchor, positive, and perhaps negative"
	case LabelledRows:
		return "text, perhaps text_pair, and label"
	case PreferenceRows:
		return preferenceKeys
	}
	return languageKeys()
}
