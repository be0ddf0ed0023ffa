package constrain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		schema string
		is     error
		says   []string
	}{
		{`{"type":"object","propertis":{}}`, constrain.ErrUnsupported, []string{`#: unknown keyword "propertis", did you mean "properties"?`}},
		{`{"properties":{"a/b":{"items":{"minimun":3}}}}`, constrain.ErrUnsupported, []string{`#/properties/a~1b/items: unknown keyword "minimun", did you mean "minimum"?`}},
		{`{"patternProperties":{"^x":{}}}`, constrain.ErrUnsupported, []string{`"patternProperties": names of properties are fixed`}},
		{`{"not":{}}`, constrain.ErrUnsupported, []string{`"not"`}},
		{`{"if":{},"then":{}}`, constrain.ErrUnsupported, []string{`"if"`, "anyOf"}},
		{`{"uniqueItems":true}`, constrain.ErrUnsupported, []string{`uniqueItems`}},
		{`{"items":[{}]}`, constrain.ErrUnsupported, []string{"#/items", "prefixItems"}},
		{`{"format":"dat"}`, constrain.ErrUnsupported, []string{`#/format`, `found "dat"`, `did you mean "date"?`}},
		{`{"pattern":"(?=x)"}`, constrain.ErrUnsupported, []string{"#/pattern", "look-around", "byte"}},
		{`{"pattern":"("}`, constrain.ErrUnsupported, []string{"#/pattern", "expected )"}},
		{`{"$ref":"other.json"}`, constrain.ErrUnsupported, []string{"#/$ref", "other.json", "#/$defs/name"}},
		{`{"$ref":"#/$defs/x"}`, constrain.ErrSchema, []string{"#/$ref", "nothing at"}},
		{`{"$ref":"#"}`, constrain.ErrSchema, []string{"refers to itself"}},
		{`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`, constrain.ErrSchema, []string{"refers to itself"}},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, constrain.ErrUnsupported, []string{"#/oneOf", "0 and 1 may both hold", "anyOf"}},
		{`{"oneOf":[{"properties":{"a":{"const":1}}},{"properties":{"a":{"const":2}}}]}`, constrain.ErrUnsupported, []string{"may both hold"}},
		{`{"type":"object","oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"a":{"const":2}}}]}`, constrain.ErrUnsupported, []string{"may both hold"}},
		{`{"type":"object","oneOf":[{"properties":{"a":{"const":2}}},{"properties":{"a":{"const":1}},"required":["a"]}]}`, constrain.ErrUnsupported, []string{"may both hold"}},
		{`{"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"b$"}]}`, constrain.ErrUnsupported, []string{"may both hold"}},
		{`{"type":"integr"}`, constrain.ErrSchema, []string{"#/type", `found "integr"`, `did you mean "integer"?`}},
		{`{"type":[]}`, constrain.ErrSchema, []string{"#/type"}},
		{`{"enum":[]}`, constrain.ErrSchema, []string{"#/enum"}},
		{`{"minLength":-1}`, constrain.ErrSchema, []string{"#/minLength", "-1"}},
		{`{"minItems":1.5}`, constrain.ErrSchema, []string{"#/minItems", "1.5"}},
		{`{"exclusiveMinimum":true}`, constrain.ErrUnsupported, []string{"#/exclusiveMinimum", "draft 6"}},
		{`{"multipleOf":0}`, constrain.ErrSchema, []string{"#/multipleOf"}},
		{`{"minimum":1e99}`, constrain.ErrUnsupported, []string{"#/minimum", "exponent"}},
		{`{"required":["a",1]}`, constrain.ErrSchema, []string{"#/required"}},
		{`{"required":"a"}`, constrain.ErrSchema, []string{"#/required"}},
		{`{"$defs":{"x":{"kind":"y"}}}`, constrain.ErrUnsupported, []string{"#/$defs/x", `"kind"`}},
		{`{"allOf":[]}`, constrain.ErrSchema, []string{"#/allOf"}},
		{`{"properties":[]}`, constrain.ErrSchema, []string{"#/properties", "array"}},
		{`{"additionalProperties":3}`, constrain.ErrSchema, []string{"#/additionalProperties", "number"}},
		{`{"enum":[{"a":1}],"required":["a"]}`, constrain.ErrUnsupported, []string{"enum of arrays or objects"}},
		{`{"title":"a","title":"b"}`, constrain.ErrSchema, []string{`"title" stands twice`}},
		{`[]`, constrain.ErrSchema, []string{"found array"}},
		{`{"type":`, constrain.ErrSchema, []string{"not JSON"}},
		{`{} {}`, constrain.ErrSchema, []string{"something follows"}},
		{``, constrain.ErrSchema, []string{"not JSON"}},

		{`false`, constrain.ErrNothing, nil},
		{`{"type":"object","properties":{"a":false},"required":["a"]}`, constrain.ErrNothing, nil},
		{`{"type":"integer","minimum":3,"maximum":2}`, constrain.ErrNothing, nil},
		{`{"type":"string","minLength":3,"maxLength":2}`, constrain.ErrNothing, nil},
		{`{"type":"string","pattern":"^a$","minLength":2}`, constrain.ErrNothing, nil},
		{`{"type":"array","minItems":2,"items":false}`, constrain.ErrNothing, nil},
		{`{"type":"array","minItems":1,"prefixItems":[false]}`, constrain.ErrNothing, nil},
		{`{"type":"string","enum":[1]}`, constrain.ErrNothing, nil},
		{`{"allOf":[{"type":"string"},{"type":"null"}]}`, constrain.ErrNothing, nil},
		{`{"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]}`, constrain.ErrNothing, nil}, // it never ends

		{`{"type":"string","pattern":"^[ab]*a[ab]{20}$"}`, constrain.ErrTooLarge, []string{"#/pattern"}},
		{`{"type":"string","pattern":"^a","maxLength":900000000}`, constrain.ErrTooLarge, nil},
		{`{"type":"integer","multipleOf":99991}`, constrain.ErrTooLarge, nil},
		{strings.Repeat(`{"items":`, 300) + `{}` + strings.Repeat(`}`, 300), constrain.ErrTooLarge, []string{"200 values"}},
		{`{"title":"` + strings.Repeat("x", 1<<19) + `"}`, constrain.ErrTooLarge, []string{"bytes"}},
	} {
		began := time.Now()
		g, err := constrain.Schema([]byte(c.schema))
		require.ErrorIs(t, err, c.is, "%.200s", c.schema)
		require.Nil(t, g)
		for _, s := range c.says {
			assert.ErrorContains(t, err, s, "%.200s", c.schema)
		}
		assert.Less(t, time.Since(began), time.Minute, "%.200s", c.schema)
		assert.Equal(t, 1, strings.Count(err.Error(), "constrain: "), "%v", err)
	}
}

