package chat

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A PartError reports a part of a message's content that is not text.
type PartError struct {
	Part    int    // index in the content
	Field   string // field of the part; empty if the part is not an object
	Problem string // value found and value expected
}

// Place returns the position within the message: the part, and its field if
// any.
func (e *PartError) Place() string {
	if e.Field == "" {
		return fmt.Sprintf("content[%d]", e.Part)
	}
	return fmt.Sprintf("content[%d].%s", e.Part, e.Field)
}

// Error returns the position and the problem.
func (e *PartError) Error() string { return e.Place() + ": " + e.Problem }

// CheckContent returns a [*PartError] if content is a list with a part that is not text. It
// accepts any other content.
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

// mediaKeys lists the keys of parts that refer to something other than text.
var mediaKeys = []string{"image", "image_url", "audio", "audio_url", "input_audio", "video", "video_url", "file"}

// partTexts returns the text of each part of a content. A part is a string or an object of type
// text; the type may be omitted.
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

// contentFormat is the form in which a template reads the content of messages.
type contentFormat int

const (
	contentText   contentFormat = iota // as a string
	contentEither                      // as a string, or part by part
	contentParts                       // only part by part
)

// adapt converts a message's content for the template. A list becomes a list of parts with only
// type and text if the template iterates over parts; otherwise its texts are joined with
// newlines, as in vLLM. A string becomes a single part for templates that read only parts.
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
		message.setString("content", strings.Join(texts, "\n"))
		return nil, nil
	}
	parts = make([]any, len(texts))
	for i, text := range texts {
		part := newDict()
		part.setString("type", "text")
		part.setString("text", text)
		parts[i] = part
	}
	message.setString("content", parts)
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
