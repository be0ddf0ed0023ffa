package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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

// record is a parsed row.
type record struct {
	kind               kind
	read               *columns // of its layout; nil for rows that are no language
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
	switch {
	case r.kind == kindCompletion:
		return e.completion(r.prompt, r.completion)
	case r.conversation.Messages != nil:
		return e.conversation(r.kind, r.conversation)
	}
	return e.text(r.text)
}

// parse parses a row. If it is textual, all its values are text.
func (e encoder) parse(object []byte, textual bool) (record, error) {
	fields, keys, err := parseLine(object)
	if err != nil {
		return record{}, err
	}
	if keys, err = e.rename(fields, keys); err != nil {
		return record{}, err
	}
	if textual {
		untext(fields)
	}
	switch e.Rows {
	case PairRows:
		return parsePair(fields, keys)
	case LabelledRows:
		return parseLabelled(fields, keys, e.Problem)
	case PreferenceRows:
		return parsePreference(fields, keys)
	}
	return parseLanguage(fields, keys)
}

// rename applies Columns and IgnoreColumns to a row.
func (o *Options) rename(fields map[string]json.RawMessage, keys []string) ([]string, error) {
	for _, name := range o.IgnoreColumns {
		if _, has := fields[name]; has {
			delete(fields, name)
			keys = slices.DeleteFunc(keys, func(k string) bool { return k == name })
		}
	}
	if len(o.Columns) == 0 {
		return keys, nil
	}
	values := maps.Clone(fields)
	for _, to := range slices.Sorted(maps.Keys(o.Columns)) {
		from := o.Columns[to]
		if _, has := values[from]; !has {
			return nil, problem(ErrKeys, "%s, expected %q too, which columns maps to %s%s", listKeys(keys), from, to, suggest.DidYouMean(from, keys))
		}
		if _, has := values[to]; has && from != to && !o.maps(to) {
			return nil, problem(ErrKeys, "found the column %q beside %q, which columns maps to it: leave it out with ignore_columns: [%s]", to, from, to)
		}
	}
	for _, from := range o.Columns {
		delete(fields, from)
	}
	for to, from := range o.Columns {
		fields[to] = values[from]
	}
	renamed := make([]string, 0, len(keys))
	for _, key := range keys {
		if _, still := fields[key]; still && !o.maps(key) && o.Columns[key] == "" {
			renamed = append(renamed, key)
		}
		for _, to := range slices.Sorted(maps.Keys(o.Columns)) {
			if o.Columns[to] == key {
				renamed = append(renamed, to)
			}
		}
	}
	return renamed, nil
}

// maps reports whether Columns renames a column.
func (o *Options) maps(name string) bool {
	for _, from := range o.Columns {
		if from == name {
			return true
		}
	}
	return false
}

// untext converts labels in text that are numbers or lists. A column of text has all its values as text.
func untext(fields map[string]json.RawMessage) {
	raw, has := fields["label"]
	if !has {
		return
	}
	if value := bytes.TrimSpace(unquoted(raw)); len(value) > 0 && (value[0] == '[' || value[0] == '-' || value[0] >= '0' && value[0] <= '9') {
		fields["label"] = value
	}
}

// parseLine parses a line and returns the fields of its object, and the keys in order.
func parseLine(line []byte) (map[string]json.RawMessage, []string, error) {
	if err := checkUTF8(line); err != nil {
		return nil, nil, err
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
		return nil, nil, problem(ErrFormat, "found %s, expected a JSON object", describe(bytes.TrimSpace(line)))
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
		return "", problem(ErrKeys, "%s, expected %q too", listKeys(keys), key)
	}
	return textValue(key, raw)
}

// conversationOf parses the messages of a key, and tools.
func conversationOf(key string, list, tools json.RawMessage) (Conversation, error) {
	list = unquoted(list)
	m, err := messagesOf(key, list)
	if err != nil {
		return Conversation{}, err
	}
	tools, err = toolsOf(tools)
	return Conversation{list, tools, m.silent}, err
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
				hint = " (a list with from and value is called conversations)"
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
	switch tools := bytes.TrimSpace(unquoted(raw)); {
	case len(tools) == 0, string(tools) == "null", string(tools) == `""`:
		return nil, nil
	case tools[0] != '[':
		return nil, problem(ErrFormat, "tools: found %s, expected an array", describe(tools))
	default:
		return tools, nil
	}
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
