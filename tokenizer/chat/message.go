package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Message is one turn of a conversation.
//
// A message read from JSON keeps all its fields in their order, whatever they are (tool
// calls, content in parts, …); Role and Content then show its role and its content, if that
// is a string, and can be changed. In a message made by hand Fields adds what else the
// template reads, such as "tool_calls" or "name"; the values are anything that encodes to
// JSON. As a map has no order, its keys come sorted, behind role and content.
//
// Fields that are null are not passed to the template, but for a content that Fields gives. The reasoning of a message can be
// given as "reasoning_content", "thinking" or "reasoning": templates see it as each of the
// first two.
type Message struct {
	Role    string
	Content string
	Fields  map[string]any

	raw *dict // of a message read from JSON
}

// UnmarshalJSON reads an object with at least a role.
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

// MarshalJSON writes the message as templates see it.
func (m Message) MarshalJSON() ([]byte, error) {
	d, err := m.value()
	if err != nil {
		return nil, err
	}
	st := jsonStyle{meter: unlimited(), item: ",", separator: ":"}
	return st.append(nil, d, 0)
}

var _ json.Marshaler = Message{}

// value is the message as a dictionary.
func (m Message) value() (*dict, error) {
	d := newDict()
	if m.raw == nil {
		d.put("role", m.Role)
		if _, ok := m.Fields["content"]; !ok {
			d.put("content", m.Content)
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
			d.put("content", m.Content)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
		v, err := fromGo(m.Fields[key])
		if err != nil {
			return nil, fmt.Errorf("%w: field %q of a message: %v", ErrRender, key, err)
		}
		if v != nil || key == "content" {
			d.put(key, v)
		}
	}
	return d, nil
}

// withReasoning offers a message's reasoning under the names that templates know.
func withReasoning(d *dict) *dict {
	for _, key := range []string{"reasoning_content", "thinking", "reasoning"} {
		v, ok := d.get(key)
		if !ok {
			continue
		}
		out := newDict()
		out.put("thinking", v)
		for i, key := range d.keys {
			_ = out.set(nil, key, d.values[i])
		}
		out.put("reasoning_content", v)
		return out
	}
	return d
}
