package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
)

// TestGenerateSchema: answers are what the schema says, of one prompt and of many.
func TestGenerateSchema(t *testing.T) {
	l := newLab(t)
	schema := l.file("schema.json", `{"type":"object","properties":{"color":{"enum":["red","blue"]},"n":{"type":"integer","minimum":1,"maximum":9}},"required":["color","n"],"additionalProperties":false}`)
	type thing struct {
		Color string
		N     int
	}
	for _, more := range [][]string{nil, {"--temperature", "2", "--seed", "3"}} {
		a := generated(t, append(more, "--prompt", "the quick", "--schema", schema)...)
		assert.Equal(t, generate.FinishGrammar, a.Finish)
		x := decode[thing](t, a.Text)
		assert.Contains(t, []string{"red", "blue"}, x.Color)
		assert.Positive(t, x.N)
	}
	r := command(t, `{"prompt":"a"}`+"\n"+`{"prompt":"b"}`, "generate", "--model", llama, "--prompts", "-", "--schema", schema)
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Empty(t, r.stderr)

	r = command(t, "", "generate", "--model", llama, "--prompt", "the quick", "--json-object", "--temperature", "1")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.True(t, json.Valid([]byte(r.stdout)), r.stdout)
	r = command(t, "", "generate", "--model", llama, "--prompt", "the quick", "--schema", schema, "-n", "3")
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Contains(t, r.stderr, "note     the answer is not whole: it ended at 3 tokens (--max-new-tokens)")
}
