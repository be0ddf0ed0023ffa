package tools_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/tokenizer"
)

var strict = []tools.Tool{
	{Name: "look_up", Strict: true, Parameters: json.RawMessage(`{"properties":{
		"query":{"type":"string","maxLength":6},"$ref":{"$ref":"#/$defs/tree"},"kind":{"enum":["a",{"$ref":"#/x"}]}},
		"required":["query","$ref","kind"],"additionalProperties":false,
		"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer","minimum":0,"maximum":9},"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/tree"}]}},"required":["v","next"],"additionalProperties":false}}}`)},
	{Name: "f"},
	{Name: "loose", Parameters: json.RawMessage(`{"type":"object","minProperties":1}`)},
}

func TestForcedSchema(t *testing.T) {
	call := func(name, key, parameters string) string {
		return `{"type":"object","properties":{"name":{"const":"` + name + `"},"` + key + `":` + parameters + `},"required":["name","` + key + `"],"additionalProperties":false}`
	}
	none := `{"type":"object","properties":{},"additionalProperties":false}`
	got, err := tools.Llama.Forced(strict[1:], tools.Choice{Mode: tools.Required}, true)
	require.NoError(t, err)
	require.Equal(t, `{"type":"array","minItems":1,"items":{"anyOf":[`+call("f", "parameters", none)+`,`+call("loose", "parameters", `{"type":"object"}`)+`]}}`, string(got))
	got, err = tools.None.Forced(strict, tools.Choice{Mode: tools.Named, Name: "f"}, true)
	require.NoError(t, err)
	require.Equal(t, `{"type":"array","minItems":1,"maxItems":1,"items":{"anyOf":[`+call("f", "arguments", none)+`]}}`, string(got))
	// References are true at the new place; what only looks like one stays.
	got, err = tools.Hermes.Forced(append(strict[1:2], strict[0]), tools.Choice{Mode: tools.Required}, false)
	require.NoError(t, err)
	require.Contains(t, string(got), `"minItems":1,"maxItems":1,`)
	require.Equal(t, 2, strings.Count(string(got), `{"$ref":"#/items/anyOf/1/properties/arguments/$defs/tree"}`))
	require.Contains(t, string(got), `{"$ref":"#/x"}`)
	require.Contains(t, string(got), `"arguments":{"type":"object","properties":{"query"`)
}

func TestForcedRefuses(t *testing.T) {
	for parameters, want := range map[string]string{
		`{"type":"object","minProperties":1}`:                         `unsupported in JSON Schema: #: "minProperties": properties are not counted`,
		`{"properties":{"a":{"type":"text"}}}`:                        `bad JSON Schema: #/properties/a/type: type: found "text", expected null, boolean, integer, number, string, array or object`,
		`{"properties":{"a":{"$ref":"#/$defs/b"}}}`:                   `bad JSON Schema: #/properties/a/$ref: there is nothing at "#/$defs/b"`,
		strings.Repeat(`{"a":`, 500) + `1` + strings.Repeat(`}`, 500): `more than 128 values in one another`,
	} {
		_, err := tools.Hermes.Forced([]tools.Tool{{Name: "f"}, {Name: "g", Strict: true, Parameters: json.RawMessage(parameters)}}, tools.Choice{Mode: tools.Required}, true)
		require.EqualError(t, err, "tools[1].function.parameters: "+want)
		require.ErrorIs(t, err, tools.ErrRequest)
	}
}

// TestForcedAnswers: whatever a model chooses within the schema of forced calls is calls,
// whose arguments fulfil the parameters of their tools.
func TestForcedAnswers(t *testing.T) {
	tok, err := tokenizer.Load("../../../testdata/lm/llama/model")
	require.NoError(t, err)
	tokens, err := tok.TokenBytes()
	require.NoError(t, err)
	vocabulary, err := constrain.NewVocabulary(tokens)
	require.NoError(t, err)
	valid := map[string]*jsonschema.Schema{}
	for _, tool := range strict {
		if tool.Parameters != nil && tool.Strict {
			valid[tool.Name] = compiled(t, tool.Parameters)
		}
	}
	mask := make([]uint64, (vocabulary.Size()+63)/64)
	rapid.Check(t, func(t *rapid.T) {
		syntax := rapid.SampledFrom(tools.Syntaxes()).Draw(t, "syntax")
		choice := tools.Choice{Mode: tools.Required}
		if rapid.Bool().Draw(t, "named") {
			choice = tools.Choice{Mode: tools.Named, Name: rapid.SampledFrom(strict).Draw(t, "tool").Name}
		}
		parallel := rapid.Bool().Draw(t, "parallel")
		schema, err := syntax.Forced(strict, choice, parallel)
		require.NoError(t, err)
		g, err := constrain.Schema(schema)
		require.NoError(t, err)
		m, err := g.Matcher(vocabulary)
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var pieces []string
		for len(pieces) < 400 && !m.Ended() {
			m.Mask(mask)
			var can []int32
			for id := range int32(vocabulary.Size()) {
				if mask[id/64]>>(id%64)&1 == 1 {
					can = append(can, id)
				}
			}
			id := can[r.IntN(len(can))]
			require.NoError(t, m.Accept(id))
			pieces = append(pieces, string(tokens[id]))
		}
		o := tools.Options{Syntax: syntax, Tools: strict, Forced: true}
		text, calls := read(t, o, pieces...)
		whole, wholeCalls := read(t, o, strings.Join(pieces, ""))
		require.Equal(t, whole, text)
		require.Equal(t, wholeCalls, calls)
		if !m.Ended() {
			return // it was cut by its length
		}
		marks := ""
		for i := range calls {
			marks += fmt.Sprintf("⟨%d⟩", i)
		}
		require.Equal(t, marks, text)
		require.NotEmpty(t, calls)
		if choice.Mode == tools.Named || !parallel {
			require.Len(t, calls, 1)
		}
		for _, c := range calls {
			if choice.Name != "" {
				require.Equal(t, choice.Name, c.name)
			}
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(c.arguments))
			require.NoError(t, err, c.arguments)
			if s := valid[c.name]; s != nil {
				require.NoError(t, s.Validate(v), c.arguments)
			}
		}
	})
}

func compiled(t *testing.T, raw json.RawMessage) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("tool.json", doc))
	s, err := c.Compile("tool.json")
	require.NoError(t, err)
	return s
}

// TestForcedStreams: the arguments of forced calls come as they are written.
func TestForcedStreams(t *testing.T) {
	p := tools.New(tools.Options{Forced: true, Syntax: tools.Hermes, Tools: strict, Rand: rand.NewChaCha8([32]byte{})})
	require.Empty(t, p.Push(`[{"name":`))
	got := p.Push(` "f", "arguments": {"a"`)
	require.Len(t, got, 2)
	require.Equal(t, "f", got[0].Name)
	require.Equal(t, tools.Delta{Arguments: `{"a"`}, got[1])
	require.Equal(t, []tools.Delta{{Arguments: `: [1`}}, p.Push(`: [1`))
	got = p.Push(`]}}, {"name": "look_up", "arguments": {`)
	require.Len(t, got, 3)
	require.Equal(t, tools.Delta{Arguments: `]}`}, got[0])
	require.Equal(t, "look_up", got[1].Name)
	require.Equal(t, 1, got[1].Index)
	require.Equal(t, tools.Delta{Index: 1, Arguments: `{`}, got[2])
	require.Empty(t, p.Flush())
	require.Equal(t, 2, p.Calls())
}
