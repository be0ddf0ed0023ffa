package chat

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A PartError reports a part of a message's content that is not text.
type PartError struct {
	Part    int    // its index in the content
	Field   string // of the part; empty if the part is not an object
	Problem string // what was found and expected
}

// Place names the part, and its field if there is one, within the message.
func (e *PartError) Place() string {
	if e.Field == "" {
		return fmt.Sprintf("content[%d]", e.Part)
	}
	return fmt.Sprintf("content[%d].%s", e.Part, e.Field)
}

// Error names the part and what is wrong with it.
func (e *PartError) Error() string { return e.Place() + ": " + e.Problem }

// CheckContent returns a [*PartError] if content is a list with a part that is not text. Content
// of any other kind passes.
func CheckContent(content json.RawMessage) error {
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	v, err := fromJSON(content)
	if err != nil {
		return err
	}
	if list, ok := v.([]any); ok {
		_, err = partTexts(list)
	}
	return err
}

// mediaKeys are the keys of parts that refer to something other than text.
var mediaKeys = []string{"image", "image_url", "audio", "audio_url", "input_audio", "video", "video_url", "file"}

// partTexts returns the text of each part of a content. A part is a string or an object with the
// type text, which may be missing.
func partTexts(parts []any) ([]string, error) {
	texts := make([]string, len(parts))
	for i, part := range parts {
		fault := func(field, format string, args ...any) error {
			return &PartError{i, field, fmt.Sprintf(format, args...)}
		}
		switch part := part.(type) {
		case string:
			texts[i] = part
			continue
		case *dict:
			if kind, _ := part.get("type"); kind != nil && kind != "text" {
				return nil, fault("type", "found %.40q, expected text: the model reads nothing else", fmt.Sprint(kind))
			}
			for _, key := range mediaKeys {
				if v, _ := part.get(key); v != nil {
					return nil, fault(key, "found %s, expected text alone: the model reads nothing else", typeName(v))
				}
			}
			v, _ := part.get("text")
			text, ok := v.(string)
			if v == nil {
				return nil, fault("text", "is missing")
			} else if !ok {
				return nil, fault("text", "found %s, expected a string", typeName(v))
			}
			texts[i] = text
		default:
			return nil, fault("", `found %s, expected a part, such as {"type": "text", "text": "…"}`, typeName(part))
		}
	}
	return texts, nil
}

// contentFormat tells how a template reads the content of messages.
type contentFormat int

const (
	contentText   contentFormat = iota // as a string
	contentEither                      // as a string, or part by part
	contentParts                       // only part by part
)

// adapt replaces the content of a message that is a list: by its parts, each with type and text
// alone, if the template goes through them, else by their texts, one a line, as vLLM joins them.
// A string becomes a single part for templates that read nothing else.
func (f contentFormat) adapt(message *dict) (parts []any, err error) {
	content, _ := message.get("content")
	var texts []string
	switch content := content.(type) {
	case string:
		if f != contentParts {
			return nil, nil
		}
		texts = []string{content}
	case []any:
		if texts, err = partTexts(content); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	if f == contentText {
		message.put("content", strings.Join(texts, "\n"))
		return nil, nil
	}
	parts = make([]any, len(texts))
	for i, text := range texts {
		part := newDict()
		part.put("type", "text")
		part.put("text", text)
		parts[i] = part
	}
	message.put("content", parts)
	return parts, nil
}

// text returns the content of a message as one string.
func (m Message) text() string {
	d, err := m.value()
	if err != nil {
		return m.Content
	}
	if _, err := contentText.adapt(d); err != nil {
		return m.Content
	}
	content, _ := d.get("content")
	text, _ := content.(string)
	return text
}
