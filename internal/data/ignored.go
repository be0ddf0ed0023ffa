package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// meaningful maps unsupported keys that change what is learned to advice. Ignoring such a key would train something
// else, so it is an error. All other unknown keys are metadata.
var meaningful = map[string]string{
	"label":           labelAdvice,
	"labels":          labelAdvice,
	"weight":          weightAdvice,
	"weights":         weightAdvice,
	"sample_weight":   weightAdvice,
	"loss_weight":     weightAdvice,
	"chosen":          preferredAdvice,
	"rejected":        preferredAdvice,
	"reward":          preferredAdvice,
	"image":           mediaAdvice,
	"images":          mediaAdvice,
	"audio":           mediaAdvice,
	"audios":          mediaAdvice,
	"video":           mediaAdvice,
	"videos":          mediaAdvice,
	"system":          systemAdvice,
	"system_prompt":   systemAdvice,
	"functions":       `the tools of messages are called "tools" here`,
	"documents":       templateAdvice,
	"input_ids":       tokensAdvice,
	"attention_mask":  tokensAdvice,
	"completion_mask": tokensAdvice,

	"chat_template_kwargs": templateAdvice,
}

const (
	labelAdvice     = "labels are learned with task: classification; for a model of language write the label as the text of a completion, or leave it out"
	weightAdvice    = "all rows count the same: repeat the row, or leave the key out"
	preferredAdvice = "preferences are learned with task: preference; to learn one answer alone leave the key out"
	mediaAdvice     = "models of text are trained here: leave the row or the key out"
	systemAdvice    = `give it as the first of messages, with the role "system", or put it into the prompt`
	templateAdvice  = "chat templates are given messages and tools alone: put it into messages, or leave it out"
	tokensAdvice    = "token ids are read from .safetensors files (format: tokens), not from JSON lines"
)

// adviceByKind maps keys that are unsupported only for one kind of row to advice.
var adviceByKind = map[kind]map[string]string{
	kindText:       {"tools": toolsAdvice},
	kindCompletion: {"tools": toolsAdvice, "input": "put it into the prompt, or leave it out", "instruction": "put it into the prompt, or leave it out"},
}

const toolsAdvice = "tools go with messages: give messages, or leave them out"

// weigh parses the weight of a message. Weight 0 makes the message silent, so that its answer is not learned; weight 1
// is the default. Other values are errors.
func weigh(where string, message map[string]json.RawMessage) (silent bool, err error) {
	for _, key := range []string{"weight", "train", "training"} {
		raw, ok := message[key]
		if !ok || saysNothing(raw) {
			continue
		}
		switch text := string(bytes.TrimSpace(raw)); {
		case slices.Contains([]string{"1", "1.0", "true"}, text):
		case key != "weight":
			return false, problem(ErrIgnored, `%s: %s: found %s, which would be ignored: give an answer that is not to be learned "weight": 0`, where, key, describe(raw))
		case text != "0" && text != "0.0":
			return false, problem(ErrFormat, "%s: weight: found %s, expected 0 for an answer that is not learned, or 1", where, shorten(text))
		case string(message["role"]) != `"assistant"`:
			return false, problem(ErrIgnored, "%s: weight: found 0 for the role %s, which would be ignored: answers of the assistant have weights", where, shorten(string(message["role"])))
		default:
			silent = true
		}
	}
	return silent, nil
}

// saysNothing reports whether a value is null or empty, like columns that a dataset fills only in other rows.
func saysNothing(raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	return v == nil || slices.Contains([]string{"", "[]", "map[]"}, fmt.Sprint(v))
}
