package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The special tokens of the test tokenizers.
const (
	bos = 1000
	eos = 1001
)

// byteTokenizer makes one token of each byte.
type byteTokenizer struct{ bos, noEOS bool }

func (t byteTokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	if strings.Contains(text, "\x00") {
		return nil, errors.New("tokenizer: a zero byte")
	}
	var ids []int32
	if addSpecial && t.bos {
		ids = append(ids, bos)
	}
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func (t byteTokenizer) EOS() (int32, bool) { return eos, !t.noEOS }

// pairTokenizer makes one token of each pair of equal letters, so that a boundary may be inside a token.
type pairTokenizer struct{ byteTokenizer }

func (t pairTokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	var ids []int32
	for i := 0; i < len(text); i++ {
		id := int32(text[i])
		if i+1 < len(text) && text[i+1] == text[i] {
			id += 256
			i++
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// markTokenizer adds a token before every text, like tokenizers that start a text with a space.
type markTokenizer struct{ byteTokenizer }

func (t markTokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	ids, err := t.byteTokenizer.Encode(text, false)
	return append([]int32{999}, ids...), err
}

var errRole = errors.New("no such role")

// chatTemplate renders user turns as "u:…;" and the assistant's as "a:…;",
// whose answer ends with the semicolon.
type chatTemplate struct{}

func (chatTemplate) RenderSpans(c Conversation) (string, []Span, error) {
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(c.Messages, &messages); err != nil {
		return "", nil, err
	}
	text := strings.Repeat("T", len(c.Tools))
	var spans []Span
	for i, m := range messages {
		switch m.Role {
		case "user":
			text += "u:" + m.Content + ";"
		case "assistant":
			text += "a:"
			if !slices.Contains(c.Silent, i) {
				spans = append(spans, Span{len(text), len(text) + len(m.Content) + 1})
			}
			text += m.Content + ";"
		default:
			return "", nil, fmt.Errorf("%w: %s", errRole, m.Role)
		}
	}
	return text, spans, nil
}

// write writes a file to the folder of the test.
func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// load reads one file with the byte tokenizer unless o has another.
func load(t testing.TB, name, content string, o Options) (*Dataset, error) {
	t.Helper()
	if o.Tokenizer == nil {
		o.Tokenizer = byteTokenizer{}
	}
	if o.Template == nil {
		o.Template = chatTemplate{}
	}
	return Load(t.Context(), []string{write(t, name, content)}, o)
}

func rowsOf(d *Dataset) []Row {
	rows := make([]Row, d.Len())
	for r := range rows {
		rows[r] = d.Row(r)
	}
	return rows
}

// ids of a text by the byte tokenizer, followed by others.
func idsOf(text string, more ...int32) []int32 {
	ids := []int32{}
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return append(ids, more...)
}

// masked returns n labels without loss, followed by others.
func masked(n int, labels ...int32) []int32 {
	out := make([]int32, n, n+len(labels))
	for i := range out {
		out[i] = Ignore
	}
	return append(out, labels...)
}
