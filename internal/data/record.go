package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// kind is the kind of a JSON line.
type kind string

const (
	kindText       kind = "text"
	kindCompletion kind = "prompt and completion"
	kindMessages   kind = "messages"
)

// kinds maps each key to its kind of row.
var kinds = map[string]kind{
	"text": kindText, "prompt": kindCompletion, "completion": kindCompletion, "messages": kindMessages,
}

// keyNames lists the keys of kinds in the order of the documentation.
var keyNames = []string{"text", "prompt", "completion", "messages"}

// synonyms maps key names of other datasets to ours, for error messages.
var synonyms = map[string]string{
	"instruction": "prompt", "input": "prompt", "question": "prompt", "query": "prompt",
	"output": "completion", "response": "completion", "answer": "completion",
	"conversations": "messages", "conversation": "messages", "dialog": "messages", "chat": "messages",
	"content": "text", "body": "text", "document": "text",
}

// record is one line of a JSON lines file.
type record struct {
	kind               kind
	text               string
	prompt, completion string
	conversation       Conversation
	texts              []string // texts of a whole-row task
	answers            []record // answers to one prompt: chosen and rejected
	label              *label   // label of a labelled row
}

// sample tokenizes the record.
func (r record) sample(e encoder) (sample, error) {
	switch {
	case r.label != nil:
		return e.labelled(r)
	case r.texts != nil:
		return e.whole(r)
	case r.answers != nil:
		return e.preference(r)
	}
	if e.Tokenizer == nil {
		return sample{}, problem(ErrOption, "%s needs a tokenizer", r.kind)
	}
	switch r.kind {
	case kindCompletion:
		return e.completion(r.prompt, r.completion)
	case kindMessages:
		return e.conversation(r.conversation)
	}
	return e.text(r.text)
}

// parse parses a line.
func (e encoder) parse(line []byte) (record, error) {
	switch e.Rows {
	case PairRows:
		return parsePair(line)
	case LabelledRows:
		return parseLabelled(line, e.Problem)
	case PreferenceRows:
		return parsePreference(line)
	}
	return parseRecord(line)
}

// parseRecord parses a line of a language task: an object with text, with prompt and completion, or with messages (and
// tools). Other keys are ignored, unless they change what is learned.
func parseRecord(line []byte) (record, error) {
	fields, keys, err := parseLine(line)
	if err != nil {
		return record{}, err
	}
	var r record
	for _, key := range keys {
		k, known := kinds[key]
		switch {
		case !known:
		case r.kind != "" && r.kind != k:
			return record{}, problem(ErrKeys, "found %q beside %s, expected one kind of row", key, r.kind)
		default:
			r.kind = k
		}
	}
	if r.kind != "" {
		if err := refuseIgnored(r.kind, fields, keys); err != nil {
			return record{}, err
		}
	}
	switch r.kind {
	case "":
		return record{}, problem(ErrKeys, "%s, expected text, or prompt and completion, or messages%s", listKeys(keys), keyHint(keys))
	case kindText:
		r.text, err = stringField(fields, keys, "text")
	case kindCompletion:
		if r.prompt, err = stringField(fields, keys, "prompt"); err == nil {
			r.completion, err = stringField(fields, keys, "completion")
		}
	case kindMessages:
		r.conversation, err = conversationOf(fields)
	}
	return r, err
}

// parseLine parses a line and returns the fields of its object, and the keys in order.
func parseLine(line []byte) (map[string]json.RawMessage, []string, error) {
	if !utf8.Valid(line) {
		return nil, nil, problem(ErrUTF8, "byte %d is not UTF-8", validPrefix(line)+1)
	}
	return parseObject(line)
}

// parseObject parses a JSON object and returns its fields, and the keys in order.
func parseObject(line []byte) (map[string]json.RawMessage, []string, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	open, err := dec.Token()
	if err != nil {
		return nil, nil, syntaxProblem(line, err)
	}
	if open != json.Delim('{') {
		what := "found " + describe(bytes.TrimSpace(line))
		if open == json.Delim('[') {
			return nil, nil, problem(ErrFormat, "%s, expected one JSON object per line, without brackets around them", what)
		}
		return nil, nil, problem(ErrFormat, "%s, expected a JSON object", what)
	}
	fields, keys := map[string]json.RawMessage{}, []string(nil)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, nil, syntaxProblem(line, err)
		}
		key, _ := token.(string) // the decoder accepts only string keys
		if _, twice := fields[key]; twice {
			return nil, nil, problem(ErrKeys, "found %q twice", key)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, nil, syntaxProblem(line, err)
		}
		fields[key] = value
		keys = append(keys, key)
	}
	if _, err := dec.Token(); err != nil {
		return nil, nil, syntaxProblem(line, err)
	}
	if rest := bytes.TrimSpace(line[dec.InputOffset():]); len(rest) > 0 {
		return nil, nil, problem(ErrFormat, "found more behind the JSON object at byte %d, expected one object per line", dec.InputOffset()+1)
	}
	return fields, keys, nil
}

