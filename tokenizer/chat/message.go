package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Message is one turn of a conversation.
//
// A message parsed from JSON keeps all its fields in order (tool calls, content in parts, …). Role and Content then
// hold its role and its content, if that is a string, and can be changed. In a message built in Go, Fields adds other
// values that the template reads, such as "tool_calls" or "name"; they may be of any type that encodes to JSON. Since a
// map has no order, its keys are sorted and follow role and content.
//
// Fields that are null are not passed to the template, except for a content in Fields. The reasoning of a message can
// be given as "reasoning_content", "thinking" or "reasoning"; templates can read it under the first two names.
type Message struct {
	Role    string
	Content string
	Fields  map[string]any

	raw *dict // set for a message parsed from JSON
}

// UnmarshalJSON parses an object with at least a role.
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := fromJSON(data)
	if err != nil {
		return err
	}
	d, ok := v.(*dict)
	if !ok {
		return fmt.Errorf("a chat message is an object, not a %s", typeName(v))
	}
	*m = Message{raw: d}
	role, _ := d.get("role")
	if m.Role, ok = role.(string); !ok {
		return fmt.Errorf("a chat message needs a role that is a string")
	}
	content, _ := d.get("content")
	m.Content, _ = content.(string)
	return nil
}

// MarshalJSON encodes the message in the form that templates see.
func (m Message) MarshalJSON() ([]byte, error) {
	d, err := m.value()
	if err != nil {
		return nil, err
	}
	st := jsonStyle{meter: unlimited(), item: ",", separator: ":"}
	return st.append(nil, d, 0)
}

var _ json.Marshaler = Message{}

// value returns the message as a dictionary.
func (m Message) value() (*dict, error) {
	d := newDict()
	if m.raw == nil {
		d.setString("role", m.Role)
		if _, ok := m.Fields["content"]; !ok {
			d.setString("content", m.Content)
		}
	} else {
		for i, key := range m.raw.keys {
			value := m.raw.values[i]
			if _, isText := value.(string); key == "content" && (isText || m.Content != "") {
				value = m.Content
			}
			if key == "role" {
				value = m.Role
			}
			if value != nil {
				_ = d.set(nil, key, value)
			}
		}
		if _, ok := m.raw.get("content"); !ok && m.Content != "" {
			d.setString("content", m.Content)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
		v, err := fromGo(m.Fields[key])
		if err != nil {
			return nil, fmt.Errorf("%w: field %q of a message: %v", ErrRender, key, err)
		}
		if v != nil || key == "content" {
			d.setString(key, v)
		}
	}
	return d, nil
}

// withReasoning adds a message's reasoning under the names that templates use.
func withReasoning(d *dict) *dict {
	for _, key := range []string{"reasoning_content", "thinking", "reasoning"} {
		v, ok := d.get(key)
		if !ok {
			continue
		}
		out := newDict()
		out.setString("thinking", v)
		for i, key := range d.keys {
			_ = out.set(nil, key, d.values[i])
		}
		out.setString("reasoning_content", v)
		return out
	}
	return d
}