// Schemas that multiply out are limited too.
func TestExplosions(t *testing.T) {
	var groups, doubled, wide []string
	for i := range 40 {
		groups = append(groups, fmt.Sprintf(`{"anyOf":[{"properties":{"a%d":{"type":"null"}}},{"properties":{"a%d":{"type":"string"}}}]}`, i, i))
		doubled = append(doubled, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	for i := range 3000 {
		wide = append(wide, fmt.Sprintf(`"property%d":{"type":"integer"}`, i))
	}
	for name, c := range map[string]struct {
		schema string
		is     error
	}{
		"anyOf beside anyOf":    {`{"allOf":[` + strings.Join(groups, ",") + `]}`, constrain.ErrTooLarge},
		"allOf within allOf":    {`{"$ref":"#/$defs/d0","$defs":{` + strings.Join(doubled, ",") + `,"d40":{"type":"null"}}}`, nil},
		"many properties":       {`{"type":"object","properties":{` + strings.Join(wide, ",") + `}}`, nil},
		"many exact properties": {`{"type":"object","additionalProperties":false,"properties":{` + strings.Join(wide, ",") + `}}`, nil},
		"many items":            {`{"type":"array","minItems":900000000,"maxItems":1000000000}`, nil},
		"long strings":          {`{"type":"string","minLength":900000000,"maxLength":1000000000}`, nil},
	} {
		began := time.Now()
		_, err := constrain.Schema([]byte(c.schema))
		if c.is == nil {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, c.is, name)
		}
		t.Log(name, time.Since(began).Round(time.Millisecond))
		assert.Less(t, time.Since(began), time.Minute, name)
	}
}

// Without the bytes to end a text, a matcher is refused instead of getting stuck.
func TestVocabularies(t *testing.T) {
	g, err := constrain.Schema([]byte(`{"type":"object","properties":{"a":{"enum":["é"]}},"required":["a"],"additionalProperties":false}`))
	require.NoError(t, err)
	ascii := tokens()[:128]
	lacks := func(drop byte, more ...string) error {
		var out [][]byte
		for _, b := range ascii {
			if b[0] != drop {
				out = append(out, b)
			}
		}
		for _, s := range more {
			out = append(out, []byte(s))
		}
		v, err := constrain.NewVocabulary(out)
		require.NoError(t, err)
		_, err = g.Matcher(v)
		return err
	}
	require.NoError(t, lacks(0, "\xc3", "\xa9"))
	err = lacks(0, "é")
	require.ErrorIs(t, err, constrain.ErrVocabulary)
	assert.ErrorContains(t, err, `no tokens are the bytes "\xa9\xc3" alone`)
	require.ErrorIs(t, lacks('}', "\xc3", "\xa9"), constrain.ErrVocabulary)
	require.NoError(t, lacks('x', "\xc3", "\xa9"), "a byte that it has no use for")

	_, err = constrain.NewVocabulary([][]byte{nil, {}})
	require.ErrorIs(t, err, constrain.ErrVocabulary)
	_, err = constrain.NewVocabulary([][]byte{make([]byte, 1<<20)})
	require.ErrorIs(t, err, constrain.ErrVocabulary)
}

// A token that does not fit changes nothing.
func TestAccept(t *testing.T) {
	v := vocabulary(t, `{"a":`, "")
	m, err := constrain.JSON().Matcher(v)
	require.NoError(t, err)
	for id, says := range map[int32]string{-1: "the vocabulary has 258", 258: "the vocabulary has 258", 257: "has no bytes", 'x': `found 'x', expected one of "{"`} {
		err := m.Accept(id)
		require.ErrorIs(t, err, constrain.ErrToken)
		assert.ErrorContains(t, err, says)
	}
	id, ok := m.Forced()
	require.False(t, ok, "%d: two tokens begin an object", id)
	require.NoError(t, m.Accept(256))
	require.ErrorIs(t, m.Accept('}'), constrain.ErrToken)
	require.NoError(t, m.Accept('1'))
	require.NoError(t, m.Accept('}'))
	require.True(t, m.Ended())
	_, ok = m.Forced()
	require.False(t, ok)
	require.ErrorContains(t, m.Accept('}'), "expected the end")
}
