package data

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
)

const (
	kindPreference     kind = "prompt, chosen and rejected"
	kindConversations  kind = "chosen and rejected messages"
	kindPreferredInput kind = "input, preferred_output and non_preferred_output"
)

// preferenceSynonyms maps key names of other datasets to the keys of preferences.
var preferenceSynonyms = map[string]string{
	"question": "prompt", "instruction": "prompt", "query": "prompt",
	"accepted": "chosen", "preferred": "chosen", "preferred_response": "chosen", "response_w": "chosen", "win": "chosen",
	"dispreferred": "rejected", "non_preferred": "rejected", "rejected_response": "rejected", "response_l": "rejected", "lose": "rejected",
}

// preferenceAdvice maps unsupported keys that change what is learned to advice, for preferences.
var preferenceAdvice = map[string]string{
	"label":         "each row has two answers, of which the one that is chosen is preferred: leave the key out",
	"labels":        "each row has two answers, of which the one that is chosen is preferred: leave the key out",
	"weight":        weightAdvice,
	"weights":       weightAdvice,
	"sample_weight": weightAdvice,
	"image":         mediaAdvice,
	"images":        mediaAdvice,
	"audio":         mediaAdvice,
	"video":         mediaAdvice,
	"system":        systemAdvice,
	"system_prompt": systemAdvice,

	"chat_template_kwargs": templateAdvice,
}

const preferenceKeys = "prompt, chosen and rejected, or chosen and rejected messages, or input, preferred_output and non_preferred_output"

// parsePreference parses a line with two answers to one prompt, in one of the formats of TRL and OpenAI.
func parsePreference(fields map[string]json.RawMessage, keys []string) (record, error) {
	if err := refuseKeys(fields, keys, "", nil, preferenceAdvice); err != nil {
		return record{}, err
	}
	switch {
	case slices.Contains(keys, "preferred_output") || slices.Contains(keys, "non_preferred_output"):
		return parsePreferred(fields, keys)
	case !slices.Contains(keys, "chosen") || !slices.Contains(keys, "rejected"):
		missing := "chosen"
		if slices.Contains(keys, missing) {
			missing = "rejected"
		}
		return record{}, problem(ErrKeys, "%s, expected %s%s", listKeys(keys), preferenceKeys, wholeHint(keys, missing, preferenceSynonyms))
	case fields["chosen"][0] == '[':
		return parseConversations(fields, keys)
	}
	r := record{kind: kindPreference}
	prompt, err := wholeField(fields, keys, "prompt", "prompt too", preferenceSynonyms)
	if err != nil {
		return record{}, err
	}
	if tools := fields["tools"]; len(tools) > 0 && !saysNothing(tools) {
		return record{}, problem(ErrIgnored, "tools: found %s beside %s, which would be ignored: %s", describe(tools), r.kind, toolsAdvice)
	}
	for _, key := range []string{"chosen", "rejected"} {
		answer, err := stringField(fields, keys, key)
		if err != nil {
			return record{}, err
		}
		r.answers = append(r.answers, record{kind: kindCompletion, prompt: prompt, completion: answer})
	}
	return r, nil
}

// parseConversations parses two conversations, which follow a prompt or start with it.
func parseConversations(fields map[string]json.RawMessage, keys []string) (record, error) {
	chosen, err := messagesOf("chosen", fields["chosen"])
	if err != nil {
		return record{}, err
	}
	rejected, err := messagesOf("rejected", fields["rejected"])
	if err != nil {
		return record{}, err
	}
	var prompt messages
	if raw, has := fields["prompt"]; has && raw[0] == '[' {
		if prompt, err = messagesOf("prompt", raw); err != nil {
			return record{}, err
		}
	} else { // a text prompt only repeats the common start
		prompt, chosen, rejected = common(chosen, rejected)
		if len(prompt.each) == 0 {
			return record{}, problem(ErrKeys, "%s: the messages of chosen and rejected differ from the first, expected a prompt that both begin with, or the key prompt", listKeys(keys))
		}
	}
	return answered(kindConversations, fields["tools"], prompt, chosen, rejected)
}

// parsePreferred parses a row of OpenAI's preference fine-tuning.
func parsePreferred(fields map[string]json.RawMessage, keys []string) (record, error) {
	for _, key := range []string{"input", "preferred_output", "non_preferred_output"} {
		if _, has := fields[key]; !has {
			return record{}, problem(ErrKeys, "%s, expected %q too", listKeys(keys), key)
		}
	}
	var input map[string]json.RawMessage
	if err := json.Unmarshal(fields["input"], &input); err != nil || input == nil {
		return record{}, problem(ErrFormat, "input: found %s, expected an object with messages", describe(fields["input"]))
	}
	if _, has := input["messages"]; !has {
		return record{}, problem(ErrKeys, "input: no messages")
	}
	prompt, err := messagesOf("input.messages", input["messages"])
	if err != nil {
		return record{}, err
	}
	chosen, err := messagesOf("preferred_output", fields["preferred_output"])
	if err != nil {
		return record{}, err
	}
	rejected, err := messagesOf("non_preferred_output", fields["non_preferred_output"])
	if err != nil {
		return record{}, err
	}
	return answered(kindPreferredInput, input["tools"], prompt, chosen, rejected)
}

// answered returns the record of a prompt and answers to it.
func answered(k kind, tools json.RawMessage, prompt messages, answers ...messages) (record, error) {
	tools, err := toolsOf(tools)
	if err != nil {
		return record{}, err
	}
	r := record{kind: k}
	for _, answer := range answers {
		c := Conversation{Messages: join(prompt, answer), Tools: tools}
		for i := range prompt.each {
			c.Silent = append(c.Silent, i)
		}
		for _, i := range answer.silent {
			c.Silent = append(c.Silent, len(prompt.each)+i)
		}
		r.answers = append(r.answers, record{kind: kindMessages, conversation: c})
	}
	return r, nil
}

// common removes the common start of two conversations, but leaves at least one message of each.
func common(a, b messages) (prompt, restA, restB messages) {
	n := 0
	for n+1 < min(len(a.each), len(b.each)) && sameJSON(a.each[n], b.each[n]) {
		n++
	}
	prompt.each = a.each[:n]
	return prompt, a.from(n), b.from(n)
}

// from returns the messages from index n on.
func (m messages) from(n int) messages {
	rest := messages{each: m.each[n:]}
	for _, i := range m.silent {
		if i >= n {
			rest.silent = append(rest.silent, i-n)
		}
	}
	return rest
}

// join returns a JSON array of all messages.
func join(all ...messages) json.RawMessage {
	var each [][]byte
	for _, m := range all {
		for _, raw := range m.each {
			each = append(each, raw)
		}
	}
	return slices.Concat([]byte("["), bytes.Join(each, []byte(",")), []byte("]"))
}

// sameJSON reports whether two JSON values are equal.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// preference tokenizes both answers, each after its prompt.
func (e encoder) preference(r record) (sample, error) {
	var s sample
	for i, answer := range r.answers {
		one, err := answer.sample(e)
		if err != nil {
			return s, within([]string{"chosen", "rejected"}[i], err)
		}
		if one.dropped {
			return one, nil
		}
		s.texts, s.answers, s.truncated = append(s.texts, one.ids), append(s.answers, one.loss), s.truncated || one.truncated
	}
	return s, nil
}
