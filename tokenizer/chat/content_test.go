package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func messagesOf(t *testing.T, source string) (m []Message) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(source), &m))
	return m
}

// TestContentFormat renders a content of parts by templates that read strings, lists, or both.
func TestContentFormat(t *testing.T) {
	parts := messagesOf(t, `[{"role":"user","content":[{"type":"text","text":" a "},{"text":"b","image":null},"c"]},{"role":"assistant","content":"d"}]`)
	for name, c := range map[string]struct {
		source string
		format contentFormat
		want   string
	}{
		"prints": {`{% for m in messages %}<{{ m.content }}>{% endfor %}`, contentText, "< a \nb\nc><d>"},
		"trims":  {`{% for m in messages %}<{{ m['content'] | trim }}>{% endfor %}`, contentText, "<a \nb\nc><d>"},
		"adds":   {`{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}`, contentText, "< a \nb\nc><d>"},
		"drops what is no string": {
			`{% for m in messages %}{% if m.content is string %}{% set c = m.content %}{% else %}{% set c = '' %}{% endif %}<{{ c }}>{% endfor %}`, contentText, "< a \nb\nc><d>",
		},
		"asks and loops": {
			`{% for m in messages %}<{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}{% endif %}>{% endfor %}`, contentEither, "<abc><d>",
		},
		"loops over a name": {
			`{% for m in messages %}{% set c = m['content'] or '' %}<{% if c is string %}{{ c }}{% else %}{% for p in c %}({{ p['text'] }}){% endfor %}{% endif %}>{% endfor %}`, contentEither, "<( a )(b)(c)><d>",
		},
		"loops in a macro": {
			`{% macro show(c, n) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}({{ p.type }} {{ p.text }}){% endfor %}{% endif %}{% endmacro %}{% for m in messages %}<{{ show(n=1, c=m.content) }}>{% endfor %}`,
			contentEither, "<(text  a )(text b)(text c)><d>",
		},
		"loops over a slice": {`{% for m in messages %}<{% for p in m.content[1:] %}{{ p.text }}{% endfor %}>{% endfor %}`, contentParts, "<bc><>"},
		"reads parts alone":  {`{% for m in messages %}<{% for p in m.get('content') %}{{ p.text }}{% endfor %}>{% endfor %}`, contentParts, "< a bc><d>"},
		"takes the first":    {`{% for m in messages %}<{{ m.content[0].text }}>{% endfor %}`, contentParts, "< a ><d>"},
		"maps":               {`{% for m in messages %}{% set c = m.content | map(attribute='text') | join('+') %}<{{ c }}>{% endfor %}`, contentEither, "< a +b+c><>"},
		"loops over the parts of tools only": {
			`{% for m in messages %}{% if m.role == 'tool' %}{% for p in m.content %}{{ p.text }}{% endfor %}{% else %}<{{ m.content }}>{% endif %}{% endfor %}`, contentEither, "< a \nb\nc><d>",
		},
	} {
		template, err := New(c.source, nil)
		require.NoError(t, err)
		assert.Equal(t, c.format, template.programs["default"].content, name)
		got, err := template.Render(parts, Options{})
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
}

// TestContentFormats names what the templates of the goldens read.
func TestContentFormats(t *testing.T) {
	formats := map[contentFormat][]string{}
	files, err := filepath.Glob(goldens + "/*.jinja")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		template, err := New(string(source), nil)
		require.NoError(t, err)
		name := filepath.Base(file)
		f := template.programs["default"].content
		formats[f] = append(formats[f], name[:len(name)-len(".jinja")])
	}
	assert.Equal(t, []string{"gemma3_style", "macros"}, formats[contentEither])
	assert.Empty(t, formats[contentParts])
}

// TestPartsOfAnswers finds an answer whose content is a list.
func TestPartsOfAnswers(t *testing.T) {
	messages := messagesOf(t, `[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b "}]}]`)
	for _, content := range []string{"{{ m.content }}", "{% for p in m.content %}{{ p.text }}{% endfor %}"} {
		template, err := New("{% for m in messages %}{{ m.role }}:"+content+"<end>\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}", nil)
		require.NoError(t, err)
		text, spans, err := template.RenderSpans(messages, Options{})
		require.NoError(t, err)
		require.Len(t, spans, 1)
		assert.Contains(t, []string{"a\nb <end>", "ab <end>"}, text[spans[0].Start:spans[0].End])
	}
}

func TestPartsThatAreNotText(t *testing.T) {
	template, err := New("{% for m in messages %}{{ m.content }}{% endfor %}", nil)
	require.NoError(t, err)
	for part, want := range map[string]string{
		`{"type":"image"}`: `content[1].type: found "image", expected text`,
		`{"type":"image_url","image_url":{"url":"x"}}`: `content[1].type: found "image_url", expected text`,
		`{"type":"input_audio","input_audio":{}}`:      `content[1].type: found "input_audio", expected text`,
		`{"type":"video","video":"x.mp4"}`:             `content[1].type: found "video", expected text`,
		`{"type":7}`:                                   `content[1].type: found "7", expected text`,
		`{"type":"text","text":"a","image":"x.png"}`:   `content[1].image: found str, expected text alone`,
		`{"image":"x.png"}`:                            `content[1].image: found str`,
		`{"type":"text"}`:                              `content[1].text: is missing`,
		`{"type":"text","text":["a"]}`:                 `content[1].text: found list, expected a string`,
		`3`:                                            `content[1]: found int, expected a part, such as {"type": "text"`,
		`null`:                                         `content[1]: found None`,
		`{"type":"text","text":"a","input_audio":false}`: `content[1].input_audio: found bool`,
	} {
		content := `["a",` + part + `]`
		err := CheckContent(json.RawMessage(content))
		require.ErrorContains(t, err, want)
		_, isPart := err.(*PartError)
		assert.True(t, isPart)
		messages := messagesOf(t, `[{"role":"user","content":"x"},{"role":"user","content":`+content+`}]`)
		_, err = template.Render(messages, Options{})
		require.ErrorContains(t, err, "messages[1]."+want)
		require.ErrorIs(t, err, ErrRender)
	}
	for _, good := range []string{``, `null`, `"a"`, `7`, `[]`, `["a"]`, `[{"text":"a"}]`, `[{"type":"text","text":"","image":null}]`} {
		assert.NoError(t, CheckContent(json.RawMessage(good)), good)
	}
}
