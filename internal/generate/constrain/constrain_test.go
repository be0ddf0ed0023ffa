package constrain_test

import (
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// bytesOnly is a vocabulary of all bytes, and of more tokens.
func vocabulary(t testing.TB, more ...string) *constrain.Vocabulary {
	t.Helper()
	v, err := constrain.NewVocabulary(tokens(more...))
	require.NoError(t, err)
	return v
}

// tokens returns all bytes by their numbers, followed by more.
func tokens(more ...string) [][]byte {
	var out [][]byte
	for b := range 256 {
		out = append(out, []byte{byte(b)})
	}
	for _, s := range more {
		out = append(out, []byte(s))
	}
	return out
}

// accepts reports whether a grammar has a text, byte by byte.
func accepts(t testing.TB, g *constrain.Grammar, text string) bool {
	t.Helper()
	m, err := g.Matcher(vocabulary(t))
	require.NoError(t, err)
	mask := make([]uint64, 4)
	for i := range len(text) {
		m.Mask(mask)
		allowed := mask[text[i]>>6]>>(text[i]&63)&1 == 1
		err := m.Accept(int32(text[i]))
		require.Equal(t, allowed, err == nil, "%s at %d: the mask and Accept", text, i)
		if err != nil {
			require.ErrorIs(t, err, constrain.ErrToken)
			return false
		}
	}
	return m.Done()
}

func TestJSON(t *testing.T) {
	for text, ok := range map[string]bool{
		`{}`: true, `{"a": 1}`: true, `{"a":1,"b":[true,false, null,"x\u00e9",-1.5e3,{"c":{}},[[]]]}`: true,
		`[]`: false, `1`: false, `{"a"}`: false, `{"a":1,}`: false, ` {}`: false, `{} `: false, `{ }`: false, `{"a":01}`: false, `{"a":1`: false,
		`{"\ud800":1}`: false, "{\"\x80\":1}": false,
	} {
		assert.Equal(t, ok, accepts(t, constrain.JSON(), text), text)
	}
}

// Each schema has texts that it allows and texts that it does not.
func TestSchema(t *testing.T) {
	for _, c := range []struct{ schema, yes, no string }{
		{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
			`[{"a":1},{"a":-12,"b":"x"}]`, `[{},{"b":"x"},{"b":"x","a":1},{"a":1,"c":2},{"a":1.5},{"a":1,"a":1}]`},
		{`{"type":"object","properties":{"a":{"type":"integer"},"b":{}},"additionalProperties":{"type":"null"}}`,
			`[{},{"a":1},{"b":[1]},{"c":null},{"a":1,"c":null,"d":null},{"aa":null},{"":null}]`, `[{"c":1},{"a":null},{"c":null,"a":1}]`},
		{`{"type":"object","properties":{"a":{"type":"integer"}},"allOf":[{"properties":{"b":{}}}]}`, `[{},{"a":1},{"a":1,"b":2}]`, `[{"c":1},{"a":1,"c":1}]`},
		{`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":true}`, `[{},{"a":1},{"a":1,"b":2}]`, `[{"a":"x"}]`},
		{`{"type":"object","required":["z"]}`, `[{"z":1},{"z":1,"y":2}]`, `[{},{"y":2}]`},
		{`{"type":"object","required":["z"],"additionalProperties":{"type":"integer"}}`, `[{"z":1},{"z":1,"y":2}]`, `[{},{"y":2},{"z":"1"}]`},
		{`{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":4}`, `[[1,2],[1,2,3],[1,2,3,4]]`, `[[],[1],[1,2,3,4,5],["x",1]]`},
		{`{"type":"array","minItems":1,"maxItems":1}`, `[[1]]`, `[[],[1,2]]`},
		{`{"type":"array","maxItems":0}`, `[[]]`, `[[1]]`},
		{`{"type":"array","minItems":3}`, `[[1,2,3],[1,2,3,4,5]]`, `[[],[1],[1,2]]`},
		{`{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}`, `[[],[1],[1,"x"]]`, `[["x"],[1,2],[1,"x",3]]`},
		{`{"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":2,"maxItems":3}`, `[[1,null],[1,null,null]]`, `[[],[1],[1,2],[1,null,null,null],[null,null]]`},
		{`{"enum":["a","ab",1,1.5,null,{"x":[1,2]},"\n"]}`, `["a","ab",1,1.5,null,{"x":[1,2]},"\n"]`, `["b","abc",2,true,{},{"x":[1]}]`},
		{`{"type":"string","enum":["a",1]}`, `["a"]`, `[1]`},
		{`{"enum":[1,5,10],"minimum":4,"type":"integer","const":10.0}`, `[10]`, `[1,5]`},
		{`{"const":"x"}`, `["x"]`, `["y"]`},
		{`{"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}},{"type":"array","items":{"type":"string"}}]}`, `[1,[],[1,2],["a","b"]]`, `["x",[1,"a"],{}]`},
		{`{"type":["integer","null"]}`, `[1,null]`, `[1.5,"x"]`},
		{`{"type":"string","minLength":2,"maxLength":3}`, `["ab","abc","é😀漢"]`, `["","a","abcd","é"]`},
		{`{"type":"string","pattern":"^[a-c]+$","maxLength":3}`, `["a","abc"]`, `["","d","abca"]`},
		{`{"type":"string","pattern":"b"}`, `["b","abc"]`, `["","ac"]`},
		{`{"type":"integer","minimum":-3,"exclusiveMaximum":12,"multipleOf":3}`, `[-3,0,3,9]`, `[-6,12,1,2]`},
		{`{"type":"number","minimum":0,"maximum":1}`, `[0,1,0.5,0.125]`, `[-1,2,1.5]`},
		{`{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"additionalProperties":{"maximum":5}}]}`,
			`[{"a":1},{"a":5,"b":null},{"a":2,"c":4}]`, `[{"a":6},{"b":null},{"a":1,"b":1},{"a":2,"c":6}]`},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}}`,
			`[{"v":1,"next":null},{"v":1,"next":{"v":2,"next":{"v":3,"next":null}}}]`, `[{"v":1},{"v":1,"next":{}}]`},
		{`{"properties":{"a/b":{"type":"integer"},"c":{"$ref":"#/properties/a~1b"}},"type":"object"}`, `[{"c":1}]`, `[{"c":"x"}]`},
		{`{"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"oneOf":[{"properties":{"k":{"const":"a"}}},{"properties":{"k":{"const":"b"},"n":{"type":"integer"}},"required":["n"]}]}`,
			`[{"k":"a"},{"k":"b","n":1}]`, `[{"k":"b"},{"k":"c"},{"k":"b","n":"x"}]`},
		{`{"type":"string","format":"date"}`, `["2024-02-29","1999-12-31","2000-02-29"]`, `["2023-02-29","1900-02-29","2024-13-01","2024-04-31"]`},
		{`{"type":"string","format":"date-time"}`, `["2024-02-29T23:59:59Z","2024-02-28T00:00:00.123+05:30"]`, `["2024-02-29","2024-02-29T24:00:00Z","2024-02-29T23:59:59"]`},
		{`{"type":"string","format":"uuid"}`, `["123e4567-e89b-12d3-a456-426614174000"]`, `["123e4567"]`},
		{`{"type":"string","format":"ipv4"}`, `["127.0.0.1","255.255.255.255"]`, `["256.0.0.1","1.2.3","01.2.3.4"]`},
		{`{"type":"string","format":"email"}`, `["a.b+c@example.org"]`, `["a","@b.c","a@b","a..b@c.d","a@-b.c"]`},
		{`{"type":"object","properties":{"x":false,"y":true},"additionalProperties":true}`, `[{},{"y":1},{"z":1}]`, `[{"x":1}]`},
		{`{"minLength":2,"maximum":3}`, `["ab",1,null,[],{"a":9}]`, `["a",4]`},
		{`{"allOf":[{"minimum":3,"maximum":9},{"exclusiveMinimum":3},{"exclusiveMaximum":9},{"type":"integer"}]}`, `[4,8]`, `[3,9]`},
		{`{"allOf":[{"exclusiveMinimum":3,"exclusiveMaximum":9},{"minimum":3},{"maximum":9},{"type":"integer"}]}`, `[4,8]`, `[3,9]`},
		{`{"allOf":[{"type":"string","maxLength":2},{"minLength":1},{"maxLength":5}]}`, `["a","ab"]`, `["","abc"]`},
		{`{"allOf":[{"type":"array","maxItems":2},{"minItems":1},{"maxItems":5},{"items":{"multipleOf":2}},{"items":{"multipleOf":3,"type":"integer"}}]}`, `[[6],[0,12]]`, `[[],[2],[3],[6,6,6]]`},
		{`{"type":"object","additionalProperties":true,"oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"a":false}},{"properties":{"a":{"type":"string"}},"required":["a"]}]}`,
			`[{"a":1},{},{"b":1},{"a":"x"}]`, `[{"a":2},{"a":null}]`},
		{`{"oneOf":[{"type":"integer","maximum":3},{"type":"number","exclusiveMinimum":3},{"type":"string","pattern":"^a"},{"enum":["b","c"]},{"type":"array","maxItems":1},{"type":"array","minItems":2}]}`,
			`[3,3.5,"ab","b",[],[1,2]]`, `["d",null,2.5]`},
		{`true`, `[1,"x",null,[],{}]`, `[]`},
	} {
		g, err := constrain.Schema([]byte(c.schema))
		require.NoError(t, err, c.schema)
		for want, list := range map[bool]string{true: c.yes, false: c.no} {
			var texts []json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(list), &texts))
			for _, text := range texts {
				assert.Equal(t, want, accepts(t, g, string(text)), "%s by %s", text, c.schema)
			}
		}
	}
}