// syntaxProblem returns an error with the position of a JSON syntax error.
func syntaxProblem(line []byte, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return problem(ErrFormat, "not valid JSON: it ends within the object")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return problem(ErrFormat, "not valid JSON at byte %d: %v", min(syntax.Offset, int64(len(line))), syntax)
	}
	return problem(ErrFormat, "not valid JSON: %v", err)
}

// stringField returns the text of a required key.
func stringField(fields map[string]json.RawMessage, keys []string, key string) (string, error) {
	raw, ok := fields[key]
	if !ok {
		return "", problem(ErrKeys, "%s, expected %q too%s", listKeys(keys), key, keyHint(keys))
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", problem(ErrFormat, "%s: found %s, expected text", key, describe(raw))
	}
	return *s, nil
}

// conversationOf parses messages and tools.
func conversationOf(fields map[string]json.RawMessage) (Conversation, error) {
	m, err := messagesOf("messages", fields["messages"])
	if err != nil {
		return Conversation{}, err
	}
	tools, err := toolsOf(fields["tools"])
	return Conversation{fields["messages"], tools, m.silent}, err
}

// messages is a conversation or a part of one.
type messages struct {
	each   []json.RawMessage
	silent []int // indices of messages whose answers are not learned
}

// messagesOf parses and checks the messages of a key. Roles are checked by the template.
func messagesOf(key string, list json.RawMessage) (c messages, err error) {
	if err := json.Unmarshal(list, &c.each); err != nil || c.each == nil {
		return c, problem(ErrFormat, "%s: found %s, expected an array of objects with role and content", key, describe(list))
	}
	if len(c.each) == 0 {
		return c, problem(ErrFormat, "%s: found an empty array, expected objects with role and content", key)
	}
	for i, raw := range c.each {
		where := fmt.Sprintf("%s[%d]", key, i)
		var message map[string]json.RawMessage
		if err := json.Unmarshal(raw, &message); err != nil || message == nil {
			return c, problem(ErrFormat, "%s: found %s, expected an object with role and content", where, describe(raw))
		}
		role, ok := message["role"]
		if !ok {
			hint := ""
			if _, shareGPT := message["from"]; shareGPT {
				hint = " (from and value are called role and content here, human and gpt user and assistant)"
			}
			return c, problem(ErrKeys, "%s: no role, expected one such as user or assistant%s", where, hint)
		}
		if role[0] != '"' {
			return c, problem(ErrFormat, "%s: role: found %s, expected text", where, describe(role))
		}
		content, has := message["content"]
		if _, calls := message["tool_calls"]; !has && !calls {
			return c, problem(ErrKeys, "%s: no content", where)
		}
		if has && !strings.ContainsRune(`"[n`, rune(content[0])) { // text, parts or null
			return c, problem(ErrFormat, "%s: content: found %s, expected text or a list of parts", where, describe(content))
		}
		if err := chat.CheckContent(content); err != nil {
			return c, problem(ErrFormat, "%s.%v", where, err)
		}
		silent, err := weigh(where, message)
		if err != nil {
			return c, err
		}
		if silent {
			c.silent = append(c.silent, i)
		}
	}
	return c, nil
}

// toolsOf checks the optional tools.
func toolsOf(raw json.RawMessage) (json.RawMessage, error) {
	switch tools := bytes.TrimSpace(raw); {
	case len(tools) == 0 || string(tools) == "null":
		return nil, nil
	case tools[0] != '[':
		return nil, problem(ErrFormat, "tools: found %s, expected an array", describe(tools))
	}
	return raw, nil
}

// describe describes a JSON value for error messages.
func describe(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "text"
	case raw[0] == 'n':
		return "null"
	case raw[0] == 't' || raw[0] == 'f':
		return string(raw)
	}
	return "a number"
}

// listKeys lists the keys of a line for error messages.
func listKeys(keys []string) string {
	const most = 6
	switch {
	case len(keys) == 0:
		return "found no key"
	case len(keys) > most:
		return fmt.Sprintf("found %q and %d more keys", keys[:most], len(keys)-most)
	}
	return fmt.Sprintf("found %q", keys)
}

// keyHint returns a hint about a key that was probably meant as one of ours.
func keyHint(keys []string) string {
	for _, key := range keys {
		switch key {
		case "anchor":
			return " (pairs are learned with task: embedding)"
		case "chosen", "rejected", "preferred_output", "non_preferred_output":
			return " (preferences are learned with task: preference)"
		}
	}
	for _, key := range keys {
		if _, known := kinds[key]; known {
			continue
		}
		if name, ok := synonyms[key]; ok {
			return fmt.Sprintf(" (%q is called %q here)", key, name)
		}
		if hint := suggest.DidYouMean(key, keyNames); hint != "" {
			return hint
		}
	}
	return ""
}

// validPrefix returns the number of bytes before the first invalid UTF-8.
func validPrefix(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}
