package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// shareGPT rows are conversations of messages with from and value, and optionally system and tools. A list under these
// names whose messages have role and content is read like messages.
var shareGPT = layout{
	kind: "ShareGPT",
	columns: []column{
		{names: []string{"system", "system_prompt"}, optional: true}, {names: []string{"tools"}, optional: true},
		{names: []string{"conversations", "conversation"}},
	},
	content: true,
	parse:   parseShareGPT,
}

// shareGPTRoles maps the values of from to roles.
var shareGPTRoles = map[string]string{
	"human": "user", "user": "user", "prompter": "user",
	"gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "model": "assistant", "bot": "assistant",
	"system": "system", "function_call": calls, "tool_call": calls,
	"observation": "tool", "tool": "tool", "function": "tool", "function_response": "tool", "tool_response": "tool",
}

// calls is the role of an assistant's message that calls tools.
const calls = "calls"

// parseShareGPT parses a conversation.
func parseShareGPT(c columns) (record, error) {
	key, list := c.names[2], unquoted(c.values[2])
	var each []map[string]json.RawMessage
	if err := json.Unmarshal(list, &each); err != nil || each == nil {
		return record{}, problem(ErrFormat, "%s: found %s, expected an array of objects with from and value", key, describe(c.values[2]))
	}
	if len(each) > 0 && each[0]["role"] != nil {
		return c.openAI(key, list)
	}
	tools, err := toolsOf(c.values[1])
	if err != nil {
		return record{}, err
	}
	system, err := c.optional(0)
	if err != nil {
		return record{}, err
	}
	var m []turn
	if system != "" {
		m = append(m, turn{Role: "system", Content: system})
	}
	var silent []int
	for i, message := range each {
		where := fmt.Sprintf("%s[%d]", key, i)
		t, err := shareGPTTurn(where, message)
		if err != nil {
			return record{}, err
		}
		if err := follows(where, m, &t); err != nil {
			return record{}, err
		}
		message["role"] = quoted(t.Role)
		quiet, err := weigh(where, message)
		if err != nil {
			return record{}, err
		}
		if quiet {
			silent = append(silent, len(m))
		}
		m = append(m, t)
	}
	if len(each) == 0 {
		return record{}, problem(ErrFormat, "%s: found an empty array, expected objects with from and value", key)
	}
	return record{conversation: Conversation{Messages: encodeTurns(m), Tools: tools, Silent: silent}}, nil
}

// openAI parses a conversation whose messages have role and content.
func (c columns) openAI(key string, list json.RawMessage) (r record, err error) {
	if c.has(0) {
		return r, problem(ErrIgnored, "%s: found %s beside messages, which would be ignored: %s", c.names[0], describe(c.values[0]), systemAdvice)
	}
	r.kind = kindMessages
	r.conversation, err = conversationOf(key, list, c.values[1])
	return r, err
}

// shareGPTTurn parses a message.
func shareGPTTurn(where string, message map[string]json.RawMessage) (t turn, err error) {
	for _, key := range []string{"from", "value"} {
		if message[key] == nil {
			return t, problem(ErrKeys, "%s: no %s, expected from and value (or role and content in all messages)", where, key)
		}
	}
	from, err := textValue(where+".from", message["from"])
	if err != nil {
		return t, err
	}
	if t.Content, err = textValue(where+".value", message["value"]); err != nil {
		return t, err
	}
	role, known := shareGPTRoles[from]
	if !known {
		names := slices.Sorted(maps.Keys(shareGPTRoles))
		return t, problem(ErrFormat, "%s.from: %s", where, suggest.Expected(from, names))
	}
	t.Role = role
	if role != calls {
		return t, nil
	}
	t.Role = "assistant"
	if t.Calls, err = callsOf(t.Content); err != nil {
		return t, problem(ErrFormat, "%s.value: %v", where, err)
	}
	t.Content = ""
	return t, nil
}

// callsOf returns the calls of tools in a text: an object with name and arguments, or an array of such objects.
func callsOf(text string) (json.RawMessage, error) {
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	type call struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	raw := bytes.TrimSpace([]byte(text))
	var list []function
	err := json.Unmarshal(raw, &list)
	if err != nil {
		list = make([]function, 1)
		err = json.Unmarshal(raw, &list[0])
	}
	if err != nil || len(list) == 0 || slices.ContainsFunc(list, func(f function) bool { return f.Name == "" || f.Arguments == nil }) {
		return nil, fmt.Errorf("found %q, expected a JSON object with name and arguments of the call", shorten(text))
	}
	var all []call
	for _, f := range list {
		f.Arguments = unquoted(f.Arguments)
		all = append(all, call{"function", f})
	}
	return json.Marshal(all)
}

// follows returns an error if a message cannot follow the others: roles alternate, and system is first.
func follows(where string, before []turn, t *turn) error {
	last := turn{}
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	var expected string
	switch {
	case t.Role == "system" && len(before) > 0:
		expected = "the system message first"
		if last.Role == "system" {
			expected = "one system message"
		}
	case t.Role == "user" && last.Role == "user":
		expected = "an answer (gpt) between two messages of the user"
	case t.Role == "user" && len(last.Calls) > 0, t.Role == "assistant" && len(last.Calls) > 0:
		expected = "the result of the tool (observation) after its call"
	case t.Role == "assistant" && last.Role == "assistant":
		expected = "a message of the user (human) between two answers"
	case t.Role == "assistant" && (last.Role == "" || last.Role == "system"):
		expected = "a message of the user (human) first"
	case t.Role == "tool" && len(last.Calls) == 0 && last.Role != "tool":
		expected = "a call (function_call) before the result of a tool"
	}
	if expected == "" {
		return nil
	}
	return problem(ErrFormat, "%s: found a message of the %s after %s, expected %s", where, t.Role, orNone(last.Role), expected)
}

// orNone describes the message before another.
func orNone(role string) string {
	if role == "" {
		return "none"
	}
	return "one of the " + role
}