// A random walk ends.
func TestWalk(t *testing.T) {
	g, err := constrain.Schema([]byte(`{"type":"object","properties":{"a":{"type":"string","maxLength":5},"b":{"type":"array","items":{"enum":["x","yy"]},"minItems":1,"maxItems":3},"c":{"type":"integer","minimum":5,"maximum":77}},"required":["a","b","c"],"additionalProperties":false}`))
	require.NoError(t, err)
	v := vocabulary(t, `{"`, `":`, `"a"`, `": "`, `","`, `abc`, `["x`, `"],"c`, `7}`)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m, err := g.Matcher(v)
		require.NoError(t, err)
		text := []byte{}
		mask := make([]uint64, (v.Size()+63)/64)
		for !m.Ended() {
			m.Mask(mask)
			var can []int32
			for id := range v.Size() {
				if mask[id>>6]>>(id&63)&1 == 1 {
					can = append(can, int32(id))
				}
			}
			require.NotEmpty(t, can, "%s", text)
			id := can[r.IntN(len(can))]
			text = append(text, tokens(`{"`, `":`, `"a"`, `": "`, `","`, `abc`, `["x`, `"],"c`, `7}`)[id]...)
			require.NoError(t, m.Accept(id))
		}
		require.True(t, json.Valid(text), "%s", text)
	}
}

// Sequences that are generated at the same time share a grammar and a vocabulary.
func TestConcurrent(t *testing.T) {
	g, err := constrain.Schema([]byte(`{"type":"array","items":{"type":"string","maxLength":3},"maxItems":3}`))
	require.NoError(t, err)
	v := vocabulary(t, `","`, `["`, "ab")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			m, err := g.Matcher(v)
			assert.NoError(t, err)
			mask := make([]uint64, (v.Size()+63)/64)
			for _, id := range []int32{257, 258, 256, 'x', 256, '"', ']'} {
				m.Mask(mask)
				assert.Equal(t, uint64(1), mask[id>>6]>>(id&63)&1, "%d", id)
				assert.NoError(t, m.Accept(id))
			}
			assert.True(t, m.Ended())
		})
	}
	all.Wait()
}
